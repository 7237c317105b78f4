// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <list>
#include <memory>

#include "c10d/spi/backend.h"
#include "src/backends/common/owned_call.h"
#include "src/backends/mpi/message.h"
#include "src/backends/mpi/schedule.h"
#include "src/base/mutex.h"

namespace c10d { inline namespace v0 {

using FailurePtr = std::shared_ptr<const Failure>;

// When a group fails, its ops that MPI still works on are kept for good: MPI cannot cancel them.
void give_up(std::unique_ptr<Schedule> schedule);
void give_up(std::unique_ptr<Message> message);

// The messages of one group. MPI moves only while it is called: the process's progress thread polls
// those that outlive launch(), and so does every wait().
class Transfers : public std::enable_shared_from_this<Transfers> {
 public:
  explicit Transfers(const BackendContext& context);

  // In this thread: to its end, the deadline, or the failure of the group. Null is success; throws
  // std::runtime_error with MPI's error.
  FailurePtr finish(const Call& call, std::unique_ptr<Message>& message);
  Work finish_later(const Call& call, std::unique_ptr<Message> message);
  // Whether no message is in progress; works on that until the deadline.
  bool finish_all(Deadline deadline);
  // Gives up those in progress. The group goes.
  void give_up_all();

  // Whether the call must end although its work is not done, and how.
  bool must_end(const Call& call, FailurePtr& failure);
  // After an op that MPI has finished: the failure of the group if it broke meanwhile, else null.
  // MPI reads the memory of other ranks, and a rank whose op failed may have changed its memory
  // before the read. A rank gets its error only after the group broke.
  FailurePtr failure_meanwhile();
  FailurePtr library_error(const Call& call, const char* what);
  // Between two polls of a thread that has nothing else to do.
  void pause() const;

 private:
  struct Transfer {
    Transfer(const Call& call, std::unique_ptr<Message> message_)
        : owned(call), message(std::move(message_)) {}
    OwnedCall owned;
    std::unique_ptr<Message> message;
    WorkSource source;
  };

  bool poll();  // true: something moved
  bool step(Transfer& transfer, FailurePtr& failure);
  bool in_use();
  FailurePtr failure_of(const Call& call, const Message& message);

  BackendContext context_;
  const bool oversubscribed_;  // more ranks than CPUs here: a wait yields
  Mutex mutex_;
  std::list<std::unique_ptr<Transfer>> transfers_ C10D_GUARDED_BY(mutex_);
  bool watched_ C10D_GUARDED_BY(mutex_) = false;  // by the progress thread
};

}}  // namespace c10d::v0
