// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/collectives/collectives.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

bool inline_shot(Collective& collective, const Broadcast& op) {
  const bool is_root = collective.rank() == op.root;
  if (is_root) copy_bytes(collective.payload(op.root), op.input.data, op.output.bytes());
  if (!collective.enter()) return false;
  copy_bytes(op.output.data, is_root ? op.input.data : collective.payload(op.root),
             op.output.bytes());
  return true;
}

bool one_shot(Collective& collective, const AlgorithmChoice& choice, const Broadcast& op) {
  const std::size_t bytes = op.output.bytes();
  const bool is_root = collective.rank() == op.root;
  Staging& staging = collective.staging();
  const Chunks chunks = staging.chunk_one_way(choice, bytes, is_root);
  const StorePolicy results = result_policy(choice, bytes);
  const auto stage = [&](std::size_t step) {
    const Part part = part_of(bytes, chunks, step);
    const std::byte* const from = bytes_of(op.input) + part.first;
    collective.copy_out(staging.slot(op.root, chunks, step), from, part.bytes, choice.store);
    collective.copy_out(bytes_of(op.output) + part.first, from, part.bytes, results);
  };
  const auto take = [&](std::size_t step) {
    if (!collective.await_staged(op.root, step)) return false;
    const Part part = part_of(bytes, chunks, step);
    collective.copy_out(bytes_of(op.output) + part.first, staging.slot(op.root, chunks, step),
                        part.bytes, results);
    return true;
  };
  return run_steps(collective, {.steps = chunks.count, .stages = is_root, .takes = !is_root}, stage,
                   take);
}

// Every rank fetches the root's input from `first` on; the root copies what is before to them.
bool fetch_from_root(Collective& collective, const AlgorithmChoice& choice, const Broadcast& op,
                     std::size_t first) {
  const std::size_t bytes = op.output.bytes();
  DirectAccess direct(collective);
  if (collective.rank() == op.root) {
    for (int i = 1; i < collective.size() && first != 0; ++i)
      if (!direct.write_to_peer(collective.peer(i), 0, bytes_of(op.input), first, choice.store))
        return false;
    collective.publish(&Progress::reduced, 1);
    collective.copy_out(bytes_of(op.output), bytes_of(op.input), bytes, choice.store);
    for (const int peer : collective.peers())
      if (!direct.help(peer, bytes_of(op.input), bytes)) return false;
    return collective.await_all(&Progress::consumed, 1);
  }
  if (first == 0) direct.invite(op.root, bytes_of(op.output), bytes);
  if (!direct.fetch(op.root, Side::input, first, bytes_of(op.output) + first, bytes - first,
                    choice.store))
    return false;
  collective.publish(&Progress::consumed, 1);
  return first == 0 || collective.await(op.root, &Progress::reduced, 1);
}

}  // namespace

bool run(Collective& collective, const Broadcast& op) {
  const std::size_t bytes = op.output.bytes();
  if (bytes <= kInlineBytes) return inline_shot(collective, op);
  const AlgorithmChoice* const choice =
      collective.choose(OpKind::broadcast, op.output.dtype, bytes,
                        one_way_buffers(collective.rank() == op.root, op.input, op.output));
  if (choice == nullptr) return false;
  switch (choice->algorithm) {
    case Algorithm::pull:
      return fetch_from_root(collective, *choice, op, 0);
    // The root takes as much work as each of the others.
    case Algorithm::push:
      return fetch_from_root(collective, *choice, op, share_of(bytes, collective.size(), 0).bytes);
    default:
      return one_shot(collective, *choice, op);
  }
}

}}}  // namespace c10d::v0::native
