// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fault/reuse.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "c10d/error.h"

namespace c10d::fault {
namespace {

using std::chrono::steady_clock;

constexpr int kOverwritten = 0xee;
constexpr std::size_t kMedium = std::size_t{64} << 10;  // bytes: mpi calls blocking collectives
constexpr std::size_t kLarge = std::size_t{1} << 20;    // mpi polls

enum class Kind { send, isend, broadcast, all_gather, all_reduce, reduce };

struct Row {
  const char* name;
  Kind kind;
  DType dtype;
  std::size_t bytes;
  int aborter;
};
constexpr std::array kRows = {
    Row{"send", Kind::send, DType::f32, kMedium, 2},
    Row{"isend", Kind::isend, DType::f32, kMedium, 2},
    Row{"broadcast", Kind::broadcast, DType::f32, kMedium, 2},
    Row{"large broadcast", Kind::broadcast, DType::f32, kLarge, 2},
    Row{"all_gather", Kind::all_gather, DType::f32, kMedium, 2},
    Row{"large all_gather", Kind::all_gather, DType::f32, kLarge, 2},
    Row{"all_reduce", Kind::all_reduce, DType::f32, kMedium, 2},
    Row{"large all_reduce", Kind::all_reduce, DType::f32, kLarge, 2},
    Row{"all_reduce of f16", Kind::all_reduce, DType::f16, kMedium, 2},
    Row{"reduce of f16", Kind::reduce, DType::f16, 120, 0},
};

// (rank + 1) * 2^(op % 8), whose sum over the ranks is exact.
template <class T>
T value(int rank, int op) {
  static_assert(kReuseRanks == 3);
  constexpr std::array<float, 4> kOfRank = {1, 2, 3, 6};  // the last one is the sum
  constexpr std::array<std::uint16_t, 4> kOfRankAsF16 = {0x3c00, 0x4000, 0x4200, 0x4600};
  const auto place = static_cast<std::size_t>(rank);
  if constexpr (std::is_same_v<T, float>)
    return kOfRank[place] * static_cast<float>(1 << op % 8);
  else
    return static_cast<T>(kOfRankAsF16[place] + (op % 8 << 10));
}
constexpr int kSum = kReuseRanks;  // as a rank

// What a wrapped library may still work on when an op failed is never freed.
std::byte* memory(std::size_t bytes) {
  static std::deque<std::vector<std::byte>> all;
  return all.emplace_back(bytes).data();
}

class OpsOfRow {
 public:
  OpsOfRow(ProcessGroup group, const Row& row)
      : group_(std::move(group)),
        row_(row),
        input_(memory(row.bytes)),
        output_(memory(row.bytes * kReuseRanks)) {}

  // The number of ops that went well before the one that failed.
  int run(unsigned seed) {
    std::jthread aborting;
    if (group_.rank() == row_.aborter) aborting = std::jthread([this, seed] { abort_soon(seed); });
    int op = 0;
    std::string wrong;
    try {
      for (; wrong.empty(); ++op)
        wrong = row_.dtype == DType::f32 ? one<float>(op) : one<std::uint16_t>(op);
    } catch (const DistError& error) {
      std::memset(input_, kOverwritten, row_.bytes);
      if (error.code() != Code::revoked) wrong = error.what();
    }
    if (!wrong.empty())
      throw std::runtime_error(std::string(row_.name) + ", op " + std::to_string(op) + ": " +
                               wrong);
    return op;
  }

 private:
  void abort_soon(unsigned seed) const {
    std::mt19937 random(seed);
    const auto end = steady_clock::now() + std::chrono::microseconds(random() % 1000);
    while (steady_clock::now() < end) std::this_thread::yield();
    group_.abort("in the middle");
  }

  template <class T>
  std::string one(int op) {
    const int rank = group_.rank();
    const std::size_t count = row_.bytes / sizeof(T);
    auto* const input = reinterpret_cast<T*>(input_);
    std::fill_n(input, count, value<T>(rank, op));
    const ConstView in(input_, count, row_.dtype);
    const View out(output_, count, row_.dtype);
    switch (row_.kind) {
      case Kind::send:
      case Kind::isend:
        return message<T>(op, in, out, row_.kind == Kind::isend);
      case Kind::broadcast:
        group_.submit(Broadcast{rank == 0 ? View(input_, count, row_.dtype) : out, in, 0});
        return rank == 0 ? "" : differs<T>(0, count, value<T>(0, op));
      case Kind::all_gather: {
        group_.submit(AllGather{View(output_, count * kReuseRanks, row_.dtype), in});
        for (int peer = 0; peer < kReuseRanks; ++peer) {
          std::string wrong =
              differs<T>(count * static_cast<std::size_t>(peer), count, value<T>(peer, op));
          if (!wrong.empty()) return "from rank " + std::to_string(peer) + ": " + wrong;
        }
        return {};
      }
      case Kind::all_reduce:
        group_.submit(AllReduce{out, in, ReduceOp::sum});
        return differs<T>(0, count, value<T>(kSum, op));
      default:
        group_.submit(Reduce{out, in, ReduceOp::sum, 1});
        return rank == 1 ? differs<T>(0, count, value<T>(kSum, op)) : "";
    }
  }

  // Who neither sends nor receives waits for the failure in a message of its own.
  template <class T>
  std::string message(int op, ConstView in, View out, bool async) {
    const int rank = group_.rank();
    if (rank == 0) {
      async ? group_.isend(in, 1).wait() : group_.send(in, 1);
      return {};
    }
    const int from = rank == 1 ? 0 : 1;
    if (async)
      group_.irecv(out, from).wait();
    else
      group_.recv(out, from);
    return differs<T>(0, out.count, value<T>(from, op));
  }

  template <class T>
  std::string differs(std::size_t first, std::size_t count, T expected) const {
    const auto* const output = reinterpret_cast<const T*>(output_) + first;
    for (std::size_t i = 0; i < count; ++i)
      if (output[i] != expected)
        return "element " + std::to_string(i) + " is " + std::to_string(output[i]) + " and not " +
               std::to_string(expected) + ", and nobody was told";
    return {};
  }

  ProcessGroup group_;
  const Row& row_;
  std::byte* const input_;
  std::byte* const output_;
};

}  // namespace

std::string reuse_after_failures(ProcessGroup& world, int rounds) {
  int ops = 0;
  for (int round = 0; round < rounds; ++round)
    ops += OpsOfRow(world.new_group({0, 1, 2}, "reuse" + std::to_string(round)),
                    kRows[static_cast<std::size_t>(round) % kRows.size()])
               .run(static_cast<unsigned>(round));
  return std::to_string(rounds) + " rounds, " + std::to_string(ops) + " ops were right";
}

}  // namespace c10d::fault
