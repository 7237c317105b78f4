// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gloo/context.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "c10d/collective.h"
#include "c10d/store.h"
#include "src/backends/gloo/revocable_context.h"

namespace c10d { inline namespace v0 {

// Memory that an op needs beside its buffers, kept from op to op up to a limit.
class Scratch {
 public:
  std::byte* take(std::size_t bytes) {
    if (bytes > size_) {
      free();
      data_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      size_ = bytes;
    }
    return data_.get();
  }
  // At the end of each op.
  void release() {
    if (size_ > kKeptBytes) free();
  }

 private:
  static constexpr std::size_t kKeptBytes = std::size_t{64} << 20;

  void free() {
    data_.reset();
    size_ = 0;
  }

  std::unique_ptr<std::byte[]> data_;
  std::size_t size_ = 0;
};

// One collective in progress: all ranks have agreed on it, and there is more than one of them.
struct CollectiveCall {
  std::shared_ptr<gloo::Context> context;  // whose waits end at the deadline
  std::uint32_t tag;                       // tells this op's messages from those of others
  Deadline deadline;
  Scratch& scratch;

  int rank() const noexcept { return context->rank; }
  int size() const noexcept { return context->size; }
  std::chrono::milliseconds timeout() const { return time_until(deadline); }
  // Runs a collective of Gloo.
  template <class Collective, class Options>
  void start(Collective* collective, Options& options) const {
    options.setTag(tag);
    options.setTimeout(timeout());
    collective(options);
  }
};

// One function per op. They throw what Gloo throws.
void run(const CollectiveCall& call, const AllReduce& op);
void run(const CollectiveCall& call, const Broadcast& op);
void run(const CollectiveCall& call, const AllGather& op);
void run(const CollectiveCall& call, const AllGatherV& op);
void run(const CollectiveCall& call, const ReduceScatter& op);
void run(const CollectiveCall& call, const ReduceScatterV& op);
void run(const CollectiveCall& call, const Reduce& op);
void run(const CollectiveCall& call, const Scan& op);
void run(const CollectiveCall& call, const Exscan& op);
void run(const CollectiveCall& call, const Gather& op);
void run(const CollectiveCall& call, const GatherV& op);
void run(const CollectiveCall& call, const Scatter& op);
void run(const CollectiveCall& call, const ScatterV& op);
void run(const CollectiveCall& call, const AllToAll& op);
void run(const CollectiveCall& call, const AllToAllV& op);
void run(const CollectiveCall& call, const Barrier& op);

// Pieces that the ops above share.
using PieceCounts = std::vector<std::size_t>;
void exchange_pieces(const CollectiveCall& call, ConstView input,
                     std::span<const std::size_t> input_counts, View output,
                     std::span<const std::size_t> output_counts);
void gather_pieces(const CollectiveCall& call, ConstView own, View all,
                   std::span<const std::size_t> counts, int root);
void all_gather_pieces(const CollectiveCall& call, ConstView own, View all,
                       std::span<const std::size_t> counts);

// Calls f with a value of a type as wide as the dtype: Gloo moves elements and knows no
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
    case 8:
      return f(std::uint64_t{});
    default:
      return f(std::array<std::uint64_t, 2>{});
  }
}

template <class Options>
void set_input(Options& options, ConstView input) {
  as_element(input.dtype, [&]<class T>(T) {
    options.setInput(static_cast<T*>(const_cast<void*>(input.data)), input.count);  // only read
  });
}
template <class Options>
void set_output(Options& options, View output) {
  as_element(output.dtype,
             [&]<class T>(T) { options.setOutput(static_cast<T*>(output.data), output.count); });
}

}}  // namespace c10d::v0
