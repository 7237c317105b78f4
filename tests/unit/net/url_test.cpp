// SPDX-License-Identifier: BSD-3-Clause
#include "src/net/url.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>

#include "c10d/error.h"
#include "c10d/launch.h"
#include "src/base/host.h"
#include "src/net/token.h"
#include "src/net/token_file.h"
#include "tests/unit/store/kinds.h"

namespace c10d { namespace {

// Made before main, and so destroyed after whatever is made later.
struct LastStatic {
  ~LastStatic() {
    if (!identity.empty()) _exit(host_identity() == identity ? 0 : 1);
  }
  std::string identity;
} g_last_static;

TEST(Host, IsKnownUntilTheProcessIsGone) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(100);  // should it hang
    g_last_static.identity = host_identity();
    exit(2);  // not without ~LastStatic
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// As file, as option and as what a launcher is given.
TEST(Token, OfAnyAllowedLengthIsTakenWholeAndALongerOneIsRefused) {
  const test::TemporaryFile file;
  const auto written = [&](const std::string& token) {
    std::ofstream(file.path()) << token;
    EXPECT_EQ(chmod(file.path().c_str(), 0600), 0);
    return file.path();
  };
  const std::string longest(kMostTokenBytes, 't');
  const std::string longer = longest + "t";
  EXPECT_EQ(read_token_file(written(longest)), longest);
  EXPECT_NE(test::tcp_server({}, longest), nullptr);
  const auto refused = [](const auto& call) {
    try {
      call();
      ADD_FAILURE() << "taken";
    } catch (const InvalidArgument& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find(std::to_string(kMostTokenBytes)), std::string::npos) << message;
    }
  };
  refused([&] { read_token_file(written(longer)); });
  refused([&] { test::tcp_server({}, longer); });
  refused([&] {
    launch({.command = {"true"},
            .hosts = {.count = 2,
                      .number = 1,
                      .address = "127.0.0.1",
                      .token = longer,
                      .timeout = std::chrono::seconds(1)}});
  });
}

TEST(Url, OfTcpHasHostAndPort) {
  const Url url = parse_url("tcp://node-7.example:29500?rank=3&world_size=16");
  EXPECT_EQ(url.scheme, "tcp");
  EXPECT_EQ(url.host, "node-7.example");
  EXPECT_EQ(url.port, 29500);
  EXPECT_EQ(url.integer("rank"), 3);
  EXPECT_EQ(url.integer("world_size"), 16);
  EXPECT_EQ(parse_url("tcp://h:1").integer("rank"), std::nullopt);
}

TEST(Url, OfIpv6HasBrackets) {
  const Url url = parse_url("tcp://[::1]:65535?rank=0");
  EXPECT_EQ(url.host, "::1");
  EXPECT_EQ(url.port, 65535);
}

TEST(Url, OfAFileHasItsPath) {
  EXPECT_EQ(parse_url("file:///a/b c").path, "/a/b c");
  EXPECT_EQ(parse_url("file:///a?world_size=2").integer("world_size"), 2);
}

TEST(Url, ThatMakesNoSenseIsShownWithWhatIsWrong) {
  const struct {
    const char* text;
    const char* says;
  } rows[] = {
      {"", "scheme"},
      {"host:29500", "scheme"},
      {"udp://h:1", "unknown scheme"},
      {"env://", "unknown scheme"},
      {"tcp://h", "port"},
      {"tcp://", "port"},
      {"tcp://h:", "1 to 65535"},
      {"tcp://h:0", "1 to 65535"},
      {"tcp://h:65536", "1 to 65535"},
      {"tcp://h:-1", "1 to 65535"},
      {"tcp://h:99999999999999999999", "1 to 65535"},
      {"tcp://h:1x", "1 to 65535"},
      {"tcp://:1", "1 to 65535"},
      {"tcp://[::1]", "port"},
      {"tcp://[::1:5", "port"},
      {"tcp://[]:5", "1 to 65535"},
      {"file://relative", "absolute"},
      {"file://", "absolute"},
      {"tcp://h:1?rank", "key=value"},
      {"tcp://h:1?=3", "key=value"},
      {"tcp://h:1?size=3", "unknown key"},
      {"tcp://h:1?rank=1&rank=2", "twice"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.text);
    try {
      parse_url(row.text);
      ADD_FAILURE() << "was accepted";
    } catch (const InvalidArgument& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find(row.says), what.npos) << what;
      EXPECT_NE(what.find("'" + std::string(row.text) + "'"), what.npos) << what;
    }
  }
}

TEST(Url, NumbersInItAreWhole) {
  for (const char* value : {"x", "", "1.5", "3x", "99999999999"})
    EXPECT_THROW(parse_url(std::string("tcp://h:1?rank=") + value).integer("rank"), InvalidArgument)
        << value;
}

}}  // namespace c10d
