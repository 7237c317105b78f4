// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/parallel/data_parallel.h"

#include <fmt/format.h>

#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "src/parallel/common/parameters.h"
#include "src/parallel/common/tree_fold.h"

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
      if (samples < 0)
        throw InvalidArgument(fmt::format("DataParallel: replica {}: {} samples", index, samples));
      complete();
    } catch (...) {
      problem = std::current_exception();
    }
  }

  // Zeros where nothing was to be computed.
  void complete() {
    for (std::size_t param = 0; param < params.size(); ++param) {
      if (samples != 0 && marks[param] != owned.count())
        throw InvalidArgument(
            fmt::format("DataParallel: replica {} marked parameter {} for {} of {} shards", index,
                        params[param].name, marks[param], owned.count()));
      for (; marks[param] < owned.count(); ++marks[param]) {
        const Tensor next = sums[param].next();
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
};

int Replica::index() const noexcept { return state_.index; }
ShardRange Replica::shards() const noexcept { return state_.owned; }

std::span<std::byte> Replica::grad_view(std::size_t param) {
  if (param >= state_.params.size() || state_.marks[param] == state_.owned.count())
    throw InvalidArgument(fmt::format(
        "DataParallel: replica {} has no view of parameter {}: it does not exist, or all {} "
        "shards are ready",
        state_.index, param, state_.owned.count()));
  const Tensor next = state_.sums[param].next();
  return {static_cast<std::byte*>(next.data), next.bytes()};
}

void Replica::ready(std::size_t param) {
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

  ~State() {
    {
      const std::lock_guard lock(mutex);
      quits = true;
    }
    changed.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  void serve(Replica::State& replica) {
    std::unique_lock lock(mutex);
    for (std::uint64_t seen = 0;;) {
      changed.wait(lock, [&] { return quits || step != seen; });
      if (quits) return;
      seen = step;
      lock.unlock();
      replica.run(*work);
      lock.lock();
      if (--running == 0) changed.notify_all();
    }
  }

  void run_all(const std::function<std::int64_t(Replica&)>& all) {
    std::unique_lock lock(mutex);
    work = &all;
    running = replicas.size();
    ++step;
    changed.notify_all();
    changed.wait(lock, [&] { return running == 0; });
    work = nullptr;
  }

  const std::vector<ParamSpec> params;
  const int shards;
  std::vector<std::unique_ptr<Replica::State>> replicas;
  std::vector<ShardRange> subtrees;  // of all replicas, in order
  std::vector<std::vector<std::byte>> gradients;

  std::mutex mutex;
  std::condition_variable changed;
  const std::function<std::int64_t(Replica&)>* work = nullptr;
  std::uint64_t step = 0;
  std::size_t running = 0;
  bool quits = false;
  std::vector<std::thread> threads;
};

DataParallel::DataParallel(int replicas, std::vector<ParamSpec> params, int shards) {
  if (replicas < 1)
    throw InvalidArgument(fmt::format("DataParallel: {} replicas; give at least 1", replicas));
  check_list("DataParallel", params);
  state_ = std::make_unique<State>(replicas, std::move(params), shards == 0 ? replicas : shards);
  for (auto& replica : state_->replicas)
    state_->threads.emplace_back([state = state_.get(), &replica] { state->serve(*replica); });
}
DataParallel::~DataParallel() = default;

int DataParallel::shards() const noexcept { return state_->shards; }

StepResult DataParallel::step(const std::function<std::int64_t(Replica&)>& work) {
  State& state = *state_;
  state.run_all(work);
  StepResult result;
  for (const auto& replica : state.replicas) {
    if (replica->problem) std::rethrow_exception(replica->problem);
    result.samples += replica->samples;
  }
  for (std::size_t param = 0; param < state.params.size(); ++param) {
    const ParamSpec& spec = state.params[param];
    const Tensor mean(state.gradients[param].data(), spec.count(), spec.dtype);
    std::vector<ConstTensor> partials;
    for (const auto& replica : state.replicas)
      for (const ConstTensor& partial : replica->sums[param].partials())
        partials.push_back(partial);
    const double divisor = result.samples == 0 ? 1 : static_cast<double>(result.samples);
    fold(mean, state.shards, state.subtrees, partials, divisor);
  }
  return result;
}

std::span<const std::byte> DataParallel::gradient(std::size_t param) const {
  if (param >= state_->gradients.size())
    throw InvalidArgument(fmt::format("DataParallel: parameter {} does not exist; there are {}",
                                      param, state_->gradients.size()));
  return state_->gradients[param];
}

}}}  // namespace c10d::v0::parallel
