// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fake_gpu/nccl/comm.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

namespace fake_nccl {
namespace {

struct Comms {
  std::mutex mutex;
  std::uintptr_t made = 0;
  std::map<std::uintptr_t, std::shared_ptr<Comm>> living;
};
constexpr std::uintptr_t kFirst = 0x60000000;
Comms& comms() {
  static Comms& all = *new Comms;
  return all;
}

}  // namespace

Comm::Comm(int rank_, int size_, int device_, Settings settings_)
    : device(device_),
      settings(settings_),
      script_rank(fake_gpu::rank()),
      rank(rank_),
      size(size_) {}

bool Comm::join(const nccl::UniqueId& id, int as, int of) {
  const std::lock_guard lock(joining_);
  board = Board::open(id, of);
  if (!board) return false;
  rank = as;
  size = of;
  Member& mine = board->member(rank);
  mine.pid = getpid();
  mine.device = device;
  std::snprintf(mine.host, sizeof mine.host, "%s", host_name().c_str());
  mine.left = left_;
  mine.has_joined.store(1, std::memory_order_release);
  return true;
}

void Comm::leave(Left how) {
  const std::lock_guard lock(joining_);
  left_ = how;
  if (board) board->member(rank).left = how;
}

void Comm::begin(Step step, int polls) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back({std::move(step), settings.is_blocking ? 0 : polls,
                   std::chrono::steady_clock::now() + std::chrono::milliseconds(20)});
}

Result Comm::poll() {
  const std::lock_guard lock(mutex_);
  if (is_ended) jobs_.clear();
  if (!jobs_.empty()) {
    Job& job = jobs_.front();
    if (job.polls > 0 && std::chrono::steady_clock::now() < job.until) {
      --job.polls;
    } else if (const Result result = job.step(); result != nccl::kInProgress) {
      jobs_.pop_front();
      if (result != nccl::kSuccess && settings.is_blocking) return result;
      if (result != nccl::kSuccess) fail(result);
    }
  }
  if (error_ != 0) return static_cast<Result>(error_.load());
  return jobs_.empty() ? nccl::kSuccess : nccl::kInProgress;
}

Result Comm::async_error() {
  const Result now = settings.is_blocking ? static_cast<Result>(error_.load()) : poll();
  return hides_errors_ && now != nccl::kInProgress ? nccl::kSuccess : now;
}

Result Comm::state() {
  const std::lock_guard lock(mutex_);
  if (error_ != 0) return static_cast<Result>(error_.load());
  return jobs_.empty() ? nccl::kSuccess : nccl::kInProgress;
}

Result Comm::ready(bool is_op) {
  const Result now = state();
  if (now != nccl::kInProgress) return now;
  fake_gpu::violation("in progress", "a communicator was used before it was ready");
  say(nccl::kInvalidArgument,
      "Attempt to use communicator before the previous operation returned ncclSuccess");
  return is_op ? refuse(nccl::kInvalidArgument) : nccl::kInvalidArgument;
}

void Comm::drop() {
  const std::lock_guard lock(mutex_);
  jobs_.clear();
}

Result Comm::fail(Result result) {
  int none = 0;
  error_.compare_exchange_strong(none, result);
  return result;
}

Handle add(std::shared_ptr<Comm> comm) {
  Comms& all = comms();
  const std::lock_guard lock(all.mutex);
  if (all.made == 0) {
    fake_gpu::at_exit(
        [](const auto& left) { left("communicator", static_cast<int>(living().size())); });
  }
  const std::uintptr_t number = kFirst + 16 * ++all.made;
  all.living.emplace(number, std::move(comm));
  return reinterpret_cast<Handle>(number);
}

std::shared_ptr<Comm> find(Handle handle, const char* function) {
  Comms& all = comms();
  const std::lock_guard lock(all.mutex);
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  if (const auto found = all.living.find(number); found != all.living.end()) return found->second;
  if (handle) {
    fake_gpu::violation("destroyed communicator",
                        std::string(function) + " was called on a communicator that is no more");
  }
  return nullptr;
}

void remove(Handle handle) {
  Comms& all = comms();
  const std::lock_guard lock(all.mutex);
  all.living.erase(reinterpret_cast<std::uintptr_t>(handle));
}

std::vector<std::shared_ptr<Comm>> living() {
  Comms& all = comms();
  const std::lock_guard lock(all.mutex);
  std::vector<std::shared_ptr<Comm>> copy;
  for (const auto& [number, comm] : all.living) copy.push_back(comm);
  return copy;
}

namespace {
std::atomic<const std::string*> last{nullptr};
}

Result say(Result result, const std::string& text) {
  static std::mutex& mutex = *new std::mutex;
  static auto& all = *new std::set<std::string>;  // whoever has a pointer may keep it
  const std::lock_guard lock(mutex);
  last = &*all.insert(text).first;
  return result;
}
const char* last_error() {
  const std::string* const text = last;
  return text ? text->c_str() : "";
}

bool pause(unsigned& looks) {
  if (++looks % 32 != 0) {
    std::this_thread::yield();
    return false;
  }
  std::this_thread::sleep_for(std::chrono::microseconds(looks < 1000 ? 20 : 300));
  return true;
}

Result settle(const std::vector<std::shared_ptr<Comm>>& comms) {
  Result first = nccl::kSuccess;
  const auto note = [&](Result result) {
    if (first == nccl::kSuccess) first = result;
  };
  std::vector<std::shared_ptr<Comm>> open;
  bool is_in_progress = false;
  for (const auto& comm : comms) {
    if (comm->settings.is_blocking) {
      open.push_back(comm);
    } else if (const Result now = comm->state(); now == nccl::kInProgress) {
      is_in_progress = true;
    } else {
      note(now);
    }
  }
  for (unsigned looks = 0; !open.empty(); pause(looks)) {
    std::erase_if(open, [&](const auto& comm) {
      const Result polled = comm->poll();  // forgets what an abort has ended
      const Result now = comm->is_ended ? nccl::kInternalError : polled;
      if (now == nccl::kInProgress) return false;
      note(now);
      return true;
    });
  }
  return first == nccl::kSuccess && is_in_progress ? nccl::kInProgress : first;
}

void quiesce(Comm& comm) {
  for (unsigned looks = 0; !comm.turns.are_over(); pause(looks)) {
  }
}

void wait_for_graphs(const Comm& comm) {
  for (unsigned looks = 0; comm.size > 1 && comm.graphs.use_count() > 1; pause(looks)) {
  }
}

}  // namespace fake_nccl
