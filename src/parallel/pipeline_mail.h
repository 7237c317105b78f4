// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "c10d/parallel/pipeline.h"

namespace c10d::inline v0::parallel {

// Where a message goes to or comes from. A forward message takes the tag after it, too.
struct Address {
  int peer = 0;
  std::uint32_t tag = 0;
  Action action;  // that sends or receives it, for errors
};

// The messages of one step, known by their tags. A forward message is a header, which says the
// shape, and the data; its receiver posts the header's receive when the step starts and the data's
// as soon as the header is there, in the library's callback thread: whatever the order of sends,
// the group can always take the next one. A gradient has the shape of what was sent, so it needs no
// header.
//
// The calls come from one thread; each goes to the group under a lock that the callbacks share.
class Mail : public std::enable_shared_from_this<Mail> {
 public:
  using Clock = std::chrono::steady_clock;

  Mail(ProcessGroup& group, std::size_t limit, Clock::time_point deadline)
      : group_(group), limit_(limit), deadline_(deadline) {}

  void expect(const Address& from);
  void expect_like(const Address& from, const Activation& sent);
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
    std::array<std::int64_t, 2 + kMaxActivationDims> header{};  // dtype, number of dims, dims
    Work header_work;
    bool is_posted = false;
    Activation activation;
    Work work;
  };

  void post(Message& message);  // the receive of the data; mutex_ is held
  CallOptions options(const Address& address) const;

  ProcessGroup& group_;
  const std::size_t limit_;
  const Clock::time_point deadline_;
  std::mutex mutex_;
  bool is_open_ = true;
  std::map<std::uint32_t, Message> incoming_, outgoing_;
};

}  // namespace c10d::inline v0::parallel
