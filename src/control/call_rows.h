// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "c10d/store.h"
#include "src/base/mutex.h"
#include "src/base/timeouts.h"
#include "src/recorder/flight_recorder.h"
#include "src/recorder/rank_block.h"

namespace c10d { inline namespace v0 {

// How the ranks of a group on several hosts compare calls behind them. Each rank keeps a row in the
// store: the calls that it has announced and that are not compared yet. Rank 0 reads all rows and
// writes up to which call all are equal, which the others read. The ends of messages stand in a
// second row, which the other end reads. A thread of each rank does so while there are such calls:
// a look at the store takes two or three requests of a rank.
class CallRows {
 public:
  struct Options {
    std::shared_ptr<Store> store;
    RankBlock& own;  // its announced calls, and `compared`
    int rank, size;
    // Rank 0: the last call that all have announced, if all behind the given one are equal. Nothing
    // where they are not; then the group is broken.
    std::function<std::optional<std::uint64_t>(std::uint64_t compared)> last_equal;
    std::function<void()> look_for_cause;  // whether another rank broke the group
    std::function<bool()> broken;
    std::function<void(const Failure&)> fail;  // of a row that no rank can have written
  };
  explicit CallRows(Options options);
  ~CallRows() { stop(); }
  CallRows(const CallRows&) = delete;
  CallRows& operator=(const CallRows&) = delete;

  // Before the first announced call. Throws std::system_error.
  void start();
  // The announced calls of this rank end with this one.
  void announced(std::uint64_t sequence) noexcept;
  // Has the thread look soon, if a call is not compared. Allocates nothing. Any thread.
  void want() noexcept;
  // Has the thread write the ends of messages that this rank has called, and read those of `peer`,
  // unless that is this rank. Any thread.
  void want_messages(int peer) noexcept;
  // What was read of them, oldest first: their numbers and signatures.
  void visit_messages(int peer, const std::function<void(const Recorded&)>& visit) const;
  // Write the rows now, so that the others see them however this rank ends.
  void write_row(Duration patience);
  void write_messages(Duration patience);
  // Whether the row of a rank ends before this call; and the others of which it is so.
  bool is_behind(int rank, std::uint64_t sequence) const;
  std::vector<int> behind(std::uint64_t sequence) const;
  // A call of a rank as its row has it; only for last_equal().
  const AnnouncedSlot& slot(int rank, std::uint64_t sequence) const noexcept;
  // The end of the thread.
  void stop() noexcept;

 private:
  void wake() noexcept;
  void run() noexcept;
  void look();
  void read_rows();
  void read_row(int rank, std::string_view bytes);
  void look_at_messages();

  const Options options_;
  const std::vector<std::string> keys_;  // of all rows
  std::vector<AnnouncedSlot> slots_;     // rank 0: of the others
  Mutex row_mutex_;
  std::uint64_t written_ C10D_GUARDED_BY(row_mutex_) = 0;
  std::atomic<std::uint64_t> last_ = 0;  // that this rank has announced
  bool all_have_rows_ = false;           // of the thread, as the next
  std::chrono::steady_clock::time_point next_cause_{};
  std::vector<std::atomic<bool>> wanted_messages_;        // by rank
  std::string own_messages_ C10D_GUARDED_BY(row_mutex_);  // as written
  mutable Mutex messages_mutex_;
  std::vector<std::string> messages_ C10D_GUARDED_BY(messages_mutex_);  // rows, by rank
  std::atomic<int> wanted_ = 0;
  std::atomic<bool> started_ = false, stopped_ = false;
  Mutex thread_mutex_;
  std::thread thread_ C10D_GUARDED_BY(thread_mutex_);
};

}}  // namespace c10d::v0
