// SPDX-License-Identifier: BSD-3-Clause
#include "bench/meeting/shared_page.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

#include "c10d/error.h"

namespace c10d::bench {

struct SharedPage::Layout {
  alignas(128) std::atomic<std::uint32_t> arrived;
  alignas(128) std::atomic<std::uint32_t> generation;
  std::atomic<bool> early;  // of the barrier that ended last
  alignas(128) std::atomic<std::uint32_t> awake;
  alignas(128) std::atomic<std::uint32_t> ready;
  alignas(128) std::atomic<std::int64_t> start_at;
  alignas(128) std::atomic<std::uint32_t> ping;
  alignas(128) std::atomic<std::uint32_t> pong;
  struct alignas(128) Slots {
    std::atomic<std::int64_t> value;  // of this rank, for sum() and from_root()
    std::atomic<int> cpu;             // where this rank woke up
    std::atomic<std::uint32_t> came;  // number of the barrier that this rank has entered
    cpu_set_t allowed;                // CPUs that this rank may use, before it was bound
  };
  Slots* slots() noexcept { return reinterpret_cast<Slots*>(this + 1); }
  Times* times(int size, int rank) noexcept {
    return reinterpret_cast<Times*>(slots() + size) +
           static_cast<std::uint64_t>(rank) * kMaxIterations;
  }
};

namespace {

static_assert(std::atomic<std::int64_t>::is_always_lock_free);

void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

[[noreturn]] void throw_system(const char* what) {
  throw_failure({Code::out_of_resources, fmt::format("{} for the benchmark's shared page: {}", what,
                                                     std::strerror(errno))});
}

}  // namespace

SharedPage::SharedPage(Store& store, int rank, int size, Duration timeout)
    : Meeting(rank, size, timeout) {
  bytes_ = sizeof(Layout) + static_cast<std::size_t>(size) * sizeof(Layout::Slots) +
           static_cast<std::size_t>(size) * kMaxIterations * sizeof(Times);
  int fd = -1;
  if (rank == 0) {
    // Memory without a name: the others open it through this process, and nothing outlives the
    // ranks.
    fd = memfd_create("c10d-bench", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes_)) != 0) throw_system("no memory");
    store.set("page", fmt::format("/proc/{}/fd/{}", getpid(), fd));
  } else {
    const std::string path = store.get("page", timeout);
    fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) throw_system(fmt::format("cannot open {}", path).c_str());
  }
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) throw_system("cannot map memory");
  page_ = static_cast<Layout*>(memory);
  page_->slots()[rank].allowed = cpus_;
  store.barrier("page/mapped", size, timeout);
  close(fd);
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int i = 0; i < size; ++i) CPU_OR(&all, &all, &page_->slots()[i].allowed);
  cpu_count_ = std::max(1, CPU_COUNT(&all));
  oversubscribed_ = size > cpu_count_;
}

SharedPage::~SharedPage() { munmap(page_, bytes_); }

void SharedPage::throw_missing(std::uint32_t generation) const {
  std::vector<int> missing;
  for (int rank = 0; rank < size_; ++rank)
    if (page_->slots()[rank].came.load() != generation + 1) missing.push_back(rank);
  Meeting::throw_missing(missing);
}

bool SharedPage::barrier(std::int64_t in_time) {
  const std::uint32_t generation = page_->generation.load(std::memory_order_acquire);
  page_->slots()[rank_].came.store(generation + 1, std::memory_order_relaxed);
  if (page_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 ==
      static_cast<std::uint32_t>(size_)) {
    const bool early = now() < in_time;
    page_->early.store(early, std::memory_order_relaxed);
    page_->arrived.store(0, std::memory_order_relaxed);
    page_->generation.store(generation + 1, std::memory_order_release);
    syscall(SYS_futex, &page_->generation, FUTEX_WAKE, size_, nullptr, nullptr, 0);
    return early;
  }
  const std::int64_t deadline = now() + timeout_.count();
  while (page_->generation.load(std::memory_order_acquire) == generation) {
    const std::int64_t left = deadline - now();
    if (left <= 0) throw_missing(generation);
    const timespec wait{left / 1'000'000'000, left % 1'000'000'000};
    syscall(SYS_futex, &page_->generation, FUTEX_WAIT, generation, &wait, nullptr, 0);
  }
  return page_->early.load(std::memory_order_relaxed);
}

template <class F>
void SharedPage::spin_until(F&& condition) {
  constexpr std::int64_t kPatience = 20'000;  // ns: then somebody else may need this CPU
  const std::int64_t start = now();
  while (!condition()) {
    relax();
    const std::int64_t waited = now() - start;
    if (waited > kPatience) sched_yield();
    if (waited > timeout_.count()) throw_missing(page_->generation.load());
  }
}

// A rank that is woken may find itself on the CPU of the rank that woke it, and stay there on a
// busy machine: both would then take turns, and a backend that spins would cost whole time slices.
// So the higher rank goes elsewhere. It is not bound: what happens during the op is up to the
// kernel and the backend.
void SharedPage::leave_shared_cpu() noexcept {
  const int mine = page_->slots()[rank_].cpu.load();
  cpu_set_t free = cpus_;
  bool shared = false;
  for (int rank = 0; rank < rank_; ++rank) {
    const int cpu = page_->slots()[rank].cpu.load();
    shared = shared || cpu == mine;
    if (cpu >= 0) CPU_CLR(static_cast<std::size_t>(cpu), &free);
  }
  if (!shared || CPU_COUNT(&free) == 0) return;
  if (sched_setaffinity(0, sizeof free, &free) == 0) sched_setaffinity(0, sizeof cpus_, &cpus_);
}

bool SharedPage::wake(std::int64_t in_time) {
  const bool early = barrier(in_time);
  if (oversubscribed_ || size_ == 1) return early;
  const std::uint32_t all = ++wakes_ * static_cast<std::uint32_t>(size_);
  page_->slots()[rank_].cpu.store(sched_getcpu(), std::memory_order_relaxed);
  page_->awake.fetch_add(1, std::memory_order_acq_rel);
  spin_until([&] { return page_->awake.load(std::memory_order_acquire) == all; });
  return early;
}

bool SharedPage::meet(std::int64_t in_time) {
  const bool early = wake(in_time);
  if (oversubscribed_ || size_ == 1) return early;
  leave_shared_cpu();
  const std::uint32_t all = ++starts_ * static_cast<std::uint32_t>(size_);
  constexpr std::int64_t kLead = 1000;  // ns: enough for the other ranks to read the time
  const std::int64_t before = page_->start_at.load(std::memory_order_acquire);
  if (page_->ready.fetch_add(1, std::memory_order_acq_rel) + 1 == all)
    page_->start_at.store(now() + kLead, std::memory_order_release);
  std::int64_t start = 0;
  spin_until([&] { return (start = page_->start_at.load(std::memory_order_acquire)) != before; });
  while (now() < start) relax();
  return early;
}

void SharedPage::record(std::uint64_t iteration, Times times) noexcept {
  page_->times(size_, rank_)[iteration] = times;
}

std::span<const SharedPage::Times> SharedPage::times(int rank,
                                                     std::uint64_t iterations) const noexcept {
  return {page_->times(size_, rank), iterations};
}

std::int64_t SharedPage::sum(std::int64_t value) {
  page_->slots()[rank_].value.store(value);
  barrier();
  std::uint64_t total = 0;
  for (int rank = 0; rank < size_; ++rank)
    total += static_cast<std::uint64_t>(page_->slots()[rank].value.load());
  barrier();
  return static_cast<std::int64_t>(total);
}

std::int64_t SharedPage::from_root(std::int64_t value) {
  page_->slots()[rank_].value.store(value);
  barrier();
  const std::int64_t result = page_->slots()[0].value.load();
  barrier();
  return result;
}

double SharedPage::round_trip(int rounds) {
  if (rank_ > 1 || size_ < 2 || oversubscribed_) return 0;
  constexpr std::uint32_t kEnd = UINT32_MAX;
  constexpr std::int64_t kLongest = 2'000'000;  // ns in all: on a busy machine few rounds must do
  if (rank_ == 1) {
    std::uint32_t last = 0;
    while (last != kEnd) {
      std::uint32_t value = last;
      spin_until([&] { return (value = page_->ping.load(std::memory_order_acquire)) != last; });
      page_->pong.store(last = value, std::memory_order_release);
    }
    page_->ping.store(0, std::memory_order_release);
    return 0;
  }
  std::vector<std::int64_t> times;
  const std::int64_t begin = now();
  const auto bounce = [&](std::uint32_t value) {
    page_->ping.store(value, std::memory_order_release);
    spin_until([&] { return page_->pong.load(std::memory_order_acquire) == value; });
  };
  for (std::int64_t start = begin;
       times.size() < static_cast<std::size_t>(rounds) && start - begin < kLongest;) {
    bounce(static_cast<std::uint32_t>(times.size()) + 1);
    const std::int64_t end = now();
    times.push_back(end - start);
    start = end;
  }
  bounce(kEnd);
  spin_until([&] { return page_->ping.load(std::memory_order_acquire) == 0; });
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return static_cast<double>(*middle) * 1e-3;
}

}  // namespace c10d::bench
