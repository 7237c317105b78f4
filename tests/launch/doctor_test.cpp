// SPDX-License-Identifier: BSD-3-Clause
// c10d-run doctor -H: hosts that are addresses of this one, and one whose peer is a stand-in.
#include <gtest/gtest.h>

#include <fstream>

#include "src/net/reserve_port.h"
#include "src/net/socket.h"
#include "tests/launch/process.h"
#include "tests/temporary_directory.h"

namespace c10d { inline namespace v0 { namespace {

class Doctor : public ::testing::Test {
 protected:
  void SetUp() override { std::tie(held_, port_) = hold_port(); }
  void TearDown() override { EXPECT_EQ(processes_left(), ""); }

  Ended ask(const std::string& agent, const std::string& hosts) const {
    return run({.command = c10d_run({"doctor", "--agent", agent, "-H", hosts, "--master-port",
                                     std::to_string(port_)})});
  }

  const TemporaryDirectory folder_;

 private:
  Fd held_;  // keeps the port from other programs
  std::uint16_t port_ = 0;
};

TEST_F(Doctor, OfHostsThatAreWellHasNothingToMend) {
  const Ended ended = ask("env AGENT_OF=%h", "127.0.0.2:1,127.0.0.3:1");
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
  for (const char* part :
       {"127.0.0.2 -> 127.0.0.3: 127.0.0.3, MTU ", "127.0.0.3 -> 127.0.0.2: 127.0.0.2, MTU ",
        "127.0.0.3: shares /", "all is well"})
    EXPECT_TRUE(contains(ended.out, part)) << ended.out;
  EXPECT_FALSE(contains(ended.out, "MEND")) << ended.out;
}

TEST_F(Doctor, SaysWhichNamesDoNotResolve) {
  const Ended ended = ask("env AGENT_OF=%h", "one.invalid:1,two.invalid:1");
  EXPECT_EQ(ended.code, 1) << ended.out;
  EXPECT_TRUE(contains(ended.out, "MEND  two.invalid: does not listen under its own name"))
      << ended.out;
}

TEST_F(Doctor, SaysWhereNothingAnswers) {
  const Ended ended = ask("false %h", "localhost:1,two:1");
  EXPECT_EQ(ended.code, 2) << "the first cannot be reached under this name";
  const Ended other = ask("false %h", "127.0.0.2:1,127.0.0.3:1");
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(contains(other.out, "MEND  127.0.0.3: c10d-run does not answer there")) << other.out;
  EXPECT_TRUE(contains(other.out, ": false 127.0.0.3 /")) << other.out;
}

// What a host of another time, version and file system would say, behind a greeting of its shell.
TEST_F(Doctor, SaysHowHostsDiffer) {
  std::ofstream(folder_ / "agent")
      << "host=$1; shift\n[ $host = 127.0.0.2 ] && exec \"$@\"\necho welcome\n"
         "while read word rest; do case $word in\n"
         "version) echo \"= 0.0.9\";;\nclock) echo \"= 1000\";;\n"
         "sees) case $rest in *.c10d-doctor-*) echo \"= no\";; *) echo \"= yes\";; esac;;\n"
         "listen) echo \"= ok 127.0.0.3 9\";;\nreach) echo \"= ok 127.0.0.9 1400 80\";;\nesac; "
         "done\n";
  const Ended ended = ask("sh " + (folder_ / "agent") + " %h", "127.0.0.2:1,127.0.0.3:1");
  EXPECT_EQ(ended.code, 1) << ended.out;
  for (const char* part :
       {"MEND  127.0.0.3: c10d 0.0.9 there and ", "MEND  127.0.0.3: its clock is ", " s behind ",
        "note  127.0.0.3: its /", "MEND  127.0.0.2 -> 127.0.0.3: ",
        "MEND  127.0.0.3 -> 127.0.0.2: its name is 127.0.0.9 there"})
    EXPECT_TRUE(contains(ended.out, part)) << part << " in\n" << ended.out;
}

TEST_F(Doctor, NeedsHostsAndNoProgram) {
  EXPECT_EQ(run({.command = c10d_run({"doctor"})}).code, 2);
  const Ended ended = run({.command = c10d_run({"doctor", "-H", "a:1,b:1", "./train"})});
  EXPECT_EQ(ended.code, 2);
  EXPECT_TRUE(contains(ended.err, "doctor starts no program: leave out ./train")) << ended.err;
}

}}}  // namespace c10d::v0
