// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/parallel/fsdp.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "src/parallel/common/consistency.h"
#include "src/parallel/common/merge_plan.h"
#include "src/parallel/common/throw_invalid.h"
#include "src/parallel/fsdp/block_norm.h"
#include "src/parallel/fsdp/counted_memory.h"
#include "src/parallel/fsdp/gradients.h"
#include "src/parallel/fsdp/unit_layout.h"

namespace c10d { inline namespace v0 { namespace parallel {

namespace {

}  // namespace

class Fsdp::Engine {
 public:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  Engine(const ProcessGroup& group, std::vector<Unit> units, const FsdpOptions& options,
         const ProcessGroup& replicas);
  ~Engine();

  struct State {
    State(const Unit& unit, int size) : layout(unit, size) {}
    UnitLayout layout;
    std::size_t first = 0, part = 0;  // of this rank in the arena
    float* master = nullptr;
    float* gradient = nullptr;   // of the part, after the sum: of `leaves`, or `kept`
    float* kept = nullptr;       // where it goes when another unit takes its buffer
    std::byte* arena = nullptr;  // of replicated parameters
    float* leaves = nullptr;     // slots of whole gradients; of a pool when gradients are sharded
    std::size_t slot = kNone;    // gathered, or being gathered
    bool is_in_use = false;
    std::size_t leaves_done = 0;
    bool is_reduced = false;
    std::uint64_t job = 0;  // of its sum
  };

  State& at(const char* call, std::size_t unit);
  const State& at(std::size_t unit) const;
  View unshard(std::size_t unit);
  void reshard(std::size_t unit);
  std::span<float> next_gradient(std::size_t unit);
  void gradient_done(std::size_t unit);
  void reduce(std::size_t unit, double divisor);
  void end_step();
  double global_norm();
  void sync_parameters();
  void assign(std::size_t unit, std::span<const float> arena);

  std::vector<Unit> units_;
  FsdpOptions options_;
  ShardRange owned_;
  CountedMemory memory_;
  std::function<void(std::size_t)> on_reduced_;

 private:
  struct Gathered {
    std::byte* data;
    std::size_t unit = kNone;
    Work work;
  };
  struct GradientBuffer {
    float* data;
    std::size_t unit = kNone;
  };

  void agree();
  void allocate();
  void allocate(State& state, std::size_t slots);
  template <class... Values>
  [[noreturn]] void misuse(fmt::format_string<Values...> format, Values&&... values) const;
  template <class Body>
  void or_abort(const Body& body);
  template <class Check>
  void on_both_groups(const Check& check);
  void abort(const std::string& why) const noexcept;
  void note(std::size_t event, const char* call);
  bool gather(std::size_t unit);
  void prefetch();
  void take_gradient_buffer(const char* call, std::size_t unit);
  void close_step(bool was_training);
  const std::string& name(std::size_t unit) const { return units_[unit].name; }
  void store(std::span<const float> from, std::byte* arena, std::size_t first) const;
  View whole(const State& state, std::byte* arena) const {
    return {arena, state.layout.count(), options_.compute};
  }
  int sets() const { return replicas_ ? replicas_.size() : 1; }
  bool is_scattered() const { return options_.sharding.optimizer == Placement::sharded; }

  const ProcessGroup group_;
  const ProcessGroup replicas_;  // none without hybrid sharding
  std::vector<State> states_;
  std::vector<MergeStep> plan_;
  std::size_t subtrees_ = 1, buffers_taken_ = 0;
  std::vector<Gathered> gathered_;
  std::vector<GradientBuffer> buffers_;
  std::uint64_t last_job_ = 0;
  std::vector<std::uint64_t> order_;  // 2 unit for unshard(), 2 unit + 1 for reduce()
  std::size_t position_ = 0;          // in order_, of the next event
  bool is_recorded_ = false;
  std::optional<GradientSums> sums_;
};

Fsdp::Engine::Engine(const ProcessGroup& group, std::vector<Unit> units, const FsdpOptions& options,
                     const ProcessGroup& replicas)
    : units_(std::move(units)), options_(options), group_(group), replicas_(replicas) {
  agree();
  or_abort([&] { allocate(); });  // the others come to the next line
  sums_.emplace(group, replicas, options, shards_of_group(options, group.size(), sets()));
}

// In the middle of a step others wait for this rank, and gathers still write to this memory.
Fsdp::Engine::~Engine() {
  for (const State& state : states_)
    if (state.is_in_use || state.is_reduced || state.leaves_done > 0)
      abort("Fsdp was destroyed in the middle of a step");
  for (const Gathered& buffer : gathered_) try {
      buffer.work.wait();
    } catch (const DistError&) {  // was or will be the result of another call
    }
}

void Fsdp::Engine::allocate() {
  const int size = group_.size(), shards = shards_of_group(options_, size, sets());
  owned_ = shards_of(shards, group_.rank(), size);
  plan_ = merge_plan(shards, owned_);
  subtrees_ = subtrees_of(shards, owned_).size();
  const auto slots = static_cast<std::size_t>(slots_of(plan_));
  std::size_t largest = 0;
  for (const Unit& unit : units_) {
    allocate(states_.emplace_back(unit, size), slots);
    largest = std::max(largest, states_.back().layout.count());
  }
  for (std::size_t i = gathered_buffers(options_, units_.size(), largest); i > 0; --i)
    gathered_.push_back(
        {memory_.take(largest * size_of(options_.compute), &FsdpMemory::gathered), kNone, {}});
  const bool is_sharded = options_.sharding.gradients == Placement::sharded;
  for (int i = 0; i < options_.gradient_buffers && is_sharded; ++i)
    buffers_.push_back({memory_.take_floats(slots * largest, &FsdpMemory::gradient_buffers)});
  for (State& state : states_)  // zeros until the first step
    state.gradient = state.leaves ? state.leaves + state.first : buffers_[0].data;
  if (!replicas_) return;
  owned_.first += replicas_.rank() * shards;
  owned_.last += replicas_.rank() * shards;
}

void Fsdp::Engine::agree() {
  std::vector<ParamSpec> list;
  for (const Unit& unit : units_)
    list.insert(list.end(), unit.parameters.begin(), unit.parameters.end());
  const std::string text = options_text(units_, options_);
  std::string problem = problem_of(units_, options_, sets());
  if (!problem.empty()) problem = "Fsdp: " + problem;
  const int set = replicas_ ? replicas_.rank() : 0;
  on_both_groups([&](const ProcessGroup& group) {
    const std::string place = &group == &group_
                                  ? fmt::format("replica {} of {}", set, sets())
                                  : fmt::format("part {} of {}", group_.rank(), group_.size());
    agree_on_parameters(group, "Fsdp", list, fmt::format("{}, {}", text, place), problem);
  });
}

void Fsdp::Engine::allocate(State& state, std::size_t slots) {
  const auto rank = static_cast<std::size_t>(group_.rank());
  const std::size_t count = state.layout.count();
  state.first = is_scattered() ? state.layout.firsts[rank] : 0;
  state.part = is_scattered() ? state.layout.counts[rank] : count;
  if (options_.sharding.parameters == Placement::replicated) {
    state.arena = memory_.take(count * size_of(options_.compute), &FsdpMemory::parameters);
    if (options_.compute == DType::f32)
      state.master = reinterpret_cast<float*>(state.arena) + state.first;
  }
  if (!state.master) state.master = memory_.take_floats(state.part, &FsdpMemory::parameters);
  if (options_.sharding.gradients == Placement::replicated)
    state.leaves = memory_.take_floats(slots * count, &FsdpMemory::gradients);
}

void Fsdp::Engine::abort(const std::string& why) const noexcept {
  if (sums_) return sums_->abort(why);
  group_.abort(why);
  if (replicas_) replicas_.abort(why);
}

template <class... Values>
void Fsdp::Engine::misuse(fmt::format_string<Values...> format, Values&&... values) const {
  const std::string text = fmt::format("Fsdp on rank {}: ", group_.rank()) +
                           fmt::format(format, std::forward<Values>(values)...);
  abort(text);
  throw InvalidArgument(text);
}

template <class Body>
void Fsdp::Engine::or_abort(const Body& body) try {
  body();
} catch (const std::exception& error) {
  abort(error.what());
  throw;
}

// Ranks that agree in their group must not wait in the other one for those that do not.
template <class Check>
void Fsdp::Engine::on_both_groups(const Check& check) {
  if (!replicas_) return check(group_);
  or_abort([&] {
    check(group_);
    check(replicas_);
  });
}

Fsdp::Engine::State& Fsdp::Engine::at(const char* call, std::size_t unit) {
  if (unit >= states_.size()) misuse("{} of unit {}, but there are {}", call, unit, states_.size());
  return states_[unit];
}

const Fsdp::Engine::State& Fsdp::Engine::at(std::size_t unit) const {
  if (unit >= states_.size())
    throw_invalid("Fsdp: unit {} does not exist; there are {}", unit, states_.size());
  return states_[unit];
}

void Fsdp::Engine::note(std::size_t event, const char* call) {
  if (!is_recorded_) {
    order_.push_back(event);
  } else if (position_ >= order_.size() || order_[position_] != event) {
    std::string before = "the end of the step";
    if (position_ < order_.size())
      before = fmt::format("{} of {}", order_[position_] % 2 == 0 ? "unshard" : "reduce",
                           name(order_[position_] / 2));
    misuse("{} of {} as call {} of the step, where the first step had {}", call, name(event / 2),
           position_ + 1, before);
  }
  ++position_;
}

// f32 into an arena of the compute dtype, from element `first` on.
void Fsdp::Engine::store(std::span<const float> from, std::byte* arena, std::size_t first) const {
  if (options_.compute == DType::f32) {
    float* const to = reinterpret_cast<float*>(arena) + first;
    if (to != from.data()) std::copy(from.begin(), from.end(), to);
  } else {
    auto* const to = reinterpret_cast<BFloat16*>(arena) + first;
    std::transform(from.begin(), from.end(), to, [](float value) { return BFloat16(value); });
  }
}

// False when no buffer is free.
bool Fsdp::Engine::gather(std::size_t unit) {
  const auto to = std::find_if(gathered_.begin(), gathered_.end(),
                               [](const Gathered& buffer) { return buffer.unit == kNone; });
  if (to == gathered_.end()) return false;
  State& state = states_[unit];
  to->unit = unit;
  state.slot = static_cast<std::size_t>(to - gathered_.begin());
  store({state.master, state.part}, to->data, state.first);
  const View all = whole(state, to->data);
  to->work =
      group_.async().all_gather_v(all, all.slice(state.first, state.part), state.layout.counts);
  return true;
}

View Fsdp::Engine::unshard(std::size_t unit) {
  State& state = at("unshard", unit);
  if (state.is_in_use) misuse("unshard of {}, which is gathered: reshard it first", name(unit));
  note(2 * unit, "unshard");
  state.is_in_use = true;
  if (state.arena) return whole(state, state.arena);
  if (state.slot == kNone && !gather(unit))
    misuse(
        "unshard of {}, but all {} buffers are in use, one by {}: reshard it first, or raise "
        "prefetch_bytes",
        name(unit), gathered_.size(), name(gathered_[0].unit));
  Gathered& mine = gathered_[state.slot];
  prefetch();
  mine.work.wait();
  return whole(state, mine.data);
}

// The same on every rank: it looks at nothing but the order of the calls.
void Fsdp::Engine::prefetch() {
  if (!is_recorded_) return;
  for (std::size_t i = position_; i < order_.size(); ++i) {
    if (order_[i] % 2 != 0) continue;
    const std::size_t unit = order_[i] / 2;
    if (states_[unit].is_in_use) return;
    if (states_[unit].slot == kNone && !gather(unit)) return;
  }
}

void Fsdp::Engine::reshard(std::size_t unit) {
  State& state = at("reshard", unit);
  if (!state.is_in_use) misuse("reshard of {}, which is not gathered", name(unit));
  state.is_in_use = false;
  if (state.arena) return;
  gathered_[state.slot].unit = kNone;
  state.slot = kNone;
  prefetch();
}

void Fsdp::Engine::take_gradient_buffer(const char* call, std::size_t unit) {
  GradientBuffer& buffer = buffers_[buffers_taken_++ % buffers_.size()];
  if (buffer.unit != kNone) {
    State& before = states_[buffer.unit];
    if (!before.is_reduced)
      misuse(
          "{} of {}, but the gradient of {} is not reduced: raise gradient_buffers, "
          "now {}, or reduce it first",
          call, name(unit), name(buffer.unit), buffers_.size());
    sums_->wait(before.job);
    if (!before.kept)
      or_abort([&] { before.kept = memory_.take_floats(before.part, &FsdpMemory::gradients); });
    std::copy_n(before.gradient, before.part, before.kept);
    before.gradient = before.kept;
  }
  buffer.unit = unit;
  states_[unit].leaves = buffer.data;
}

std::span<float> Fsdp::Engine::next_gradient(std::size_t unit) {
  State& state = at("next_gradient", unit);
  if (state.is_reduced || state.leaves_done == plan_.size())
    misuse("next_gradient of {}, whose {} virtual shards of this rank are done", name(unit),
           plan_.size());
  if (!state.leaves) take_gradient_buffer("next_gradient", unit);
  const auto slot = static_cast<std::size_t>(plan_[state.leaves_done].slot);
  return {state.leaves + slot * state.layout.count(), state.layout.count()};
}

void Fsdp::Engine::gradient_done(std::size_t unit) {
  State& state = at("gradient_done", unit);
  if (!state.leaves || state.is_reduced || state.leaves_done == plan_.size())
    misuse("gradient_done of {} without next_gradient", name(unit));
  merge(plan_[state.leaves_done++], [&](int slot) {
    const std::size_t count = state.layout.count();
    return View(state.leaves + static_cast<std::size_t>(slot) * count, count, DType::f32);
  });
}

void Fsdp::Engine::reduce(std::size_t unit, double divisor) {
  State& state = at("reduce", unit);
  if (state.is_reduced) misuse("reduce of {} for the second time", name(unit));
  if (state.leaves_done != plan_.size())
    misuse("reduce of {} after {} of {} virtual shards of this rank", name(unit), state.leaves_done,
           plan_.size());
  note(2 * unit + 1, "reduce");
  if (!state.leaves) take_gradient_buffer("reduce", unit);  // of a rank without shards
  state.gradient = state.leaves + state.first;
  const View arena(state.leaves, state.layout.count(), DType::f32);
  const std::span<const std::size_t> counts =
      is_scattered() ? std::span<const std::size_t>(state.layout.counts)
                     : std::span<const std::size_t>();
  const auto done = [this, unit] {
    if (on_reduced_) on_reduced_(unit);
  };
  state.job = last_job_ =
      sums_->submit({arena, subtrees_, state.first, state.part, counts, divisor, done});
  state.is_reduced = true;
}

void Fsdp::Engine::end_step() {
  const bool is_training =
      std::any_of(states_.begin(), states_.end(), [](const State& s) { return s.is_reduced; });
  for (const State& state : states_) {
    if (state.is_in_use) misuse("end_step while {} is gathered", state.layout.unit.name);
    if (!state.is_reduced && (is_training || state.leaves_done > 0))
      misuse("end_step, but the gradient of {} is not reduced", state.layout.unit.name);
  }
  for (Gathered& buffer : gathered_) {
    if (buffer.unit == kNone) continue;
    buffer.work.wait();
    states_[buffer.unit].slot = kNone;
    buffer.unit = kNone;
  }
  sums_->wait(last_job_);
  close_step(is_training);
}

void Fsdp::Engine::close_step(bool was_training) {
  if (!was_training && !is_recorded_) order_.clear();
  if (was_training && is_recorded_ && position_ != order_.size())
    misuse("end_step after {} of {} calls of the first step", position_, order_.size());
  position_ = 0;
  for (State& state : states_) {
    state.is_reduced = false;
    state.leaves_done = 0;
    if (!buffers_.empty()) state.leaves = nullptr;
  }
  for (GradientBuffer& buffer : buffers_) buffer.unit = kNone;
  if (!was_training || is_recorded_) return;
  on_both_groups([&](const ProcessGroup& group) {
    check_same(group, "Fsdp: the calls of unshard() and reduce()",
               std::as_bytes(std::span(order_)));
  });
  is_recorded_ = true;
}

double Fsdp::Engine::global_norm() {
  BlockNorm norm;
  for (const State& state : states_)
    norm.add(state.layout, state.first, {state.gradient, state.part});
  return norm.result(is_scattered() ? &group_ : nullptr);
}

void Fsdp::Engine::sync_parameters() {
  if (options_.sharding.parameters == Placement::sharded) return;
  std::vector<Work> works;
  for (State& state : states_) {
    store({state.master, state.part}, state.arena, state.first);
    if (!is_scattered()) continue;
    const View all = whole(state, state.arena);
    works.push_back(
        group_.async().all_gather_v(all, all.slice(state.first, state.part), state.layout.counts));
  }
  wait_all(works);
}

void Fsdp::Engine::assign(std::size_t unit, std::span<const float> arena) {
  State& state = at("assign", unit);
  if (arena.size() != state.layout.count())
    misuse("assign of {} elements to {}, which has {}", arena.size(), name(unit),
           state.layout.count());
  std::copy_n(arena.begin() + static_cast<std::ptrdiff_t>(state.first), state.part, state.master);
  if (state.arena) store(arena, state.arena, 0);
}

Fsdp::Fsdp(const ProcessGroup& group, std::vector<Unit> units, FsdpOptions options,
           const ProcessGroup& replicas)
    : engine_(std::make_unique<Engine>(group, std::move(units), options, replicas)) {}
Fsdp::~Fsdp() = default;

const std::vector<Unit>& Fsdp::units() const noexcept { return engine_->units_; }
std::size_t Fsdp::elements(std::size_t unit) const { return engine_->at(unit).layout.count(); }
std::size_t Fsdp::offset(std::size_t unit, std::size_t parameter) const {
  return engine_->at(unit).layout.begins.at(parameter);
}
std::size_t Fsdp::shard_offset(std::size_t unit) const { return engine_->at(unit).first; }
std::size_t Fsdp::shard_elements(std::size_t unit) const { return engine_->at(unit).part; }
ShardRange Fsdp::owned() const noexcept { return engine_->owned_; }
FsdpMemory Fsdp::memory() const noexcept { return engine_->memory_.used(); }

void Fsdp::assign(std::size_t unit, std::span<const float> arena) { engine_->assign(unit, arena); }
View Fsdp::unshard(std::size_t unit) { return engine_->unshard(unit); }
void Fsdp::reshard(std::size_t unit) { engine_->reshard(unit); }
std::span<float> Fsdp::next_gradient(std::size_t unit) { return engine_->next_gradient(unit); }
void Fsdp::gradient_done(std::size_t unit) { engine_->gradient_done(unit); }
void Fsdp::reduce(std::size_t unit, double divisor) { engine_->reduce(unit, divisor); }
void Fsdp::end_step() { engine_->end_step(); }
void Fsdp::on_reduced(std::function<void(std::size_t)> callback) {
  engine_->on_reduced_ = std::move(callback);
}

std::span<float> Fsdp::shard(std::size_t unit) {
  const Engine::State& state = engine_->at(unit);
  return {state.master, state.part};
}
std::span<float> Fsdp::gradient(std::size_t unit) {
  const Engine::State& state = engine_->at(unit);
  return {state.gradient, state.part};
}
double Fsdp::global_norm() { return engine_->global_norm(); }
void Fsdp::sync_parameters() { engine_->sync_parameters(); }

std::vector<TensorPart> Fsdp::parts(std::size_t unit, std::string_view prefix,
                                    std::span<float> shard) const {
  const Engine::State& state = engine_->at(unit);
  if (shard.size() != state.part)
    throw_invalid("Fsdp: parts of {} elements, where unit {} has {} here", shard.size(),
                  state.layout.unit.name, state.part);
  return parts_of(state.layout, prefix, shard, state.first);
}

}}}  // namespace c10d::v0::parallel
