// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/links/measure_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/backends/common/failures.h"
#include "src/backends/common/store_waits.h"
#include "src/base/members.h"
#include "src/net/bytes.h"
#include "src/sync/wait_look.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

using std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

constexpr const char* kKey = "native/network";
constexpr int kPings = 10;
constexpr std::chrono::milliseconds kBudget{30};  // of which pings take a third
// From few bytes on, to what the budget allows.
constexpr std::size_t kSmallest = std::size_t{32} << 10, kLargest = std::size_t{1} << 20;
constexpr int kLargestTransfers = 2;  // of kLargest

// The two ranks that measure. One says what is next by a word: kEnds, kAnswers, or how many bytes
// both send at once.
class Pair {
 public:
  static constexpr std::uint64_t kEnds = 0, kAnswers = 1;

  Pair(const BackendContext& context, Links& links, const WaitPolicy& policy, Deadline deadline,
       int other)
      : context_(context), links_(links), policy_(&policy), deadline_(deadline), other_(other) {}

  NetworkProfile lead() {
    timed(kAnswers);  // the other one is there
    const Deadline end = steady_clock::now() + kBudget, end_of_pings = end - 2 * kBudget / 3;
    double ping = timed(kAnswers);
    for (int i = 1; i < kPings && (i == 1 || steady_clock::now() < end_of_pings); ++i)
      ping = std::min(ping, timed(kAnswers));
    std::size_t bytes = kSmallest;
    double transfer = timed(bytes);
    for (int last = 0; last < kLargestTransfers;) {
      const std::size_t next = std::min(4 * bytes, kLargest);
      const Microseconds expected(transfer * static_cast<double>(next) /
                                  static_cast<double>(bytes));
      if (steady_clock::now() + expected > end) break;
      const double taken = timed(next);
      transfer = next == bytes ? std::min(transfer, taken) : taken;
      bytes = next;
      if (bytes == kLargest) ++last;
    }
    const double busy = busy_with(bytes, end);
    say(kEnds);
    finish(true);
    NetworkProfile found;
    found.message_us = std::min(found.message_us, ping / 4);
    found.latency_us = ping / 2 - 2 * found.message_us;
    found.us_per_byte = std::max(transfer - ping, transfer / 10) / static_cast<double>(bytes);
    found.busy = busy;
    return found;
  }

  void follow() {
    for (std::uint64_t word = hear(); word != kEnds; word = hear()) {
      if (word == kAnswers)
        say(kAnswers);
      else
        exchange(static_cast<std::size_t>(std::min<std::uint64_t>(word, kLargest)));
    }
  }

 private:
  double timed(std::uint64_t word) {
    const auto start = steady_clock::now();
    say(word);
    if (word == kAnswers)
      hear();
    else
      exchange(word);
    return Microseconds(steady_clock::now() - start).count();
  }

  // For what part of the time of a transfer this thread runs, if it sleeps while it waits: the
  // median of three, where there is time for them.
  double busy_with(std::size_t bytes, Deadline end) {
    constexpr WaitPolicy kSleeps;
    const WaitPolicy* const before = std::exchange(policy_, &kSleeps);
    std::vector<double> parts;
    double taken = 0;
    do {
      const double cpu = cpu_us();
      taken = timed(bytes);
      parts.push_back(std::min((cpu_us() - cpu) / taken, 1.0));
    } while (parts.size() < 3 && steady_clock::now() + Microseconds(taken) < end);
    policy_ = before;
    std::ranges::sort(parts);
    return parts[parts.size() / 2];
  }

  static double cpu_us() noexcept {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return 1e6 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_nsec);
  }

  void say(std::uint64_t word) {
    links_.send(other_, reinterpret_cast<const std::byte*>(&word), sizeof word, 0);
    finish();
  }

  std::uint64_t hear() {
    std::uint64_t word = 0;
    links_.receive(other_, reinterpret_cast<std::byte*>(&word), sizeof word, 0);
    finish();
    return word;
  }

  void exchange(std::size_t bytes) {
    given_.resize(bytes);
    got_.resize(bytes);
    links_.send(other_, given_.data(), bytes, 0);
    links_.receive(other_, got_.data(), bytes, 0);
    finish();
  }

  void finish(bool settles = false) {
    const auto is_through = [&] {
      if (WaitLook::due()) throw_failure(WaitLook::failure());
      return settles ? links_.settled() : links_.idle();
    };
    switch (links_.await(*policy_, *context_.control, deadline_, is_through)) {
      case Links::End::ready:
        return;
      case Links::End::broken:
        throw_failure(*context_.control->failure());
      case Links::End::timed_out:
        throw_failure(caused_by(
            peer(), failure_in(context_, Code::timed_out,
                               "no time was left to measure the network to " + name_of(peer()))));
      case Links::End::lost:
        break;
    }
    Failure failure = links_.failure_of_loss(context_);
    Control& control = *context_.control;
    throw_failure(links_.loss_is_reason()
                      ? *control.fail(std::move(failure))
                      : *control.resolve_cause(std::move(failure), Links::kLossPatience));
  }

  const Member& peer() const { return context_.members[static_cast<std::size_t>(other_)]; }

  const BackendContext& context_;
  Links& links_;
  const WaitPolicy* policy_;
  const Deadline deadline_;
  const int other_;
  std::vector<std::byte> given_, got_;
};

// As whole numbers, so that all ranks read the same.
std::string to_bytes(const NetworkProfile& network) {
  std::string bytes;
  for (const double number : {network.latency_us * 1e3, network.message_us * 1e3,
                              1e6 / network.us_per_byte, network.busy * 1e3})
    put(bytes, static_cast<std::uint64_t>(std::llround(std::clamp(number, 1.0, 1e15))));
  return bytes;
}

NetworkProfile read_profile(const BackendContext& context, std::string_view bytes) {
  ByteReader reader(bytes);
  NetworkProfile network;
  network.latency_us = static_cast<double>(reader.take<std::uint64_t>()) / 1e3;
  network.message_us = static_cast<double>(reader.take<std::uint64_t>()) / 1e3;
  network.us_per_byte =
      1e6 / static_cast<double>(std::max<std::uint64_t>(reader.take<std::uint64_t>(), 1));
  network.busy = static_cast<double>(reader.take<std::uint64_t>()) / 1e3;
  if (!reader.finished())
    throw_failure(failure_in(context, Code::corrupt,
                             "what rank 0 says of the network in the store is damaged; start all "
                             "ranks with the same libc10d",
                             0));
  return network;
}

}  // namespace

NetworkProfile measure_network(const BackendContext& context, int far, Links& links,
                               const WaitPolicy& policy, Deadline deadline) {
  if (context.rank == far) Pair(context, links, policy, deadline, 0).follow();
  if (context.rank == 0)
    context.store->set(kKey, to_bytes(Pair(context, links, policy, deadline, far).lead()));
  const auto said = read_key(context, kKey, deadline);
  if (!said)
    throw_failure(failure_in(context, Code::timed_out,
                             fmt::format("ranks 0 and {} did not say in time what the network "
                                         "between them takes, though they came",
                                         far)));
  return read_profile(context, *said);
}

}}}  // namespace c10d::v0::native
