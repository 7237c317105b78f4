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

template <class T>
T* in_place_or(bool in_place, T* data) {
  return in_place ? static_cast<T*>(MPI_IN_PLACE) : data;
}

bool fits(std::span<const std::size_t> counts) noexcept {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0}) <= kMaxCount;
}

const std::byte* bytes_of(ConstView view) { return static_cast<const std::byte*>(view.data); }

// The place of this rank's shard.
const void* shard(const Communicators& comms, ConstView all, std::size_t count) {
  return bytes_of(all) + static_cast<std::size_t>(comms.rank) * count * size_of(all.dtype);
}

const void* shard(const Communicators& comms, ConstView all, std::span<const std::size_t> counts) {
  return bytes_of(all) + first_of(counts, comms.rank) * size_of(all.dtype);
}

// The blocking form of a collective, or the other one when there is a request to start.
template <class Blocking, class Starting, class... Args>
int call(Blocking blocking, Starting starting, MPI_Request* request, Args... args) {
  return request != nullptr ? starting(args..., request) : blocking(args...);
}

}  // namespace

bool is_direct(const Communicators&, const AllReduce& op) noexcept {
  return is_own_reduction(op.input.dtype, op.op) && op.input.count <= kMaxCount;
}

int start(Communicators& comms, const AllReduce& op, MPI_Request* request) {
  return call(MPI_Allreduce, MPI_Iallreduce, request,
              in_place_or(op.input.data == op.output.data, op.input.data), op.output.data,
              static_cast<int>(op.input.count), reduce_type(op.input.dtype),
              reduce_op(op.input.dtype, op.op.kind), comms.collectives);
}

bool is_direct(const Communicators&, const Broadcast& op) noexcept {
  return op.output.count <= kMaxCount;
}

int start(Communicators& comms, const Broadcast& op, MPI_Request* request) {
  if (comms.rank == op.root && op.input.data != op.output.data && op.input.count > 0)
    std::memcpy(op.output.data, op.input.data, op.input.bytes());
  return call(MPI_Bcast, MPI_Ibcast, request, op.output.data, static_cast<int>(op.output.count),
              move_type(op.output.dtype), op.root, comms.collectives);
}

int start(Communicators& comms, const AllGather& op, MPI_Request* request) {
  const auto [count, type] = comms.elements(op.input.count, op.input.dtype);
  const bool in_place = op.input.data == shard(comms, op.output, op.input.count);
  return call(MPI_Allgather, MPI_Iallgather, request, in_place_or(in_place, op.input.data), count,
              type, op.output.data, count, type, comms.collectives);
}

bool is_direct(const Communicators&, const AllGatherV& op) noexcept { return fits(op.counts); }

int start(Communicators& comms, const AllGatherV& op, MPI_Request* request) {
  const MPI_Datatype type = move_type(op.input.dtype);
  const auto& [counts, displacements] = comms.shards.set(op.counts);
  const bool in_place = op.input.data == shard(comms, op.output, op.counts);
  return call(MPI_Allgatherv, MPI_Iallgatherv, request, in_place_or(in_place, op.input.data),
              static_cast<int>(op.input.count), type, op.output.data, counts.data(),
              displacements.data(), type, comms.collectives);
}

bool is_direct(const Communicators& comms, const ReduceScatter& op) noexcept {
  return is_own_reduction(op.input.dtype, op.op) && op.input.count <= kMaxCount &&
         op.output.data != shard(comms, op.input, op.output.count);
}

int start(Communicators& comms, const ReduceScatter& op, MPI_Request* request) {
  return call(MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, request, op.input.data,
              op.output.data, static_cast<int>(op.output.count), reduce_type(op.input.dtype),
              reduce_op(op.input.dtype, op.op.kind), comms.collectives);
}

bool is_direct(const Communicators& comms, const ReduceScatterV& op) noexcept {
  return is_own_reduction(op.input.dtype, op.op) && fits(op.counts) &&
         op.output.data != shard(comms, op.input, op.counts);
}

int start(Communicators& comms, const ReduceScatterV& op, MPI_Request* request) {
  return call(MPI_Reduce_scatter, MPI_Ireduce_scatter, request, op.input.data, op.output.data,
              comms.shards.set(op.counts).counts.data(), reduce_type(op.input.dtype),
              reduce_op(op.input.dtype, op.op.kind), comms.collectives);
}

bool is_direct(const Communicators& comms, const Reduce& op) noexcept {
  const bool in_place = comms.rank == op.root && op.input.data == op.output.data;
  return is_own_reduction(op.input.dtype, op.op) && op.input.count <= kMaxCount &&
         (kReducesInPlace || !in_place);
}

int start(Communicators& comms, const Reduce& op, MPI_Request* request) {
  const bool in_place = comms.rank == op.root && op.input.data == op.output.data;
  return call(MPI_Reduce, MPI_Ireduce, request, in_place_or(in_place, op.input.data),
              op.output.data, static_cast<int>(op.input.count), reduce_type(op.input.dtype),
              reduce_op(op.input.dtype, op.op.kind), op.root, comms.collectives);
}

bool is_direct(const Communicators&, const Scan& op) noexcept {
  return is_own_reduction(op.input.dtype, op.op) && op.input.count <= kMaxCount;
}

int start(Communicators& comms, const Scan& op, MPI_Request* request) {
  return call(MPI_Scan, MPI_Iscan, request,
              in_place_or(op.input.data == op.output.data, op.input.data), op.output.data,
              static_cast<int>(op.input.count), reduce_type(op.input.dtype),
              reduce_op(op.input.dtype, op.op.kind), comms.collectives);
}

bool is_direct(const Communicators&, const Exscan& op) noexcept {
  return is_own_reduction(op.input.dtype, op.op) && op.input.count <= kMaxCount;
}

// MPI leaves open what becomes of the receive buffer of rank 0, unless it is in place: then MPI
// does not change it.
int start(Communicators& comms, const Exscan& op, MPI_Request* request) {
  void* const output = comms.rank == 0 ? const_cast<void*>(op.input.data) : op.output.data;
  return call(MPI_Exscan, MPI_Iexscan, request, in_place_or(op.input.data == output, op.input.data),
              output, static_cast<int>(op.input.count), reduce_type(op.input.dtype),
              reduce_op(op.input.dtype, op.op.kind), comms.collectives);
}

int start(Communicators& comms, const Gather& op, MPI_Request* request) {
  const auto [count, type] = comms.elements(op.input.count, op.input.dtype);
  const bool in_place =
      comms.rank == op.root && op.input.data == shard(comms, op.output, op.input.count);
  return call(MPI_Gather, MPI_Igather, request, in_place_or(in_place, op.input.data), count, type,
              op.output.data, count, type, op.root, comms.collectives);
}

bool is_direct(const Communicators&, const GatherV& op) noexcept { return fits(op.counts); }

int start(Communicators& comms, const GatherV& op, MPI_Request* request) {
  const MPI_Datatype type = move_type(op.input.dtype);
  const auto& [counts, displacements] = comms.shards.set(op.counts);
  const bool in_place =
      comms.rank == op.root && op.input.data == shard(comms, op.output, op.counts);
  return call(MPI_Gatherv, MPI_Igatherv, request, in_place_or(in_place, op.input.data),
              static_cast<int>(op.input.count), type, op.output.data, counts.data(),
              displacements.data(), type, op.root, comms.collectives);
}

int start(Communicators& comms, const Scatter& op, MPI_Request* request) {
  const auto [count, type] = comms.elements(op.output.count, op.output.dtype);
  const bool in_place =
      comms.rank == op.root && op.output.data == shard(comms, op.input, op.output.count);
  return call(MPI_Scatter, MPI_Iscatter, request, op.input.data, count, type,
              in_place_or(in_place, op.output.data), count, type, op.root, comms.collectives);
}

bool is_direct(const Communicators&, const ScatterV& op) noexcept { return fits(op.counts); }

int start(Communicators& comms, const ScatterV& op, MPI_Request* request) {
  const MPI_Datatype type = move_type(op.output.dtype);
  const auto& [counts, displacements] = comms.shards.set(op.counts);
  const bool in_place =
      comms.rank == op.root && op.output.data == shard(comms, op.input, op.counts);
  return call(MPI_Scatterv, MPI_Iscatterv, request, op.input.data, counts.data(),
              displacements.data(), type, in_place_or(in_place, op.output.data),
              static_cast<int>(op.output.count), type, op.root, comms.collectives);
}

int start(Communicators& comms, const AllToAll& op, MPI_Request* request) {
  const auto [count, type] =
      comms.elements(op.input.count / static_cast<std::size_t>(comms.size), op.input.dtype);
  return call(MPI_Alltoall, MPI_Ialltoall, request, op.input.data, count, type, op.output.data,
              count, type, comms.collectives);
}

int start(Communicators& comms, const Barrier&, MPI_Request* request) {
  return call(MPI_Barrier, MPI_Ibarrier, request, comms.collectives);
}

}}  // namespace c10d::v0
