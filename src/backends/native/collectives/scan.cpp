// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/common/prefix_reduction.h"
#include "src/backends/native/collectives/collectives.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

// There is one algorithm, so no plan: every rank reduces what the ranks before it have staged.
constexpr AlgorithmChoice kScanChoice{Algorithm::one_shot, StorePolicy::temporal,
                                      StorePolicy::temporal, kChunks[1]};

// A part of this rank's result, along the tree over the ranks that it takes in. The inputs of the
// others lie where `place` says.
template <class T, class Place>
void reduce_part(Collective& collective, const T& op, Part part, Place place) {
  const int rank = collective.rank(), ranks = reduced_ranks<T>(rank);
  if (ranks == 0 || part.bytes == 0) return;
  const auto sources = collective.sources().first(static_cast<std::size_t>(ranks));
  for (int peer = 0; peer < ranks; ++peer)
    sources[static_cast<std::size_t>(peer)] =
        peer == rank ? bytes_of(op.input) + part.first : place(peer);
  reduce(op.input.dtype, op.op, bytes_of(op.output) + part.first, sources,
         part.bytes / size_of(op.input.dtype));
}

template <class T>
bool run_scan(Collective& collective, const T& op) {
  const int rank = collective.rank();
  const std::size_t bytes = op.input.bytes();
  if (bytes <= kInlineBytes) {
    copy_bytes(collective.payload(rank), op.input.data, bytes);
    if (!collective.enter()) return false;
    reduce_part(collective, op, {0, bytes}, [&](int peer) { return collective.payload(peer); });
    return true;
  }
  const Staging& staging = collective.staging();
  const Chunks chunks = staging.chunk(kScanChoice, bytes);
  const auto stage = [&](std::size_t step) {
    const Part part = part_of(bytes, chunks, step);
    collective.copy_out(staging.slot(rank, chunks, step), bytes_of(op.input) + part.first,
                        part.bytes, kScanChoice.store);
  };
  const auto take = [&](std::size_t step) {
    for (int peer = 0; peer < rank; ++peer)
      if (!collective.await_staged(peer, step)) return false;
    reduce_part(collective, op, part_of(bytes, chunks, step),
                [&](int peer) { return staging.slot(peer, chunks, step); });
    return true;
  };
  const bool is_last = rank + 1 == collective.size();  // nobody reads what it has
  return run_steps(collective, {.steps = chunks.count, .stages = !is_last}, stage, take);
}

}  // namespace

bool run(Collective& collective, const Scan& op) { return run_scan(collective, op); }
bool run(Collective& collective, const Exscan& op) { return run_scan(collective, op); }

}}}  // namespace c10d::v0::native
