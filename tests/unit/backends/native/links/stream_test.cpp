// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/links/stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace c10d { namespace {

using native::Stream;

std::vector<std::byte> some_bytes(std::size_t count, unsigned seed) {
  std::vector<std::byte> bytes(count);
  unsigned state = seed;
  for (std::byte& byte : bytes)
    byte = static_cast<std::byte>((state = state * 1103515245 + 12345) >> 16);
  return bytes;
}

// Up to `most` bytes that wait to be sent.
std::string take_output(Stream& from, std::size_t most) {
  std::string bytes;
  for (auto pieces = from.output(); !pieces.empty() && bytes.size() < most;
       pieces = from.output()) {
    const std::size_t count = std::min(pieces[0].iov_len, most - bytes.size());
    bytes.append(static_cast<const char*>(pieces[0].iov_base), count);
    from.wrote(count);
  }
  return bytes;
}

// What did not fit, because nothing was awaited.
std::string give_input(Stream& to, std::string bytes) {
  for (auto pieces = to.input(); !pieces.empty() && !bytes.empty(); pieces = to.input()) {
    const std::size_t count = std::min(pieces[0].iov_len, bytes.size());
    std::memcpy(pieces[0].iov_base, bytes.data(), count);
    bytes.erase(0, count);
    to.read(count);
  }
  return bytes;
}

// All of it, in pieces of that size.
void pump(Stream& from, Stream& to, std::size_t piece) {
  for (std::string bytes = take_output(from, piece); !bytes.empty();
       bytes = take_output(from, piece))
    ASSERT_EQ(give_input(to, bytes), "") << to.problem();
}

class Pieces : public testing::TestWithParam<std::size_t> {};

TEST_P(Pieces, BlocksArriveInTheirOrderWhole) {
  Stream from, to;
  std::vector<std::vector<std::byte>> sent, got;
  for (const std::size_t bytes :
       {std::size_t{8}, std::size_t{0}, std::size_t{1}, Stream::kChunkBytes,
        2 * Stream::kChunkBytes + 3, std::size_t{0}, std::size_t{7}}) {
    sent.push_back(some_bytes(bytes, static_cast<unsigned>(sent.size())));
    got.emplace_back(bytes);
  }
  for (std::size_t i = 0; i < sent.size(); ++i) {
    from.send(sent[i].data(), sent[i].size(), 5 + i);
    to.receive(got[i].data(), got[i].size(), 5 + i);
  }
  pump(from, to, GetParam());
  EXPECT_EQ(got, sent);
  EXPECT_EQ(from.sent(), sent.size());
  EXPECT_EQ(to.received(), sent.size());
  EXPECT_TRUE(from.output().empty());
  EXPECT_TRUE(to.input().empty());
}

INSTANTIATE_TEST_SUITE_P(Of, Pieces, testing::Values(1, 31, 33, 1000, 1 << 20));

TEST(Stream, AnEmptyBlockIsThroughAtOnce) {
  Stream stream;
  stream.send(nullptr, 0, 1);
  stream.receive(nullptr, 0, 1);
  EXPECT_EQ(stream.sent(), 1u);
  EXPECT_EQ(stream.received(), 1u);
}

TEST(Stream, WhatComesBeforeItIsAwaitedWaits) {
  Stream from, to;
  const std::vector<std::byte> sent = some_bytes(100, 1);
  std::vector<std::byte> got(100);
  from.send(sent.data(), 100, 1);
  std::string bytes = take_output(from, 1000);
  EXPECT_EQ(give_input(to, bytes), bytes);
  to.receive(got.data(), 100, 1);
  EXPECT_EQ(give_input(to, bytes), "");
  EXPECT_EQ(got, sent);
}

// Every bit of a chunk counts.
TEST(Stream, AChunkThatWasChangedEndsTheStream) {
  const std::vector<std::byte> sent = some_bytes(3, 1);
  for (std::size_t bit = 0; bit < 8 * (Stream::kHeaderBytes + 3); ++bit) {
    Stream from, to;
    std::vector<std::byte> got(3);
    from.send(sent.data(), 3, 1);
    to.receive(got.data(), 3, 1);
    std::string bytes = take_output(from, 1000);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    give_input(to, bytes);
    EXPECT_NE(to.problem(), "") << bit;
    EXPECT_EQ(to.received(), 0u);
    EXPECT_TRUE(to.input().empty());
  }
}

// What the receiver expects, and what comes.
std::string problem_of(std::size_t expected, std::uint64_t sequence, std::size_t bytes) {
  Stream from, to;
  const std::vector<std::byte> sent = some_bytes(bytes, 1);
  std::vector<std::byte> got(expected);
  from.send(sent.data(), bytes, 7);
  to.receive(got.data(), expected, sequence);
  give_input(to, take_output(from, Stream::kHeaderBytes));  // it needs no data to know
  return to.problem();
}

TEST(Stream, AChunkOfAnotherPlaceEndsTheStream) {
  EXPECT_EQ(problem_of(10, 7, 10), "");
  EXPECT_NE(problem_of(10, 8, 10).find("sent 10 bytes at 0 of #7 where 10 at 0 of #8"),
            std::string::npos);
  EXPECT_NE(problem_of(11, 7, 10).find("sent 10 bytes at 0 of #7 where 11 at 0 of #7"),
            std::string::npos);
}

}}  // namespace c10d
