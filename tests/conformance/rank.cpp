// SPDX-License-Identifier: BSD-3-Clause
#include "tests/conformance/rank.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>
#include <span>
#include <utility>

#include "c10d/error.h"
#include "tests/conformance/shape.h"

namespace c10d::conformance {
namespace {

constexpr std::size_t kAllocated = std::size_t{2} << 20;
constexpr std::size_t kFailuresKept = 20;

std::uint64_t hash_of(const std::byte* data, std::size_t bytes) {
  std::uint64_t hash = mix(bytes);
  while (bytes != 0) {
    const std::size_t some = bytes < 8 ? bytes : 8;
    std::uint64_t word = 0;
    std::memcpy(&word, data, some);
    hash = (hash ^ word) * 0x100000001b3 + (hash >> 29);
    data += some;
    bytes -= some;
  }
  return hash | 1;
}

// The op through the member function of its name.
Work call(ProcessGroup& group, const Case& c, const Shape& shape, Tensor out, ConstTensor in,
          CallOptions options) {
  const int root = static_cast<int>(c.root % static_cast<std::uint32_t>(group.size()));
  const ReduceOp op = c.numbers.op;
  const auto& counts = shape.counts;
  // clang-format off
  switch (c.op) {
    case OpKind::all_reduce:
      if (c.in_place) return group.all_reduce(out, op, options);
      return group.all_reduce(out, in, op, options);
    case OpKind::broadcast:
      if (c.in_place) return group.broadcast(out, root, options);
      return group.broadcast(out, in, root, options);
    case OpKind::all_gather: return group.all_gather(out, in, options);
    case OpKind::all_gather_v: return group.all_gather_v(out, in, counts, options);
    case OpKind::reduce_scatter: return group.reduce_scatter(out, in, op, options);
    case OpKind::reduce_scatter_v: return group.reduce_scatter_v(out, in, counts, op, options);
    case OpKind::reduce: return group.reduce(out, in, root, op, options);
    case OpKind::gather: return group.gather(out, in, root, options);
    case OpKind::gather_v: return group.gather_v(out, in, counts, root, options);
    case OpKind::scatter: return group.scatter(out, in, root, options);
    case OpKind::scatter_v: return group.scatter_v(out, in, counts, root, options);
    case OpKind::all_to_all: return group.all_to_all(out, in, options);
    case OpKind::all_to_all_v:
      return group.all_to_all_v(out, in, shape.output_counts, counts, options);
    case OpKind::barrier: return group.barrier(options);
    case OpKind::send: case OpKind::recv: break;
  }
  // clang-format on
  throw InvalidArgument("not a collective");
}

}  // namespace

void Report::fail(std::string what) {
  if (++failed <= kFailuresKept) failures.push_back(std::move(what));
}

Rank::Rank(ProcessGroup world) : world_(with_memory(std::move(world))) {
  const int n = world_.group.size();
  std::vector<int> backwards(static_cast<std::size_t>(n));
  std::iota(backwards.rbegin(), backwards.rend(), 0);
  reversed_ = with_memory(world_.group.new_group(backwards));
  if (n < 3 || world_.group.rank() == 1) return;
  std::vector<int> all_but_1 = {0};
  for (int r = 2; r < n; ++r) all_but_1.push_back(r);
  subgroup_ = with_memory(world_.group.new_group(all_but_1));
}

Rank::Group Rank::with_memory(ProcessGroup group) {
  Buffer<std::uint8_t> memory = group.allocate<std::uint8_t>(kAllocated);
  return {std::move(group), std::move(memory)};
}

const Buffer<std::uint8_t>* Rank::memory_for(const Case& c, const Group& g) const {
  const bool allocated =
      c.memory == Memory::allocated || (c.memory == Memory::mixed && g.group.rank() % 2 == 1);
  return allocated ? &g.memory : nullptr;
}

Report Rank::run(const std::vector<Case>& cases) {
  report_ = {};
  report_.results.assign(cases.size(), 0);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    try {
      result_ = 0;
      run_case(cases[i]);
      report_.results[i] = result_;
    } catch (const std::exception& error) {
      report_.fail(describe(cases[i]) + ": threw " + error.what());
      world_.group.abort("a conformance case threw");
      break;
    }
  }
  return std::move(report_);
}

void Rank::run_case(const Case& c) {
  Group& g = c.members == Members::world      ? world_
             : c.members == Members::subgroup ? subgroup_
                                              : reversed_;
  if (!g.group) return;
  const Query query{.op = c.op, .dtype = c.numbers.dtype, .reduce_op = c.numbers.op.kind};
  if (const Support support = g.group.supports(query); !support)
    return refuses(c, g.group, support);
  if (c.exchange == Exchange::collective)
    run_collective(c, g);
  else
    run_exchange(c, g);
}

// What supports() denies must fail as unsupported, and leave the group as it was.
void Rank::refuses(const Case& c, ProcessGroup& group, const Support& support) {
  ++report_.skipped[support.reason];
  if (support.reason.empty()) report_.fail(describe(c) + ": unsupported without a reason");
  const Shape shape = shape_of(c, group.rank(), group.size());
  std::vector<std::byte> in(shape.input * size_of(c.numbers.dtype) + 1);
  std::vector<std::byte> out(shape.output * size_of(c.numbers.dtype) + 1);
  Case apart = c;
  apart.in_place = false;
  try {
    call(group, apart, shape, {out.data(), shape.output, c.numbers.dtype},
         {in.data(), shape.input, c.numbers.dtype}, {.async = c.async})
        .wait();
    report_.fail(describe(c) + ": ran, though supports() says: " + support.reason);
  } catch (const DistError& error) {
    if (error.code() != Code::unsupported)
      report_.fail(describe(c) + ": not refused as unsupported: " + error.what());
  }
}

void Rank::run_collective(const Case& c, Group& g) {
  const int rank = g.group.rank();
  const DType dtype = c.numbers.dtype;
  const std::size_t element = size_of(dtype);
  const Shape shape = shape_of(c, rank, g.group.size());
  const bool in_place = c.in_place && shape.may_be_in_place;
  const std::size_t larger = std::max(shape.input, shape.output);
  buffers_.start(memory_for(c, g), Buffers::needed((shape.input + shape.output) * element, 2));
  std::byte* in = nullptr;
  std::byte* out = nullptr;
  if (in_place) {
    std::byte* whole = buffers_.take(larger * element, c.shift * element);
    in = whole + (shape.input < larger ? shape.place * element : 0);
    out = whole + (shape.output < larger ? shape.place * element : 0);
  } else {
    in = buffers_.take(shape.input * element, c.shift * element);
    out = buffers_.take(shape.output * element, c.shift * element);
  }
  fill(c.numbers, rank, 0, in, shape.input);

  // Ranks that neither give nor take data pass no buffer.
  const bool idle_in = shape.input == 0 && shape.output != 0;
  const bool idle_out = shape.output == 0 && shape.input != 0;
  const bool rooted = c.op == OpKind::broadcast || c.op == OpKind::reduce ||
                      c.op == OpKind::gather || c.op == OpKind::scatter;
  const ConstTensor input = rooted && idle_in ? ConstTensor{} : ConstTensor(in, shape.input, dtype);
  const Tensor output = rooted && idle_out ? Tensor{} : Tensor(out, shape.output, dtype);
  call(g.group, c, shape, output, input, {.async = c.async}).wait();

  expected_.resize(larger * element);
  std::byte* to = expected_.data();
  for (const Piece& piece : shape.expected) {
    if (piece.source == kEveryRank)
      fill_reduced(c.numbers, g.group.size(), piece.first, to, piece.count);
    else
      fill(c.numbers, piece.source, piece.first, to, piece.count);
    to += piece.count * element;
  }
  check(c, difference(dtype, expected_.data(), out, shape.output));
  if (shape.same_on_all_ranks) result_ = hash_of(out, shape.output * element);
  if (!in_place) {
    fill(c.numbers, rank, 0, expected_.data(), shape.input);
    if (!std::equal(in, in + shape.input * element, expected_.data()))
      report_.fail(describe(c) + ": the input changed");
  }
  if (!buffers_.intact()) report_.fail(describe(c) + ": wrote outside of the output");
  ++report_.checked;
}

void Rank::check(const Case& c, const std::string& difference) {
  if (!difference.empty())
    report_.fail(describe(c) + ": rank " + std::to_string(world_.group.rank()) + ": " + difference);
}

}  // namespace c10d::conformance
