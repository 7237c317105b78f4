// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/tied_weight.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "c10d/error.h"
#include "kernels/reduce.h"

namespace c10d::inline v0::parallel {
namespace {

// The stages after the first one.
std::span<const int> later_holders(const TiedWeight& tied) {
  return std::span(tied.stages).subspan(1);
}

Tensor tied_gradient_of(const Pipeline::State& state, int stage, const TiedWeight& tied) {
  return state.stages.at(stage)->tied_gradient(tied.name);
}

void check_tied_alike(const Tensor& sum, const Tensor& part, int stage, const TiedWeight& tied) {
  if (part.count == sum.count && part.dtype == sum.dtype && part.data != sum.data) return;
  throw InvalidArgument(fmt::format(
      "the gradient of {} is {} x {} at {} in stage {} and {} x {} at {} in stage {}; it must be "
      "the same type and count in a place of its own",
      tied.name, to_string(sum.dtype), sum.count, sum.data, tied.stages.front(),
      to_string(part.dtype), part.count, part.data, stage));
}

void add_on_root(const Pipeline::State& state, const TiedWeight& tied, std::uint32_t tag,
                 const std::function<Duration()>& left) {
  const Tensor sum = tied_gradient_of(state, tied.stages.front(), tied);
  auto* const bytes = static_cast<std::byte*>(sum.data);
  Activation arrived;
  for (const int stage : later_holders(tied)) {
    Tensor part;
    if (state.stages.contains(stage)) {
      part = tied_gradient_of(state, stage, tied);
      check_tied_alike(sum, part, stage, tied);
    } else {
      if (!arrived.owner)
        arrived = make_activation({static_cast<std::int64_t>(sum.count)}, sum.dtype);
      part = arrived.data;
      state.group.recv(part, state.rank_of(stage), tag, {.timeout = left()});
    }
    reduce(sum.dtype, ReduceOp::sum, bytes,
           std::array<const std::byte*, 2>{bytes, static_cast<const std::byte*>(part.data)},
           sum.count);
  }
  for (const int stage : later_holders(tied)) {
    if (state.stages.contains(stage))
      std::copy_n(bytes, sum.bytes(),
                  static_cast<std::byte*>(tied_gradient_of(state, stage, tied).data));
    else
      state.group.send(sum, state.rank_of(stage), tag, {.timeout = left()});
  }
}

}  // namespace

void add_tied(const Pipeline::State& state, const TiedWeight& tied,
              const std::function<Duration()>& left) {
  // Past those of the messages between stages.
  const auto tag = static_cast<std::uint32_t>(state.graph.edges().size()) *
                   static_cast<std::uint32_t>(state.facts.micro_batches) * kTagsPerMessage;
  const int root = state.rank_of(tied.stages.front());
  if (state.group.rank() == root) return add_on_root(state, tied, tag, left);
  for (const int stage : later_holders(tied))
    if (state.stages.contains(stage))
      state.group.send(tied_gradient_of(state, stage, tied), root, tag, {.timeout = left()});
  for (const int stage : later_holders(tied))
    if (state.stages.contains(stage))
      state.group.recv(tied_gradient_of(state, stage, tied), root, tag, {.timeout = left()});
}

}  // namespace c10d::inline v0::parallel
