// SPDX-License-Identifier: BSD-3-Clause
// init.h: how ranks meet, and what each is told when they cannot.
#include "c10d/init.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <latch>
#include <set>
#include <string>
#include <thread>

#include "c10d/env.h"
#include "c10d/spi/backend.h"
#include "tests/contract/held_port.h"
#include "tests/contract/ranks.h"
#include "tests/contract/variables.h"
#include "tests/temporary_directory.h"

namespace c10d::contract { namespace {

using std::chrono::milliseconds;

bool says(const Failure& failure, const std::string& text) {
  return failure.message.find(text) != std::string::npos;
}

InitOptions by_store(const std::shared_ptr<Store>& store, int rank, int size) {
  return {.backend = "native", .store = store, .rank = rank, .size = size, .timeout = kTimeout};
}

// Names for ranks to disagree about. A name is taken once per process, however often a test runs.
void register_without_backend(const std::vector<std::string>& names) {
  static std::set<std::string> taken;
  for (const std::string& name : names)
    if (taken.insert(name).second)
      register_backend(name,
                       [](const BackendContext&) -> std::unique_ptr<Backend> { return nullptr; });
}

// Each rank's URL is `url` with its rank and the size.
void meet_at(const std::string& url, int size, int worlds = 1) {
  run_threads(size, [&](int rank) {
    try {
      for (int world = 0; world < worlds; ++world) {
        ProcessGroup group = init_process_group(
            {.backend = "native",
             .url = url + "?rank=" + std::to_string(rank) + "&world_size=" + std::to_string(size),
             .timeout = kTimeout});
        EXPECT_EQ(group.rank(), rank);
        EXPECT_EQ(group.size(), size);
        expect_usable(group);
      }
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  });
}

TEST(Init, ByTcp) { meet_at(HeldPort().url(), 3); }

// With the store in rank 0, which ends with each world.
TEST(Init, ByTcpAgainAndAgain) { meet_at(HeldPort().url(), 3, 20); }

TEST(Init, ByTcpARankMayComeWhileTheServerOfTheWorldBeforeIsThere) {
  const HeldPort port;
  std::shared_ptr<Store> before =
      make_tcp_store({.port = port.number(), .server = true, .timeout = kTimeout});
  run_threads(2, [&](int rank) {
    if (rank == 0) {
      before->wait(std::vector<std::string>{"world.1/rank/1"});
      before.reset();
    }
    ProcessGroup group =
        init_process_group({.backend = "native",
                            .url = port.url() + "?rank=" + std::to_string(rank) + "&world_size=2",
                            .timeout = kTimeout});
    expect_usable(group);
  });
}

TEST(Init, ByFile) {
  const TemporaryDirectory folder;
  meet_at("file://" + folder / "store", 3, 5);
  EXPECT_EQ(rmdir(folder.path().c_str()), 0) << "the file must be gone with the last of its users";
}

TEST(Init, ByFileWhoDoesNotBelongTakesNoPlace) {
  const TemporaryDirectory folder;
  const auto join = [&](int rank) {
    return init_process_group({.backend = "native",
                               .url = "file://" + folder / "store?world_size=2",
                               .rank = rank,
                               .timeout = kTimeout});
  };
  std::jthread first([&] { join(0).barrier(); });
  make_file_store(folder / "store", 2, kTimeout)->wait(std::vector<std::string>{"world.1/rank/0"});
  for (const int rank : {-1, 2, 7}) EXPECT_THROW(join(rank), InvalidArgument);
  EXPECT_EQ(code_of([&] { join(0); }), Code::mismatch);
  ProcessGroup second = join(1);
  second.barrier();
  first.join();
  second = ProcessGroup();
  EXPECT_EQ(rmdir(folder.path().c_str()), 0);
}

TEST(Init, ASingleProcessNeedsNothing) {
  ProcessGroup group = init_process_group();
  EXPECT_EQ(group.rank(), 0);
  EXPECT_EQ(group.size(), 1);
  EXPECT_EQ(group.backend(), "native");
  EXPECT_EQ(group.timeout(), kDefaultTimeout);
  expect_usable(group);
}

TEST(Init, WrongOptionsAreInvalidArguments) {
  const auto store = make_hash_store(kTimeout);
  const InitOptions rows[] = {
      {.url = "nonsense"},
      {.url = "udp://127.0.0.1:1?rank=0&world_size=1"},
      {.url = "tcp://127.0.0.1?rank=0&world_size=1"},
      {.url = "tcp://127.0.0.1:0?rank=0&world_size=1"},
      {.url = "tcp://127.0.0.1:70000?rank=0&world_size=1"},
      {.url = "tcp://:29500?rank=0&world_size=1"},
      {.url = "tcp://127.0.0.1:29500?world_size=1"},
      {.url = "tcp://127.0.0.1:29500?rank=0"},
      {.url = "tcp://127.0.0.1:29500?rank=zero&world_size=1"},
      {.url = "tcp://127.0.0.1:29500?rank=0&rank=1&world_size=2"},
      {.url = "tcp://127.0.0.1:29500?rank=0&world_size=1&size=3"},
      {.url = "tcp://127.0.0.1:1?rank=5&world_size=2"},  // nobody serves there
      {.url = "file://relative?rank=0&world_size=1"},
      {.store = store},
      {.store = store, .rank = 0},
      {.store = store, .size = 1},
      {.store = store, .rank = 1, .size = 1},
      {.store = store, .rank = -1, .size = 1},
      {.store = store, .rank = 0, .size = 0},
      {.store = store, .rank = 0, .size = 1, .timeout = Duration(0)},
      {.store = store, .rank = 0, .size = 1, .connect_timeout = Duration(-1)},
      {.store = store, .rank = 0, .size = 1, .name = ""},
      {.store = store, .rank = 0, .size = 1, .name = "a/b"},
  };
  for (const InitOptions& options : rows)
    EXPECT_THROW(init_process_group(options), InvalidArgument)
        << options.url << ", name '" << options.name << "'";
  EXPECT_EQ(store->num_keys(), 0u) << "checked before anything is sent";
}

TEST(Init, ADuplicateRankNamesBothClaimantsAndHarmsNobody) {
  const auto store = make_hash_store(kTimeout);
  std::jthread first([&] {
    ProcessGroup group = init_process_group(by_store(store, 0, 2));
    expect_usable(group);
  });
  store->wait(std::vector<std::string>{"world.1/rank/0"});
  const Failure failure = failure_of([&] { init_process_group(by_store(store, 0, 2)); });
  EXPECT_EQ(failure.code, Code::mismatch);
  EXPECT_EQ(failure.rank, 0);
  const std::string pid = "pid " + std::to_string(getpid());
  const std::size_t one = failure.message.find(pid);
  EXPECT_NE(one, std::string::npos) << failure.message;
  EXPECT_NE(failure.message.find(pid, one + 1), std::string::npos) << failure.message;
  ProcessGroup second = init_process_group(by_store(store, 1, 2));
  expect_usable(second);
  first.join();
}

TEST(Init, OfManyClaimantsOfOneRankOneWins) {
  for (int round = 0; round < 20; ++round) {
    const auto store = make_hash_store(kTimeout);
    std::atomic<int> refused{0};
    std::latch start(4);
    std::latch over(4);
    run_threads(4, [&](int) {
      start.arrive_and_wait();
      ProcessGroup group;
      try {
        group = init_process_group(by_store(store, 0, 1));
      } catch (const DistBackendError& error) {
        EXPECT_EQ(error.code(), Code::mismatch);
        ++refused;
      }
      over.arrive_and_wait();
    });
    ASSERT_EQ(refused, 3);
  }
}

// No rank of this world: its own mistake alone.
TEST(Init, AStrangerOfALargerWorldIsToldAndTheRestIsUnharmed) {
  const auto store = make_hash_store(kTimeout);
  std::jthread first([&] {
    ProcessGroup group = init_process_group(by_store(store, 0, 2));
    expect_usable(group);
  });
  store->wait(std::vector<std::string>{"world.1/rank/0"});
  for (int i = 0; i < 2; ++i) {
    const Failure failure = failure_of([&] { init_process_group(by_store(store, 2, 3)); });
    EXPECT_EQ(failure.code, Code::mismatch);
    EXPECT_EQ(failure.rank, 2);
    EXPECT_TRUE(says(failure, "world size 3")) << failure.message;
    EXPECT_TRUE(says(failure, "world size 2")) << failure.message;
    EXPECT_TRUE(says(failure, "rank 0")) << failure.message;
  }
  ProcessGroup second = init_process_group(by_store(store, 1, 2));
  expect_usable(second);
  first.join();
}

// Who waits for the rank that came with another world size would wait in vain.
TEST(Init, AnotherWorldSizeIsNamedOnEveryRankAndTheNameCanBeUsedAgain) {
  const auto store = make_hash_store(kTimeout);
  for (int round = 1; round <= 2; ++round) {
    const auto check = [&](int rank, int size) {
      const Failure failure = failure_of([&] { init_process_group(by_store(store, rank, size)); });
      EXPECT_EQ(failure.code, Code::mismatch) << failure.message;
      EXPECT_EQ(failure.rank, 1);
      EXPECT_EQ(failure.group, "world");
      EXPECT_TRUE(says(failure, "world size 4 (rank 1, pid ")) << failure.message;
      EXPECT_TRUE(says(failure, "has world size 3 (rank 0, pid ")) << failure.message;
    };
    const std::string world = "world." + std::to_string(round) + "/";
    std::jthread first([&] { check(0, 3); });
    store->wait(std::vector<std::string>{world + "rank/0"});
    check(1, 4);
    check(2, 3);  // comes late
  }
  run_threads(3, [&](int rank) {
    ProcessGroup group = init_process_group(by_store(store, rank, 3));
    expect_usable(group);
  });
}

// With the store in rank 0: it stays until the others have read why.
TEST(Init, ByTcpEveryRankLearnsWhyTheWorldDidNotComeTogether) {
  register_without_backend({"one of three", "two of three"});
  for (const bool other_size : {true, false}) {
    const HeldPort port;
    run_threads(3, [&](int rank) {
      if (rank == 1)  // it fails at once: the others must be there to learn of it
        make_tcp_store({.port = port.number(), .timeout = kTimeout})
            ->wait(std::vector<std::string>{"world.1/rank/0", "world.1/rank/2"});
      const int size = other_size && rank == 1 ? 4 : 3;
      const Failure failure = failure_of([&] {
        init_process_group({.backend = rank == 1 ? "two of three" : "one of three",
                            .url = port.url() + "?rank=" + std::to_string(rank) +
                                   "&world_size=" + std::to_string(size),
                            .timeout = kTimeout});
      });
      EXPECT_EQ(failure.code, Code::mismatch) << "rank " << rank << ": " << failure.message;
      EXPECT_TRUE(says(failure, other_size ? "world size 4" : "two of three")) << failure.message;
    });
  }
}

TEST(Init, AnotherVersionIsNamedAndEndsTheWorld) {
  const auto store = make_hash_store(kTimeout);
  store->set("world.1/rank/1", "0.0.9\n1\n2\nnative\nelsewhere\nid\n77\n");
  for (int rank = 0; rank < 2; ++rank) {  // who comes later learns what the first one found
    const Failure failure = failure_of([&] { init_process_group(by_store(store, rank, 2)); });
    EXPECT_EQ(failure.code, Code::version_mismatch);
    EXPECT_EQ(failure.rank, 1);
    EXPECT_EQ(failure.host, "elsewhere");
    EXPECT_TRUE(says(failure, "has 0.0.9")) << failure.message;
  }
  run_threads(2, [&](int rank) {
    ProcessGroup group = init_process_group(by_store(store, rank, 2));
    expect_usable(group);
  });
}

TEST(Init, ByTcpAWrongTokenIsToldAndTheRestIsUnharmed) {
  const HeldPort port;
  const auto join = [&](int rank, std::string token) {
    return init_process_group(
        {.backend = "native",
         .url = port.url() + "?rank=" + std::to_string(rank) + "&world_size=2",
         .timeout = kTimeout,
         .token = std::move(token)});
  };
  const std::string right(32, 'r');
  std::jthread first([&] {
    ProcessGroup group = join(0, right);
    expect_usable(group);
    group.barrier();
  });
  EXPECT_EQ(code_of([&] { join(1, std::string(32, 'w')); }), Code::not_authenticated);
  EXPECT_EQ(code_of([&] { join(1, ""); }), Code::not_authenticated);
  ProcessGroup second = join(1, right);
  expect_usable(second);
  second.barrier();
}

TEST(Init, AnotherBackendIsNamedOnBothSides) {
  const auto store = make_hash_store(kTimeout);
  register_without_backend({"one of two", "two of two"});
  run_threads(2, [&](int rank) {
    InitOptions options = by_store(store, rank, 2);
    options.backend = rank == 0 ? "one of two" : "two of two";
    const Failure failure = failure_of([&] { init_process_group(options); });
    EXPECT_EQ(failure.code, Code::mismatch);
    EXPECT_TRUE(says(failure, "one of two")) << failure.message;
    EXPECT_TRUE(says(failure, "two of two")) << failure.message;
  });
}

TEST(Init, RanksThatNeverComeAreNamed) {
  const auto store = make_hash_store(kTimeout);
  for (int i = 0; i < 2; ++i) {  // a failed start may be repeated under the same name
    InitOptions options = by_store(store, 1, 4);
    options.connect_timeout = milliseconds(100);
    const Failure failure = failure_of([&] { init_process_group(options); });
    EXPECT_EQ(failure.code, Code::timed_out);
    EXPECT_EQ(failure.rank, 0);
    EXPECT_TRUE(says(failure, "0, 2, 3")) << failure.message;
  }
  run_threads(4, [&](int rank) {
    ProcessGroup group = init_process_group(by_store(store, rank, 4));
    expect_usable(group);
  });
}

TEST(Init, TheSameNameAgainAfterShutdown) {
  const auto store = make_hash_store(kTimeout);
  for (int round = 0; round < 3; ++round)
    run_threads(2, [&](int rank) {
      ProcessGroup group = init_process_group(by_store(store, rank, 2));
      EXPECT_EQ(group.id(), "world");
      expect_usable(group);
    });
}

TEST(Init, GroupsOfOtherNamesShareAStore) {
  const auto store = make_hash_store(kTimeout);
  run_threads(2, [&](int rank) {
    ProcessGroup one = init_process_group(by_store(store, rank, 2));
    InitOptions options = by_store(store, 1 - rank, 2);
    options.name = "other";
    ProcessGroup other = init_process_group(options);
    EXPECT_EQ(other.id(), "other");
    EXPECT_EQ(other.rank(), 1 - rank);
    expect_usable(one);
    expect_usable(other);
  });
}

TEST(Init, AnOccupiedPortIsNamed) {
  const auto server = make_tcp_store({.server = true, .timeout = kTimeout});
  const Failure failure = failure_of([&] {
    init_process_group(
        {.backend = "native",
         .url = "tcp://127.0.0.1:" + std::to_string(server->port()) + "?rank=0&world_size=1",
         .timeout = kTimeout});
  });
  EXPECT_EQ(failure.code, Code::address_in_use);
  EXPECT_TRUE(says(failure, std::to_string(server->port()))) << failure.message;
}

TEST(Init, AMissingServerIsUnreachable) {
  const HeldPort port;
  const Failure failure = failure_of([&] {
    init_process_group({.backend = "native",
                        .url = port.url() + "?rank=1&world_size=2",
                        .timeout = kTimeout,
                        .connect_timeout = milliseconds(300)});
  });
  EXPECT_TRUE(failure.code == Code::unreachable || failure.code == Code::timed_out)
      << failure.message;
  EXPECT_TRUE(says(failure, std::to_string(port.number()))) << failure.message;
}

TEST(Init, AGuessableTokenIsAnInvalidArgument) {
  EXPECT_THROW(make_tcp_store({.server = true, .token = std::string(15, 't')}), InvalidArgument);
  EXPECT_NE(make_tcp_store({.server = true, .token = std::string(16, 't')}), nullptr);
}

TEST(Init, MpiWithoutItsLauncherPrintsTheLineToType) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK"})
    if (env(name)) GTEST_SKIP() << "started by an MPI launcher";
  for (const BackendInfo& info : list_backends())
    if (info.name == "mpi" && !info.available) GTEST_SKIP() << info.reason;
  const auto store = make_hash_store(kTimeout);
  run_threads(2, [&](int rank) {
    InitOptions options = by_store(store, rank, 2);
    options.backend = "mpi";
    const Failure failure = failure_of([&] { init_process_group(options); });
    EXPECT_EQ(failure.code, Code::unsupported);
    EXPECT_TRUE(says(failure, "type `mpirun -n 2 ")) << failure.message;
    EXPECT_TRUE(says(failure, "contract_init")) << failure.message;
  });
}

// A launcher that kills its ranks leaves what has a name.
TEST(Init, RanksOfAnMpiLauncherMeetWithoutAnAddressAndLeaveNoName) {
  const Variables launched(Environment{{"OMPI_COMM_WORLD_RANK", "0"},
                                       {"OMPI_COMM_WORLD_SIZE", "2"},
                                       {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  const TemporaryDirectory folder;
  const Variables place(Environment{{"TMPDIR", folder.path()}});
  for (int round = 0; round < 2; ++round)
    run_threads(2, [&](int rank) {
      ProcessGroup group =
          init_process_group({.backend = "native", .rank = rank, .timeout = kTimeout});
      EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
      expect_usable(group);
    });
  EXPECT_EQ(rmdir(folder.path().c_str()), 0);
}

constexpr const char* kRankOfALauncher = "--rank-of-a-launcher";

int run_rank_of_a_launcher() {
  const LaunchInfo launch = detect_launch();
  const std::string odd = launch.rank == launch.size - 1 ? "gloo" : "native";
  for (int round = 0; round < 5; ++round) {
    const Failure failure =
        failure_of([&] { init_process_group({.backend = odd, .timeout = kTimeout}); });
    if (failure.code != Code::mismatch) return 10;
    ProcessGroup group = init_process_group({.backend = "native", .timeout = kTimeout});
    std::vector<int> sum{1};
    group.all_reduce(sum);
    if (sum[0] != launch.size) return 11;
  }
  return 0;
}

// Ranks leave a world that failed one by one, and those that left come again at once.
TEST(Init, RanksOfAnMpiLauncherMeetAgainAfterAWorldThatFailed) {
  constexpr int kRanks = 3;
  const TemporaryDirectory folder;
  std::vector<pid_t> children;
  for (int rank = 0; rank < kRanks; ++rank) {
    children.push_back(fork());
    ASSERT_GE(children.back(), 0);
    if (children.back() != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const Variables launched(Environment{{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                                         {"OMPI_COMM_WORLD_SIZE", std::to_string(kRanks)},
                                         {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank)},
                                         {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(kRanks)},
                                         {"TMPDIR", folder.path()}});
    execl("/proc/self/exe", "contract_init", kRankOfALauncher, nullptr);
    _exit(127);
  }
  for (const pid_t child : children) {
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(rmdir(folder.path().c_str()), 0);
}

TEST(Init, AStoreOfTheLauncherIsAtAPort) {
  for (const char* wrong : {"file:///tmp/store", "tcp://127.0.0.1:1?rank=0", "nonsense"}) {
    const Variables variables(Environment{{"C10D_STORE", wrong}});
    EXPECT_THROW(
        init_process_group(
            {.backend = "native", .rank = 0, .size = 2, .connect_timeout = milliseconds(100)}),
        InvalidArgument)
        << wrong;
  }
}

TEST(Init, AStrangersTokenIsRefusedAndTheRestIsUnharmed) {
  const std::string right(32, 'r'), wrong(32, 'w');
  const auto server = make_tcp_store({.server = true, .token = right, .timeout = kTimeout});
  const auto join = [&](const std::string& token, std::string job = {}) {
    return make_tcp_store(
        {.port = server->port(), .job = std::move(job), .token = token, .timeout = kTimeout});
  };
  EXPECT_EQ(code_of([&] { join(wrong); }), Code::not_authenticated);
  EXPECT_EQ(code_of([&] { join(right, "another job"); }), Code::wrong_job);
  const std::shared_ptr<Store> client = join(right);
  run_threads(2, [&](int rank) {
    ProcessGroup group = init_process_group(by_store(rank == 0 ? server : client, rank, 2));
    expect_usable(group);
    group.barrier();
  });
}

}}  // namespace c10d::contract

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == c10d::contract::kRankOfALauncher)
    return c10d::contract::run_rank_of_a_launcher();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
