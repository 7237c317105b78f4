// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/export.h"
#include "c10d/parallel/parameters.h"

// The safetensors format: 8 bytes with the length of a JSON header, little-endian; the header; the
// tensors, without holes or overlaps. docs/checkpoint.md says what is written here.
namespace c10d { inline namespace v0 { namespace parallel {

struct SafetensorsEntry {
  ParamSpec spec;
  std::uint64_t begin = 0;  // byte in the file, past the header
  bool operator==(const SafetensorsEntry&) const = default;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // by begin
  std::map<std::string, std::string> metadata;
  std::uint64_t bytes = 0;  // of length, header and padding
};

inline constexpr std::uint64_t kTensorAlignment = 64;

// What a file of `file_bytes` says with its first bytes, `start`; `file` is for messages. Throws
// CheckpointError that names the file for all that is not as the format wants it.
C10D_API SafetensorsHeader parse_safetensors(std::string_view start, std::uint64_t file_bytes,
                                             const std::string& file);
C10D_API SafetensorsHeader read_safetensors_header(const std::string& path);

// The start of a file with these tensors, in this order, padded so that the first one begins at a
// multiple of kTensorAlignment.
C10D_API std::string make_safetensors_header(const std::vector<ParamSpec>& tensors,
                                             const std::map<std::string, std::string>& metadata);

}}}  // namespace c10d::v0::parallel
