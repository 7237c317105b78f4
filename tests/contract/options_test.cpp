// SPDX-License-Identifier: BSD-3-Clause
// init.h: what holds where an option is left out, and what wins where two say it.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <thread>

#include "tests/contract/held_port.h"
#include "tests/contract/ranks.h"
#include "tests/contract/variables.h"
#include "tests/temporary_directory.h"

namespace c10d::contract { namespace {

using std::chrono::seconds;

ProcessGroup alone(InitOptions options) {
  options.store = make_hash_store(kTimeout);
  options.rank = 0;
  options.size = 1;
  return init_process_group(std::move(options));
}

TEST(Options, RankAndSizeWinOverUrlAndEnvironment) {
  const TemporaryDirectory folder;
  {
    ProcessGroup group =
        init_process_group({.backend = "native",
                            .url = "file://" + folder / "store?rank=3&world_size=7",
                            .rank = 0,
                            .size = 1,
                            .timeout = kTimeout});
    EXPECT_EQ(group.rank(), 0);
    EXPECT_EQ(group.size(), 1);
  }
  EXPECT_EQ(rmdir(folder.path().c_str()), 0);
  const Variables launched(Environment{{"C10D_RANK", "3"},
                                       {"C10D_WORLD_SIZE", "7"},
                                       {"C10D_LOCAL_RANK", "3"},
                                       {"C10D_LOCAL_WORLD_SIZE", "7"}});
  ProcessGroup group =
      init_process_group({.backend = "native", .rank = 0, .size = 1, .timeout = kTimeout});
  EXPECT_EQ(group.rank(), 0);
  EXPECT_EQ(group.size(), 1);
}

TEST(Options, TheTimeoutIsThatOfTheEnvironmentUnlessGiven) {
  EXPECT_EQ(alone({.backend = "native"}).timeout(), kDefaultTimeout);
  const Variables variables(Environment{{"C10D_TIMEOUT", "70"}});
  EXPECT_EQ(alone({.backend = "native"}).timeout(), Duration(seconds(70)));
  EXPECT_EQ(alone({.backend = "native", .timeout = seconds(60)}).timeout(), Duration(seconds(60)));
}

// The default of five minutes would end the test, not the call.
TEST(Options, RanksAreWaitedForAsLongAsForOps) {
  const auto start = std::chrono::steady_clock::now();
  const Failure failure = failure_of([] {
    init_process_group({.backend = "native",
                        .store = make_hash_store(std::chrono::hours(1)),
                        .rank = 1,
                        .size = 2,
                        .timeout = std::chrono::milliseconds(50)});
  });
  EXPECT_EQ(failure.code, Code::timed_out);
  EXPECT_EQ(failure.rank, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, kDefaultTimeout / 2);
}

TEST(Options, TheBackendIsThatOfTheEnvironmentUnlessGiven) {
  EXPECT_EQ(alone({}).backend(), "native");
  const Variables variables(Environment{{"C10D_BACKEND", "none of that name"}});
  EXPECT_EQ(code_of([] { alone({}); }), Code::unsupported);
  EXPECT_EQ(alone({.backend = "native"}).backend(), "native");
}

// MASTER_ADDR and MASTER_PORT are not even read.
TEST(Options, TheStoreOfTheLauncherComesFirst) {
  const auto server = make_tcp_store({.server = true, .timeout = kTimeout});
  const Variables variables(
      Environment{{"C10D_STORE", "tcp://127.0.0.1:" + std::to_string(server->port())},
                  {"MASTER_ADDR", "127.0.0.1"},
                  {"MASTER_PORT", "no number"}});
  run_threads(2, [&](int rank) {
    try {
      ProcessGroup group =
          init_process_group({.backend = "native", .rank = rank, .size = 2, .timeout = kTimeout});
      expect_usable(group);
      EXPECT_EQ(group.id(), "world");
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  });
}

// What rank 1 hears when it is given `token` and rank 0 takes its own from the environment; nothing
// when they meet.
std::optional<Code> told_with(const std::string& token) {
  const HeldPort port;
  const auto join = [&](int rank, const std::string& own) {
    ProcessGroup group =
        init_process_group({.backend = "native",
                            .url = port.url() + "?rank=" + std::to_string(rank) + "&world_size=2",
                            .timeout = kTimeout,
                            .token = own});
    expect_usable(group);
  };
  const std::jthread first([&] {
    try {
      join(0, "");
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  });
  try {
    join(1, token);
  } catch (const DistError& error) {
    join(1, "");
    return error.code();
  }
  return {};
}

TEST(Options, TheTokenIsThatOfTheDescriptorThenOfTheFile) {
  const std::string in_memory(32, 'm'), in_file(32, 'f');
  const int memory = memfd_create("c10d-options", MFD_CLOEXEC);
  ASSERT_EQ(write(memory, in_memory.data(), in_memory.size()), 32);
  std::string path = testing::TempDir() + "c10d-options-XXXXXX";
  const int file = mkstemp(path.data());  // mode 0600
  ASSERT_EQ(write(file, in_file.data(), in_file.size()), 32);
  {
    const Variables variables(Environment{{"C10D_TOKEN_FILE", path}});
    EXPECT_EQ(told_with(in_file), std::nullopt);
    EXPECT_EQ(told_with(in_memory), Code::not_authenticated);
    const Variables too(Environment{{"C10D_TOKEN_FD", std::to_string(memory)}});
    EXPECT_EQ(told_with(in_memory), std::nullopt);
    EXPECT_EQ(told_with(in_file), Code::not_authenticated);
  }
  close(memory);
  close(file);
  unlink(path.c_str());
}

// An address of the range for documentation: nobody is there, and nobody is asked.
TEST(Options, WithoutATokenRanksMeetOnLoopbackOnly) {
  for (const int rank : {0, 1}) try {
      init_process_group({.backend = "native",
                          .url = "tcp://192.0.2.1:29500?world_size=2",
                          .rank = rank,
                          .timeout = kTimeout});
      ADD_FAILURE() << "was accepted";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find("token"), std::string::npos) << error.what();
    }
}

}}  // namespace c10d::contract
