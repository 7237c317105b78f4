// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>

#include "c10d/parallel/fsdp.h"
#include "c10d/parallel/mesh.h"
#include "examples/training/nn/errors.h"
#include "examples/training/trainer/strategy.h"

namespace nn {
namespace {

using namespace c10d::parallel;

// The layers between two cuts of the model are a unit.
std::vector<Unit> units_of(const Model& model, const std::vector<int>& borders) {
  std::vector<Unit> units;
  for (std::size_t u = 0; u + 1 < borders.size(); ++u) {
    const Model::Range range = model.parameters_of(borders[u], borders[u + 1]);
    const auto first = model.parameters.begin();
    units.push_back({model.nodes[borders[u]].name,
                     {first + static_cast<std::ptrdiff_t>(range.first),
                      first + static_cast<std::ptrdiff_t>(range.last)}});
  }
  return units;
}

std::vector<int> borders_of(const Model& model) {
  std::vector<int> borders = model.units();
  borders.push_back(static_cast<int>(model.nodes.size()));
  return borders;
}

// ZeRO-3 gathers one unit ahead.
FsdpOptions options_of(const Task& task, int zero, const std::vector<Unit>& units) {
  constexpr Sharding kept[] = {kZero1, kZero2, kZero3};
  FsdpOptions options{.sharding = kept[zero - 1], .shards = task.shards};
  if (task.options.reproducible) options.mode = ReduceMode::reproducible;
  for (const Unit& unit : units) {
    std::size_t bytes = 0;
    for (const ParamSpec& spec : unit.parameters) bytes += spec.bytes();
    if (zero == 3) options.prefetch_bytes = std::max(options.prefetch_bytes, bytes);
  }
  return options;
}

// The gradient of one shard goes into the arena of a unit.
class ArenaSink final : public GradientSink {
 public:
  ArenaSink(const Fsdp& fsdp, std::size_t unit, std::size_t first, std::span<float> arena)
      : fsdp_(fsdp), unit_(unit), first_(first), arena_(arena) {}
  float* next(std::size_t parameter) override {
    return arena_.data() + fsdp_.offset(unit_, parameter - first_);
  }
  void done(std::size_t) override {}

 private:
  const Fsdp& fsdp_;
  std::size_t unit_, first_;
  std::span<float> arena_;
};

// When the gradients of units were summed over the ranks.
class SumTimes {
 public:
  SumTimes(Trace& trace, const std::vector<Unit>& units) : trace_(trace), begun_(units.size()) {
    for (const Unit& unit : units) names_.push_back("reduce_scatter " + unit.name);
  }
  void begin(std::size_t unit) { begun_[unit] = Trace::Clock::now(); }
  // On the thread of the sums: each begins when the one before has ended.
  void end(std::size_t unit) {
    const Trace::Clock::time_point begin = std::max(begun_[unit], end_);
    end_ = Trace::Clock::now();
    trace_.add(Trace::Track::communication, names_[unit], begin, end_);
  }

 private:
  Trace& trace_;
  std::vector<std::string> names_;
  std::vector<Trace::Clock::time_point> begun_;
  Trace::Clock::time_point end_{};
};

bool is_hybrid(const Task& task) { return task.options.replicas > 1; }

// Ranks that hold one set of parts are neighbours.
Mesh mesh_of(const Task& task, c10d::ProcessGroup& group) {
  const int replicas = task.options.replicas;
  if (group.size() % replicas != 0)
    throw_runtime("--replicas {} does not divide the {} ranks", replicas, group.size());
  return Mesh(group, {{"replicate", replicas}, {"shard", group.size() / replicas}});
}

class Sharded final : public Strategy {
 public:
  Sharded(const Task& task, c10d::ProcessGroup& group, Trace& trace)
      : Strategy(task, group, trace),
        borders_(borders_of(task.model)),
        mesh_(mesh_of(task, group)),
        sum_times_(trace, units_of(task.model, borders_)),
        fsdp_(is_hybrid(task) ? mesh_.sub("shard") : group, units_of(task.model, borders_),
              options_of(task, task.options.zero, units_of(task.model, borders_)),
              is_hybrid(task) ? mesh_.sub("replicate") : c10d::ProcessGroup()),
        net_(task.model, fsdp_.owned().count()),
        feed_(task, net_, task.shards, fsdp_.owned()) {
    for (std::size_t u = 0; u < units(); ++u) {
      over_own(u, [&](std::size_t i, std::size_t first, std::size_t at, std::size_t count) {
        initialise(task.model, i, task.options.seed, fsdp_.shard(u).subspan(at, count), first);
      });
      auto& states = states_.emplace_back();
      for (int s = 0; s < task.optimizer.states(); ++s)
        states.emplace_back(fsdp_.shard_elements(u));
    }
    fsdp_.sync_parameters();
    if (trace.enabled()) fsdp_.on_reduced([this](std::size_t u) { sum_times_.end(u); });
    use_threads(1);
  }

  Score step(std::span<const std::int64_t> batch, std::uint64_t step, float rate) override {
    Score score;
    feed_.load(batch, step);
    for (std::size_t u = 0; u < units(); ++u) {
      gather(u);
      const Traced span(trace_, "forward " + fsdp_.units()[u].name);
      net_.forward(borders_[u], borders_[u + 1], 0, net_.shards());
      fsdp_.reshard(u);
    }
    for (int shard = 0; shard < net_.shards(); ++shard) score = score + feed_.score(shard);
    for (std::size_t u = units(); u-- > 0;) {
      gather(u);
      backward(u);
      sum_times_.begin(u);
      fsdp_.reduce(u, rows_of(task_, batch));
      fsdp_.reshard(u);
    }
    {
      Traced span(trace_, "wait for gradients");
      span.add_to(waited_);
      fsdp_.end_step();
    }
    before_update_();
    const Traced span(trace_, "optimizer");
    for (std::size_t u = 0; u < units(); ++u) update(u, step, rate);
    fsdp_.sync_parameters();
    return score;
  }

  WholeValues collect() override {
    std::vector<std::vector<float>> all;
    for (std::size_t u = 0; u < units(); ++u) {
      gather(u);
      const Model::Range range = parameters_of(u);
      for (std::size_t i = range.first; i < range.last; ++i)
        all.emplace_back(net_.values[i], net_.values[i] + task_.model.parameters[i].count());
      fsdp_.reshard(u);
    }
    fsdp_.end_step();
    return all;
  }

  std::vector<TensorPart> parts() override {
    std::vector<TensorPart> all;
    const auto append = [&](std::vector<TensorPart> parts) {
      for (TensorPart& part : parts) all.push_back(std::move(part));
    };
    for (std::size_t u = 0; u < units(); ++u) {
      append(fsdp_.parts(u, "model.", fsdp_.shard(u)));
      for (std::size_t s = 0; s < states_[u].size(); ++s)
        append(fsdp_.parts(u, state_name("", static_cast<int>(s)), states_[u][s]));
    }
    return all;
  }
  void loaded() override { fsdp_.sync_parameters(); }

 private:
  std::size_t units() const { return borders_.size() - 1; }
  Model::Range parameters_of(std::size_t u) const {
    return task_.model.parameters_of(borders_[u], borders_[u + 1]);
  }

  // The span is the wait for what was not gathered ahead.
  void gather(std::size_t u) {
    Traced span(trace_, "all_gather " + fsdp_.units()[u].name);
    span.add_to(waited_);
    auto* arena = static_cast<float*>(fsdp_.unshard(u).data);
    const Model::Range range = parameters_of(u);
    for (std::size_t i = range.first; i < range.last; ++i)
      net_.values[i] = arena + fsdp_.offset(u, i - range.first);
  }

  void backward(std::size_t u) {
    const Traced span(trace_, "backward " + fsdp_.units()[u].name);
    net_.backward_input(borders_[u], borders_[u + 1], 0, net_.shards());
    for (int shard = 0; shard < net_.shards(); ++shard) {
      ArenaSink sink(fsdp_, u, parameters_of(u).first, fsdp_.next_gradient(u));
      net_.backward_weight(borders_[u], borders_[u + 1], shard, 1, sink);
      fsdp_.gradient_done(u);
    }
  }

  // Elements [first, first + count) of parameter i lie at `at` of this rank's shard.
  template <class Use>
  void over_own(std::size_t u, const Use& use) {
    const std::size_t begin = fsdp_.shard_offset(u);
    const std::size_t end = begin + fsdp_.shard_elements(u);
    const Model::Range range = parameters_of(u);
    for (std::size_t i = range.first; i < range.last; ++i) {
      const std::size_t offset = fsdp_.offset(u, i - range.first);
      const std::size_t from = std::max(begin, offset);
      const std::size_t to = std::min(end, offset + task_.model.parameters[i].count());
      if (from < to) use(i, from - offset, from - begin, to - from);
    }
  }

  void update(std::size_t u, std::uint64_t step, float rate) {
    over_own(u, [&](std::size_t i, std::size_t, std::size_t at, std::size_t count) {
      std::vector<float*> state;
      for (std::vector<float>& of_unit : states_[u]) state.push_back(of_unit.data() + at);
      task_.optimizer.update(task_.model.details[i].rule, step, rate,
                             fsdp_.shard(u).subspan(at, count), fsdp_.gradient(u).data() + at,
                             state);
    });
  }

  std::vector<int> borders_;
  Mesh mesh_;
  SumTimes sum_times_;
  Fsdp fsdp_;
  Net net_;
  Feed feed_;
  std::vector<std::vector<std::vector<float>>> states_;  // [unit][state]
};

}  // namespace

std::unique_ptr<Strategy> sharded(const Task& task, c10d::ProcessGroup& group, Trace& trace) {
  // Before groups are made by it.
  check_same(group, "--replicas", std::as_bytes(std::span(&task.options.replicas, 1)));
  return std::make_unique<Sharded>(task, group, trace);
}

std::string memory_plan(const Task& task, int size) {
  std::string text = fmt::format(
      "MiB per rank in a step, {} with {} parameters, {}, {} ranks, activations not counted; with\n"
      "--checkpoint rank 0, sharded every rank that writes, holds a copy besides:\n{:8}",
      task.model.name, task.model.elements(), task.options.optimizer, size, "");
  for (const char* column : {"parameters", "gradients", "optimizer", "buffers", "sum", "copy"})
    text += fmt::format("{:>12}", column);
  const auto row = [&](const std::string& name, const FsdpMemory& memory, std::size_t kept,
                       std::size_t states) {
    const std::size_t buffers = memory.gathered + memory.gradient_buffers;
    text += fmt::format("\n{:8}", name);
    for (const std::size_t bytes : {memory.parameters, memory.gradients, states, buffers,
                                    memory.total() + states, kept + states})
      text += fmt::format("{:12.2f}", static_cast<double>(bytes) / (1 << 20));
  };
  const std::size_t values = task.model.elements() * sizeof(float);
  const auto states = static_cast<std::size_t>(task.optimizer.states());
  row("DDP",
      {.parameters = values,
       .gradients = gradient_bytes(task.model.parameters, reducer_options(task), size)},
      values, states * values);
  const std::vector<Unit> units = units_of(task.model, borders_of(task.model));
  const auto plan = [&](int zero) {
    const int replicas = task.options.replicas;
    return plan_memory(units, options_of(task, zero, units), 0, size / replicas, replicas);
  };
  const std::size_t part = plan(3).parameters;
  for (int zero = 1; zero <= 3; ++zero)
    row(fmt::format("ZeRO-{}", zero), plan(zero), part, states * part);
  return text + "\n";
}

}  // namespace nn
