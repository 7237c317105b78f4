// SPDX-License-Identifier: BSD-3-Clause
#include "bench/rank/replay_rank.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "bench/measure/buffers.h"
#include "bench/measure/subject.h"
#include "bench/measure/watchdog.h"
#include "bench/model/options.h"
#include "bench/model/stats.h"
#include "bench/rank/control_group.h"
#include "bench/rank/rank.h"
#include "c10d/async_group.h"
#include "c10d/error.h"

namespace c10d::bench {
namespace {

// Work for the CPU that touches no memory, about a microsecond of it.
void compute_a_little() noexcept {
  static thread_local volatile std::uint64_t sink = 1;
  std::uint64_t value = sink;
  for (std::uint64_t i = 0; i < 256; ++i) value = value * 6364136223846793005U + (i ^ value >> 7);
  sink = value;
}

double cpu_seconds() noexcept {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// A thread that computes for `seconds` of its CPU time in each step; 0: as long as this lives.
class ComputingThread {
 public:
  explicit ComputingThread(double seconds) : seconds_(seconds), thread_([this] { run(); }) {}
  ~ComputingThread() {
    stop_.store(true);
    begin_step();
    thread_.join();
  }
  ComputingThread(const ComputingThread&) = delete;
  ComputingThread& operator=(const ComputingThread&) = delete;

  // What it has not done of the step before is left out.
  void begin_step() {
    steps_.fetch_add(1);
    steps_.notify_one();
  }
  // Whether it has computed so long in this step, or all that it has to.
  bool has_computed(double seconds) const { return progress_.load() >= place_of(seconds); }
  // Until then.
  void wait_until_computed(double seconds) {
    for (;;) {
      const std::uint32_t seen = reached_.load();
      awaited_.store(place_of(seconds));
      if (has_computed(seconds)) return;
      reached_.wait(seen);
    }
  }

 private:
  static constexpr std::uint64_t kStep = std::uint64_t{1} << 42;  // more ns than a step computes

  std::uint64_t place_of(double seconds) const { return place_of(steps_.load(), seconds); }
  static std::uint64_t place_of(std::uint32_t step, double seconds) {
    return step * kStep + std::min(kStep - 1, static_cast<std::uint64_t>(seconds * 1e9));
  }
  void run() {
    for (std::uint32_t step = 0; !stop_.load();) {
      const double begin = cpu_seconds();
      for (double done = 0; step == steps_.load() && (seconds_ == 0 || done < seconds_);) {
        compute_a_little();
        done = cpu_seconds() - begin;
        come_to(place_of(step, done));
      }
      come_to(step * kStep + (kStep - 1));
      steps_.wait(step);
      step = steps_.load();
    }
  }
  void come_to(std::uint64_t place) {
    progress_.store(place);
    if (place < awaited_.load()) return;
    awaited_.store(UINT64_MAX);
    reached_.fetch_add(1);
    reached_.notify_one();
  }

  const double seconds_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint32_t> steps_{0};
  std::atomic<std::uint32_t> reached_{0};           // counts
  std::atomic<std::uint64_t> progress_{0};          // of all steps
  std::atomic<std::uint64_t> awaited_{UINT64_MAX};  // a progress
  std::thread thread_;
};

double seconds_of(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }
std::int64_t ns_of(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

// One backend in this launch: its groups, and the buffers of each slot of the plan.
struct ReplayBackend {
  std::string name;
  std::string code, reason;          // why it is not run; empty: it is
  std::vector<ProcessGroup> groups;  // as in ReplayPlan::groups
  std::vector<std::unique_ptr<Arena>> arenas;
  std::deque<Buffers> buffers;  // by slot
  bool is_alive() const { return code.empty(); }
};

// What `body` throws, or empty.
std::string problem_of(const std::function<void()>& body) {
  try {
    body();
    return "";
  } catch (const std::exception& error) {
    return *error.what() == '\0' ? "unknown error" : error.what();
  }
}

// Runs the plan once on one backend, as this rank.
class Pass {
 public:
  Pass(const ReplayPlan& plan, Meeting& meeting, const ReplayOptions& options,
       ReplayBackend& backend)
      : plan_(plan),
        meeting_(meeting),
        rank_(static_cast<std::size_t>(meeting.rank())),
        compute_(options.compute),
        compute_seconds_(options.compute_seconds),
        backend_(backend),
        works_(plan.ops.size()),
        spans_(plan.ops.size()) {}

  // Returns what failed, or empty. A rank whose backend failed still waits for the others.
  std::string run() {
    std::string failure;
    if (compute_ == Compute::beside) beside_.emplace(compute_seconds_);
    for (std::size_t i = 0; i < plan_.ops.size(); ++i) {
      if (i % plan_.ops_per_step == 0) begin_step();
      if (failure.empty()) failure = problem_of([&] { step_to(i); });
    }
    if (failure.empty()) failure = problem_of([&] { join_all(); });
    beside_.reset();
    for (std::optional<Work>& work : works_) work.reset();  // waits
    return failure;
  }
  // By op, seconds, as ReplayOp::spans of this rank.
  std::vector<Span> spans() const {
    std::vector<Span> spans(spans_.size(), kAbsent);
    std::map<std::uint64_t, Span> sent;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      const ReplayOp& op = plan_.ops[i];
      if (takes_part(op, rank_)) spans[i] = spans_[i];
      if (op.as_case.end && op.as_case.end->sends) sent[op.message] = spans[i];
    }
    for (std::size_t i = 0; i < spans.size(); ++i)
      if (const auto& end = plan_.ops[i].as_case.end; end && end->from == static_cast<int>(rank_))
        spans[i] = sent.at(plan_.ops[i].message);
    return spans;
  }

 private:
  // Each on a CPU of its own: ranks that come to share one while others are busy would stay there
  // for seconds, and then each op takes a time slice.
  void begin_step() {
    meeting_.meet(INT64_MAX);
    step_begin_ = Meeting::now();
    if (beside_) beside_->begin_step();
  }
  void step_to(std::size_t i) {
    const ReplayOp& op = plan_.ops[i];
    join_before(i);
    if (!takes_part(op, rank_)) return;
    const std::int64_t free = Meeting::now();
    Buffers& buffers = backend_.buffers[op.slot];
    buffers.refresh(true);  // as a computation writes what the op will read
    if (compute_ != Compute::none) pause_before(i, free);
    ProcessGroup& group = backend_.groups[op.group];
    spans_[i].start = seconds_of(Meeting::now());
    for (const Op& call : buffers.ops()) {
      if (op.joined_before) {
        works_[i].emplace(group.async().submit(call));
        in_flight_.push_back(i);
      } else {
        group.submit(call);
      }
    }
    if (!op.joined_before) spans_[i].end = seconds_of(Meeting::now());
  }
  // The rank has been free since then. What the program did with the data before it called the op,
  // as the trainers divide gradients, is the caller's work.
  void pause_before(std::size_t i, std::int64_t free) {
    const ReplayOp& op = plan_.ops[i];
    const std::optional<Due>& due = op.due[rank_];
    if (!due) return wait_until(free + ns_of(op.gaps[rank_]));
    std::int64_t ready = step_begin_ + ns_of(due->at);
    if (beside_ && compute_seconds_ > 0)
      ready = wait_until_computed(*computed_before(plan_, i, rank_, compute_seconds_));
    else
      wait_until(ready);
    const std::int64_t start = std::max(free, ready) + ns_of(due->late);
    while (Meeting::now() < start) compute_a_little();
  }
  void wait_until(std::int64_t until) {
    while (Meeting::now() < until) {
      if (compute_ == Compute::gaps)
        compute_a_little();
      else
        sleep_until(until);
      note_ended();
    }
  }
  // Returns the end of the wait; 0 without one.
  std::int64_t wait_until_computed(double seconds) {
    if (beside_->has_computed(seconds)) return 0;
    while (!in_flight_.empty() && !beside_->has_computed(seconds)) {
      sleep_until(INT64_MAX);
      note_ended();
    }
    beside_->wait_until_computed(seconds);
    return Meeting::now();
  }
  // Or until it is time to look for ops that have ended.
  void sleep_until(std::int64_t until) const {
    const std::int64_t next = in_flight_.empty() ? until : std::min(until, Meeting::now() + 50'000);
    const timespec at{static_cast<time_t>(next / 1'000'000'000),
                      static_cast<long>(next % 1'000'000'000)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);
  }
  // An op that ends while the rank computes has its end when that is seen.
  void note_ended() {
    for (const std::size_t i : in_flight_)
      if (spans_[i].end == 0 && works_[i]->done()) spans_[i].end = seconds_of(Meeting::now());
  }
  void join(std::size_t i) {
    works_[i]->wait();
    if (spans_[i].end == 0) spans_[i].end = seconds_of(Meeting::now());
    works_[i].reset();
  }
  void join_before(std::size_t i) {
    std::erase_if(in_flight_, [&](std::size_t earlier) {
      if (*plan_.ops[earlier].joined_before > i) return false;
      join(earlier);
      return true;
    });
  }
  void join_all() {
    for (const std::size_t i : in_flight_) join(i);
    in_flight_.clear();
  }

  const ReplayPlan& plan_;
  Meeting& meeting_;
  const std::size_t rank_;
  const Compute compute_;
  const double compute_seconds_;
  std::optional<ComputingThread> beside_;
  ReplayBackend& backend_;
  std::vector<std::optional<Work>> works_;
  std::vector<std::size_t> in_flight_;
  std::vector<Span> spans_;
  std::int64_t step_begin_ = 0;
};

// What the turns of one launch have in common.
class Replay {
 public:
  Replay(const ReplayPlan& plan, const ReplayOptions& options, const Sink& sink)
      : plan_(plan),
        options_(options),
        control_(options.token_path, options.timeout),
        sink_(control_.rank() == 0 ? sink : [](const Json&) {}) {
    if (control_.size() != plan.ranks)
      throw InvalidArgument(
          fmt::format("{} ranks were started for a record of {}", control_.size(), plan.ranks));
    if (control_.meeting().is_between_hosts())
      throw InvalidArgument("replay compares clocks: start its ranks on one host");
  }

  int run() {
    watchdog_.expect("making groups", options_.timeout * 3 + 60);
    std::deque<ReplayBackend> backends;
    for (const std::string& name : options_.backends) open(backends.emplace_back(), name);
    for (ReplayBackend& backend : backends) check(backend);
    for (int block = 0; block < options_.blocks; ++block) {
      const auto order =
          block_order(backends.size(), true, options_.seed, options_.launch, 0, block);
      for (std::size_t at = 0; at < order.size(); ++at)
        take_turn(backends[order[at]], block, static_cast<int>(at));
    }
    watchdog_.expect("leaving groups", options_.timeout * 3 + 60);
    for (ReplayBackend& backend : backends) {
      backend.buffers.clear();
      if (backend.is_alive()) backend.arenas.clear();
      for (auto group = backend.groups.rbegin(); group != backend.groups.rend(); ++group)
        if (backend.is_alive()) group->shutdown(std::chrono::seconds(10));
    }
    control_.meeting().barrier();
    control_.group().shutdown();
    return wrong_ ? 3 : failures_ > 0 ? 1 : 0;
  }

 private:
  // Collective: leaves the backend out where any rank has a problem.
  bool drop_if(ReplayBackend& backend, const char* code, const std::string& problem) {
    if (!control_.any(!problem.empty())) return false;
    const std::string key = fmt::format("replay/{}", dropped_++);
    if (!problem.empty())
      control_.store().append(key, fmt::format("[rank {}: {}] ", control_.rank(), problem));
    control_.meeting().barrier();
    backend.code = code;
    backend.reason = control_.store().try_get(key).value_or("");
    if (backend.code == "failed") ++failures_;
    Json skip = {{"v", 1}, {"t", "skip"}, {"op", "replay"}, {"bytes", 0}};
    for (const char* name : {"dtype", "redop", "root"}) skip[name] = nullptr;
    skip["place"] = to_string(options_.place);
    skip["backend"] = backend.name;
    skip["code"] = backend.code;
    skip["reason"] = backend.reason;
    sink_(skip);
    return true;
  }

  void open(ReplayBackend& backend, const std::string& name) {
    backend.name = name;
    SubjectContext context;
    context.control = &control_.group();
    context.token = control_.token();
    context.timeout = duration_of(options_.timeout);
    context.prefix = "replay/" + name;
    const auto make_groups = [&] {
      backend.groups.push_back(open_group(name, context));
      std::vector<int> all(static_cast<std::size_t>(control_.size()));
      std::iota(all.begin(), all.end(), 0);
      for (std::size_t i = 1; i < plan_.groups.size(); ++i)
        backend.groups.push_back(backend.groups[0].new_group(all, fmt::format("{}/{}", name, i)));
    };
    if (drop_if(backend, "unavailable", problem_of(make_groups))) return;
    if (drop_if(backend, "unsupported", unsupported(backend.groups[0]))) return;
    drop_if(backend, "failed", problem_of([&] { make_buffers(backend); }));
  }

  std::string unsupported(const ProcessGroup& group) const {
    for (const Case& c : plan_.slots) {
      const Support support =
          group.supports({.op = facts_of(c.op).kind, .dtype = c.dtype, .reduce_op = c.redop});
      if (!support) return fmt::format("{}: {}", facts_of(c.op).name, support.reason);
    }
    return "";
  }

  void make_buffers(ReplayBackend& backend) {
    const auto arena = [&](std::uint64_t bytes, bool registered) -> Arena& {
      if (registered)
        backend.arenas.push_back(std::make_unique<Arena>(
            backend.groups[0].allocate<std::uint8_t>(std::max<std::uint64_t>(bytes, 1))));
      else
        backend.arenas.push_back(std::make_unique<Arena>(bytes));
      return *backend.arenas.back();
    };
    for (const Case& c : plan_.slots) {
      const Footprint bytes = memory_of(c, control_.size(), 1);
      // In place the input is only a copy of what the op will read.
      Arena& input = arena(bytes.input, options_.heap && c.place == Place::out);
      Arena& output = arena(bytes.output, options_.heap);
      backend.buffers.emplace_back(c, control_.rank(), control_.size(), 1, options_.seed, input,
                                   output);
    }
  }

  // Each slot once into a poisoned output: its result against the oracle, bit for bit, and the same
  // on every rank where it must be.
  void check(ReplayBackend& backend) {
    if (!backend.is_alive()) return;
    watchdog_.expect(backend.name + ": check",
                     replay_seconds(plan_, Compute::none) * 3 + options_.timeout * 3 + 60);
    std::uint64_t wrong = 0, hash = 0, common = 0;
    const std::string problem = problem_of([&] {
      std::vector<Work> messages;  // none waits for its other end
      for (Buffers& buffers : backend.buffers) {
        buffers.poison_output();
        for (const Op& call : buffers.ops())
          if (buffers.of().end)
            messages.push_back(backend.groups[0].async().submit(call));
          else
            backend.groups[0].submit(call);
      }
      for (Work& message : messages) message.wait();
      for (const Buffers& buffers : backend.buffers) {
        wrong += buffers.wrong();
        hash = hash * 31 + buffers.hash();
        if (buffers.same_everywhere()) common = common * 31 + buffers.hash();
      }
    });
    if (drop_if(backend, "failed", problem)) return;
    Meeting& meeting = control_.meeting();
    const std::int64_t mine = static_cast<std::int64_t>(common);
    const bool differ = control_.any(meeting.from_root(mine) != mine);
    const auto salted = hash * (2 * static_cast<std::uint64_t>(control_.rank()) + 1);
    hashes_[backend.name] =
        static_cast<std::uint64_t>(meeting.sum(static_cast<std::int64_t>(salted)));
    count_wrong(backend, wrong + (differ ? 1 : 0));
  }

  void count_wrong(const ReplayBackend& backend, std::uint64_t here) {
    const auto all =
        static_cast<std::uint64_t>(control_.meeting().sum(static_cast<std::int64_t>(here)));
    wrong_elements_[backend.name] += all;
    wrong_ = wrong_ || all > 0;
  }

  void take_turn(ReplayBackend& backend, int block, int order) {
    if (!backend.is_alive()) return;
    watchdog_.expect(fmt::format("{}: {} steps", backend.name, plan_.steps()),
                     replay_seconds(plan_, options_.compute) * 10 + options_.timeout * 3 + 60);
    Pass pass(plan_, control_.meeting(), options_, backend);
    if (drop_if(backend, "failed", pass.run())) return;
    std::uint64_t wrong = 0;
    for (const Buffers& buffers : backend.buffers) wrong += buffers.wrong();
    count_wrong(backend, wrong);
    report(backend, pass.spans(), block, order);
  }

  void report(const ReplayBackend& backend, const std::vector<Span>& mine, int block, int order) {
    std::vector<double> sent, all(2 * mine.size() * static_cast<std::size_t>(control_.size()));
    for (const Span& span : mine) sent.insert(sent.end(), {span.start, span.end});
    control_.group().all_gather(all, sent);
    if (control_.rank() != 0) return;
    std::vector<std::vector<Span>> spans(mine.size());
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(control_.size()); ++rank)
      for (std::size_t i = 0; i < mine.size(); ++i) {
        const std::size_t at = 2 * (rank * mine.size() + i);
        spans[i].push_back({all[at], all[at + 1]});
      }
    Json line = turn_json(plan_, spans);
    line["backend"] = backend.name;
    line["launch"] = options_.launch;
    line["block"] = block;
    line["order"] = order;
    line["wrong"] = std::exchange(wrong_elements_[backend.name], 0);
    const std::uint64_t hash = hashes_[backend.name];
    line["hash"] = fmt::format("{:08x}", static_cast<std::uint32_t>(hash ^ hash >> 32));
    sink_(line);
  }

  const ReplayPlan& plan_;
  const ReplayOptions& options_;
  Watchdog watchdog_;
  ControlGroup control_;
  const Sink sink_;
  int dropped_ = 0;
  int failures_ = 0;
  bool wrong_ = false;
  std::map<std::string, std::uint64_t> hashes_, wrong_elements_;  // by backend
};

}  // namespace

std::uint64_t replay_bytes(const ReplayPlan& plan) {
  constexpr std::uint64_t kTooMany = std::uint64_t{1} << 48;  // whatever the machine
  std::uint64_t bytes = 0;
  for (const Case& c : plan.slots)
    bytes = std::min(kTooMany, bytes + memory_of(c, plan.ranks, 1).sum());
  return bytes;
}

double replay_seconds(const ReplayPlan& plan, Compute compute) {
  double seconds = 0;
  for (const ReplayOp& op : plan.ops) {
    const Span common = common_span(op.spans);
    seconds += common.end - common.start;
    if (compute != Compute::none) seconds += *std::max_element(op.gaps.begin(), op.gaps.end());
  }
  return seconds;
}

Json turn_json(const ReplayPlan& plan, std::span<const std::vector<Span>> spans) {
  const Quantiles step = quantiles(communication_by_step(plan, spans));
  Json line = {{"v", 1}, {"t", "replay"}, {"steps", plan.steps()}};
  line["comm_us"] = {{"min", step.min * 1e6},
                     {"p50", step.p50 * 1e6},
                     {"p90", step.p90 * 1e6},
                     {"max", step.max * 1e6}};
  Json ops = Json::array();
  for (std::size_t i = 0; i < plan.ops_per_step; ++i) {
    std::vector<double> seconds;
    for (std::size_t at = i; at < spans.size(); at += plan.ops_per_step) {
      const Span common = common_span(spans[at]);
      seconds.push_back(common.end - common.start);
    }
    ops.push_back(median(std::move(seconds)) * 1e6);
  }
  line["ops_us"] = std::move(ops);
  return line;
}

int run_replay_rank(const ReplayPlan& plan, const ReplayOptions& options, const Sink& sink) {
  return exit_code_of([&] { return Replay(plan, options, sink).run(); });
}

}  // namespace c10d::bench
