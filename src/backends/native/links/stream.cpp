// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/links/stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/crc32c.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

constexpr std::uint32_t kMagic = 0x4e303163;  // "c10N" as bytes

struct Header {
  std::uint32_t magic;
  std::uint32_t length;
  std::uint64_t sequence;
  std::uint64_t offset;  // in the block
  std::uint32_t data_sum;
  std::uint32_t sum;  // of all that comes before
};
static_assert(sizeof(Header) == Stream::kHeaderBytes);

std::uint32_t sum_of(const Header& header) { return crc32c(0, &header, offsetof(Header, sum)); }

}  // namespace

void Stream::Way::post(Block block) {
  ++posted;
  if (block.bytes == 0 && blocks.empty())
    ++through;
  else
    blocks.push_back(block);
}

std::size_t Stream::Way::chunk() const noexcept {
  return std::min(kChunkBytes, blocks.front().bytes - offset);
}

std::span<iovec> Stream::Way::rest() noexcept {
  const std::size_t length = chunk();
  const std::size_t of_header = std::min(moved, kHeaderBytes), of_data = moved - of_header;
  pieces[0] = {header.data() + of_header, kHeaderBytes - of_header};
  pieces[1] = {blocks.front().data + offset + of_data, length - of_data};
  return std::span(pieces).subspan(of_header == kHeaderBytes ? 1 : 0);
}

void Stream::Way::finish_chunk() {
  offset += chunk();
  moved = 0;
  has_header = false;
  while (!blocks.empty() && offset == blocks.front().bytes) {
    blocks.pop_front();
    ++through;
    offset = 0;
    if (!blocks.empty() && blocks.front().bytes != 0) return;
  }
}

void Stream::send(const std::byte* from, std::size_t bytes, std::uint64_t sequence) {
  out_.post({const_cast<std::byte*>(from), bytes, sequence});
}

void Stream::receive(std::byte* to, std::size_t bytes, std::uint64_t sequence) {
  in_.post({to, bytes, sequence});
}

std::span<iovec> Stream::output() noexcept {
  if (out_.blocks.empty() || !problem_.empty()) return {};
  if (!std::exchange(out_.has_header, true)) {
    const Block& block = out_.blocks.front();
    Header header{.magic = kMagic,
                  .length = static_cast<std::uint32_t>(out_.chunk()),
                  .sequence = block.sequence,
                  .offset = out_.offset,
                  .data_sum = crc32c(0, block.data + out_.offset, out_.chunk()),
                  .sum = 0};
    header.sum = sum_of(header);
    std::memcpy(out_.header.data(), &header, sizeof header);
  }
  return out_.rest();
}

void Stream::wrote(std::size_t bytes) noexcept {
  out_.moved += bytes;
  if (out_.moved == kHeaderBytes + out_.chunk()) out_.finish_chunk();
}

std::span<iovec> Stream::input() noexcept {
  if (in_.blocks.empty() || !problem_.empty()) return {};
  return in_.rest();
}

void Stream::read(std::size_t bytes) {
  const std::size_t before = in_.moved;
  in_.moved += bytes;
  if (before < kHeaderBytes && in_.moved >= kHeaderBytes) check_header();
  if (!problem_.empty() || in_.moved != kHeaderBytes + in_.chunk()) return;
  check_data();
  if (problem_.empty()) in_.finish_chunk();
}

void Stream::check_header() {
  Header header;
  std::memcpy(&header, in_.header.data(), sizeof header);
  const Block& block = in_.blocks.front();
  if (header.magic != kMagic || header.sum != sum_of(header))
    return end("what it sent is no chunk: a checksum is wrong, or it is no rank of this build");
  if (header.sequence != block.sequence || header.offset != in_.offset ||
      header.length != in_.chunk())
    end(fmt::format("it sent {} bytes at {} of #{} where {} at {} of #{} belong", header.length,
                    header.offset, header.sequence, in_.chunk(), in_.offset, block.sequence));
}

void Stream::check_data() {
  Header header;
  std::memcpy(&header, in_.header.data(), sizeof header);
  if (header.data_sum != crc32c(0, in_.blocks.front().data + in_.offset, in_.chunk()))
    end(fmt::format("{} bytes came with a wrong checksum: the network, or a memory, changed them",
                    in_.chunk()));
}

}}}  // namespace c10d::v0::native
