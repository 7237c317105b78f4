// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/mpi/mpi_calls.h"

#include <climits>
#include <cstring>
#include <numeric>

#include "src/backends/common/gathered_reduction.h"
#include "src/backends/mpi/mpi_types.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr std::size_t kMaxCount = INT_MAX;

// Whether MPI's own reduction gives the result that c10d promises.
bool is_own_reduction(DType dtype, ReduceOp op) noexcept {
  return op.kind != ReduceOp::avg && op.kind != ReduceOp::premul_sum &&
         !collects_first(dtype, op.kind);
}

bool fits(std::span<const std::size_t> counts) noexcept {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0}) <= kMaxCount;
}

const std::byte* bytes_of(ConstTensor tensor) { return static_cast<const std::byte*>(tensor.data); }

// The place of this rank's shard.
const void* shard(const Channel& channel, ConstTensor all, std::size_t count) {
  return bytes_of(all) + static_cast<std::size_t>(channel.rank) * count * size_of(all.dtype);
}

const void* shard(const Channel& channel, ConstTensor all, std::span<const std::size_t> counts) {
  return bytes_of(all) + first_of(counts, channel.rank) * size_of(all.dtype);
}

const void* in_place_or(bool in_place, const void* data) { return in_place ? MPI_IN_PLACE : data; }

}  // namespace

bool is_direct(const Channel&, const AllReduce& op) noexcept {
  return is_own_reduction(op.input.dtype, op.op) && op.input.count <= kMaxCount;
}

int start(Channel& channel, const AllReduce& op, MPI_Request* request) {
  const void* input = in_place_or(op.input.data == op.output.data, op.input.data);
  const int count = static_cast<int>(op.input.count);
  const MPI_Datatype type = reduce_type(op.input.dtype);
  const MPI_Op reduction = reduce_op(op.input.dtype, op.op.kind);
  return request
             ? MPI_Iallreduce(input, op.output.data, count, type, reduction, channel.collectives,
                              request)
             : MPI_Allreduce(input, op.output.data, count, type, reduction, channel.collectives);
}

bool is_direct(const Channel&, const Broadcast& op) noexcept {
  return op.output.count <= kMaxCount;
}

int start(Channel& channel, const Broadcast& op, MPI_Request* request) {
  if (channel.rank == op.root && op.input.data != op.output.data && op.input.count > 0)
    std::memcpy(op.output.data, op.input.data, op.input.bytes());
  const int count = static_cast<int>(op.output.count);
  const MPI_Datatype type = move_type(op.output.dtype);
  return request ? MPI_Ibcast(op.output.data, count, type, op.root, channel.collectives, request)
                 : MPI_Bcast(op.output.data, count, type, op.root, channel.collectives);
}

bool is_direct(const Channel&, const AllGather&) noexcept { return true; }

int start(Channel& channel, const AllGather& op, MPI_Request* request) {
  const bool in_place = op.input.data == shard(channel, op.output, op.input.count);
  const void* input = in_place_or(in_place, op.input.data);
  const auto [count, type] = channel.elements(op.input.count, op.input.dtype);
  return request
             ? MPI_Iallgather(input, count, type, op.output.data, count, type, channel.collectives,
                              request)
             : MPI_Allgather(input, count, type, op.output.data, count, type, channel.collectives);
}

bool is_direct(const Channel&, const AllGatherV& op) noexcept { return fits(op.counts); }

int start(Channel& channel, const AllGatherV& op, MPI_Request* request) {
  const bool in_place = op.input.data == shard(channel, op.output, op.counts);
  const void* input = in_place_or(in_place, op.input.data);
  const int count = static_cast<int>(op.input.count);
  const MPI_Datatype type = move_type(op.input.dtype);
  channel.shards.set(op.counts);
  const auto& [counts, displacements] = channel.shards;
  return request ? MPI_Iallgatherv(input, count, type, op.output.data, counts.data(),
                                   displacements.data(), type, channel.collectives, request)
                 : MPI_Allgatherv(input, count, type, op.output.data, counts.data(),
                                  displacements.data(), type, channel.collectives);
}

bool is_direct(const Channel& channel, const ReduceScatter& op) noexcept {
  return is_own_reduction(op.input.dtype, op.op) && op.input.count <= kMaxCount &&
         op.output.data != shard(channel, op.input, op.output.count);
}

int start(Channel& channel, const ReduceScatter& op, MPI_Request* request) {
  const int count = static_cast<int>(op.output.count);
  const MPI_Datatype type = reduce_type(op.input.dtype);
  const MPI_Op reduction = reduce_op(op.input.dtype, op.op.kind);
  return request ? MPI_Ireduce_scatter_block(op.input.data, op.output.data, count, type, reduction,
                                             channel.collectives, request)
                 : MPI_Reduce_scatter_block(op.input.data, op.output.data, count, type, reduction,
                                            channel.collectives);
}

bool is_direct(const Channel& channel, const ReduceScatterV& op) noexcept {
  return is_own_reduction(op.input.dtype, op.op) && fits(op.counts) &&
         op.output.data != shard(channel, op.input, op.counts);
}

int start(Channel& channel, const ReduceScatterV& op, MPI_Request* request) {
  channel.shards.set(op.counts);
  const int* counts = channel.shards.counts.data();
  const MPI_Datatype type = reduce_type(op.input.dtype);
  const MPI_Op reduction = reduce_op(op.input.dtype, op.op.kind);
  return request ? MPI_Ireduce_scatter(op.input.data, op.output.data, counts, type, reduction,
                                       channel.collectives, request)
                 : MPI_Reduce_scatter(op.input.data, op.output.data, counts, type, reduction,
                                      channel.collectives);
}

bool is_direct(const Channel& channel, const Reduce& op) noexcept {
  const bool in_place = channel.rank == op.root && op.input.data == op.output.data;
  return is_own_reduction(op.input.dtype, op.op) && op.input.count <= kMaxCount &&
         (kReducesInPlace || !in_place);
}

int start(Channel& channel, const Reduce& op, MPI_Request* request) {
  const bool in_place = channel.rank == op.root && op.input.data == op.output.data;
  const void* input = in_place_or(in_place, op.input.data);
  const int count = static_cast<int>(op.input.count);
  const MPI_Datatype type = reduce_type(op.input.dtype);
  const MPI_Op reduction = reduce_op(op.input.dtype, op.op.kind);
  return request ? MPI_Ireduce(input, op.output.data, count, type, reduction, op.root,
                               channel.collectives, request)
                 : MPI_Reduce(input, op.output.data, count, type, reduction, op.root,
                              channel.collectives);
}

bool is_direct(const Channel&, const Gather&) noexcept { return true; }

int start(Channel& channel, const Gather& op, MPI_Request* request) {
  const bool in_place =
      channel.rank == op.root && op.input.data == shard(channel, op.output, op.input.count);
  const void* input = in_place_or(in_place, op.input.data);
  const auto [count, type] = channel.elements(op.input.count, op.input.dtype);
  return request ? MPI_Igather(input, count, type, op.output.data, count, type, op.root,
                               channel.collectives, request)
                 : MPI_Gather(input, count, type, op.output.data, count, type, op.root,
                              channel.collectives);
}

bool is_direct(const Channel&, const GatherV& op) noexcept { return fits(op.counts); }

int start(Channel& channel, const GatherV& op, MPI_Request* request) {
  const bool in_place =
      channel.rank == op.root && op.input.data == shard(channel, op.output, op.counts);
  const void* input = in_place_or(in_place, op.input.data);
  const int count = static_cast<int>(op.input.count);
  const MPI_Datatype type = move_type(op.input.dtype);
  channel.shards.set(op.counts);
  const auto& [counts, displacements] = channel.shards;
  return request ? MPI_Igatherv(input, count, type, op.output.data, counts.data(),
                                displacements.data(), type, op.root, channel.collectives, request)
                 : MPI_Gatherv(input, count, type, op.output.data, counts.data(),
                               displacements.data(), type, op.root, channel.collectives);
}

bool is_direct(const Channel&, const Scatter&) noexcept { return true; }

int start(Channel& channel, const Scatter& op, MPI_Request* request) {
  const bool in_place =
      channel.rank == op.root && op.output.data == shard(channel, op.input, op.output.count);
  void* output = in_place ? MPI_IN_PLACE : op.output.data;
  const auto [count, type] = channel.elements(op.output.count, op.output.dtype);
  return request ? MPI_Iscatter(op.input.data, count, type, output, count, type, op.root,
                                channel.collectives, request)
                 : MPI_Scatter(op.input.data, count, type, output, count, type, op.root,
                               channel.collectives);
}

bool is_direct(const Channel&, const ScatterV& op) noexcept { return fits(op.counts); }

int start(Channel& channel, const ScatterV& op, MPI_Request* request) {
  const bool in_place =
      channel.rank == op.root && op.output.data == shard(channel, op.input, op.counts);
  void* output = in_place ? MPI_IN_PLACE : op.output.data;
  const int count = static_cast<int>(op.output.count);
  const MPI_Datatype type = move_type(op.output.dtype);
  channel.shards.set(op.counts);
  const auto& [counts, displacements] = channel.shards;
  return request ? MPI_Iscatterv(op.input.data, counts.data(), displacements.data(), type, output,
                                 count, type, op.root, channel.collectives, request)
                 : MPI_Scatterv(op.input.data, counts.data(), displacements.data(), type, output,
                                count, type, op.root, channel.collectives);
}

bool is_direct(const Channel&, const AllToAll&) noexcept { return true; }

int start(Channel& channel, const AllToAll& op, MPI_Request* request) {
  const auto [count, type] =
      channel.elements(op.input.count / static_cast<std::size_t>(channel.size), op.input.dtype);
  return request ? MPI_Ialltoall(op.input.data, count, type, op.output.data, count, type,
                                 channel.collectives, request)
                 : MPI_Alltoall(op.input.data, count, type, op.output.data, count, type,
                                channel.collectives);
}

bool is_direct(const Channel&, const Barrier&) noexcept { return true; }

int start(Channel& channel, const Barrier&, MPI_Request* request) {
  return request ? MPI_Ibarrier(channel.collectives, request) : MPI_Barrier(channel.collectives);
}

}}  // namespace c10d::v0
