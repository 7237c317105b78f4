// SPDX-License-Identifier: BSD-3-Clause
// Each op as calls of NCCL.
#include "src/backends/nccl/calls.h"

#include <fmt/format.h>

#include <exception>
#include <string>

#include "src/backends/common/gathered_reduction.h"
#include "src/backends/nccl/library.h"
#include "src/device/gpu.h"

namespace c10d { inline namespace v0 { namespace nccl {
namespace {

std::size_t numbers(const ConstView& view) { return view.bytes() / size_of(real_of(view.dtype)); }

// ReduceOp as NCCL's. The factor of a premul_sum makes one of the communicator's own.
class Reduction {
 public:
  Reduction(const Target& target, ReduceOp op, DType dtype) : target_(target) {
    type = *number_type(real_of(dtype));
    if (op.kind == ReduceOp::premul_sum)
      make(op.factor, real_of(dtype));
    else
      handle = nccl_op(op.kind);
  }
  // After a failure the communicator may be gone, and this with it.
  ~Reduction() {
    if (!made_ || std::uncaught_exceptions() != 0) return;
    const auto in_call = target_.comm();
    if (in_call.comm()) api().red_op_destroy(handle, in_call.comm());
  }
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

  DataType type;
  RedOp handle = kSum;

 private:
  void make(double factor, DType dtype) {
    union {
      double f64;
      float f32;
      Float16 f16;
      BFloat16 bf16;
    } scalar{factor};
    if (dtype == DType::f32) scalar.f32 = static_cast<float>(factor);
    if (dtype == DType::f16) scalar.f16 = Float16(static_cast<float>(factor));
    if (dtype == DType::bf16) scalar.bf16 = BFloat16(static_cast<float>(factor));
    check(api().red_op_create(&handle, &scalar, type, kScalarHostImmediate, target_.comm()),
          "ncclRedOpCreatePreMulSum");
    made_ = true;
  }

  const Target& target_;
  bool made_ = false;
};

driver::Pointer address(const void* data) { return reinterpret_cast<driver::Pointer>(data); }

// Grouped send and recv: with a count for each rank, and before NCCL 2.28 always.
constexpr ConstView kNothingToSend{};
constexpr View kNothingToReceive{};

// `shard(r)` is where the part of rank r belongs.
template <class T, class Shard>
void gather(const Target& t, const T& o, const Shard& shard) {
  exchange(
      t, [&](int peer) { return peer == o.root ? o.input : kNothingToSend; },
      [&](int peer) { return t.rank == o.root ? shard(peer) : kNothingToReceive; });
}
// `shard(r)` is the part for rank r.
template <class T, class Shard>
void scatter(const Target& t, const T& o, const Shard& shard) {
  exchange(
      t, [&](int peer) { return t.rank == o.root ? shard(peer) : kNothingToSend; },
      [&](int peer) { return peer == o.root ? o.output : kNothingToReceive; });
}

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

void run(const Target& t, const AllReduce& o) {
  const Reduction reduction(t, o.op, o.output.dtype);
  check(api().all_reduce(o.input.data, o.output.data, numbers(o.input), reduction.type,
                         reduction.handle, t.comm(), t.stream),
        "ncclAllReduce");
}
void run(const Target& t, const Reduce& o) {
  const Reduction reduction(t, o.op, o.input.dtype);
  check(api().reduce(o.input.data, t.rank == o.root ? o.output.data : nullptr, numbers(o.input),
                     reduction.type, reduction.handle, o.root, t.comm(), t.stream),
        "ncclReduce");
}
void run(const Target& t, const ReduceScatter& o) {
  const Reduction reduction(t, o.op, o.output.dtype);
  check(api().reduce_scatter(o.input.data, o.output.data, numbers(o.output), reduction.type,
                             reduction.handle, t.comm(), t.stream),
        "ncclReduceScatter");
}
// One reduce for each shard, to the rank whose it is.
void run(const Target& t, const ReduceScatterV& o) {
  const Reduction reduction(t, o.op, o.output.dtype);
  in_group(t, [&] {
    for (int root = 0; root < t.size; ++root) {
      const ConstView shard = o.input.slice(first_of(o.counts, root), o.counts[at(root)]);
      if (shard.count == 0) continue;
      check(api().reduce(shard.data, t.rank == root ? o.output.data : nullptr, numbers(shard),
                         reduction.type, reduction.handle, root, t.comm(), t.stream),
            "ncclReduce");
    }
  });
}
void run(const Target& t, const Broadcast& o) {
  const void* const from = t.rank == o.root ? o.input.data : o.output.data;
  check(api().broadcast(from, o.output.data, o.output.bytes(), kUint8, o.root, t.comm(), t.stream),
        "ncclBroadcast");
}
void run(const Target& t, const AllGather& o) {
  check(api().all_gather(o.input.data, o.output.data, o.input.bytes(), kUint8, t.comm(), t.stream),
        "ncclAllGather");
}
// One broadcast for each shard, from the rank whose it is.
void run(const Target& t, const AllGatherV& o) {
  in_group(t, [&] {
    for (int root = 0; root < t.size; ++root) {
      const View shard = o.output.slice(first_of(o.counts, root), o.counts[at(root)]);
      if (shard.count == 0) continue;
      check(api().broadcast(t.rank == root ? o.input.data : shard.data, shard.data, shard.bytes(),
                            kUint8, root, t.comm(), t.stream),
            "ncclBroadcast");
    }
  });
}
// NCCL looks also at the buffer that only the root uses: whether it is memory of a GPU, and in a
// window. So a rank that gave none there gives its other one, which NCCL leaves alone.
bool is_given(const ConstView& unused, const ConstView& used) {
  return unused.count > 0 && unused.device == used.device;
}
void run(const Target& t, const Gather& o) {
  const std::size_t k = o.input.count;
  if (!api().gather) return gather(t, o, [&](int peer) { return o.output.slice(at(peer) * k, k); });
  void* const to = t.rank == o.root || is_given(o.output, o.input)
                       ? o.output.data
                       : const_cast<void*>(o.input.data);
  check(api().gather(o.input.data, to, o.input.bytes(), kUint8, o.root, t.comm(), t.stream),
        "ncclGather");
}
void run(const Target& t, const GatherV& o) {
  gather(t, o,
         [&](int peer) { return o.output.slice(first_of(o.counts, peer), o.counts[at(peer)]); });
}
void run(const Target& t, const Scatter& o) {
  const std::size_t k = o.output.count;
  if (!api().scatter)
    return scatter(t, o, [&](int peer) { return o.input.slice(at(peer) * k, k); });
  const void* const from =
      t.rank == o.root || is_given(o.input, o.output) ? o.input.data : o.output.data;
  check(api().scatter(from, o.output.data, o.output.bytes(), kUint8, o.root, t.comm(), t.stream),
        "ncclScatter");
}
void run(const Target& t, const ScatterV& o) {
  scatter(t, o,
          [&](int peer) { return o.input.slice(first_of(o.counts, peer), o.counts[at(peer)]); });
}
void run(const Target& t, const AllToAll& o) {
  const std::size_t k = o.input.count / at(t.size);
  if (!api().all_to_all)
    return exchange(
        t, [&](int peer) { return o.input.slice(at(peer) * k, k); },
        [&](int peer) { return o.output.slice(at(peer) * k, k); });
  check(api().all_to_all(o.input.data, o.output.data, k * size_of(o.input.dtype), kUint8, t.comm(),
                         t.stream),
        "ncclAlltoAll");
}
void run(const Target& t, const AllToAllV& o) {
  exchange(
      t,
      [&](int peer) {
        return o.input.slice(first_of(o.input_counts, peer), o.input_counts[at(peer)]);
      },
      [&](int peer) {
        return o.output.slice(first_of(o.output_counts, peer), o.output_counts[at(peer)]);
      });
}
void run(const Target& t, const Barrier&) {
  check(api().all_reduce(t.scratch, t.scratch, 1, kFloat32, kSum, t.comm(), t.stream),
        "ncclAllReduce");
}
void run(const Target& t, const Send& o) { send_to(t, o.input, o.peer); }
void run(const Target& t, const Recv& o) { recv_from(t, o.output, o.peer); }
// They are always composed.
void run(const Target&, const Scan&) {}
void run(const Target&, const Exscan&) {}

bool is_empty(const Op& op) {
  return std::visit(
      []<class T>(const T& o) {
        if constexpr (std::is_same_v<T, Barrier>) return false;
        if constexpr (requires {
                        o.input;
                        o.output;
                      })
          return o.input.count == 0 && o.output.count == 0;
        if constexpr (requires { o.input; }) return o.input.count == 0;
        if constexpr (requires { o.output; }) return o.output.count == 0;
        return false;
      },
      op);
}

}  // namespace

void send_to(const Target& target, const ConstView& view, int peer) {
  if (view.count == 0) return;
  check(api().send(view.data, view.bytes(), kUint8, peer, target.comm(), target.stream),
        "ncclSend");
}
void recv_from(const Target& target, const View& view, int peer) {
  if (view.count == 0) return;
  check(api().recv(view.data, view.bytes(), kUint8, peer, target.comm(), target.stream),
        "ncclRecv");
}

void copy(const Target& target, void* to, const void* from, std::size_t bytes) {
  if (to == from || bytes == 0) return;
  check_driver(driver_api().memcpy_d2d_async(address(to), address(from), bytes, target.stream),
               "a copy on the GPU");
}

RedOp nccl_op(ReduceOp::Kind kind) {
  switch (kind) {
    case ReduceOp::prod:
      return kProd;
    case ReduceOp::min:
      return kMin;
    case ReduceOp::max:
      return kMax;
    default:
      return kSum;
  }
}

void enqueue(const Target& target, const Op& op) {
  if (is_empty(op)) return;
  std::visit([&](const auto& o) { run(target, o); }, op);
}

}}}  // namespace c10d::v0::nccl
