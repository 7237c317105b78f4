// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>
#include <mpi.h>

#include <cstdlib>
#include <cstring>

#include "bench/peers/raw_peer.h"
#include "c10d/env.h"
#include "src/backends/mpi/network.h"

namespace c10d::bench { namespace {

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return MPI_DOUBLE;
    case DType::f32:
      return MPI_FLOAT;
    case DType::i64:
      return MPI_INT64_T;
    case DType::i32:
      return MPI_INT32_T;
    case DType::i16:
      return MPI_INT16_T;
    case DType::i8:
      return MPI_INT8_T;
    case DType::u64:
      return MPI_UINT64_T;
    case DType::u32:
      return MPI_UINT32_T;
    case DType::f16:
    case DType::bf16:
    case DType::u16:
      return MPI_UINT16_T;
    case DType::u8:
    case DType::boolean:
    case DType::f8e4m3:
    case DType::f8e5m2:
      return MPI_UINT8_T;
    case DType::c64:
      return MPI_C_FLOAT_COMPLEX;
    case DType::c128:
      return MPI_C_DOUBLE_COMPLEX;
  }
  return MPI_DATATYPE_NULL;
}

bool has_arithmetic(DType dtype) {
  return dtype != DType::f16 && dtype != DType::bf16 && dtype != DType::boolean &&
         !is_float8(dtype);
}

MPI_Op op_of(ReduceOp::Kind kind) {
  switch (kind) {
    case ReduceOp::sum:
      return MPI_SUM;
    case ReduceOp::prod:
      return MPI_PROD;
    case ReduceOp::min:
      return MPI_MIN;
    case ReduceOp::max:
      return MPI_MAX;
    case ReduceOp::band:
      return MPI_BAND;
    case ReduceOp::bor:
      return MPI_BOR;
    case ReduceOp::bxor:
      return MPI_BXOR;
    default:
      return MPI_OP_NULL;
  }
}

Support supports_query(const Query& query) {
  if (query.device != DeviceType::cpu) return no("this MPI works on CPU memory only");
  if (!is_reduction(query.op)) return {};
  if (!has_arithmetic(query.dtype)) return no("MPI has no arithmetic on this dtype");
  if (op_of(query.reduce_op) == MPI_OP_NULL) return no("MPI has no such reduction");
  if (const auto why = why_unsupported(query.op, query.reduce_op, query.dtype); !why.empty())
    return no(std::string(why));
  return {};
}

// As the mpi backend does it: whichever of the two comes first initialises MPI and finalises it at
// exit.
void start_mpi(const BackendContext& context) {
  int flag = 0;
  MPI_Initialized(&flag);
  if (!flag) {
    if (!env("OMPI_COMM_WORLD_SIZE") && !env("PMI_SIZE") && !env("PMI_RANK") && !env("PMIX_RANK"))
      throw_failure(
          {.code = Code::unsupported, .message = "raw:mpi needs to be started by mpirun"});
#ifdef OPEN_MPI
    Dl_info info{};  // its plugins look for its symbols in the global scope
    if (dladdr(reinterpret_cast<const void*>(&MPI_Init_thread), &info) != 0)
      dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
#endif
    if (!context.all_local()) choose_network_of_mpi();
    int level = 0;
    // As a program of one thread: with MPI_THREAD_MULTIPLE an all_reduce of 8 B of MPICH 5 takes
    // seven times as long.
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
    std::atexit([] {
      int finalised = 0;
      MPI_Finalized(&finalised);
      if (!finalised) MPI_Finalize();
    });
  }
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank != context.rank || size != context.size)
    throw_failure({.code = Code::unsupported, .message = "raw:mpi: MPI started other ranks"});
}

class RawMpi : public RawPeer {
 public:
  explicit RawMpi(BackendContext context) : RawPeer(std::move(context), "MPI") {
    start_mpi(context_);
  }

  Support supports(const Query& query) const override { return supports_query(query); }
  Work launch(const Call& call) override {
    return std::visit([&](const auto& op) { return run(call, op); }, call.op);
  }

 private:
  struct Counts {
    std::vector<int> counts, displacements;
    explicit Counts(std::span<const std::size_t> sizes) {
      int first = 0;
      for (const std::size_t size : sizes) {
        counts.push_back(static_cast<int>(size));
        displacements.push_back(first);
        first += static_cast<int>(size);
      }
    }
  };
  // MPI_IN_PLACE where the rank's own shard is where it belongs.
  template <class T>
  static T own(T data, const void* all, std::size_t offset_bytes) {
    return data == static_cast<const std::byte*>(all) + offset_bytes ? static_cast<T>(MPI_IN_PLACE)
                                                                     : data;
  }
  std::size_t place(ConstView shard) const {
    return static_cast<std::size_t>(context_.rank) * shard.bytes();
  }
  static int count(ConstView view) { return static_cast<int>(view.count); }

  Work run(const Call&, const AllReduce& op) {
    MPI_Allreduce(own(op.input.data, op.output.data, 0), op.output.data, count(op.input),
                  type_of(op.input.dtype), op_of(op.op.kind), comm_);
    return {};
  }
  Work run(const Call&, const Reduce& op) {
    const void* input =
        context_.rank == op.root ? own(op.input.data, op.output.data, 0) : op.input.data;
    MPI_Reduce(input, op.output.data, count(op.input), type_of(op.input.dtype), op_of(op.op.kind),
               op.root, comm_);
    return {};
  }
  Work run(const Call&, const Broadcast& op) {
    if (context_.rank == op.root && op.input.data != op.output.data)
      std::memcpy(op.output.data, op.input.data, op.input.bytes());
    MPI_Bcast(op.output.data, count(op.output), type_of(op.output.dtype), op.root, comm_);
    return {};
  }
  Work run(const Call&, const AllGather& op) {
    const MPI_Datatype type = type_of(op.input.dtype);
    MPI_Allgather(own(op.input.data, op.output.data, place(op.input)), count(op.input), type,
                  op.output.data, count(op.input), type, comm_);
    return {};
  }
  Work run(const Call&, const AllGatherV& op) {
    const MPI_Datatype type = type_of(op.input.dtype);
    const Counts shards(op.counts);
    MPI_Allgatherv(op.input.data, count(op.input), type, op.output.data, shards.counts.data(),
                   shards.displacements.data(), type, comm_);
    return {};
  }
  Work run(const Call& call, const ReduceScatter& op) {
    if (op.output.data == op.input.slice(context_.rank * op.output.count, 0).data)
      return unsupported(call);  // MPI's in-place form puts the result elsewhere
    MPI_Reduce_scatter_block(op.input.data, op.output.data, count(op.output),
                             type_of(op.input.dtype), op_of(op.op.kind), comm_);
    return {};
  }
  Work run(const Call&, const ReduceScatterV& op) {
    MPI_Reduce_scatter(op.input.data, op.output.data, Counts(op.counts).counts.data(),
                       type_of(op.input.dtype), op_of(op.op.kind), comm_);
    return {};
  }
  Work run(const Call&, const Scan& op) {
    MPI_Scan(own(op.input.data, op.output.data, 0), op.output.data, count(op.input),
             type_of(op.input.dtype), op_of(op.op.kind), comm_);
    return {};
  }
  Work run(const Call&, const Exscan& op) {
    MPI_Exscan(own(op.input.data, op.output.data, 0), op.output.data, count(op.input),
               type_of(op.input.dtype), op_of(op.op.kind), comm_);
    return {};
  }
  Work run(const Call&, const Gather& op) {
    const MPI_Datatype type = type_of(op.input.dtype);
    const void* input = context_.rank == op.root
                            ? own(op.input.data, op.output.data, place(op.input))
                            : op.input.data;
    MPI_Gather(input, count(op.input), type, op.output.data, count(op.input), type, op.root, comm_);
    return {};
  }
  Work run(const Call&, const GatherV& op) {
    const MPI_Datatype type = type_of(op.input.dtype);
    const Counts shards(op.counts);
    MPI_Gatherv(op.input.data, count(op.input), type, op.output.data, shards.counts.data(),
                shards.displacements.data(), type, op.root, comm_);
    return {};
  }
  Work run(const Call&, const Scatter& op) {
    const MPI_Datatype type = type_of(op.output.dtype);
    void* output = context_.rank == op.root ? own(op.output.data, op.input.data, place(op.output))
                                            : op.output.data;
    MPI_Scatter(op.input.data, count(op.output), type, output, count(op.output), type, op.root,
                comm_);
    return {};
  }
  Work run(const Call&, const ScatterV& op) {
    const MPI_Datatype type = type_of(op.output.dtype);
    const Counts shards(op.counts);
    MPI_Scatterv(op.input.data, shards.counts.data(), shards.displacements.data(), type,
                 op.output.data, count(op.output), type, op.root, comm_);
    return {};
  }
  Work run(const Call&, const AllToAll& op) {
    const MPI_Datatype type = type_of(op.input.dtype);
    const int each = count(op.input) / context_.size;
    MPI_Alltoall(own(op.input.data, op.output.data, 0), each, type, op.output.data, each, type,
                 comm_);
    return {};
  }
  Work run(const Call&, const AllToAllV& op) {
    const MPI_Datatype type = type_of(op.input.dtype);
    const Counts sent(op.input_counts), taken(op.output_counts);
    MPI_Alltoallv(op.input.data, sent.counts.data(), sent.displacements.data(), type,
                  op.output.data, taken.counts.data(), taken.displacements.data(), type, comm_);
    return {};
  }
  Work run(const Call&, const Barrier&) {
    MPI_Barrier(comm_);
    return {};
  }
  Work run(const Call&, const Send& op) {
    MPI_Send(op.input.data, count(op.input), type_of(op.input.dtype), op.peer,
             static_cast<int>(op.tag), comm_);
    return {};
  }
  Work run(const Call&, const Recv& op) {
    MPI_Status status;
    MPI_Recv(op.output.data, count(op.output), type_of(op.output.dtype),
             op.peer == kAnySource ? MPI_ANY_SOURCE : op.peer, static_cast<int>(op.tag), comm_,
             &status);
    return Work::received({status.MPI_SOURCE, op.output.count});
  }

  // As most programs: MPICH 5 takes three times as long on a copy of it.
  const MPI_Comm comm_ = MPI_COMM_WORLD;
};

const char* version() {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  if (!*text) MPI_Get_library_version(text, &length);
  text[std::strcspn(text, ",\n")] = '\0';
  return text;
}

}}  // namespace c10d::bench

extern "C" __attribute__((visibility("default"))) const c10d::BackendModule* c10d_backend_module() {
  static constexpr c10d::BackendModule module{
      .name = "raw:mpi",
      .version = c10d::bench::version,
      .supports = c10d::bench::supports_query,
      .create = [](c10d::BackendContext context) -> std::unique_ptr<c10d::Backend> {
        return std::make_unique<c10d::bench::RawMpi>(std::move(context));
      },
      .needs_launcher = true};
  return &module;
}
