// SPDX-License-Identifier: BSD-3-Clause
// What 8 B from one rank to another take without a library, each rank on a CPU of its own:
//   flag_one_way   the sender runs ahead, by up to 16 messages, as a rank of MPI does
//   flag_each_way  neither goes on before it has seen the other's flag, as ranks of native, which
//                  agree on each call (docs/internals/peers.md)
// A message is one cache line: its number and 8 B. The time is that of one message or exchange.
#include <benchmark/benchmark.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>

#include "src/backends/native/team/own_cpu.h"
#include "src/sync/wait.h"

namespace {

using c10d::pause_cpu;
using c10d::native::OwnCpu;

constexpr std::uint64_t kAhead = 16;
constexpr std::uint64_t kEnd = ~std::uint64_t{0};  // in place of a number

struct alignas(64) Line {
  std::atomic<std::uint64_t> number{0};
  std::atomic<std::uint64_t> data{0};

  void put(std::uint64_t next) noexcept {
    data.store(next, std::memory_order_relaxed);
    number.store(next, std::memory_order_release);
  }
  // False: it is the end.
  bool await(std::uint64_t least) const noexcept {
    std::uint64_t seen;
    while ((seen = number.load(std::memory_order_acquire)) < least) pause_cpu();
    benchmark::DoNotOptimize(data.load(std::memory_order_relaxed));
    return seen != kEnd;
  }
};

// Calls op(number) while it measures, then end(number), beside a thread that runs `peer`.
template <class Peer, class Op, class End>
void measure(benchmark::State& state, Peer peer, Op op, End end) {
  if (std::thread::hardware_concurrency() < 2) return state.SkipWithError("needs two CPUs");
  const std::jthread other([&] {
    const OwnCpu own(1);
    peer();
  });
  const OwnCpu own(0);  // a thread that is started later would share it
  std::uint64_t number = 0;
  for (auto _ : state) op(++number);
  end(++number);
}

void flag_one_way(benchmark::State& state) {
  std::array<Line, kAhead> lines;
  Line taken;
  const auto free_line = [&](std::uint64_t number) -> Line& {
    if (number > kAhead) taken.await(number - kAhead);
    return lines[number % kAhead];
  };
  measure(
      state,
      [&] {
        for (std::uint64_t number = 1; lines[number % kAhead].await(number); ++number)
          if (number % (kAhead / 2) == 0) taken.put(number);
      },
      [&](std::uint64_t number) { free_line(number).put(number); },
      [&](std::uint64_t number) { free_line(number).put(kEnd); });
}
BENCHMARK(flag_one_way);

void flag_each_way(benchmark::State& state) {
  Line there, back;
  measure(
      state,
      [&] {
        std::uint64_t number = 0;
        do back.put(++number);
        while (there.await(number));
      },
      [&](std::uint64_t number) {
        there.put(number);
        back.await(number);
      },
      [&](std::uint64_t) { there.put(kEnd); });
}
BENCHMARK(flag_each_way);

}  // namespace
