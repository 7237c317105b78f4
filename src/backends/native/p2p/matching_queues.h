// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <list>
#include <optional>
#include <vector>

#include "src/backends/native/p2p/ring.h"
#include "src/backends/native/p2p/transfer.h"

namespace c10d { inline namespace v0 { namespace native {

// Decides which recv gets which message, by source and tag. Holds the recvs that have no message
// yet, in the order of posting, and the messages that arrived before their recv, in the order of
// arrival. No posted recv matches a held message: the caller looks in one list before it adds to
// the other. What one peer may have in here is bounded.
class MatchingQueues {
 public:
  static constexpr std::size_t kHeldBytes = std::size_t{4} << 20;  // of one source
  static constexpr std::size_t kHeldMessages = 4096;

  struct Arrived {
    int source;
    Frame frame;
    std::vector<std::byte> data;
  };

  explicit MatchingQueues(int ranks) : held_(static_cast<std::size_t>(ranks)) {}

  void post(Transfer& recv) noexcept;
  // Does nothing if `recv` is not posted.
  void remove(Transfer& recv) noexcept;
  // Removes the first posted recv that matches a message, and returns it; null: there is none.
  Transfer* take_posted(int source, const Frame& frame) noexcept;

  // Makes room for a message that arrived: the caller copies its data there. Null: `source` has
  // reached its limit.
  Arrived* hold(int source, const Frame& frame);
  // Removes the first held message that matches `recv`, and returns it.
  std::optional<Arrived> take_arrived(const Transfer& recv);
  // The first held message that matches `recv`; null: there is none.
  const Arrived* find_arrived(const Transfer& recv) const noexcept;
  const std::list<Arrived>& arrived() const noexcept { return arrived_; }

 private:
  struct Held {
    std::size_t bytes = 0;
    std::size_t messages = 0;
  };

  Transfer* first_ = nullptr;
  Transfer* last_ = nullptr;
  std::list<Arrived> arrived_;
  std::vector<Held> held_;  // by source
};

}}}  // namespace c10d::v0::native
