// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fake_gpu/nccl/group.h"

#include <algorithm>

namespace fake_nccl {
namespace {

struct Group {
  struct OfComm {
    std::shared_ptr<Comm> comm;
    std::vector<Task> tasks;
  };
  int depth = 0, leaked = 0;
  Result error = nccl::kSuccess;
  std::vector<OfComm> ops;
  std::vector<std::shared_ptr<Comm>> begun, aborted;

  ~Group() {
    if (depth > leaked) {
      fake_gpu::violation("unbalanced group", "a thread ended inside a group");
    }
  }
};
thread_local Group group;

// What the last end of a group takes with it.
Group take() {
  Group taken;
  std::swap(taken.error, group.error);
  taken.ops.swap(group.ops);
  taken.begun.swap(group.begun);
  taken.aborted.swap(group.aborted);
  group.leaked = 0;
  return taken;
}

bool has_lonely_message(const Comm& comm, const std::vector<Task>& tasks) {
  int sends = 0, receives = 0;
  for (const Task& task : tasks) {
    if (!task.is_p2p() || task.root != comm.rank) continue;
    ++(task.kind == Kind::send ? sends : receives);
  }
  return sends != receives;
}

constexpr int kPollsOfOp = 2;

Result run(const Group& all) {
  for (const auto& comm : all.aborted) quiesce(*comm);
  std::vector<std::shared_ptr<Comm>> begun = all.begun;
  for (const auto& [comm, tasks] : all.ops) {
    std::weak_ptr<Comm> weak = comm;
    comm->begin(
        [weak, todo = tasks]() -> Result {
          const std::shared_ptr<Comm> mine = weak.lock();
          if (!mine) return nccl::kInternalError;
          if (has_lonely_message(*mine, todo)) {
            return say(nccl::kInvalidUsage, "Trying to send to self without a matching recv");
          }
          if (const Result result = connect(*mine, todo); result != nccl::kSuccess) return result;
          return launch(mine, todo);
        },
        kPollsOfOp);
    begun.push_back(comm);
  }
  return settle(begun);
}

}  // namespace

Result submit(const std::shared_ptr<Comm>& comm, const Task& task) {
  if (comm->size == 1 && !task.is_p2p()) {  // on the stream before the call returns
    const Result result = launch(comm, {task});
    return result == nccl::kSuccess ? result : group_fails(comm->refuse(result));
  }
  const auto found = std::find_if(group.ops.begin(), group.ops.end(),
                                  [&](const Group::OfComm& ops) { return ops.comm == comm; });
  if (found != group.ops.end()) {
    found->tasks.push_back(task);
  } else {
    group.ops.push_back({comm, {task}});
  }
  return group.depth > 0 ? nccl::kSuccess : run(take());
}

Result submit(const std::shared_ptr<Comm>& comm) {
  group.begun.push_back(comm);
  return group.depth > 0 ? nccl::kSuccess : run(take());
}

void submit_abort(const std::shared_ptr<Comm>& comm) {
  if (group.depth > 0 && kVersion >= 22200) {
    group.aborted.push_back(comm);
  } else {
    quiesce(*comm);
  }
}

void group_start() { ++group.depth; }

Result group_end() {
  if (group.depth == 0) {
    fake_gpu::violation("unbalanced group", "ncclGroupEnd without ncclGroupStart");
    return say(nccl::kInvalidUsage, "ncclGroupEnd: not in a group call.");
  }
  if (--group.depth > 0) return nccl::kSuccess;
  Group all = take();
  if (all.error == nccl::kSuccess) return run(all);
  for (const auto& comm : all.aborted) quiesce(*comm);
  return all.error;
}

Result group_drop(std::size_t& tasks) {
  if (group.depth == 0) return say(nccl::kInvalidUsage, "ncclGroupEnd: not in a group call.");
  tasks = 0;
  if (--group.depth > 0) return nccl::kSuccess;
  const Group all = take();
  for (const auto& ops : all.ops) tasks += ops.tasks.size();
  return all.error;
}

Result group_fails(Result result) {
  if (group.depth > 0 && group.error == nccl::kSuccess) group.error = result;
  return result;
}

void group_leaks() {
  ++group.depth;
  ++group.leaked;
}

}  // namespace fake_nccl
