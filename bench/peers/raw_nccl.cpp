// SPDX-License-Identifier: BSD-3-Clause
// NCCL as a program of its own calls it: one blocking communicator, one call for each op, on the
// stream of the caller.
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "bench/peers/raw_peer.h"
#include "c10d/cuda.h"
#include "c10d/env.h"
#include "src/backends/nccl/library.h"
#include "src/backends/nccl/nccl.h"
#include "src/device/gpu.h"

namespace c10d::bench { namespace {

using nccl::api;
using nccl::check;

constexpr int kNone = -1;

int op_of(ReduceOp::Kind kind) {
  switch (kind) {
    case ReduceOp::sum:
      return nccl::kSum;
    case ReduceOp::prod:
      return nccl::kProd;
    case ReduceOp::min:
      return nccl::kMin;
    case ReduceOp::max:
      return nccl::kMax;
    case ReduceOp::avg:
      return nccl::kAvg;
    default:
      return kNone;
  }
}

nccl::DataType type_of(const ConstView& view) { return *nccl::number_type(view.dtype); }
nccl::RedOp op_of(const ReduceOp& op) { return static_cast<nccl::RedOp>(op_of(op.kind)); }

Support supports_query(const Query& query) {
  if (query.device != DeviceType::cuda) return no("NCCL works on memory of GPUs only");
  switch (query.op) {
    case OpKind::all_gather_v:
    case OpKind::reduce_scatter_v:
    case OpKind::gather_v:
    case OpKind::scatter_v:
    case OpKind::all_to_all_v:
    case OpKind::scan:
    case OpKind::exscan:
      return no("NCCL has no such call");
    case OpKind::gather:
    case OpKind::scatter:
    case OpKind::all_to_all:
      if (api().all_to_all == nullptr) return no("NCCL has this call from 2.28.3 on");
      break;
    default:
      break;
  }
  if (!is_reduction(query.op)) return {};
  if (!nccl::number_type(query.dtype) || is_float8(query.dtype))  // not each version has these
    return no("NCCL has no arithmetic on this dtype");
  if (op_of(query.reduce_op) == kNone) return no("NCCL has no such reduction");
  if (const auto why = why_unsupported(query.op, query.reduce_op, query.dtype); !why.empty())
    return no(std::string(why));
  return {};
}

class RawNccl : public RawPeer {
 public:
  explicit RawNccl(BackendContext context)
      : RawPeer(std::move(context), "NCCL " + nccl::version_text(api().version)),
        current_(context_.device.index),
        one_(cuda::device_allocate(sizeof(float), context_.device.index)) {
    const nccl::UniqueId id = agree_on_id();
    nccl::Config config;
    config.size = nccl::kConfigBytes218;
    config.version = static_cast<unsigned>(nccl::kOldestVersion);
    config.blocking = 1;
    check(api().comm_init_rank_config(&comm_, context_.size, id, context_.rank, &config),
          "ncclCommInitRankConfig");
  }
  ~RawNccl() override {
    if (comm_ != nullptr) api().comm_abort(comm_);
  }

  Support supports(const Query& query) const override { return supports_query(query); }
  Work launch(const Call& call) override {
    std::visit([&](const auto& op) { run(op, call.stream); }, call.op);
    return {};
  }
  std::string description() const override { return RawPeer::description() + memory_; }
  // Collective. As nccl: in a symmetric window with C10D_NCCL_WINDOWS=on, where this NCCL has them
  // between these GPUs.
  Allocation allocate(std::size_t bytes, Device device, Deadline) override {
    const bool is_wanted = env("C10D_NCCL_WINDOWS") == "on";
    if (!is_wanted || api().window_register == nullptr) {
      if (is_wanted) memory_ = "; memory of CUDA: NCCL has windows from 2.27 on";
      return cuda::device_allocate(bytes, device.index);
    }
    void* data = nullptr;
    check(api().mem_alloc(&data, bytes), "ncclMemAlloc");
    std::shared_ptr<void> owner(data, [device](void* memory) {
      const OnGpu here(device.index);
      api().mem_free(memory);
    });
    nccl::Window window = nullptr;
    check(api().window_register(comm_, data, bytes, &window, nccl::kWindowSymmetric),
          "ncclCommWindowRegister");
    if (window != nullptr) windows_.push_back(window);
    memory_ = window != nullptr ? "; symmetric windows"
                                : "; NCCL has no symmetric windows between these GPUs";
    return {.data = data, .bytes = bytes, .owner = std::move(owner), .device = device};
  }
  void shutdown(Deadline) override {
    for (const nccl::Window window : windows_)
      check(api().window_deregister(comm_, window), "ncclCommWindowDeregister");
    windows_.clear();
    check(api().comm_destroy(std::exchange(comm_, nullptr)), "ncclCommDestroy");
  }

 private:
  nccl::UniqueId agree_on_id() const {
    nccl::UniqueId id{};
    if (context_.rank == 0) {
      check(api().get_unique_id(&id), "ncclGetUniqueId");
      context_.store->set("id", std::string_view(id.internal, sizeof id.internal));
      return id;
    }
    const std::string bytes = context_.store->get("id");
    if (bytes.size() != sizeof id.internal)
      throw_failure({.code = Code::corrupt, .message = "raw:nccl: rank 0 sent no id of NCCL"});
    bytes.copy(id.internal, sizeof id.internal);
    return id;
  }

  void run(const AllReduce& op, CudaStream stream) {
    check(api().all_reduce(op.input.data, op.output.data, op.input.count, type_of(op.input),
                           op_of(op.op), comm_, stream),
          "ncclAllReduce");
  }
  void run(const Reduce& op, CudaStream stream) {
    check(api().reduce(op.input.data, op.output.data, op.input.count, type_of(op.input),
                       op_of(op.op), op.root, comm_, stream),
          "ncclReduce");
  }
  void run(const ReduceScatter& op, CudaStream stream) {
    check(api().reduce_scatter(op.input.data, op.output.data, op.output.count, type_of(op.input),
                               op_of(op.op), comm_, stream),
          "ncclReduceScatter");
  }
  void run(const Broadcast& op, CudaStream stream) {
    const void* const from = context_.rank == op.root ? op.input.data : op.output.data;
    check(api().broadcast(from, op.output.data, op.output.bytes(), nccl::kUint8, op.root, comm_,
                          stream),
          "ncclBroadcast");
  }
  void run(const AllGather& op, CudaStream stream) {
    check(api().all_gather(op.input.data, op.output.data, op.input.bytes(), nccl::kUint8, comm_,
                           stream),
          "ncclAllGather");
  }
  void run(const Gather& op, CudaStream stream) {
    check(api().gather(op.input.data, op.output.data, op.input.bytes(), nccl::kUint8, op.root,
                       comm_, stream),
          "ncclGather");
  }
  void run(const Scatter& op, CudaStream stream) {
    check(api().scatter(op.input.data, op.output.data, op.output.bytes(), nccl::kUint8, op.root,
                        comm_, stream),
          "ncclScatter");
  }
  void run(const AllToAll& op, CudaStream stream) {
    const auto ranks = static_cast<std::size_t>(context_.size);
    check(api().all_to_all(op.input.data, op.output.data, op.input.bytes() / ranks, nccl::kUint8,
                           comm_, stream),
          "ncclAlltoAll");
  }
  void run(const Barrier&, CudaStream stream) {
    check(api().all_reduce(one_.data, one_.data, 1, nccl::kFloat32, nccl::kSum, comm_, stream),
          "ncclAllReduce");
  }
  void run(const Send& op, CudaStream stream) {
    check(api().send(op.input.data, op.input.bytes(), nccl::kUint8, op.peer, comm_, stream),
          "ncclSend");
  }
  void run(const Recv& op, CudaStream stream) {
    check(api().recv(op.output.data, op.output.bytes(), nccl::kUint8, op.peer, comm_, stream),
          "ncclRecv");
  }
  // What supports_query() has refused.
  template <class T>
  void run(const T& op, CudaStream) {
    throw_failure({.code = Code::unsupported,
                   .message = "NCCL has no " + std::string(to_string(kind_of(Op(op))))});
  }

  const OnGpu current_;  // on this thread, as long as the peer is there
  Allocation one_;
  nccl::Comm comm_ = nullptr;
  std::vector<nccl::Window> windows_;
  std::string memory_;  // of what allocate() gave; empty: it gave none
};

}}  // namespace c10d::bench

extern "C" __attribute__((visibility("default"))) const c10d::BackendModule* c10d_backend_module() {
  using namespace c10d;  // NOLINT(google-build-using-namespace)
  static constexpr BackendModule module{
      .name = "raw:nccl",
      .version = nccl::own_version,
      .supports = bench::supports_query,
      .create = [](BackendContext context) -> std::unique_ptr<Backend> {
        return std::make_unique<bench::RawNccl>(std::move(context));
      },
      .cuda_only = false,  // else another one is made beside it, for memory of the host
      .why_unavailable = [] { return nccl::library().why.c_str(); }};
  return &module;
}
