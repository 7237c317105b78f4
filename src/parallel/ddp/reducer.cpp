// SPDX-License-Identifier: BSD-3-Clause
// The caller marks gradients, a thread of the reducer's own reduces the buckets. They wait for each
// other in StepProgress; everything else has one side at a time.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>
#include <optional>

#include "c10d/parallel/ddp.h"
#include "c10d/parallel/reproducible.h"
#include "src/parallel/common/consistency.h"
#include "src/parallel/common/merge_plan.h"
#include "src/parallel/common/serial_executor.h"
#include "src/parallel/common/throw_invalid.h"
#include "src/parallel/ddp/buckets.h"
#include "src/parallel/ddp/step_progress.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

constexpr std::size_t kNamed = 12;  // parameters that a message lists

void reduce_plainly(const ProcessGroup& group, const Bucket& bucket) {
  group.all_reduce(bucket.gradient, {.ready_at = bucket.ready_at});
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
ProcessGroup own_group(const ProcessGroup& group, std::span<const ParamSpec> params,
                       const ReducerOptions& options) {
  agree_on_parameters(group, "Reducer", params, text_of(options), problem_of(params, options));
  return duplicate_group(group, "reducer");
}

}  // namespace

struct Reducer::State {
  enum class Phase : std::uint8_t {
    between_steps,
    accumulating,  // in a step under a NoSync: nothing is reduced
    reducing,      // in a step that the reducer's thread has got
  };
  enum class Order : std::uint8_t {
    expected,  // the reverse of the list
    known,     // that of the first reduced step, on this rank
    agreed,    // that of rank 0, on all
  };

  State(const ProcessGroup& group, std::vector<ParamSpec> params, ReducerOptions options);
  ~State();

  void begin(std::int64_t more_samples);
  void rebuild();
  void mark(std::size_t param, bool zero) noexcept;
  StepResult finish(const BucketCallback& use);
  void mark_rest_as_zero();
  void check_complete();
  void deliver_buckets(const BucketCallback& use);

  // Any thread. The first failure stays. The others learn it from the reducer's group.
  void fail(std::exception_ptr cause, std::string_view why, bool is_own_mistake = false);
  // As fail(), for other failures than those of communication: aborts the caller's group as well.
  void fail_everywhere(std::exception_ptr cause, std::string_view why, bool is_own_mistake = false);
  void misuse(const std::string& text);           // this rank's own mistake
  void guard(const std::function<void()>& work);  // what it throws fails the step

  // The reducer's thread.
  void reduce_all();
  void reduce_bucket(std::size_t index, Deadline ready_at);

  bool in_step() const { return phase != Phase::between_steps; }
  std::string where() const { return fmt::format("rank {} in step {}", user_group.rank(), step); }

  const ProcessGroup user_group;
  const std::vector<ParamSpec> params;
  const ReducerOptions options;
  ProcessGroup group;
  std::optional<TreeSum> tree;  // reproducible only
  std::vector<MergeStep> plan;  // of this rank's shards; fast: of one
  std::optional<Buckets> buckets;
  BucketHook hook = reduce_plainly;
  BucketCallback done_callback = [](const Bucket&) {};
  bool accumulate = false;  // a NoSync lives

  Phase phase = Phase::between_steps;
  Order order = Order::expected;  // of the buckets
  bool continues = false;         // the views hold the sums of steps under a NoSync
  std::int64_t step = 0;
  std::int64_t own_samples = 0;  // of this step
  std::int64_t samples = 0;      // of this rank, with those under a NoSync; then of all
  std::uint64_t job = 0;         // the last one of the reducer's thread

  std::optional<StepProgress> progress;
  SerialExecutor thread;  // last: it uses all of the above
};

Reducer::State::State(const ProcessGroup& group_, std::vector<ParamSpec> params_,
                      ReducerOptions options_)
    : user_group(group_),
      params(std::move(params_)),
      options(options_),
      group(own_group(group_, params, options_)),
      plan(merge_plan(1, {0, 1})) {
  if (options.mode == ReduceMode::reproducible) {
    tree.emplace(group, options.shards);
    plan = merge_plan(options.shards, tree->owned());
  }
  std::vector<std::size_t> reversed(params.size());
  std::iota(reversed.rbegin(), reversed.rend(), std::size_t{0});
  buckets.emplace(group, params, std::move(reversed), options);
  progress.emplace(params.size(), plan.size());
}

Reducer::State::~State() {
  if (!in_step() || progress->has_failed()) return;
  const std::string text =
      fmt::format("the reducer of {} was destroyed before finish(), by an exception?", where());
  fail(std::make_exception_ptr(InvalidArgument(text)), text);
}

void Reducer::State::fail(std::exception_ptr cause, std::string_view why, bool is_own_mistake) {
  progress->fail(std::move(cause), is_own_mistake);
  group.abort(why);
}

void Reducer::State::fail_everywhere(std::exception_ptr cause, std::string_view why,
                                     bool is_own_mistake) {
  fail(std::move(cause), why, is_own_mistake);
  user_group.abort(why);
}

void Reducer::State::misuse(const std::string& text) {
  fail_everywhere(std::make_exception_ptr(InvalidArgument(text)), text, true);
}

void Reducer::State::guard(const std::function<void()>& work) try {
  work();
} catch (const DistError& error) {
  fail(std::current_exception(), error.what());
} catch (const std::exception& error) {
  fail_everywhere(std::current_exception(), error.what());
} catch (...) {
  fail_everywhere(std::current_exception(), "a hook threw something other than a std::exception");
}

void Reducer::State::begin(std::int64_t more_samples) {
  progress->rethrow_failure();
  if (in_step())
    misuse(fmt::format("Reducer: begin_step() on {}, before finish()", where()));
  else if (more_samples < 0)
    misuse(fmt::format("Reducer: begin_step() with {} samples on {}", more_samples, where()));
  progress->rethrow_failure();
  if (order == Order::known) rebuild();
  ++step;
  own_samples = more_samples;
  samples = (continues ? samples : 0) + more_samples;
  std::vector<std::size_t> pending;
  for (std::size_t bucket = 0; bucket < buckets->size(); ++bucket)
    pending.push_back(plan.empty() ? 0 : buckets->bucket(bucket).params.size());
  progress->begin(std::move(pending));
  phase = accumulate ? Phase::accumulating : Phase::reducing;
  if (accumulate) return;
  try {
    job = thread.submit([this] { guard([this] { reduce_all(); }); });
  } catch (...) {
    phase = Phase::between_steps;  // nobody reduces
    throw;
  }
}

// Once, when the order of the first step is known: all ranks take that of rank 0.
void Reducer::State::rebuild() {
  try {
    const std::vector<std::size_t> ready = progress->ready_order();
    const auto& own = ready.size() == params.size() ? ready : buckets->order();
    std::vector<std::int64_t> wire(own.begin(), own.end());
    group.broadcast(wire, 0);
    const std::vector<std::size_t> agreed(wire.begin(), wire.end());
    if (agreed != buckets->order()) buckets->reorder(agreed);
    order = Order::agreed;
  } catch (const std::exception& error) {
    fail(std::current_exception(), error.what());
    throw;
  }
}

void Reducer::State::mark(std::size_t param, bool zero) noexcept try {
  const char* problem = nullptr;
  if (param >= params.size())
    problem = "does not exist";
  else if (!in_step())
    problem = "was marked ready outside of begin_step() and finish()";
  else if (progress->shards_done(param) == plan.size())
    problem = "was marked ready too often";
  if (problem != nullptr)
    return misuse(
        fmt::format("Reducer: parameter {} ({}) {} on {}; each of {} parameters is marked once, "
                    "in one backward, for each of {} shards. Backwards of micro-batches are steps "
                    "under no_sync()",
                    param, param < params.size() ? params[param].name : "?", problem, where(),
                    params.size(), plan.size()));
  const MergeStep step_of_plan = plan[progress->shards_done(param)];
  const auto values = [&](int slot) {
    return View(buckets->gradient(param, slot).data(), params[param].count(), params[param].dtype);
  };
  if (zero && !continues && params[param].bytes() != 0)
    std::memset(values(step_of_plan.slot).data, 0, params[param].bytes());
  merge(step_of_plan, values);
  progress->add_shard(param, buckets->place(param).bucket);
} catch (...) {
  fail_everywhere(std::current_exception(), "a gradient could not be marked ready");
}

void Reducer::State::mark_rest_as_zero() {
  for (std::size_t param = 0; param < params.size(); ++param)
    for (std::size_t shard = progress->shards_done(param); shard < plan.size(); ++shard)
      mark(param, true);
}

void Reducer::State::check_complete() {
  const std::vector<std::size_t> missing = progress->missing();
  if (missing.empty()) return;
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < std::min(missing.size(), kNamed); ++i)
    names.push_back(params[missing[i]].name);
  misuse(fmt::format(
      "Reducer: parameters without a gradient on {}: {}{}; each needs one backward, or "
      "mark_ready(), for each of {} shards. If they are not used: find_unused_parameters, or "
      "mark_unused()",
      where(), fmt::join(names, ", "),
      missing.size() > kNamed ? fmt::format(" and {} more", missing.size() - kNamed) : "",
      plan.size()));
}

StepResult Reducer::State::finish(const BucketCallback& use) {
  if (!in_step()) {
    progress->rethrow_failure();  // of the begin_step() before
    misuse(fmt::format("Reducer: finish() without begin_step() on {}", where()));
    progress->rethrow_failure();
  }
  if (accumulate != (phase == Phase::accumulating))
    misuse(fmt::format("Reducer: no_sync() began or ended between begin_step() and finish() on {}",
                       where()));
  if (own_samples == 0) mark_rest_as_zero();
  check_complete();
  if (use && phase == Phase::reducing) deliver_buckets(use);
  thread.wait(job);
  progress->rethrow_failure();
  continues = phase == Phase::accumulating;
  if (!continues && order == Order::expected) order = Order::known;
  phase = Phase::between_steps;
  return {samples};
}

void Reducer::State::deliver_buckets(const BucketCallback& use) {
  for (std::size_t index = 0; index < buckets->size(); ++index) {
    if (!progress->wait_until_reduced(index)) return;
    guard([&] { use(buckets->bucket(index, static_cast<double>(samples))); });
  }
}

void Reducer::State::reduce_all() {
  std::vector<std::int64_t> total{samples, step, step * step};
  group.all_reduce(total);
  if (group.size() * total[2] != total[1] * total[1])  // not all steps are equal
    throw InvalidArgument(fmt::format(
        "Reducer: ranks reduce different steps, {} among them: each must have the same steps under "
        "no_sync()",
        where()));
  samples = total[0];
  for (std::size_t index = 0; index < buckets->size(); ++index) {
    const auto ready_at = progress->wait_until_ready(index);
    if (!ready_at) return;
    reduce_bucket(index, *ready_at);
    progress->add_reduced_bucket();
  }
}

void Reducer::State::reduce_bucket(std::size_t index, Deadline ready_at) {
  Bucket bucket = buckets->bucket(index, static_cast<double>(samples));
  bucket.ready_at = ready_at;
  if (samples == 0) {
    if (bucket.gradient.count != 0) std::memset(bucket.gradient.data, 0, bucket.gradient.bytes());
  } else if (tree) {
    std::vector<ConstView> partials;
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

Reducer::Reducer(const ProcessGroup& group, std::vector<ParamSpec> params, ReducerOptions options)
    : state_(std::make_unique<State>(group, std::move(params), options)) {}
Reducer::~Reducer() = default;

void Reducer::begin_step(StepInfo info) { state_->begin(info.samples); }

std::span<std::byte> Reducer::grad_view(std::size_t param) {
  State& state = *state_;
  if (param >= state.params.size())
    throw_invalid("Reducer: parameter {} does not exist; there are {}", param, state.params.size());
  const std::size_t shard = state.progress->shards_done(param);
  const bool writes = state.in_step() && shard < state.plan.size();
  return state.buckets->gradient(param, writes ? state.plan[shard].slot : 0);
}

std::span<std::byte> Reducer::grad_view(std::size_t param, DType dtype) {
  const std::span<std::byte> view = grad_view(param);  // checks that it exists
  const ParamSpec& spec = state_->params[param];
  if (spec.dtype != dtype)
    throw_invalid("Reducer: the gradient of {} is {}, not {}", spec.name, to_string(spec.dtype),
                  to_string(dtype));
  return view;
}

void Reducer::mark_ready(std::size_t param) noexcept { state_->mark(param, false); }
void Reducer::mark_unused(std::size_t param) noexcept { state_->mark(param, true); }
StepResult Reducer::finish(const BucketCallback& use) { return state_->finish(use); }

Reducer::NoSync::NoSync(Reducer& reducer) noexcept : reducer_(reducer) {
  reducer_.state_->accumulate = true;
}
Reducer::NoSync::~NoSync() { reducer_.state_->accumulate = false; }

Reducer::NoSync Reducer::no_sync() {
  if (state_->tree)
    throw InvalidArgument("Reducer: no_sync() in mode reproducible; use more shards instead");
  return NoSync(*this);
}

void Reducer::set_hook(BucketHook hook) {
  if (state_->tree)
    throw InvalidArgument(
        "Reducer: set_hook() in mode reproducible, whose bits a hook would change");
  state_->hook = std::move(hook);
}

void Reducer::on_bucket_done(BucketCallback callback) {
  state_->done_callback = std::move(callback);
}

}}}  // namespace c10d::v0::parallel
