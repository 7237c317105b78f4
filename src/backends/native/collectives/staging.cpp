// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives/staging.h"

#include <algorithm>

namespace c10d { inline namespace v0 { namespace native {
namespace {

constexpr std::size_t kCacheLine = 64;

constexpr std::size_t whole_lines(std::size_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

}  // namespace

Chunks Staging::chunk(const AlgorithmChoice& choice, std::size_t bytes,
                      std::size_t width) const noexcept {
  if (bytes == 0) return {};
  const std::size_t half = team_.layout().half_bytes();
  const std::size_t wanted = choice.chunk / width;
  if (bytes <= std::min(wanted, half / width / kCacheLine * kCacheLine))
    return {whole_lines(bytes), 1};
  const std::size_t slot = half / kSlots / width / kCacheLine * kCacheLine;
  const std::size_t each = std::clamp(whole_lines(wanted), kCacheLine, slot);
  return {each, (bytes + each - 1) / each};
}

Chunks Staging::chunk_one_way(const AlgorithmChoice& choice, std::size_t bytes, bool stages,
                              std::size_t width) noexcept {
  // Fewer places come back too soon, more fall out of the caches.
  constexpr std::size_t kLeastMoved = std::size_t{32} << 10;
  constexpr std::size_t kMostAhead = std::size_t{16} << 10;
  const std::size_t places = team_.layout().half_bytes() / 4;
  AlgorithmChoice finer = choice;
  if (!team_.oversubscribed())
    finer.chunk = one_way_chunk_bytes(choice.chunk, whole_lines(bytes) * width);
  Chunks chunks = chunk(finer, bytes, width);
  const std::size_t span = chunks.bytes * std::min(chunks.count, kSlots) * width;
  const auto first_of = [&](std::uint32_t epoch) {
    return span >= kLeastMoved && span <= places ? epoch / 2 % (places / span) * span : 0;
  };
  chunks.first = first_of(epoch_);
  if (stages && !team_.oversubscribed())
    ahead_ = {first_of(epoch_ + 1), std::min(span, kMostAhead)};
  return chunks;
}

}}}  // namespace c10d::v0::native
