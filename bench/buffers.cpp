// SPDX-License-Identifier: BSD-3-Clause
#include "bench/buffers.h"

#include <cstring>

namespace c10d::bench {

Buffers::Buffers(const Case& c, int rank, int size, int window, std::uint64_t seed, Arena& input,
                 Arena& output)
    : case_(c),
      rank_(rank),
      size_(size),
      window_(window_of(c, window)),
      oracle_(c, size, seed),
      input_arena_(input),
      output_arena_(output) {
  lay_out_out_of_place();
  if (case_.place == Place::in) lay_out_in_place();
  oracle_.fill(pristine_, rank_, 0);
  make_ops();
  refresh(true);
}

Tensor Buffers::view(Arena& arena, std::uint64_t count) const {
  return count == 0 ? Tensor() : Tensor(arena.data(), count, case_.dtype);
}

void Buffers::lay_out_out_of_place() {
  const std::uint64_t k = case_.shard;
  const std::uint64_t all = k * static_cast<std::uint64_t>(size_);
  std::uint64_t in = k;
  std::uint64_t out = k;
  switch (case_.op) {
    case BenchOp::all_reduce:
      break;
    case BenchOp::broadcast:
      in = is_root() ? k : 0;
      break;
    case BenchOp::reduce:
      out = is_root() ? k : 0;
      break;
    case BenchOp::all_gather:
      out = all;
      break;
    case BenchOp::gather:
      out = is_root() ? all : 0;
      break;
    case BenchOp::reduce_scatter:
      in = all;
      break;
    case BenchOp::scatter:
      in = is_root() ? all : 0;
      break;
    case BenchOp::all_to_all:
      in = out = all;
      break;
    case BenchOp::barrier:
      in = out = 0;
      break;
    case BenchOp::send:
    case BenchOp::isend: {
      const bool paired = (rank_ ^ 1) < size_;
      in = paired ? k : 0;
      out = paired ? k * static_cast<std::uint64_t>(together() ? window_ : 1) : 0;
      break;
    }
  }
  pristine_ = input_ = view(input_arena_, in);
  output_ = view(output_arena_, out);
}

void Buffers::lay_out_in_place() {
  const std::uint64_t k = case_.shard;
  const std::uint64_t mine = k * static_cast<std::uint64_t>(rank_);
  const std::uint64_t longer = std::max(pristine_.count, output_.count);
  const Tensor whole = view(output_arena_, longer);
  switch (case_.op) {
    case BenchOp::all_gather:
      input_ = whole.slice(mine, k);
      break;
    case BenchOp::gather:
      input_ = is_root() ? whole.slice(mine, k) : whole;
      break;
    case BenchOp::reduce_scatter:
      input_ = whole;
      output_ = whole.slice(mine, k);
      break;
    case BenchOp::scatter:
      if (!is_root()) break;
      input_ = whole;
      output_ = whole.slice(mine, k);
      break;
    default:
      if (pristine_.count > 0) input_ = whole;
  }
}

void Buffers::make_ops() {
  const ReduceOp redop = case_.redop == ReduceOp::premul_sum ? ReduceOp::premul(Oracle::kFactor)
                                                             : ReduceOp(case_.redop);
  const int root = case_.root;
  switch (case_.op) {
    case BenchOp::all_reduce:
      ops_.push_back(AllReduce{output_, input_, redop});
      break;
    case BenchOp::broadcast:
      ops_.push_back(Broadcast{output_, input_, root});
      break;
    case BenchOp::all_gather:
      ops_.push_back(AllGather{output_, input_});
      break;
    case BenchOp::reduce_scatter:
      ops_.push_back(ReduceScatter{output_, input_, redop});
      break;
    case BenchOp::reduce:
      ops_.push_back(Reduce{output_, input_, redop, root});
      break;
    case BenchOp::gather:
      ops_.push_back(Gather{output_, input_, root});
      break;
    case BenchOp::scatter:
      ops_.push_back(Scatter{output_, input_, root});
      break;
    case BenchOp::all_to_all:
      ops_.push_back(AllToAll{output_, input_});
      break;
    case BenchOp::barrier:
      ops_.push_back(Barrier{});
      break;
    case BenchOp::send:
      if (input_.count == 0) break;
      ops_.push_back(Send{input_, rank_ ^ 1, 0});
      ops_.push_back(Recv{output_, rank_ ^ 1, 0});
      if (rank_ % 2 == 1) std::swap(ops_[0], ops_[1]);
      break;
    case BenchOp::isend:
      if (input_.count == 0) break;
      for (int i = 0; i < window_; ++i)
        ops_.push_back(Recv{output_.slice(static_cast<std::size_t>(i) * case_.shard, case_.shard),
                            rank_ ^ 1, 0});
      for (int i = 0; i < window_; ++i) ops_.push_back(Send{input_, rank_ ^ 1, 0});
      break;
  }
}

double Buffers::share() const noexcept {
  if (case_.op == BenchOp::send) return 0.5;
  return case_.op == BenchOp::isend ? 1.0 / window_ : 1.0;
}

bool Buffers::same_everywhere() const noexcept {
  return case_.op == BenchOp::all_reduce || case_.op == BenchOp::broadcast ||
         case_.op == BenchOp::all_gather;
}

void Buffers::refresh(bool dirty) noexcept {
  if (input_.count == 0) return;
  if (input_.data != pristine_.data) {
    std::memcpy(input_.data, pristine_.data, pristine_.bytes());
    return;
  }
  if (!dirty) return;
  auto* bytes = static_cast<volatile unsigned char*>(input_.data);
  for (std::size_t at = 0; at < input_.bytes(); at += 64) bytes[at] = bytes[at];
}

void Buffers::poison_output() {
  poison(output_);
  refresh(false);
}

}  // namespace c10d::bench
