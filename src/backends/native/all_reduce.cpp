// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/reduce.h"
#include "src/backends/native/collectives.h"

namespace c10d::inline v0::native {
namespace {

// Bytes that are reduced and then copied to the other ranks while they are in the L2 cache.
constexpr std::size_t kBlock = std::size_t{32} << 10;

// Where this rank's input and output lie if others can reach them directly.
std::optional<Reach> reach_of(Round& round, const AllReduce& op) {
  Heap& heap = round.team().heap();
  if (heap.empty()) return {};
  const auto input = heap.find(op.input.data, op.input.bytes(), round.rank());
  const auto output = heap.find(op.output.data, op.output.bytes(), round.rank());
  if (!input || !output) return {};
  return Reach{input->offset, output->offset, input->segment, output->segment};
}

// Every rank has every other's segments only if all lie in the same: else one may have freed it.
bool all_reach(const Round& round, const Reach& own) {
  for (int peer = 0; peer < round.size(); ++peer) {
    const auto theirs = round.reach(peer);
    if (!theirs || theirs->input_segment != own.input_segment ||
        theirs->output_segment != own.output_segment)
      return false;
  }
  return true;
}

// Two-shot push: reads slice i of all inputs, writes slice i of all outputs. In place is safe: no
// other rank touches slice i. Ends with a wait, because peers write this rank's output.
bool direct(Round& round, const AllReduce& op, const Reach& own) {
  Heap& heap = round.team().heap();
  const Part slice = share_of(op.input.bytes(), round.size(), round.rank());
  const auto sources = round.sources();
  for (std::size_t done = 0; done < slice.bytes; done += kBlock) {
    const std::size_t first = slice.first + done;
    const std::size_t bytes = std::min(kBlock, slice.bytes - done);
    for (int peer = 0; peer < round.size(); ++peer)
      sources[static_cast<std::size_t>(peer)] =
          heap.at(own.input_segment, round.reach(peer)->input_offset, peer) + first;
    std::byte* const result = bytes_of(op.output) + first;
    reduce(op.input.dtype, op.op, result, sources, bytes / size_of(op.input.dtype));
    for (int i = 1; i < round.size(); ++i) {
      const int peer = round.peer(i);
      copy_bytes(heap.at(own.output_segment, round.reach(peer)->output_offset, peer) + first,
                 result, bytes);
    }
  }
  round.publish(&Progress::reduced, 1);
  return round.await_all(&Progress::reduced, 1);
}

}  // namespace

bool run(Round& round, const AllReduce& op) {
  const Reduction reduction{.output = bytes_of(op.output),
                            .input = bytes_of(op.input),
                            .bytes = op.input.bytes(),
                            .dtype = op.input.dtype,
                            .op = op.op};
  if (reduction.bytes > kInlineBytes) {
    if (const auto own = reach_of(round, op)) {
      if (!round.enter(*own)) return false;
      if (all_reach(round, *own)) return direct(round, op, *own);
    }
  }
  return staged_reduction(round, reduction);
}

}  // namespace c10d::inline v0::native
