// SPDX-License-Identifier: BSD-3-Clause
// Who may call a group, and when: no group, a group that was shut down, a second thread, a forked
// child.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <numeric>
#include <optional>
#include <thread>

#include "c10d/spi/plan.h"
#include "tests/contract/ranks.h"
#include "tests/temporary_directory.h"

namespace c10d::contract { namespace {

struct Row {
  const char* name;
  std::function<void(ProcessGroup&)> call;
};

const Row kCalls[] = {
    {"all_reduce",
     [](ProcessGroup& group) {
       std::array<float, 1> data{};
       group.all_reduce(data);
     }},
    {"async all_reduce",
     [](ProcessGroup& group) {
       std::array<float, 1> data{};
       group.async().all_reduce(data).wait();
     }},
    {"barrier", [](ProcessGroup& group) { group.barrier(); }},
    {"send",
     [](ProcessGroup& group) {
       std::array<float, 1> data{};
       group.send(data, 0);
     }},
    {"submit", [](ProcessGroup& group) { group.submit(Barrier{}); }},
    {"batch",
     [](ProcessGroup& group) {
       Batch batch = group.batch();
       batch.add(Barrier{});
       batch.submit();
     }},
    {"monitored_barrier", [](ProcessGroup& group) { group.monitored_barrier(); }},
    {"allocate", [](ProcessGroup& group) { group.allocate<float>(1); }},
    {"new_group", [](ProcessGroup& group) { group.new_group({0}); }},
    {"split", [](ProcessGroup& group) { group.split(0); }},
};

void expect_all_throw(ProcessGroup& group, Code code) {
  for (const Row& row : kCalls) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(code_of([&] { row.call(group); }), code);
  }
}

TEST(NoGroup, EveryCallIsAMistakeAndNoDistError) {
  ProcessGroup none;
  EXPECT_FALSE(none);
  for (const Row& row : kCalls) {
    SCOPED_TRACE(row.name);
    EXPECT_THROW(row.call(none), InvalidArgument);
  }
  const std::function<void()> members[] = {[&] { none.rank(); },
                                           [&] { none.size(); },
                                           [&] { none.id(); },
                                           [&] { none.backend(); },
                                           [&] { none.description(); },
                                           [&] { none.plan({}); },
                                           [&] { none.batch(); },
                                           [&] { none.members(); },
                                           [&] { none.store(); },
                                           [&] { none.timeout(); },
                                           [&] { none.sequence(); },
                                           [&] { none.failure(); },
                                           [&] { none.shutdown(); },
                                           [&] { none.set_timeout(std::chrono::seconds(1)); },
                                           [&] { none.supports({.op = OpKind::barrier}); }};
  for (const auto& member : members) EXPECT_THROW(member(), InvalidArgument);
  none.abort();
}

class Lifetime : public OnBackend {};

TEST_P(Lifetime, AMovedFromGroupIsNoGroup) {
  run(2, [](ProcessGroup& group) {
    ProcessGroup here = std::move(group);
    EXPECT_FALSE(group);  // NOLINT(bugprone-use-after-move): what moving leaves is a promise
    EXPECT_THROW(group.barrier(), InvalidArgument);
    expect_usable(here);
    group = std::move(here);
    expect_usable(group);
  });
}

TEST_P(Lifetime, AssignmentEndsTheGroupThatWasThere) {
  run(2, [](ProcessGroup& group) {
    ProcessGroup sub = group.new_group({0, 1});
    sub = ProcessGroup();
    EXPECT_THROW(sub.barrier(), InvalidArgument);
    expect_usable(group);
  });
}

TEST_P(Lifetime, AfterShutdownEveryCallThrowsDestroyed) {
  run(2, [](ProcessGroup& group) {
    expect_usable(group);
    group.shutdown();
    expect_all_throw(group, Code::destroyed);
    group.shutdown();
    group.abort();
    EXPECT_EQ(group.size(), 2);
  });
}

TEST_P(Lifetime, AllocatedMemoryOutlivesTheGroup) {
  run(2, [](ProcessGroup& group) {
    Buffer<std::int32_t> buffer = group.allocate<std::int32_t>(3000);
    std::fill(buffer.begin(), buffer.end(), group.rank());
    group.barrier();
    group = ProcessGroup();
    EXPECT_EQ(std::count(buffer.begin(), buffer.end(), buffer[0]), 3000);
    std::fill(buffer.begin(), buffer.end(), 7);
    EXPECT_EQ(std::accumulate(buffer.begin(), buffer.end(), 0), 21000);
  });
}

TEST_P(Lifetime, ShutdownWaitsForThisRanksPendingOps) {
  run(2, [](ProcessGroup& group) {
    std::vector<std::int32_t> data(1 << 16, 1);
    const Work work = group.async().all_reduce(data);
    group.shutdown();
    EXPECT_TRUE(work.done());
    work.wait();
    EXPECT_EQ(data.front(), 2);
    EXPECT_EQ(data.back(), 2);
  });
}

bool is_open(ProcessGroup& group) {
  try {
    static_cast<void>(group.batch());
  } catch (const DistError&) {
    return false;
  }
  return true;
}

// Rank 1 comes to the op only once rank 0 is inside shutdown().
TEST_P(Lifetime, ShutdownTellsThePeersOnlyWhenTheOpsAreDone) {
  std::promise<ProcessGroup*> leaving;
  run(2, [&](ProcessGroup& group) {
    std::vector<std::int32_t> data(100, 1);
    if (group.rank() == 0) {
      const Work work = group.async().all_reduce(data);
      leaving.set_value(&group);
      group.shutdown(kTimeout);
      work.wait();
    } else {
      ProcessGroup* const other = leaving.get_future().get();
      while (is_open(*other)) std::this_thread::yield();
      group.all_reduce(data);
    }
    EXPECT_EQ(data, std::vector<std::int32_t>(100, 2));
  });
}

// Rank 0 is inside an all_reduce, as its sequence shows, until the second thread has had its
// answer.
TEST_P(Lifetime, ASecondThreadGetsConcurrentUseAndTheGroupStaysIntact) {
  std::promise<void> answered;
  run(2, [&](ProcessGroup& group) {
    if (group.rank() == 1) {
      answered.get_future().wait();
      expect_usable(group);
    } else {
      std::jthread second([&] {
        while (group.sequence() == 0) std::this_thread::yield();
        expect_all_throw(group, Code::concurrent_use);
        EXPECT_EQ(group.failure(), nullptr);
        answered.set_value();
      });
      expect_usable(group);
      second.join();
    }
    expect_usable(group);
    EXPECT_EQ(group.sequence(), 2u);
  });
}

TEST_P(Lifetime, ConstMembersMayBeCalledBesideAnOp) {
  run(2, [](ProcessGroup& group) {
    std::atomic<bool> done{false};
    std::jthread observer([&] {
      while (!done.load()) {
        EXPECT_LE(group.sequence(), 200u);
        EXPECT_EQ(group.failure(), nullptr);
        EXPECT_EQ(group.size(), 2);
        EXPECT_EQ(group.members().size(), 2u);
        EXPECT_TRUE(group.supports({.op = OpKind::barrier}));
        EXPECT_FALSE(group.description().empty());
        EXPECT_NE(group.plan({.bytes = 4096}).options.empty(), host_is_native(group));
        EXPECT_EQ(group.timeout(), Duration(kTimeout));
      }
    });
    for (int i = 0; i < 200; ++i) expect_usable(group);
    done = true;
    observer.join();
  });
}

bool is_forked_child(const std::function<void()>& call) {
  try {
    call();
  } catch (const DistError& error) {
    return error.code() == Code::forked_child;
  }
  return false;
}

// What a forked child may do with its parent's group; its exit status says which step was wrong.
int child_of_fork(ProcessGroup& group) {
  int step = 1;
  for (const Row& row : kCalls) {
    if (!is_forked_child([&] { row.call(group); })) return step;
    ++step;
  }
  try {
    group.failure();
  } catch (const DistError&) {
  }
  group.abort();
  { ProcessGroup dropped = std::move(group); }
  return 0;
}

// Runs `steps` in a forked child: 0, or which of them was wrong.
void expect_ok_in_forked_child(const std::function<int()>& steps) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(100);  // should it hang
    _exit(steps());
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0) << "step of that number";
}

#if defined(__SANITIZE_THREAD__)
#define C10D_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define C10D_THREAD_SANITIZER 1
#endif
#endif

// As when the server of the store is stopped.
TEST(Shutdown, DoesNotWaitForAStoreThatDoesNotAnswer) {
  const TemporaryDirectory folder;
  const std::string path = folder / "store";
  const auto store = make_file_store(path, 0, std::chrono::hours(1));
  ProcessGroup group = init_process_group({.store = store, .rank = 0, .size = 1});
  const int lock = open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  group = ProcessGroup();  // an hour, if it waited for the store
  close(lock);
}

// The signals that a thread of this process blocks; nothing when it has ended.
std::optional<std::uint64_t> blocked_by(const std::filesystem::path& task) {
  std::ifstream status(task / "status");
  for (std::string line; std::getline(status, line);) {
    if (line == "State:\tX (dead)" || line == "State:\tZ (zombie)") break;
    if (line.starts_with("SigBlk:")) return std::stoull(line.substr(7), nullptr, 16);
  }
  return {};
}

// A signal that a program handles must not be handled in a thread that it does not know.
TEST(Signals, AreBlockedInTheLibrarysThreads) {
  run_ranks("native", 2, [](ProcessGroup& group) {
    std::array<std::int32_t, 1> data{1};
    std::promise<void> called;
    Work work = group.async().all_reduce(data);
    work.on_done([&](const Failure*) { called.set_value(); });
    work.wait();
    called.get_future().wait();
  });
  const auto server = make_tcp_store({.server = true});
  std::uint64_t all = 0;
  for (const int signal : {SIGINT, SIGTERM, SIGALRM, SIGUSR1, SIGCHLD})
    all |= std::uint64_t{1} << static_cast<unsigned>(signal - 1);
  int threads = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    if (entry.path().filename() == std::to_string(getpid())) continue;
    const std::optional<std::uint64_t> blocked = blocked_by(entry.path());
    if (!blocked) continue;
    // Threads of tests that were joined may be listed a while yet, and are no fault.
    bool is_fault = (*blocked & all) != all;
    const auto end = std::chrono::steady_clock::now() + kTimeout;
    while (is_fault && blocked_by(entry.path()) && std::chrono::steady_clock::now() < end)
      std::this_thread::yield();
    is_fault = is_fault && blocked_by(entry.path());
    if ((*blocked & all) == all) ++threads;
    EXPECT_FALSE(is_fault) << entry.path() << " blocked " << std::hex << *blocked;
  }
  EXPECT_GE(threads, 2);  // the monitor and the server
}

TEST_P(Lifetime, AForkedChildGetsForkedChildAndTheParentIsUnharmed) {
#ifdef C10D_THREAD_SANITIZER
  GTEST_SKIP() << "ThreadSanitizer does not follow a fork of a process with threads";
#endif
  run(2, [](ProcessGroup& group) {
    expect_usable(group);
    if (group.rank() == 0) {
      expect_ok_in_forked_child([&] { return child_of_fork(group); });
    }
    expect_usable(group);
    EXPECT_EQ(group.failure(), nullptr);
  });
}

// Rank 1 joins in once the child has ended: until then the ops of rank 0 run.
TEST_P(Lifetime, AForkedChildCannotWaitForItsParentsOps) {
#ifdef C10D_THREAD_SANITIZER
  GTEST_SKIP() << "ThreadSanitizer does not follow a fork of a process with threads";
#endif
  Latch forked(1);
  run(2, [&](ProcessGroup& group) {
    std::array<float, 1> message{1};
    std::array<float, 1> sum{1};
    if (group.rank() == 1) {
      forked.wait();
      group.send(message, 0);
      group.all_reduce(sum);
      return;
    }
    const Work received = group.irecv(message, 1);
    const Work summed = group.async().all_reduce(sum);
    expect_ok_in_forked_child([&] {
      const std::function<void()> calls[] = {[&] { received.wait(); }, [&] { summed.wait(); },
                                             [&] { summed.wait(std::chrono::seconds(20)); },
                                             [&] { summed.on_done([](const Failure*) {}); }};
      int step = 1;
      for (const auto& call : calls) {
        if (!is_forked_child(call)) return step;
        ++step;
      }
      return 0;
    });
    forked.count_down();
    received.wait();
    summed.wait();
    EXPECT_EQ(sum[0], 2);
  });
}

// Of a group that is ended at once the monitor has seen nothing.
TEST(Record, IsKeptBeforeTheProgramHearsOfTheFailureAndBeforeTheGroupIsGone) {
  const TemporaryDirectory folder;
  setenv("C10D_RECORD_DIR", folder.path().c_str(), 1);
  const auto records = [&] {
    const auto in_it = std::filesystem::directory_iterator(folder.path());
    return std::distance(begin(in_it), end(in_it));
  };
  const auto alone = [] {
    return init_process_group({.store = make_hash_store(), .rank = 0, .size = 1});
  };
  {
    ProcessGroup group = alone();
    group.abort();
    EXPECT_EQ(code_of([&] { group.monitored_barrier(); }), Code::revoked);
    EXPECT_EQ(records(), 1);
    EXPECT_EQ(code_of([&] { group.allocate<float>(1); }), Code::revoked);
  }
  EXPECT_EQ(records(), 1);
  {
    ProcessGroup group = alone();
    group.abort();
  }
  EXPECT_EQ(records(), 2);
  unsetenv("C10D_RECORD_DIR");
}

C10D_ON_EACH_BACKEND(Lifetime);

}}  // namespace c10d::contract
