// SPDX-License-Identifier: BSD-3-Clause
// WaitHook: "a wait of this thread that takes longer than kLookPeriod calls look about that often.
// When it returns true a wait for a store throws revoked; an op goes on" until look() aborts it.
#include "c10d/wait_hook.h"

#include <atomic>
#include <string>
#include <vector>

#include "tests/contract/ranks.h"

namespace c10d::contract { namespace {

// Counts its looks, and ends the wait at the third.
struct Look {
  const ProcessGroup* group = nullptr;
  int looks = 0;

  static bool look(void* self) {
    auto& state = *static_cast<Look*>(self);
    if (++state.looks < 3) return false;
    if (state.group != nullptr) state.group->abort("somebody pressed the button");
    return true;
  }
};

TEST(WaitHook, EndsTheWaitForAStore) {
  const auto store = make_hash_store();
  Look state;
  const WaitHook hook(&Look::look, &state);
  EXPECT_EQ(code_of([&] { store->get("never"); }), Code::revoked);
  EXPECT_EQ(code_of([&] { store->wait({"never"}); }), Code::revoked);
  EXPECT_EQ(state.looks, 4) << "three of the first wait, one of the second";
  store->set("here", "1");
  EXPECT_EQ(store->get("here"), "1");
}

TEST(WaitHook, EndsTheJoiningOfRanks) {
  Look state;
  const WaitHook hook(&Look::look, &state);
  EXPECT_EQ(
      code_of([&] { init_process_group({.store = make_hash_store(), .rank = 0, .size = 2}); }),
      Code::revoked);
  EXPECT_EQ(state.looks, 3);
}

TEST(WaitHook, ATimeoutComesAsWithout) {
  const auto store = make_hash_store();
  int looks = 0;
  const WaitHook hook(
      [](void* count) {
        ++*static_cast<int*>(count);
        return false;
      },
      &looks);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(code_of([&] { store->get("never", 4 * kLookPeriod); }), Code::timed_out);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 4 * kLookPeriod);
  EXPECT_GE(looks, 2);
}

TEST(WaitHook, IsThatOfTheInnermost) {
  const auto store = make_hash_store();
  Look outer, inner;
  const WaitHook first(&Look::look, &outer);
  {
    const WaitHook second(&Look::look, &inner);
    EXPECT_EQ(code_of([&] { store->get("never"); }), Code::revoked);
  }
  EXPECT_EQ(outer.looks, 0);
  EXPECT_EQ(code_of([&] { store->get("never"); }), Code::revoked);
  EXPECT_EQ(outer.looks, 3);
}

// Rank 0 waits for the other one, which comes when it hears of the abort.
void wait_alone(const std::function<void(ProcessGroup&)>& wait) {
  std::atomic<bool> ended = false;
  run_ranks("native", 2, [&](ProcessGroup& group) {
    if (group.rank() == 0) {
      Look state{.group = &group};
      const WaitHook hook(&Look::look, &state);
      EXPECT_EQ(code_of([&] { wait(group); }), Code::revoked);
      EXPECT_EQ(state.looks, 3);
      ended = true;
      ended.notify_one();
    } else {
      ended.wait(false);
      const Failure failure = failure_of([&] { group.barrier(); });
      EXPECT_NE(failure.message.find("pressed the button"), std::string::npos) << failure.message;
    }
  });
}

TEST(WaitHook, MayAbortAnOp) {
  std::vector<float> x(4);
  wait_alone([&](ProcessGroup& group) { group.all_reduce(x); });
  wait_alone([&](ProcessGroup& group) { group.recv(x, 1); });
  wait_alone([&](ProcessGroup& group) { group.async().all_reduce(x).wait(); });
  wait_alone([&](ProcessGroup& group) { group.async().recv(x, 1).wait(); });
  wait_alone([&](ProcessGroup& group) { group.probe(1); });
}

}}  // namespace c10d::contract
