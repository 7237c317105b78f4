// SPDX-License-Identifier: BSD-3-Clause
// Communicators: their state, what they still have to do, and the words of the last error.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <set>

#include "tests/fake_gpu/gpu.h"
#include "tests/fake_gpu/nccl/board.h"
#include "tests/fake_gpu/nccl/numbers.h"

namespace fake_nccl {

namespace cu = c10d::driver;
using fake_gpu::AbortFlag;
using nccl::Result;

// As ncclGetVersion says it: one library for each.
extern const int kVersion;

// The part of a config that changes what the stand-in does.
struct Settings {
  bool is_blocking = true;
  bool has_unknown_net = false;
};

// A reduction with a factor of this rank.
struct PreMulSum {
  nccl::DataType dtype;
  Factor factor;
  const void* at;  // where the GPU finds it; null if it is `factor`
};

// Ops of a communicator run one after the other, on whatever streams they are.
class Turns {
 public:
  std::uint64_t next() {
    const std::lock_guard lock(mutex_);
    return taken_++;
  }
  bool is(std::uint64_t turn) {
    const std::lock_guard lock(mutex_);
    return first_ == turn;
  }
  void end(std::uint64_t turn) {
    const std::lock_guard lock(mutex_);
    ended_.insert(turn);
    while (ended_.erase(first_) != 0) ++first_;
  }
  bool are_over() {
    const std::lock_guard lock(mutex_);
    return first_ == taken_;
  }

 private:
  std::mutex mutex_;
  std::uint64_t taken_ = 0, first_ = 0;
  std::set<std::uint64_t> ended_;
};

class Comm {
 public:
  // One step of what has been begun: in progress, success, or what went wrong.
  using Step = std::function<Result()>;

  Comm(int rank, int size, int device, Settings settings);
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  const int device;
  const Settings settings;
  const int script_rank;  // as the faults of its ops count
  int rank, size;         // of a child: once its parent is settled
  std::shared_ptr<Board> board;
  const std::shared_ptr<AbortFlag> abort = std::make_shared<AbortFlag>();
  Turns turns;
  std::mutex replays;                                            // ops of graphs know no turn
  const std::shared_ptr<void> graphs = std::make_shared<int>();  // each of their ops has a copy

  // Only the thread whose turn it is.
  std::uint64_t pieces = 0;

  // Says to the others who is there, and that it is no longer: also if it left before it came.
  bool join(const nccl::UniqueId& id, int as, int of);
  void leave(Left how);

  // --- Calls; one thread at a time
  std::atomic<bool> is_connected{false}, is_finalized{false}, is_revoked{false}, is_ended{false};
  std::uint64_t children = 0, windows = 0;
  std::map<int, PreMulSum> reductions;
  std::map<const void*, std::size_t> registered;
  std::mutex opening;
  std::map<nccl::Window, const void*> open;  // windows, with the memory in them
  std::atomic<std::uint64_t> launched{0};    // collectives

  // What must happen before it is ready. If it is nonblocking, at first `polls` questions, or those
  // of 20 ms, are in vain.
  void begin(Step step, int polls);
  // Gets on with what was begun. In progress, success, or what went wrong; of a nonblocking
  // communicator that stays.
  Result poll();
  // What ncclCommGetAsyncError says; the calls of a blocking communicator get on by themselves.
  Result async_error();
  // The same without getting on.
  Result state();
  // For all calls that need it ready: success, or what the call must return.
  Result ready(bool is_op);
  // The first error stays. Returns it.
  Result fail(Result result);
  // A wrong argument: stays with the communicator if it is nonblocking. Returns it.
  Result refuse(Result result) { return settings.is_blocking ? result : fail(result); }
  void hide_errors() { hides_errors_ = true; }
  // What was begun is given up.
  void drop();

 private:
  struct Job {
    Step step;
    int polls;
    std::chrono::steady_clock::time_point until;
  };
  std::mutex joining_;
  Left left_ = kIsThere;
  std::mutex mutex_;
  std::deque<Job> jobs_;
  std::atomic<int> error_{0};
  std::atomic<bool> hides_errors_{false};
};

// --- All of this process

using Handle = nccl::Comm;
Handle add(std::shared_ptr<Comm> comm);
// Null if it is none; one that was destroyed is a violation.
std::shared_ptr<Comm> find(Handle handle, const char* function);
void remove(Handle handle);
std::vector<std::shared_ptr<Comm>> living();

// The last error of the process, as text. Returns the code.
Result say(Result result, const std::string& text);
const char* last_error();

// Between two looks at what others do. `looks` counts them; true now and then.
bool pause(unsigned& looks);
// Polls until all are settled; the first error. Those that do not block are only asked once.
Result settle(const std::vector<std::shared_ptr<Comm>>& comms);
// Waits for the ops on streams.
void quiesce(Comm& comm);
// Until no graph has an op of it. The op of a rank alone is a copy, which needs no communicator.
void wait_for_graphs(const Comm& comm);

}  // namespace fake_nccl
