// SPDX-License-Identifier: BSD-3-Clause
// The caller marks gradients, a thread of the reducer's own reduces the buckets. They meet in
// State, under its mutex; gradients are read and written without it, by one side at a time.
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "c10d/parallel/ddp.h"
#include "c10d/parallel/reproducible.h"
#include "src/parallel/common/consistency.h"
#include "src/parallel/common/merge_plan.h"
#include "src/parallel/ddp/buckets.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

constexpr std::size_t kNamed = 12;  // parameters that a message lists

void reduce_plainly(ProcessGroup& group, const Bucket& bucket) {
  group.all_reduce(bucket.gradient);
  divide(bucket.gradient, bucket.samples);
}

std::string problem_of(std::span<const ParamSpec> params, const ReducerOptions& options) {
  if (options.first_bucket_bytes == 0 || options.bucket_bytes == 0)
    return "Reducer: a bucket of 0 bytes";
  if (options.mode > ReduceMode::reproducible)
    return "Reducer: this mode does not exist; there are fast and reproducible";
  const bool steps = options.mode == ReduceMode::reproducible;
  if (steps && (options.shards < 1 || options.shards > 65536))
    return fmt::format("Reducer: {} shards; give 1 to 65536", options.shards);
  for (const ParamSpec& spec : params) {
    const bool exact = spec.dtype == DType::f32 || spec.dtype == DType::f64;
    const bool half = spec.dtype == DType::f16 || spec.dtype == DType::bf16;
    if (exact || (half && !steps)) continue;
    return fmt::format(
        "Reducer: the gradient of {} is {}; {}", spec.name, to_string(spec.dtype),
        steps ? "reproducible sums are f32 or f64" : "gradients are f16, bf16, f32 or f64");
  }
  return {};
}

std::string text_of(const ReducerOptions& options) {
  const bool steps = options.mode == ReduceMode::reproducible;
  return fmt::format("{}, buckets of {} and {} bytes{}",
                     steps ? fmt::format("reproducible over {} shards", options.shards) : "fast",
                     options.first_bucket_bytes,
                     options.bucket_bytes ? fmt::format("{}", *options.bucket_bytes) : "the usual",
                     options.check_hash ? ", check_hash" : "");
}

// Agrees first: a group is made only where all want the same.
ProcessGroup own_group(ProcessGroup& group, std::span<const ParamSpec> params,
                       const ReducerOptions& options) {
  agree_on_parameters(group, "Reducer", params, text_of(options), problem_of(params, options));
  return duplicate_group(group, "reducer");
}

}  // namespace

struct Reducer::State {
  State(ProcessGroup& group, std::vector<ParamSpec> params, ReducerOptions options);
  ~State();

  void begin(std::int64_t samples);
  void rebuild();
  void mark(std::size_t param, bool zero) noexcept;
  StepResult finish(const BucketCallback& use);
  void deliver_buckets(const BucketCallback& use);
  std::string missing() const;

  // Any thread. The first failure stays. The others learn it from the reducer's group.
  void fail(std::exception_ptr cause, std::string_view why);
  // As fail, for what is no failure of communication: the caller's group must not go on either.
  void fail_everywhere(std::exception_ptr cause, std::string_view why);
  void misuse(const std::string& text);           // this rank's own mistake
  void guard(const std::function<void()>& work);  // what it throws fails the step
  void rethrow_failure() const;

  // The reducer's thread.
  void serve();
  void reduce_all();
  void reduce_bucket(std::size_t index);
  bool wait_for_bucket(std::size_t index);

  std::string where() const { return fmt::format("rank {} in step {}", user_group.rank(), step); }

  ProcessGroup& user_group;
  const std::vector<ParamSpec> params;
  const ReducerOptions options;
  ProcessGroup group;
  const bool reproducible;
  std::optional<TreeSum> tree;  // reproducible only
  std::vector<MergeStep> plan;  // of this rank's shards; fast: of one
  std::optional<Buckets> buckets;
  BucketHook hook = reduce_plainly;
  BucketCallback done_callback = [](const Bucket&) {};
  bool accumulate = false;        // a NoSync lives
  bool accumulated = false;       // a step ended under one
  bool step_accumulates = false;  // the step that runs began under one

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::int64_t step = 0;
  std::int64_t reduced_steps = 0;  // those that were not under a NoSync
  bool in_step = false;
  bool empty = false;  // this rank has no samples in this step
  bool quits = false;
  bool reducing = false;  // the reducer's thread has a step
  bool failed = false;
  std::exception_ptr failure;
  std::string own_mistake;
  std::int64_t samples = 0;              // of this rank; after the step, of all
  std::vector<std::size_t> shards_done;  // by parameter
  std::vector<std::size_t> pending;      // by bucket: parameters that are not ready
  std::size_t reduced = 0;               // buckets
  std::vector<std::size_t> ready_order;
  bool wants_rebuild = false;

  std::thread thread;
};

Reducer::State::State(ProcessGroup& group_, std::vector<ParamSpec> params_, ReducerOptions options_)
    : user_group(group_),
      params(std::move(params_)),
      options(options_),
      group(own_group(group_, params, options_)),
      reproducible(options_.mode == ReduceMode::reproducible),
      plan(merge_plan(1, {0, 1})),
      shards_done(params.size()) {
  ready_order.reserve(params.size());
  if (reproducible) {
    tree.emplace(group, options.shards);
    plan = merge_plan(options.shards, tree->owned());
  }
  std::vector<std::size_t> order(params.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  buckets.emplace(group, params, std::move(order), options);
  thread = std::thread([this] { serve(); });
}

Reducer::State::~State() {
  {
    const std::lock_guard lock(mutex);
    quits = true;
    if (in_step && !failed)
      group.abort(fmt::format("the reducer of {} was destroyed before finish()", where()));
    failed = true;
  }
  changed.notify_all();
  thread.join();
}

void Reducer::State::fail(std::exception_ptr cause, std::string_view why) {
  {
    const std::lock_guard lock(mutex);
    if (!failure) failure = std::move(cause);
    failed = true;
  }
  group.abort(why);
  changed.notify_all();
}

void Reducer::State::fail_everywhere(std::exception_ptr cause, std::string_view why) {
  fail(std::move(cause), why);
  user_group.abort(why);
}

void Reducer::State::misuse(const std::string& text) {
  {
    const std::lock_guard lock(mutex);
    if (own_mistake.empty()) own_mistake = text;
  }
  fail_everywhere(std::make_exception_ptr(InvalidArgument(text)), text);
}

void Reducer::State::guard(const std::function<void()>& work) try {
  work();
} catch (const DistError& error) {
  fail(std::current_exception(), error.what());
} catch (const std::exception& error) {
  fail_everywhere(std::current_exception(), error.what());
} catch (...) {
  fail_everywhere(std::current_exception(), "a hook threw what is no std::exception");
}

void Reducer::State::rethrow_failure() const {
  const std::lock_guard lock(mutex);
  if (!own_mistake.empty()) throw InvalidArgument(own_mistake);
  if (failure) std::rethrow_exception(failure);
}

void Reducer::State::begin(std::int64_t more) {
  rethrow_failure();
  if (in_step || more < 0)
    misuse(in_step ? fmt::format("Reducer: begin() by {}, which lacks finish()", where())
                   : fmt::format("Reducer: begin() with {} samples by {}", more, where()));
  rethrow_failure();
  if (wants_rebuild && !accumulated) rebuild();
  {
    const std::lock_guard lock(mutex);
    ++step;
    in_step = true;
    empty = more == 0;
    samples = (accumulated ? samples : 0) + more;
    ready_order.clear();
    std::fill(shards_done.begin(), shards_done.end(), 0);
    pending.clear();
    for (std::size_t bucket = 0; bucket < buckets->size(); ++bucket)
      pending.push_back(plan.empty() ? 0 : buckets->bucket(bucket).params.size());
    step_accumulates = accumulate;
    reducing = !accumulate;
    reduced = 0;
  }
  changed.notify_all();
}

// Once, when the order of the first step is known: all ranks take that of rank 0.
void Reducer::State::rebuild() {
  try {
    std::vector<std::int64_t> order(params.size());
    const auto& own = ready_order.size() == params.size() ? ready_order : buckets->order();
    std::copy(own.begin(), own.end(), order.begin());
    group.broadcast(order, 0);
    const std::vector<std::size_t> agreed(order.begin(), order.end());
    if (agreed != buckets->order()) buckets->reorder(agreed);
    wants_rebuild = false;
  } catch (const std::exception& error) {
    fail(std::current_exception(), error.what());
    throw;
  }
}

void Reducer::State::mark(std::size_t param, bool zero) noexcept try {
  const auto name = [&] { return param < params.size() ? params[param].name : "?"; };
  MergeStep merge;
  {
    std::unique_lock lock(mutex);
    const char* problem = nullptr;
    if (param >= params.size())
      problem = "does not exist";
    else if (!in_step)
      problem = "was marked ready outside of begin() and finish()";
    else if (shards_done[param] == plan.size())
      problem = "was marked ready too often";
    if (problem != nullptr) {
      lock.unlock();
      return misuse(
          fmt::format("Reducer: parameter {} ({}) {} on {}; each of {} parameters is "
                      "marked once for each of {} shards",
                      param, name(), problem, where(), params.size(), plan.size()));
    }
    merge = plan[shards_done[param]];
  }
  const auto values = [&](int slot) {
    return Tensor(buckets->gradient(param, slot).data(), params[param].count(),
                  params[param].dtype);
  };
  if (zero && !accumulated && params[param].bytes() != 0)
    std::memset(values(merge.slot).data, 0, params[param].bytes());
  for (int last = merge.slot; last > merge.slot - merge.merges; --last)
    add_to(values(last - 1), values(last));
  const std::lock_guard lock(mutex);
  if (++shards_done[param] != plan.size()) return;
  ready_order.push_back(param);
  if (--pending[buckets->place(param).bucket] == 0) changed.notify_all();
} catch (...) {
  fail_everywhere(std::current_exception(), "a gradient could not be marked ready");
}

std::string Reducer::State::missing() const {
  const std::lock_guard lock(mutex);
  std::string names;
  std::size_t count = 0;
  for (std::size_t param = 0; param < params.size(); ++param) {
    if (shards_done[param] == plan.size()) continue;
    if (++count <= kNamed) names += fmt::format("{}{}", count == 1 ? "" : ", ", params[param].name);
  }
  return count <= kNamed ? names : fmt::format("{} and {} more", names, count - kNamed);
}

StepResult Reducer::State::finish(const BucketCallback& use) {
  if (!in_step) {
    rethrow_failure();  // of the begin() before
    misuse(fmt::format("Reducer: finish() without begin() by {}", where()));
  }
  if (accumulate != step_accumulates)
    misuse(fmt::format("Reducer: no_sync() began or ended between begin() and finish() on {}",
                       where()));
  if (empty)
    for (std::size_t param = 0; param < params.size(); ++param)
      for (std::size_t shard = shards_done[param]; shard < plan.size(); ++shard) mark(param, true);
  if (const std::string names = missing(); !names.empty())
    misuse(
        fmt::format("Reducer: parameters without a gradient on {}: {}; mark them with ready() "
                    "for each of {} shards, or with unused()",
                    where(), names, plan.size()));
  deliver_buckets(use);
  rethrow_failure();
  const std::lock_guard lock(mutex);
  in_step = false;
  wants_rebuild = wants_rebuild || (!step_accumulates && reduced_steps++ == 0);
  accumulated = step_accumulates;
  return {samples};
}

// Until the reducer's thread is through with the step.
void Reducer::State::deliver_buckets(const BucketCallback& use) {
  std::unique_lock lock(mutex);
  for (std::size_t index = 0;; ++index) {
    changed.wait(lock, [&] { return !reducing || (index < reduced && !failed); });
    if (failed || index == reduced) return;
    if (!use) continue;
    const Bucket bucket = buckets->bucket(index, static_cast<double>(samples));
    lock.unlock();
    guard([&] { use(bucket); });
    lock.lock();
  }
}

bool Reducer::State::wait_for_bucket(std::size_t index) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return failed || pending[index] == 0; });
  return !failed;
}

void Reducer::State::reduce_bucket(std::size_t index) {
  const Bucket bucket = buckets->bucket(index, static_cast<double>(samples));
  if (samples == 0) {
    if (bucket.gradient.count != 0) std::memset(bucket.gradient.data, 0, bucket.gradient.bytes());
  } else if (reproducible) {
    std::vector<ConstTensor> partials;
    for (std::size_t i = 0; i < tree->subtrees().size(); ++i)
      partials.push_back(buckets->values(index, static_cast<int>(i)));
    tree->all_reduce(bucket.gradient, partials, bucket.samples, buckets->memory());
  } else {
    hook(group, bucket);
  }
  if (options.check_hash)
    check_same(group, fmt::format("the mean gradients of bucket {}", index),
               {static_cast<const std::byte*>(bucket.gradient.data), bucket.gradient.bytes()});
  done_callback(bucket);
}

void Reducer::State::reduce_all() {
  std::vector<std::int64_t> total{samples};
  group.all_reduce(total);
  {
    const std::lock_guard lock(mutex);
    samples = total[0];
  }
  for (std::size_t index = 0; index < buckets->size(); ++index) {
    if (!wait_for_bucket(index)) return;
    reduce_bucket(index);
    const std::lock_guard lock(mutex);
    ++reduced;
    changed.notify_all();
  }
}

void Reducer::State::serve() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return quits || reducing; });
    if (quits) return;
    lock.unlock();
    guard([&] { reduce_all(); });
    lock.lock();
    reducing = false;
    changed.notify_all();
  }
}

Reducer::Reducer(ProcessGroup& group, std::vector<ParamSpec> params, ReducerOptions options)
    : state_(std::make_unique<State>(group, std::move(params), options)) {}
Reducer::~Reducer() = default;

void Reducer::begin_step(StepInfo info) { state_->begin(info.samples); }

std::span<std::byte> Reducer::grad_view(std::size_t param) {
  State& state = *state_;
  if (param >= state.params.size())
    throw InvalidArgument(fmt::format("Reducer: parameter {} does not exist; there are {}", param,
                                      state.params.size()));
  const std::lock_guard lock(state.mutex);
  const std::size_t shard = state.shards_done[param];
  const bool writes = state.in_step && shard < state.plan.size();
  return state.buckets->gradient(param, writes ? state.plan[shard].slot : 0);
}

void Reducer::mark_ready(std::size_t param) noexcept { state_->mark(param, false); }
void Reducer::mark_unused(std::size_t param) noexcept { state_->mark(param, true); }
StepResult Reducer::finish(const BucketCallback& use) { return state_->finish(use); }

Reducer::NoSync Reducer::no_sync() {
  if (state_->reproducible)
    throw InvalidArgument("Reducer: no_sync() in mode reproducible; use more shards instead");
  return NoSync(state_->accumulate);
}

void Reducer::set_hook(BucketHook hook) {
  if (state_->reproducible)
    throw InvalidArgument("Reducer: a hook in mode reproducible would end its promise");
  state_->hook = std::move(hook);
}

void Reducer::on_bucket_done(BucketCallback callback) {
  state_->done_callback = std::move(callback);
}

}}}  // namespace c10d::v0::parallel
