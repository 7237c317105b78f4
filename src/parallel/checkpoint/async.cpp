// SPDX-License-Identifier: BSD-3-Clause
#include <sched.h>

#include <chrono>
#include <future>
#include <mutex>
#include <system_error>

#include "src/parallel/checkpoint/save.h"
#include "src/parallel/common/consistency.h"

namespace c10d { inline namespace v0 { namespace parallel {

namespace {

// When this thread wakes up, it does not preempt the thread that computes on its core. Otherwise
// training, which wakes it at the end of the copy, would wait for milliseconds.
void compute_first() noexcept {
  const sched_param none{};
  if (sched_getscheduler(0) == SCHED_OTHER) sched_setscheduler(0, SCHED_BATCH, &none);
}

}  // namespace

// The background thread copies, or the caller, if its wait() comes first.
struct AsyncSaver::Copying::Copy {
  explicit Copy(SaveJob& job_) : job(job_) {}
  void make() noexcept {
    std::call_once(once, [this] { job.copy(); });
  }
  SaveJob& job;
  std::once_flag once;
};

// The collectives of a checkpoint run on a group of its own, in the thread: training waits for
// none of them.
class AsyncSaver::State {
 public:
  State(const ProcessGroup& group, std::string directory, SaveOptions options)
      : user_group_(group),
        group_(duplicate_group(group, "checkpoint")),
        job_(group_, std::move(directory), options, real_file_system()),
        write_timeout_(options.timeout) {
    job_.lock();
  }
  ~State() {
    if (user_group_.failure() != nullptr) group_.abort("the group that saves with it has failed");
  }

  Copying save(const Snapshot& snapshot) {
    finish();
    group_.set_timeout(user_group_.timeout());
    job_.begin(snapshot);
    group_.set_timeout(write_timeout_);
    Copying copying{std::make_shared<Copying::Copy>(job_)};
    const auto work = [this, copy = copying.copy_] {
      copy->make();
      job_.write();
      job_.finish();
    };
    try {
      written_ = std::async(std::launch::async, [work] {
        compute_first();
        work();
      });
    } catch (const std::system_error&) {  // no thread to be had: those of other ranks wait for us
      written_ = std::async(std::launch::deferred, work);
      written_.wait();
    }
    return copying;
  }

  void finish() {
    if (written_.valid()) written_.get();
  }

  bool poll() {
    if (!written_.valid()) return true;
    std::int32_t is_done =
        written_.wait_for(std::chrono::seconds(0)) == std::future_status::timeout ? 0 : 1;
    user_group_.all_reduce(std::span(&is_done, 1), ReduceOp::min);
    if (is_done == 0) return false;
    finish();
    return true;
  }

 private:
  const ProcessGroup user_group_;
  ProcessGroup group_;
  SaveJob job_;
  const Duration write_timeout_;
  std::future<void> written_;  // last: its destructor waits for the thread
};

AsyncSaver::Copying::Copying() noexcept = default;
AsyncSaver::Copying::Copying(std::shared_ptr<Copy> begun) noexcept : copy_(std::move(begun)) {}
AsyncSaver::Copying::~Copying() { wait(); }
void AsyncSaver::Copying::wait() const noexcept {
  if (copy_) copy_->make();
}

AsyncSaver::AsyncSaver(const ProcessGroup& group, std::string directory, SaveOptions options)
    : state_(std::make_unique<State>(group, std::move(directory), options)) {}
AsyncSaver::~AsyncSaver() = default;
AsyncSaver::Copying AsyncSaver::save(const Snapshot& snapshot) { return state_->save(snapshot); }
void AsyncSaver::wait() { state_->finish(); }
bool AsyncSaver::poll() { return state_->poll(); }

}}}  // namespace c10d::v0::parallel
