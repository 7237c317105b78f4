// SPDX-License-Identifier: BSD-3-Clause
#include "src/net/address.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <string>

#include "c10d/error.h"
#include "src/net/socket.h"
#include "src/net/token.h"

namespace c10d::test { namespace {

TEST(Address, HostAndPort) {
  EXPECT_EQ(show_host_port("::1", 5), "[::1]:5");
  EXPECT_EQ(show_host_port("[::1]", 5), "[::1]:5");
  EXPECT_EQ(show_host_port("10.0.0.1", 5), "10.0.0.1:5");
}

TEST(Address, KnowsLoopbackAndWildcard) {
  EXPECT_TRUE(resolve("127.3.2.1", 1).front().is_loopback());
  EXPECT_TRUE(resolve("::1", 1).front().is_loopback());
  EXPECT_FALSE(resolve("10.0.0.1", 1).front().is_loopback());
  EXPECT_TRUE(resolve("0.0.0.0", 1).front().is_wildcard());
  EXPECT_TRUE(resolve("::", 1).front().is_wildcard());
  EXPECT_FALSE(resolve("::1", 1).front().is_wildcard());
  EXPECT_EQ(resolve("::1", 80).front().text(), "[::1]:80");
  EXPECT_THROW(resolve("no such name", 1), DistNetworkError);
}

// A listener whose queue is full drops what comes, as a firewall does.
TEST(Connect, AnAddressThatSwallowsPacketsLeavesTheOthersTheirTime) {
  const auto listen_anywhere = [] { return listen_tcp(resolve("127.0.0.1", 0).front()); };
  const Fd full = listen_anywhere();
  const Address swallows = local_address(full.get());
  ASSERT_EQ(::listen(full.get(), 0), 0);
  const Fd visitor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(visitor.get(), swallows.get(), swallows.length), 0);
  const Deadline deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  ASSERT_TRUE(wait_for(full.get(), POLLIN, deadline));
  const Fd open = listen_anywhere();
  std::string problem;
  const Fd connected = connect_tcp({swallows, local_address(open.get())}, deadline, problem);
  ASSERT_TRUE(connected) << problem;
  EXPECT_LT(std::chrono::steady_clock::now(), deadline);
  EXPECT_TRUE(wait_for(open.get(), POLLIN, deadline));
  EXPECT_NE(problem.find(swallows.text()), std::string::npos) << problem;
}

// As it stands in MASTER_ADDR, where people know it from URLs.
TEST(Address, OfIpv6MayHaveBrackets) {
  EXPECT_EQ(resolve("[::1]", 80).front().text(), "[::1]:80");
  EXPECT_EQ(without_brackets("[fd00::1%eth0]"), "fd00::1%eth0");
  for (const char* plain : {"::1", "10.0.0.1", "node1", "[::1", "::1]", "[", "[node1]", ""})
    EXPECT_EQ(without_brackets(plain), plain);
}

TEST(Token, HmacOfRfc4231) {
  // Test cases 1 and 2 of the RFC.
  EXPECT_EQ(to_hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(to_hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hmac_sha256("", "x").size(), kDigestBytes);
}

TEST(Token, SecretsCompareAsAWhole) {
  EXPECT_TRUE(equal_secrets("", ""));
  EXPECT_TRUE(equal_secrets("abc", "abc"));
  EXPECT_FALSE(equal_secrets("abc", "abd"));
  EXPECT_FALSE(equal_secrets("abc", "abcd"));
  EXPECT_NE(random_bytes(16), random_bytes(16));
}

}}  // namespace c10d::test
