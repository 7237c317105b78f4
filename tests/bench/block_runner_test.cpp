// SPDX-License-Identifier: BSD-3-Clause
#include "bench/measure/block_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <variant>
#include <vector>

#include "bench/meeting/shared_page.h"
#include "bench/meeting/store_meeting.h"
#include "c10d/error.h"
#include "c10d/store.h"

namespace c10d::bench { namespace {

// Two ranks whose ops end at once, but for one op of rank 1: that ends when rank 0 is far ahead.
class Uneven {
 public:
  Uneven(int held_op, int until) : held_op_(held_op), until_(until) {}
  void run(int rank) {
    std::unique_lock lock(mutex_);
    const int op = ++ops_.at(static_cast<std::size_t>(rank));
    came_.notify_all();
    if (rank == 1 && op == held_op_) came_.wait(lock, [&] { return over_ || ops_[0] >= until_; });
  }
  // Its barrier: returns when both ranks are in it.
  void meet() {
    std::unique_lock lock(mutex_);
    const int pair = meets_++ / 2;
    came_.notify_all();
    came_.wait(lock, [&] { return over_ || meets_ / 2 > pair; });
  }
  // Of a rank that runs no more ops.
  void leave() {
    const std::lock_guard lock(mutex_);
    over_ = true;
    came_.notify_all();
  }
  std::array<int, 2> ops() const { return ops_; }
  int meets() const { return meets_ / 2; }

 private:
  const int held_op_;
  const int until_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::array<int, 2> ops_{};
  int meets_ = 0;  // of both ranks together
  bool over_ = false;
};

class UnevenSubject final : public Subject {
 public:
  UnevenSubject(Uneven& both, int rank) : both_(both), rank_(rank) {}
  Support supports(const Query&) const override { return {}; }
  std::string description() const override { return ""; }
  void run(std::span<const Op> ops, Flight) override {
    if (kind_of(ops.front()) == OpKind::barrier)
      both_.meet();
    else
      both_.run(rank_);
  }

 private:
  Uneven& both_;
  int rank_;
};

enum class Hosts { one, two };

std::unique_ptr<Meeting> make_meeting(Hosts hosts, Store& store, int rank, Duration timeout) {
  if (hosts == Hosts::one) return std::make_unique<SharedPage>(store, rank, 2, timeout);
  return std::make_unique<StoreMeeting>(store, rank, rank, 2, timeout);
}

// One warm op, then 20 that are measured in one block. Returns how many were, or -1: the ranks
// waited for each other.
int measure(Uneven& both, Sync sync, Hosts hosts, Store& store, int rank) {
  const bool waits = sync == Sync::window || sync == Sync::barrier;
  const auto meeting =
      make_meeting(hosts, store, rank, std::chrono::milliseconds(waits ? 300 : 20000));
  Case c;
  c.bytes = 8;
  c.shard = 2;
  Arena input(4096);
  Arena output(4096);
  Buffers buffers(c, rank, 2, 1, 1, input, output);
  UnevenSubject subject(both, rank);
  BlockRunner::Settings settings;
  settings.sync = sync;
  settings.longest_loop = 3600;
  BlockRunner runner(*meeting, subject, buffers, settings);
  int iterations = -1;
  try {
    runner.warm_up(1, 1);
    iterations = static_cast<int>(runner.measure(20, 3600).iters);
  } catch (const DistTimeoutError&) {
  }
  both.leave();
  return iterations;
}

std::array<int, 2> measure_both(Uneven& both, Sync sync, Hosts hosts) {
  const auto store = make_hash_store();
  std::array<int, 2> iterations{};
  std::thread other([&] { iterations[1] = measure(both, sync, hosts, *store, 1); });
  iterations[0] = measure(both, sync, hosts, *store, 0);
  other.join();
  return iterations;
}

// A backend that lets one rank go ahead finds it ahead, and its threads find the CPUs as it left
// them: nothing of the benchmark stands between two ops. The warm-up is 1 op, what a block begins
// with 3; then comes the op in which ranks wake up, which is not counted, and the 20.
TEST(Loop, NoRankWaitsForAnotherBetweenOps) {
  for (const Hosts hosts : {Hosts::one, Hosts::two}) {
    constexpr int kHeld = 1 + 3 + 3;
    Uneven both(kHeld, kHeld + 10);
    EXPECT_EQ(measure_both(both, Sync::loop, hosts), (std::array{20, 20}));
    EXPECT_EQ(both.ops(), (std::array{25, 25}));
  }
}

TEST(Loop, OpsThatComeFromAMeetingWaitForTheLast) {
  for (const Hosts hosts : {Hosts::one, Hosts::two})
    for (const Sync sync : {Sync::window, Sync::barrier}) {
      constexpr int kHeld = 1 + 2 + 3;
      Uneven both(kHeld, kHeld + 10);
      EXPECT_EQ(measure_both(both, sync, hosts)[0], -1) << to_string(sync);
    }
}

// The ops of a loop, each with a barrier before it.
TEST(Loop, OpsFollowABarrierOfTheirBackend) {
  for (const Hosts hosts : {Hosts::one, Hosts::two}) {
    Uneven both(0, 0);
    EXPECT_EQ(measure_both(both, Sync::own, hosts), (std::array{20, 20}));
    EXPECT_EQ(both.ops(), (std::array{25, 25}));
    EXPECT_EQ(both.meets(), 25);
  }
}

constexpr std::uint64_t kSeed = 1;

// An all_reduce of two ranks that knows what both have.
class KnowingSubject final : public Subject {
 public:
  explicit KnowingSubject(const Case& c) : oracle_(c, 2, kSeed), other_(c.bytes / sizeof(float)) {}
  Support supports(const Query&) const override { return {}; }
  std::string description() const override { return ""; }
  void run(std::span<const Op> ops, Flight) override {
    const View& output = std::get<AllReduce>(ops.front()).output;
    auto* const sums = static_cast<float*>(output.data);
    std::fill_n(sums, output.count, 0.0F);
    for (const int rank : {0, 1}) {
      oracle_.fill({other_.data(), output.count, DType::f32}, rank, 0);
      for (std::size_t i = 0; i < output.count; ++i) sums[i] += other_[i];
    }
  }

 private:
  Oracle oracle_;
  std::vector<float> other_;
};

// A block whose time is over is cut after the buffers were made ready for one more op, which in
// place writes over the last result.
TEST(Check, ABlockThatWasCutEndsWithAResult) {
  Case c;
  c.bytes = 64;
  c.shard = 16;
  c.place = Place::in;
  const auto store = make_hash_store();
  std::array<std::uint64_t, 2> iterations{}, wrong{};
  const auto run_rank = [&](int rank) {
    const auto place = static_cast<std::size_t>(rank);
    SharedPage meeting(*store, rank, 2, std::chrono::seconds(20));
    Arena input(4096), output(4096);
    Buffers buffers(c, rank, 2, 1, kSeed, input, output);
    KnowingSubject subject(c);
    BlockRunner::Settings settings;
    settings.sync = Sync::barrier;
    BlockRunner runner(meeting, subject, buffers, settings);
    runner.warm_up(1, 1);
    iterations.at(place) = runner.measure(20, 0).iters;
    wrong.at(place) = runner.check(true).wrong;
  };
  std::thread other(run_rank, 1);
  run_rank(0);
  other.join();
  EXPECT_EQ(iterations, (std::array<std::uint64_t, 2>{3, 3})) << "no time, but so many";
  EXPECT_EQ(wrong, (std::array<std::uint64_t, 2>{}));
}

}}  // namespace c10d::bench
