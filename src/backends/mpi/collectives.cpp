// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/mpi/collectives.h"

#include <algorithm>
#include <deque>
#include <type_traits>

#include "src/backends/common/failures.h"
#include "src/backends/common/gathered_reduction.h"
#include "src/backends/common/single_rank.h"
#include "src/backends/mpi/mpi_calls.h"
#include "src/backends/mpi/runtime.h"
#include "src/base/failure_text.h"
#include "src/sync/progress_thread.h"

namespace c10d { inline namespace v0 {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kMaxPendingCollectives = 4096;
// From this size on polling costs next to nothing, and an op takes long enough to be worth ending.
// Open MPI's reduce takes twice as long when it is polled, whatever its algorithm: it blocks.
constexpr std::size_t kPolledBytes = std::size_t{1} << 20;
#ifdef OPEN_MPI
constexpr bool kPollsReduce = false;
#else
constexpr bool kPollsReduce = true;
#endif
constexpr std::chrono::milliseconds kIdleLook{20};

// What all ranks know of an op's size: they poll together or not at all, since MPI's blocking
// collectives do not match the others.
template <class T>
std::size_t bytes_of(const T& op, int size) {
  constexpr bool only_root_has_input =
      std::is_same_v<T, Broadcast> || std::is_same_v<T, Scatter> || std::is_same_v<T, ScatterV>;
  constexpr bool has_one_of_all =
      std::is_same_v<T, AllGather> || std::is_same_v<T, Gather> || std::is_same_v<T, Scatter>;
  if constexpr (std::is_same_v<T, Barrier> || std::is_same_v<T, AllToAllV> ||
                (std::is_same_v<T, Reduce> && !kPollsReduce)) {
    return 0;  // of an all_to_all_v too: it is polled in any case
  } else {
    const ConstView own = only_root_has_input ? ConstView(op.output) : op.input;
    if constexpr (requires { op.counts; })
      return first_of(op.counts, size) * size_of(own.dtype);
    else
      return own.bytes() * (has_one_of_all ? static_cast<std::size_t>(size) : 1);
  }
}

}  // namespace

// Works of async ops, oldest first, which is how they end.
class Collectives::Unfinished {
 public:
  void add(const WorkSource& source) {
    MutexLock lock(mutex_);
    works_.push_back(source);
  }
  void remove_last() {
    MutexLock lock(mutex_);
    works_.pop_back();
  }
  void finish_first(const Failure* failure) {
    WorkSource first;
    {
      MutexLock lock(mutex_);
      first = std::move(works_.front());
      works_.pop_front();
    }
    failure ? first.fail(*failure) : first.complete();
  }
  bool empty() {
    MutexLock lock(mutex_);
    return works_.empty();
  }
  void fail_all(const Failure& failure) {
    std::deque<WorkSource> works;
    {
      MutexLock lock(mutex_);
      works = works_;
    }
    for (const WorkSource& work : works) work.fail(failure);
  }

 private:
  Mutex mutex_;
  std::deque<WorkSource> works_ C10D_GUARDED_BY(mutex_);
};

Collectives::Collectives(const BackendContext& context, Communicators comms,
                         std::shared_ptr<Transfers> transfers)
    : context_(context),
      comms_(std::move(comms)),
      transfers_(std::move(transfers)),
      unfinished_(std::make_shared<Unfinished>()),
      thread_(1, kMaxPendingCollectives) {}

template <class T>
FailurePtr Collectives::run_op(const Call& call, const T& op) {
  const bool polls = !mpi_is_concurrent() || bytes_of(op, comms_.size) >= kPolledBytes;
  const auto meanwhile = [&] {
    return std::is_same_v<T, Barrier> ? nullptr : transfers_->failure_meanwhile();
  };
  if constexpr (!std::is_same_v<T, AllToAllV>) {
    if (!polls && is_direct(comms_, op)) {
      check_mpi(start(comms_, op, nullptr));
      comms_.free_types();
      return meanwhile();
    }
  }
  FailurePtr failure;
  auto schedule = std::make_unique<Schedule>(comms_, polls);
  try {
    schedule->add(op);
    while (!schedule->advance() && !transfers_->must_end(call, failure)) transfers_->pause();
    if (!failure) failure = meanwhile();
  } catch (const std::exception& error) {
    failure = transfers_->library_error(call, error.what());
  }
  if (failure) give_up(std::move(schedule));
  comms_.free_types();
  return failure;
}

FailurePtr Collectives::run(const Call& call) try {
  if (FailurePtr failure = context_.control->agree(call, Control::Waiting::spin)) return failure;
  try {
    return std::visit(
        [&]<class T>(const T& op) -> FailurePtr {
          if constexpr (std::is_same_v<T, Send> || std::is_same_v<T, Recv>) {
            return nullptr;
          } else if (comms_.size > 1) {
            return run_op(call, op);
          } else {
            run_alone(op);
            return nullptr;
          }
        },
        call.op);
  } catch (const std::exception& error) {
    return transfers_->library_error(call, error.what());
  }
} catch (const std::exception& error) {
  return context_.control->fail(failure_from_exception(error, "mpi"));
}

// Breaks the group at the call's deadline. In a broken group it does not wait.
void Collectives::wait_for_async_ops(const Call& call) {
  for (Deadline look{}; !thread_.idle(look) && !context_.control->broken();
       look = std::min<Deadline>(call.deadline, steady_clock::now() + kIdleLook))
    if (steady_clock::now() >= call.deadline)
      context_.control->fail(context_.control->timed_out(call, "waiting for earlier async ops"));
}

Work Collectives::launch(const Call& call) {
  if (call.async) return launch_async(call);
  wait_for_async_ops(call);
  // Also when the group broke: other ranks may be in a call that the funnel has announced.
  const FailurePtr failure = run(call);
  return failure ? Work::failed(*failure) : Work();
}

Work Collectives::launch_async(const Call& call) {
  const WorkSource source;
  auto owned = std::make_shared<OwnedCall>(call);
  unfinished_->add(source);
  if (thread_.add([this, owned = std::move(owned)] {
        const FailurePtr failure = run(owned->call());
        unfinished_->finish_first(failure.get());
      })) {
    if (context_.control->broken()) abort();  // which came before this op
    return source.work();
  }
  unfinished_->remove_last();
  return Work::failed(
      *context_.control->fail(no_thread_for(context_, call, kMaxPendingCollectives, "MPI")));
}

void Collectives::abort() noexcept try {
  if (unfinished_->empty()) return;
  add_progress(
      [unfinished = unfinished_, control = context_.control, end = steady_clock::now() + kGrace] {
        if (unfinished->empty()) return Poll::done;
        if (steady_clock::now() < end) return Poll::idle;
        if (const FailurePtr failure = control->failure()) unfinished->fail_all(*failure);
        return Poll::done;
      });
} catch (const std::exception&) {  // without a thread to do it the ops end with MPI's calls
}

void give_up(std::unique_ptr<Collectives> collectives) {
  if (!collectives->idle(steady_clock::now() + kGrace)) keep_for_good(std::move(collectives));
}

}}  // namespace c10d::v0
