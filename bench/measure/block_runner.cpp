// SPDX-License-Identifier: BSD-3-Clause
#include "bench/measure/block_runner.h"

#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <optional>

namespace c10d::bench {
namespace {

std::array<std::int64_t, 2> switches_now() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {usage.ru_nvcsw, usage.ru_nivcsw};
}

// CPU time so far: CLOCK_THREAD_CPUTIME_ID or CLOCK_PROCESS_CPUTIME_ID.
std::int64_t cpu_now(clockid_t of) noexcept {
  timespec time{};
  clock_gettime(of, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

constexpr std::uint64_t kFewestIterations = 3;

std::int64_t deadline_in(double seconds) {
  return Meeting::now() + static_cast<std::int64_t>(seconds * 1e9);
}

// Below this the flag stays inside a core complex.
constexpr double kNearUs = 0.2;

RoundTrip round_trip_of(double before, double after) {
  const bool near_before = before < kNearUs;
  const bool near_after = after < kNearUs;
  return {before, after, near_before != near_after ? "mixed" : near_before ? "near" : "far"};
}

}  // namespace

// Whatever fails first stays the failure, and nothing is attempted after it.
template <class F>
void BlockRunner::attempt(F&& f) noexcept {
  if (!failure_.empty()) return;
  try {
    f();
  } catch (const std::exception& error) {
    failure_ = error.what();
    if (failure_.empty()) failure_ = "unknown error";
  }
}

void BlockRunner::run() noexcept {
  attempt([&] {
    if (graphs_.empty()) {
      subject_.run(buffers_.ops(), buffers_.flight());
      return;
    }
    graphs_[next_graph_].launch();
    last_turn_ = (next_graph_ + 1) * settings_.graph_ops - 1;
    next_graph_ = (next_graph_ + 1) % graphs_.size();
  });
}

GpuGraph BlockRunner::graph_of(std::uint64_t first, std::uint64_t ops) {
  return GpuGraph(*buffers_.seat(), [&] {
    for (std::uint64_t turn = first; turn < first + ops; ++turn) {
      buffers_.turn_to(turn);
      subject_.run(buffers_.ops(), buffers_.flight());
    }
  });
}

void BlockRunner::capture() {
  attempt([&] {
    const std::uint64_t ops = settings_.graph_ops, sets = buffers_.sets();
    const std::uint64_t most = std::max(ops, kCaptured);
    for (std::uint64_t first = 0; first < sets && first + ops <= most; first += ops)
      graphs_.push_back(graph_of(first, ops));
    if (!buffers_.keeps_inputs() && ops > sets) check_graph_ = graph_of(0, sets);
  });
}

void BlockRunner::introduce() {
  attempt([&] {
    for (std::uint64_t set = 0; set < buffers_.sets(); ++set) {
      buffers_.turn_to(set);
      subject_.meet_ops(buffers_.ops());
    }
    buffers_.turn_to(0);
  });
}

template <class F>
void BlockRunner::for_each_checked(F&& f) {
  if (graphs_.empty()) {
    f();
    return;
  }
  const std::uint64_t turns = std::min(settings_.graph_ops, buffers_.sets());
  for (std::uint64_t turn = 0; turn < turns; ++turn) {
    buffers_.turn_to(turn);
    f();
  }
}

// Each rank waits for a random part of the skew, another one in every iteration.
void BlockRunner::wait_for_skew() {
  std::uniform_int_distribution<std::int64_t> late(0, settings_.start_skew);
  const std::int64_t until = Meeting::now() + late(random_);
  while (Meeting::now() < until) {
  }
}

// To refresh a few lines takes less time than to read the clock twice.
bool BlockRunner::refreshes_much() const noexcept {
  constexpr std::uint64_t kFewBytes = 4096;
  const Case& c = buffers_.of();
  return c.bytes > kFewBytes && (settings_.dirty || c.place == Place::in);
}

// Returns the nanoseconds of CPU time that it took.
std::int64_t BlockRunner::refresh() noexcept {
  const bool much = refreshes_much();
  const std::int64_t start = much ? cpu_now(CLOCK_THREAD_CPUTIME_ID) : 0;
  buffers_.refresh(settings_.dirty);
  return much ? cpu_now(CLOCK_THREAD_CPUTIME_ID) - start : 0;
}

// How many ops run in one iteration of at most `longest_burst`. The time that the ranks spend
// between the ops is subtracted as if all of them spent the same; where one rank has most of that
// work, and where they do not share their CPUs, there is no burst.
int BlockRunner::burst_for(double per_op) const {
  const Case& c = buffers_.of();
  if (timer_ && settings_.longest_burst <= 0) return runs_of(kBatch);
  if (timer_)
    return static_cast<int>(std::clamp(settings_.longest_burst / std::max(per_op, 1e-9), 1.0,
                                       static_cast<double>(runs_of(kLargestBatch))));
  if (!meeting_.oversubscribed() || !subject_.computes() || meeting_.is_between_hosts() ||
      settings_.sync == Sync::own)
    return 1;
  if (facts_of(c.op).rooted && refreshes_much()) return 1;
  return static_cast<int>(std::clamp(settings_.longest_burst / std::max(per_op, 1e-9), 1.0,
                                     static_cast<double>(burst_of(c))));
}

// How many iterations run between two barriers. Where one rank alone rewrites much, the others
// would wait for that in the op; and what flushes the caches takes each rank another time. A
// barrier of the backend before each op makes up for that.
std::uint64_t BlockRunner::loop_for(double per_op) const {
  const Case& c = buffers_.of();
  if (settings_.sync != Sync::own) {
    if (settings_.sync != Sync::loop || settings_.start_skew > 0 || meeting_.oversubscribed())
      return 1;
    if (c.cache == Cache::cold || (facts_of(c.op).rooted && refreshes_much())) return 1;
  }
  return static_cast<std::uint64_t>(std::clamp(settings_.longest_loop / std::max(per_op, 1e-9), 1.0,
                                               static_cast<double>(Meeting::kMaxIterations)));
}

bool BlockRunner::meet(std::int64_t deadline) {
  switch (settings_.sync) {
    case Sync::window:
      return meeting_.meet(deadline);
    case Sync::barrier:
      return meeting_.barrier(deadline);
    case Sync::loop:
    case Sync::own:
      break;
  }
  return meeting_.wake(deadline);
}

// A plain copy has none.
void BlockRunner::enter_own_barrier() {
  if (settings_.sync != Sync::own || !subject_.computes()) return;
  const Op barrier = Barrier{};
  attempt([&] { subject_.run({&barrier, 1}, Flight::in_turn); });
}

// One iteration. On one host, where an op takes less than a microsecond, nothing else is looked at.
Meeting::Times BlockRunner::time_ops() {
  if (timer_) return time_batch();
  enter_own_barrier();
  const bool counts_cpu = meeting_.is_between_hosts();
  const std::int64_t cpu = counts_cpu ? cpu_now(CLOCK_PROCESS_CPUTIME_ID) : 0;
  Meeting::Times times{.start = Meeting::now()};
  run();
  for (int again = 1; again < burst_; ++again) {
    times.other += refresh();
    run();
  }
  times.end = Meeting::now();
  if (counts_cpu) times.cpu = cpu_now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
  return times;
}

Meeting::Times BlockRunner::time_batch() {
  Meeting::Times times{.start = Meeting::now()};
  times.end = times.start;
  attempt([&] { timer_->start(); });
  for (int done = 0; done < burst_; ++done) {
    const std::int64_t called = Meeting::now();
    run();
    times.cpu += Meeting::now() - called;
    if (graphs_.empty() && done + 1 < burst_) buffers_.refresh(false);
  }
  attempt([&] { times.end = times.start + timer_->stop(); });
  return times;
}

// After a barrier: `most` iterations, or as many as a loop has. The first op finds ranks as they
// woke up, and is not counted where others follow it.
std::uint64_t BlockRunner::loop_from(std::uint64_t first, std::uint64_t most, bool record) {
  const Meeting::Times woken = time_ops();
  if (record) meeting_.record(first, woken);
  if (loop_ == 1) return 1;
  const std::uint64_t count = std::min(most, loop_);
  for (std::uint64_t i = 0; i < count; ++i) {
    buffers_.refresh(settings_.dirty);
    const Meeting::Times times = time_ops();
    if (record) meeting_.record(first + i, times);
  }
  return count;
}

// Returns how many it ran: fewer than `count` when the deadline passed, which every rank sees at
// the same barrier.
std::uint64_t BlockRunner::iterate(std::uint64_t count, std::int64_t deadline, bool record) {
  for (std::uint64_t i = 0; i < count;) {
    buffers_.refresh(settings_.dirty);
    if (!meet(deadline) && i >= kFewestIterations) {
      // The last result is gone: see refresh(), and check(). On a GPU nobody looks for it.
      if (buffers_.of().place == Place::in && !timer_) run();
      return i;
    }
    if (settings_.start_skew > 0) wait_for_skew();
    i += loop_from(i, count - i, record);
  }
  return count;
}

double BlockRunner::warm_up(double seconds, int fixed) {
  std::int64_t batch = fixed >= 0 ? fixed : 1;
  std::int64_t total = 0;
  double per_iteration = 0;
  meeting_.barrier();
  for (int round = 0; batch > 0; ++round) {
    const std::int64_t start = Meeting::now();
    const std::uint64_t done = iterate(static_cast<std::uint64_t>(batch),
                                       deadline_in(fixed >= 0 ? 3600 : 2 * seconds), false);
    const std::int64_t took = Meeting::now() - start;
    total += took;
    per_iteration =
        static_cast<double>(took) * 1e-9 / static_cast<double>(std::max<std::uint64_t>(1, done));
    const double left = seconds - static_cast<double>(total) * 1e-9;
    // The first iteration after another backend's is not typical, so there are two rounds at least.
    std::int64_t next = left <= 0 ? 0
                                  : std::min<std::int64_t>(
                                        static_cast<std::int64_t>(left / per_iteration), batch * 8);
    if (round == 0) next = std::max<std::int64_t>(next, 1);
    if (round == 1) {
      burst_ = static_cast<int>(
          meeting_.from_root(burst_for(timer_ ? per_iteration / burst_ : per_iteration)));
      if (burst_ > 1) next = 1;
    }
    const auto loop = static_cast<std::int64_t>(loop_for(per_iteration));
    if (round > 0 || fixed >= 0) loop_ = static_cast<std::uint64_t>(meeting_.from_root(loop));
    if (fixed >= 0 || !failure_.empty()) next = 0;
    batch = meeting_.from_root(next);
  }
  return per_iteration;
}

CellRecord BlockRunner::measure(std::uint64_t iterations, double seconds) {
  constexpr double kShare = 0.05;  // of the median
  CellRecord cell;
  if (!meeting_.is_between_hosts() || settings_.sync != Sync::window) {
    cell = measure_block(iterations, seconds);
  } else {
    const Meeting::Clocks before = meeting_.compare_clocks();
    cell = measure_block(iterations, seconds);
    const Meeting::Clocks after = meeting_.compare_clocks();
    clock_us_.reset();
    if (before.error && after.error)
      clock_us_ = static_cast<double>(std::max(*before.error, *after.error) + after.moved) * 1e-3;
    const bool is_close = clock_us_ && *clock_us_ <= kShare * cell.us.p50;
    if (meeting_.from_root(is_close ? 1 : 0) == 0) {
      settings_.sync = Sync::barrier;
      cell = measure_block(iterations, seconds);
    }
  }
  cell.clock_us = clock_us_;
  return cell;
}

CellRecord BlockRunner::measure_block(std::uint64_t iterations, double seconds) {
  CellRecord cell;
  cell.sync = to_string(settings_.sync);
  // Ranks on one CPU, where the last backend may have left them, would stay there for seconds.
  meeting_.meet(INT64_MAX);
  const double before = meeting_.round_trip(100);
  iterate(2, INT64_MAX, false);
  const auto switches = switches_now();
  cell.iters = iterate(iterations, deadline_in(seconds), true);
  const auto after = switches_now();
  for (std::size_t i = 0; i < 2; ++i) cell.switches[i] = meeting_.sum(after[i] - switches[i]);
  meeting_.meet(INT64_MAX);
  const double behind = meeting_.round_trip(100);
  meeting_.share_times(cell.iters);
  if (meeting_.rank() == 0) {
    if (before > 0 && !timer_) cell.rtt = round_trip_of(before, behind);
    summarise(cell);
  }
  meeting_.barrier();
  return cell;
}

void BlockRunner::summarise(CellRecord& cell) const {
  const std::uint64_t iterations = cell.iters;
  cell.burst = burst_ * ops_of_run();
  const double share = (subject_.computes() ? buffers_.share() : 1) / cell.burst;
  std::vector<double> skew_in;
  std::vector<double> skew_out;
  std::vector<double> cpu;
  cell.samples.reserve(iterations);
  for (std::uint64_t i = 0; i < iterations; ++i) {
    Meeting::Times first = meeting_.times(0, iterations)[i];
    Meeting::Times last = first;
    std::int64_t slowest = 0;
    std::int64_t other = 0;
    std::int64_t most_cpu = 0;
    for (int rank = 0; rank < meeting_.size(); ++rank) {
      const Meeting::Times times = meeting_.times(rank, iterations)[i];
      slowest = std::max(slowest, times.end - times.start);
      other += times.other;
      most_cpu = std::max(most_cpu, times.cpu);
      first = {std::min(first.start, times.start), std::min(first.end, times.end)};
      last = {std::max(last.start, times.start), std::max(last.end, times.end)};
    }
    // All ranks share the CPUs, and so the time that any of them takes for something else.
    const std::int64_t ops = std::max<std::int64_t>(slowest - other / meeting_.cpu_count(), 0);
    cell.samples.push_back(static_cast<double>(ops) * 1e-3 * share);
    cpu.push_back(static_cast<double>(most_cpu) * 1e-3 * share);
    skew_in.push_back(static_cast<double>(last.start - first.start) * 1e-3);
    skew_out.push_back(static_cast<double>(last.end - first.end) * 1e-3);
  }
  cell.us = quantiles(cell.samples);
  if (timer_ || meeting_.is_between_hosts()) cell.cpu_us = median(std::move(cpu));
  if (meeting_.is_between_hosts() && settings_.sync != Sync::window) return;
  cell.skew_in = median(std::move(skew_in));
  cell.skew_out = median(std::move(skew_out));
}

BlockRunner::CheckResult BlockRunner::check(bool timed_before) {
  timed_before = timed_before && subject_.computes() && buffers_.keeps_inputs();
  if (!graphs_.empty()) buffers_.turn_to(last_turn_);
  std::uint64_t wrong = timed_before ? buffers_.wrong() : 0;
  for_each_checked([&] { buffers_.poison_output(); });
  meeting_.barrier();
  next_graph_ = 0;
  if (check_graph_)
    attempt([&] { check_graph_->launch(); });
  else
    run();
  CheckResult result;
  if (!subject_.computes()) return result;
  if (failure_.empty()) for_each_checked([&] { wrong += buffers_.wrong(); });
  const std::uint64_t hash = buffers_.hash();
  result.wrong = static_cast<std::uint64_t>(
      meeting_.sum(failure_.empty() ? static_cast<std::int64_t>(wrong) : 0));
  if (buffers_.same_everywhere()) {
    const auto root =
        static_cast<std::uint64_t>(meeting_.from_root(static_cast<std::int64_t>(hash)));
    result.ranks_agree = meeting_.sum(hash == root || !failure_.empty() ? 0 : 1) == 0;
    result.hash = root;
  } else {
    const std::uint64_t weighted = hash * (2 * static_cast<std::uint64_t>(meeting_.rank()) + 1);
    result.hash = static_cast<std::uint64_t>(meeting_.sum(static_cast<std::int64_t>(weighted)));
  }
  return result;
}

}  // namespace c10d::bench
