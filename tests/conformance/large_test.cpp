// SPDX-License-Identifier: BSD-3-Clause
// More elements than 31 bits count, once per class of op, on two ranks: threads of this process, or
// with --backend=mpi processes that mpirun started. Single bytes and in place where that can be, so
// that both ranks together stay below 12 GiB.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "c10d/init.h"

namespace c10d::conformance { namespace {

constexpr std::size_t kCount = (std::size_t{1} << 31) + 3;
constexpr int kRanks = 2;

constexpr std::size_t kNeededGib = 12;

std::size_t available_gib() {
  std::ifstream facts("/proc/meminfo");
  std::string name, unit;
  std::size_t kib = 0;
  while (facts >> name >> kib && std::getline(facts, unit))
    if (name == "MemAvailable:") return kib >> 20;
  return 0;
}

// Differs between ranks, within a page and from page to page, so that no misplaced run goes unseen.
std::uint8_t value(int rank, std::size_t i) {
  return static_cast<std::uint8_t>(i + (i >> 12) * 5 + (i >> 31) * 7 +
                                   11u * static_cast<unsigned>(rank));
}

void fill(int rank, std::uint8_t* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = value(rank, i);
}

template <class Expected>
void expect(const std::uint8_t* actual, std::size_t count, Expected expected) {
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = 0; i < count; ++i)
    if (actual[i] != expected(i) && wrong++ == 0) first = i;
  EXPECT_EQ(wrong, 0u) << "the first at " << first;
}

using Bytes = std::unique_ptr<std::uint8_t[]>;
Bytes bytes(std::size_t count) { return std::make_unique_for_overwrite<std::uint8_t[]>(count); }

std::string backend = "native";  // --backend=

void run_rank(InitOptions options, const std::function<void(ProcessGroup&)>& body) {
  try {
    ProcessGroup group = init_process_group(std::move(options));
    body(group);
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
}

void on_each_rank(const std::function<void(ProcessGroup&)>& body) {
  if (backend == "mpi") return run_rank({.backend = backend}, body);
  const std::shared_ptr<Store> store = make_hash_store();
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&body, store, rank] {
      run_rank({.backend = backend, .store = store, .rank = rank, .size = kRanks}, body);
    });
}

class Large : public testing::Test {
 protected:
  void SetUp() override {
    const std::size_t available = available_gib();
    if (available < kNeededGib)
      GTEST_SKIP() << "needs " << kNeededGib << " GiB of memory, " << available << " are available";
  }
};

TEST_F(Large, AllReduce) {
  on_each_rank([](ProcessGroup& group) {
    const Bytes data = bytes(kCount);
    fill(group.rank(), data.get(), kCount);
    group.all_reduce(View(data.get(), kCount, DType::u8));
    expect(data.get(), kCount,
           [](std::size_t i) { return static_cast<std::uint8_t>(value(0, i) + value(1, i)); });
  });
}

TEST_F(Large, Broadcast) {
  on_each_rank([](ProcessGroup& group) {
    const Bytes data = bytes(kCount);
    if (group.rank() == 1) fill(1, data.get(), kCount);
    group.broadcast(View(data.get(), kCount, DType::u8), 1);
    expect(data.get(), kCount, [](std::size_t i) { return value(1, i); });
  });
}

TEST_F(Large, AllGather) {
  on_each_rank([](ProcessGroup& group) {
    const Bytes data = bytes(kRanks * kCount);
    std::uint8_t* const own = data.get() + static_cast<std::size_t>(group.rank()) * kCount;
    fill(group.rank(), own, kCount);
    group.all_gather(View(data.get(), kRanks * kCount, DType::u8),
                     ConstView(own, kCount, DType::u8));
    for (int rank = 0; rank < kRanks; ++rank)
      expect(data.get() + static_cast<std::size_t>(rank) * kCount, kCount,
             [rank](std::size_t i) { return value(rank, i); });
  });
}

TEST_F(Large, ReduceScatter) {
  on_each_rank([](ProcessGroup& group) {
    const Bytes data = bytes(kRanks * kCount);
    const std::size_t first = static_cast<std::size_t>(group.rank()) * kCount;
    fill(group.rank(), data.get(), kRanks * kCount);
    group.reduce_scatter(View(data.get() + first, kCount, DType::u8),
                         ConstView(data.get(), kRanks * kCount, DType::u8), ReduceOp::max);
    expect(data.get() + first, kCount,
           [first](std::size_t i) { return std::max(value(0, first + i), value(1, first + i)); });
  });
}

TEST_F(Large, AllToAll) {
  constexpr std::size_t kHalf = kCount / kRanks + 1;
  on_each_rank([](ProcessGroup& group) {
    const Bytes in = bytes(kRanks * kHalf), out = bytes(kRanks * kHalf);
    fill(group.rank(), in.get(), kRanks * kHalf);
    group.all_to_all(View(out.get(), kRanks * kHalf, DType::u8),
                     ConstView(in.get(), kRanks * kHalf, DType::u8));
    const std::size_t first = static_cast<std::size_t>(group.rank()) * kHalf;
    for (int rank = 0; rank < kRanks; ++rank)
      expect(out.get() + static_cast<std::size_t>(rank) * kHalf, kHalf,
             [rank, first](std::size_t i) { return value(rank, first + i); });
  });
}

TEST_F(Large, SendRecv) {
  on_each_rank([](ProcessGroup& group) {
    const Bytes data = bytes(kCount);
    if (group.rank() == 0) {
      fill(0, data.get(), kCount);
      group.send(ConstView(data.get(), kCount, DType::u8), 1);
    } else {
      group.recv(View(data.get(), kCount, DType::u8), 0);
      expect(data.get(), kCount, [](std::size_t i) { return value(0, i); });
    }
  });
}

}}  // namespace c10d::conformance

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view kFlag = "--backend=";
  for (const std::string_view argument : std::span(argv, static_cast<std::size_t>(argc)).subspan(1))
    if (argument.starts_with(kFlag)) c10d::conformance::backend = argument.substr(kFlag.size());
  return RUN_ALL_TESTS();
}
