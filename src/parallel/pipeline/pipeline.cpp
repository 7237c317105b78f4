// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/parallel/pipeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <unordered_map>
#include <utility>

#include "kernels/reduce.h"
#include "src/base/hash.h"
#include "src/parallel/common/consistency.h"
#include "src/parallel/common/host_memory.h"
#include "src/parallel/common/throw_invalid.h"
#include "src/parallel/pipeline/activation_exchange.h"
#include "src/parallel/pipeline/schedule_graph.h"
#include "src/parallel/pipeline/stage_checks.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

// Of each edge and micro-batch: the header of the activation, its data, its gradient.
constexpr std::uint32_t kTagsPerMessage = 3;
constexpr std::uint32_t kGradientTag = 2;

}  // namespace

struct Pipeline::State {
  class StepRun;

  State(const ProcessGroup& group_, std::map<int, Stage*> stages_, PipelineOptions options_);

  int count() const noexcept { return static_cast<int>(facts.rank_of_stage.size()); }
  int rank_of(int stage) const noexcept {
    return facts.rank_of_stage[static_cast<std::size_t>(stage)];
  }
  // What all ranks must agree on.
  std::string text() const;

  const ProcessGroup group;
  const std::map<int, Stage*> stages;
  const PipelineOptions options;
  const ScheduleFacts facts;
  const StageGraph graph;
  const Schedule lowered;  // sends and receives among the actions
};

Pipeline::State::State(const ProcessGroup& group_, std::map<int, Stage*> stages_,
                       PipelineOptions options_)
    : group(group_),
      stages(std::move(stages_)),
      options(std::move(options_)),
      facts(validate(options.schedule, options.skips, options.max_live_activations)),
      graph(count(), options.skips),
      lowered(lower(options.schedule, options.skips)) {
  if (lowered.ranks.size() != static_cast<std::size_t>(group.size()))
    throw_invalid("pipeline: the schedule is for {} ranks, the group has {}", lowered.ranks.size(),
                  group.size());
  check_stages(stages, facts.rank_of_stage, group.rank());
  check_tied(options.tied, count());
  constexpr std::size_t kLimit = std::numeric_limits<std::int32_t>::max();
  const std::size_t edges = graph.edges().size();
  if (edges >= kLimit / kTagsPerMessage / static_cast<std::size_t>(facts.micro_batches))
    throw_invalid(
        "pipeline: {} edges between stages and {} micro-batches need more tags than there are",
        edges, facts.micro_batches);
}

std::string Pipeline::State::text() const {
  const std::string csv = to_csv(lowered);
  std::string text =
      fmt::format("schedule {:016x}, activation_limit {}, edges",
                  hash_bytes(std::as_bytes(std::span(csv))), options.activation_limit);
  for (const Skip& edge : graph.edges()) text += fmt::format(" {}-{}", edge.from, edge.to);
  for (const TiedWeight& tied : options.tied)
    text += fmt::format(", {} tied in {}", tied.name, fmt::join(tied.stages, " "));
  return text;
}

Pipeline::Pipeline(const ProcessGroup& group, std::map<int, Stage*> stages,
                   PipelineOptions options) {
  std::string text, problem;
  try {
    state_ = std::make_unique<State>(group, std::move(stages), std::move(options));
    text = state_->text();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  agree_on_parameters(group, "pipeline", {}, text, problem);
}

Pipeline::~Pipeline() = default;

// One pass over the actions of a rank.
class Pipeline::State::StepRun {
 public:
  StepRun(const State& state, ActivationExchange& exchange) : state_(state), exchange_(exchange) {}

  void run() {
    expect_all();
    const auto own = static_cast<std::size_t>(state_.group.rank());
    for (const Action& action : state_.lowered.ranks[own]) perform(action);
    if (state_.facts.trains) {
      for (const auto& [index, stage] : state_.stages)
        if (!reduced_.contains(index)) perform({index, ActionKind::reduce_grad, -1});
      for (const TiedWeight& tied : state_.options.tied) add_tied(tied);
    }
    exchange_.settle_all();
    // No rank takes the step for done that fails on another.
    state_.group.barrier(left());
  }

  // What is under way, for the message of a failure.
  const Action& action() const noexcept { return action_; }

 private:
  CallOptions left() const { return {.timeout = exchange_.left(action_)}; }

  void perform(const Action& action) {
    action_ = action;
    static_cast<void>(left());
    if (state_.options.on_begin) state_.options.on_begin(action);
    execute(action);
    if (state_.options.on_end) state_.options.on_end(action);
  }

  // All ranks hold the same schedule.
  void expect_all() {
    std::vector<Address> all;
    for (int rank = 0; rank < state_.group.size(); ++rank)
      for (const Action& action : state_.lowered.ranks[static_cast<std::size_t>(rank)]) {
        const bool forward = action.kind == ActionKind::send_f;
        if (!forward && action.kind != ActionKind::send_b) continue;
        across(forward ? state_.graph.out_of(action.stage) : state_.graph.into(action.stage),
               action, forward ? 0 : kGradientTag, [&](const Address& to) {
                 if (to.peer == state_.group.rank()) all.push_back({rank, to.tag, action});
               });
      }
    exchange_.expect(all);
  }

  void execute(const Action& action) {
    Stage& stage = *state_.stages.at(action.stage);
    const auto into = state_.graph.into(action.stage), out_of = state_.graph.out_of(action.stage);
    const auto receive = [&](const Address& from) {
      held_.emplace(from.tag, exchange_.take(from.tag));
    };
    switch (action.kind) {
      case ActionKind::forward:
        return forward(stage, action);
      case ActionKind::backward:
        backward_input(stage, action);
        return stage.backward_weight(action.micro_batch);
      case ActionKind::backward_input:
        return backward_input(stage, action);
      case ActionKind::backward_weight:
        return stage.backward_weight(action.micro_batch);
      case ActionKind::unshard:
        return stage.unshard();
      case ActionKind::reshard:
        return stage.reshard();
      case ActionKind::reduce_grad:
        reduced_.insert(action.stage);
        return stage.reduce_grad();
      case ActionKind::send_f:
        return across(out_of, action, 0, [&](const Address& to) {
          Activation activation = take_held(to.tag);
          if (state_.facts.trains) exchange_.expect_like(to.tag + kGradientTag, activation);
          exchange_.send(to, std::move(activation));
        });
      case ActionKind::recv_f:
        return across(into, action, 0, receive);
      case ActionKind::send_b:
        return across(into, action, kGradientTag,
                      [&](const Address& to) { exchange_.send(to, take_held(to.tag)); });
      case ActionKind::recv_b:
        return across(out_of, action, kGradientTag, receive);
    }
  }

  std::uint32_t tag(int edge, int micro_batch, std::uint32_t part) const {
    const auto number = static_cast<std::uint32_t>(edge * state_.facts.micro_batches + micro_batch);
    return number * kTagsPerMessage + part;
  }

  // For each of these edges of a stage that leads to another rank: the address of that part.
  template <class Deliver>
  void across(std::span<const int> edges, const Action& action, std::uint32_t part,
              const Deliver& deliver) {
    for (const int edge : edges) {
      const Skip& ends = state_.graph.edge(edge);
      const int peer = state_.rank_of(ends.from == action.stage ? ends.to : ends.from);
      if (peer != state_.rank_of(action.stage))
        deliver(Address{peer, tag(edge, action.micro_batch, part), action});
    }
  }

  Activation take_held(std::uint32_t key) { return std::move(held_.extract(key).mapped()); }

  template <class... Values>
  [[noreturn]] void refuse(fmt::format_string<Values...> why, Values&&... values) const {
    throw_invalid("pipeline: {} {}", to_string(action_),
                  fmt::format(why, std::forward<Values>(values)...));
  }

  // What a callback returned must be as many as there are edges, and what their shapes say.
  void check(const std::vector<Activation>& returned, std::size_t expected) const {
    if (returned.size() != expected)
      refuse("returned {} activations instead of {}", returned.size(), expected);
    for (const Activation& each : returned)
      if (const auto problem = problem_of(each, state_.options.activation_limit); !problem.empty())
        refuse("returned {}", problem);
  }

  void forward(Stage& stage, const Action& action) {
    std::vector<Activation> inputs;
    for (const int edge : state_.graph.into(action.stage)) {
      const std::uint32_t key = tag(edge, action.micro_batch, 0);
      inputs.push_back(take_held(key));
      if (state_.facts.trains) input_forms_[key] = {inputs.back().data.dtype, inputs.back().shape};
    }
    std::vector<Activation> outputs = stage.forward(action.micro_batch, inputs);
    const auto edges = state_.graph.out_of(action.stage);
    check(outputs, edges.size());
    for (std::size_t i = 0; i < edges.size(); ++i)
      held_.emplace(tag(edges[i], action.micro_batch, 0), std::move(outputs[i]));
  }

  void backward_input(Stage& stage, const Action& action) {
    std::vector<Activation> gradients;
    for (const int edge : state_.graph.out_of(action.stage)) {
      exchange_.settle(tag(edge, action.micro_batch, 0));
      gradients.push_back(take_held(tag(edge, action.micro_batch, kGradientTag)));
    }
    std::vector<Activation> results = stage.backward_input(action.micro_batch, gradients);
    const auto edges = state_.graph.into(action.stage);
    check(results, edges.size());
    for (std::size_t i = 0; i < edges.size(); ++i) {
      const auto input = input_forms_.extract(tag(edges[i], action.micro_batch, 0));
      const auto& [dtype, shape] = input.mapped();
      if (results[i].data.dtype != dtype || results[i].shape != shape)
        refuse("returned the gradient {} of an input {}",
               to_text(results[i].shape, results[i].data.dtype), to_text(shape, dtype));
      held_.emplace(tag(edges[i], action.micro_batch, kGradientTag), std::move(results[i]));
    }
  }

  // Adds the gradients of a tied weight in the order of its stages, on the rank of the first; the
  // other holders give theirs and get the sum. Every rank goes through its tied weights in one
  // order, so blocking calls cannot wait for each other.
  void add_tied(const TiedWeight& tied) {
    const int root = state_.rank_of(tied.stages.front());
    // Past those of the messages between stages.
    const std::uint32_t key = tag(static_cast<int>(state_.graph.edges().size()), 0, 0);
    const auto later = std::span(tied.stages).subspan(1);  // than the root's
    if (state_.group.rank() == root) return add_tied_here(tied, later, key);
    for (const int stage : later)
      if (state_.stages.contains(stage))
        state_.group.send(tied_gradient(stage, tied), root, key, left());
    for (const int stage : later)
      if (state_.stages.contains(stage))
        state_.group.recv(tied_gradient(stage, tied), root, key, left());
  }

  void add_tied_here(const TiedWeight& tied, std::span<const int> later, std::uint32_t key) {
    const View sum = tied_gradient(tied.stages.front(), tied);
    auto* const bytes = static_cast<std::byte*>(sum.data);
    Activation arrived;
    for (const int stage : later) {
      View part;
      if (state_.stages.contains(stage)) {
        part = tied_gradient(stage, tied);
        check_tied(tied, sum, stage, part);
      } else {
        if (!arrived.owner)
          arrived = make_activation({static_cast<std::int64_t>(sum.count)}, sum.dtype);
        part = arrived.data;
        state_.group.recv(part, state_.rank_of(stage), key, left());
      }
      const auto* const added = static_cast<const std::byte*>(part.data);
      reduce(sum.dtype, ReduceOp::sum, bytes, std::array<const std::byte*, 2>{bytes, added},
             sum.count);
    }
    for (const int stage : later) {
      if (state_.stages.contains(stage))
        std::copy_n(bytes, sum.bytes(), static_cast<std::byte*>(tied_gradient(stage, tied).data));
      else
        state_.group.send(sum, state_.rank_of(stage), key, left());
    }
  }

  View tied_gradient(int stage, const TiedWeight& tied) const {
    const View gradient = state_.stages.at(stage)->tied_gradient(tied.name);
    if (const std::string why = why_not_on_host(gradient); !why.empty())
      throw_invalid("pipeline: the gradient of {} in stage {} is {}", tied.name, stage, why);
    return gradient;
  }

  const State& state_;
  ActivationExchange& exchange_;
  Action action_;
  // By tag: activations and gradients between the action that made or received them and the one
  // that uses or sends them.
  std::unordered_map<std::uint32_t, Activation> held_;
  // Until their gradients are there.
  std::unordered_map<std::uint32_t, std::pair<DType, std::vector<std::int64_t>>> input_forms_;
  std::set<int> reduced_;
};

void Pipeline::step(std::optional<Duration> timeout) {
  const Duration bound = timeout.value_or(state_->group.timeout());
  constexpr Duration kLongest = std::chrono::hours(24 * 365);
  if (bound <= Duration::zero()) throw InvalidArgument("a timeout must be positive");
  const auto exchange = std::make_shared<ActivationExchange>(
      state_->group, state_->options.activation_limit,
      ActivationExchange::Clock::now() + std::min(bound, kLongest));
  State::StepRun run(*state_, *exchange);
  const auto fail = [&](std::string_view what) {
    exchange->abort(run.action(), what);
    exchange->close();
  };
  try {
    run.run();
    exchange->close();
  } catch (const std::exception& error) {
    fail(error.what());
    throw;
  } catch (...) {
    fail("a callback threw something other than a std::exception");
    throw;
  }
}

}}}  // namespace c10d::v0::parallel
