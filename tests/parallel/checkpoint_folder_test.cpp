// SPDX-License-Identifier: BSD-3-Clause
// Who may write to a checkpoint folder: one job at a time, which the others are told at the start.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <optional>
#include <string>
#include <utility>

#include "c10d/parallel/checkpoint.h"
#include "tests/contract/ranks.h"
#include "tests/parallel/refusals.h"
#include "tests/temporary_directory.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
// The other job is forked from a process that may have threads, and starts some.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
#endif
#endif

namespace c10d::parallel { namespace {

namespace fs = std::filesystem;

// One tensor, whose value is the step.
struct Toy {
  explicit Toy(std::uint64_t step) : weights{static_cast<float>(step)} {}
  Snapshot snapshot() {
    return {
        .step = static_cast<std::uint64_t>(weights[0]),
        .parts = {{{"weights", {1}, DType::f32}, 0, std::as_writable_bytes(std::span(weights))}}};
  }
  std::array<float, 1> weights;
};

void save_step(ProcessGroup& group, const std::string& folder, std::uint64_t step) {
  Toy toy(step);
  save(group, folder, toy.snapshot());
}

// None, when there is no checkpoint.
std::optional<std::uint64_t> loaded_step(ProcessGroup& group, const std::string& folder) {
  Toy toy(0);
  Snapshot snapshot = toy.snapshot();
  if (!load(group, folder, snapshot)) return {};
  EXPECT_EQ(toy.weights[0], static_cast<float>(snapshot.step));
  return snapshot.step;
}

void run(int size, const contract::Body& body) { contract::run_ranks("native", size, body); }

// A process with a saver of `folder`, which stays.
class OtherJob {
 public:
  OtherJob(const std::string& folder, bool has_saved) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      run(1, [&](ProcessGroup& group) {
        Toy toy(1);
        AsyncSaver saver(group, folder);
        if (has_saved) saver.save(toy.snapshot());
        saver.wait();
        EXPECT_EQ(write(ends[1], "s", 1), 1);
        pause();
      });
      _exit(1);
    }
    close(ends[1]);
    char byte = 0;
    EXPECT_EQ(read(ends[0], &byte, 1), 1);
    close(ends[0]);
  }
  ~OtherJob() { kill(); }
  // What an error says of it.
  std::string text() const {
    return ", pid " + std::to_string(pid_) + ") writes to this checkpoint folder";
  }
  void kill() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
};

TEST(CheckpointFolder, OfAnotherJobMayBeReadButNotWrittenUntilThatJobEnds) {
  const TemporaryDirectory directory;
  OtherJob other(directory.path(), true);
  Refusals refusals;
  run(2, [&](ProcessGroup& group) {
    refusals.expect([&] { save_step(group, directory.path(), 2); });
    refusals.expect([&] { AsyncSaver saver(group, directory.path()); });
    EXPECT_EQ(loaded_step(group, directory.path()), 1u);
  });
  refusals.expect_all_say(other.text());
  other.kill();
  run(2, [&](ProcessGroup& group) {
    Toy toy(2);
    AsyncSaver saver(group, directory.path());
    saver.save(toy.snapshot());
    saver.wait();
    save_step(group, directory.path(), 3);  // the same job
    EXPECT_EQ(loaded_step(group, directory.path()), 3u);
  });
  EXPECT_FALSE(fs::exists(directory / "lock"));
}

TEST(CheckpointFolder, TwoJobsInOneAreToldBeforeEitherHasSaved) {
  const TemporaryDirectory directory;
  const std::string folder = directory / "run";  // which the first of them makes
  OtherJob other(folder, false);
  Refusals refusals;
  run(2, [&](ProcessGroup& group) {
    refusals.expect([&] { AsyncSaver saver(group, folder); });
    EXPECT_FALSE(loaded_step(group, folder)) << "who only loads needs no lock";
    contract::expect_usable(group);
  });
  refusals.expect_all_say(other.text());
  other.kill();
  run(2, [&](ProcessGroup& group) { AsyncSaver saver(group, folder); });
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST(CheckpointFolder, ThatCannotBeLockedIsNamed) {
  const TemporaryDirectory directory;
  fs::create_directory(directory / "lock");
  Refusals refusals;
  run(2, [&](ProcessGroup& group) {
    refusals.expect([&] { AsyncSaver saver(group, directory.path()); });
    refusals.expect([&] { save_step(group, directory.path(), 2); });
  });
  refusals.expect_all_say(directory / "lock" + ": open failed: Is a directory");
}

TEST(CheckpointFolder, ThatCannotBeMadeIsNamed) {
  const TemporaryDirectory directory;
  const std::string folder = directory / "no/such/parent";
  Refusals refusals;
  run(2, [&](ProcessGroup& group) {
    refusals.expect([&] { AsyncSaver saver(group, folder); });
    contract::expect_usable(group);
  });
  refusals.expect_all_say(folder + ": mkdir failed: No such file or directory");
}

}}  // namespace c10d::parallel
