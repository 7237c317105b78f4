// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/team/team.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "src/backends/common/failures.h"
#include "src/backends/native/memory/cma.h"
#include "src/backends/native/team/own_cpu.h"
#include "src/base/members.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

constexpr std::size_t kShareUnit = 4096;

Deadline deadline_of(const BackendContext& context) {
  return std::chrono::steady_clock::now() + context.timeout;
}

std::shared_ptr<SharedMapping> share(const BackendContext& context, std::string key,
                                     std::size_t bytes, Deadline deadline,
                                     const std::vector<int>& numbers = {}) {
  std::shared_ptr<SharedMapping> mapping;
  if (context.rank == 0) mapping = make_shared_memory("c10d-" + key, bytes);
  return share_memory({.store = context.store,
                       .key = std::move(key),
                       .rank = context.rank,
                       .size = context.size,
                       .token = context.token,
                       .deadline = deadline,
                       .names = numbers,
                       .failure = [&context] { return context.control->failure(); }},
                      std::move(mapping));
}

}  // namespace

Team::Team(const BackendContext& context, int neighbours)
    : Team(context, neighbours, {}, deadline_of(context)) {}

Team::Team(const BackendContext& context, int neighbours, std::shared_ptr<SharedMapping> segment)
    : Team(context, neighbours, {}, deadline_of(context), std::move(segment)) {}

Team::Team(const BackendContext& context, int neighbours, const std::vector<int>& numbers,
           Deadline deadline)
    : Team(context, neighbours, numbers, deadline,
           share(context, "native", Layout(context.size).bytes(), deadline, numbers)) {}

Team::Team(const BackendContext& context, int neighbours, std::vector<int> numbers,
           Deadline deadline, std::shared_ptr<SharedMapping> segment)
    : context_(context),
      numbers_(std::move(numbers)),
      neighbours_(std::max(neighbours, context_.size)),
      layout_(context_.size),
      segment_(std::move(segment)),
      base_(segment_->data()),
      sources_(static_cast<std::size_t>(context_.size)),
      cpus_(static_cast<std::size_t>(context_.size)) {
  if (segment_->size() != layout_.bytes())
    throw_failure(failure_in(context_, Code::version_mismatch,
                             fmt::format("rank {} shares {} bytes where this build of native "
                                         "needs {}; start all ranks with the same libc10d",
                                         number(0), segment_->size(), layout_.bytes()),
                             number(0)));
  for (int i = 1; i < size(); ++i) peers_.push_back((rank() + i) % size());
  claim_own_part();
  join(deadline);
}

// This rank's staging and rings lie on its own NUMA node.
void Team::claim_own_part() {
  const auto claim = [this](const std::byte* from, std::size_t bytes) {
    segment_->claim(static_cast<std::size_t>(from - base_), bytes);
  };
  try {
    claim(layout_.staging(base_, rank(), 0), layout_.staging_bytes());
    if (size() > 1) claim(layout_.ring(base_, rank(), 0), layout_.rings_bytes());
  } catch (const DistError& error) {  // the others wait for this rank
    throw_failure(*control().fail(error.failure()));
  }
}

void Team::join(Deadline deadline) {
  RankLines& own = lines(rank());
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0)
    std::memcpy(own.cpus, &cpus, std::min(sizeof own.cpus, sizeof cpus));
  for (auto* counter : {&own.progress.staged, &own.progress.reduced, &own.progress.consumed})
    counter->publish(kFirstEpoch, 0);
  introduce(own.identity, word_);
  own.joined.store(1, std::memory_order_release);
  own.doorbell.ring();

  policy_ = wait_policy(neighbours_, 0);  // until more is known
  std::uint64_t all[kCpuWords] = {};
  for (int i = 1; i <= size(); ++i) {
    const int peer = i % size();  // rank 0 last: it passes the memory to all others first
    RankLines& theirs = lines(peer);
    wait_for_peer(peer, "did not map the group's shared memory", deadline,
                  [&] { return theirs.joined.load(std::memory_order_acquire) != 0; });
    for (std::size_t word = 0; word < kCpuWords; ++word) all[word] |= theirs.cpus[word];
  }
  // Of all ranks together: a launcher may have bound each rank to a CPU of its own.
  for (const std::uint64_t word : all) allowed_cpus_ += std::popcount(word);
  policy_ = wait_policy(neighbours_, allowed_cpus_);
  const bool reads_all = reads_every_peer();
  if (size() == 1) return;
  own.reads_all.store(reads_all ? 1 : 2, std::memory_order_release);
  own.doorbell.ring();
  std::optional<OwnCpu> own_cpu;
  // Groups below this size may be made side by side.
  if (!oversubscribed() && size() == neighbours_) own_cpu.emplace(place_on_own_cpus());
  trips_ = measure_round_trips(*this, deadline);
  agree_on_plan(deadline);
}

void Team::note_cpu() noexcept {
  const auto here = static_cast<std::uint32_t>(sched_getcpu() + 1);
  std::atomic<std::uint32_t>& noted = lines(rank()).last_cpu;
  if (noted.load(std::memory_order_relaxed) != here) noted.store(here, std::memory_order_relaxed);
}

void Team::move_apart() noexcept {
  cpu_set_t taken;
  CPU_ZERO(&taken);
  for (const int peer : peers_)
    if (const std::uint32_t noted = lines(peer).last_cpu.load(std::memory_order_relaxed);
        noted != 0)
      CPU_SET(noted - 1, &taken);
  leave_taken_cpu(taken);
  note_cpu();
}

int Team::place_on_own_cpus() const {
  int place = 0;
  for (int lower = 0; lower < rank(); ++lower)
    place += std::ranges::equal(lines(lower).cpus, lines(rank()).cpus) ? 1 : 0;
  return place;
}

void Team::wait_for_peer(int peer, const char* what, Deadline deadline,
                         const std::function<bool()>& ready) {
  const WaitResult result =
      wait_until({policy_, control(), deadline, nullptr}, lines(peer).doorbell, ready);
  if (result == WaitResult::broken) throw_failure(*control().failure());
  if (result == WaitResult::timed_out) throw_failure(late(peer, what));
}

// Once rank 0 has joined, it waits for every rank that has not finished.
Failure Team::late(int peer, const char* what) const {
  if (peer == 0 && lines(0).joined.load(std::memory_order_acquire) != 0)
    for (int other = 1; other < size() && peer == 0; ++other)
      if (lines(other).reads_all.load(std::memory_order_acquire) == 0) {
        peer = other;
        what = kUnfinished;
      }
  return failure_in(context_, Code::timed_out, fmt::format("rank {} {}", number(peer), what),
                    number(peer));
}

Allocation Team::allocate(std::size_t bytes, Deadline deadline) {
  const auto ranks = static_cast<std::size_t>(size());
  if (bytes > std::numeric_limits<std::size_t>::max() / 2 / ranks - kShareUnit)
    throw_failure(failure_in(
        context_, Code::out_of_resources,
        fmt::format("allocate: {} bytes on each of {} ranks are too many", bytes, ranks)));
  const std::size_t used = std::max<std::size_t>(bytes, 1);
  const std::size_t share_bytes = (used + kShareUnit - 1) / kShareUnit * kShareUnit;
  const std::string key = fmt::format("heap/{}", allocations_++);
  const std::size_t own = static_cast<std::size_t>(rank()) * share_bytes;
  std::shared_ptr<SharedMapping> mapping;
  try {
    mapping = share(context_, key, share_bytes * ranks, deadline, numbers_);
    if (mapping->size() == share_bytes * ranks) mapping->claim(own, share_bytes);
  } catch (const DistNetworkError& error) {  // of a peer that died, perhaps
    throw_failure(*control().resolve_cause(error.failure(), std::chrono::seconds(1)));
  } catch (const DistError& error) {  // the others may have mapped it
    throw_failure(*control().fail(name_not_running(error.failure(), context_.members)));
  }
  if (mapping->size() != share_bytes * ranks)
    throw_failure(*control().fail(
        {.code = Code::mismatch,
         .message = fmt::format("allocate: rank {} asks for {} bytes, rank {} for {} (rounded to "
                                "pages); all ranks must ask for the same",
                                number(rank()), bytes, number(0), mapping->size() / ranks),
         .rank = number(0),
         .group = context_.group,
         .op = "allocate"}));
  heap_.add(static_cast<std::uint32_t>(allocations_), mapping, share_bytes);
  return {mapping->data() + own, bytes, mapping, mapping->data(), share_bytes};
}

}}}  // namespace c10d::v0::native
