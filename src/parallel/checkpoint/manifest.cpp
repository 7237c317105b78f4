// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <unordered_map>

#include "src/parallel/checkpoint/crc32c.h"
#include "src/parallel/checkpoint/file_system.h"
#include "src/parallel/checkpoint/json.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

constexpr std::uint64_t kVersion = 1;
constexpr std::string_view kFormat = "c10d-checkpoint";
constexpr std::string_view kTail = ",\n\"crc32c\":\"";  // then 8 digits, quote, brace, newline
constexpr std::size_t kTailBytes = kTail.size() + 8 + 3;

std::string tail_for(std::string_view body) {
  return fmt::format("{}{:08x}\"}}\n", kTail, crc32c(body));
}

struct ByteRange {
  std::uint64_t begin, end;
  auto operator<=>(const ByteRange&) const = default;
};

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  Manifest read(const nlohmann::json& json) {
    const JsonObject object(json, file_);
    if (object.string("format") != kFormat) object.refuse("\"format\" is not {}", kFormat);
    if (object.number("version") != kVersion)
      object.refuse("is of version {}, and this build reads version {}", object.number("version"),
                    kVersion);
    manifest_.step = object.number("step");
    manifest_.epoch = object.number("epoch");
    manifest_.cursor = object.number("cursor");
    manifest_.world_size = object.number("world_size", INT32_MAX);
    read_values(object);
    for (const nlohmann::json& file : object.array("files")) read_file({file, file_});
    ranges_.resize(manifest_.files.size());
    for (const nlohmann::json& tensor : object.array("tensors")) read_tensor({tensor, file_});
    check_files(object);
    return std::move(manifest_);
  }

 private:
  void read_values(const JsonObject& object) {
    for (const auto& [name, value] : object.object("strings").items()) {
      if (!value.is_string()) object.refuse("strings: {} is not a string", name);
      manifest_.strings[name] = value.get<std::string>();
    }
    for (const auto& [name, value] : object.object("integers").items()) {
      const bool fits = value.is_number_unsigned() ? value.get<std::uint64_t>() <= INT64_MAX
                                                   : value.is_number_integer();
      if (!fits) object.refuse("integers: {} is not a 64-bit integer", name);
      manifest_.integers[name] = value.get<std::int64_t>();
    }
  }

  void read_file(const JsonObject& object) {
    ManifestFile file{
        .name = object.string("name"),
        .bytes = object.number("bytes"),
        .header_bytes = object.number("header_bytes", kMaxHeaderBytes + 8),
        .header_crc = static_cast<std::uint32_t>(object.number("crc32c", UINT32_MAX))};
    // Only what save() writes: no way out of the directory.
    int rank = -1;
    const std::string& name = file.name;
    if (name.size() > 5 && name.size() < 40 && name.starts_with("rank-"))
      rank = std::atoi(name.c_str() + 5);
    if (rank < 0 || name != shard_name(rank))
      object.refuse("{} is not the name of a shard", name.substr(0, 80));
    if (!files_.emplace(name, static_cast<std::uint32_t>(manifest_.files.size())).second)
      object.refuse("file {} is listed twice", name);
    if (file.header_bytes > file.bytes)
      object.refuse("file {}: a header longer than the file", name);
    manifest_.files.push_back(std::move(file));
  }

  void read_tensor(const JsonObject& object) {
    ManifestTensor tensor{.spec = object.spec(), .pieces = {}};
    const std::string& name = tensor.spec.name;
    if (!manifest_.tensors.empty() && !(manifest_.tensors.back().spec.name < name))
      object.refuse("tensor {} is listed twice or out of order", name);
    std::uint64_t at = 0;
    for (const nlohmann::json& value : object.array("parts")) {
      const ManifestPiece piece = read_piece({value, file_}, tensor.spec);
      if (piece.offset != at)
        object.refuse("tensor {}: a part begins at element {}, the one before ends at {}", name,
                      piece.offset, at);
      at += piece.count;
      tensor.pieces.push_back(piece);
    }
    if (at != tensor.spec.count())
      object.refuse("tensor {}: parts for {} of {} elements", name, at, tensor.spec.count());
    manifest_.tensors.push_back(std::move(tensor));
  }

  ManifestPiece read_piece(const JsonObject& object, const ParamSpec& spec) {
    ManifestPiece piece;
    piece.offset = object.number("offset", spec.count());
    piece.count = object.number("count", spec.count() - piece.offset);
    piece.begin = object.number("begin");
    piece.crc = static_cast<std::uint32_t>(object.number("crc32c", UINT32_MAX));
    const std::string& name = object.string("file");
    const auto found = files_.find(name);
    if (found == files_.end())
      object.refuse("tensor {}: file {} is not listed", spec.name, name.substr(0, 80));
    piece.file = found->second;
    const ManifestFile& file = manifest_.files[piece.file];
    const std::uint64_t bytes = piece.count * size_of(spec.dtype);
    if (piece.count == 0 || bytes > kMaxPieceBytes)
      object.refuse("tensor {}: a part of {} bytes, limit {}", spec.name, bytes, kMaxPieceBytes);
    if (piece.begin < file.header_bytes || piece.begin > file.bytes ||
        bytes > file.bytes - piece.begin)
      object.refuse("tensor {}: bytes {} to {} are not data of {}", spec.name, piece.begin,
                    piece.begin + bytes, name);
    ranges_[piece.file].push_back({piece.begin, piece.begin + bytes});
    return piece;
  }

  void check_files(const JsonObject& object) {
    for (std::size_t i = 0; i < ranges_.size(); ++i) {
      std::ranges::sort(ranges_[i]);
      std::uint64_t at = manifest_.files[i].header_bytes;
      for (const ByteRange& range : ranges_[i]) {
        if (range.begin != at)
          object.refuse("file {}: a part begins at byte {}, the one before ends at {}",
                        manifest_.files[i].name, range.begin, at);
        at = range.end;
      }
      if (at != manifest_.files[i].bytes)
        object.refuse("file {}: bytes {} to {} belong to no tensor", manifest_.files[i].name, at,
                      manifest_.files[i].bytes);
    }
  }

  const std::string& file_;
  Manifest manifest_;
  std::unordered_map<std::string, std::uint32_t> files_;  // by name, the index
  std::vector<std::vector<ByteRange>> ranges_;            // per file
};

}  // namespace

std::string shard_name(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }

std::string to_text(const Manifest& manifest) {
  using Json = nlohmann::ordered_json;
  Json files = Json::array(), tensors = Json::array();
  for (const ManifestFile& file : manifest.files)
    files.push_back({{"name", file.name},
                     {"bytes", file.bytes},
                     {"header_bytes", file.header_bytes},
                     {"crc32c", file.header_crc}});
  for (const ManifestTensor& tensor : manifest.tensors) {
    Json parts = Json::array();
    for (const ManifestPiece& piece : tensor.pieces)
      parts.push_back({{"offset", piece.offset},
                       {"count", piece.count},
                       {"file", manifest.files[piece.file].name},
                       {"begin", piece.begin},
                       {"crc32c", piece.crc}});
    Json entry = to_json(tensor.spec);
    entry["parts"] = std::move(parts);
    tensors.push_back(std::move(entry));
  }
  Json json = {{"format", kFormat},           {"version", kVersion},
               {"step", manifest.step},       {"epoch", manifest.epoch},
               {"cursor", manifest.cursor},   {"world_size", manifest.world_size},
               {"strings", manifest.strings}, {"integers", manifest.integers},
               {"files", std::move(files)},   {"tensors", std::move(tensors)}};
  std::string text = json.dump(1);
  text.resize(text.find_last_of('}'));
  while (text.ends_with('\n')) text.pop_back();
  return text + tail_for(text);
}

Manifest parse_manifest(const std::string& text, const std::string& file, std::uint64_t limit) {
  if (text.size() > limit)
    refuse_file(file, limit,
                "is a manifest of {} bytes, limit {}: fewer tensors, or shorter names and strings",
                text.size(), limit);
  if (text.size() < kTailBytes || text.substr(text.size() - kTailBytes, kTail.size()) != kTail)
    refuse_file(file, text.size(), "is torn at byte {}: its checksum is missing", text.size());
  const std::string_view body(text.data(), text.size() - kTailBytes);
  if (!text.ends_with(tail_for(body)))
    refuse_file(file, body.size(), "bytes 0 to {} do not match their checksum", body.size());
  return Reader(file).read(parse_strict(text, file));
}

}}}  // namespace c10d::v0::parallel
