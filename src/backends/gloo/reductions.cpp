// SPDX-License-Identifier: BSD-3-Clause
#include <gloo/allreduce.h>
#include <gloo/reduce.h>

#include <array>

#include "kernels/reduce.h"
#include "src/backends/common/gathered_reduction.h"
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
void collect_and_reduce(const Run& run, ConstTensor input, Tensor output, const PieceCounts& counts,
                        ReduceOp op) {
  const std::size_t own = counts[run.rank()];
  const std::size_t n = static_cast<std::size_t>(run.size());
  const Tensor collected(run.scratch.take(n * own * size_of(input.dtype)), n * own, input.dtype);
  exchange_pieces(run, input, counts, collected, PieceCounts(n, own));
  reduce_collected({output.data, own, output.dtype}, collected.data, run.size(), op);
}

void all_reduce_collected(const Run& run, const AllReduce& op) {
  const std::size_t n = static_cast<std::size_t>(run.size());
  if (op.input.bytes() * n <= kGatherAllBytes) {
    const Tensor all(run.scratch.take(n * op.input.bytes()), n * op.input.count, op.input.dtype);
    all_gather_pieces(run, op.input, all, PieceCounts(n, op.input.count));
    return reduce_collected(op.output, all.data, run.size(), op.op);
  }
  const PieceCounts counts = slices(op.input.count, run.size());
  const Tensor own = op.output.slice(first_of(counts, run.rank()), counts[run.rank()]);
  collect_and_reduce(run, op.input, own, counts, op.op);
  all_gather_pieces(run, own, op.output, counts);
}

}  // namespace

void run(const Run& run, const AllReduce& op) {
  if (op.input.count == 0) return;
  if (collects_first(op.input.dtype, op.op.kind)) return all_reduce_collected(run, op);
  const void* input = op.input.data;
  if (op.op.kind == ReduceOp::premul_sum) {
    multiply(op.output.data, op.input, op.op);
    input = op.output.data;
  }
  gloo::AllreduceOptions options(run.mesh);
  as_element(op.input.dtype, [&]<class T>(T) {
    if (input != op.output.data)
      options.setInput(static_cast<T*>(const_cast<void*>(input)), op.input.count);
    options.setOutput(static_cast<T*>(op.output.data), op.output.count);
  });
  set_reduction(options, op.input.dtype, on_the_way(op.op));
  run.set_tag_and_timeout(options);
  gloo::allreduce(options);
  if (op.op.kind == ReduceOp::avg) divide(op.output, run.size());
}

void run(const Run& run, const Reduce& op) {
  if (op.input.count == 0) return;
  const bool root = run.rank() == op.root;
  if (collects_first(op.input.dtype, op.op.kind)) {
    const PieceCounts counts = slices(op.input.count, run.size());
    const std::size_t own = counts[run.rank()];
    const std::size_t bytes = own * size_of(op.input.dtype);
    // collect_and_reduce() uses the scratch memory: the slice lies behind what it takes of it.
    const std::size_t collected = bytes * static_cast<std::size_t>(run.size());
    const Tensor slice(run.scratch.take(collected + bytes) + collected, own, op.input.dtype);
    collect_and_reduce(run, op.input, slice, counts, op.op);
    return gather_pieces(run, slice, op.output, counts, op.root);
  }
  // Gloo's ring uses the output of every rank; only the root has one.
  void* output = root ? op.output.data : run.scratch.take(op.input.bytes());
  const void* input = op.input.data;
  if (op.op.kind == ReduceOp::premul_sum) {
    multiply(output, op.input, op.op);
    input = output;
  }
  gloo::ReduceOptions options(run.mesh);
  as_element(op.input.dtype, [&]<class T>(T) {
    if (input != output)
      options.setInput(static_cast<T*>(const_cast<void*>(input)), op.input.count);
    options.setOutput(static_cast<T*>(output), op.input.count);
  });
  options.setRoot(op.root);
  set_reduction(options, op.input.dtype, on_the_way(op.op));
  run.set_tag_and_timeout(options);
  gloo::reduce(options);
  if (root && op.op.kind == ReduceOp::avg) divide(op.output, run.size());
}

void run(const Run& run, const ReduceScatter& op) {
  if (op.output.count == 0) return;
  collect_and_reduce(run, op.input, op.output,
                     PieceCounts(static_cast<std::size_t>(run.size()), op.output.count), op.op);
}

void run(const Run& run, const ReduceScatterV& op) {
  if (op.input.count == 0) return;
  collect_and_reduce(run, op.input, op.output, PieceCounts(op.counts.begin(), op.counts.end()),
                     op.op);
}

}}  // namespace c10d::v0
