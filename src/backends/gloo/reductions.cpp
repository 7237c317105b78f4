// SPDX-License-Identifier: BSD-3-Clause
#include <gloo/allreduce.h>
#include <gloo/reduce.h>

#include <algorithm>
#include <array>

#include "kernels/reduce.h"
#include "src/backends/common/gathered_reduction.h"
#include "src/backends/common/prefix_reduction.h"
#include "src/backends/gloo/collectives.h"

namespace c10d { inline namespace v0 {
namespace {

// avg and premul_sum are sums on the way.
ReduceOp on_the_way(ReduceOp op) {
  const bool sums = op.kind == ReduceOp::avg || op.kind == ReduceOp::premul_sum;
  return sums ? ReduceOp(ReduceOp::sum) : op;
}

template <class Options>
void set_reduction(Options& options, DType dtype, ReduceOp op) {
  options.setReduceFunction([dtype, op](void* out, const void* a, const void* b, std::size_t n) {
    const std::array in = {static_cast<const std::byte*>(a), static_cast<const std::byte*>(b)};
    reduce(dtype, op, static_cast<std::byte*>(out), in, n);
  });
}

// Rank i ends with shard i, reduced: every rank sends shard i of its input to rank i.
void collect_and_reduce(const CollectiveCall& call, ConstView input, View output,
                        const PieceCounts& counts, ReduceOp op) {
  const std::size_t own = counts[call.rank()];
  const std::size_t n = static_cast<std::size_t>(call.size());
  const View collected(call.scratch.take(n * own * size_of(input.dtype)), n * own, input.dtype);
  exchange_pieces(call, input, counts, collected, PieceCounts(n, own));
  reduce_collected({output.data, own, output.dtype}, collected.data, call.size(), op);
}

void all_reduce_collected(const CollectiveCall& call, const AllReduce& op) {
  const std::size_t n = static_cast<std::size_t>(call.size());
  if (op.input.bytes() * n <= kGatherAllBytes) {
    const View all(call.scratch.take(n * op.input.bytes()), n * op.input.count, op.input.dtype);
    all_gather_pieces(call, op.input, all, PieceCounts(n, op.input.count));
    return reduce_collected(op.output, all.data, call.size(), op.op);
  }
  const PieceCounts counts = slices(op.input.count, call.size());
  const View own = op.output.slice(first_of(counts, call.rank()), counts[call.rank()]);
  collect_and_reduce(call, op.input, own, counts, op.op);
  all_gather_pieces(call, own, op.output, counts);
}

// Rank i reduces slice i of all inputs to that slice of every rank's result, and gives each to its
// rank.
template <class T>
void scan_collected(const CollectiveCall& call, const T& op) {
  const std::size_t n = static_cast<std::size_t>(call.size()), first = kFirstResult<T>;
  const DType dtype = op.input.dtype;
  if (op.input.count == 0) return;
  if (op.input.bytes() * n <= kGatherAllBytes) {
    const View all(call.scratch.take(n * op.input.bytes()), n * op.input.count, dtype);
    all_gather_pieces(call, op.input, all, PieceCounts(n, op.input.count));
    return reduce_prefix(op, op.output, all.data, call.rank());
  }
  const PieceCounts counts = slices(op.input.count, call.size());
  const std::size_t own = counts[call.rank()];
  const View both(call.scratch.take(2 * n * own * size_of(dtype)), 2 * n * own, dtype);
  const View collected = both.slice(0, n * own), results = both.slice(n * own, n * own);
  PieceCounts given(n, own), taken = counts;
  exchange_pieces(call, op.input, counts, collected, given);
  reduce_prefixes(op, results, collected.data, call.size());
  std::fill_n(given.begin(), first, 0);
  if (call.rank() < kFirstResult<T>) taken.assign(n, 0);
  exchange_pieces(call, results.slice(first * own, (n - first) * own), given, op.output, taken);
}

}  // namespace

void run(const CollectiveCall& call, const AllReduce& op) {
  if (op.input.count == 0) return;
  if (collects_first(op.input.dtype, op.op.kind)) return all_reduce_collected(call, op);
  ConstView input = op.input;
  if (op.op.kind == ReduceOp::premul_sum) {
    multiply(op.output.data, op.input, op.op);
    input = op.output;
  }
  gloo::AllreduceOptions options(call.context);
  if (input.data != op.output.data) set_input(options, input);
  set_output(options, op.output);
  set_reduction(options, op.input.dtype, on_the_way(op.op));
  call.start(gloo::allreduce, options);
  if (op.op.kind == ReduceOp::avg) divide(op.output, call.size());
}

void run(const CollectiveCall& call, const Reduce& op) {
  if (op.input.count == 0) return;
  const bool root = call.rank() == op.root;
  if (collects_first(op.input.dtype, op.op.kind)) {
    const PieceCounts counts = slices(op.input.count, call.size());
    const std::size_t own = counts[call.rank()];
    const std::size_t bytes = own * size_of(op.input.dtype);
    // collect_and_reduce() uses the scratch memory: the slice lies behind what it takes of it.
    const std::size_t collected = bytes * static_cast<std::size_t>(call.size());
    const View slice(call.scratch.take(collected + bytes) + collected, own, op.input.dtype);
    collect_and_reduce(call, op.input, slice, counts, op.op);
    return gather_pieces(call, slice, op.output, counts, op.root);
  }
  // Gloo's ring uses the output of every rank; only the root has one.
  const View output(root ? op.output.data : call.scratch.take(op.input.bytes()), op.input.count,
                    op.input.dtype);
  ConstView input = op.input;
  if (op.op.kind == ReduceOp::premul_sum) {
    multiply(output.data, op.input, op.op);
    input = output;
  }
  gloo::ReduceOptions options(call.context);
  if (input.data != output.data) set_input(options, input);
  set_output(options, output);
  options.setRoot(op.root);
  set_reduction(options, op.input.dtype, on_the_way(op.op));
  call.start(gloo::reduce, options);
  if (root && op.op.kind == ReduceOp::avg) divide(op.output, call.size());
}

void run(const CollectiveCall& call, const ReduceScatter& op) {
  if (op.output.count == 0) return;
  collect_and_reduce(call, op.input, op.output,
                     PieceCounts(static_cast<std::size_t>(call.size()), op.output.count), op.op);
}

void run(const CollectiveCall& call, const ReduceScatterV& op) {
  if (op.input.count == 0) return;
  collect_and_reduce(call, op.input, op.output, PieceCounts(op.counts.begin(), op.counts.end()),
                     op.op);
}

void run(const CollectiveCall& call, const Scan& op) { scan_collected(call, op); }
void run(const CollectiveCall& call, const Exscan& op) { scan_collected(call, op); }

}}  // namespace c10d::v0
