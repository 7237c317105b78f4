// SPDX-License-Identifier: BSD-3-Clause
// Communicators made from another: split and shrink.
#include <algorithm>
#include <csignal>

#include "tests/fake_gpu/nccl/call.h"

namespace fake_nccl { namespace {

// What ranks of a communicator do together to make one or more of them: by color, in the order of
// keys.
class Split {
 public:
  Split(std::shared_ptr<Comm> parent, std::shared_ptr<Comm> child, std::vector<int> ranks,
        std::uint64_t number)
      : parent_(std::move(parent)),
        child_(std::move(child)),
        ranks_(std::move(ranks)),
        number_(number) {}

  Result step() {
    const std::lock_guard lock(mutex_);
    if (result_ == nccl::kInProgress) result_ = next();
    if (result_ == nccl::kInProgress && has_lost_one()) result_ = nccl::kRemoteError;
    return result_;
  }

 private:
  Member& member(int rank) const { return parent_->board->member(rank); }
  bool have_all(std::atomic<std::uint64_t> Member::*said) const {
    for (const int rank : ranks_) {
      if ((member(rank).*said).load(std::memory_order_acquire) < number_) return false;
    }
    return true;
  }
  Result next() {
    if (!has_joined_) {
      if (!have_all(&Member::asked)) return nccl::kInProgress;
      if (const Result result = child_ ? join_child() : nccl::kSuccess; result != nccl::kSuccess) {
        return result;
      }
      has_joined_ = true;
      member(parent_->rank).read.store(number_, std::memory_order_release);
    }
    if (child_ && !child_->board->have_all_joined()) return nccl::kInProgress;
    return have_all(&Member::read) ? nccl::kSuccess : nccl::kInProgress;
  }
  Result join_child() const {
    Member& mine = member(parent_->rank);
    std::vector<std::pair<int, int>> same;
    for (const int other : ranks_) {
      if (member(other).color == mine.color) same.push_back({member(other).key, other});
    }
    std::sort(same.begin(), same.end());
    Member& first = member(same[0].second);
    if (&first == &mine && mine.named < number_) {
      if (!Board::make(mine.child)) return nccl::kSystemError;
      mine.named.store(number_, std::memory_order_release);
    }
    if (first.named.load(std::memory_order_acquire) < number_) return nccl::kInProgress;
    const auto me = std::find(same.begin(), same.end(), std::pair(mine.key, parent_->rank));
    return child_->join(first.child, static_cast<int>(me - same.begin()),
                        static_cast<int>(same.size()))
               ? nccl::kSuccess
               : nccl::kSystemError;
  }
  bool has_lost_one() const {
    for (const int rank : ranks_) {
      if (rank == parent_->rank || !parent_->board->is_gone_for_good(rank)) continue;
      if (member(rank).read.load(std::memory_order_acquire) < number_) return true;
    }
    return false;
  }

  const std::shared_ptr<Comm> parent_, child_;  // no child for a rank that is left out
  const std::vector<int> ranks_;                // those of the parent that take part
  const std::uint64_t number_;
  std::mutex mutex_;
  Result result_ = nccl::kInProgress;
  bool has_joined_ = false;
};

// What both ask first. Success, and the child's settings.
Result may_make(Comm& parent, const char* function, const nccl::Comm* made,
                const nccl::Config* config, Settings& settings) {
  judge_management(function);
  if (const Result not_ready = parent.ready(false); not_ready != nccl::kSuccess) return not_ready;
  if (!made) {
    return say(nccl::kInvalidArgument, std::string(function) + " : newcomm argument is NULL");
  }
  settings = parent.settings;
  return read_config(config, settings);
}

std::vector<int> all_but(const Comm& comm, const int* excluded, int count) {
  std::vector<int> ranks;
  for (int rank = 0; rank < comm.size; ++rank) {
    if (std::find(excluded, excluded + count, rank) == excluded + count) ranks.push_back(rank);
  }
  return ranks;
}

Result split(const std::shared_ptr<Comm>& parent, std::vector<int> ranks, int color, int key,
             nccl::Comm* made, const Settings& settings) {
  Member& mine = parent->board->member(parent->rank);
  const std::uint64_t number = ++parent->children;
  mine.color = color;
  mine.key = key;
  mine.asked.store(number, std::memory_order_release);
  std::shared_ptr<Comm> child;
  if (color != nccl::kNoColor) child = std::make_shared<Comm>(-1, 0, parent->device, settings);
  const auto split = std::make_shared<Split>(parent, child, std::move(ranks), number);
  parent->begin(
      [split, child] {
        const Result result = split->step();
        // Nobody asks a blocking one: it is ready when its parent is.
        if (result != nccl::kInProgress && child && child->settings.is_blocking) child->drop();
        return result;
      },
      kPollsOfStart);
  *made = nullptr;
  if (child) {
    child->begin([split] { return split->step(); }, kPollsOfStart);
    *made = add(child);
  }
  const Result result = submit(parent);
  return result == nccl::kInProgress ? nccl::kSuccess : result;
}

}}  // namespace fake_nccl

using namespace fake_nccl;  // NOLINT: the file has nothing else

FAKE_NCCL_API Result ncclCommSplit(nccl::Comm handle, int color, int key, nccl::Comm* made,
                                   nccl::Config* config) {
  const auto parent = find(handle, __func__);
  FAKE_NCCL_ENTER(parent.get());
  if (!parent) return no_comm(__func__);
  Settings settings;
  const Result may = may_make(*parent, __func__, made, config, settings);
  if (may != nccl::kSuccess) return may;
  return split(parent, all_but(*parent, nullptr, 0), color, key, made, settings);
}

FAKE_NCCL_API Result ncclCommShrink(nccl::Comm handle, int* excluded, int count, nccl::Comm* made,
                                    nccl::Config* config, int flags) {
  const auto parent = find(handle, __func__);
  FAKE_NCCL_ENTER(parent.get());
  if (!parent) raise(SIGSEGV);  // as NCCL, which follows the null pointer
  Settings settings;
  const Result may = may_make(*parent, __func__, made, config, settings);
  if (may != nccl::kSuccess) return may;
  if (!excluded || count < 1) return nccl::kInvalidArgument;
  for (int i = 0; i < count; ++i) {
    if (excluded[i] < 0 || excluded[i] >= parent->size || excluded[i] == parent->rank) {
      return nccl::kInvalidArgument;
    }
  }
  if (flags == nccl::kShrinkAbort) {
    parent->abort->raised = true;
    quiesce(*parent);
  }
  return split(parent, all_but(*parent, excluded, count), 0, parent->rank, made, settings);
}
