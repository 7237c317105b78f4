// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <random>
#include <utility>

#include "c10d/parallel/checkpoint_info.h"
#include "src/parallel/checkpoint/files.h"
#include "src/parallel/checkpoint/safetensors.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

Manifest read_manifest(const std::string& path) {
  const std::string file = path + "/" + kManifestName;
  return parse_manifest(InputFile(file).text(kMaxManifestBytes), file);
}

// Calls take(tensor, bytes) for each piece of the checkpoint, tensor by tensor.
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

CheckpointError::CheckpointError(CheckpointFailure failure)
    : std::runtime_error(failure.message),
      failure_(std::make_shared<const CheckpointFailure>(std::move(failure))) {}
CheckpointError::CheckpointError(const CheckpointError&) noexcept = default;
CheckpointError::~CheckpointError() = default;

CheckpointInfo inspect_checkpoint(const std::string& path) {
  CheckpointInfo info{.path = checkpoint_path(path)};
  const Manifest manifest = read_manifest(info.path);
  copy_state(manifest, info);
  info.world_size = static_cast<int>(manifest.world_size);
  for (const ManifestFile& file : manifest.files) {
    info.files.push_back(file.name);
    info.bytes += file.bytes;
  }
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
  std::ranges::stable_sort(manifest.tensors, std::greater(),
                           [](const ManifestTensor& tensor) { return size_of(tensor.spec.dtype); });
  std::vector<ParamSpec> specs;
  for (const ManifestTensor& tensor : manifest.tensors) specs.push_back(tensor.spec);
  std::map<std::string, std::string> metadata = manifest.strings;
  for (const auto& [key, value] : manifest.integers) metadata.emplace(key, std::to_string(value));
  metadata["step"] = std::to_string(manifest.step);
  metadata["epoch"] = std::to_string(manifest.epoch);
  metadata["cursor"] = std::to_string(manifest.cursor);

  const std::string header = make_safetensors_header(specs, metadata);
  // `output` appears only when it is complete. A killed process leaves a file of another name,
  // which no save() takes for its own.
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
