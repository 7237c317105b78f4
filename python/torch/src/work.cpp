// SPDX-License-Identifier: BSD-3-Clause
#include "python/torch/src/work.h"

#include <ATen/core/ivalue.h>

#include <functional>

#include "python/torch/src/failures.h"
#include "python/torch/src/tensors.h"
#include "python/torch/src/threads.h"

namespace c10d_torch {

Op::~Op() {
  if (handle == nullptr) return;
  // It is done, or nobody can wait for it any more: a forked child, the end of the process.
  c10d_work_detach(handle);
}

void Op::finish(const c10d_failure* failure) {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  try {
    if (failure != nullptr && failure->code == C10D_FORKED_CHILD) is_told_ = true;  // not its op
    if (failure != nullptr) std::rethrow_exception(exception_of(*failure));
    if (handle != nullptr) source_ = c10d_work_received(handle).source;
    const at::NoGradGuard no_grad;
    for (const auto& [flat, tensors] : copies) unpack(flat, tensors);
  } catch (...) {
    error_ = std::current_exception();
  }
  copies.clear();
  if (error_ != nullptr && keeps_buffers) new Tensors(std::move(buffers));
  finished_ = true;
}

bool Op::wait(std::int64_t timeout_ns) {
  {
    const std::lock_guard lock(mutex_);
    if (finished_) return true;
  }
  if (handle == nullptr)
    throw Invalid("the end of the coalesced ops starts this one; wait for that");
  const c10d_code code = c10d_work_wait(handle, timeout_ns);
  if (code == C10D_PENDING) return false;
  finish(code == C10D_OK ? nullptr : c10d_last_failure());
  return true;
}

void when_done(std::shared_ptr<Op> op, std::function<void(Op&)> then) {
  if (op->wait(0)) return then(*op);
  struct Later {
    std::shared_ptr<Op> op;
    std::function<void(Op&)> then;
  };
  auto later = std::make_unique<Later>(Later{std::move(op), std::move(then)});
  expect_callback();
  const c10d_code code = c10d_work_on_done(
      later->op->handle,
      [](void* arg, const c10d_failure* failure) {
        if (!callback_begins()) return;
        {
          const std::unique_ptr<Later> later(static_cast<Later*>(arg));
          later->op->finish(failure);
          later->then(*later->op);
        }
        callback_is_over();
      },
      later.get());
  if (code != C10D_OK) callback_is_over();
  check(code);
  static_cast<void>(later.release());
}

Work::Work(int rank, OpType type, std::shared_ptr<Op> op, std::uint64_t sequence)
    : ::c10d::Work(rank, type), op_(std::move(op)), sequence_(sequence) {}

Work::~Work() {
  if (op_.use_count() > 1 || op_->handle == nullptr) return;
  try {
    // The buffers stay, and copies are made, without anybody who waits, or asks what failed.
    when_done(op_, [](Op& op) {
      if (op.error() && !op.is_told()) warn_of(op.error(), "an op whose Work was dropped failed");
    });
  } catch (const std::exception&) {
    c10d_work_free(std::exchange(op_->handle, nullptr));
  }
}

bool Work::isCompleted() { return op_->wait(0); }

bool Work::isSuccess() const { return op_->wait(0) && op_->tell_error() == nullptr; }

std::exception_ptr Work::exception() const { return op_->wait(0) ? op_->tell_error() : nullptr; }

int Work::sourceRank() const { return op_->wait(0) ? op_->source() : -1; }

Tensors Work::result() { return op_->results; }

void Work::synchronize() { wait(::kNoTimeout); }

bool Work::wait(Milliseconds timeout) {
  const std::chrono::nanoseconds patience = timeout;
  if (!op_->wait(timeout <= ::kNoTimeout ? C10D_DEFAULT_TIMEOUT : patience.count())) {
    const std::string message =
        "Timed out waiting " + std::to_string(timeout.count()) + "ms for an op, which runs on";
    throw Error(c10d_failure{sizeof(c10d_failure), C10D_TIMED_OUT, C10D_REASON_TIMEOUT,
                             message.c_str(), -1, 0, "", "", "", 0});
  }
  if (const auto error = op_->tell_error()) std::rethrow_exception(error);
  return true;
}

void Work::abort() {
  throw Unsupported("an op cannot be aborted by itself; abort the group, on every rank");
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  const std::lock_guard lock(future_mutex_);
  if (future_) return future_;
  auto future =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  auto complete = [future](Op& op) {
    if (const auto error = op.tell_error()) {
      future->setError(error);
    } else {
      future->markCompleted(c10::IValue(op.results));
    }
  };
  if (op_->wait(0)) {
    complete(*op_);
  } else {
    // What hangs on a future may wait for another op, so it does not run in the library's thread.
    when_done(op_, [complete, op = op_](Op&) mutable {
      run_in_thread([complete = std::move(complete), op = std::move(op)] { complete(*op); });
    });
  }
  return future_ = future;
}

}  // namespace c10d_torch
