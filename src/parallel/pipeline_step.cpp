// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "c10d/error.h"
#include "src/parallel/pipeline_mail.h"
#include "src/parallel/pipeline_state.h"
#include "src/parallel/tied_weight.h"

namespace c10d::inline v0::parallel {
namespace {

// One pass over the actions of a rank.
class StepRun {
 public:
  StepRun(const Pipeline::State& state, Mail& mail) : state_(state), mail_(mail) {}

  void run() {
    for (const Action& action : state_.actions)
      if (action.kind == ActionKind::recv_f)
        for (const int edge : state_.graph.into(action.stage))
          if (rank_across(edge, action.stage) != state_.group.rank())
            mail_.expect(address(edge, action, 0));
    for (const Action& action : state_.actions) perform(action);
    if (state_.facts.trains) {
      for (const auto& [index, stage] : state_.stages)
        if (!reduced_.contains(index)) perform({index, ActionKind::reduce_grad, -1});
      for (const TiedWeight& tied : state_.options.tied)
        add_tied(state_, tied, [this] { return mail_.left(action_); });
    }
    mail_.settle_all();
    // No rank takes the step for done that fails on another.
    state_.group.barrier({.timeout = mail_.left(action_)});
  }

  // What is under way, for the message of a failure.
  const Action& action() const noexcept { return action_; }

 private:
  void perform(const Action& action) {
    action_ = action;
    static_cast<void>(mail_.left(action));
    const PipelineOptions& options = state_.options;
    if (options.on_begin) options.on_begin(action);
    execute(action);
    if (options.on_end) options.on_end(action);
  }

  void execute(const Action& action) {
    Stage& stage = *state_.stages.at(action.stage);
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
        return send_f(action);
      case ActionKind::recv_f:
        return receive(action, state_.graph.into(action.stage), 0);
      case ActionKind::send_b:
        return send_b(action);
      case ActionKind::recv_b:
        return receive(action, state_.graph.out_of(action.stage), kGradientTag);
    }
  }

  std::uint32_t tag(int edge, int micro_batch, std::uint32_t part) const {
    const auto number = static_cast<std::uint32_t>(edge * state_.facts.micro_batches + micro_batch);
    return number * kTagsPerMessage + part;
  }

  // The rank at the other end of an edge of `stage`.
  int rank_across(int edge, int stage) const {
    const Skip& ends = state_.graph.edge(edge);
    return state_.rank_of(ends.from == stage ? ends.to : ends.from);
  }

  Address address(int edge, const Action& action, std::uint32_t part) const {
    return {rank_across(edge, action.stage), tag(edge, action.micro_batch, part), action};
  }

  Activation take_held(std::uint32_t key) {
    const auto held = held_.find(key);
    Activation activation = std::move(held->second);
    held_.erase(held);
    return activation;
  }

  [[noreturn]] void refuse(std::string_view why) const {
    throw InvalidArgument(fmt::format("pipeline: {} {}", to_string(action_), why));
  }

  // What a callback returned must be as many as there are edges, and what their shapes say.
  void check(const std::vector<Activation>& returned, std::size_t expected) const {
    if (returned.size() != expected)
      refuse(fmt::format("returned {} activations instead of {}", returned.size(), expected));
    for (const Activation& each : returned) {
      const std::size_t limit = state_.options.activation_limit;
      if (bytes_of(each.shape, each.data.dtype, limit) != each.data.bytes())
        refuse(
            fmt::format("returned {} with {} elements: both must say the same, within {} bytes "
                        "(PipelineOptions::activation_limit)",
                        to_text(each.shape, each.data.dtype), each.data.count, limit));
      if (each.data.device.type != DeviceType::cpu ||
          (each.data.data == nullptr && each.data.count > 0))
        refuse("returned an activation that is not in CPU memory");
    }
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
      mail_.settle(tag(edge, action.micro_batch, 0));
      gradients.push_back(take_held(tag(edge, action.micro_batch, kGradientTag)));
    }
    std::vector<Activation> results = stage.backward_input(action.micro_batch, gradients);
    const auto edges = state_.graph.into(action.stage);
    check(results, edges.size());
    for (std::size_t i = 0; i < edges.size(); ++i) {
      const auto input = input_forms_.find(tag(edges[i], action.micro_batch, 0));
      const auto& [dtype, shape] = input->second;
      if (results[i].data.dtype != dtype || results[i].shape != shape)
        refuse(fmt::format("returned the gradient {} of an input {}",
                           to_text(results[i].shape, results[i].data.dtype),
                           to_text(shape, dtype)));
      input_forms_.erase(input);
      held_.emplace(tag(edges[i], action.micro_batch, kGradientTag), std::move(results[i]));
    }
  }

  void send_f(const Action& action) {
    for (const int edge : state_.graph.out_of(action.stage)) {
      if (rank_across(edge, action.stage) == state_.group.rank()) continue;
      Activation activation = take_held(tag(edge, action.micro_batch, 0));
      if (state_.facts.trains) mail_.expect_like(address(edge, action, kGradientTag), activation);
      mail_.send(address(edge, action, 0), std::move(activation));
    }
  }

  void send_b(const Action& action) {
    for (const int edge : state_.graph.into(action.stage))
      if (rank_across(edge, action.stage) != state_.group.rank())
        mail_.send_gradient(address(edge, action, kGradientTag),
                            take_held(tag(edge, action.micro_batch, kGradientTag)));
  }

  void receive(const Action& action, std::span<const int> edges, std::uint32_t part) {
    for (const int edge : edges) {
      if (rank_across(edge, action.stage) == state_.group.rank()) continue;
      const std::uint32_t key = tag(edge, action.micro_batch, part);
      held_.emplace(key, mail_.take(key));
    }
  }

  const Pipeline::State& state_;
  Mail& mail_;
  Action action_;
  // By tag: activations and gradients between the action that made or received them and the one
  // that uses or sends them.
  std::unordered_map<std::uint32_t, Activation> held_;
  // Until their gradients are there.
  std::unordered_map<std::uint32_t, std::pair<DType, std::vector<std::int64_t>>> input_forms_;
  std::set<int> reduced_;
};

}  // namespace

void Pipeline::step(std::optional<Duration> timeout) {
  const Duration bound = timeout.value_or(state_->group.timeout());
  constexpr Duration kLongest = std::chrono::hours(24 * 365);
  if (bound <= Duration::zero()) throw InvalidArgument("a timeout must be positive");
  const auto mail = std::make_shared<Mail>(state_->group, state_->options.activation_limit,
                                           Mail::Clock::now() + std::min(bound, kLongest));
  StepRun run(*state_, *mail);
  const auto fail = [&](std::string_view what) {
    state_->group.abort(describe_failure(state_->group, run.action(), what));
    mail->close();
  };
  try {
    run.run();
    mail->close();
  } catch (const std::exception& error) {
    fail(error.what());
    throw;
  } catch (...) {
    fail("a callback threw what is no std::exception");
    throw;
  }
}

}  // namespace c10d::inline v0::parallel
