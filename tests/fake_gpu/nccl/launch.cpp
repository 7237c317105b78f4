// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>
#include <cstring>

#include "tests/fake_gpu/nccl/op.h"

// Of the stand-in for the driver.
extern "C" c10d::driver::Result cuCtxPushCurrent_v2(c10d::driver::Context context);
extern "C" c10d::driver::Result cuCtxPopCurrent_v2(c10d::driver::Context* context);

namespace fake_nccl {
namespace {

using fake_gpu::Running;

// The thread as the one that called: its rank in the script, and its context for the legacy stream.
class AsTheCaller {
 public:
  AsTheCaller(const Comm& comm, const Task& task) : before_(fake_gpu::rank()) {
    if (before_ != comm.script_rank) fake_gpu::set_rank(comm.script_rank);
    has_changed_ = before_ != comm.script_rank;
    if (reinterpret_cast<std::uintptr_t>(task.stream) <= 2 &&
        fake_gpu::current_context() != task.context && task.context) {
      has_pushed_ = cuCtxPushCurrent_v2(task.context) == cu::kSuccess;
    }
  }
  ~AsTheCaller() {
    cu::Context popped = nullptr;
    if (has_pushed_) cuCtxPopCurrent_v2(&popped);
    if (has_changed_) fake_gpu::set_rank(before_);
  }
  AsTheCaller(const AsTheCaller&) = delete;
  AsTheCaller& operator=(const AsTheCaller&) = delete;

 private:
  const int before_;
  bool has_changed_ = false, has_pushed_ = false;
};

// Ends a turn when the op is gone, whether it has run or not.
class Turn {
 public:
  explicit Turn(std::shared_ptr<Comm> comm)
      : comm_(std::move(comm)), number_(comm_->turns.next()) {}
  ~Turn() { comm_->turns.end(number_); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  bool wait(const Running& running) const {
    for (unsigned looks = 0; !comm_->turns.is(number_); pause(looks)) {
      if (running.is_over()) return false;
    }
    return true;
  }

 private:
  const std::shared_ptr<Comm> comm_;
  const std::uint64_t number_;
};

void run(Comm& comm, const std::vector<Task>& tasks, Running& running) {
  if (tasks[0].is_p2p()) {
    run_messages(comm, tasks, running);
  } else if (comm.size == 1) {
    run_alone(tasks[0], running);
  } else {
    run_collective(comm, tasks[0], running);
  }
}

Result enqueue(const std::shared_ptr<Comm>& comm, std::vector<Task> tasks) {
  const AsTheCaller as(*comm, tasks[0]);
  fake_gpu::Op op;
  op.name = tasks[0].function;
  op.abort = comm->abort;
  const auto use = [&](const void* at, std::size_t bytes) {
    const auto address = reinterpret_cast<cu::Pointer>(at);
    if (bytes != 0 && fake_gpu::view(at, bytes)) op.ranges.push_back({address, bytes});
  };
  for (const Task& task : tasks) {
    use(task.from, bytes_read(task, comm->rank, comm->size));
    use(task.to, bytes_written(task, comm->rank, comm->size));
  }
  const cu::Stream stream = tasks[0].stream;
  if (fake_gpu::capture_status(stream) == cu::kCaptureNone) {
    const auto turn = std::make_shared<Turn>(comm);
    op.body = [comm, tasks = std::move(tasks), turn](Running& running) {
      if (turn->wait(running)) run(*comm, tasks, running);
    };
  } else {
    op.body = [comm, tasks = std::move(tasks), held = comm->graphs](Running& running) {
      const std::lock_guard lock(comm->replays);
      if (!comm->is_ended) return run(*comm, tasks, running);
      if (comm->abort->raised) return;
      fake_gpu::violation("destroyed communicator",
                          "a graph has launched an op of one that is no more");
    };
  }
  const cu::Result result = fake_gpu::enqueue(stream, std::move(op));
  if (result == cu::kSuccess) return nccl::kSuccess;
  return say(nccl::kUnhandledCudaError, "Cuda failure " + std::to_string(result));
}

// --- The order in which a device launches its communicators' collectives

std::uint64_t next_launch() {
  static std::atomic<std::uint64_t> number{0};
  return ++number;
}
// Number N of a communicator was the M-th launch of its process.
std::uint64_t packed(std::uint64_t of_comm, std::uint64_t launch) { return of_comm << 32 | launch; }
// 0 if it has not been launched, or was long ago.
std::uint64_t launch_of(const Member& member, std::uint64_t of_comm) {
  const std::uint64_t found =
      member.launches[of_comm % kKeptLaunches].load(std::memory_order_acquire);
  return found >> 32 == of_comm ? found & 0xffffffffU : 0;
}

bool is_same_place(const Member& a, const Member& b) {
  return a.pid == b.pid && a.device == b.device && std::strcmp(a.host, b.host) == 0;
}

// Whether some rank has launched this one before the last of another communicator, which this rank
// has launched before.
void judge_order(Comm& comm, std::uint64_t number, std::uint64_t launch) {
  for (const auto& other : living()) {
    if (other.get() == &comm || other->device != comm.device) continue;
    const std::uint64_t its = other->launched;
    if (its == 0 || launch_of(other->board->member(other->rank), its) == launch) continue;
    for (int rank = 0; rank < comm.size; ++rank) {
      for (int as = 0; as < other->size; ++as) {
        const Member& here = comm.board->member(rank);
        const Member& there = other->board->member(as);
        if (rank == comm.rank || !is_same_place(here, there)) continue;
        const std::uint64_t first = launch_of(here, number), second = launch_of(there, its);
        if (first != 0 && second != 0 && first < second) {
          fake_gpu::violation("launch order", "two communicators of one device: rank " +
                                                  std::to_string(comm.rank) +
                                                  " launches them in another order than rank " +
                                                  std::to_string(rank));
        }
      }
    }
  }
}

void note_launch(Comm& comm, std::uint64_t launch) {
  const std::uint64_t number = comm.launched + 1;
  comm.board->member(comm.rank).launches[number % kKeptLaunches].store(packed(number, launch),
                                                                       std::memory_order_release);
  comm.launched = number;
  judge_order(comm, number, launch);
}

// Once for a communicator: whether all have come. In progress until then.
template <class Flag>
Result meet(Comm& comm, int rank, Flag has_come) {
  if (has_come()) return nccl::kSuccess;
  if (!comm.board->is_gone(rank)) return nccl::kInProgress;
  if (has_come()) return nccl::kSuccess;
  return say(nccl::kRemoteError,
             "socketProgress: Connection closed by remote peer rank " + std::to_string(rank));
}

}  // namespace

Result launch(const std::shared_ptr<Comm>& comm, const std::vector<Task>& tasks) {
  Result first = nccl::kSuccess;
  const auto note = [&](Result result) {
    if (first == nccl::kSuccess) first = result;
  };
  const std::uint64_t number = next_launch();
  std::vector<std::vector<Task>> messages;
  for (const Task& task : tasks) {
    if (!task.is_p2p()) {
      if (comm->size > 1) note_launch(*comm, number);
      note(enqueue(comm, {task}));
      continue;
    }
    auto found = messages.begin();
    while (found != messages.end() && found->front().stream != task.stream) ++found;
    if (found == messages.end()) found = messages.insert(found, std::vector<Task>());
    found->push_back(task);
  }
  for (const auto& of_stream : messages) note(enqueue(comm, of_stream));
  return first;
}

Result connect(Comm& comm, const std::vector<Task>& tasks) {
  Result first = nccl::kSuccess;
  const auto note = [&](Result result) {
    if (result > nccl::kSuccess && (first == nccl::kSuccess || first == nccl::kInProgress)) {
      first = result;
    }
  };
  const char* at_once = std::getenv("NCCL_RUNTIME_CONNECT");
  for (const Task& task : tasks) {
    if (task.is_p2p()) {
      if (task.root == comm.rank) continue;
      const bool sends = task.kind == Kind::send;
      Box& box =
          sends ? comm.board->box(comm.rank, task.root) : comm.board->box(task.root, comm.rank);
      (sends ? box.sender_connects : box.receiver_connects).store(1, std::memory_order_release);
      note(meet(comm, task.root,
                [&] { return (sends ? box.receiver_connects : box.sender_connects).load() != 0; }));
    } else if (!comm.is_connected && comm.size > 1 && !(at_once && *at_once == '0')) {
      comm.board->member(comm.rank).connects.store(1, std::memory_order_release);
      Result all = nccl::kSuccess;
      for (int rank = 0; rank < comm.size && all == nccl::kSuccess; ++rank) {
        all = meet(comm, rank, [&] { return comm.board->member(rank).connects.load() != 0; });
      }
      if (all == nccl::kSuccess) comm.is_connected = true;
      note(all);
    }
  }
  return first;
}

}  // namespace fake_nccl
