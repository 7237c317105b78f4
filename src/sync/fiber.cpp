// SPDX-License-Identifier: BSD-3-Clause
#include "src/sync/fiber.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "c10d/error.h"
#include "src/base/check.h"
#include "src/base/mutex.h"
#include "src/net/socket.h"

#if defined(__SANITIZE_ADDRESS__)
#define C10D_ASAN_FIBERS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define C10D_ASAN_FIBERS 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define C10D_TSAN_FIBERS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define C10D_TSAN_FIBERS 1
#endif
#endif
#if defined(C10D_ASAN_FIBERS)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(C10D_TSAN_FIBERS)
#include <sanitizer/tsan_interface.h>
#endif

namespace c10d { inline namespace v0 {
namespace {

// Committed by the kernel page by page as it is used; sanitizers need much more of it.
#if defined(C10D_ASAN_FIBERS) || defined(C10D_TSAN_FIBERS)
constexpr std::size_t kStackBytes = std::size_t{1} << 20;
#else
constexpr std::size_t kStackBytes = std::size_t{256} << 10;
#endif
constexpr std::size_t kPooledStacks = 16;

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

// With an inaccessible page below, so that an overflow is a fault and not a corruption.
struct Stack {
  std::byte* base = nullptr;
  std::byte* usable() const { return base + page_bytes(); }
};

class StackPool {
 public:
  StackPool() { free_.reserve(kPooledStacks); }  // give_back() must not fail
  Stack take() {
    {
      MutexLock lock(mutex_);
      if (!free_.empty()) {
        const Stack stack = free_.back();
        free_.pop_back();
        return stack;
      }
    }
    void* base = mmap(nullptr, kStackBytes + page_bytes(), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (base == MAP_FAILED || mprotect(base, page_bytes(), PROT_NONE) != 0) {
      const int error = errno;
      if (base != MAP_FAILED) munmap(base, kStackBytes + page_bytes());
      throw_failure({.code = Code::out_of_resources,
                     .message = fmt::format("no memory for a stack of {} bytes: {}", kStackBytes,
                                            error_text(error))});
    }
    return {static_cast<std::byte*>(base)};
  }
  void give_back(Stack stack) {
#if defined(C10D_ASAN_FIBERS)
    // Frames that were left for good keep their red zones in the shadow memory.
    __asan_unpoison_memory_region(stack.usable(), kStackBytes);
#endif
    MutexLock lock(mutex_);
    if (free_.size() < kPooledStacks)
      free_.push_back(stack);
    else
      munmap(stack.base, kStackBytes + page_bytes());
  }

 private:
  Mutex mutex_;
  std::vector<Stack> free_ C10D_GUARDED_BY(mutex_);
};

// Lives until the process ends: the progress thread may still return a stack then.
StackPool& stack_pool() {
  static StackPool& pool = *new StackPool;
  return pool;
}

}  // namespace

struct Fiber::State {
  std::function<void()> body;
  Stack stack;
  ucontext_t own{};
  ucontext_t resumer{};
  bool takes_turns = false;
  Poll last = Poll::busy;
#if defined(C10D_ASAN_FIBERS)
  void* own_fake_stack = nullptr;
  void* resumer_fake_stack = nullptr;
  const void* resumer_stack = nullptr;
  std::size_t resumer_stack_bytes = 0;
#endif
#if defined(C10D_TSAN_FIBERS)
  void* tsan_own = nullptr;
  void* tsan_resumer = nullptr;
#endif

  static thread_local State* current;
  static void entry(unsigned high, unsigned low);
  void entered();  // on the fiber's stack, after every switch to it
  void enter();    // on the resumer's stack
  void leave(Poll seen);
};

thread_local Fiber::State* Fiber::State::current = nullptr;

void Fiber::State::entered() {
#if defined(C10D_ASAN_FIBERS)
  __sanitizer_finish_switch_fiber(own_fake_stack, &resumer_stack, &resumer_stack_bytes);
#endif
}

void Fiber::State::enter() {
#if defined(C10D_ASAN_FIBERS)
  __sanitizer_start_switch_fiber(&resumer_fake_stack, stack.usable(), kStackBytes);
#endif
#if defined(C10D_TSAN_FIBERS)
  tsan_resumer = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_own, 0);
#endif
  swapcontext(&resumer, &own);
#if defined(C10D_ASAN_FIBERS)
  __sanitizer_finish_switch_fiber(resumer_fake_stack, nullptr, nullptr);
#endif
}

void Fiber::State::leave(Poll seen) {
  last = seen;
#if defined(C10D_ASAN_FIBERS)
  // Null at the end: the fake stack goes with the fiber.
  __sanitizer_start_switch_fiber(seen == Poll::done ? nullptr : &own_fake_stack, resumer_stack,
                                 resumer_stack_bytes);
#endif
#if defined(C10D_TSAN_FIBERS)
  __tsan_switch_to_fiber(tsan_resumer, 0);
#endif
  swapcontext(&own, &resumer);
  entered();
}

// makecontext passes ints only.
void Fiber::State::entry(unsigned high, unsigned low) {
  auto* state =
      reinterpret_cast<State*>(static_cast<std::uintptr_t>(high) << 32 | std::uintptr_t{low});
  state->entered();
  state->body();
  state->body = nullptr;  // what it captured goes here, not on the thread that drops the fiber
  state->leave(Poll::done);
}

Fiber::Fiber(std::function<void()> body, bool takes_turns) : state_(std::make_unique<State>()) {
  state_->takes_turns = takes_turns;
  state_->body = std::move(body);
  state_->stack = stack_pool().take();
  getcontext(&state_->own);
  // As in every thread of the library, see start_thread(). But for faults: the thread may be one of
  // the program's, which handles them.
  sigfillset(&state_->own.uc_sigmask);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP})
    sigdelset(&state_->own.uc_sigmask, fault);
  state_->own.uc_stack.ss_sp = state_->stack.usable();
  state_->own.uc_stack.ss_size = kStackBytes;
  const auto address = reinterpret_cast<std::uintptr_t>(state_.get());
  makecontext(&state_->own, reinterpret_cast<void (*)()>(State::entry), 2,
              static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
#if defined(C10D_TSAN_FIBERS)
  state_->tsan_own = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(C10D_TSAN_FIBERS)
  __tsan_destroy_fiber(state_->tsan_own);
#endif
  stack_pool().give_back(state_->stack);
}

Poll Fiber::resume() {
  C10D_CHECK(state_->last != Poll::done);
  State* const outer = std::exchange(State::current, state_.get());
  state_->enter();
  State::current = outer;
  return state_->last;
}

bool Fiber::running() noexcept { return State::current != nullptr; }

bool Fiber::takes_turns() noexcept { return running() && State::current->takes_turns; }

void Fiber::yield(Poll seen) { State::current->leave(seen); }

void run_fiber(std::function<void()> body) {
  add_progress([fiber = std::make_shared<Fiber>(std::move(body))] { return fiber->resume(); });
}

void run_in_turns(std::function<void()> first, std::function<void()> second,
                  const std::function<void(int rests)>& rest) {
  std::array<Fiber, 2> fibers{Fiber(std::move(first), true), Fiber(std::move(second), true)};
  std::array seen{Poll::busy, Poll::busy};
  const auto is_done = [](Poll poll) { return poll == Poll::done; };
  for (int rests = 0; !std::ranges::all_of(seen, is_done);) {
    bool moved = false;
    for (std::size_t i = 0; i < fibers.size(); ++i) {
      if (is_done(seen[i])) continue;
      seen[i] = fibers[i].resume();
      moved |= seen[i] != Poll::idle;
    }
    if (!moved) {
      rest(rests++);
      continue;
    }
    rests = 0;
    if (Fiber::running()) Fiber::yield(Poll::busy);  // to what else its thread has to do
  }
}

}}  // namespace c10d::v0
