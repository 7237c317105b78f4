// SPDX-License-Identifier: BSD-3-Clause
#include "tests/hosts/large_ops.h"

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace c10d::hosts {
namespace {

using Data = std::vector<std::int64_t>;

// Of each rank: odd, and with two lanes still four parts of f32, a MiB of each lane.
constexpr std::size_t kBlock = (std::size_t{13} << 20) / sizeof(std::int64_t) + 3;

// What a rank has at a place.
std::int64_t value(int rank, std::size_t place) {
  return static_cast<std::int64_t>((place * 31 + static_cast<std::size_t>(rank) * 977) % 100003);
}

Data values(int rank, std::size_t first, std::size_t count) {
  Data data(count);
  for (std::size_t i = 0; i < count; ++i) data[i] = value(rank, first + i);
  return data;
}

// Exact in f32, too.
template <class T>
std::vector<T> sums(int ranks) {
  std::vector<T> data(kBlock);
  for (int rank = 0; rank < ranks; ++rank)
    for (std::size_t i = 0; i < kBlock; ++i) data[i] += static_cast<T>(value(rank, i));
  return data;
}

Data blocks_of_all(int ranks, std::size_t first) {
  Data data;
  for (int rank = 0; rank < ranks; ++rank) {
    const Data block = values(rank, first, kBlock);
    data.insert(data.end(), block.begin(), block.end());
  }
  return data;
}

template <class T>
void expect(const std::vector<T>& expected, const std::vector<T>& got, const std::string& what) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (got[i] != expected[i])
      throw std::runtime_error(what + ": a wrong result at " + std::to_string(i) + ": " +
                               std::to_string(got[i]) + ", not " + std::to_string(expected[i]));
}

template <class Call>
void finish(Call call) {
  if constexpr (std::is_void_v<decltype(call())>)
    call();
  else
    call().wait();
}

// `ops`: a ProcessGroup or an AsyncGroup.
template <class T, class Ops>
void check_reductions(const ProcessGroup& group, const Ops& ops) {
  const int rank = group.rank(), ranks = group.size(), last = ranks - 1;
  const Data values_of_rank = values(rank, 0, kBlock);
  const std::vector<T> input(values_of_rank.begin(), values_of_rank.end());
  std::vector<T> output(kBlock);
  finish([&] { return ops.all_reduce(output, input); });
  expect(sums<T>(ranks), output, "all_reduce");
  output = input;
  finish([&] { return ops.all_reduce(output); });
  expect(sums<T>(ranks), output, "all_reduce in place");
  output.assign(kBlock, 0);
  finish([&] { return ops.reduce(output, input, last); });
  if (rank == last) expect(sums<T>(ranks), output, "reduce");
}

template <class Ops>
void check(const ProcessGroup& group, const Ops& ops) {
  check_reductions<std::int64_t>(group, ops);
  check_reductions<float>(group, ops);
  const int rank = group.rank(), ranks = group.size(), last = ranks - 1;
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t own = static_cast<std::size_t>(rank) * kBlock;
  const Data input = values(rank, 0, kBlock);

  Data output(kBlock);
  finish([&] { return ops.broadcast(output, input, last); });
  expect(values(last, 0, kBlock), output, "broadcast");
  Data all(n * kBlock);
  finish([&] { return ops.all_gather(all, input); });
  expect(blocks_of_all(ranks, 0), all, "all_gather");
  all.assign(all.size(), 0);
  finish([&] { return ops.gather(all, input, last); });
  if (rank == last) expect(blocks_of_all(ranks, 0), all, "gather");
  const Data given = values(rank, 0, n * kBlock);
  finish([&] { return ops.scatter(output, given, last); });
  expect(values(last, own, kBlock), output, "scatter");
  finish([&] { return ops.all_to_all(all, given); });
  expect(blocks_of_all(ranks, own), all, "all_to_all");
}

}  // namespace

void check_large_ops(const ProcessGroup& group) {
  check(group, group);
  check(group, group.async());
}

}  // namespace c10d::hosts
