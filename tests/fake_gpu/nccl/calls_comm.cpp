// SPDX-License-Identifier: BSD-3-Clause
// How communicators begin and end, and what they say of themselves.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/fake_gpu/nccl/call.h"

// Of the stand-in for the driver.
extern "C" c10d::driver::Result cuInit(unsigned flags);
extern "C" c10d::driver::Result cuDevicePrimaryCtxRetain(c10d::driver::Context* context,
                                                         c10d::driver::Device device);
extern "C" c10d::driver::Result cuCtxPushCurrent_v2(c10d::driver::Context context);

namespace fake_nccl {

void judge_management(const char* function) {
  fake_gpu::note_blocking_call(function);
  if (fake_gpu::is_forbidden_by_capture()) {
    fake_gpu::violation("in a capture",
                        std::string(function) + " was called while a capture forbids it");
  }
}

Result read_config(const nccl::Config* config, Settings& settings) {
  if (!config) return nccl::kSuccess;
  const std::size_t known = kVersion >= 23200 ? 120 : kVersion >= 22800 ? 80 : 48;
  nccl::Config read;
  const std::size_t size = config->size;
  if (size < offsetof(nccl::Config, blocking) || config->magic != read.magic) {
    return nccl::kInvalidArgument;
  }
  std::memcpy(&read, config, std::min({size, known, sizeof read}));
  const auto is_switch = [](int value) {
    return value == nccl::kUndefined || value == 0 || value == 1;
  };
  const auto is_count = [](int value) { return value == nccl::kUndefined || value > 0; };
  const bool has_range = read.min_ctas != nccl::kUndefined && read.max_ctas != nccl::kUndefined;
  if (!is_switch(read.blocking) || !is_switch(read.split_share) || !is_switch(read.shrink_share) ||
      !is_count(read.min_ctas) || !is_count(read.max_ctas) ||
      (has_range && read.min_ctas > read.max_ctas) ||
      (read.cta_policy != nccl::kUndefined && (read.cta_policy < 0 || read.cta_policy > 2))) {
    return nccl::kInvalidArgument;
  }
  if (read.blocking != nccl::kUndefined) settings.is_blocking = read.blocking == 1;
  settings.has_unknown_net = read.net_name && std::strcmp(read.net_name, "Socket") != 0 &&
                             std::strcmp(read.net_name, "IB") != 0;
  return nccl::kSuccess;
}

namespace {

constexpr int kPollsOfEnd = 2;

// The device of the thread. Without a context the runtime takes device 0, and keeps it.
int take_device(const char* function) {
  if (!fake_gpu::current_context()) {
    fake_gpu::violation("no context",
                        std::string(function) + " was called on a thread without context");
    cu::Context context = nullptr;
    if (cuInit(0) != cu::kSuccess || cuDevicePrimaryCtxRetain(&context, 0) != cu::kSuccess ||
        cuCtxPushCurrent_v2(context) != cu::kSuccess) {
      return -1;
    }
  }
  return fake_gpu::current_device();
}

// Whether all have come, and on a device each.
Result start(Comm& comm) {
  if (!comm.board) {
    return say(nccl::kInternalError,
               "ncclSocketInit: connecting to address  with family 0 is neither AF_INET(2) nor "
               "AF_INET6(10)");
  }
  if (comm.settings.has_unknown_net) return nccl::kInvalidUsage;
  Board& board = *comm.board;
  if (!board.have_all_joined()) {
    for (int rank = 0; rank < comm.size; ++rank) {
      if (rank != comm.rank && board.is_gone(rank)) return nccl::kRemoteError;
    }
    return nccl::kInProgress;
  }
  if (const int other = board.duplicate_of(comm.rank); other >= 0) {
    char text[128];
    std::snprintf(text, sizeof text,
                  "Duplicate GPU detected : rank %d and rank %d both on CUDA device %x", comm.rank,
                  other, (comm.device + 1) * 16);
    return say(nccl::kInvalidUsage, text);
  }
  return board.has_duplicates() ? nccl::kRemoteError : nccl::kSuccess;
}

}  // namespace

}  // namespace fake_nccl

using namespace fake_nccl;  // NOLINT: the file has nothing else

FAKE_NCCL_API Result ncclGetUniqueId(nccl::UniqueId* id) {
  FAKE_NCCL_ENTER(nullptr);
  if (!id) return nccl::kInvalidArgument;
  return Board::make(*id) ? nccl::kSuccess : nccl::kSystemError;
}

FAKE_NCCL_API Result ncclCommInitRankConfig(nccl::Comm* made, int size, nccl::UniqueId id, int rank,
                                            nccl::Config* config) {
  judge_management(__func__);
  Settings settings;
  const bool is_valid = made && size >= 1 && size <= kMostRanks && rank >= 0 && rank < size &&
                        read_config(config, settings) == nccl::kSuccess;
  const int device = is_valid ? take_device(__func__) : -1;
  const auto comm = std::make_shared<Comm>(rank, size, device, settings);
  const Handle handle = add(comm);
  // Set before the call returns: another thread may abort it.
  if (made) std::atomic_ref<Handle>(*made).store(handle);
  const auto refuse = [&](Result result) {
    remove(handle);
    if (made) std::atomic_ref<Handle>(*made).store(nullptr);
    return result;
  };
  if (const auto at_once = faulted(__func__, comm.get())) return refuse(*at_once);
  if (!is_valid) {
    return refuse(
        group_fails(say(nccl::kInvalidArgument, name_of(__func__) + " : invalid argument")));
  }
  if (device < 0) {
    return refuse(group_fails(say(nccl::kUnhandledCudaError,
                                  "Cuda failure 'CUDA driver version is insufficient for CUDA "
                                  "runtime version'")));
  }
  comm->join(id, rank, size);
  comm->begin([weak = std::weak_ptr<Comm>(comm)] { return start(*weak.lock()); }, kPollsOfStart);
  return submit(comm);
}

FAKE_NCCL_API Result ncclCommFinalize(nccl::Comm handle) {
  const auto comm = find(handle, __func__);
  FAKE_NCCL_ENTER(comm.get());
  if (!handle) return nccl::kSuccess;
  if (!comm) return nccl::kUnhandledCudaError;
  judge_management(__func__);
  if (const Result not_ready = comm->ready(false); not_ready != nccl::kSuccess) return not_ready;
  if (comm->is_revoked || comm->is_finalized.exchange(true)) {
    return comm->refuse(nccl::kInvalidArgument);
  }
  comm->begin(
      [weak = std::weak_ptr<Comm>(comm)] {
        const auto mine = weak.lock();
        if (mine->size > 1 && !mine->turns.are_over()) return nccl::kInProgress;
        mine->leave(kHasLeft);
        return nccl::kSuccess;
      },
      kPollsOfEnd);
  return submit(comm);
}

FAKE_NCCL_API Result ncclCommDestroy(nccl::Comm handle) {
  const auto comm = find(handle, __func__);
  FAKE_NCCL_ENTER(comm.get());
  if (!handle) return nccl::kSuccess;
  if (!comm) return nccl::kInvalidArgument;
  judge_management(__func__);
  if (const Result not_ready = comm->ready(false); not_ready != nccl::kSuccess) {
    group_leaks();
    return not_ready;
  }
  quiesce(*comm);
  wait_for_graphs(*comm);
  comm->is_ended = true;
  comm->leave(kHasLeft);
  remove(handle);
  return nccl::kSuccess;
}

FAKE_NCCL_API Result ncclCommAbort(nccl::Comm handle) {
  const auto comm = find(handle, __func__);
  FAKE_NCCL_ENTER(nullptr);
  if (!handle) return nccl::kSuccess;
  if (!comm) return nccl::kInvalidArgument;
  judge_management(__func__);
  comm->abort->raised = true;
  comm->is_ended = true;
  comm->drop();  // a step that is under way has ended
  comm->leave(kHasLeft);
  remove(handle);
  submit_abort(comm);
  wait_for_graphs(*comm);
  return nccl::kSuccess;
}

FAKE_NCCL_API Result ncclCommRevoke(nccl::Comm handle, int flags) {
  const auto comm = find(handle, __func__);
  FAKE_NCCL_ENTER(comm.get());
  if (!handle) return nccl::kSuccess;
  if (!comm) return nccl::kInvalidArgument;
  judge_management(__func__);
  if (flags != 0 || comm->is_revoked.exchange(true)) return nccl::kInvalidArgument;
  comm->abort->raised = true;
  comm->drop();
  comm->leave(kHasRevoked);
  comm->begin(
      [weak = std::weak_ptr<Comm>(comm)] {
        return weak.lock()->turns.are_over() ? nccl::kSuccess : nccl::kInProgress;
      },
      kPollsOfEnd);
  return submit(comm);
}

FAKE_NCCL_API Result ncclCommGetAsyncError(nccl::Comm handle, Result* state) {
  const auto comm = find(handle, __func__);
  if (!comm) return no_comm(__func__);
  // What the script says is found there, and stays; 0: errors are never found.
  const int code = fake_gpu::fault(__func__, comm->abort.get());
  if (code == nccl::kSuccess) comm->hide_errors();
  if (code > nccl::kSuccess && code != nccl::kInProgress) comm->fail(static_cast<Result>(code));
  if (!state) return nccl::kInvalidArgument;
  *state = code == nccl::kInProgress ? nccl::kInProgress : comm->async_error();
  return nccl::kSuccess;
}

namespace {

Result say_of(const char* function, nccl::Comm handle, int* to, int Comm::*value) {
  const auto comm = find(handle, function);
  if (const auto at_once = faulted(function, comm.get())) return *at_once;
  if (!comm) return no_comm(function);
  if (const Result not_ready = comm->ready(false); not_ready != nccl::kSuccess) return not_ready;
  if (!to) return nccl::kInvalidArgument;
  *to = value ? (*comm).*value : comm->device;
  return nccl::kSuccess;
}

}  // namespace

FAKE_NCCL_API Result ncclCommCount(nccl::Comm comm, int* count) {
  return say_of(__func__, comm, count, &Comm::size);
}
FAKE_NCCL_API Result ncclCommCuDevice(nccl::Comm comm, int* device) {
  return say_of(__func__, comm, device, nullptr);
}
FAKE_NCCL_API Result ncclCommUserRank(nccl::Comm comm, int* rank) {
  return say_of(__func__, comm, rank, &Comm::rank);
}
