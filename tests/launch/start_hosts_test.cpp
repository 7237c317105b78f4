// SPDX-License-Identifier: BSD-3-Clause
// c10d-run -H: hosts that are names of this one, reached by an agent that logs in nowhere.
#include <gtest/gtest.h>
#include <signal.h>

#include <cctype>
#include <filesystem>
#include <fstream>

#include "c10d/env.h"
#include "src/net/reserve_port.h"
#include "src/net/socket.h"
#include "tests/launch/process.h"
#include "tests/temporary_directory.h"

namespace c10d { inline namespace v0 { namespace {

using Arguments = std::vector<std::string>;

class StartHosts : public ::testing::Test {
 protected:
  void SetUp() override { std::tie(held_, port_) = hold_port(); }
  void TearDown() override { EXPECT_EQ(processes_left(), ""); }

  Process::Options options(const Arguments& rest) const {
    Arguments arguments = {"--master-addr=127.0.0.1", "--master-port=" + std::to_string(port_)};
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    return {.command = c10d_run(arguments)};
  }
  Ended start(const Arguments& rest) const { return run(options(rest)); }
  // Of which the user hears after half of `seconds`.
  Process::Options with_agent_that_hangs(const std::string& host,
                                         const std::string& seconds) const {
    const std::string agent = folder_ / "agent";
    std::ofstream(agent) << "#!/bin/sh\nif [ $1 = " << host
                         << " ]; then exec sleep 1000; fi\nprintf 'a banner'>&2\n"
                            "shift\nexec \"$@\"\n";
    std::filesystem::permissions(agent, std::filesystem::perms::owner_all);
    return options({"--agent", agent + " %h", "--rdzv-conf=join_timeout=" + seconds, "-H",
                    "one:1,two:1", "true"});
  }

  TemporaryDirectory folder_;

 private:
  Fd held_;  // keeps the port from other programs
  std::uint16_t port_ = 0;
};

int times(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

const char* const kAgent = "env AGENT_OF=%h";

TEST_F(StartHosts, RanksAreNumberedThroughTheHosts) {
  const Ended ended = start({"--agent", kAgent, "-H", "one:2,two:1", "sh", "-c",
                             "echo $RANK of $WORLD_SIZE on $AGENT_OF"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(sorted_lines_of(ended.out),
            (Arguments{"[0] 0 of 3 on one", "[1] 1 of 3 on one", "[2] 2 of 3 on two"}));
}

TEST_F(StartHosts, ThisHostNeedsNoAgent) {
  const Ended ended = start(
      {"--agent", kAgent, "-H", "localhost:1,two:1", "sh", "-c", "echo ${AGENT_OF:-no agent}"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(sorted_lines_of(ended.out), (Arguments{"[0] no agent", "[1] two"}));
}

// As for ssh, which hands one text to the shell there.
TEST_F(StartHosts, AShellGetsTheCommandAsItWasTyped) {
  const Ended ended = start({"--agent", "env AGENT_OF=%h sh -c %c", "-H", "one:1,two:1", C10D_PROBE,
                             "arguments", "a  b", "it's \"$HOME\"", ""});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(sorted_lines_of(ended.out), (Arguments{"[0] ", "[0] a  b", "[0] it's \"$HOME\"", "[1] ",
                                                   "[1] a  b", "[1] it's \"$HOME\""}));
}

TEST_F(StartHosts, RanksStartInThisFolderWithTheVariablesThatWereNamed) {
  const TemporaryDirectory folder;
  std::filesystem::create_directory(folder / "below");
  std::ofstream(folder / "below/file") << "found";
  Process::Options probe = options({"--agent", "env -u NAMED %h=1", "-x", "NAMED", "-H",
                                    "one:1,two:1", "sh", "-c", "cat below/file; echo \"$NAMED\""});
  probe.command.insert(probe.command.begin(),
                       {"sh", "-c", "cd \"$0\" && exec \"$@\"", folder.path()});
  probe.environment = {{"NAMED", " yes"}};
  const Ended ended = run(probe);
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(sorted_lines_of(ended.out), (Arguments{"[0] found yes", "[1] found yes"}));
}

TEST_F(StartHosts, TheFirstFailureEndsAllWithItsCode) {
  const Ended ended = start({"--agent", kAgent, "-H", "one:1,two:1", "sh", "-c",
                             "if [ $RANK = 1 ]; then exit 7; fi; exec sleep 1000"});
  EXPECT_EQ(ended.code, 7);
  EXPECT_TRUE(contains(ended.err, "rank 1")) << ended.err;
}

TEST_F(StartHosts, OneHostTellsOfTheFirstFailure) {
  const Ended ended = start({"--agent", kAgent, "-H", "one:2,two:2,three:2", "sh", "-c",
                             "if [ $((RANK % 2)) = 1 ]; then exit 7; fi; exec sleep 1000"});
  EXPECT_EQ(ended.code, 7);
  EXPECT_EQ(times(ended.err, "c10d-run: "), 1) << ended.err;
  EXPECT_EQ(times(ended.err, "failed first: exit code 7"), 1) << ended.err;
  EXPECT_TRUE(contains(ended.err, "c10d-run: host ")) << ended.err;
  const Ended killed = start({"--agent", kAgent, "-H", "one:1,two:1", "sh", "-c",
                              "if [ $RANK = 1 ]; then kill -9 $$; fi; exec sleep 1000"});
  EXPECT_EQ(killed.code, 128 + SIGKILL);
  EXPECT_EQ(times(killed.err, "c10d-run: "), 1) << killed.err;
}

TEST_F(StartHosts, WhatEveryHostSaysIsToldOnce) {
  const Ended ended = start({"--agent", kAgent, "-H", "one:1,two:1,three:1", "./no/such"});
  EXPECT_EQ(times(ended.err, "cannot start ./no/such: "), 1) << ended.err;
  EXPECT_EQ(times(ended.err, "c10d-run: host"), 1) << ended.err;
  const Ended nowhere = start({"--agent", kAgent, "-H", "one:1,two:1", "--wdir=/no/such", "true"});
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_EQ(times(nowhere.err, ": --wdir /no/such: No such file"), 1) << nowhere.err;
  EXPECT_EQ(times(nowhere.err, "c10d-run: host"), 1) << nowhere.err;
  const Ended warned = start({"--agent", kAgent, "-H", "one:1,two:1", "--logs-specs=x", "true"});
  EXPECT_EQ(warned.code, 0);
  EXPECT_EQ(times(warned.err, "c10d-run: hosts "), 1) << warned.err;
  EXPECT_EQ(times(warned.err, ": warning: --logs-specs has no effect here"), 1) << warned.err;
}

TEST_F(StartHosts, AnAgentThatFailsIsNamedWithItsHost) {
  const Ended ended = start({"--agent", "false %h", "-H", "localhost:1,two:1", "sleep", "1000"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_TRUE(contains(ended.err, "c10d-run: host two: exit code 1 of: false two /")) << ended.err;
}

TEST_F(StartHosts, AnAgentThatIsNotThereIsNamed) {
  const Ended ended = start({"--agent", "/no/agent %h", "-H", "one:1,two:1", "true"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_TRUE(contains(ended.err, "cannot start /no/agent")) << ended.err;
}

TEST_F(StartHosts, AnAgentThatHangsEndsTheJobAfterTheJoinTimeout) {
  for (const std::string host : {"one", "two"}) {
    const Ended ended = run(with_agent_that_hangs(host, "4"));
    EXPECT_EQ(ended.code, 1);
    EXPECT_TRUE(contains(ended.err, "c10d-run: still waiting for ")) << ended.err;
    EXPECT_TRUE(contains(ended.err, "c10d-run: host " + host + ": no c10d-run was up there after"))
        << ended.err;
    const std::string attempt = folder_ / "agent" + ' ' + host + ' ' + C10D_RUN + " --version";
    EXPECT_TRUE(contains(ended.err, attempt)) << ended.err;
  }
}

TEST_F(StartHosts, AnAgentThatDoesNothingEndsTheJobAtOnce) {
  const std::string agent = folder_ / "agent";
  std::ofstream(agent) << "#!/bin/sh\nif [ $1 = two ]; then exit 0; fi\nshift\nexec \"$@\"\n";
  std::filesystem::permissions(agent, std::filesystem::perms::owner_all);
  const Ended ended = start({"--agent", agent + " %h", "-H", "one:1,two:1", "true"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_TRUE(contains(ended.err, "host two: its agent ended well, and started no c10d-run"))
      << ended.err;
}

TEST_F(StartHosts, ASignalEndsAnAgentThatHangs) {
  Process job(with_agent_that_hangs("one", "8"));
  ASSERT_TRUE(job.wait_for_error("c10d-run: still waiting for one")) << job.err();
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_FALSE(contains(job.err(), "does not end")) << job.err();
  EXPECT_TRUE(contains(job.err(), "a banner")) << job.err();
  EXPECT_FALSE(contains(job.err(), "\1")) << job.err();
}

TEST_F(StartHosts, ASignalEndsEveryHostInOrder) {
  Process job(options({"--agent", kAgent, "-H", "one:1,two:1", "sh", "-c",
                       "trap 'echo ended; exit 0' TERM; echo up; while :; do sleep 0.1; done"}));
  ASSERT_TRUE(job.wait_for_lines(2)) << job.err();
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_EQ(sorted_lines_of(job.out()), (Arguments{"[0] ended", "[0] up", "[1] ended", "[1] up"}));
}

// timeout(1) sends it twice.
TEST_F(StartHosts, RanksThatASignalEndedHaveNotFailed) {
  Process job(
      options({"--agent", kAgent, "-H", "one:1,two:1", "sh", "-c", "echo up; exec sleep 1000"}));
  ASSERT_TRUE(job.wait_for_lines(2)) << job.err();
  kill(job.pid(), SIGTERM);
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_EQ(job.err(), "c10d-run: got signal 15: the hosts end their ranks\n");
}

TEST_F(StartHosts, NothingIsLeftBehindAKilledOne) {
  Process job(options(
      {"--agent", kAgent, "-H", "localhost:1,two:1", "sh", "-c", "echo up; exec sleep 1000"}));
  ASSERT_TRUE(job.wait_for_lines(2)) << job.err();
  kill(job.pid(), SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_EQ(processes_left(), "");
}

TEST_F(StartHosts, TheSecretIsNoArgument) {
  const Ended ended = start({"--agent", kAgent, "-v", "-H", "one:1,two:1", "sh", "-c",
                             "tr '\\0' ' ' < /proc/$PPID/cmdline; echo"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  const auto has_secret = [](const std::string& text) {  // 64 hexadecimal digits
    std::size_t digits = 0;
    for (const char c : text)
      if ((digits = std::isxdigit(static_cast<unsigned char>(c)) != 0 ? digits + 1 : 0) == 64)
        return true;
    return false;
  };
  const auto lines = lines_of(ended.out);
  EXPECT_EQ(lines.size(), 2u);
  for (const std::string& line : lines) EXPECT_TRUE(contains(line, "--token-on-stdin")) << line;
  EXPECT_FALSE(has_secret(ended.out + ended.err)) << ended.out << ended.err;
}

TEST_F(StartHosts, ValuesOfVariablesAreNoArguments) {
  const std::string odd = "a  'b'\n=\\c";
  const std::string script =
      "tr '\\0' ' ' < /proc/$PPID/cmdline; echo; echo \"$NAMED\" | tr a-z A-Z; "
      "printf '%s\\n' \"$ODD\"";
  const Ended ended = start({"--agent", kAgent, "-v", "-x", "NAMED=swordfish", "-x", "ODD=" + odd,
                             "-H", "localhost:1,two:1", "sh", "-c", script});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_FALSE(contains(ended.out + ended.err, "swordfish")) << ended.out << ended.err;
  for (const char* rank : {"[0] ", "[1] "}) {
    EXPECT_TRUE(contains(ended.out, std::string(rank) + "SWORDFISH\n")) << ended.out;
    EXPECT_TRUE(contains(ended.out, std::string(rank) + "a  'b'\n")) << ended.out;
    EXPECT_TRUE(contains(ended.out, std::string(rank) + "=\\c\n")) << ended.out;
  }
  EXPECT_EQ(start({"--agent", kAgent, "-x", "=1", "-H", "one:1,two:1", "true"}).code, 2);
  const Ended large = start(
      {"--agent", kAgent, "-x", "LARGE=" + std::string(40000, 'x'), "-H", "one:1,two:1", "true"});
  EXPECT_EQ(large.code, 2);
  EXPECT_TRUE(contains(large.err, "-x: variables of 40")) << large.err;
}

TEST_F(StartHosts, InsideAnAllocationOfSlurmItIsTheAgent) {
  const TemporaryDirectory folder;
  std::ofstream(folder / "srun") << "#!/bin/sh\nexport ASKED=\"$1 $2 $3 $4 $5 $6\"\nshift 6\n"
                                    "exec \"$@\"\n";
  std::filesystem::permissions(folder / "srun", std::filesystem::perms::owner_all);
  Process::Options job = options({"-H", "one:1,two:1", "sh", "-c", "echo \"$ASKED\""});
  job.environment = {{"PATH", folder.path() + ":" + env("PATH").value_or("")},
                     {"SLURM_JOB_ID", "7"},
                     {"SLURM_JOB_NODELIST", "one,two"}};
  const Ended ended = run(job);
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(sorted_lines_of(ended.out),
            (Arguments{"[0] --overlap --cpu-bind=none -N1 -n1 -w one",
                       "[1] --overlap --cpu-bind=none -N1 -n1 -w two"}));
}

TEST_F(StartHosts, TheOtherEndRefusesWhatIsNoSecret) {
  for (const auto& [input, why] : std::map<std::string, std::string>{
           {"", "stdin ended before a line"},
           {"short\n", "must have 16 to 1024 bytes"},
           {std::string(2000, 'x') + "\n", "must have 16 to 1024 bytes"}}) {
    Process::Options other = options({"--nnodes=2", "--node-rank=1", "--token-on-stdin", "true"});
    other.input = input;
    const Ended ended = run(other);
    EXPECT_EQ(ended.code, 2);
    EXPECT_TRUE(contains(ended.err, why)) << ended.err;
  }
}

}}}  // namespace c10d::v0
