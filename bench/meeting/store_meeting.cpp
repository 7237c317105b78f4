// SPDX-License-Identifier: BSD-3-Clause
#include "bench/meeting/store_meeting.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>

#include "c10d/error.h"

namespace c10d::bench {
namespace {

std::int64_t number_of(const std::string& text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

StoreMeeting::StoreMeeting(Store& store, int host, int rank, int size, Duration timeout)
    : Meeting(rank, size),
      store_(store),
      timeout_(timeout),
      times_(static_cast<std::size_t>(size)) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  sched_getaffinity(0, sizeof mine, &mine);
  std::string text(reinterpret_cast<const char*>(&mine), sizeof mine);
  text += fmt::format("{}", host);
  struct Host {
    int ranks = 0;
    cpu_set_t cpus{};
  };
  std::map<std::string, Host> hosts;
  for (const std::string& theirs : gather(text)) {
    Host& on = hosts[theirs.substr(sizeof mine)];
    cpu_set_t cpus;
    std::memcpy(&cpus, theirs.data(), sizeof cpus);
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

void StoreMeeting::wait_for_all() {
  try {
    store_.barrier("meeting", size_, timeout_);
  } catch (const DistTimeoutError&) {
    throw_failure(
        {Code::timed_out,
         fmt::format("not all of {} ranks reached the benchmark's own barrier within {} s", size_,
                     std::chrono::duration_cast<std::chrono::seconds>(timeout_).count())});
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

void StoreMeeting::record(std::uint64_t iteration, Times times) noexcept {
  std::vector<Times>& mine = times_[static_cast<std::size_t>(rank_)];
  if (mine.empty()) mine.resize(kMaxIterations);
  mine[iteration] = times;
}

void StoreMeeting::share_times(std::uint64_t iterations) {
  std::vector<std::string> keys;
  for (int rank = 1; rank < size_; ++rank) keys.push_back(key("times", rank));
  const std::size_t bytes = iterations * sizeof(Times);
  if (rank_ != 0) {
    const std::vector<Times>& mine = times_[static_cast<std::size_t>(rank_)];
    store_.set(key("times", rank_), {reinterpret_cast<const char*>(mine.data()), bytes}, timeout_);
  }
  wait_for_all();
  if (rank_ != 0) return;
  for (std::size_t rank = 1; rank < times_.size(); ++rank) {
    const std::string value = store_.get(keys[rank - 1], timeout_);
    times_[rank].resize(iterations);
    std::memcpy(times_[rank].data(), value.data(), std::min(bytes, value.size()));
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

bool StoreMeeting::bind(std::span<const int> cpus) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(static_cast<std::size_t>(cpu), &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

}  // namespace c10d::bench
