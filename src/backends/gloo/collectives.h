// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gloo/context.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "c10d/collective.h"
#include "c10d/store.h"
#include "src/backends/gloo/revocable_context.h"
#include "src/backends/gloo/scratch.h"

namespace c10d { inline namespace v0 {

// One collective in progress: all ranks have agreed on it, and there is more than one of them.
struct Run {
  std::shared_ptr<gloo::Context> mesh;  // whose waits end at the deadline
  std::uint32_t tag;                    // tells this op's messages from those of others
  Deadline deadline;
  Scratch& scratch;

  int rank() const noexcept { return mesh->rank; }
  int size() const noexcept { return mesh->size; }
  std::chrono::milliseconds timeout() const { return time_until(deadline); }
  template <class Options>
  void set_tag_and_timeout(Options& options) const {
    options.setTag(tag);
    options.setTimeout(timeout());
  }
};

// One function per op. They throw what Gloo throws.
void run(const Run& run, const AllReduce& op);
void run(const Run& run, const Broadcast& op);
void run(const Run& run, const AllGather& op);
void run(const Run& run, const AllGatherV& op);
void run(const Run& run, const ReduceScatter& op);
void run(const Run& run, const ReduceScatterV& op);
void run(const Run& run, const Reduce& op);
void run(const Run& run, const Gather& op);
void run(const Run& run, const GatherV& op);
void run(const Run& run, const Scatter& op);
void run(const Run& run, const ScatterV& op);
void run(const Run& run, const AllToAll& op);
void run(const Run& run, const AllToAllV& op);
void run(const Run& run, const Barrier& op);

// Pieces that the ops above share.
using PieceCounts = std::vector<std::size_t>;
void exchange_pieces(const Run& run, ConstTensor input, std::span<const std::size_t> input_counts,
                     Tensor output, std::span<const std::size_t> output_counts);
void gather_pieces(const Run& run, ConstTensor own, Tensor all, std::span<const std::size_t> counts,
                   int root);
void all_gather_pieces(const Run& run, ConstTensor own, Tensor all,
                       std::span<const std::size_t> counts);

// Calls f with a value of an unsigned type as wide as the dtype: Gloo moves elements and knows no
// more of them.
template <class F>
void as_element(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 1:
      return f(std::uint8_t{});
    case 2:
      return f(std::uint16_t{});
    case 4:
      return f(std::uint32_t{});
    default:
      return f(std::uint64_t{});
  }
}

}}  // namespace c10d::v0
