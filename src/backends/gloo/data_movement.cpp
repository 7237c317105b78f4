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

void* pointer(ConstTensor tensor) { return const_cast<void*>(tensor.data); }

// No-op when a rank's own shard is already in place.
void copy(Tensor to, ConstTensor from) {
  if (from.bytes() > 0 && to.data != from.data) std::memcpy(to.data, from.data, from.bytes());
}

// The root's side of gather_pieces and scatter_pieces: `post` each peer's piece, then wait for all.
template <class Post, class Wait>
void each_piece(const Run& run, DType dtype, std::span<const std::size_t> counts, Post post,
                Wait wait) {
  std::size_t offset = 0;
  int posted = 0;
  for (int peer = 0; peer < run.size(); ++peer) {
    const std::size_t bytes = counts[peer] * size_of(dtype);
    if (peer != run.rank() && bytes > 0) {
      post(peer, offset, bytes);
      ++posted;
    }
    offset += bytes;
  }
  while (posted-- > 0) wait();
}

void scatter_pieces(const Run& run, ConstTensor all, Tensor own,
                    std::span<const std::size_t> counts, int root) {
  const std::uint64_t slot = gloo::Slot::build(kPiecesPrefix, run.tag);
  if (run.rank() != root) {
    if (own.count == 0) return;
    const auto buffer = run.mesh->createUnboundBuffer(own.data, own.bytes());
    buffer->recv(root, slot);
    buffer->waitRecv(run.timeout());
    return;
  }
  const auto buffer = run.mesh->createUnboundBuffer(pointer(all), all.bytes());
  each_piece(
      run, all.dtype, counts,
      [&](int peer, std::size_t offset, std::size_t bytes) {
        buffer->send(peer, slot, offset, bytes);
      },
      [&] { buffer->waitSend(run.timeout()); });
  copy(own, all.slice(first_of(counts, root), counts[root]));
}

}  // namespace

void gather_pieces(const Run& run, ConstTensor own, Tensor all, std::span<const std::size_t> counts,
                   int root) {
  const std::uint64_t slot = gloo::Slot::build(kPiecesPrefix, run.tag);
  if (run.rank() != root) {
    if (own.count == 0) return;
    const auto buffer = run.mesh->createUnboundBuffer(pointer(own), own.bytes());
    buffer->send(root, slot);
    buffer->waitSend(run.timeout());
    return;
  }
  const auto buffer = run.mesh->createUnboundBuffer(all.data, all.bytes());
  copy(all.slice(first_of(counts, root), counts[root]), own);
  each_piece(
      run, all.dtype, counts,
      [&](int peer, std::size_t offset, std::size_t bytes) {
        buffer->recv(peer, slot, offset, bytes);
      },
      [&] { buffer->waitRecv(run.timeout()); });
}

void all_gather_pieces(const Run& run, ConstTensor own, Tensor all,
                       std::span<const std::size_t> counts) {
  gloo::AllgathervOptions options(run.mesh);
  copy(all.slice(first_of(counts, run.rank()), counts[run.rank()]), own);
  as_element(all.dtype, [&]<class T>(T) {
    options.setOutput(static_cast<T*>(all.data), {counts.begin(), counts.end()});
  });
  run.set_tag_and_timeout(options);
  gloo::allgatherv(options);
}

void exchange_pieces(const Run& run, ConstTensor input, std::span<const std::size_t> input_counts,
                     Tensor output, std::span<const std::size_t> output_counts) {
  gloo::AlltoallvOptions options(run.mesh);
  as_element(input.dtype, [&]<class T>(T) {
    options.setInput(static_cast<T*>(pointer(input)), {input_counts.begin(), input_counts.end()});
    options.setOutput(static_cast<T*>(output.data), {output_counts.begin(), output_counts.end()});
  });
  run.set_tag_and_timeout(options);
  gloo::alltoallv(options);
}

void run(const Run& run, const Broadcast& op) {
  if (op.output.count == 0) return;
  gloo::BroadcastOptions options(run.mesh);
  as_element(op.output.dtype, [&]<class T>(T) {
    if (run.rank() == op.root && op.input.data != op.output.data)
      options.setInput(static_cast<T*>(pointer(op.input)), op.input.count);
    options.setOutput(static_cast<T*>(op.output.data), op.output.count);
  });
  options.setRoot(op.root);
  run.set_tag_and_timeout(options);
  gloo::broadcast(options);
}

void run(const Run& run, const AllGather& op) {
  if (op.input.count == 0) return;
  gloo::AllgatherOptions options(run.mesh);
  as_element(op.input.dtype, [&]<class T>(T) {
    T* output = static_cast<T*>(op.output.data);
    if (op.input.data != output + run.rank() * op.input.count)
      options.setInput(static_cast<T*>(pointer(op.input)), op.input.count);
    options.setOutput(output, op.output.count);
  });
  run.set_tag_and_timeout(options);
  gloo::allgather(options);
}

void run(const Run& run, const AllGatherV& op) {
  if (op.output.count > 0) all_gather_pieces(run, op.input, op.output, op.counts);
}

void run(const Run& run, const Gather& op) {
  if (op.input.count == 0) return;
  gloo::GatherOptions options(run.mesh);
  as_element(op.input.dtype, [&]<class T>(T) {
    options.setInput(static_cast<T*>(pointer(op.input)), op.input.count);
    if (run.rank() == op.root) options.setOutput(static_cast<T*>(op.output.data), op.output.count);
  });
  options.setRoot(op.root);
  run.set_tag_and_timeout(options);
  gloo::gather(options);
}

void run(const Run& run, const GatherV& op) {
  gather_pieces(run, op.input, op.output, op.counts, op.root);
}

void run(const Run& run, const Scatter& op) {
  if (op.output.count == 0) return;
  gloo::ScatterOptions options(run.mesh);
  as_element(op.output.dtype, [&]<class T>(T) {
    std::vector<T*> shards;
    if (run.rank() == op.root)
      for (int peer = 0; peer < run.size(); ++peer)
        shards.push_back(static_cast<T*>(pointer(op.input)) + peer * op.output.count);
    options.setInputs(std::move(shards), op.output.count);
    options.setOutput(static_cast<T*>(op.output.data), op.output.count);
  });
  options.setRoot(op.root);
  run.set_tag_and_timeout(options);
  gloo::scatter(options);
}

void run(const Run& run, const ScatterV& op) {
  scatter_pieces(run, op.input, op.output, op.counts, op.root);
}

void run(const Run& run, const AllToAll& op) {
  if (op.input.count == 0) return;
  gloo::AlltoallOptions options(run.mesh);
  as_element(op.input.dtype, [&]<class T>(T) {
    options.setInput(static_cast<T*>(pointer(op.input)), op.input.count);
    options.setOutput(static_cast<T*>(op.output.data), op.output.count);
  });
  run.set_tag_and_timeout(options);
  gloo::alltoall(options);
}

void run(const Run& run, const AllToAllV& op) {
  exchange_pieces(run, op.input, op.input_counts, op.output, op.output_counts);
}

void run(const Run& run, const Barrier&) {
  gloo::BarrierOptions options(run.mesh);
  run.set_tag_and_timeout(options);
  gloo::barrier(options);
}

}}  // namespace c10d::v0
