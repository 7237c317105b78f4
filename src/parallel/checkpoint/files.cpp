// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/checkpoint/files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "src/parallel/checkpoint/crc32c.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string read_latest(const std::string& path) {
  const std::string text = InputFile(path).text(4096);
  const std::string name = text.substr(0, text.find(' '));
  if (!sequence_of(name) || text != latest_text(name))
    refuse_file(path, text.size(),
                "is torn: it has {} bytes that name no checkpoint; load one by its name",
                text.size());
  return name;
}

}  // namespace

std::string checkpoint_name(std::uint64_t sequence, std::uint64_t step) {
  return fmt::format("{:06}-step-{}", sequence, step);
}

std::optional<std::uint64_t> sequence_of(const std::string& name) {
  const std::string_view text = name;
  const std::size_t dash = text.find("-step-");
  if (dash == std::string_view::npos) return std::nullopt;
  const auto sequence = number_in(text.substr(0, dash)), step = number_in(text.substr(dash + 6));
  if (!sequence || !step || checkpoint_name(*sequence, *step) != name) return std::nullopt;
  return sequence;
}

std::string latest_text(const std::string& name) {
  return fmt::format("{} crc32c={:08x}\n", name, crc32c(name));
}

std::optional<std::string> find_checkpoint(const std::string& directory,
                                           const std::string& wanted) {
  if (!wanted.empty()) {
    if (!sequence_of(wanted))
      refuse_file(directory, 0, "{} is not the name of a checkpoint", wanted);
    return wanted;
  }
  const std::string latest = directory + "/" + kLatestName;
  if (exists(latest)) return read_latest(latest);
  std::optional<std::string> newest;
  for (const std::string& name : list_directory(directory)) {
    const bool is_newer =
        sequence_of(name) && (!newest || sequence_of(name) > sequence_of(*newest));
    if (is_newer && exists(directory + "/" + name + "/" + kManifestName)) newest = name;
  }
  return newest;
}

std::string checkpoint_path(const std::string& path) {
  if (exists(path + "/" + kManifestName)) return path;
  const std::optional<std::string> name = find_checkpoint(path, {});
  if (!name) refuse_file(path, 0, "holds no checkpoint");
  return path + "/" + *name;
}

const InputFile& PieceReader::open(std::uint32_t file) {
  if (const auto found = open_.find(file); found != open_.end()) return found->second;
  const ManifestFile& entry = manifest_.files[file];
  InputFile input(path_ + "/" + entry.name);
  if (input.bytes() != entry.bytes)
    refuse_file(input.path(), std::min(input.bytes(), entry.bytes),
                "is torn at byte {}: it should have {} bytes", input.bytes(), entry.bytes);
  std::vector<std::byte> header(entry.header_bytes);
  input.read(0, header);
  if (crc32c(header) != entry.header_crc)
    refuse_file(input.path(), 0, "bytes 0 to {} do not match their checksum", header.size());
  return open_.emplace(file, std::move(input)).first->second;
}

void PieceReader::read_piece(const ManifestTensor& tensor, const ManifestPiece& piece,
                             std::span<std::byte> to) {
  const InputFile& file = open(piece.file);
  file.read(piece.begin, to);
  if (crc32c(to) != piece.crc)
    refuse_file(file.path(), piece.begin,
                "bytes {} to {} do not match their checksum: {} elements of {} from {} on",
                piece.begin, piece.begin + to.size(), piece.count, tensor.spec.name, piece.offset);
}

void PieceReader::read(const ManifestTensor& tensor, std::uint64_t offset,
                       std::span<std::byte> to) {
  const std::uint64_t width = size_of(tensor.spec.dtype);
  const std::uint64_t end = offset + to.size() / width;
  auto piece =
      std::partition_point(tensor.pieces.begin(), tensor.pieces.end(),
                           [&](const ManifestPiece& p) { return p.offset + p.count <= offset; });
  for (; piece != tensor.pieces.end() && piece->offset < end; ++piece) {
    const std::uint64_t first = std::max(piece->offset, offset);
    const std::uint64_t last = std::min(piece->offset + piece->count, end);
    const auto part = to.subspan((first - offset) * width, (last - first) * width);
    if (last - first == piece->count) {
      read_piece(tensor, *piece, part);
    } else {
      scratch_.resize(piece->count * width);
      read_piece(tensor, *piece, scratch_);
      std::memcpy(part.data(), scratch_.data() + (first - piece->offset) * width, part.size());
    }
  }
}

}}}  // namespace c10d::v0::parallel
