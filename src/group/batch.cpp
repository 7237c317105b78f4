// SPDX-License-Identifier: BSD-3-Clause
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "c10d/process_group.h"
#include "c10d/spi/work_source.h"
#include "src/base/failure_text.h"
#include "src/base/mutex.h"
#include "src/group/group_state.h"
#include "src/group/work_shared.h"

namespace c10d { inline namespace v0 {

Batch::Batch(std::shared_ptr<detail::GroupState> state, CallOptions options)
    : state_(std::move(state)), options_(options) {}

// The batch tells nobody how long a message was.
void Batch::add(Op op) {
  if (auto* recv = std::get_if<Recv>(&op)) recv->exact = true;
  ops_.push_back(op);
}

namespace {

// What is launched meanwhile starts together.
class BatchScope {
 public:
  explicit BatchScope(Backend& backend) : backend_(backend) { backend_.begin_batch(); }
  ~BatchScope() { backend_.end_batch(); }
  BatchScope(const BatchScope&) = delete;
  BatchScope& operator=(const BatchScope&) = delete;

 private:
  Backend& backend_;
};

}  // namespace

void Batch::submit() { submit_async().wait(); }

Work Batch::submit_async() {
  require_state(state_).check_alive();
  const Exclusive exclusive(*state_);
  for (const Op& op : ops_) state_->check(op, options_);
  // Terminal when all ops are: until then some of them own their buffers.
  struct Outcome {
    explicit Outcome(std::size_t count) : left(count) {}

    void one_done(const Failure* failure) {
      std::optional<Failure> cause;
      {
        MutexLock lock(mutex);
        if (failure != nullptr && !first) first = *failure;
        if (--left != 0) return;
        cause = std::move(first);
      }
      cause ? whole.fail(std::move(*cause)) : whole.complete();
    }

    WorkSource whole;
    Mutex mutex;
    std::size_t left C10D_GUARDED_BY(mutex);
    std::optional<Failure> first C10D_GUARDED_BY(mutex);
  };
  const auto outcome = std::make_shared<Outcome>(ops_.size() + 1);
  const std::vector<Op> ops = std::exchange(ops_, {});
  Work work = outcome->whole.work();
  detail::WorkShared::set_watch(work, state_->watch);
  std::size_t followed = 0;
  std::optional<Failure> failed;
  try {
    const BatchScope scope(*state_->backend);
    for (const Op& op : ops) {
      std::function<void(const Failure*)> follow = [outcome](const Failure* failure) {
        outcome->one_done(failure);
      };
      detail::WorkShared::follow(
          state_->submit_inside(op, options_, detail::GroupState::Mode::async), std::move(follow));
      ++followed;
    }
  } catch (const std::exception& error) {
    failed = failure_from_exception(error, "submit");
  }
  for (; followed < ops.size(); ++followed) outcome->one_done(&*failed);
  outcome->one_done(nullptr);
  return work;
}

}}  // namespace c10d::v0
