// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "c10d/spi/backend.h"
#include "kernels/reduce.h"
#include "src/backends/native/collectives/collectives.h"
#include "src/backends/native/p2p/messages.h"
#include "src/backends/native/team/team.h"
#include "src/base/mutex.h"
#include "src/recorder/signature.h"

namespace c10d { inline namespace v0 {

// What the ranks of a test group know about its end.
struct GroupFate {
  Mutex mutex;
  std::shared_ptr<const Failure> failure C10D_GUARDED_BY(mutex);
  std::map<std::uint64_t, std::map<int, std::string>> calls C10D_GUARDED_BY(mutex);
  std::atomic<bool> broken{false};
};

class TestControl final : public Control {
 public:
  TestControl(int rank, int size, std::shared_ptr<GroupFate> fate)
      : rank_(rank), size_(size), fate_(std::move(fate)) {}

  std::shared_ptr<const Failure> agree(const Call&, Waiting) override { return failure(); }
  std::shared_ptr<const Failure> barrier(Deadline) override { return failure(); }
  void announce(const Call& call) override {
    MutexLock lock(fate_->mutex);
    fate_->calls[call.sequence][rank_] = describe(signature_of(call.op, size_));
  }
  Agreement poll_agreement(const Call& call) override {
    std::string message;
    {
      MutexLock lock(fate_->mutex);
      const auto& calls = fate_->calls[call.sequence];
      if (calls.size() != static_cast<std::size_t>(size_)) return Agreement::pending;
      for (const auto& [rank, text] : calls) message += text + "; ";
    }
    fail({.code = Code::mismatch, .message = message});
    return Agreement::failed;
  }
  std::shared_ptr<const Failure> failure() override {
    MutexLock lock(fate_->mutex);
    return fate_->failure;
  }
  bool broken() const noexcept override { return fate_->broken.load(std::memory_order_acquire); }
  std::shared_ptr<const Failure> fail(Failure failure) override {
    MutexLock lock(fate_->mutex);
    if (!fate_->failure) fate_->failure = std::make_shared<const Failure>(std::move(failure));
    fate_->broken.store(true, std::memory_order_release);
    return fate_->failure;
  }
  Failure timed_out(const Call&, std::string_view phase) override {
    return {.code = Code::timed_out, .message = std::string(phase)};
  }
  void fail_overdue(OpKind, std::uint64_t, std::string_view) override {}
  Agreement poll_message(OpKind, std::uint64_t) override { return Agreement::agreed; }
  Agreement poll_enqueued(std::uint64_t) override { return Agreement::agreed; }
  void finished(OpKind, std::uint64_t, std::uint64_t, const Failure*) noexcept override {}
  std::shared_ptr<const Failure> resolve_cause(Failure otherwise, Duration) override {
    return fail(std::move(otherwise));
  }

 private:
  const int rank_, size_;
  const std::shared_ptr<GroupFate> fate_;
};

// One rank of a test group, without the funnel. All ranks are threads over one mapping, so that
// the thread sanitizer sees every access to it under one address.
class TestRank {
 public:
  TestRank(int rank, int size, std::shared_ptr<GroupFate> fate,
           std::shared_ptr<SharedMapping> segment, std::shared_ptr<Store> store = nullptr)
      : control_(std::make_shared<TestControl>(rank, size, std::move(fate))),
        team_(std::make_shared<native::Team>(BackendContext{.rank = rank,
                                                            .size = size,
                                                            .group = "test",
                                                            .store = std::move(store),
                                                            .control = control_,
                                                            .timeout = std::chrono::seconds(30)},
                                             size, std::move(segment))),
        queue_(std::make_shared<native::Queue>(native::runner_of(team_))),
        messages_(std::make_shared<native::Messages>(team_)) {}

  int rank() const { return team_->rank(); }
  int size() const { return team_->size(); }
  native::Team& team() { return *team_; }
  Control& control() { return *control_; }

  Work start(const Op& op, bool async, Duration timeout = std::chrono::seconds(60)) {
    const bool message = is_point_to_point(kind_of(op));
    const Call call{.op = op,
                    .sequence = message ? ++messages_sent_ : ++collectives_,
                    .signature = hash_of(signature_of(op, size())),
                    .deadline = std::chrono::steady_clock::now() + timeout,
                    .async = async,
                    .record = 0};
    // As the funnel does.
    if (const auto failure = control_->failure()) return Work::failed(*failure);
    return message ? messages_->launch(call) : queue_->launch(call);
  }
  // Blocking; an error is a failure of the test.
  Received run(const Op& op) {
    const Work work = start(op, false);
    if (work.failure() != nullptr) ADD_FAILURE() << work.failure()->message;
    return work.received();
  }
  Work start_async(const Op& op) { return start(op, true); }

 private:
  std::shared_ptr<TestControl> control_;
  std::shared_ptr<native::Team> team_;
  std::shared_ptr<native::Queue> queue_;
  std::shared_ptr<native::Messages> messages_;
  std::uint64_t collectives_ = 0, messages_sent_ = 0;
};

// C10D_NATIVE_PLAN for the groups that are made while it lives; empty: none.
class ForcedPlan {
 public:
  explicit ForcedPlan(const std::string& plan) {
    if (!plan.empty()) ::setenv("C10D_NATIVE_PLAN", plan.c_str(), 1);
  }
  ForcedPlan(const ForcedPlan&) = delete;
  ForcedPlan& operator=(const ForcedPlan&) = delete;
  ~ForcedPlan() { ::unsetenv("C10D_NATIVE_PLAN"); }
};

// Runs `body` as every rank of a new group, each in a thread, which calls `before` with its rank
// first.
inline void as_ranks(
    int size, const std::function<void(TestRank&)>& body, std::shared_ptr<Store> store = nullptr,
    const std::function<void(int)>& before = [](int) {}) {
  const auto fate = std::make_shared<GroupFate>();
  const auto segment = make_shared_memory("test", native::Layout(size).bytes());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      before(rank);
      TestRank self(rank, size, fate, segment, store);
      body(self);
    });
  for (auto& thread : threads) thread.join();
}

// Element i of what `rank` contributes: small, so that sums are exact in every dtype used here.
inline int element(int rank, std::size_t i) {
  return static_cast<int>((i * 7 + static_cast<std::size_t>(rank) * 13) % 101) - 50;
}
// Never null: an empty view without memory is "no buffer", which has no dtype.
template <class T>
std::vector<T> space(std::size_t count) {
  std::vector<T> values;
  values.reserve(count + 1);
  values.resize(count, static_cast<T>(-1));
  return values;
}
template <class T>
std::vector<T> contribution(int rank, std::size_t count, std::size_t first = 0) {
  std::vector<T> values = space<T>(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(element(rank, first + i));
  return values;
}

// Of each rank, made once: under a sanitizer that takes longer than the op.
inline std::vector<std::vector<float>> fractions(int size, std::size_t count) {
  std::vector<std::vector<float>> inputs;
  for (int rank = 0; rank < size; ++rank) {
    std::vector<float>& values = inputs.emplace_back(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = std::ldexp(static_cast<float>(element(rank, i)), element(rank + 1, i) / 2);
  }
  return inputs;
}

inline std::vector<float> along_the_tree(const std::vector<std::vector<float>>& inputs,
                                         ReduceOp op) {
  const std::size_t count = inputs.front().size();
  std::vector<const std::byte*> pointers;
  for (const auto& input : inputs)
    pointers.push_back(reinterpret_cast<const std::byte*>(input.data()));
  std::vector<float> result(count);
  if (count != 0)
    reduce(DType::f32, op, reinterpret_cast<std::byte*>(result.data()), pointers, count);
  return result;
}

}}  // namespace c10d::v0
