// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/error.h"
#include "src/recorder/rank_block.h"

namespace c10d { inline namespace v0 {

// The frames of a mesh. Every rank passes the first three on to its neighbours, once.
enum MeshFrame : std::uint8_t {
  revoke_frame = 1,  // the failure that broke the group, as text
  left_frame,        // a rank left in good order: its number, its last call and last barrier
  ended_frame,       // a rank lost its connection to this one: its number
  call_frame,        // of dissemination.h, between two neighbours
  barrier_frame,
  beat_frame  // of an idle link: what it sends, TCP sends again if it is lost
};

// What all ranks of a group are to hear, whichever links are down: what broke it, who left it, and
// whose connection ended. A rank tells its neighbours, and each passes on what is news to it.
//
// The state machine of one rank, without sockets and clocks. take(), lose() and note_dead() for one
// thread at a time, the others for any.
class Flood {
 public:
  using LastCalls = std::array<std::uint64_t, kGates>;  // of a rank that left, by gate
  struct Ends {
    // Sends to all neighbours but `except`.
    std::function<void(MeshFrame frame, std::string_view body, int except)> send;
    std::function<bool()> broken;
    std::function<void(const Failure& cause)> break_here;  // changes nothing if it is broken
    std::function<void(int rank, const LastCalls& last)> left;
    // Whether another rank lost the connection to a neighbour which this one still has: what that
    // one sent before it died may be under way.
    std::function<void(bool)> awaits_end;
  };
  Flood(int rank, int size, const std::vector<int>& neighbours, Ends ends);

  // A frame of the first three from a neighbour. False: no rank of a group sends that.
  bool take(int from, std::uint8_t frame, const std::string& body);
  // The link to a neighbour is lost; `ended`: because the other end closed it.
  void lose(int neighbour, bool ended);
  // Another rank died, as its host saw.
  void note_dead(int rank);
  // Breaks the group here, and on the others.
  void break_group(const Failure& cause);
  // That this rank leaves.
  void leave(const LastCalls& last);
  // That another rank left, as its host's memory or the store says.
  void note_left(int rank, const LastCalls& last);

  bool has_left(int rank) const noexcept { return is_set(left_, rank); }
  // Whether a rank most likely died: another one lost the connection to it, and so did this one, if
  // it had one. The cause of a broken group names one rank that died; others that died with it are
  // known by this, so that nobody waits long for an answer of theirs. A rank that lives can be
  // among them, if its connection to another one broke.
  bool is_lost(int rank) const noexcept { return is_set(ended_, rank) && !is_set(linked_, rank); }

  // A failure as text that fits into a frame, and into the memory of the group.
  static std::string text_of(Failure failure);

 private:
  using Flags = std::vector<std::atomic<bool>>;  // by rank
  static bool is_set(const Flags& flags, int rank) noexcept {
    return flags[static_cast<std::size_t>(rank)].load(std::memory_order_relaxed);
  }
  // Whether that is news.
  static bool set(Flags& flags, int rank) noexcept {
    return !flags[static_cast<std::size_t>(rank)].exchange(true, std::memory_order_relaxed);
  }
  bool is_rank(std::uint32_t number) const noexcept { return number < left_.size(); }
  bool take_left(int from, std::string_view body);
  bool take_ended(int from, std::string_view body);
  void note_ended(int rank, int from);
  bool awaits_end() const noexcept;

  const int rank_;
  const std::vector<int> neighbours_;
  const Ends ends_;
  Flags left_, ended_;
  Flags linked_;  // neighbours, as long as the link stands
};

}}  // namespace c10d::v0
