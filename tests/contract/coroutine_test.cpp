// SPDX-License-Identifier: BSD-3-Clause
// co_await of async ops, with the smallest coroutine type there is.
#include "c10d/coroutine.h"

#include <exception>
#include <future>
#include <utility>
#include <vector>

#include "tests/contract/ranks.h"

namespace c10d::contract { namespace {

// The thread that asks for the result also ends the coroutine: so no exception is let go of by two
// threads at once, which ThreadSanitizer cannot follow into the C++ library.
struct Task {
  struct promise_type {
    int value = 0;
    std::exception_ptr error;
    std::promise<void> finished;

    struct Finish {
      bool await_ready() noexcept { return false; }
      void await_suspend(std::coroutine_handle<promise_type> self) noexcept {
        std::promise<void> word = std::move(self.promise().finished);
        word.set_value();
      }
      void await_resume() noexcept {}
    };
    Task get_return_object() {
      return {finished.get_future(), std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_never initial_suspend() noexcept { return {}; }
    Finish final_suspend() noexcept { return {}; }
    void return_value(int result) { value = result; }
    void unhandled_exception() { error = std::current_exception(); }
  };
  std::future<void> finished;
  std::coroutine_handle<promise_type> coroutine;

  int get() {
    if (finished.wait_for(kTimeout) != std::future_status::ready) throw std::runtime_error("late");
    const int value = coroutine.promise().value;
    const std::exception_ptr error = coroutine.promise().error;
    coroutine.destroy();
    if (error) std::rethrow_exception(error);
    return value;
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
