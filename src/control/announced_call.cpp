// SPDX-License-Identifier: BSD-3-Clause
#include "src/control/announced_call.h"

#include <cstring>
#include <type_traits>
#include <variant>

namespace c10d { inline namespace v0 {
namespace {

// Then the counts, if there are any.
struct Front {
  std::uint64_t sequence;
  std::uint64_t hash;
  Signature signature;
};
static_assert(std::is_trivially_copyable_v<Front> && sizeof(std::size_t) == sizeof(std::uint64_t));

}  // namespace

std::string to_bytes(const Call& call, const Signature& signature) {
  const Front front{call.sequence, call.signature, signature};
  std::string bytes(reinterpret_cast<const char*>(&front), sizeof front);
  if (const auto* op = std::get_if<AllToAllV>(&call.op))
    for (const auto& counts : {op->input_counts, op->output_counts})
      bytes.append(reinterpret_cast<const char*>(counts.data()), counts.size_bytes());
  return bytes;
}

std::optional<AnnouncedCall> read_announced(std::string_view bytes, int size) {
  Front front;
  if (bytes.size() < sizeof front) return {};
  std::memcpy(&front, bytes.data(), sizeof front);
  bytes.remove_prefix(sizeof front);
  AnnouncedCall call{front.sequence, front.hash, front.signature, {}, {}};
  if (front.signature.kind != OpKind::all_to_all_v) return call;
  for (auto* const counts : {&call.sends, &call.expects}) {
    counts->resize(static_cast<std::size_t>(size));
    const std::size_t length = counts->size() * sizeof(std::uint64_t);
    if (bytes.size() < length) return {};
    std::memcpy(counts->data(), bytes.data(), length);
    bytes.remove_prefix(length);
  }
  return call;
}

std::optional<Misfit> first_misfit(const std::vector<AnnouncedCall>& by_rank) {
  for (std::size_t from = 0; from < by_rank.size(); ++from)
    for (std::size_t to = 0; to < by_rank.size(); ++to) {
      const std::uint64_t sent = by_rank[from].sends[to], expected = by_rank[to].expects[from];
      if (sent != expected)
        return Misfit{static_cast<int>(from), static_cast<int>(to), sent, expected};
    }
  return {};
}

}}  // namespace c10d::v0
