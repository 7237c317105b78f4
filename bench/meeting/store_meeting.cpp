// SPDX-License-Identifier: BSD-3-Clause
#include "bench/meeting/store_meeting.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <utility>

#include "c10d/env.h"
#include "c10d/error.h"

namespace c10d::bench {
namespace {

constexpr std::chrono::seconds kClockTimeout{5};

std::int64_t number_of(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw_failure({Code::store_error, "the benchmark's own number of a rank is none: " + text});
  return value;
}

}  // namespace

StoreMeeting::StoreMeeting(Store& store, int host, int rank, int size, Duration timeout)
    : Meeting(rank, size, timeout),
      store_(store),
      first_on_host_(static_cast<std::size_t>(size)),
      times_(static_cast<std::size_t>(size)) {
  times_[static_cast<std::size_t>(rank)].resize(kMaxIterations);
  std::string text(reinterpret_cast<const char*>(&cpus_), sizeof cpus_);
  text += fmt::format("{}", host);
  struct Host {
    int first = 0;
    int ranks = 0;
    cpu_set_t cpus{};
  };
  std::map<std::string, Host> hosts;
  int other = 0;
  for (const std::string& theirs : gather(text)) {
    if (theirs.size() < sizeof cpus_)
      throw_failure({Code::store_error, "the CPUs of a rank are cut short"});
    cpu_set_t cpus;
    std::memcpy(&cpus, theirs.data(), sizeof cpus);
    Host& on = hosts.try_emplace(theirs.substr(sizeof cpus_), Host{.first = other}).first->second;
    first_on_host_[static_cast<std::size_t>(other++)] = on.first;
    CPU_OR(&on.cpus, &on.cpus, &cpus);
    ++on.ranks;
  }
  cpu_count_ = 0;
  for (const auto& [name, on] : hosts) {
    const int cpus = std::max(1, CPU_COUNT(&on.cpus));
    cpu_count_ += cpus;
    oversubscribed_ = oversubscribed_ || on.ranks > cpus;
  }
}

std::string StoreMeeting::key(std::string_view name, int rank) const {
  return fmt::format("meeting/{}/{}/{}", name, round_ % 2, rank);
}

// A rank that waits in vain says so, and then looks who else does.
void StoreMeeting::throw_late() {
  constexpr std::chrono::seconds kOthers{1};
  const auto mark = [](int rank) { return fmt::format("meeting/waited/{}", rank); };
  store_.set(mark(rank_), "", timeout_);
  std::vector<int> missing;
  const std::int64_t until = now() + std::chrono::nanoseconds(kOthers).count();
  for (int rank = 0; rank < size_; ++rank) {
    try {
      store_.get(mark(rank), Duration(std::max<std::int64_t>(0, until - now())));
    } catch (const DistTimeoutError&) {
      missing.push_back(rank);
    }
  }
  throw_missing(missing);
}

void StoreMeeting::wait_for_all() {
  try {
    store_.barrier("meeting", size_, timeout_);
  } catch (const DistTimeoutError&) {
    throw_late();
  }
  ++round_;
}

// A rank writes a key again two rounds later: all have left the round between, and so have read.
std::vector<std::string> StoreMeeting::gather(std::string_view text) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < size_; ++rank) keys.push_back(key("value", rank));
  store_.set(keys[static_cast<std::size_t>(rank_)], text, timeout_);
  wait_for_all();
  return store_.multi_get(keys, timeout_);
}

bool StoreMeeting::barrier(std::int64_t deadline) {
  if (deadline == kNoDeadline) {
    wait_for_all();
    return true;
  }
  return from_root(now() < deadline ? 1 : 0) != 0;
}

// All leave by the same reply of the store, and not rank 0 before those that ask what it said.
bool StoreMeeting::wake(std::int64_t deadline) {
  const bool early = barrier(deadline);
  wait_for_all();
  return early;
}

bool StoreMeeting::is_first_here() const noexcept {
  return first_on_host_[static_cast<std::size_t>(rank_)] == rank_;
}

ClockOffset StoreMeeting::measure_clock() {
  if (!is_first_here()) return {};
  if (!clocks_) {
    const auto address = env("MASTER_ADDR");
    if (!address) throw InvalidArgument("MASTER_ADDR is not set");
    std::vector<int> firsts = first_on_host_;
    std::ranges::sort(firsts);
    firsts.erase(std::unique(firsts.begin(), firsts.end()), firsts.end());
    clocks_ = std::make_unique<HostClocks>(store_, firsts, rank_, *address, kClockTimeout);
  }
  return clocks_->measure();
}

// How long the word of rank 0 takes to the last rank, with as much on top.
void StoreMeeting::find_lead() {
  constexpr int kTrials = 5;
  constexpr std::int64_t kLeast = 50'000, kMost = 100'000'000;  // ns
  std::int64_t latest = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const std::int64_t sent = from_root(now());
    latest = std::max(latest, now() - offsets_[static_cast<std::size_t>(rank_)].offset - sent);
  }
  for (const std::string& theirs : gather(fmt::format("{}", latest)))
    latest = std::max(latest, number_of(theirs));
  lead_ = std::clamp(2 * latest, kLeast, kMost);
}

Meeting::Clocks StoreMeeting::compare_clocks() {
  ClockOffset own;
  std::string why;
  try {
    own = measure_clock();
  } catch (const std::exception& error) {
    why = error.what();
  }
  const std::vector<std::string> said = gather(fmt::format("{} {} {}", own.offset, own.error, why));
  std::vector<ClockOffset> offsets(said.size());
  Clocks result{.error = 0};
  std::int64_t largest = 0, second = 0;
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    const auto host = static_cast<std::size_t>(first_on_host_[rank]);
    const std::string& text = said[host];
    const std::size_t space = text.find(' '), end = text.find(' ', space + 1);
    if (end == text.npos) throw_failure({Code::store_error, "the clock of a rank is cut short"});
    offsets[rank] = {number_of(text.substr(0, space)),
                     number_of(text.substr(space + 1, end - space - 1))};
    if (end + 1 < text.size()) return {.why = text.substr(end + 1)};
    if (host != rank) continue;
    second = std::max(second, std::min(largest, offsets[rank].error));
    largest = std::max(largest, offsets[rank].error);
    if (!offsets_.empty())
      result.moved = std::max(result.moved, std::abs(offsets[rank].offset - offsets_[rank].offset));
  }
  result.error = largest + second;
  offsets_ = std::move(offsets);
  find_lead();
  return result;
}

bool StoreMeeting::meet(std::int64_t deadline) {
  if (offsets_.empty() || oversubscribed_) return wake(deadline);
  const bool early = barrier(deadline);
  const std::int64_t start =
      from_root(now() + lead_) + offsets_[static_cast<std::size_t>(rank_)].offset;
  while (now() < start) {
  }
  return early;
}

void StoreMeeting::record(std::uint64_t iteration, Times times) noexcept {
  times_[static_cast<std::size_t>(rank_)][iteration] = times;
}

void StoreMeeting::share_times(std::uint64_t iterations) {
  std::vector<std::string> keys;
  for (int rank = 1; rank < size_; ++rank) keys.push_back(key("times", rank));
  const std::size_t bytes = iterations * sizeof(Times);
  if (rank_ != 0) {
    std::vector<Times> mine = times_[static_cast<std::size_t>(rank_)];
    if (!offsets_.empty())
      for (Times& times : std::span(mine).first(iterations)) {
        times.start -= offsets_[static_cast<std::size_t>(rank_)].offset;
        times.end -= offsets_[static_cast<std::size_t>(rank_)].offset;
      }
    store_.set(key("times", rank_), {reinterpret_cast<const char*>(mine.data()), bytes}, timeout_);
  }
  wait_for_all();
  if (rank_ != 0) return;
  for (std::size_t rank = 1; rank < times_.size(); ++rank) {
    const std::string value = store_.get(keys[rank - 1], timeout_);
    if (value.size() != bytes)
      throw_failure({Code::store_error, fmt::format("{} bytes of times of rank {}, {} expected",
                                                    value.size(), rank, bytes)});
    times_[rank].resize(iterations);
    std::memcpy(times_[rank].data(), value.data(), bytes);
    store_.delete_key(keys[rank - 1], timeout_);
  }
}

std::span<const Meeting::Times> StoreMeeting::times(int rank,
                                                    std::uint64_t iterations) const noexcept {
  return std::span(times_[static_cast<std::size_t>(rank)]).first(iterations);
}

std::int64_t StoreMeeting::sum(std::int64_t value) {
  std::uint64_t total = 0;
  for (const std::string& text : gather(fmt::format("{}", value)))
    total += static_cast<std::uint64_t>(number_of(text));
  return static_cast<std::int64_t>(total);
}

std::int64_t StoreMeeting::from_root(std::int64_t value) {
  const std::string place = key("root", 0);
  if (rank_ == 0) store_.set(place, fmt::format("{}", value), timeout_);
  wait_for_all();
  return rank_ == 0 ? value : number_of(store_.get(place, timeout_));
}

}  // namespace c10d::bench
