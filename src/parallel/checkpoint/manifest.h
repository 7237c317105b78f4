// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "c10d/parallel/parameters.h"

namespace c10d { inline namespace v0 { namespace parallel {

// The longest part with a checksum of its own: what a reader holds to check a part of it.
inline constexpr std::uint64_t kMaxPieceBytes = std::uint64_t{16} << 20;
inline constexpr std::uint64_t kMaxManifestBytes = 100'000'000;
inline constexpr const char* kManifestName = "manifest.json";

// Elements [offset, offset + count) of a tensor, at byte `begin` of a file.
struct ManifestPiece {
  std::uint64_t offset = 0, count = 0;
  std::uint32_t file = 0;  // index
  std::uint64_t begin = 0;
  std::uint32_t crc = 0;
};
struct ManifestTensor {
  ParamSpec spec;
  std::vector<ManifestPiece> pieces;  // by offset, without gaps
};
struct ManifestFile {
  std::string name;  // "rank-00000.safetensors"
  std::uint64_t bytes = 0, header_bytes = 0;
  std::uint32_t header_crc = 0;
};
struct Manifest {
  std::uint64_t step = 0, epoch = 0, cursor = 0, world_size = 0;
  std::map<std::string, std::string> strings;
  std::map<std::string, std::int64_t> integers;
  std::vector<ManifestFile> files;
  std::vector<ManifestTensor> tensors;  // by name
};

// Copies what Manifest, Snapshot and CheckpointInfo have in common.
template <class From, class To>
void copy_state(const From& from, To& to) {
  to.step = from.step;
  to.epoch = from.epoch;
  to.cursor = from.cursor;
  to.strings = from.strings;
  to.integers = from.integers;
}

std::string shard_name(int rank);
std::string to_text(const Manifest& manifest);

// Throws CheckpointError that names `file` unless the text is whole and has no more than `limit`
// bytes, every tensor is covered once, every byte of every file belongs to its header or to one
// piece, and no name leaves the directory.
Manifest parse_manifest(const std::string& text, const std::string& file,
                        std::uint64_t limit = kMaxManifestBytes);

// Elements that fit a piece.
inline std::uint64_t piece_elements(DType dtype) noexcept {
  return kMaxPieceBytes / size_of(dtype);
}

}}}  // namespace c10d::v0::parallel
