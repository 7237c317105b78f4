// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/mpi/schedule.h"

#include <algorithm>
#include <cstring>

#include "kernels/reduce.h"
#include "src/backends/common/gathered_reduction.h"
#include "src/backends/mpi/mpi_types.h"
#include "src/backends/mpi/runtime.h"

namespace c10d { inline namespace v0 {
namespace {

// Elements of one call where counts exceed an int.
constexpr std::size_t kChunk = std::size_t{1} << 30;
constexpr int kExchangeTag = 1;

Tensor writable(ConstTensor tensor) {
  return {const_cast<void*>(tensor.data), tensor.count, tensor.dtype};
}

// Calls f(first, count) for every chunk.
template <class F>
void each_chunk(std::size_t count, F f) {
  for (std::size_t first = 0; first < count; first += kChunk)
    f(first, std::min(kChunk, count - first));
}

}  // namespace

bool Plan::advance() {
  for (;;) {
    if (!requests_.empty()) {
      int done = 0;
      const auto turn = mpi_turn();
      const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done,
                                   MPI_STATUSES_IGNORE);
      check_mpi(code);
      if (!done) return false;
      requests_.clear();
    }
    if (steps_.empty()) return true;
    const Step step = std::move(steps_.front());
    steps_.pop_front();
    step();
  }
}

bool Plan::in_progress() const noexcept {
  return std::any_of(requests_.begin(), requests_.end(),
                     [](MPI_Request request) { return request != MPI_REQUEST_NULL; });
}

bool Plan::over() noexcept {
  const auto turn = mpi_turn();
  for (MPI_Request& request : requests_) {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  }
  return !in_progress();
}

Tensor Plan::scratch(std::size_t count, DType dtype) {
  memory_.push_back(std::make_unique_for_overwrite<std::byte[]>(count * size_of(dtype)));
  return {memory_.back().get(), count, dtype};
}

Plan::Counts Plan::equal(std::size_t count) const {
  return Counts(static_cast<std::size_t>(channel_.size), count);
}

void Plan::add_multiply(void* output, ConstTensor input, ReduceOp op) {
  add_step([=] { multiply(output, input, op); });
}

void Plan::add_divide(Tensor tensor) {
  add_step([this, tensor] { divide(tensor, channel_.size); });
}

void Plan::add_copy(Tensor to, ConstTensor from) {
  if (from.count == 0 || to.data == from.data) return;
  add_step([=] { std::memcpy(to.data, from.data, from.bytes()); });
}

void Plan::add_exchange(std::vector<Piece> to_send, std::vector<Piece> to_take) {
  add_step([this, to_send = std::move(to_send), to_take = std::move(to_take)] {
    const auto turn = mpi_turn();
    for (const auto& [peer, tensor] : to_take) {
      const auto [count, type] = channel_.elements(tensor.count, tensor.dtype);
      check_mpi(MPI_Irecv(tensor.data, count, type, peer, kExchangeTag, channel_.collectives,
                          next_request()));
    }
    for (const auto& [peer, tensor] : to_send) {
      const auto [count, type] = channel_.elements(tensor.count, tensor.dtype);
      check_mpi(MPI_Isend(tensor.data, count, type, peer, kExchangeTag, channel_.collectives,
                          next_request()));
    }
  });
}

void Plan::add_collect(ConstTensor input, Tensor own, std::span<const std::size_t> counts,
                       ReduceOp op) {
  const Tensor all = scratch(own.count * static_cast<std::size_t>(channel_.size), input.dtype);
  add(AllToAllV{all, input, equal(own.count), counts});
  add_step([this, own, all, op] { reduce_collected(own, all.data, channel_.size, op); });
}

void Plan::compose(const AllReduce& op) {
  const std::size_t n = static_cast<std::size_t>(channel_.size);
  if (collects_first(op.input.dtype, op.op.kind)) {
    if (op.input.bytes() * n <= kGatherAllBytes) {
      const Tensor all = scratch(n * op.input.count, op.input.dtype);
      add(AllGather{all, op.input});
      return add_step([=] { reduce_collected(op.output, all.data, static_cast<int>(n), op.op); });
    }
    const Counts counts = slices(op.input.count, channel_.size);
    const Tensor own = op.output.slice(first_of(counts, channel_.rank), counts[channel_.rank]);
    add_collect(op.input, own, counts, op.op);
    compose(AllGatherV{op.output, own, counts});
  } else if (op.op.kind == ReduceOp::premul_sum) {
    add_multiply(op.output.data, op.input, op.op);
    add(AllReduce{op.output, op.output, ReduceOp::sum});
  } else if (op.op.kind == ReduceOp::avg) {
    add(AllReduce{op.output, op.input, ReduceOp::sum});
    add_divide(op.output);
  } else {
    each_chunk(op.input.count, [&](std::size_t first, std::size_t count) {
      add(AllReduce{op.output.slice(first, count), op.input.slice(first, count), op.op});
    });
  }
}

void Plan::compose(const Reduce& op) {
  const bool root = channel_.rank == op.root;
  const auto part = [&](std::size_t first, std::size_t count) {
    return root ? op.output.slice(first, count) : Tensor();
  };
  if (collects_first(op.input.dtype, op.op.kind)) {
    const Counts counts = slices(op.input.count, channel_.size);
    const Tensor own = scratch(counts[channel_.rank], op.input.dtype);
    add_collect(op.input, own, counts, op.op);
    compose(GatherV{op.output, own, counts, op.root});
  } else if (!kReducesInPlace && root && op.input.data == op.output.data) {
    const Tensor copy = scratch(op.input.count, op.input.dtype);
    add_copy(copy, op.input);
    add(Reduce{op.output, copy, op.op, op.root});
  } else if (op.op.kind == ReduceOp::premul_sum) {
    const Tensor scaled = root ? op.output : scratch(op.input.count, op.input.dtype);
    add_multiply(scaled.data, op.input, op.op);
    add(Reduce{op.output, scaled, ReduceOp::sum, op.root});
  } else if (op.op.kind == ReduceOp::avg) {
    add(Reduce{op.output, op.input, ReduceOp::sum, op.root});
    if (root) add_divide(op.output);
  } else {
    each_chunk(op.input.count, [&](std::size_t first, std::size_t count) {
      add(Reduce{part(first, count), op.input.slice(first, count), op.op, op.root});
    });
  }
}

template <class T>
void Plan::add_reduce_scatter(const T& op, std::span<const std::size_t> counts) {
  if (collects_first(op.input.dtype, op.op.kind))
    return add_collect(op.input, op.output, counts, op.op);
  T rest = op;  // what is left for MPI
  if (op.output.data == op.input.slice(first_of(counts, channel_.rank), 0).data) {
    rest.output = scratch(op.output.count, op.output.dtype);
    add(rest);
    add_copy(op.output, rest.output);
  } else if (op.op.kind == ReduceOp::premul_sum) {
    const Tensor scaled = scratch(op.input.count, op.input.dtype);
    add_multiply(scaled.data, op.input, op.op);
    rest.input = scaled;
    rest.op = ReduceOp::sum;
    add(rest);
  } else if (op.op.kind == ReduceOp::avg) {
    rest.op = ReduceOp::sum;
    add(rest);
    add_divide(op.output);
  } else {
    add_reduce_each(op.input, op.output, counts, op.op);
  }
}

void Plan::compose(const ReduceScatter& op) { add_reduce_scatter(op, equal(op.output.count)); }
void Plan::compose(const ReduceScatterV& op) { add_reduce_scatter(op, op.counts); }

void Plan::add_reduce_each(ConstTensor input, Tensor own, std::span<const std::size_t> counts,
                           ReduceOp op) {
  for (int root = 0; root < channel_.size; ++root)
    add(Reduce{root == channel_.rank ? own : Tensor(),
               input.slice(first_of(counts, root), counts[root]), op, root});
}

void Plan::compose(const Broadcast& op) {
  if (channel_.rank == op.root) add_copy(op.output, op.input);
  each_chunk(op.output.count, [&](std::size_t first, std::size_t count) {
    const Tensor chunk = op.output.slice(first, count);
    add(Broadcast{chunk, chunk, op.root});
  });
}

void Plan::compose(const AllGatherV& op) {
  std::vector<Piece> to_send, to_take;
  for (int peer = 0; peer < channel_.size; ++peer) {
    const Tensor place = op.output.slice(first_of(op.counts, peer), op.counts[peer]);
    if (peer == channel_.rank) {
      add_copy(place, op.input);
    } else {
      to_send.push_back({peer, writable(op.input)});
      to_take.push_back({peer, place});
    }
  }
  add_exchange(std::move(to_send), std::move(to_take));
}

void Plan::compose(const GatherV& op) {
  std::vector<Piece> to_send, to_take;
  if (channel_.rank != op.root) {
    to_send.push_back({op.root, writable(op.input)});
  } else {
    for (int peer = 0; peer < channel_.size; ++peer) {
      const Tensor place = op.output.slice(first_of(op.counts, peer), op.counts[peer]);
      if (peer == op.root)
        add_copy(place, op.input);
      else
        to_take.push_back({peer, place});
    }
  }
  add_exchange(std::move(to_send), std::move(to_take));
}

void Plan::compose(const ScatterV& op) {
  std::vector<Piece> to_send, to_take;
  if (channel_.rank != op.root) {
    to_take.push_back({op.root, op.output});
  } else {
    for (int peer = 0; peer < channel_.size; ++peer) {
      const ConstTensor place = op.input.slice(first_of(op.counts, peer), op.counts[peer]);
      if (peer == op.root)
        add_copy(op.output, place);
      else
        to_send.push_back({peer, writable(place)});
    }
  }
  add_exchange(std::move(to_send), std::move(to_take));
}

void Plan::compose(const AllToAllV& op) {
  std::vector<Piece> to_send, to_take;
  for (int peer = 0; peer < channel_.size; ++peer) {
    const ConstTensor from = op.input.slice(first_of(op.input_counts, peer), op.input_counts[peer]);
    const Tensor to = op.output.slice(first_of(op.output_counts, peer), op.output_counts[peer]);
    if (peer == channel_.rank) {
      add_copy(to, from);
    } else {
      if (from.count > 0) to_send.push_back({peer, writable(from)});
      if (to.count > 0) to_take.push_back({peer, to});
    }
  }
  add_exchange(std::move(to_send), std::move(to_take));
}

}}  // namespace c10d::v0
