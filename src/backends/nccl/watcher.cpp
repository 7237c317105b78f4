// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/nccl/watcher.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include "src/backends/common/failures.h"
#include "src/backends/nccl/library.h"
#include "src/base/log.h"
#include "src/base/mutex.h"
#include "src/device/gpu.h"
#include "src/sync/thread.h"

namespace c10d { inline namespace v0 { namespace nccl {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

// A look at each op costs some 0.3 us. After kEagerLooks without news the thread naps between
// looks, as long as the ops run by then, within these bounds.
constexpr int kEagerLooks = 64;
constexpr microseconds kShortestNap{5}, kLongestNap{200};
constexpr std::chrono::milliseconds kPatience{500};  // for evidence of a peer's death
constexpr std::size_t kMostReports = 1024;

}  // namespace

struct Watcher::Reports {
  Mutex mutex;
  CondVar changed;
  std::array<Report, kMostReports> waiting C10D_GUARDED_BY(mutex);
  std::size_t count C10D_GUARDED_BY(mutex) = 0;
};

Watched::Watched(const BackendContext& context, Communicator& communicator)
    : context_(context), communicator_(communicator) {}

Watched::~Watched() {
  while (in_watch_.load(std::memory_order_acquire) != 0)
    std::this_thread::sleep_for(microseconds(100));
  for (const auto& op : all_)
    if (op->event) driver_api().event_destroy(op->event);
}

PendingOp* Watched::take() {
  if (!free_) free_ = returned_.exchange(nullptr, std::memory_order_acquire);
  if (!free_) {
    auto made = std::make_shared<PendingOp>();
    made->group = this;
    const OnGpu here(context_.device.index);
    check_driver(driver_api().event_create(&made->event, driver::kEventDisableTiming),
                 "cuEventCreate");
    all_.push_back(std::move(made));
    free_ = all_.back().get();
  }
  PendingOp* const op = std::exchange(free_, free_->next);
  op->next = nullptr;
  op->stage.store(PendingOp::Stage::launching, std::memory_order_relaxed);
  op->is_late = op->is_agreed = false;
  return op;
}

void Watched::give_back(PendingOp* op) noexcept {
  op->next = returned_.load(std::memory_order_relaxed);
  while (!returned_.compare_exchange_weak(op->next, op, std::memory_order_release)) {
  }
  in_watch_.fetch_sub(1, std::memory_order_release);  // the last that touches the group
}

// If the second thread does not start, the first has nothing to wait for but what stays.
Watcher::Watcher() : reports_(new Reports) {
  start_thread([reports = reports_] { report(*reports); }).detach();
  start_thread([this] { watch(); }).detach();
}

void Watcher::add(PendingOp* op) noexcept {
  op->group->in_watch_.fetch_add(1, std::memory_order_relaxed);
  op->next = added_.load(std::memory_order_relaxed);
  while (!added_.compare_exchange_weak(op->next, op, std::memory_order_seq_cst)) {
  }
  if (!sleeps_.load(std::memory_order_seq_cst)) return;
  rings_.fetch_add(1, std::memory_order_seq_cst);
  rings_.notify_one();
}

void Watcher::watch() {
  pthread_setname_np(pthread_self(), "c10d-nccl-watch");
  // A query would break a capture of another thread.
  auto mode = driver::kCaptureRelaxed;
  driver_api().exchange_capture_mode(&mode);
  int looks = 0;
  microseconds nap = kShortestNap;
  while (true) {
    if (!watched_) {
      const std::uint32_t seen = rings_.load(std::memory_order_seq_cst);
      sleeps_.store(true, std::memory_order_seq_cst);
      if (!added_.load(std::memory_order_seq_cst)) rings_.wait(seen, std::memory_order_seq_cst);
      sleeps_.store(false, std::memory_order_seq_cst);
    }
    bool news = false;
    // The newest is first: turned round, ops end in their order.
    PendingOp* in_order = nullptr;
    for (PendingOp* added = added_.exchange(nullptr, std::memory_order_seq_cst); added;) {
      PendingOp* const following = added->next;
      added->next = in_order;
      in_order = added;
      added = following;
      news = true;
    }
    PendingOp** last = &watched_;
    while (*last) last = &(*last)->next;
    *last = in_order;
    for (PendingOp** at = &watched_; *at;) {
      PendingOp* const op = *at;
      PendingOp* const following = op->next;
      if (settle(*op)) {
        *at = following;
        news = true;
      } else {
        at = &op->next;
      }
    }
    looks = news ? 0 : looks + 1;
    naps_ = looks > kEagerLooks;
    if (!naps_) {
      nap = kShortestNap;
      continue;
    }
    std::this_thread::sleep_for(nap);
    nap = std::min(2 * nap, kLongestNap);
  }
}

bool Watcher::settle(PendingOp& op) {
  Watched& group = *op.group;
  Control& control = *group.context_.control;
  const PendingOp::Stage stage = op.stage.load(std::memory_order_acquire);
  if (stage == PendingOp::Stage::given_up) {
    group.give_back(&op);
    return true;
  }
  if (stage == PendingOp::Stage::enqueued) {
    const driver::Result result =
        op.is_captured ? driver::kSuccess : driver_api().event_query(op.event);
    const bool is_broken = control.broken();
    // Ends that do not fit may wait for each other for ever: so look also meanwhile, now and then.
    const bool agreed = (result == driver::kSuccess || naps_) && !is_broken && is_agreed(op);
    if (result == driver::kSuccess && agreed) {
      end(op, nullptr);
      return true;
    }
    // Aborted or not, once the event is done nothing of the op runs any more.
    if (is_broken && (result != driver::kNotReady || group.communicator_.is_over())) {
      const auto cause = control.failure();
      end(op, cause.get());
      return true;
    }
    if (result != driver::kSuccess && result != driver::kNotReady) hand_over(op, result, kSuccess);
  }
  if (group.has_failed_ || control.broken()) return false;
  if (const Result error = group.communicator_.async_error(); error != kSuccess)
    hand_over(op, driver::kSuccess, error);
  else if (!op.is_late && steady_clock::now() >= op.deadline)
    hand_over(op, driver::kSuccess, kSuccess);
  return false;
}

bool Watcher::is_agreed(PendingOp& op) {
  if (op.is_agreed) return true;
  Control& control = *op.group->context_.control;
  const Control::Agreement agreement = is_point_to_point(op.kind)
                                           ? control.poll_message(op.kind, op.sequence)
                                           : control.poll_enqueued(op.sequence);
  op.is_agreed = agreement == Control::Agreement::agreed;
  return op.is_agreed;
}

void Watcher::end(PendingOp& op, const Failure* failure) noexcept {
  Watched& group = *op.group;
  if (op.source) {
    {
      MutexLock lock(op.order_mutex);
      ++op.generation;
    }
    const WorkSource source = *std::exchange(op.source, std::nullopt);
    failure ? source.fail(*failure) : source.complete(op.received);
  } else {
    group.context_.control->finished(op.kind, op.sequence, op.record, failure);
  }
  group.give_back(&op);
}

void Watcher::hand_over(PendingOp& op, driver::Result driver_error, Result nccl_error) {
  Watched& group = *op.group;
  op.is_late = true;
  if (driver_error != driver::kSuccess || nccl_error != kSuccess) {
    if (group.has_failed_.exchange(true)) return;
  }
  MutexLock lock(reports_->mutex);
  if (reports_->count == kMostReports) return;  // the monitor finds what is late
  group.in_watch_.fetch_add(1, std::memory_order_relaxed);
  reports_->waiting[reports_->count++] = {&group,       op.kind,    op.sequence,
                                          driver_error, nccl_error, op.is_captured};
  reports_->changed.notify_one();
}

void Watcher::report(Reports& reports) {
  pthread_setname_np(pthread_self(), "c10d-nccl-fail");
  while (true) {
    Report next{};
    {
      MutexLock lock(reports.mutex);
      while (reports.count == 0) reports.changed.wait(reports.mutex);
      next = reports.waiting[--reports.count];
    }
    const BackendContext& context = next.group->context_;
    try {
      if (next.driver_error == driver::kSuccess && next.nccl_error == kSuccess) {
        context.control->fail_overdue(
            next.kind, next.sequence,
            next.is_captured ? "waiting for all ranks to capture the call" : "running on the GPU");
      } else {
        const bool is_driver = next.driver_error != driver::kSuccess;
        const std::string words =
            is_driver ? v0::describe(next.driver_error) : describe(next.nccl_error);
        Failure failure = failure_in(context, is_driver ? Code::backend_error : Code::link_lost,
                                     fmt::format("rank {}: {}: {}", context.rank,
                                                 is_driver ? "the CUDA driver" : "nccl", words),
                                     is_driver ? context.rank : -1);
        failure.op = to_string(next.kind);
        failure.sequence = next.sequence;
        context.control->resolve_cause(std::move(failure), is_driver ? Duration{} : kPatience);
      }
    } catch (const std::exception& error) {
      log(LogLevel::error, "group \"{}\": {}", context.group, error.what());
    }
    next.group->in_watch_.fetch_sub(1, std::memory_order_release);
  }
}

}}}  // namespace c10d::v0::nccl
