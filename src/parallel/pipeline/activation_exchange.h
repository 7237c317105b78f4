// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "c10d/parallel/pipeline.h"
#include "src/parallel/pipeline/stage_checks.h"

namespace c10d { inline namespace v0 { namespace parallel {

// Where a message goes to or comes from. A forward message takes the tag after it, too.
struct Address {
  int peer = 0;
  std::uint32_t tag = 0;
  Action action;  // that sends or receives it, for errors
};

// The messages of one step, known by their tags. A forward message is a header, which says the
// shape, and the data; a gradient has the shape of what was sent, so it needs no header. Of each
// peer, receives are posted for the next few messages in the order in which it sends them; when
// one ends, the library's callback thread posts the next: whatever the order in which messages are
// wanted, the group can always take the next one.
//
// The calls come from one thread; each goes to the group under a lock that the callbacks share.
class ActivationExchange : public std::enable_shared_from_this<ActivationExchange> {
 public:
  using Clock = std::chrono::steady_clock;

  ActivationExchange(const ProcessGroup& group, std::size_t limit, Clock::time_point deadline)
      : group_(group), limit_(limit), deadline_(deadline) {}

  // Once, before all else: what will come, that of each peer in the order in which it is sent.
  void expect(std::span<const Address> from);
  // Of a gradient: what it is the gradient of.
  void expect_like(std::uint32_t tag, const Activation& sent);
  // Waits for what was expected.
  Activation take(std::uint32_t tag);
  // With a header if the action is SEND_F. Waits when too much is on its way.
  void send(const Address& to, Activation activation);
  // Waits until the data that was sent may change.
  void settle(std::uint32_t tag);
  void settle_all();

  // What is left until the deadline. Throws DistTimeoutError when that is nothing.
  Duration left(const Action& next) const;
  // Breaks the group, so that all ranks hear of it: "pipeline step: rank 1, 2F0: ..."
  void abort(const Action& action, std::string_view why) const;

  // The end: no callback uses the group any more. After a failure waits for the ops that the group
  // is about to end, and keeps the memory of those that do not.
  void close() noexcept;

 private:
  struct Message {
    Address address;
    ActivationHeader header{};
    Work header_work;
    bool is_asked = false;  // for the header, if there is one
    bool is_posted = false;
    Activation activation;
    Work work;
  };
  using Queue = std::deque<Message*>;
  using Begun = std::vector<std::pair<const Work*, Action>>;

  void advance();  // posts the receives whose turn it is
  // The same of one peer, with those whose end makes it the turn of others; mutex_ is held.
  void advance(Queue& queue, Begun& begun);
  void read_header(Message& message) const;
  CallOptions options(const Address& address) const;
  Work receive(View output, const Address& from, std::uint32_t tag) const;

  const ProcessGroup group_;
  const std::size_t limit_;
  const Clock::time_point deadline_;
  std::mutex mutex_;
  bool is_open_ = true;
  std::map<std::uint32_t, Message> incoming_, outgoing_;
  std::map<int, Queue> queues_;  // by peer, what has not arrived
};

}}}  // namespace c10d::v0::parallel
