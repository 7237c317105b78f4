// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "c10d/buffer.h"
#include "c10d/spi/backend.h"
#include "src/backends/nccl/nccl.h"
#include "src/base/mutex.h"

namespace c10d { inline namespace v0 { namespace nccl {

// One communicator of NCCL, a blocking one (docs/adr/0015): its calls may wait for
// peers, and another thread ends them by abort(). Every call of NCCL that can wait for ever runs in
// a thread of its own here, so that a deadline holds.
class Communicator {
  struct State;

 public:
  // A use of the communicator; another thread's must end first. abort() does not free it during a
  // call of NCCL or while a group of calls is open, unless that takes so long that it must be ended
  // from outside. After that there is no call but the end of the group.
  class Use {
   public:
    // A group of calls, from before ncclGroupStart until after ncclGroupEnd.
    class InGroup {
     public:
      explicit InGroup(const Use& use) noexcept;
      ~InGroup();
      InGroup(const InGroup&) = delete;
      InGroup& operator=(const InGroup&) = delete;

     private:
      State& state_;
    };
    // One call of NCCL, while it exists.
    class InCall {
     public:
      explicit InCall(State& state) noexcept;
      ~InCall();
      InCall(const InCall&) = delete;
      InCall& operator=(const InCall&) = delete;
      // Null if the communicator ends or has ended.
      Comm comm() const noexcept { return comm_; }
      // For the arguments of the call. Throws DistError if it ends.
      operator Comm() const;

     private:
      State& state_;
      Comm comm_;
    };

    explicit Use(Communicator& communicator) noexcept;
    explicit Use(State& state) noexcept;
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    InCall in_call() const noexcept { return InCall(state_); }
    bool is_ending() const noexcept;

   private:
    State& state_;
    const MutexLock lock_;  // one call at a time: also memory that is freed makes one
  };

  // Collective over the group, whose members meet in its store. Throws DistError: two ranks on one
  // GPU, a peer that did not come until the deadline, the failure of the group, what NCCL says.
  // `scratch` is memory of its ops: it outlives what NCCL does not end.
  Communicator(const BackendContext& context, Buffer<float> scratch, Deadline deadline);
  // Aborts it, unless it has ended. What NCCL does not end stays in its thread, with its memory.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  void* scratch() const noexcept;
  // Ends with the communicator, or never if NCCL does not end it.
  void keep(std::shared_ptr<const void> memory) noexcept;
  // From now on a graph may hold ops of it: NCCL then waits for the end of the graph before it ends
  // the communicator.
  void note_capture() noexcept;
  // Registers memory that all ranks give as a window of all. Collective. No result if NCCL has not
  // come to one when the group broke or at the deadline.
  struct Opened {
    std::optional<Result> result;
    // Closes the window, once and from any thread, unless the end of the communicator has. Waits
    // for an abort, which closes it. Null: there is no window.
    std::function<Result()> close;
  };
  // `data` belongs to `owner`, which ends with the communicator if NCCL does not come back with it.
  Opened open_window(std::shared_ptr<const void> owner, void* data, std::size_t bytes,
                     const Control& control, Deadline deadline);
  // What NCCL says of it now; success once it ends.
  Result async_error() const noexcept;
  // Ends its ops and its calls in other threads, in a thread of its own. Returns at once. Does
  // nothing if it ends already.
  void abort() noexcept;
  // abort(), unless it has ended, and waits until it is over. False if NCCL does not end it.
  bool end_now() noexcept;
  // Whether abort() was called and is through, or has failed so long that it never will be: then
  // the ops are over for the program, and the log says that NCCL holds them.
  bool is_over() noexcept;
  // Waits for the other ranks and for NCCL. Aborts at the deadline, which is seconds away
  // at least, and soon after the group broke. One that waits for a graph is left to its thread
  // after some seconds.
  void destroy(const Control& control, Deadline deadline) noexcept;

 private:
  static bool is_over(State& state) noexcept;
  // Waits until an abort that was begun is over. False if NCCL does not end it.
  static bool await_abort(State& state) noexcept;
  static void close_windows(State& state) noexcept;
  // Whether this is the first to end it.
  bool begin_end() noexcept;
  void start_abort() noexcept;

  const std::shared_ptr<State> state_;
};

}}}  // namespace c10d::v0::nccl
