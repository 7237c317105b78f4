// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>
#include <utility>

#include "c10d/error.h"
#include "kernels/reduce.h"
#include "src/parallel/pipeline_mail.h"
#include "src/parallel/pipeline_state.h"

namespace c10d::inline v0::parallel {
namespace {

struct Form {
  std::vector<std::int64_t> shape;
  DType dtype;

  explicit Form(const Activation& of) : shape(of.shape), dtype(of.data.dtype) {}
  bool operator==(const Form&) const = default;
};

std::string to_text(const Form& form) {
  return fmt::format("{} [{}]", to_string(form.dtype), fmt::join(form.shape, ", "));
}

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
      for (const TiedWeight& tied : state_.options.tied) add_tied(tied);
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
    for (const Activation& activation : returned) {
      const Tensor& data = activation.data;
      const std::size_t bytes =
          checked_bytes(activation.shape, data.dtype, state_.options.activation_limit);
      if (bytes != data.bytes() || (bytes != 0 && data.data == nullptr) ||
          data.device.type != DeviceType::cpu)
        refuse(
            fmt::format("returned {} with {} elements at {}: the shape must say what is there, "
                        "in CPU memory",
                        to_text(Form(activation)), data.count, data.data));
    }
  }

  void forward(Stage& stage, const Action& action) {
    std::vector<Activation> inputs;
    for (const int edge : state_.graph.into(action.stage)) {
      const std::uint32_t key = tag(edge, action.micro_batch, 0);
      inputs.push_back(take_held(key));
      if (state_.facts.trains) input_forms_.emplace(key, Form(inputs.back()));
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
      if (Form(results[i]) != input->second)
        refuse(fmt::format("returned the gradient {} of an input {}", to_text(Form(results[i])),
                           to_text(input->second)));
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

  // On the rank of the first holder; the others give their gradients and get the sum. All ranks go
  // through the tied weights in one order, so blocking calls cannot wait for each other.
  void add_tied(const TiedWeight& tied) {
    const int root = state_.rank_of(tied.stages.front());
    const auto last = static_cast<std::uint32_t>(state_.graph.edges().size());
    const std::uint32_t own_tag =
        last * static_cast<std::uint32_t>(state_.facts.micro_batches) * kTagsPerMessage;
    const auto options = [&] { return CallOptions{.timeout = mail_.left(action_)}; };
    ProcessGroup& group = state_.group;
    if (group.rank() == root) return add_tied_here(tied, own_tag);
    for (const int stage : tied.stages)
      if (const auto own = state_.stages.find(stage); own != state_.stages.end())
        group.send(own->second->tied_gradient(tied.name), root, own_tag, options());
    for (const int stage : tied.stages)
      if (const auto own = state_.stages.find(stage); own != state_.stages.end())
        group.recv(own->second->tied_gradient(tied.name), root, own_tag, options());
  }

  void add_tied_here(const TiedWeight& tied, std::uint32_t own_tag) {
    const auto options = [&] { return CallOptions{.timeout = mail_.left(action_)}; };
    ProcessGroup& group = state_.group;
    const Tensor sum = state_.stages.at(tied.stages.front())->tied_gradient(tied.name);
    std::vector<Tensor> parts{sum};
    std::vector<Activation> arrived;
    for (const int stage : std::span(tied.stages).subspan(1)) {
      if (const auto own = state_.stages.find(stage); own != state_.stages.end()) {
        parts.push_back(own->second->tied_gradient(tied.name));
        if (parts.back().count != sum.count || parts.back().dtype != sum.dtype)
          throw InvalidArgument(fmt::format(
              "pipeline: the gradient of {} is {} x {} in stage {} and {} x {} in stage {}",
              tied.name, sum.count, to_string(sum.dtype), tied.stages.front(), parts.back().count,
              to_string(parts.back().dtype), stage));
        continue;
      }
      arrived.push_back(make_activation({static_cast<std::int64_t>(sum.count)}, sum.dtype));
      parts.push_back(arrived.back().data);
      group.recv(parts.back(), state_.rank_of(stage), own_tag, options());
    }
    auto* const bytes = static_cast<std::byte*>(sum.data);
    for (std::size_t i = 1; i < parts.size(); ++i)
      reduce(sum.dtype, ReduceOp::sum, bytes,
             std::array<const std::byte*, 2>{bytes, static_cast<const std::byte*>(parts[i].data)},
             sum.count);
    for (std::size_t i = 1; i < parts.size(); ++i) {
      const int stage = tied.stages[i];
      if (state_.stages.contains(stage))
        std::copy_n(bytes, sum.bytes(), static_cast<std::byte*>(parts[i].data));
      else
        group.send(sum, state_.rank_of(stage), own_tag, options());
    }
  }

  const Pipeline::State& state_;
  Mail& mail_;
  Action action_;
  // By tag: activations and gradients between the action that made or received them and the one
  // that uses or sends them.
  std::unordered_map<std::uint32_t, Activation> held_;
  std::unordered_map<std::uint32_t, Form> input_forms_;  // until their gradients are there
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
