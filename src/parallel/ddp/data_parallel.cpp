// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/parallel/data_parallel.h"

#include <cstdint>
#include <cstring>
#include <exception>

#include "src/parallel/common/merge_plan.h"
#include "src/parallel/common/parameters.h"
#include "src/parallel/common/serial_executor.h"
#include "src/parallel/common/throw_invalid.h"

namespace c10d { inline namespace v0 { namespace parallel {

struct Replica::State {
  State(int index_, std::span<const ParamSpec> params_, int shards_, ShardRange owned_)
      : index(index_), params(params_), owned(owned_), marks(params_.size()) {
    for (const ParamSpec& spec : params_)
      sums.emplace_back(shards_, owned_, spec.count(), spec.dtype);
  }

  void run(const std::function<std::int64_t(Replica&)>& work) {
    std::fill(marks.begin(), marks.end(), 0);
    for (ShardAccumulator& sum : sums) sum.reset();
    problem = nullptr;
    samples = 0;
    try {
      Replica replica(*this);
      samples = work(replica);
      if (samples < 0) throw_invalid("DataParallel: replica {}: {} samples", index, samples);
      complete();
    } catch (...) {
      problem = std::current_exception();
    }
  }

  // Zeros where nothing was to be computed.
  void complete() {
    for (std::size_t param = 0; param < params.size(); ++param) {
      if (samples != 0 && marks[param] != owned.count())
        throw_invalid("DataParallel: replica {} marked parameter {} for {} of {} shards", index,
                      params[param].name, marks[param], owned.count());
      for (; marks[param] < owned.count(); ++marks[param]) {
        const View next = sums[param].next();
        if (next.count != 0) std::memset(next.data, 0, next.bytes());
        sums[param].done();
      }
    }
  }

  const int index;
  const std::span<const ParamSpec> params;
  const ShardRange owned;
  std::vector<ShardAccumulator> sums;  // by parameter
  std::vector<int> marks;              // by parameter: shards done
  std::int64_t samples = 0;
  std::exception_ptr problem;
  std::uint64_t job = 0;  // the last one of the thread
  SerialExecutor thread;  // last: it uses all of the above
};

int Replica::index() const noexcept { return state_.index; }
ShardRange Replica::shards() const noexcept { return state_.owned; }

std::span<std::byte> Replica::grad_view(std::size_t param) {
  if (param >= state_.params.size() || state_.marks[param] == state_.owned.count())
    throw_invalid(
        "DataParallel: replica {} has no view of parameter {}: it does not exist, or all {} "
        "shards are ready",
        state_.index, param, state_.owned.count());
  const View next = state_.sums[param].next();
  return {static_cast<std::byte*>(next.data), next.bytes()};
}

void Replica::mark_ready(std::size_t param) {
  static_cast<void>(grad_view(param));  // checks
  state_.sums[param].done();
  ++state_.marks[param];
}

struct DataParallel::State {
  State(int replicas_, std::vector<ParamSpec> params_, int shards_)
      : params(std::move(params_)), shards(shards_) {
    for (int index = 0; index < replicas_; ++index) {
      const ShardRange owned = shards_of(shards, index, replicas_);
      replicas.emplace_back(std::make_unique<Replica::State>(index, params, shards, owned));
      for (const ShardRange& subtree : subtrees_of(shards, owned)) subtrees.push_back(subtree);
    }
    for (const ParamSpec& spec : params) gradients.emplace_back(spec.bytes());
  }

  const std::vector<ParamSpec> params;
  const int shards;
  std::vector<std::unique_ptr<Replica::State>> replicas;
  std::vector<ShardRange> subtrees;  // of all replicas, in order
  std::vector<std::vector<std::byte>> gradients;
};

DataParallel::DataParallel(int replicas, std::vector<ParamSpec> params, int shards) {
  if (replicas < 1) throw_invalid("DataParallel: {} replicas; give at least 1", replicas);
  check_list("DataParallel", params);
  state_ = std::make_unique<State>(replicas, std::move(params), shards == 0 ? replicas : shards);
}
DataParallel::~DataParallel() = default;

int DataParallel::shards() const noexcept { return state_->shards; }

StepResult DataParallel::step(const std::function<std::int64_t(Replica&)>& work) {
  State& state = *state_;
  const auto wait_for_all = [&state] {
    for (const auto& replica : state.replicas) replica->thread.wait(replica->job);
  };
  try {
    for (const auto& replica : state.replicas)
      replica->job = replica->thread.submit([&work, &replica] { replica->run(work); });
  } catch (...) {  // the threads that did start use `work`
    wait_for_all();
    throw;
  }
  wait_for_all();
  StepResult result;
  for (const auto& replica : state.replicas) {
    if (replica->problem) std::rethrow_exception(replica->problem);
    result.samples += replica->samples;
  }
  for (std::size_t param = 0; param < state.params.size(); ++param) {
    const ParamSpec& spec = state.params[param];
    const View mean(state.gradients[param].data(), spec.count(), spec.dtype);
    std::vector<ConstView> partials;
    for (const auto& replica : state.replicas)
      for (const ConstView& partial : replica->sums[param].partials()) partials.push_back(partial);
    const double divisor = result.samples == 0 ? 1 : static_cast<double>(result.samples);
    fold(mean, state.shards, state.subtrees, partials, divisor);
  }
  return result;
}

std::span<const std::byte> DataParallel::gradient(std::size_t param) const {
  if (param >= state_->gradients.size())
    throw_invalid("DataParallel: parameter {} does not exist; there are {}", param,
                  state_->gradients.size());
  return state_->gradients[param];
}

}}}  // namespace c10d::v0::parallel
