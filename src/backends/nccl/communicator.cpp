// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/nccl/communicator.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "c10d/env.h"
#include "src/backends/common/failures.h"
#include "src/backends/nccl/library.h"
#include "src/base/log.h"
#include "src/base/mutex.h"
#include "src/base/timeouts.h"
#include "src/device/gpu.h"
#include "src/sync/thread.h"

namespace c10d { inline namespace v0 { namespace nccl {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Shared with the threads in which NCCL may hang: the last one frees it.
struct Communicator::State {
  explicit State(const BackendContext& context) : group(context.group), device(context.device) {}

  const std::string group;
  const Device device;
  Comm comm = nullptr;  // set by NCCL before its call returns
  std::atomic<bool> aborting{false};
  std::atomic<std::int64_t> abort_began_ns{0};
  std::atomic<bool> aborted{false};
  std::atomic<bool> reported{false};
  std::atomic<bool> destroyed{false};

  Comm get() noexcept { return __atomic_load_n(&comm, __ATOMIC_ACQUIRE); }
};

namespace {

// How long NCCL may take to end what it was told to end.
constexpr std::chrono::seconds kPatienceWithAbort{5};
constexpr milliseconds kLook{10};

// A call of NCCL in a thread of its own.
class CallInThread {
 public:
  explicit CallInThread(std::function<Result()> call)
      : outcome_(std::make_shared<Outcome>()),
        thread_(start_thread([outcome = outcome_, call = std::move(call)] {
          const Result result = call();
          MutexLock lock(outcome->mutex);
          outcome->result = result;
          outcome->changed.notify_all();
        })) {}
  // If the call does not return, its thread goes on for itself.
  ~CallInThread() { result() ? thread_.join() : thread_.detach(); }
  CallInThread(const CallInThread&) = delete;
  CallInThread& operator=(const CallInThread&) = delete;

  std::optional<Result> result() {
    MutexLock lock(outcome_->mutex);
    return outcome_->result;
  }
  // Waits until it has returned or the time has come.
  std::optional<Result> wait_until(Deadline time) {
    MutexLock lock(outcome_->mutex);
    while (!outcome_->result && steady_clock::now() < time)
      outcome_->changed.wait_until(outcome_->mutex, time);
    return outcome_->result;
  }

 private:
  struct Outcome {
    Mutex mutex;
    CondVar changed;
    std::optional<Result> result C10D_GUARDED_BY(mutex);
  };
  const std::shared_ptr<Outcome> outcome_;
  std::thread thread_;
};

[[noreturn]] void throw_late(const BackendContext& context, std::string_view what, int missing) {
  Failure failure =
      failure_in(context, Code::timed_out,
                 fmt::format("rank {} timed out waiting for {} of nccl", context.rank, what));
  if (missing >= 0)
    failure = caused_by(context.members[static_cast<std::size_t>(missing)], std::move(failure));
  throw_failure(std::move(failure));
}

// The value that a rank puts into the store. Ends with the failure of the group.
std::string read(const BackendContext& context, const std::string& key, int from,
                 Deadline deadline) {
  while (true) {
    if (const auto failure = context.control->failure()) throw_failure(*failure);
    try {
      return context.store->get(key, milliseconds(100));
    } catch (const DistTimeoutError&) {
      if (steady_clock::now() >= deadline)
        throw_late(context, fmt::format("the key of rank {}", from), from);
    }
  }
}

// NCCL would say so, but not whose GPU it is. Its test modes allow it.
void refuse_shared_gpus(const BackendContext& context, Deadline deadline) {
  if (env("NCCL_HOSTID") || env("NCCL_MULTI_RANK_GPU_ENABLE")) return;
  const auto key = [](int rank) { return fmt::format("nccl/gpu/{}", rank); };
  context.store->set(key(context.rank), uuid_of(context.device.index), patience_until(deadline));
  std::vector<std::string> by_rank;
  for (int rank = 0; rank < context.size; ++rank)
    by_rank.push_back(read(context, key(rank), rank, deadline));
  for (std::size_t one = 0; one < by_rank.size(); ++one)
    for (std::size_t two = one + 1; two < by_rank.size(); ++two)
      if (by_rank[one] == by_rank[two])
        throw_failure(failure_in(
            context, Code::unsupported,
            fmt::format("ranks {} and {} use the same GPU, {}: NCCL needs one for each rank; start "
                        "fewer ranks, or choose by InitOptions::device or C10D_DEVICE",
                        one, two, by_rank[one]),
            static_cast<int>(two)));
}

UniqueId agree_on_id(const BackendContext& context, Deadline deadline) {
  constexpr const char* kKey = "nccl/id";
  UniqueId id{};
  if (context.rank == 0) {
    check(api().get_unique_id(&id), "ncclGetUniqueId");
    context.store->set(kKey, std::string_view(id.internal, sizeof id.internal),
                       patience_until(deadline));
    return id;
  }
  const std::string bytes = read(context, kKey, 0, deadline);
  if (bytes.size() != sizeof id.internal)
    throw_failure(failure_in(context, Code::corrupt,
                             fmt::format("rank 0 sent an id of {} bytes for nccl, not {}",
                                         bytes.size(), sizeof id.internal),
                             0));
  std::memcpy(id.internal, bytes.data(), sizeof id.internal);
  return id;
}

}  // namespace

Communicator::Communicator(const BackendContext& context, Deadline deadline)
    : state_(std::make_shared<State>(context)) {
  refuse_shared_gpus(context, deadline);
  const UniqueId id = agree_on_id(context, deadline);
  CallInThread init([state = state_, id, size = context.size, rank = context.rank] {
    try {
      const OnGpu here(state->device.index);
      Config config;
      config.size = kConfigBytes218;
      config.version = static_cast<unsigned>(kOldestVersion);
      config.blocking = 1;
      return api().comm_init_rank_config(&state->comm, size, id, rank, &config);
    } catch (const std::exception&) {  // of the GPU, which the caller can use
      return kUnhandledCudaError;
    }
  });
  std::optional<Result> result;
  while (!(result = init.wait_until(steady_clock::now() + kLook)) && !context.control->broken() &&
         steady_clock::now() < deadline) {
  }
  if (result == kSuccess) return;
  const std::string why = result ? describe(*result) : std::string();
  abort();
  init.wait_until(steady_clock::now() + kPatienceWithAbort);
  if (const auto failure = context.control->failure()) throw_failure(*failure);
  if (!result) throw_late(context, "the communicator", -1);
  throw_failure(failure_in(context, Code::backend_error,
                           fmt::format("ncclCommInitRankConfig on rank {}: {}", context.rank, why),
                           context.rank));
}

Communicator::~Communicator() {
  if (!state_->destroyed && !state_->aborting) abort();
  const Deadline end = steady_clock::now() + kPatienceWithAbort;
  while (state_->aborting && !is_over() && steady_clock::now() < end)
    std::this_thread::sleep_for(kLook);
}

Comm Communicator::get() const noexcept { return state_->get(); }

Result Communicator::async_error() const noexcept {
  if (state_->aborting.load(std::memory_order_acquire)) return kSuccess;
  Result error = kSuccess;
  const Result result = api().comm_get_async_error(get(), &error);
  if (result != kSuccess) return result;
  return error == kInProgress ? kSuccess : error;
}

void Communicator::abort() noexcept {
  if (state_->aborting.exchange(true)) return;
  state_->abort_began_ns = Duration(steady_clock::now().time_since_epoch()).count();
  const auto end = [state = state_] {
    if (const Comm comm = state->get()) api().comm_abort(comm);
    state->aborted.store(true, std::memory_order_release);
  };
  try {
    start_thread(end).detach();
  } catch (const std::exception& error) {
    log(LogLevel::error, "group \"{}\": no thread to abort nccl in: {}", state_->group,
        error.what());
    end();
  }
}

bool Communicator::is_over() noexcept {
  if (state_->aborted.load(std::memory_order_acquire)) return true;
  if (!state_->aborting) return false;
  const Deadline began{Duration(state_->abort_began_ns.load())};
  if (steady_clock::now() < began + kPatienceWithAbort) return false;
  if (!state_->reported.exchange(true))
    log(LogLevel::error,
        "group \"{}\": ncclCommAbort has not returned for {} s: its kernels may still run on "
        "cuda:{}, and use the memory of their ops",
        state_->group, kPatienceWithAbort.count(), state_->device.index);
  return true;
}

void Communicator::destroy(Deadline deadline) noexcept try {
  if (state_->aborting || state_->destroyed.exchange(true)) return;
  CallInThread end([state = state_] { return api().comm_destroy(state->get()); });
  const auto result = end.wait_until(deadline);
  if (result == kSuccess) return;
  if (result)
    log(LogLevel::warn, "group \"{}\": ncclCommDestroy: {}", state_->group, describe(*result));
  else
    log(LogLevel::warn, "group \"{}\": ncclCommDestroy has not returned; aborting", state_->group);
  abort();
  end.wait_until(steady_clock::now() + kPatienceWithAbort);
} catch (const std::exception& error) {
  log(LogLevel::error, "group \"{}\": nccl could not be ended: {}", state_->group, error.what());
}

}}}  // namespace c10d::v0::nccl
