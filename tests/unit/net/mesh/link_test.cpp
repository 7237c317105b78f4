// SPDX-License-Identifier: BSD-3-Clause
// One connection as a state machine: its two ends talk through strings.
#include "src/net/mesh/link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace c10d { namespace {

const HandshakeOptions kOptions{.job = "g", .role = "mesh", .token = std::string(32, 't')};

std::optional<Failure> admit_all(int) { return {}; }

// What one end has received, as "type:body".
using Received = std::vector<std::string>;
void receive(Link& link, std::string_view bytes, Received& received) {
  link.receive(bytes, [&](const Frame& frame) {
    received.push_back(std::to_string(frame.header.type) + ":" + std::string(frame.body));
  });
}

// Hands over what each end has for the other, in pieces, until neither has more.
void talk(Link& first, Link& second, std::size_t piece, Received& of_first, Received& of_second) {
  const auto hand_over = [&](Link& from, Link& to, Received& received) {
    while (!from.output().empty()) {
      const std::string bytes(from.output().substr(0, piece));
      from.sent(bytes.size());
      receive(to, bytes, received);
    }
  };
  while (!first.output().empty() || !second.output().empty()) {
    hand_over(first, second, of_second);
    hand_over(second, first, of_first);
  }
}

TEST(Link, CarriesFramesInWhateverPiecesTheyArrive) {
  for (const std::size_t piece : {1u, 7u, 1u << 20}) {
    Link caller(kOptions, 5), called(kOptions, admit_all);
    caller.send(1, "too early");
    Received by_caller, by_called;
    talk(caller, called, piece, by_caller, by_called);
    ASSERT_EQ(caller.state(), Link::State::open);
    ASSERT_EQ(called.state(), Link::State::open);
    EXPECT_EQ(called.caller(), 5);
    const std::string most(Link::kMaxBody, 'x');
    caller.send(1, "one");
    caller.send(2, most);
    called.send(3, "");
    talk(caller, called, piece, by_caller, by_called);
    EXPECT_EQ(by_called, (Received{"1:one", "2:" + most}));
    EXPECT_EQ(by_caller, (Received{"3:"}));
  }
}

// What each end says is wrong.
std::pair<Code, Code> refused(Link caller, Link called) {
  Received none;
  talk(caller, called, 1 << 20, none, none);
  EXPECT_EQ(caller.state(), Link::State::closed);
  EXPECT_EQ(called.state(), Link::State::closed);
  if (!caller.failure() || !called.failure()) return {};
  return {caller.failure()->code, called.failure()->code};
}

TEST(Link, RefusesWhoeverDoesNotBelong) {
  const HandshakeOptions other_token{.job = "g", .role = "mesh", .token = std::string(32, 'u')};
  const HandshakeOptions other_group{.job = "h", .role = "mesh", .token = kOptions.token};
  const HandshakeOptions other_role{.job = "g", .role = "store", .token = kOptions.token};
  EXPECT_EQ(refused(Link(other_group, 1), Link(kOptions, admit_all)),
            std::pair(Code::wrong_job, Code::wrong_job));
  EXPECT_EQ(refused(Link(other_role, 1), Link(kOptions, admit_all)),
            std::pair(Code::wrong_job, Code::wrong_job));
  EXPECT_EQ(refused(Link(kOptions, 1), Link(kOptions,
                                            [](int rank) {
                                              return std::optional(
                                                  Failure{.code = Code::mismatch,
                                                          .message = "no " + std::to_string(rank)});
                                            })),
            std::pair(Code::mismatch, Code::mismatch));
  // The caller finds out first, and says so.
  Link caller(other_token, 1), called(kOptions, admit_all);
  Received none;
  talk(caller, called, 1 << 20, none, none);
  EXPECT_EQ(caller.failure()->code, Code::not_authenticated);
  ASSERT_TRUE(called.failure());
  EXPECT_EQ(called.failure()->code, Code::not_authenticated);
}

TEST(Link, ARankThatDoesNotKnowTheTokenProvesNothing) {
  const HandshakeOptions other{.job = "g", .role = "mesh", .token = std::string(32, 'u')};
  Link honest(kOptions, 1), called(other, admit_all);
  Received none;
  talk(honest, called, 1 << 20, none, none);
  EXPECT_EQ(honest.state(), Link::State::closed);
  EXPECT_NE(called.state(), Link::State::open);
}

std::string frame_of(std::uint64_t length) {
  std::string bytes;
  append_frame(bytes, 1, 0, {});
  for (std::size_t i = 0; i < sizeof length; ++i)
    bytes[kFrameHeaderBytes - sizeof length + i] = static_cast<char>(length >> (8 * i));
  return bytes;
}

TEST(Link, GarbageClosesItBeforeAndAfterTheHandshake) {
  const std::vector<std::string> garbage = {
      std::string(64, '\0'), std::string(64, '\xff'), "GET / HTTP/1.1\r\nHost: here\r\n\r\n",
      frame_of(Link::kMaxBody + 1), frame_of(std::uint64_t{1} << 62)};
  for (const std::string& bytes : garbage) {
    Received none;
    Link stranger(kOptions, admit_all);
    receive(stranger, bytes, none);
    EXPECT_EQ(stranger.state(), Link::State::closed);

    Link caller(kOptions, 5), called(kOptions, admit_all);
    talk(caller, called, 1 << 20, none, none);
    receive(called, bytes, none);
    EXPECT_EQ(called.state(), Link::State::closed);
    EXPECT_TRUE(none.empty());
    receive(called, "more", none);  // does nothing
    called.send(1, "more");
    EXPECT_TRUE(called.output().empty());
  }
}

TEST(Link, AHelloThatWasHeardBeforeOpensNothing) {
  Link caller(kOptions, 5), called(kOptions, admit_all), again(kOptions, admit_all);
  Received none;
  const std::string hello(caller.output());
  caller.sent(hello.size());
  receive(called, hello, none);
  const std::string challenge(called.output());
  called.sent(challenge.size());
  receive(caller, challenge, none);
  const std::string proof(caller.output());
  receive(again, hello, none);
  receive(again, proof, none);  // of another challenge
  EXPECT_EQ(again.state(), Link::State::closed);
  ASSERT_TRUE(again.failure());
  EXPECT_EQ(again.failure()->code, Code::not_authenticated);
}

TEST(Link, AnEndThatDoesNotReadIsGivenUp) {
  Link caller(kOptions, 5), called(kOptions, admit_all);
  Received none;
  talk(caller, called, 1 << 20, none, none);
  const std::string most(Link::kMaxBody, 'x');
  for (std::size_t sent = 0; sent <= Link::kMaxOutput; sent += most.size()) caller.send(1, most);
  EXPECT_EQ(caller.state(), Link::State::closed);
  EXPECT_LE(caller.output().size(), Link::kMaxOutput + 1024);
  ASSERT_TRUE(caller.failure());
  EXPECT_EQ(caller.failure()->code, Code::link_lost);
}

}}  // namespace c10d
