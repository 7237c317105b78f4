// SPDX-License-Identifier: BSD-3-Clause
// Files of a checkpoint that somebody else wrote. The first byte says which: the start of a
// safetensors file, with a second byte for how much data follows it, or a manifest, whose checksum
// is put right so that the rest of it is read.
#include "src/parallel/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "c10d/parallel/checkpoint_info.h"
#include "src/parallel/checkpoint/crc32c.h"
#include "src/parallel/checkpoint/manifest.h"

using namespace c10d;
using namespace c10d::parallel;

namespace {

// What was accepted is whole, and is the same when it is written and read again.
void check(const SafetensorsHeader& header, std::uint64_t file_bytes) {
  std::uint64_t at = header.bytes;
  std::vector<ParamSpec> specs;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin != at) std::abort();
    at += entry.spec.bytes();
    specs.push_back(entry.spec);
  }
  if (at != file_bytes) std::abort();
  const std::string start = make_safetensors_header(specs, header.metadata);
  const SafetensorsHeader again =
      parse_safetensors(start, start.size() + (file_bytes - header.bytes), "again");
  if (again.metadata != header.metadata || again.entries.size() != specs.size()) std::abort();
}

void read_header(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::string start(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) start[i] = static_cast<char>(text.size() >> 8 * i & 0xff);
  start += text;
  const std::uint64_t file_bytes = start.size() + data[0];
  check(parse_safetensors(start, file_bytes, "file"), file_bytes);
}

void read_manifest(const std::uint8_t* data, std::size_t size) {
  const std::string body(reinterpret_cast<const char*>(data), size);
  const Manifest manifest =
      parse_manifest(fmt::format("{},\n\"crc32c\":\"{:08x}\"}}\n", body, crc32c(body)), "file");
  for (const ManifestFile& file : manifest.files)
    if (file.name.find('/') != std::string::npos) std::abort();
  if (to_text(parse_manifest(to_text(manifest), "again")) != to_text(manifest)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  try {
    if (data[0] % 2 == 0)
      read_header(data + 1, size - 1);
    else
      read_manifest(data + 1, size - 1);
  } catch (const CheckpointError&) {  // the one answer to what is wrong
  }
  return 0;
}
