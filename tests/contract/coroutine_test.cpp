// SPDX-License-Identifier: BSD-3-Clause
// co_await of async ops, with the smallest coroutine type there is.
#include "c10d/coroutine.h"

#include <future>
#include <vector>

#include "tests/contract/ranks.h"

namespace c10d::contract { namespace {

struct Task {
  struct promise_type {
    std::promise<int> result;
    Task get_return_object() { return {result.get_future()}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_value(int value) { result.set_value(value); }
    void unhandled_exception() { result.set_exception(std::current_exception()); }
  };
  std::future<int> result;
  int get() {
    if (result.wait_for(kTimeout) != std::future_status::ready) throw std::runtime_error("late");
    return result.get();
  }
};

Task twice_the_sum(ProcessGroup group, int value) {
  std::vector<int> data{value};
  co_await group.async().all_reduce(data);
  const Work again = group.async().all_reduce(data);
  co_await again;
  co_return data[0];
}

Task count_of_a_message(ProcessGroup group, std::vector<int>& buffer) {
  const Received message = co_await group.irecv(buffer, 0);
  co_return static_cast<int>(message.count);
}

class Coroutine : public OnBackend {};

TEST_P(Coroutine, ContinuesWhenTheOpIsDone) {
  run(2, [](ProcessGroup& group) { EXPECT_EQ(twice_the_sum(group, group.rank() + 1).get(), 6); });
}

TEST_P(Coroutine, GetsWhatARecvGot) {
  run(2, [](ProcessGroup& group) {
    std::vector<int> buffer(5);
    const std::vector message{1, 2, 3};
    if (group.rank() == 0)
      group.send(message, 1);
    else
      EXPECT_EQ(count_of_a_message(group, buffer).get(), 3);
    group.barrier();
  });
}

TEST_P(Coroutine, ThrowsTheFailureOfTheOp) {
  run(2, [](ProcessGroup& group) {
    if (group.rank() == 1) return group.abort("enough");
    EXPECT_EQ(code_of([&] { twice_the_sum(group, 1).get(); }), Code::revoked);
  });
}

C10D_ON_EACH_BACKEND(Coroutine);

}}  // namespace c10d::contract
