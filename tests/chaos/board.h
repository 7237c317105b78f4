// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "tests/chaos/plan.h"

namespace c10d::chaos {

// What the driver makes a rank do wrong, to see that it is found.
enum class Plant : std::uint32_t {
  none,
  wrong_result,
  wrong_name,
  silent,
  hang,
  crash,
  leak,
  file,
  orphan
};
inline constexpr int kPlantCount = static_cast<int>(Plant::orphan) + 1;
std::string_view to_string(Plant plant) noexcept;

enum class StepEnd : std::uint32_t { open, ok, failed, left_out };

// What one rank did in one step. Times are of the steady clock, 0: not yet.
struct StepLog {
  std::atomic<std::int64_t> begun{0}, ended{0};
  std::atomic<StepEnd> end{StepEnd::open};
};

// A failure as a rank was told it, with the rank of the world that it names.
struct Told {
  std::int32_t step = -1;   // of the call that failed; -1: init_process_group
  std::int32_t group = -1;  // of that call
  bool forming = false;     // while a group came together
  std::int32_t code = -1;   // Code, or -1: no DistError
  std::int32_t named = -1;  // -1: nobody; -2: rank and pid contradict each other
  std::int64_t time = 0;
  char text[600] = {};
};

// Why a group is broken on one rank: its failure().
struct Broken {
  std::int32_t code = -1;
  std::int32_t named = -1;
};

struct Held {
  std::int32_t descriptors = 0, threads = 0, mappings = 0;
};

enum class RankState : std::uint32_t { away, idle, running, settled, done };

struct RankBoard {
  std::atomic<RankState> state{RankState::away};
  std::atomic<std::int32_t> pid{0};
  std::atomic<std::int64_t> deviated{0};  // when
  std::atomic<std::int64_t> aborted{0};   // when it aborted its other groups
  std::atomic<bool> has_failure{false};
  Told told;
  StepLog steps[kMaxSteps];
  Broken broken[kMaxGroups];
  Held before, after;
  char wrong[400] = {};     // the first wrong result or broken rule
  char recovery[400] = {};  // why it could not go on; "ok"
};

// Memory that the driver and the ranks of one case share, so that what a rank did is known whatever
// became of it.
struct Board {
  // What the driver asks for: odd: run the case of `seed`; even: end it, and get ready for the
  // next.
  std::atomic<std::uint32_t> phase{0};
  std::atomic<bool> over{false};  // no case comes after this one
  std::atomic<std::uint64_t> seed{0};
  std::atomic<std::uint32_t> round{0};
  std::atomic<std::uint32_t> port{0};  // of the store's process
  std::atomic<Plant> plant{Plant::none};
  std::atomic<std::uint32_t> news{0};  // counts changes of the ranks' states
  RankBoard ranks[kMaxRanks];
};

std::int64_t steady_now() noexcept;
// Sleeps until the word is no longer `value`, at most for that long. Across processes.
void wait_while(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                std::chrono::milliseconds most) noexcept;
void wake(const std::atomic<std::uint32_t>& word) noexcept;

// The board in a file; made where it is not there.
class BoardFile {
 public:
  explicit BoardFile(const std::string& path, bool create);
  ~BoardFile();
  BoardFile(const BoardFile&) = delete;
  BoardFile& operator=(const BoardFile&) = delete;
  Board& operator*() const { return *board_; }
  Board* operator->() const { return board_; }

 private:
  Board* board_ = nullptr;
};

// Copies as much as fits.
void write_text(char* to, std::size_t size, std::string_view text);
template <std::size_t size>
void write_text(char (&to)[size], std::string_view text) {
  write_text(to, size, text);
}

}  // namespace c10d::chaos
