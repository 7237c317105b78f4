// SPDX-License-Identifier: BSD-3-Clause
// Calls that are compared behind them, whatever carries them to the ranks.
#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "src/control/control_plane.h"
#include "src/control/pair_counts.h"

namespace c10d { inline namespace v0 {

void ControlPlane::write_announced(const Call& call, const Signature& signature) noexcept {
  AnnouncedSlot& mine = own_.announced[call.sequence % kAnnounced];
  mine.signature = signature;
  mine.hash = call.signature;
  mine.sends = mine.expects = 0;
  if (const auto* exchange = std::get_if<AllToAllV>(&call.op)) {
    mine.sends = hash_of_sent(exchange->input_counts, rank_);
    mine.expects = hash_of_expected(exchange->output_counts, rank_);
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
  fail(counts_do_not_fit(sequence));
  return false;
}

// The send or recv on a GPU that `is` describes, if it is known.
template <class Is>
std::optional<Recorded> ControlPlane::find_message(int rank, const Is& is) {
  std::optional<Recorded> found;
  visit_calls(rank, [&](const Recorded& record) {
    const Signature& signature = record.signature;
    if (is_point_to_point(signature.kind) && signature.device == DeviceType::cuda && is(record))
      found = record;
  });
  return found;
}

Control::Agreement ControlPlane::poll_message(OpKind kind, std::uint64_t sequence) {
  if (broken()) return Agreement::failed;
  const auto mine = find_message(rank_, [&](const Recorded& record) {
    return record.signature.kind == kind && record.sequence == sequence;
  });
  if (!mine || mine->signature.root < 0 || mine->signature.root >= size_) return Agreement::agreed;
  const int peer = mine->signature.root;
  const OpKind other = kind == OpKind::send ? OpKind::recv : OpKind::send;
  bool is_past = false;  // a later one between the two is there: the record was overwritten
  const auto read_theirs = [&] {
    return find_message(peer, [&](const Recorded& record) {
      if (record.signature.kind != other || record.signature.root != rank_) return false;
      is_past = is_past || record.details.message > mine->details.message;
      return record.details.message == mine->details.message;
    });
  };
  const auto theirs = read_theirs();
  if (!theirs && !is_past) {
    want_calls(peer);
    return Agreement::pending;
  }
  want_calls(rank_);  // the peer may look for this end only now
  if (!theirs) return Agreement::agreed;
  const Signature& here = mine->signature;
  const Signature& there = theirs->signature;
  if (here.dtype == there.dtype && here.count == there.count && here.tag == there.tag)
    return Agreement::agreed;
  // Its owner may have been writing the record: then another look finds something else.
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto again = read_theirs();
  if (!again || !(again->signature == there) || again->start_ns != theirs->start_ns)
    return Agreement::pending;
  Failure failure = failure_about(
      peer, Code::mismatch,
      fmt::format("rank {} called {}, rank {} called {}, and they are message {} between the two: "
                  "on GPUs messages match in their order, with the same dtype, count and tag",
                  rank_, describe(here), peer, describe(there), mine->details.message));
  failure.op = to_string(kind);
  failure.sequence = sequence;
  revoke(std::move(failure));  // the thread that watches GPUs waits for no store
  return Agreement::failed;
}

void ControlPlane::fail_with_mismatch(int peer, std::uint64_t sequence, const Signature& mine,
                                      const Signature& theirs, const std::vector<int>& with_me,
                                      const std::vector<int>& with_peer) {
  const bool mine_is_odd = with_me.size() < with_peer.size();
  std::vector<int> others;
  if (with_me.size() != with_peer.size()) others = mine_is_odd ? with_peer : with_me;
  fail(mismatch(mine, peer, theirs, mine_is_odd ? rank_ : peer, others, sequence, sequence));
}

}}  // namespace c10d::v0
