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

// The messages of one step. A forward message is a header, which says the shape, and the data; its
// receiver posts the header's receive when the step starts and the data's as soon as the header is
// there, in the library's callback thread: whatever the order of sends, the group can always take
// the next one. A gradient has the shape of what was sent, so it needs no header.
//
// The calls come from one thread; each goes to the group under a lock that the callbacks share.
class Mail : public std::enable_shared_from_this<Mail> {
 public:
  using Clock = std::chrono::steady_clock;
  using Key = std::uint32_t;  // the tag

  Mail(ProcessGroup& group, std::size_t limit, Clock::time_point deadline);

  void expect(const Address& from);
  void expect_like(const Address& from, const Activation& sent);
  // Waits for what was expected under that tag.
  Activation take(Key tag);
  void send(const Address& to, Activation activation);
  // Without a header.
  void send_gradient(const Address& to, Activation gradient);
  // Waits until the data that was sent under that tag may change.
  void settle(Key tag);
  void settle_all();

  // What is left until the deadline. Throws DistTimeoutError when that is nothing.
  Duration left(const Action& next) const;

  // The end: no callback uses the group any more. After a failure waits for the ops that the group
  // is about to end, and keeps the memory of those that do not.
  void close() noexcept;

 private:
  // dtype, number of dims, dims
  using Header = std::array<std::int64_t, 2 + kMaxActivationDims>;
  struct Incoming {
    Address from;
    Header header{};
    Work header_work;
    bool posted = false;
    Activation activation;
    Work work;
  };
  struct Outgoing {
    Header header{};
    Work header_work;
    Activation activation;
    Work work;
  };

  void post(Incoming& message);  // the receive of the data; mutex_ is held
  void make_room();
  CallOptions options(const Address& address) const;

  ProcessGroup& group_;
  const std::size_t limit_;
  const Clock::time_point deadline_;
  std::mutex mutex_;
  bool open_ = true;
  std::map<Key, Incoming> incoming_;
  std::map<Key, Outgoing> outgoing_;
};

// "pipeline step: rank 1, 2F0: ..."
std::string describe_failure(const ProcessGroup& group, const Action& action,
                             std::string_view what);

// "f32 [64, 3, 3]"
std::string to_text(std::span<const std::int64_t> shape, DType dtype);

// The bytes of a shape; none when it has too many or negative dimensions, or more bytes than
// `limit`.
std::optional<std::size_t> bytes_of(std::span<const std::int64_t> shape, DType dtype,
                                    std::size_t limit);

}  // namespace c10d::inline v0::parallel
