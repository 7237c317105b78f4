// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "src/backends/native/collectives/collectives.h"

// What all_reduce, reduce and reduce_scatter share.
namespace c10d { inline namespace v0 { namespace native {

// `output` is null where no result goes.
struct Reduction {
  std::byte* output = nullptr;
  const std::byte* input = nullptr;
  std::size_t bytes = 0;
  Reducing how;
  int root = Collective::kEveryRank;
};
inline bool wants_result(const Collective& collective, const Reduction& reduction) noexcept {
  return reduction.root == Collective::kEveryRank || reduction.root == collective.rank();
}

// All of it in the entry: for kInlineBytes at most.
bool inline_shot(Collective& collective, const Reduction& reduction);
// The same, but reduces only `slice` of all inputs, to `output`.
bool inline_slice(Collective& collective, const Reduction& reduction, Part slice,
                  std::byte* output);
// Every rank that wants the result reduces all of it, from all ranks' staging.
bool one_shot(Collective& collective, const AlgorithmChoice& choice, const Reduction& reduction);
// Every rank reduces one slice of each chunk, then those that want the result collect the slices.
// Two ranks that stream what they all want each reduce everything, in one loop.
bool two_shot(Collective& collective, const AlgorithmChoice& choice, const Reduction& reduction);
// Reduces `slice` of all inputs, wherever they lie, to `output`. Nothing else: it neither tells the
// others nor waits for them.
bool pull_slice(Collective& collective, const AlgorithmChoice& choice, const Reduction& reduction,
                Part slice, std::byte* output);
// Every rank reduces one slice of all inputs, where they lie in the heap, into every output or that
// of the root. In place is safe: no other rank touches the slice.
bool push_slices(Collective& collective, const AlgorithmChoice& choice, const Reduction& reduction);

// Runs all_reduce or reduce. `pull` is the op's algorithm for Algorithm::pull.
template <class T, class Pull>
bool run_reduction(Collective& collective, OpKind kind, const T& op, Pull pull) {
  Reduction reduction{.output = bytes_of(op.output),
                      .input = bytes_of(op.input),
                      .bytes = op.input.bytes(),
                      .how = {op.input.dtype, op.op}};
  if constexpr (requires { op.root; }) reduction.root = op.root;
  if (reduction.bytes <= kInlineBytes) return inline_shot(collective, reduction);
  const bool wants = wants_result(collective, reduction);
  const AlgorithmChoice* const choice =
      collective.choose(kind, reduction.how.dtype, reduction.bytes,
                        {reduction.input, reduction.bytes, wants ? reduction.output : nullptr,
                         wants ? reduction.bytes : 0});
  if (choice == nullptr) return false;
  switch (choice->algorithm) {
    case Algorithm::one_shot:
      return one_shot(collective, *choice, reduction);
    case Algorithm::two_shot:
      return two_shot(collective, *choice, reduction);
    case Algorithm::pull:
      return pull(collective, *choice, reduction);
    case Algorithm::push:
      return push_slices(collective, *choice, reduction);
  }
  return false;
}

}}}  // namespace c10d::v0::native
