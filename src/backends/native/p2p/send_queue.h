// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "src/backends/native/p2p/ring.h"
#include "src/backends/native/p2p/transfer.h"

namespace c10d { inline namespace v0 { namespace native {

// The sends of this rank to one peer on its host. Messages, or offers of them, enter the ring in
// the order of posting. A send is in exactly one queue until it is done: first `queued`; once
// offered, in `offered` until the peer has answered; then it is done, or in `streaming` until its
// last piece is in the ring.
class SendQueue {
 public:
  // `rank`: of this rank in the group; `peer`: in the team.
  SendQueue(Team& team, int rank, int peer)
      : team_(&team), rank_(rank), peer_(peer), ring_(team, peer) {}

  void post(Transfer& send);
  // One turn; true: something moved.
  bool progress();
  void withdraw(Transfer& send) noexcept;

 private:
  bool put_part();
  bool take_answers();
  bool stream(std::size_t& budget);
  bool begin(Transfer& send);

  Team* team_;
  int rank_;
  int peer_;
  Sender ring_;
  std::deque<Transfer*> queued_;
  std::vector<Transfer*> offered_;
  std::deque<Transfer*> streaming_;
  std::uint32_t next_id_ = 0;
};

}}}  // namespace c10d::v0::native
