// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/mpi/schedule.h"

#include <algorithm>
#include <cstring>

#include "kernels/reduce.h"
#include "src/backends/common/gathered_reduction.h"
#include "src/backends/common/prefix_reduction.h"
#include "src/backends/mpi/mpi_types.h"

namespace c10d { inline namespace v0 {
namespace {

// Elements of one call where counts exceed an int.
constexpr std::size_t kChunk = std::size_t{1} << 30;
constexpr int kExchangeTag = 1;

View writable(ConstView view) { return {const_cast<void*>(view.data), view.count, view.dtype}; }

template <class T>
T shard_of(const T& all, std::span<const std::size_t> counts, int rank) {
  return all.slice(first_of(counts, rank), counts[static_cast<std::size_t>(rank)]);
}

// Calls f(first, count) for every chunk.
template <class F>
void each_chunk(std::size_t count, F f) {
  for (std::size_t first = 0; first < count; first += kChunk)
    f(first, std::min(kChunk, count - first));
}

}  // namespace

bool Schedule::advance() {
  for (;;) {
    if (!requests_.empty()) {
      int done = 0;
      const auto turn = mpi_turn();
      check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done,
                            MPI_STATUSES_IGNORE));
      if (!done) return false;
      requests_.clear();
    }
    if (steps_.empty()) return true;
    const Step step = std::move(steps_.front());
    steps_.pop_front();
    step();
  }
}

bool Schedule::in_progress() const noexcept {
  return std::any_of(requests_.begin(), requests_.end(),
                     [](MPI_Request request) { return request != MPI_REQUEST_NULL; });
}

bool Schedule::is_done() noexcept {
  const auto turn = mpi_turn();
  for (MPI_Request& request : requests_) {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  }
  return !in_progress();
}

View Schedule::scratch(std::size_t count, DType dtype) {
  memory_.push_back(std::make_unique_for_overwrite<std::byte[]>(count * size_of(dtype)));
  return {memory_.back().get(), count, dtype};
}

Schedule::Counts Schedule::equal(std::size_t count) const {
  return Counts(static_cast<std::size_t>(comms_.size), count);
}

void Schedule::add_multiply(void* output, ConstView input, ReduceOp op) {
  add_step([=] { multiply(output, input, op); });
}

void Schedule::add_divide(View view) {
  add_step([this, view] { divide(view, comms_.size); });
}

void Schedule::add_copy(View to, ConstView from) {
  if (from.count == 0 || to.data == from.data) return;
  add_step([=] { std::memcpy(to.data, from.data, from.bytes()); });
}

template <class Given, class Taken>
void Schedule::add_exchange(Given given, Taken taken) {
  std::vector<Piece> to_send, to_take;
  for (int peer = 0; peer < comms_.size; ++peer) {
    const ConstView out = given(peer);
    const View in = taken(peer);
    if (peer == comms_.rank) {
      add_copy(in, out);
      continue;
    }
    if (out.count > 0) to_send.push_back({peer, writable(out)});
    if (in.count > 0) to_take.push_back({peer, in});
  }
  add_step([this, to_send = std::move(to_send), to_take = std::move(to_take)] {
    const auto turn = mpi_turn();
    for (const auto& [peer, view] : to_take) {
      const auto [count, type] = comms_.elements(view.count, view.dtype);
      check_mpi(MPI_Irecv(view.data, count, type, peer, kExchangeTag, comms_.collectives,
                          next_request()));
    }
    for (const auto& [peer, view] : to_send) {
      const auto [count, type] = comms_.elements(view.count, view.dtype);
      check_mpi(MPI_Isend(view.data, count, type, peer, kExchangeTag, comms_.collectives,
                          next_request()));
    }
  });
}

void Schedule::add_collect(ConstView input, View own, std::span<const std::size_t> counts,
                           ReduceOp op) {
  const View all = scratch(own.count * static_cast<std::size_t>(comms_.size), input.dtype);
  add(AllToAllV{all, input, equal(own.count), counts});
  add_step([this, own, all, op] { reduce_collected(own, all.data, comms_.size, op); });
}

void Schedule::compose(const AllReduce& op) {
  const std::size_t n = static_cast<std::size_t>(comms_.size);
  if (collects_first(op.input.dtype, op.op.kind)) {
    if (op.input.bytes() * n <= kGatherAllBytes) {
      const View all = scratch(n * op.input.count, op.input.dtype);
      add(AllGather{all, op.input});
      return add_step([=] { reduce_collected(op.output, all.data, static_cast<int>(n), op.op); });
    }
    const Counts counts = slices(op.input.count, comms_.size);
    const View own = shard_of(op.output, counts, comms_.rank);
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

void Schedule::compose(const Reduce& op) {
  const bool root = comms_.rank == op.root;
  const auto part = [&](std::size_t first, std::size_t count) {
    return root ? op.output.slice(first, count) : View();
  };
  if (collects_first(op.input.dtype, op.op.kind)) {
    const Counts counts = slices(op.input.count, comms_.size);
    const View own = scratch(counts[comms_.rank], op.input.dtype);
    add_collect(op.input, own, counts, op.op);
    compose(GatherV{op.output, own, counts, op.root});
  } else if (!kReducesInPlace && root && op.input.data == op.output.data) {
    const View copy = scratch(op.input.count, op.input.dtype);
    add_copy(copy, op.input);
    add(Reduce{op.output, copy, op.op, op.root});
  } else if (op.op.kind == ReduceOp::premul_sum) {
    const View scaled = root ? op.output : scratch(op.input.count, op.input.dtype);
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
void Schedule::add_reduce_scatter(const T& op, std::span<const std::size_t> counts) {
  if (collects_first(op.input.dtype, op.op.kind))
    return add_collect(op.input, op.output, counts, op.op);
  T rest = op;  // what is left for MPI
  if (op.output.data == op.input.slice(first_of(counts, comms_.rank), 0).data) {
    rest.output = scratch(op.output.count, op.output.dtype);
    add(rest);
    add_copy(op.output, rest.output);
  } else if (op.op.kind == ReduceOp::premul_sum) {
    const View scaled = scratch(op.input.count, op.input.dtype);
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

void Schedule::compose(const ReduceScatter& op) { add_reduce_scatter(op, equal(op.output.count)); }
void Schedule::compose(const ReduceScatterV& op) { add_reduce_scatter(op, op.counts); }

void Schedule::add_reduce_each(ConstView input, View own, std::span<const std::size_t> counts,
                               ReduceOp op) {
  for (int root = 0; root < comms_.size; ++root)
    add(Reduce{root == comms_.rank ? own : View(), shard_of(input, counts, root), op, root});
}

template <class T>
void Schedule::add_collected_scan(const T& op) {
  const DType dtype = op.input.dtype;
  const std::size_t n = static_cast<std::size_t>(comms_.size), first = kFirstResult<T>;
  if (op.input.bytes() * n <= kGatherAllBytes) {
    const View all = scratch(n * op.input.count, dtype);
    add(AllGather{all, op.input});
    return add_step([this, op, all] { reduce_prefix(op, op.output, all.data, comms_.rank); });
  }
  const Counts counts = slices(op.input.count, comms_.size);
  const std::size_t own = counts[comms_.rank];
  const View collected = scratch(n * own, dtype), results = scratch(n * own, dtype);
  Counts given = equal(own), taken = counts;
  add(AllToAllV{collected, op.input, given, counts});
  add_step([=, this] { reduce_prefixes(op, results, collected.data, comms_.size); });
  std::fill_n(given.begin(), first, 0);
  if (comms_.rank < kFirstResult<T>) taken.assign(n, 0);
  add(AllToAllV{op.output, results.slice(first * own, (n - first) * own), taken, given});
}

template <class T>
void Schedule::add_scan(const T& op) {
  if (collects_first(op.input.dtype, op.op.kind)) return add_collected_scan(op);
  if (op.op.kind == ReduceOp::premul_sum) {
    const View scaled = scratch(op.input.count, op.input.dtype);
    add_multiply(scaled.data, op.input, op.op);
    return add(T{op.output, scaled, ReduceOp::sum});
  }
  each_chunk(op.input.count, [&](std::size_t first, std::size_t count) {
    add(T{op.output.slice(first, count), op.input.slice(first, count), op.op});
  });
}

void Schedule::compose(const Scan& op) { add_scan(op); }
void Schedule::compose(const Exscan& op) { add_scan(op); }

void Schedule::compose(const Broadcast& op) {
  if (comms_.rank == op.root) add_copy(op.output, op.input);
  each_chunk(op.output.count, [&](std::size_t first, std::size_t count) {
    const View chunk = op.output.slice(first, count);
    add(Broadcast{chunk, chunk, op.root});
  });
}

void Schedule::compose(const AllGatherV& op) {
  add_exchange([&](int) { return op.input; },
               [&](int peer) { return shard_of(op.output, op.counts, peer); });
}

void Schedule::compose(const GatherV& op) {
  const bool root = comms_.rank == op.root;
  add_exchange([&](int peer) { return peer == op.root ? op.input : ConstView(); },
               [&](int peer) { return root ? shard_of(op.output, op.counts, peer) : View(); });
}

void Schedule::compose(const ScatterV& op) {
  const bool root = comms_.rank == op.root;
  add_exchange([&](int peer) { return root ? shard_of(op.input, op.counts, peer) : ConstView(); },
               [&](int peer) { return peer == op.root ? op.output : View(); });
}

void Schedule::compose(const AllToAllV& op) {
  add_exchange([&](int peer) { return shard_of(op.input, op.input_counts, peer); },
               [&](int peer) { return shard_of(op.output, op.output_counts, peer); });
}

}}  // namespace c10d::v0
