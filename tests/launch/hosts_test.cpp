// SPDX-License-Identifier: BSD-3-Clause
// A job over several hosts: c10d-run several times on loopback, each as a host of its own.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>

#include "c10d/store.h"
#include "src/net/reserve_port.h"
#include "src/net/socket.h"
#include "tests/launch/process.h"
#include "tests/temporary_directory.h"

namespace c10d { inline namespace v0 { namespace {

using Arguments = std::vector<std::string>;

class Hosts : public ::testing::Test {
 protected:
  void SetUp() override {
    write_token("token", std::string(32, 't'));
    std::tie(held_, port_) = hold_port();
  }
  void TearDown() override {
    hosts_.clear();
    EXPECT_EQ(processes_left(), "");
  }

  std::string write_token(const std::string& name, const std::string& secret) {
    const std::string path = folder_ / name;
    std::ofstream(path) << secret;
    std::filesystem::permissions(path, std::filesystem::perms(0600));
    return path;
  }

  Arguments where(int count, int number) const {
    return {"--nnodes",
            std::to_string(count),
            "--node_rank",
            std::to_string(number),
            "--master_addr=127.0.0.1",
            "--master_port",
            std::to_string(port_)};
  }
  // c10d-run as host `number` of `count`.
  Process& start(int count, int number, const Arguments& rest, const std::string& token = "token") {
    Arguments arguments = where(count, number);
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    hosts_.push_back(std::make_unique<Process>(Process::Options{
        .command = c10d_run(arguments), .environment = {{"C10D_TOKEN_FILE", folder_ / token}}}));
    return *hosts_.back();
  }

  // Until the launcher of host `number` is one of those who meet.
  void wait_until_joined(int number) const {
    const auto store =
        make_tcp_store({.port = port_, .job = "c10d", .token = std::string(32, 't')});
    store->get("launch/joined/" + std::to_string(number), std::chrono::seconds(50));
  }

  TemporaryDirectory folder_;
  Fd held_;  // keeps the port from other programs
  std::uint16_t port_ = 0;
  std::vector<std::unique_ptr<Process>> hosts_;
};

// "NAME=value" lines of `rank`.
std::set<std::string> values_of(const Process& host, int rank) {
  std::set<std::string> values;
  const std::string prefix = "[" + std::to_string(rank) + "] ";
  for (const std::string& line : lines_of(host.out()))
    if (line.starts_with(prefix)) values.insert(line.substr(prefix.size()));
  return values;
}

TEST_F(Hosts, TakeWhatRanksLeaveBehindWithThem) {
  start(2, 1, {"-n", "1", C10D_PROBE, "children", "leave"});
  start(2, 0, {"-n", "1", C10D_PROBE, "children", "leave"});
  for (const auto& host : hosts_) EXPECT_EQ(host->wait(), 0) << host->err();
}

TEST_F(Hosts, RanksCountThroughThem) {
  const Arguments variables = {C10D_PROBE,
                               "variables",
                               "C10D_RANK",
                               "C10D_WORLD_SIZE",
                               "LOCAL_RANK",
                               "LOCAL_WORLD_SIZE",
                               "RANK",
                               "GROUP_RANK",
                               "GROUP_WORLD_SIZE",
                               "MASTER_ADDR",
                               "C10D_JOB_ID",
                               "C10D_STORE",
                               "TORCHELASTIC_RUN_ID",
                               "C10D_TOKEN_FILE",
                               "C10D_NET_INTERFACE"};
  const auto with = [&](const char* ranks) {
    Arguments arguments = {"-n", ranks, "--rdzv-id=digits"};
    arguments.insert(arguments.end(), variables.begin(), variables.end());
    return arguments;
  };
  // The last first: host 0 may come late.
  Process& last = start(3, 2, with("1"));
  Process& middle = start(3, 1, with("2"));
  Process& first = start(3, 0, with("3"));
  for (const auto& host : hosts_) EXPECT_EQ(host->wait(), 0) << host->err();
  const auto expected = [&](int rank, int local_rank, int local_size, int host) {
    const std::string port = std::to_string(port_);
    return std::set<std::string>{"C10D_RANK=" + std::to_string(rank),
                                 "RANK=" + std::to_string(rank),
                                 "C10D_WORLD_SIZE=6",
                                 "LOCAL_RANK=" + std::to_string(local_rank),
                                 "LOCAL_WORLD_SIZE=" + std::to_string(local_size),
                                 "GROUP_RANK=" + std::to_string(host),
                                 "GROUP_WORLD_SIZE=3",
                                 "MASTER_ADDR=127.0.0.1",
                                 "C10D_JOB_ID=digits",
                                 "C10D_STORE=tcp://127.0.0.1:" + port,
                                 "TORCHELASTIC_RUN_ID=digits",
                                 "C10D_TOKEN_FILE=(unset)",
                                 "C10D_NET_INTERFACE=127.0.0.1"};
  };
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(values_of(first, rank), expected(rank, rank, 3, 0));
  for (int rank = 3; rank < 5; ++rank)
    EXPECT_EQ(values_of(middle, rank), expected(rank, rank - 3, 2, 1));
  EXPECT_EQ(values_of(last, 5), expected(5, 0, 1, 2));
}

TEST_F(Hosts, TheNetworkThatTheUserChoseStays) {
  const Arguments arguments = {"-x", "C10D_NET_INTERFACE=lo", C10D_PROBE, "variables",
                               "C10D_NET_INTERFACE"};
  Process& first = start(2, 0, arguments);
  start(2, 1, arguments);
  for (const auto& host : hosts_) EXPECT_EQ(host->wait(), 0) << host->err();
  EXPECT_EQ(values_of(first, 0), std::set<std::string>{"C10D_NET_INTERFACE=lo"});
}

TEST_F(Hosts, ShareAStoreAndAPortForOneMore) {
  for (const int number : {0, 1}) start(2, number, {"-n", "2", "--no-prefix", C10D_PROBE, "store"});
  for (const auto& host : hosts_) {
    EXPECT_EQ(host->wait(), 0) << host->err();
    EXPECT_EQ(host->out(), "not_authenticated\nnot_authenticated\n");
  }
  hosts_.clear();
  for (const int number : {0, 1})
    start(2, number, {"--no-prefix", C10D_PROBE, "variables", "MASTER_PORT"});
  for (const auto& host : hosts_) EXPECT_EQ(host->wait(), 0) << host->err();
  EXPECT_EQ(hosts_[0]->out(), hosts_[1]->out());
  EXPECT_NE(hosts_[0]->out(), "MASTER_PORT=" + std::to_string(port_) + "\n");
  EXPECT_NE(hosts_[0]->out(), "MASTER_PORT=0\n");
}

TEST_F(Hosts, LogsAreByTheRankOfTheJob) {
  for (const int number : {0, 1})
    start(2, number, {"--log-dir", folder_ / "logs", "-r", "3", C10D_PROBE, "text", "out\n", ""});
  for (const auto& host : hosts_) EXPECT_EQ(host->wait(), 0) << host->err();
  for (const char* rank : {"0", "1"}) {
    std::ifstream file(folder_ / "logs/" + rank + "/stdout.log");
    std::string line;
    EXPECT_TRUE(std::getline(file, line));
    EXPECT_EQ(line, "out");
  }
}

TEST_F(Hosts, AFailureEndsAllOfThem) {
  const Arguments failing = {"-n", "2", C10D_PROBE, "fail", "2", "exit", "7"};
  Process& zero = start(3, 0, failing);
  Process& one = start(3, 1, failing);
  Process& two = start(3, 2, failing);
  for (const auto& host : hosts_) EXPECT_EQ(host->wait(), 7) << host->err();
  EXPECT_TRUE(contains(one.err(), "c10d-run: host 1 (")) << one.err();
  EXPECT_TRUE(contains(one.err(), "): rank 2 (pid ")) << one.err();
  EXPECT_TRUE(contains(one.err(), "  | complaint 29\n")) << one.err();
  for (const Process* other : {&zero, &two}) {
    EXPECT_TRUE(contains(other->err(), "c10d-run: host 1 (")) << other->err();
    EXPECT_TRUE(contains(other->err(), "failed first: exit code 7")) << other->err();
    EXPECT_FALSE(contains(other->err(), "complaint")) << other->err();
  }
}

TEST_F(Hosts, ASignalToOneEndsAllOfThem) {
  for (const int number : {0, 1}) start(2, number, {"-n", "2", C10D_PROBE, "signals"});
  for (const auto& host : hosts_) ASSERT_TRUE(host->wait_for_lines(2)) << host->err();
  kill(hosts_[1]->pid(), SIGTERM);
  for (const auto& host : hosts_) EXPECT_EQ(host->wait(), 3) << host->err();
  EXPECT_TRUE(contains(hosts_[0]->err(), "c10d-run: host 1 (")) << hosts_[0]->err();
  for (const int rank : {0, 1})
    EXPECT_TRUE(contains(hosts_[0]->out(), "[" + std::to_string(rank) + "] got 15\n"))
        << hosts_[0]->out();
}

TEST_F(Hosts, RanksThatASignalEndedHaveNotFailed) {
  for (const int number : {0, 1})
    start(2, number, {"-n", "2", "sh", "-c", "echo up; exec sleep 1000"});
  for (const auto& host : hosts_) ASSERT_TRUE(host->wait_for_lines(2)) << host->err();
  kill(hosts_[1]->pid(), SIGTERM);
  for (const auto& host : hosts_) {
    EXPECT_EQ(host->wait(), 128 + SIGTERM) << host->err();
    EXPECT_FALSE(contains(host->err(), "failed first")) << host->err();
  }
  EXPECT_TRUE(contains(hosts_[0]->err(), "): its launcher got signal 15\n")) << hosts_[0]->err();
  EXPECT_TRUE(contains(hosts_[1]->err(), "): got signal 15 (Terminated)")) << hosts_[1]->err();
}

TEST_F(Hosts, OneThatEndedWaitsForTheOthers) {
  // Rank 0 ends with its input, which is empty; rank 1 when it is told to.
  start(2, 0, {C10D_PROBE, "input"});
  start(2, 1, {C10D_PROBE, "signals"});
  ASSERT_TRUE(hosts_[0]->wait_for_lines(1));
  ASSERT_TRUE(hosts_[1]->wait_for_lines(1));
  kill(hosts_[1]->pid(), SIGINT);
  for (const auto& host : hosts_) EXPECT_EQ(host->wait(), 3) << host->err();
  EXPECT_TRUE(contains(hosts_[0]->err(), "rank 1 (pid ")) << hosts_[0]->err();
}

TEST_F(Hosts, AnInterruptedMeetingEndsForAll) {
  Process& one = start(3, 1, {"true"});
  Process& zero = start(3, 0, {"--verbose", "true"});
  ASSERT_TRUE(zero.wait_for_error("1 ranks on "));
  kill(zero.pid(), SIGINT);
  EXPECT_EQ(zero.wait(), 128 + SIGINT) << zero.err();
  kill(one.pid(), SIGINT);  // for one that came when host 0 had gone
  EXPECT_NE(one.wait(), 0);
}

// Host 0 is stopped, and so hears of nothing.
TEST_F(Hosts, ASignalEndsAMeetingWithAHost0ThatIsSilent) {
  Process& zero = start(3, 0, {"true"});
  Process& one = start(3, 1, {"true"});
  wait_until_joined(1);
  kill(zero.pid(), SIGSTOP);
  kill(one.pid(), SIGINT);
  EXPECT_EQ(one.wait(), 128 + SIGINT) << one.err();
}

TEST_F(Hosts, ALauncherThatIsKilledWhileTheyMeetEndsTheMeeting) {
  Process& zero = start(3, 0, {"true"});
  Process& one = start(3, 1, {"true"});
  wait_until_joined(1);
  kill(one.pid(), SIGKILL);
  EXPECT_EQ(zero.wait(), 1);
  EXPECT_TRUE(contains(zero.err(), "host 1 (pid ")) << zero.err();
  EXPECT_TRUE(contains(zero.err(), "is gone")) << zero.err();
}

TEST_F(Hosts, AKilledLauncherIsNoticed) {
  for (const int number : {0, 1, 2}) start(3, number, {C10D_PROBE, "signals"});
  for (const auto& host : hosts_) ASSERT_TRUE(host->wait_for_lines(1)) << host->err();
  kill(hosts_[1]->pid(), SIGKILL);
  for (const int other : {0, 2}) {
    Process& host = *hosts_[static_cast<std::size_t>(other)];
    EXPECT_EQ(host.wait(), 1);
    EXPECT_TRUE(contains(host.err(), "c10d-run: host 1 (pid ")) << host.err();
    EXPECT_TRUE(contains(host.err(), "is gone")) << host.err();
  }
}

TEST_F(Hosts, AStoppedLauncherIsNoticed) {
  for (const int number : {0, 1})
    start(2, number, {"--rdzv-conf=silence=3", C10D_PROBE, "signals"});
  // On a slow machine host 1 may be taken for dead, or give host 0 up, before its time.
  for (const auto& host : hosts_) host->wait_for_lines(1);
  kill(hosts_[1]->pid(), SIGSTOP);
  EXPECT_EQ(hosts_[0]->wait(), 1);
  EXPECT_TRUE(contains(hosts_[0]->err(), "c10d-run: host 1 (pid ")) << hosts_[0]->err();
  EXPECT_TRUE(contains(hosts_[0]->err(), "sent no heartbeat for") ||
              contains(hosts_[0]->err(), "is gone"))
      << hosts_[0]->err();
}

TEST_F(Hosts, TheLossOfHost0IsNoticed) {
  for (const int number : {0, 1}) start(2, number, {C10D_PROBE, "signals"});
  for (const auto& host : hosts_) ASSERT_TRUE(host->wait_for_lines(1)) << host->err();
  kill(hosts_[0]->pid(), SIGKILL);
  EXPECT_EQ(hosts_[1]->wait(), 1);
  EXPECT_TRUE(contains(hosts_[1]->err(), "c10d-run: host 0 (pid ")) << hosts_[1]->err();
  EXPECT_TRUE(contains(hosts_[1]->err(), "is lost")) << hosts_[1]->err();
}

TEST_F(Hosts, OneThatNeverComesIsNamed) {
  Process& zero = start(3, 0, {"--rdzv-conf", "join_timeout=1", "true"});
  Process& one = start(3, 1, {"--rdzv-conf", "join_timeout=1", "true"});
  EXPECT_EQ(zero.wait(), 1);
  EXPECT_TRUE(contains(zero.err(), "of 3 hosts these did not arrive within 1 s: ")) << zero.err();
  EXPECT_EQ(one.wait(), 1);
  hosts_.clear();
  Process& alone = start(2, 1, {"--rdzv-conf=join_timeout=1", "true"});
  EXPECT_EQ(alone.wait(), 1);
  EXPECT_TRUE(contains(alone.err(), "host 0 of 2 does not serve the job's store")) << alone.err();
}

TEST_F(Hosts, AWrongTokenIsRefused) {
  write_token("other", std::string(32, 'o'));
  Process& zero = start(2, 0, {"--rdzv-conf=join_timeout=4", "true"});
  Process& one = start(2, 1, {"true"}, "other");
  EXPECT_EQ(one.wait(), 1);
  EXPECT_TRUE(contains(one.err(), "different tokens")) << one.err();
  EXPECT_EQ(zero.wait(), 1);
  for (const char* text : {"warn: store server: refused a connection from 127.0.0.1: ",
                           "within 4 s: 1; 1 connection from 127.0.0.1 was refused: another token"})
    EXPECT_TRUE(contains(zero.err(), text)) << zero.err();
}

TEST_F(Hosts, TwoOfOneNumberAreToldToAll) {
  for (const int number : {0, 1, 1}) start(3, number, {"true"});
  for (const auto& host : hosts_) {
    EXPECT_EQ(host->wait(), 1);
    EXPECT_TRUE(contains(host->err(), "two launchers are host 1: pid ")) << host->err();
  }
}

TEST_F(Hosts, TwoHosts0AreToldToAll) {
  for (const int number : {0, 0}) start(2, number, {"--rdzv-conf=join_timeout=20", "true"});
  for (const auto& host : hosts_) EXPECT_EQ(host->wait(), 1);
  // On a slow machine the second may give up before the first answers it.
  for (const auto& host : hosts_)
    EXPECT_TRUE(contains(host->err(), "two launchers are host 0: pid ") ||
                contains(host->err(), "in use by another process") ||
                contains(host->err(), "did not arrive within 20 s: 1"))
        << host->err();
}

TEST_F(Hosts, DifferentNumbersOfHostsAreToldToBoth) {
  Process& zero = start(2, 0, {"true"});
  Process& one = start(3, 1, {"true"});
  EXPECT_EQ(zero.wait(), 1);
  EXPECT_EQ(one.wait(), 1);
  for (const Process* host : {&zero, &one})
    EXPECT_TRUE(contains(host->err(), "the hosts disagree on the number of hosts: "))
        << host->err();
}

TEST_F(Hosts, AnotherJobIsRefused) {
  start(2, 0, {"--rdzv-id=a", "true"});
  Process& one = start(2, 1, {"--rdzv-id=b", "true"});
  EXPECT_EQ(one.wait(), 1);
  EXPECT_TRUE(contains(one.err(), "belongs to job 'b', but this is job 'a'")) << one.err();
}

TEST_F(Hosts, AnAddressInUseIsNamed) {
  ASSERT_EQ(listen(held_.get(), 1), 0);
  Process& zero = start(2, 0, {"true"});
  EXPECT_EQ(zero.wait(), 1);
  EXPECT_TRUE(contains(zero.err(), std::to_string(port_) + " is in use by another process"))
      << zero.err();
}

TEST_F(Hosts, AProgramThatCannotBeStartedIsToldToAll) {
  Process& zero = start(2, 0, {"true"});
  Process& one = start(2, 1, {"./no/such/program"});
  EXPECT_EQ(one.wait(), 2);
  EXPECT_EQ(zero.wait(), 1);
  EXPECT_TRUE(contains(zero.err(), "host 1 (")) << zero.err();
  EXPECT_TRUE(contains(zero.err(), "./no/such/program")) << zero.err();
}

TEST_F(Hosts, ATooShortSilenceIsRefused) {
  Process& zero = start(2, 0, {"--rdzv-conf=join_timeout=9,silence=2", "true"});
  EXPECT_EQ(zero.wait(), 2);
  EXPECT_TRUE(contains(zero.err(), "a silence of less than 3 s says nothing")) << zero.err();
}

TEST_F(Hosts, WithoutASecretNothingStarts) {
  Arguments arguments = where(2, 0);
  arguments.push_back("true");
  const Ended ended = run_ranks(arguments, {{"C10D_TOKEN_FILE", ""}});
  EXPECT_EQ(ended.code, 2);
  EXPECT_TRUE(contains(ended.err, "head -c 32 /dev/urandom")) << ended.err;
  write_token("short", "15 bytes of it.");
  std::filesystem::permissions(write_token("open", std::string(32, 'o')),
                               std::filesystem::perms(0640));
  for (const auto& [name, expected] :
       std::map<std::string, std::string>{{"short", "no token of at least 16 bytes"},
                                          {"open", "readable by others"},
                                          {"none", "cannot be opened"}}) {
    Process& host = start(2, 0, {"true"}, name);
    EXPECT_EQ(host.wait(), 2);
    EXPECT_TRUE(contains(host.err(), "C10D_TOKEN_FILE=")) << host.err();
    EXPECT_TRUE(contains(host.err(), expected)) << host.err();
  }
}

}}}  // namespace c10d::v0
