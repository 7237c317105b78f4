// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "src/parallel/checkpoint/file_system.h"
#include "src/parallel/checkpoint/manifest.h"

// What lies where in a directory of checkpoints.
namespace c10d { inline namespace v0 { namespace parallel {

inline constexpr const char* kLatestName = "latest";
inline constexpr const char* kTemporaryPrefix = ".tmp-";

// "000007-step-1200": the seventh that was published here.
std::string checkpoint_name(std::uint64_t sequence, std::uint64_t step);
// The sequence of such a name; nothing for every other name.
std::optional<std::uint64_t> sequence_of(const std::string& name);

std::string latest_text(const std::string& name);
// The name of the checkpoint to load: `wanted`, or what `latest` names, or without such a file the
// newest one with a manifest; nothing when there is none.
std::optional<std::string> find_checkpoint(const std::string& directory, const std::string& wanted);

// The directory of a checkpoint, from itself or from the directory above it.
std::string checkpoint_path(const std::string& path);

// As the one without a disk.
C10D_API void consolidate_checkpoint(const std::string& path, const std::string& output,
                                     FileSystem& disk);

// Reads pieces of one checkpoint and checks all that it reads.
class PieceReader {
 public:
  PieceReader(std::string path, const Manifest& manifest)
      : path_(std::move(path)), manifest_(manifest) {}
  // Elements [offset, offset + ...) of the tensor.
  void read(const ManifestTensor& tensor, std::uint64_t offset, std::span<std::byte> to);
  // Opens the file and checks length and header.
  const InputFile& open(std::uint32_t file);

 private:
  void read_piece(const ManifestTensor& tensor, const ManifestPiece& piece,
                  std::span<std::byte> to);

  std::string path_;
  const Manifest& manifest_;
  std::map<std::uint32_t, InputFile> open_;
  std::vector<std::byte> scratch_;
};

}}}  // namespace c10d::v0::parallel
