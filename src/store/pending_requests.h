// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/store/key_value_table.h"

namespace c10d { inline namespace v0 {

// A table, and the requests that wait for it. Not thread-safe: HashStore holds a lock around it,
// the TCP server uses it on its one thread.
class Engine {
 public:
  using Done = std::function<void(Reply)>;
  using Ticket = std::uint64_t;

  explicit Engine(StoreLimits limits) : table_(limits) {}

  // Calls `done` exactly once: now, in which case the ticket is 0, or inside a later call of this
  // object. `done` must not call back.
  Ticket submit(const Request& request, Deadline deadline, Done done);
  // Withdraws a waiting request: `done` is never called. No effect on a ticket that is over.
  void cancel(Ticket ticket);
  // Ends what waits with a deadline that is not after `now`.
  void expire(Deadline now);
  std::optional<Deadline> next_deadline() const;
  std::size_t waiting() const noexcept { return waiters_.size(); }

 private:
  struct Waiter {
    StoreOp op;
    std::int64_t number;
    std::vector<std::string> keys;
    Deadline deadline;
    Done done;
    std::size_t missing =
        0;  // index of a key that was not there: by_key_ lists the ticket under it
    const std::string& missing_key() const { return keys[missing]; }
    Request request() const;
  };
  using Waiters = std::map<Ticket, Waiter>;
  struct Gate {
    std::int64_t size;
    std::vector<Ticket> arrived;
  };

  Ticket arrive(const Request& request, Deadline deadline, Done done);
  Ticket park(const Request& request, Deadline deadline, Done done);
  std::optional<Reply> retry(Waiter& waiter);
  void wake(std::string_view key);
  void unpark(Ticket ticket, const Waiter& waiter);
  void leave_gate(Ticket ticket, const std::string& key);
  // Takes the waiter out and answers it.
  void finish(Waiters::iterator waiter, Reply reply);

  Table table_;
  Ticket last_ticket_ = 0;
  Waiters waiters_;
  KeyMap<std::deque<Ticket>> by_key_;  // first come, first served
  KeyMap<Gate> gates_;
  std::set<std::pair<Deadline, Ticket>> deadlines_;
};

}}  // namespace c10d::v0
