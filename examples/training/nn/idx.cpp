// SPDX-License-Identifier: BSD-3-Clause
#include "examples/training/nn/idx.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "examples/training/nn/errors.h"

namespace nn {
namespace {

constexpr std::size_t kLimit = std::size_t{1} << 30;
constexpr std::uint8_t kMaxDimensions = 4;
constexpr std::size_t kLongestHeader = 4 + 4 * kMaxDimensions;

std::vector<std::uint8_t> read_file(const std::string& path) {
  const std::uintmax_t size = std::filesystem::file_size(path);
  if (size > kLimit) throw_runtime("{}: larger than 1 GiB", path);
  std::ifstream file(path, std::ios::binary);
  std::vector<std::uint8_t> bytes(size);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!file) throw_runtime("{}: cannot be read", path);
  return bytes;
}

struct Header {
  std::vector<std::uint32_t> shape;
  std::size_t bytes = 0;  // of itself
  std::size_t count = 1;  // of elements, each a byte
};

template <class... Values>
[[noreturn]] void refuse(const std::string& name, fmt::format_string<Values...> why,
                         Values&&... values) {
  throw_runtime("{}: {}", name, fmt::format(why, std::forward<Values>(values)...));
}

// `bytes` may be longer than the header.
Header parse_header(std::span<const std::uint8_t> bytes, const std::string& name) {
  if (bytes.size() < 4) refuse(name, "{} bytes are not an IDX file", bytes.size());
  if (bytes[0] != 0 || bytes[1] != 0 || bytes[2] != 8 || bytes[3] < 1 || bytes[3] > kMaxDimensions)
    refuse(name,
           "begins with {:02x}{:02x}{:02x}{:02x}; an IDX file of bytes begins with "
           "00000801 to 00000804",
           bytes[0], bytes[1], bytes[2], bytes[3]);
  Header header;
  header.bytes = 4 + 4 * std::size_t{bytes[3]};
  if (bytes.size() < header.bytes) refuse(name, "ends within its header");
  for (std::size_t at = 4; at < header.bytes; at += 4) {
    const std::uint32_t extent = std::uint32_t{bytes[at]} << 24 |
                                 std::uint32_t{bytes[at + 1]} << 16 |
                                 std::uint32_t{bytes[at + 2]} << 8 | bytes[at + 3];
    if (extent == 0) refuse(name, "has a dimension of 0");
    if (header.count > kLimit / extent) refuse(name, "says that it is larger than 1 GiB");
    header.count *= extent;
    header.shape.push_back(extent);
  }
  return header;
}

// The first `most` bytes of the contents. `whole`: there are no more, and no bytes behind them.
struct Unpacked {
  std::vector<std::uint8_t> contents;
  bool whole = false;
};

Unpacked unpack_at_most(std::span<const std::uint8_t> bytes, std::size_t most,
                        const std::string& name) {
  z_stream stream{};
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  if (inflateInit2(&stream, kGzipOnly) != Z_OK) refuse(name, "zlib cannot start");
  stream.next_in = const_cast<std::uint8_t*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::vector<std::uint8_t> contents;
  int state = Z_OK;
  while (state == Z_OK && contents.size() < most) {
    // Room grows with what came out, never with what a header promises.
    const std::size_t before = contents.size();
    contents.resize(std::min(most, std::max<std::size_t>(2 * before, 64 << 10)));
    stream.next_out = contents.data() + before;
    stream.avail_out = static_cast<uInt>(contents.size() - before);
    state = inflate(&stream, Z_NO_FLUSH);
    contents.resize(contents.size() - stream.avail_out);
    if (state == Z_BUF_ERROR && stream.avail_in > 0) state = Z_OK;
  }
  const bool whole = state == Z_STREAM_END && stream.avail_in == 0;
  inflateEnd(&stream);
  return {std::move(contents), whole};
}

}  // namespace

Idx parse_idx(std::span<const std::uint8_t> bytes, const std::string& name) {
  Header header = parse_header(bytes, name);
  const std::span<const std::uint8_t> data = bytes.subspan(header.bytes);
  if (data.size() != header.count)
    refuse(name, "has a header for {} elements, and holds {}", header.count, data.size());
  return {std::move(header.shape), {data.begin(), data.end()}};
}

std::vector<std::uint8_t> unpack_gzip(std::span<const std::uint8_t> bytes, std::size_t limit,
                                      const std::string& name) {
  Unpacked unpacked = unpack_at_most(bytes, limit + 1, name);
  if (unpacked.contents.size() > limit) refuse(name, "unpacks to more than {} bytes", limit);
  if (!unpacked.whole) refuse(name, "not one whole gzip file");
  return std::move(unpacked.contents);
}

Idx unpack_idx(std::span<const std::uint8_t> bytes, const std::string& name) {
  const Header header = parse_header(unpack_at_most(bytes, kLongestHeader, name).contents, name);
  return parse_idx(unpack_gzip(bytes, header.bytes + header.count, name), name);
}

Idx read_idx(const std::string& path) {
  const bool packed = !std::filesystem::exists(path) && std::filesystem::exists(path + ".gz");
  const std::string name = packed ? path + ".gz" : path;
  if (!std::filesystem::exists(name)) throw_runtime("{}: neither it nor {}.gz exists", path, path);
  const std::vector<std::uint8_t> bytes = read_file(name);
  const bool gzip = bytes.size() > 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
  return gzip ? unpack_idx(bytes, name) : parse_idx(bytes, name);
}

}  // namespace nn
