// SPDX-License-Identifier: BSD-3-Clause
// Collectives and messages, and the reductions with a factor.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fake_gpu/nccl/call.h"

namespace fake_nccl {

std::optional<Result> faulted(const char* function, Comm* comm) {
  const int code = fake_gpu::fault(function, comm ? comm->abort.get() : nullptr);
  if (code == fake_gpu::kNoFault) {
    if (comm && comm->is_ended) return nccl::kInternalError;  // while the call hung
    return std::nullopt;
  }
  const auto result = static_cast<Result>(code);
  if (result == nccl::kSuccess || result == nccl::kInProgress) return result;
  say(result, name_of(function) + " : the script says so");
  group_fails(result);
  return comm ? comm->refuse(result) : result;
}

Result no_comm(const char* function) {
  return group_fails(say(nccl::kInvalidArgument, name_of(function) + " : comm argument is NULL"));
}

namespace {

Result wrong(Comm& comm, const Task& task, const std::string& text) {
  if (!text.empty()) say(nccl::kInvalidArgument, name_of(task.function) + " : " + text);
  return group_fails(comm.refuse(nccl::kInvalidArgument));
}

int number_of_types() { return kVersion >= 22400 ? 12 : 10; }

// Finds out what the op is. Success, or what is wrong.
Result read_op(Comm& comm, Task& task) {
  const int op = task.op;
  if (op < 0) return wrong(comm, task, "invalid reduction operation " + std::to_string(op));
  if (op == nccl::kAvg) task.factor = one_over(task.dtype, comm.size);
  if (op > nccl::kAvg) {
    const auto found = comm.reductions.find(op);
    if (found == comm.reductions.end()) {
      return wrong(comm, task,
                   "reduction operation " + std::to_string(op) + " unknown to this communicator");
    }
    if (found->second.dtype != task.dtype) {
      say(nccl::kInvalidArgument,
          "Data type supplied to user-created ncclRedOp_t does not match type given to reduction "
          "operation");
      return wrong(comm, task, "");
    }
    task.op = kPreMulSum;
    task.factor = found->second.factor;
    task.factor_at = found->second.at;
  }
  // The kernel for one rank knows no fp8.
  if (comm.size == 1 && task.dtype >= nccl::kFloat8e4m3 && op >= nccl::kAvg) {
    return wrong(comm, task, "");
  }
  return nccl::kSuccess;
}

Result check_pointer(Comm& comm, const Task& task, const char* which, const void* at) {
  if (fake_gpu::view(at, 1)) return nccl::kSuccess;
  char text[64];
  std::snprintf(text, sizeof text, "%s %p is not a valid pointer", which, at);
  return wrong(comm, task, text);
}

// Also of a buffer that this rank does not use, but for those of a broadcast and of a reduce.
Result check_pointers(Comm& comm, const Task& task) {
  const char* wanted = std::getenv("NCCL_CHECK_POINTERS");
  if (!wanted || *wanted != '1' || task.count == 0) return nccl::kSuccess;
  const bool is_root = comm.rank == task.root;
  Result result = nccl::kSuccess;
  if (task.kind != Kind::recv && (task.kind != Kind::broadcast || is_root)) {
    result = check_pointer(comm, task, "sendbuff", task.from);
  }
  if (result == nccl::kSuccess && task.kind != Kind::send &&
      (task.kind != Kind::reduce || is_root)) {
    result = check_pointer(comm, task, "recvbuff", task.to);
  }
  return result;
}

// One rank copies at once, as far as there is anything to copy.
bool can_copy(const Task& task) {
  const std::size_t bytes = task.count * size_of(task.dtype);
  if (bytes / size_of(task.dtype) != task.count || bytes > (std::size_t{1} << 40)) return false;
  for (const void* at : {task.from, static_cast<const void*>(task.to)}) {
    if (!at || (fake_gpu::view(at, 1) && !fake_gpu::view(at, bytes))) return false;
  }
  return true;
}

Result call(Task task, Handle handle) {
  const std::shared_ptr<Comm> comm = find(handle, task.function);
  if (const auto at_once = faulted(task.function, comm.get())) return *at_once;
  if (!comm) return no_comm(task.function);
  if (comm->is_revoked) return group_fails(nccl::kInvalidUsage);
  if (const Result not_ready = comm->ready(true); not_ready != nccl::kSuccess) {
    return group_fails(not_ready);
  }
  if (task.root < 0 || task.root >= comm->size) {
    return wrong(*comm, task,
                 "invalid root " + std::to_string(task.root) + " (root should be in the 0.." +
                     std::to_string(comm->size) + " range)");
  }
  if (task.dtype < 0 || task.dtype >= number_of_types()) {
    return wrong(*comm, task, "invalid type " + std::to_string(task.dtype));
  }
  if (task.reduces()) {
    if (const Result result = read_op(*comm, task); result != nccl::kSuccess) return result;
  }
  if (task.count == 0) return nccl::kSuccess;
  if (const Result result = check_pointers(*comm, task); result != nccl::kSuccess) return result;
  task.context = fake_gpu::current_context();
  if (comm->size == 1 && !task.is_p2p()) {
    if (task.from == task.to && task.op != kPreMulSum) return nccl::kSuccess;
    if (!can_copy(task)) {
      return group_fails(
          comm->refuse(say(nccl::kUnhandledCudaError, "Cuda failure 'invalid argument'")));
    }
  }
  return submit(comm, task);
}

}  // namespace
}  // namespace fake_nccl

using fake_nccl::Kind;
using fake_nccl::Task;
using Result = fake_nccl::Result;
namespace nccl = c10d::nccl;

namespace {

Task task_of(Kind kind, const char* function, const void* from, void* to, std::size_t count,
             nccl::DataType dtype, nccl::RedOp op, int root, nccl::Stream stream) {
  Task task{kind, function};
  task.from = from;
  task.to = to;
  task.count = count;
  task.dtype = dtype;
  task.op = op;
  task.root = root;
  task.stream = stream;
  return task;
}

}  // namespace

// NAME, its kind, its op and its root, and the parameters that only it has.
#define FAKE_NCCL_COLLECTIVE(name, kind, op, root, ...)                                          \
  FAKE_NCCL_API Result name(const void* from, void* to, std::size_t count, nccl::DataType dtype, \
                            __VA_ARGS__ nccl::Comm comm, nccl::Stream stream) {                  \
    return fake_nccl::call(                                                                      \
        task_of(Kind::kind, __func__, from, to, count, dtype, op, root, stream), comm);          \
  }
#define FAKE_NCCL_COMMA ,
FAKE_NCCL_COLLECTIVE(ncclAllReduce, all_reduce, op, 0, nccl::RedOp op FAKE_NCCL_COMMA)
FAKE_NCCL_COLLECTIVE(ncclReduce, reduce, op, root,
                     nccl::RedOp op FAKE_NCCL_COMMA int root FAKE_NCCL_COMMA)
FAKE_NCCL_COLLECTIVE(ncclBroadcast, broadcast, nccl::kSum, root, int root FAKE_NCCL_COMMA)
FAKE_NCCL_COLLECTIVE(ncclReduceScatter, reduce_scatter, op, 0, nccl::RedOp op FAKE_NCCL_COMMA)
FAKE_NCCL_COLLECTIVE(ncclAllGather, all_gather, nccl::kSum, 0, )
FAKE_NCCL_COLLECTIVE(ncclAlltoAll, all_to_all, nccl::kSum, 0, )
FAKE_NCCL_COLLECTIVE(ncclGather, gather, nccl::kSum, root, int root FAKE_NCCL_COMMA)
FAKE_NCCL_COLLECTIVE(ncclScatter, scatter, nccl::kSum, root, int root FAKE_NCCL_COMMA)

FAKE_NCCL_API Result ncclSend(const void* from, std::size_t count, nccl::DataType dtype, int peer,
                              nccl::Comm comm, nccl::Stream stream) {
  return fake_nccl::call(
      task_of(Kind::send, __func__, from, nullptr, count, dtype, nccl::kSum, peer, stream), comm);
}

FAKE_NCCL_API Result ncclRecv(void* to, std::size_t count, nccl::DataType dtype, int peer,
                              nccl::Comm comm, nccl::Stream stream) {
  return fake_nccl::call(
      task_of(Kind::recv, __func__, nullptr, to, count, dtype, nccl::kSum, peer, stream), comm);
}

FAKE_NCCL_API Result ncclRedOpCreatePreMulSum(nccl::RedOp* op, void* scalar, nccl::DataType dtype,
                                              nccl::ScalarResidence residence, nccl::Comm handle) {
  const auto comm = fake_nccl::find(handle, __func__);
  FAKE_NCCL_ENTER(comm.get());
  if (!comm) return fake_nccl::no_comm(__func__);
  if (const Result not_ready = comm->ready(false); not_ready != nccl::kSuccess) return not_ready;
  if (!op || !scalar) return nccl::kInvalidArgument;
  if (dtype < 0 || dtype >= fake_nccl::number_of_types()) return nccl::kInternalError;
  fake_nccl::PreMulSum made{dtype, 0, nullptr};
  if (residence == nccl::kScalarDevice) {
    made.at = scalar;
  } else {
    std::memcpy(&made.factor, scalar, fake_nccl::size_of(dtype));
  }
  static std::atomic<int> last{700'000'000};
  const int number = ++last;
  comm->reductions[number] = made;
  *op = static_cast<nccl::RedOp>(number);
  return nccl::kSuccess;
}

FAKE_NCCL_API Result ncclRedOpDestroy(nccl::RedOp op, nccl::Comm handle) {
  const auto comm = fake_nccl::find(handle, __func__);
  FAKE_NCCL_ENTER(comm.get());
  if (!comm) return fake_nccl::no_comm(__func__);
  if (const Result not_ready = comm->ready(false); not_ready != nccl::kSuccess) return not_ready;
  if (op >= 0 && op <= nccl::kAvg) {
    return fake_nccl::say(nccl::kInvalidArgument, "ncclRedOpDestroy : operator is a NCCL builtin.");
  }
  if (comm->reductions.erase(op) == 0) {
    return fake_nccl::say(nccl::kInvalidArgument,
                          "ncclRedOpDestroy : operator unknown to this communicator.");
  }
  return nccl::kSuccess;
}

FAKE_NCCL_API Result ncclGroupStart() {
  FAKE_NCCL_ENTER(nullptr);
  fake_nccl::group_start();
  return nccl::kSuccess;
}

// One that fails ends the group all the same, and nothing of it runs.
FAKE_NCCL_API Result ncclGroupEnd() {
  if (const auto at_once = fake_nccl::faulted(__func__, nullptr)) {
    std::size_t dropped = 0;
    fake_nccl::group_drop(dropped);
    return *at_once;
  }
  return fake_nccl::group_end();
}

FAKE_NCCL_API Result ncclGroupSimulateEnd(nccl::SimulationInfo* info) {
  FAKE_NCCL_ENTER(nullptr);
  std::size_t tasks = 0;
  const Result result = fake_nccl::group_drop(tasks);
  if (info && tasks != 0) info->estimated_time = 10.0F * static_cast<float>(tasks);
  return result;
}
