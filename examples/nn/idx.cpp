// SPDX-License-Identifier: BSD-3-Clause
#include "examples/nn/idx.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace nn {
namespace {

constexpr std::size_t kLimit = std::size_t{1} << 30;

std::vector<std::uint8_t> read_file(const std::string& path) {
  const std::uintmax_t size = std::filesystem::file_size(path);
  if (size > kLimit) throw std::runtime_error(fmt::format("{}: larger than 1 GiB", path));
  std::ifstream file(path, std::ios::binary);
  std::vector<std::uint8_t> bytes(size);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!file) throw std::runtime_error(fmt::format("{}: cannot be read", path));
  return bytes;
}

}  // namespace

Idx parse_idx(std::span<const std::uint8_t> bytes, const std::string& name) {
  const auto fail = [&](const std::string& why) -> std::runtime_error {
    return std::runtime_error(fmt::format("{}: {}", name, why));
  };
  if (bytes.size() < 4) throw fail(fmt::format("{} bytes are no IDX file", bytes.size()));
  if (bytes[0] != 0 || bytes[1] != 0 || bytes[2] != 8 || bytes[3] < 1 || bytes[3] > 4)
    throw fail(
        fmt::format("begins with {:02x}{:02x}{:02x}{:02x}; an IDX file of bytes begins with "
                    "00000801 to 00000804",
                    bytes[0], bytes[1], bytes[2], bytes[3]));
  const std::size_t header = 4 + 4 * std::size_t{bytes[3]};
  if (bytes.size() < header) throw fail("ends within its header");
  Idx idx;
  std::size_t count = 1;
  for (std::size_t at = 4; at < header; at += 4) {
    const std::uint32_t extent = std::uint32_t{bytes[at]} << 24 |
                                 std::uint32_t{bytes[at + 1]} << 16 |
                                 std::uint32_t{bytes[at + 2]} << 8 | bytes[at + 3];
    if (extent == 0) throw fail("has a dimension of 0");
    if (count > kLimit / extent) throw fail("says that it is larger than 1 GiB");
    count *= extent;
    idx.shape.push_back(extent);
  }
  if (bytes.size() - header != count)
    throw fail(fmt::format("says {} elements and holds {}", count, bytes.size() - header));
  idx.data.assign(bytes.begin() + static_cast<std::ptrdiff_t>(header), bytes.end());
  return idx;
}

std::vector<std::uint8_t> unpack_gzip(std::span<const std::uint8_t> bytes, std::size_t limit,
                                      const std::string& name) {
  z_stream stream{};
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  if (inflateInit2(&stream, kGzipOnly) != Z_OK)
    throw std::runtime_error(fmt::format("{}: zlib cannot start", name));
  stream.next_in = const_cast<std::uint8_t*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::vector<std::uint8_t> contents;
  int state = Z_OK;
  while (state == Z_OK && contents.size() <= limit) {
    // Room grows with what came out, never with what a header promises.
    const std::size_t before = contents.size();
    contents.resize(std::min(limit + 1, std::max<std::size_t>(2 * before, 64 << 10)));
    stream.next_out = contents.data() + before;
    stream.avail_out = static_cast<uInt>(contents.size() - before);
    state = inflate(&stream, Z_NO_FLUSH);
    contents.resize(contents.size() - stream.avail_out);
    if (state == Z_BUF_ERROR && stream.avail_in > 0) state = Z_OK;
  }
  const uInt left = stream.avail_in;
  inflateEnd(&stream);
  if (contents.size() > limit)
    throw std::runtime_error(fmt::format("{}: unpacks to more than {} bytes", name, limit));
  if (state != Z_STREAM_END || left != 0)
    throw std::runtime_error(fmt::format("{}: not one whole gzip file", name));
  return contents;
}

Idx read_idx(const std::string& path) {
  const bool packed = !std::filesystem::exists(path) && std::filesystem::exists(path + ".gz");
  const std::string name = packed ? path + ".gz" : path;
  if (!std::filesystem::exists(name))
    throw std::runtime_error(fmt::format("{}: neither it nor {}.gz is there", path, path));
  const std::vector<std::uint8_t> bytes = read_file(name);
  const bool gzip = bytes.size() > 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
  return parse_idx(gzip ? unpack_gzip(bytes, kLimit, name) : bytes, name);
}

}  // namespace nn
