// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "c10d/spi/control.h"
#include "c10d/spi/work_source.h"
#include "src/backends/nccl/communicator.h"
#include "src/base/mutex.h"
#include "src/device/driver.h"

namespace c10d { inline namespace v0 { namespace nccl {

class Watched;

// One op on the GPU, from before it is enqueued until it is over. The launching thread fills it;
// from Watcher::add() on only `stage` is that thread's.
struct PendingOp : std::enable_shared_from_this<PendingOp> {
  enum class Stage : std::uint8_t {
    launching,  // the call of NCCL has not returned
    enqueued,   // the event is behind it, or a graph has it
    given_up,   // the call failed, and its caller knows
  };
  PendingOp* next = nullptr;  // of the same list: the free ones, the new ones, the watched ones
  Watched* group = nullptr;
  driver::Event event = nullptr;
  std::atomic<Stage> stage{Stage::launching};
  OpKind kind{};
  std::uint64_t sequence = 0, record = 0;
  Deadline deadline{};
  bool is_captured = false;          // by a graph: nothing runs, and its event is not recorded
  std::optional<WorkSource> source;  // of an async op
  Received received;                 // what it then gets
  bool is_late = false;              // its deadline has passed, and that was reported
  bool is_agreed = false;            // the ranks are known to have made calls that fit
  // Who orders a stream behind an async op does so while the event is still that op's.
  Mutex order_mutex;
  std::uint64_t generation C10D_GUARDED_BY(order_mutex) = 0;
};

// What the watcher sees of one group.
class Watched {
 public:
  Watched(const BackendContext& context, Communicator& communicator);
  // After all ops are over.
  ~Watched();
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  // A free op, with its event. By the one thread that launches. Throws what the driver says.
  PendingOp* take();
  // Whether all ops are over.
  bool is_idle() const noexcept { return in_watch_.load(std::memory_order_acquire) == 0; }

 private:
  friend class Watcher;
  void give_back(PendingOp* op) noexcept;

  const BackendContext& context_;
  Communicator& communicator_;
  std::atomic<PendingOp*> returned_{nullptr};  // by the watcher
  PendingOp* free_ = nullptr;                  // for the launching thread
  std::vector<std::shared_ptr<PendingOp>> all_;
  std::atomic<bool> has_failed_{false};  // it was reported
  std::atomic<int> in_watch_{0};         // ops and reports that still point here
};

// The one watcher of the process. Its thread asks the driver and NCCL which ops are over, and does
// nothing else: it sleeps when there is none, and hands failures to a second thread, since telling
// them takes time and memory.
class Watcher {
 public:
  Watcher();

  // From now on the op is watched. Does not allocate; wakes the thread if it sleeps.
  void add(PendingOp* op) noexcept;

 private:
  void watch();
  struct Reports;
  static void report(Reports& reports);
  // Whether the op is over, and was given back.
  bool settle(PendingOp& op);
  // Whether the ranks of the op are known to have made the same call, or one that fits.
  static bool is_agreed(PendingOp& op);
  void end(PendingOp& op, const Failure* failure) noexcept;
  void hand_over(PendingOp& op, driver::Result driver_error, Result nccl_error);

  struct Report {
    Watched* group;
    OpKind kind;
    std::uint64_t sequence;
    driver::Result driver_error;  // success: none
    Result nccl_error;            // success: none; neither: the deadline has passed
    bool is_captured;
  };

  std::atomic<PendingOp*> added_{nullptr};
  std::atomic<std::uint32_t> rings_{0};
  std::atomic<bool> sleeps_{false};
  PendingOp* watched_ = nullptr;  // of the watching thread
  bool naps_ = false;             // since its last look it has slept
  Reports* const reports_;
};

}}}  // namespace c10d::v0::nccl
