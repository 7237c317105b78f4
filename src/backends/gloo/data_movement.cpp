// SPDX-License-Identifier: BSD-3-Clause
#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/scatter.h>
#include <gloo/types.h>

#include <cstring>

#include "src/backends/common/gathered_reduction.h"
#include "src/backends/gloo/collectives.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr std::uint8_t kPiecesPrefix = 0x20;  // of slots; Gloo's own collectives use 1 to 8

void* pointer(ConstView view) { return const_cast<void*>(view.data); }

// No-op when a rank's own shard is already in place.
void copy(View to, ConstView from) {
  if (from.bytes() > 0 && to.data != from.data) std::memcpy(to.data, from.data, from.bytes());
}

// The root's side of gather_pieces and scatter_pieces: `post` each peer's piece, then wait for all.
template <class Post, class Wait>
void each_piece(const CollectiveCall& call, DType dtype, std::span<const std::size_t> counts,
                Post post, Wait wait) {
  std::size_t offset = 0;
  int posted = 0;
  for (int peer = 0; peer < call.size(); ++peer) {
    const std::size_t bytes = counts[peer] * size_of(dtype);
    if (peer != call.rank() && bytes > 0) {
      post(peer, offset, bytes);
      ++posted;
    }
    offset += bytes;
  }
  while (posted-- > 0) wait();
}

void scatter_pieces(const CollectiveCall& call, ConstView all, View own,
                    std::span<const std::size_t> counts, int root) {
  const std::uint64_t slot = gloo::Slot::build(kPiecesPrefix, call.tag);
  if (call.rank() != root) {
    if (own.count == 0) return;
    const auto buffer = call.context->createUnboundBuffer(own.data, own.bytes());
    buffer->recv(root, slot);
    buffer->waitRecv(call.timeout());
    return;
  }
  const auto buffer = call.context->createUnboundBuffer(pointer(all), all.bytes());
  each_piece(
      call, all.dtype, counts,
      [&](int peer, std::size_t offset, std::size_t bytes) {
        buffer->send(peer, slot, offset, bytes);
      },
      [&] { buffer->waitSend(call.timeout()); });
  copy(own, all.slice(first_of(counts, root), counts[root]));
}

}  // namespace

void gather_pieces(const CollectiveCall& call, ConstView own, View all,
                   std::span<const std::size_t> counts, int root) {
  const std::uint64_t slot = gloo::Slot::build(kPiecesPrefix, call.tag);
  if (call.rank() != root) {
    if (own.count == 0) return;
    const auto buffer = call.context->createUnboundBuffer(pointer(own), own.bytes());
    buffer->send(root, slot);
    buffer->waitSend(call.timeout());
    return;
  }
  const auto buffer = call.context->createUnboundBuffer(all.data, all.bytes());
  copy(all.slice(first_of(counts, root), counts[root]), own);
  each_piece(
      call, all.dtype, counts,
      [&](int peer, std::size_t offset, std::size_t bytes) {
        buffer->recv(peer, slot, offset, bytes);
      },
      [&] { buffer->waitRecv(call.timeout()); });
}

void all_gather_pieces(const CollectiveCall& call, ConstView own, View all,
                       std::span<const std::size_t> counts) {
  gloo::AllgathervOptions options(call.context);
  copy(all.slice(first_of(counts, call.rank()), counts[call.rank()]), own);
  as_element(all.dtype, [&]<class T>(T) {
    options.setOutput(static_cast<T*>(all.data), {counts.begin(), counts.end()});
  });
  call.start(gloo::allgatherv, options);
}

void exchange_pieces(const CollectiveCall& call, ConstView input,
                     std::span<const std::size_t> input_counts, View output,
                     std::span<const std::size_t> output_counts) {
  gloo::AlltoallvOptions options(call.context);
  as_element(input.dtype, [&]<class T>(T) {
    options.setInput(static_cast<T*>(pointer(input)), {input_counts.begin(), input_counts.end()});
    options.setOutput(static_cast<T*>(output.data), {output_counts.begin(), output_counts.end()});
  });
  call.start(gloo::alltoallv, options);
}

void run(const CollectiveCall& call, const Broadcast& op) {
  if (op.output.count == 0) return;
  gloo::BroadcastOptions options(call.context);
  if (call.rank() == op.root && op.input.data != op.output.data) set_input(options, op.input);
  set_output(options, op.output);
  options.setRoot(op.root);
  call.start(gloo::broadcast, options);
}

void run(const CollectiveCall& call, const AllGather& op) {
  if (op.input.count == 0) return;
  gloo::AllgatherOptions options(call.context);
  const std::size_t own = static_cast<std::size_t>(call.rank()) * op.input.count;
  if (op.input.data != op.output.slice(own, op.input.count).data) set_input(options, op.input);
  set_output(options, op.output);
  call.start(gloo::allgather, options);
}

void run(const CollectiveCall& call, const AllGatherV& op) {
  if (op.output.count > 0) all_gather_pieces(call, op.input, op.output, op.counts);
}

void run(const CollectiveCall& call, const Gather& op) {
  if (op.input.count == 0) return;
  gloo::GatherOptions options(call.context);
  set_input(options, op.input);
  if (call.rank() == op.root) set_output(options, op.output);
  options.setRoot(op.root);
  call.start(gloo::gather, options);
}

void run(const CollectiveCall& call, const GatherV& op) {
  gather_pieces(call, op.input, op.output, op.counts, op.root);
}

void run(const CollectiveCall& call, const Scatter& op) {
  if (op.output.count == 0) return;
  gloo::ScatterOptions options(call.context);
  as_element(op.output.dtype, [&]<class T>(T) {
    std::vector<T*> shards;
    if (call.rank() == op.root)
      for (int peer = 0; peer < call.size(); ++peer)
        shards.push_back(static_cast<T*>(pointer(op.input)) + peer * op.output.count);
    options.setInputs(std::move(shards), op.output.count);
    options.setOutput(static_cast<T*>(op.output.data), op.output.count);
  });
  options.setRoot(op.root);
  call.start(gloo::scatter, options);
}

void run(const CollectiveCall& call, const ScatterV& op) {
  scatter_pieces(call, op.input, op.output, op.counts, op.root);
}

void run(const CollectiveCall& call, const AllToAll& op) {
  if (op.input.count == 0) return;
  gloo::AlltoallOptions options(call.context);
  set_input(options, op.input);
  set_output(options, op.output);
  call.start(gloo::alltoall, options);
}

void run(const CollectiveCall& call, const AllToAllV& op) {
  exchange_pieces(call, op.input, op.input_counts, op.output, op.output_counts);
}

void run(const CollectiveCall& call, const Barrier&) {
  gloo::BarrierOptions options(call.context);
  call.start(gloo::barrier, options);
}

}}  // namespace c10d::v0
