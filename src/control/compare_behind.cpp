// SPDX-License-Identifier: BSD-3-Clause
// Calls that are compared behind them, whatever carries them to the ranks.
#include <fmt/format.h>

#include "src/base/hash.h"
#include "src/control/control_plane.h"

namespace c10d { inline namespace v0 {
namespace {

// Hashes of what this rank sends to each other one, or of what it expects, that add up over ranks.
std::uint64_t hash_of_pairs(std::span<const std::size_t> counts, int rank, bool sends) {
  std::uint64_t sum = 0;
  for (std::size_t peer = 0; peer < counts.size(); ++peer) {
    const auto own = static_cast<std::uint64_t>(rank);
    sum += mix(mix(sends ? own : peer, sends ? peer : own), counts[peer]);
  }
  return sum;
}

}  // namespace

void ControlPlane::write_announced(const Call& call, const Signature& signature) noexcept {
  AnnouncedSlot& mine = own_.announced[call.sequence % kAnnounced];
  mine.signature = signature;
  mine.hash = call.signature;
  mine.sends = mine.expects = 0;
  if (const auto* exchange = std::get_if<AllToAllV>(&call.op)) {
    mine.sends = hash_of_pairs(exchange->input_counts, rank_, true);
    mine.expects = hash_of_pairs(exchange->output_counts, rank_, false);
  }
  mine.sequence.store(call.sequence, std::memory_order_release);
}

std::optional<std::uint64_t> ControlPlane::last_equal(std::uint64_t compared) {
  const auto have_announced = [&](std::uint64_t sequence) {
    for (int rank = 0; rank < size_; ++rank)
      if (announced(rank, sequence).sequence.load(std::memory_order_acquire) != sequence)
        return false;
    return true;
  };
  for (; have_announced(compared + 1); ++compared)
    if (!is_equal(compared + 1)) return std::nullopt;
  return compared;
}

bool ControlPlane::is_equal(std::uint64_t sequence) {
  const AnnouncedSlot& mine = announced(rank_, sequence);
  const auto with = [&](std::uint64_t hash) {
    return ranks_that([&](int rank) { return announced(rank, sequence).hash == hash; });
  };
  std::uint64_t sends = 0, expects = 0;
  for (int peer = 0; peer < size_; ++peer) {
    const AnnouncedSlot& theirs = announced(peer, sequence);
    sends += theirs.sends;
    expects += theirs.expects;
    if (theirs.hash == mine.hash) continue;
    fail_with_mismatch(peer, sequence, mine.signature, theirs.signature, with(mine.hash),
                       with(theirs.hash));
    return false;
  }
  if (sends == expects) return true;
  fail({.code = Code::mismatch,
        .message = fmt::format(
            "the ranks called all_to_all_v #{} with counts that do not fit: what a rank sends to "
            "another one in input_counts, that one must expect in output_counts",
            sequence),
        .group = group_,
        .op = std::string(to_string(OpKind::all_to_all_v)),
        .sequence = sequence});
  return false;
}

void ControlPlane::fail_with_mismatch(int peer, std::uint64_t sequence, const Signature& mine,
                                      const Signature& theirs, const std::vector<int>& with_me,
                                      const std::vector<int>& with_peer) {
  const bool mine_is_odd = with_me.size() < with_peer.size();
  fail(mismatch(mine, peer, theirs, mine_is_odd ? rank_ : peer, mine_is_odd ? with_peer : with_me,
                sequence));
}

}}  // namespace c10d::v0
