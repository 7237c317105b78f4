// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/nccl/communicator.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "c10d/env.h"
#include "src/backends/common/failures.h"
#include "src/backends/common/store_waits.h"
#include "src/backends/nccl/library.h"
#include "src/backends/nccl/settings.h"
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
  State(const BackendContext& context, Buffer<float> scratch_)
      : group(context.group), device(context.device), scratch(std::move(scratch_)) {}

  const std::string group;
  const Device device;
  std::shared_ptr<const void> kept;  // what a graph that holds ops may use
  Buffer<float> scratch;
  Comm comm = nullptr;                 // set by NCCL before its call returns
  std::atomic<bool> has_begun{false};  // the initialisation is over, well or not
  Mutex mutex;                         // of what asks for errors, against the end
  // Memory with which a call of NCCL has not come back: it ends with the communicator.
  std::vector<std::shared_ptr<const void>> registering C10D_GUARDED_BY(mutex);
  Mutex calls;                                 // of each Use
  std::set<Window> windows;                    // that are open; while one holds `calls`
  std::atomic<bool> is_ending{false};          // nobody begins to use it any more
  std::atomic<std::int64_t> call_began_ns{0};  // 0: its user is in no call of NCCL
  std::atomic<int> open_groups{0};             // of its user
  std::atomic<bool> aborting{false};
  std::atomic<std::int64_t> abort_began_ns{0};
  std::atomic<bool> aborted{false};
  std::atomic<bool> reported{false};
  std::atomic<bool> has_captured{false};
  std::atomic<bool> is_left{false};  // its end waits for a graph

  Comm get() noexcept { return __atomic_load_n(&comm, __ATOMIC_ACQUIRE); }
  void await_user() noexcept;
};

namespace {

// How long NCCL may take to end what it was told to end.
constexpr std::chrono::seconds kPatienceWithAbort{5};
// How long it may take to leave a group that is broken.
constexpr std::chrono::seconds kPatienceWithDestroy{1};
// A call that takes longer waits for a peer, and is ended from outside.
constexpr milliseconds kLongestCall{250};
// A group of calls that is open for longer is held by the driver.
constexpr std::chrono::seconds kLongestGroup{2};
constexpr milliseconds kLook{10}, kShortLook{1};

std::int64_t now_ns() noexcept { return Duration(steady_clock::now().time_since_epoch()).count(); }

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

// What a kernel that nothing ends may use: where leak checkers find it.
void keep_forever(std::shared_ptr<const void> state) {
  static Mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<const void>>;
  MutexLock lock(mutex);
  kept.push_back(std::move(state));
}

[[noreturn]] void throw_late(const BackendContext& context, std::string_view what, int missing) {
  Failure failure =
      failure_in(context, Code::timed_out,
                 fmt::format("rank {} timed out waiting for {} of nccl", context.rank, what));
  if (missing >= 0)
    failure = caused_by(context.members[static_cast<std::size_t>(missing)], std::move(failure));
  throw_failure(std::move(failure));
}

std::string read(const BackendContext& context, const std::string& key, int from,
                 Deadline deadline) {
  if (auto value = read_key(context, key, deadline)) return *std::move(value);
  throw_late(context, fmt::format("the key of rank {}", from), from);
}

// What differs between ranks that NCCL does not look at, or says in other words: two ranks on one
// GPU, which its test modes allow, and other settings.
void compare_ranks(const BackendContext& context, Deadline deadline) {
  const bool may_share = env("NCCL_HOSTID") || env("NCCL_MULTI_RANK_GPU_ENABLE");
  const auto key = [](int rank) { return fmt::format("nccl/gpu/{}", rank); };
  const std::string own = {settings().accumulates_in_f32 ? 'f' : '-',
                           settings().uses_windows ? 'w' : '-'};
  context.store->set(key(context.rank), own + uuid_of(context.device.index),
                     patience_until(deadline));
  std::string of_rank_0;             // its settings, so that all ranks say the same
  std::map<std::string, int> first;  // the first rank on each GPU
  for (int rank = 0; rank < context.size; ++rank) {
    const std::string theirs = read(context, key(rank), rank, deadline);
    if (rank == 0) of_rank_0 = theirs.substr(0, own.size());
    if (!theirs.starts_with(of_rank_0))
      throw_failure(failure_in(
          context, Code::mismatch,
          fmt::format("rank 0 and rank {} have different values of {}", rank,
                      theirs.substr(0, 1) == of_rank_0.substr(0, 1) ? "C10D_NCCL_WINDOWS"
                                                                    : "C10D_NCCL_ACCUMULATE"),
          rank));
    const std::string gpu = theirs.substr(own.size());
    const auto [before, is_new] = first.emplace(gpu, rank);
    if (!is_new && !may_share)
      throw_failure(failure_in(
          context, Code::unsupported,
          fmt::format("ranks {} and {} use the same GPU, {}: NCCL needs one for each rank; start "
                      "fewer ranks, or choose by InitOptions::device or C10D_DEVICE",
                      before->second, rank, gpu),
          rank));
  }
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

// Until its user is in no call and no group, or no longer. It is_ending: there is no other call.
void Communicator::State::await_user() noexcept {
  const std::int64_t began = now_ns();
  for (;;) {
    const bool in_group = open_groups.load(std::memory_order_seq_cst) != 0;
    const std::int64_t call = call_began_ns.load(std::memory_order_seq_cst);
    if (call == 0 && !in_group) return;
    const Duration waited{now_ns() - std::max(began, call)};
    if (waited > (call != 0 ? Duration(kLongestCall) : Duration(kLongestGroup))) return;
    std::this_thread::sleep_for(kShortLook);
  }
}

Communicator::Communicator(const BackendContext& context, Buffer<float> scratch, Deadline deadline)
    : state_(std::make_shared<State>(context, std::move(scratch))) {
  compare_ranks(context, deadline);
  const UniqueId id = agree_on_id(context, deadline);
  CallInThread init([state = state_, id, size = context.size, rank = context.rank] {
    Result made = kUnhandledCudaError;
    try {
      const OnGpu here(state->device.index);
      Config config;
      config.size = kConfigBytes218;
      config.version = static_cast<unsigned>(kOldestVersion);
      config.blocking = 1;
      if (!state->is_ending)
        made = api().comm_init_rank_config(&state->comm, size, id, rank, &config);
    } catch (const std::exception&) {  // of the GPU, which the caller can use
    }
    state->has_begun = true;
    return made;
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
  if (!end_now() && !state_->is_left) keep_forever(state_);
}

bool Communicator::end_now() noexcept {
  abort();
  return state_->aborting ? await_abort(*state_) : !state_->is_left;
}

bool Communicator::await_abort(State& state) noexcept {
  while (!is_over(state)) std::this_thread::sleep_for(kShortLook);
  return state.aborted;
}

Communicator::Use::Use(Communicator& communicator) noexcept : Use(*communicator.state_) {}
Communicator::Use::Use(State& state) noexcept : state_(state), lock_(state.calls) {}

Communicator::Use::InGroup::InGroup(const Use& use) noexcept : state_(use.state_) {
  state_.open_groups.fetch_add(1, std::memory_order_seq_cst);
}
Communicator::Use::InGroup::~InGroup() {
  state_.open_groups.fetch_sub(1, std::memory_order_release);
}

bool Communicator::Use::is_ending() const noexcept {
  return state_.is_ending.load(std::memory_order_seq_cst);
}

Communicator::Use::InCall::InCall(State& state) noexcept : state_(state) {
  state_.call_began_ns.store(now_ns(), std::memory_order_seq_cst);
  comm_ = state_.is_ending.load(std::memory_order_seq_cst) ? nullptr : state_.get();
}
Communicator::Use::InCall::~InCall() { state_.call_began_ns.store(0, std::memory_order_release); }

Communicator::Use::InCall::operator Comm() const {
  if (!comm_) throw DistError({.code = Code::revoked, .message = "the communicator has ended"});
  return comm_;
}

void* Communicator::scratch() const noexcept { return state_->scratch.device_data(); }

void Communicator::note_capture() noexcept { state_->has_captured = true; }

void Communicator::keep(std::shared_ptr<const void> memory) noexcept {
  state_->kept = std::move(memory);
}

Communicator::Opened Communicator::open_window(std::shared_ptr<const void> owner, void* data,
                                               std::size_t bytes, const Control& control,
                                               Deadline deadline) {
  const auto made = std::make_shared<Window>(nullptr);
  CallInThread call([state = state_, made, data, bytes] {
    const Use use(*state);
    if (use.is_ending()) return kInternalError;
    Result result = kUnhandledCudaError;
    try {
      const OnGpu on_gpu(state->device.index);
      result = api().window_register(use.in_call(), data, bytes, made.get(), kWindowSymmetric);
    } catch (const std::exception&) {  // of the GPU, which the caller can use
    }
    if (result == kSuccess && *made) state->windows.insert(*made);
    return result;
  });
  Opened opened;
  while (!(opened.result = call.wait_until(steady_clock::now() + kLook)) && !control.broken() &&
         steady_clock::now() < deadline) {
  }
  if (!opened.result) {
    MutexLock lock(state_->mutex);
    state_->registering.push_back(std::move(owner));
  }
  if (opened.result == kSuccess && *made)
    opened.close = [state = state_, window = *made] {
      {
        const Use use(*state);
        const auto in_call = use.in_call();
        if (!state->aborting)
          return state->windows.erase(window) == 0 ? kSuccess
                                                   : api().window_deregister(state->get(), window);
      }
      return await_abort(*state) ? kSuccess : kInProgress;  // which closes it
    };
  return opened;
}

Result Communicator::async_error() const noexcept {
  MutexLock lock(state_->mutex);
  if (state_->is_ending) return kSuccess;
  Result error = kSuccess;
  const Result result = api().comm_get_async_error(state_->get(), &error);
  if (result != kSuccess) return result;
  return error == kInProgress ? kSuccess : error;
}

bool Communicator::begin_end() noexcept {
  MutexLock lock(state_->mutex);
  return !state_->is_ending.exchange(true, std::memory_order_seq_cst);
}

void Communicator::abort() noexcept {
  if (begin_end()) start_abort();
}

void Communicator::start_abort() noexcept {
  state_->abort_began_ns = now_ns();
  state_->aborting = true;
  const auto end = [state = state_] {
    const Deadline begun_by = steady_clock::now() + kPatienceWithAbort;
    while (!state->get() && !state->has_begun && steady_clock::now() < begun_by)
      std::this_thread::sleep_for(kShortLook);
    state->await_user();
    const Comm comm = state->get();
    const Result result = comm ? api().comm_abort(comm) : kSuccess;
    if (result != kSuccess)
      log(LogLevel::error, "group \"{}\": ncclCommAbort: {}", state->group, describe(result));
    state->aborted.store(result == kSuccess, std::memory_order_release);
  };
  try {
    start_thread(end).detach();
  } catch (const std::exception& error) {
    log(LogLevel::error, "group \"{}\": no thread to abort nccl in: {}", state_->group,
        error.what());
    end();
  }
}

bool Communicator::is_over() noexcept { return is_over(*state_); }

bool Communicator::is_over(State& state) noexcept {
  if (state.aborted.load(std::memory_order_acquire)) return true;
  if (!state.aborting) return false;
  const Deadline began{Duration(state.abort_began_ns.load())};
  if (steady_clock::now() < began + kPatienceWithAbort) return false;
  if (!state.reported.exchange(true))
    log(LogLevel::error,
        "group \"{}\": ncclCommAbort is stuck for {} s: its kernels may still run "
        "on cuda:{}, and use the memory of their ops{}",
        state.group, kPatienceWithAbort.count(), state.device.index,
        state.has_captured ? "; or it waits for a graph that holds ops of the group" : "");
  return true;
}

void Communicator::close_windows(State& state) noexcept try {
  const MutexLock lock(state.calls);
  // Closed or not, they end with the communicator.
  const std::set<Window> open = std::exchange(state.windows, {});
  if (open.empty()) return;
  const OnGpu here(state.device.index);
  for (const Window window : open) {
    const Result result = api().window_deregister(state.get(), window);
    if (result != kSuccess)
      log(LogLevel::warn, "group \"{}\": ncclCommWindowDeregister: {}", state.group,
          describe(result));
  }
} catch (const std::exception& error) {
  log(LogLevel::warn, "group \"{}\": windows were not closed: {}", state.group, error.what());
}

void Communicator::destroy(const Control& control, Deadline deadline) noexcept try {
  if (!begin_end()) return;
  // An abort that meets it would free the communicator twice: it gets time, however late it is.
  const Deadline soon = steady_clock::now() + kPatienceWithAbort;
  deadline = state_->has_captured ? soon : std::max<Deadline>(deadline, soon);
  CallInThread end([state = state_] {
    close_windows(*state);
    return api().comm_destroy(state->get());
  });
  std::optional<Result> result;
  while (!(result = end.wait_until(std::min<Deadline>(deadline, steady_clock::now() + kLook))) &&
         steady_clock::now() < deadline)
    if (control.broken())
      deadline = std::min<Deadline>(deadline, steady_clock::now() + kPatienceWithDestroy);
  if (result == kSuccess) return;
  if (!result && state_->has_captured && !control.broken()) {
    state_->is_left = true;
    log(LogLevel::warn,
        "group \"{}\": ncclCommDestroy waits for graphs that hold ops of the group: destroy them "
        "before the group ends. They cannot be replayed any more, and hold 16 MiB of cuda:{}",
        state_->group, state_->device.index);
    return;
  }
  if (result)
    log(LogLevel::warn, "group \"{}\": ncclCommDestroy: {}", state_->group, describe(*result));
  else
    log(LogLevel::warn, "group \"{}\": ncclCommDestroy has not returned; aborting", state_->group);
  start_abort();
  if (end.wait_until(steady_clock::now() + kPatienceWithAbort) == kSuccess) state_->aborted = true;
} catch (const std::exception& error) {
  log(LogLevel::error, "group \"{}\": nccl could not be ended: {}", state_->group, error.what());
  start_abort();
}

}}}  // namespace c10d::v0::nccl
