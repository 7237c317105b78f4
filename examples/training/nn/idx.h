// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace nn {

// The contents of an IDX file of unsigned bytes: MNIST's format. Big-endian: 0, 0, 8 (bytes), the
// number of dimensions, their extents, the elements.
struct Idx {
  std::vector<std::uint32_t> shape;
  std::vector<std::uint8_t> data;  // as many as the product of shape
};

// Throws std::runtime_error, which begins with `name`, for anything else: another type, more than
// four dimensions, a file that is shorter or longer than its shape says.
Idx parse_idx(std::span<const std::uint8_t> bytes, const std::string& name);

// The same of gzip: never unpacks more than its own header says, and a byte.
Idx unpack_idx(std::span<const std::uint8_t> bytes, const std::string& name);

// A file, or the same with .gz behind its name, unpacked; at most 1 GiB. Throws std::runtime_error.
Idx read_idx(const std::string& path);

// Unpacks gzip. Throws std::runtime_error, which begins with `name`, for bytes that are not whole
// gzip, or more than `limit` bytes of contents.
std::vector<std::uint8_t> unpack_gzip(std::span<const std::uint8_t> bytes, std::size_t limit,
                                      const std::string& name);

}  // namespace nn
