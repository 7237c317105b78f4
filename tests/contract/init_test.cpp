// SPDX-License-Identifier: BSD-3-Clause
// init.h: how ranks meet, and what each is told when they cannot.
#include "c10d/init.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <latch>
#include <map>
#include <string>
#include <thread>

#include "c10d/env.h"
#include "tests/contract/ranks.h"

namespace c10d::contract {
namespace {

using std::chrono::milliseconds;

bool says(const Failure& failure, const std::string& text) {
  return failure.message.find(text) != std::string::npos;
}

// A port that is free now; another program could take it before the test does.
int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  close(fd);
  return ntohs(address.sin_port);
}

InitOptions by_store(const std::shared_ptr<Store>& store, int rank, int size) {
  return {.backend = "native", .store = store, .rank = rank, .size = size, .timeout = kTimeout};
}

using Environment = std::map<std::string, std::string>;

// Environment variables while it lives, as a launcher would set them.
class Variables {
 public:
  explicit Variables(Environment variables) : variables_(std::move(variables)) {
    for (auto& [name, value] : variables_) {
      const std::string mine = std::exchange(value, env(name).value_or(""));
      setenv(name.c_str(), mine.c_str(), 1);
    }
  }
  ~Variables() {
    for (const auto& [name, before] : variables_)
      before.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), before.c_str(), 1);
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

 private:
  Environment variables_;  // with the values of before
};

// Each rank's URL is `url` with its rank and the size.
void meet_at(const std::string& url, int size) {
  run_threads(size, [&](int rank) {
    try {
      ProcessGroup group = init_process_group(
          {.backend = "native",
           .url = url + "?rank=" + std::to_string(rank) + "&world_size=" + std::to_string(size),
           .timeout = kTimeout});
      EXPECT_EQ(group.rank(), rank);
      EXPECT_EQ(group.size(), size);
      expect_usable(group);
      group.barrier();  // the store's server lives in rank 0
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  });
}

TEST(Init, ByTcp) { meet_at("tcp://127.0.0.1:" + std::to_string(free_port()), 3); }

TEST(Init, ByFile) {
  std::string folder = testing::TempDir() + "c10d-init-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  meet_at("file://" + folder + "/store", 3);
  EXPECT_EQ(rmdir(folder.c_str()), 0) << "the file must be gone with the last of its users";
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

TEST(Init, AnotherWorldSizeIsNamedAndTheRestIsUnharmed) {
  const auto store = make_hash_store(kTimeout);
  std::jthread first([&] {
    ProcessGroup group = init_process_group(by_store(store, 0, 2));
    expect_usable(group);
  });
  store->wait(std::vector<std::string>{"world.1/rank/0"});
  for (int i = 0; i < 2; ++i) {
    const Failure failure = failure_of([&] { init_process_group(by_store(store, 1, 3)); });
    EXPECT_EQ(failure.code, Code::mismatch);
    EXPECT_TRUE(says(failure, "world size 3")) << failure.message;
    EXPECT_TRUE(says(failure, "world size 2")) << failure.message;
    EXPECT_TRUE(says(failure, "rank 0")) << failure.message;
  }
  ProcessGroup second = init_process_group(by_store(store, 1, 2));
  expect_usable(second);
  first.join();
}

TEST(Init, AnotherBackendIsNamedOnBothSides) {
  const auto store = make_hash_store(kTimeout);
  const auto no_backend = [](const BackendContext&) -> std::unique_ptr<Backend> { return nullptr; };
  register_backend("one of two", no_backend);
  register_backend("two of two", no_backend);
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
  const int port = free_port();
  const Failure failure = failure_of([&] {
    init_process_group({.backend = "native",
                        .url = "tcp://127.0.0.1:" + std::to_string(port) + "?rank=1&world_size=2",
                        .timeout = kTimeout,
                        .connect_timeout = milliseconds(300)});
  });
  EXPECT_TRUE(failure.code == Code::unreachable || failure.code == Code::timed_out)
      << failure.message;
  EXPECT_TRUE(says(failure, std::to_string(port))) << failure.message;
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
  std::string folder = testing::TempDir() + "c10d-init-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const Variables place(Environment{{"TMPDIR", folder}});
  for (int round = 0; round < 2; ++round)
    run_threads(2, [&](int rank) {
      ProcessGroup group =
          init_process_group({.backend = "native", .rank = rank, .timeout = kTimeout});
      EXPECT_TRUE(std::filesystem::is_empty(folder));
      expect_usable(group);
    });
  EXPECT_EQ(rmdir(folder.c_str()), 0);
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

}  // namespace
}  // namespace c10d::contract
