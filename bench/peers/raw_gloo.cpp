// SPDX-License-Identifier: BSD-3-Clause
#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/types.h>
#include <net/if.h>
#include <netdb.h>
#include <pthread.h>

#include <csignal>

#include "bench/peers/raw_peer.h"
#include "c10d/env.h"
#include "src/net/network.h"

namespace c10d::bench { namespace {

constexpr std::uint8_t kMessagePrefix = 0x30;  // of slots; Gloo's own collectives use 1 to 8

class PeerStore : public gloo::rendezvous::Store {
 public:
  explicit PeerStore(std::shared_ptr<c10d::Store> store) : store_(std::move(store)) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    store_->set("raw_gloo/" + key, {data.data(), data.size()});
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = store_->get("raw_gloo/" + key);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }

 private:
  std::shared_ptr<c10d::Store> store_;
};

// Gloo reads what the resolver did not write when a name has no address.
void expect_address(const std::string& host) {
  addrinfo* addresses = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, nullptr, &addresses))
    throw_failure({.code = Code::unreachable,
                   .message = "Gloo cannot listen on '" + host + "': " + gai_strerror(error) +
                              "; set C10D_GLOO_INTERFACE to an interface or an address of this "
                              "host"});
  freeaddrinfo(addresses);
}

std::shared_ptr<gloo::Context> connect(const BackendContext& context) {
  gloo::transport::tcp::attr attr;
  attr.hostname = context.all_local() ? "127.0.0.1" : context.members[context.rank].host;
  if (const auto networks = chosen_networks(); !networks.empty() && !context.all_local())
    attr.hostname = networks.front().address;
  if (const auto named = env("C10D_GLOO_INTERFACE")) {
    attr.hostname.clear();
    (if_nametoindex(named->c_str()) != 0 ? attr.iface : attr.hostname) = *named;
  }
  if (attr.iface.empty()) expect_address(attr.hostname);
  // Gloo does not guard its writes against SIGPIPE; its thread inherits what is blocked here.
  sigset_t sigpipe, before;
  sigemptyset(&sigpipe);
  sigaddset(&sigpipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &sigpipe, &before);
  auto device = gloo::transport::tcp::CreateDevice(attr);
  auto mesh = std::make_shared<gloo::rendezvous::Context>(context.rank, context.size);
  const auto store = std::make_shared<PeerStore>(context.store);
#ifdef GLOO_STORE_HAS_STORE_V2
  mesh->connectFullMesh(store, device);
#else
  mesh->connectFullMesh(*store, device);
#endif
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return mesh;
}

// Calls f with a null pointer to the C++ type that Gloo's own arithmetic takes for the dtype.
template <class F>
void as_number(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64:
      return f(static_cast<double*>(nullptr));
    case DType::f32:
      return f(static_cast<float*>(nullptr));
    case DType::f16:
      return f(static_cast<gloo::float16*>(nullptr));
    case DType::i64:
      return f(static_cast<std::int64_t*>(nullptr));
    case DType::i32:
      return f(static_cast<std::int32_t*>(nullptr));
    case DType::i8:
      return f(static_cast<std::int8_t*>(nullptr));
    case DType::u64:
      return f(static_cast<std::uint64_t*>(nullptr));
    case DType::u32:
      return f(static_cast<std::uint32_t*>(nullptr));
    case DType::bf16:
    case DType::u16:
    case DType::i16:
      return f(static_cast<std::uint16_t*>(nullptr));
    case DType::u8:
    case DType::boolean:
    case DType::f8e4m3:
    case DType::f8e5m2:
      return f(static_cast<std::uint8_t*>(nullptr));
    case DType::c64:
      return f(static_cast<std::uint64_t*>(nullptr));
    case DType::c128:
      return f(static_cast<std::array<double, 2>*>(nullptr));
  }
}

bool has_arithmetic(DType dtype) {
  return dtype != DType::bf16 && dtype != DType::i16 && dtype != DType::boolean &&
         !is_complex(dtype) && !is_float8(dtype);
}

using Function = void (*)(void*, const void*, const void*, std::size_t);

template <class T>
Function function_of(ReduceOp::Kind kind) {
  if constexpr (std::is_same_v<T, std::array<double, 2>>)
    return nullptr;  // can only be moved
  else
    switch (kind) {
      case ReduceOp::sum:
        return gloo::sum<T>;
      case ReduceOp::prod:
        return gloo::product<T>;
      case ReduceOp::min:
        return gloo::min<T>;
      case ReduceOp::max:
        return gloo::max<T>;
      default:
        return nullptr;
    }
}

Support supports_query(const Query& query) {
  if (query.device != DeviceType::cpu) return no("Gloo works on CPU memory only");
  switch (query.op) {
    case OpKind::reduce_scatter:
    case OpKind::reduce_scatter_v:
    case OpKind::scan:
    case OpKind::exscan:
    case OpKind::gather_v:
    case OpKind::scatter_v:
      return no("Gloo has no such function");
    case OpKind::all_reduce:
    case OpKind::reduce:
      if (!has_arithmetic(query.dtype)) return no("Gloo has no arithmetic on this dtype");
      if (!function_of<float>(query.reduce_op)) return no("Gloo has no such reduction");
      return {};
    default:
      return {};
  }
}

class RawGloo : public RawPeer {
 public:
  explicit RawGloo(BackendContext context)
      : RawPeer(std::move(context), "Gloo"), mesh_(connect(context_)) {}

  Support supports(const Query& query) const override { return supports_query(query); }
  Work launch(const Call& call) override {
    try {
      return std::visit([&](const auto& op) { return run(call, op); }, call.op);
    } catch (const std::exception& error) {
      return failed(error.what());
    }
  }

 private:
  template <class Options>
  void tag(Options& options, const Call& call) {
    options.setTag(static_cast<std::uint32_t>(call.sequence));
  }
  template <class T, class Options, class T2>
  void set_buffers(Options& options, const T2& op, bool has_input, bool has_output) {
    T* input = static_cast<T*>(const_cast<void*>(op.input.data));
    T* output = static_cast<T*>(op.output.data);
    if (has_input && input != output) options.setInput(input, op.input.count);
    if (has_output) options.setOutput(output, op.output.count);
  }

  Work run(const Call& call, const AllReduce& op) {
    gloo::AllreduceOptions options(mesh_);
    as_number(op.input.dtype, [&]<class T>(T*) {
      set_buffers<T>(options, op, true, true);
      options.setReduceFunction(function_of<T>(op.op.kind));
    });
    tag(options, call);
    gloo::allreduce(options);
    return {};
  }
  // The ring works in the output of every rank; the memory for that is kept, as a user would.
  Work run(const Call& call, const Reduce& op) {
    gloo::ReduceOptions options(mesh_);
    Reduce whole = op;
    if (context_.rank != op.root) {
      scratch_.resize(std::max(scratch_.size(), op.input.bytes()));
      whole.output = {scratch_.data(), op.input.count, op.input.dtype};
    }
    as_number(op.input.dtype, [&]<class T>(T*) {
      set_buffers<T>(options, whole, true, true);
      options.setReduceFunction(function_of<T>(op.op.kind));
    });
    options.setRoot(op.root);
    tag(options, call);
    gloo::reduce(options);
    return {};
  }
  Work run(const Call& call, const Broadcast& op) {
    gloo::BroadcastOptions options(mesh_);
    as_number(op.output.dtype,
              [&]<class T>(T*) { set_buffers<T>(options, op, context_.rank == op.root, true); });
    options.setRoot(op.root);
    tag(options, call);
    gloo::broadcast(options);
    return {};
  }
  Work run(const Call& call, const AllGather& op) {
    gloo::AllgatherOptions options(mesh_);
    as_number(op.input.dtype, [&]<class T>(T*) {
      const bool in_place =
          op.input.data == static_cast<T*>(op.output.data) + context_.rank * op.input.count;
      set_buffers<T>(options, op, !in_place, true);
    });
    tag(options, call);
    gloo::allgather(options);
    return {};
  }
  Work run(const Call& call, const AllGatherV& op) {
    gloo::AllgathervOptions options(mesh_);
    as_number(op.input.dtype, [&]<class T>(T*) {
      options.setInput(static_cast<T*>(const_cast<void*>(op.input.data)), op.input.count);
      options.setOutput(static_cast<T*>(op.output.data), {op.counts.begin(), op.counts.end()});
    });
    tag(options, call);
    gloo::allgatherv(options);
    return {};
  }
  Work run(const Call& call, const Gather& op) {
    gloo::GatherOptions options(mesh_);
    as_number(op.input.dtype,
              [&]<class T>(T*) { set_buffers<T>(options, op, true, context_.rank == op.root); });
    options.setRoot(op.root);
    tag(options, call);
    gloo::gather(options);
    return {};
  }
  Work run(const Call& call, const Scatter& op) {
    gloo::ScatterOptions options(mesh_);
    as_number(op.output.dtype, [&]<class T>(T*) {
      std::vector<T*> shards;
      for (int peer = 0; context_.rank == op.root && peer < context_.size; ++peer)
        shards.push_back(static_cast<T*>(const_cast<void*>(op.input.data)) +
                         static_cast<std::size_t>(peer) * op.output.count);
      options.setInputs(std::move(shards), op.output.count);
      options.setOutput(static_cast<T*>(op.output.data), op.output.count);
    });
    options.setRoot(op.root);
    tag(options, call);
    gloo::scatter(options);
    return {};
  }
  Work run(const Call& call, const AllToAll& op) {
    if (op.input.data == op.output.data) return unsupported(call);
    gloo::AlltoallOptions options(mesh_);
    as_number(op.input.dtype, [&]<class T>(T*) { set_buffers<T>(options, op, true, true); });
    tag(options, call);
    gloo::alltoall(options);
    return {};
  }
  Work run(const Call& call, const AllToAllV& op) {
    gloo::AlltoallvOptions options(mesh_);
    as_number(op.input.dtype, [&]<class T>(T*) {
      options.setInput(static_cast<T*>(const_cast<void*>(op.input.data)),
                       {op.input_counts.begin(), op.input_counts.end()});
      options.setOutput(static_cast<T*>(op.output.data),
                        {op.output_counts.begin(), op.output_counts.end()});
    });
    tag(options, call);
    gloo::alltoallv(options);
    return {};
  }
  Work run(const Call& call, const Barrier&) {
    gloo::BarrierOptions options(mesh_);
    tag(options, call);
    gloo::barrier(options);
    return {};
  }
  Work run(const Call&, const Send& op) {
    const auto buffer =
        mesh_->createUnboundBuffer(const_cast<void*>(op.input.data), op.input.bytes());
    buffer->send(op.peer, gloo::Slot::build(kMessagePrefix, op.tag));
    buffer->waitSend();
    return {};
  }
  Work run(const Call&, const Recv& op) {
    const auto buffer = mesh_->createUnboundBuffer(op.output.data, op.output.bytes());
    buffer->recv(op.peer, gloo::Slot::build(kMessagePrefix, op.tag));
    buffer->waitRecv();
    return Work::received({op.peer, op.output.count});
  }
  Work run(const Call& call, const ReduceScatter&) { return unsupported(call); }
  Work run(const Call& call, const ReduceScatterV&) { return unsupported(call); }
  Work run(const Call& call, const Scan&) { return unsupported(call); }
  Work run(const Call& call, const Exscan&) { return unsupported(call); }
  Work run(const Call& call, const GatherV&) { return unsupported(call); }
  Work run(const Call& call, const ScatterV&) { return unsupported(call); }

  std::shared_ptr<gloo::Context> mesh_;
  std::vector<std::byte> scratch_;
};

#define C10D_TEXT(x) #x
#define C10D_VERSION_TEXT(a, b, c) C10D_TEXT(a) "." C10D_TEXT(b) "." C10D_TEXT(c)

const char* version() {
  return C10D_VERSION_TEXT(GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
}

}}  // namespace c10d::bench

extern "C" __attribute__((visibility("default"))) const c10d::BackendModule* c10d_backend_module() {
  static constexpr c10d::BackendModule module{
      .name = "raw:gloo",
      .version = c10d::bench::version,
      .supports = c10d::bench::supports_query,
      .create = [](c10d::BackendContext context) -> std::unique_ptr<c10d::Backend> {
        return std::make_unique<c10d::bench::RawGloo>(std::move(context));
      }};
  return &module;
}
