// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <random>
#include <set>

#include "c10d/parallel/checkpoint.h"
#include "src/parallel/checkpoint/agreement.h"
#include "src/parallel/checkpoint/files.h"
#include "src/parallel/checkpoint/plan.h"
#include "src/parallel/checkpoint/safetensors.h"
#include "src/parallel/common/parameters.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

constexpr std::size_t kMaxNamesInText = 10;

const ManifestTensor* find_tensor(const Manifest& manifest, const std::string& name) {
  const auto found =
      std::partition_point(manifest.tensors.begin(), manifest.tensors.end(),
                           [&](const ManifestTensor& tensor) { return tensor.spec.name < name; });
  return found != manifest.tensors.end() && found->spec.name == name ? &*found : nullptr;
}

std::string names_text(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kMaxNamesInText);
  return fmt::format("{}{}", fmt::join(names.begin(), names.begin() + std::ptrdiff_t(shown), ", "),
                     shown < names.size() ? fmt::format(" and {} more", names.size() - shown) : "");
}

// The same on every rank: it knows what all of them want.
LoadResult compare_keys(const Manifest& manifest, const std::vector<nlohmann::json>& ranks,
                        const std::string& path, bool strict) {
  const std::string file = path + "/" + kManifestName;
  LoadResult result;
  std::set<std::string> wanted, missing;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const DescribedPart& part : parse_parts(ranks[rank].at("parts"))) {
      wanted.insert(part.spec.name);
      const ManifestTensor* tensor = find_tensor(manifest, part.spec.name);
      if (!tensor)
        missing.insert(part.spec.name);
      else if (tensor->spec != part.spec)
        throw CheckpointError(
            {.message = fmt::format("{} is {} on rank {} and {} in {}", part.spec.name,
                                    to_text(part.spec), rank, to_text(tensor->spec), file),
             .rank = static_cast<int>(rank),
             .file = file});
    }
  }
  result.missing.assign(missing.begin(), missing.end());
  for (const ManifestTensor& tensor : manifest.tensors)
    if (!wanted.contains(tensor.spec.name)) result.unexpected.push_back(tensor.spec.name);
  if (strict && !(result.missing.empty() && result.unexpected.empty())) {
    std::string text = fmt::format("{} and this program differ;", file);
    if (!result.missing.empty())
      text += fmt::format(" not in the checkpoint: {};", names_text(result.missing));
    if (!result.unexpected.empty())
      text += fmt::format(" in the checkpoint only: {};", names_text(result.unexpected));
    throw CheckpointError(
        {.message = text + " strict = false loads the rest", .file = path + "/" + kManifestName});
  }
  return result;
}

Manifest read_manifest(const std::string& path) {
  const std::string file = path + "/" + kManifestName;
  return parse_manifest(InputFile(file).text(kMaxManifestBytes), file);
}

std::uint64_t bytes_of(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const ManifestFile& file : manifest.files) bytes += file.bytes;
  return bytes;
}

// Calls take(tensor, piece, bytes) for all that the checkpoint holds, tensor by tensor.
template <class Take>
void for_each_piece(const std::string& path, const Manifest& manifest, const Take& take) {
  PieceReader reader(path, manifest);
  std::vector<std::byte> bytes;
  for (std::uint32_t file = 0; file < manifest.files.size(); ++file) reader.open(file);
  for (const ManifestTensor& tensor : manifest.tensors) {
    for (const ManifestPiece& piece : tensor.pieces) {
      bytes.resize(piece.count * size_of(tensor.spec.dtype));
      reader.read(tensor, piece.offset, bytes);
      take(tensor, bytes);
    }
  }
}

}  // namespace

std::optional<LoadResult> load(ProcessGroup& group, const std::string& directory,
                               Snapshot& snapshot, LoadOptions options) {
  const std::string phase =
      fmt::format("load of {}, {}", options.name.empty() ? "the latest" : options.name,
                  options.strict ? "strict" : "lenient");
  const auto ranks = agree(group, phase, [&] {
    nlohmann::json mine = {{"parts", describe_parts(snapshot.parts)}};
    if (group.rank() != 0) return mine;
    // One rank looks, so that all load the same one.
    if (const auto name = find_checkpoint(directory, options.name)) {
      mine["name"] = *name;
      const std::string file = directory + "/" + *name + "/" + kManifestName;
      const std::string text = InputFile(file).text(kMaxManifestBytes);
      parse_manifest(text, file);  // before it travels: what is torn need not be text
      mine["manifest"] = text;
      mine["path"] = directory + "/" + *name;
    }
    return mine;
  });
  if (!ranks[0].contains("name")) return std::nullopt;
  const std::string name = ranks[0].at("name"), path = ranks[0].at("path");
  const Manifest manifest = parse_manifest(ranks[0].at("manifest").get_ref<const std::string&>(),
                                           path + "/" + kManifestName);
  LoadResult result = compare_keys(manifest, ranks, path, options.strict);
  result.name = name;

  agree(group, fmt::format("end of the {}", phase), [&]() -> nlohmann::json {
    PieceReader reader(directory + "/" + name, manifest);
    for (const TensorPart& part : snapshot.parts)
      if (const ManifestTensor* tensor = find_tensor(manifest, part.spec.name))
        reader.read(*tensor, part.offset, part.data);
    return true;
  });
  snapshot.step = manifest.step;
  snapshot.epoch = manifest.epoch;
  snapshot.cursor = manifest.cursor;
  snapshot.strings = manifest.strings;
  snapshot.integers = manifest.integers;
  return result;
}

CheckpointInfo inspect_checkpoint(const std::string& path) {
  CheckpointInfo info{.path = checkpoint_path(path)};
  const Manifest manifest = read_manifest(info.path);
  info.step = manifest.step;
  info.epoch = manifest.epoch;
  info.cursor = manifest.cursor;
  info.bytes = bytes_of(manifest);
  info.world_size = static_cast<int>(manifest.world_size);
  info.strings = manifest.strings;
  info.integers = manifest.integers;
  for (const ManifestFile& file : manifest.files) info.files.push_back(file.name);
  for (const ManifestTensor& tensor : manifest.tensors) info.tensors.push_back(tensor.spec);
  return info;
}

void verify_checkpoint(const std::string& path) {
  const std::string where = checkpoint_path(path);
  for_each_piece(where, read_manifest(where), [](const auto&, const auto&) {});
}

void consolidate_checkpoint(const std::string& path, const std::string& output, FileSystem& disk) {
  if (exists(output)) refuse_file(output, 0, "exists; give a name that is free");
  const std::string where = checkpoint_path(path);
  Manifest manifest = read_manifest(where);
  std::stable_sort(manifest.tensors.begin(), manifest.tensors.end(),
                   [](const ManifestTensor& a, const ManifestTensor& b) {
                     return size_of(a.spec.dtype) > size_of(b.spec.dtype);
                   });
  std::vector<ParamSpec> specs;
  for (const ManifestTensor& tensor : manifest.tensors) specs.push_back(tensor.spec);
  std::map<std::string, std::string> metadata = manifest.strings;
  for (const auto& [key, value] : manifest.integers) metadata.emplace(key, std::to_string(value));
  metadata["step"] = std::to_string(manifest.step);
  metadata["epoch"] = std::to_string(manifest.epoch);
  metadata["cursor"] = std::to_string(manifest.cursor);

  const std::string header = make_safetensors_header(specs, metadata);
  // Under the name that was asked for a file is whole. What a killed process leaves is in nobody's
  // way, and a save() into the same directory does not take it for its own.
  const std::string temporary = fmt::format("{}.partial-{:08x}", output, std::random_device()());
  const std::string parent = std::filesystem::path(output).parent_path();
  NewFile file(disk, temporary);
  try {
    file.write(header);
    for_each_piece(where, manifest,
                   [&](const auto&, const std::vector<std::byte>& bytes) { file.write(bytes); });
    file.close();
    disk.rename_to_new(temporary, output);
    disk.sync_directory(parent.empty() ? "." : parent);
  } catch (...) {
    disk.remove_tree(temporary);
    throw;
  }
}

void consolidate_checkpoint(const std::string& path, const std::string& output) {
  consolidate_checkpoint(path, output, real_file_system());
}

}}}  // namespace c10d::v0::parallel
