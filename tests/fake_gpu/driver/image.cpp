// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fake_gpu/driver/image.h"

#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace fake_gpu {
namespace {

namespace cu = c10d::driver;

constexpr unsigned kArch = 90, kMajor = 9;
constexpr int kNewestPtx = 90;  // 9.0, of CUDA 13.0

template <class T>
T at(const void* image, std::size_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(image) + offset, sizeof value);
  return value;
}

// The GPU that an ELF file is for. Where its flags have it depends on the version of the ABI.
unsigned arch_of_elf(const void* image) {
  const auto flags = at<std::uint32_t>(image, 48);
  return at<std::uint8_t>(image, 8) >= 8 ? flags >> 8 & 0xff : flags & 0xff;
}
bool runs_here(unsigned arch) { return arch / 10 == kMajor && arch <= kArch; }

Image read_elf(const void* image) {
  if (at<std::uint16_t>(image, 18) != 190) return {cu::kInvalidImage, {}};  // no machine of CUDA
  if (!runs_here(arch_of_elf(image))) return {cu::kNoBinaryForGpu, {}};
  const std::size_t end = at<std::uint64_t>(image, 40) +
                          std::size_t{at<std::uint16_t>(image, 58)} * at<std::uint16_t>(image, 60);
  return {cu::kSuccess, std::string(static_cast<const char*>(image), end)};
}

Image read_fat_binary(const void* image) {
  const std::size_t begin = at<std::uint16_t>(image, 6);
  const std::size_t end = begin + at<std::uint64_t>(image, 8);
  bool fits = false;
  for (std::size_t entry = begin; entry + 64 <= end;) {
    const auto kind = at<std::uint16_t>(image, entry);
    const auto arch = at<std::uint32_t>(image, entry + 28);
    fits = fits || (kind == 1 ? arch <= kArch : runs_here(arch));
    const std::size_t next =
        entry + at<std::uint32_t>(image, entry + 4) + at<std::uint64_t>(image, entry + 8);
    if (next <= entry) break;
    entry = next;
  }
  if (!fits) return {cu::kNoBinaryForGpu, {}};
  return {cu::kSuccess, std::string(static_cast<const char*>(image), end)};
}

// The number behind `word`, without its point: 90 for ".version 9.0".
int number_behind(const std::string& text, const char* word) {
  const std::size_t found = text.find(word);
  if (found == std::string::npos) return -1;
  int number = 0;
  for (std::size_t i = found + std::strlen(word); i < text.size(); ++i) {
    const char c = text[i];
    if (std::isdigit(static_cast<unsigned char>(c))) {
      number = number * 10 + (c - '0');
    } else if (c != '.' && c != ' ') {
      break;
    }
  }
  return number;
}

// Not a compiler: it looks at the head, and counts brackets.
Image read_ptx(std::string text) {
  const int version = number_behind(text, ".version "), target = number_behind(text, ".target sm_");
  if (version > kNewestPtx) return {cu::kUnsupportedPtxVersion, {}};
  if (target > static_cast<int>(kArch)) return {cu::kInvalidPtx, {}};
  int round = 0, curly = 0;
  for (const char c : text) {
    round += c == '(' ? 1 : c == ')' ? -1 : 0;
    curly += c == '{' ? 1 : c == '}' ? -1 : 0;
  }
  if (round != 0 || curly != 0) return {cu::kInvalidPtx, {}};
  return {cu::kSuccess, std::move(text)};
}

}  // namespace

bool Image::has(std::string_view name) const {
  const auto is_part = [](char c) {
    return c == '_' || c == '$' || std::isalnum(static_cast<unsigned char>(c)) != 0;
  };
  for (std::size_t found = bytes.find(name); found != std::string::npos;
       found = bytes.find(name, found + 1)) {
    const std::size_t end = found + name.size();
    if (found > 0 && is_part(bytes[found - 1])) continue;
    if (end == bytes.size() || !is_part(bytes[end])) return true;
  }
  return false;
}

Image read_image(const void* image) {
  if (at<unsigned char>(image, 0) == 0) return {cu::kInvalidImage, {}};
  if (std::strncmp(static_cast<const char*>(image), "\177ELF", 4) == 0) return read_elf(image);
  if (std::strncmp(static_cast<const char*>(image), "\x50\xed\x55\xba", 4) == 0) {
    return read_fat_binary(image);
  }
  std::string text(static_cast<const char*>(image));
  return number_behind(text, ".version ") < 0 ? Image{cu::kInvalidImage, {}}
                                              : read_ptx(std::move(text));
}

}  // namespace fake_gpu
