// SPDX-License-Identifier: BSD-3-Clause
// The record of the last ops as others read it: out of memory that may hold anything, as text and
// as JSON.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "src/control/make_control_plane.h"
#include "src/net/socket.h"
#include "src/recorder/format.h"

namespace c10d { namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::size_t kAll = kRecords;

Signature all_reduce_of(std::uint64_t count) {
  Signature signature;
  signature.kind = OpKind::all_reduce;
  signature.dtype = DType::f32;
  signature.count = count;
  return signature;
}

// The memory of a group of three: rank 0 waits in #2, rank 1 has done #1, rank 2 has not joined.
class Record : public testing::Test {
 protected:
  Record() {
    for (int rank = 0; rank < 2; ++rank) {
      RankBlock& one = block(rank);
      one.pid = 100 + rank;
      std::strcpy(one.host, "here");
      one.presence = Presence::joined;
      one.submitted = one.finished = 1;
      one.heartbeat_ns = 9 * kSecond;
      finish_record(one, start_record(one, 1, all_reduce_of(4), 2 * kSecond), true, 3 * kSecond);
    }
    block(0).submitted = 2;
    start_record(block(0), 2, all_reduce_of(8), 4 * kSecond);
  }
  GroupHeader& header() { return *reinterpret_cast<GroupHeader*>(memory_->data()); }
  RankBlock& block(int rank) { return blocks_of(header())[rank]; }
  std::span<const std::byte> image() const { return {memory_->data(), memory_->size()}; }

  const std::shared_ptr<SharedMapping> memory_ = memory_for({.size = 3, .group = "g"}, 0, 3);
};

TEST_F(Record, SaysWhereTheRanksAre) {
  const auto group = read_image(image());
  ASSERT_TRUE(group);
  EXPECT_EQ(places_of({&*group, 1}, 10 * kSecond),
            "group \"g\", 3 ranks\n"
            "  rank 0: in all_reduce(sum, f32 x 8) #2, for 6.000 s\n"
            "  rank 1: out of all_reduce(sum, f32 x 4) #1, has not entered #2, for 7.000 s\n");
}

TEST_F(Record, TakesThoseAtOnePlaceTogether) {
  block(0).presence = block(1).presence = Presence::left;
  block(2).presence = Presence::joined;
  write_cause(header(), {.code = Code::mismatch, .message = "they \"differ\"\n", .rank = 1});
  const auto group = read_image(image());
  ASSERT_TRUE(group);
  EXPECT_EQ(places_of({&*group, 1}, 10 * kSecond),
            "group \"g\", 3 ranks\n"
            "  ranks 0, 1: left the group\n"
            "  rank 2: no op yet, has not entered #2\n"
            "  it failed: mismatch: they \"differ\"?\n");
}

TEST_F(Record, NamesAProcessThatIsSilent) {
  const auto group = read_image(image());
  ASSERT_TRUE(group);
  EXPECT_NE(places_of({&*group, 1}, 30 * kSecond).find("no heartbeat for 21 s"), std::string::npos);
}

TEST_F(Record, ListsTheLastOpsOfEachRank) {
  const auto group = read_image(image());
  ASSERT_TRUE(group);
  const std::string text = text_of({&*group, 1}, 10 * kSecond, 1);
  EXPECT_NE(text.find("  rank 0 (host here, pid 100): entered 2 collectives, finished 1\n"
                      "    running  all_reduce(sum, f32 x 8) #2, 6.000000 s so far\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  rank 1 (host here, pid 101): entered 1 collectives, finished 1\n"
                      "    ok       all_reduce(sum, f32 x 4) #1, 1.000000 s, ended 7.000 s ago\n"),
            std::string::npos)
      << text;
}

TEST_F(Record, IsJsonToo) {
  const auto group = read_image(image());
  ASSERT_TRUE(group);
  const std::string json = json_of({&*group, 1}, 10 * kSecond, kAll);
  for (const char* part :
       {R"json("clock_s":10.000000000,"groups":[)json",
        R"json({"sequence":2,"op":"all_reduce","call":"all_reduce(sum, f32 x 8)",)json",
        R"json("dtype":"f32","reduce_op":"sum","count":8,"root":-1,"tag":0,"message":0,)json",
        R"json("state":"running","ready_s_ago":null,)json"
        R"json("started_s_ago":6.000000000,"ended_s_ago":null})json"})
    EXPECT_NE(json.find(part), std::string::npos) << json;
}

TEST_F(Record, MemoryThatIsNoGroupIsRefused) {
  EXPECT_FALSE(read_image(image().first(sizeof(GroupHeader) - 1)));
  EXPECT_FALSE(read_image(image().first(image().size() - 1))) << "a block is cut";
  header().ranks = 4;
  EXPECT_FALSE(read_image(image())) << "more blocks than the group has ranks";
  header().ranks = -1;
  EXPECT_FALSE(read_image(image()));
  header().ranks = 3;
  header().first_rank = 1;
  EXPECT_FALSE(read_image(image()));
  header().first_rank = 0;
  EXPECT_TRUE(read_image(image()));
  header().magic = 0;
  EXPECT_FALSE(read_image(image()));
}

TEST_F(Record, WhateverItsMemoryHoldsIsShownAsPrintableText) {
  std::minstd_rand random(7);
  const std::size_t fixed = offsetof(GroupHeader, group);
  for (int round = 0; round < 4; ++round) {
    for (std::size_t i = fixed; i < image().size(); ++i)
      memory_->data()[i] = static_cast<std::byte>(random() >> 8);
    header().state = round % 2 == 0 ? GroupHeader::broken : GroupHeader::intact;
    for (int rank = 0; rank < 3; ++rank) block(rank).presence = Presence::joined;
    const auto group = read_image(image());
    ASSERT_TRUE(group);
    for (const std::string& text : {places_of({&*group, 1}, 0), text_of({&*group, 1}, 0, kAll),
                                    json_of({&*group, 1}, 0, kAll)})
      for (const char c : text) ASSERT_TRUE(c == '\n' || (c >= 0x20 && c <= 0x7e)) << int{c};
  }
}

// Memory of this size costs nothing until it is touched, which attach() must not.
TEST(Attach, RefusesMoreMemoryThanItReadsAtOnce) {
  const pid_t self = getpid();
  const auto refusal = [&](std::size_t first, std::size_t second) -> std::string {
    const auto make = [](std::size_t bytes) {
      Fd fd(memfd_create(std::string(kControlMemory).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
      EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
      return fd;
    };
    const Fd small = make(first), large = make(second);  // looked at in this order
    try {
      attach({&self, 1});
    } catch (const DistBackendError& error) {
      EXPECT_EQ(error.failure().code, Code::out_of_resources);
      return error.what();
    }
    return "";
  };
  constexpr std::size_t kMost = std::size_t{1} << 30;
  EXPECT_EQ(refusal(1 << 16, 1 << 20), "");
  for (const std::string& said : {refusal(1 << 16, kMost + 1), refusal(1 << 16, kMost)}) {
    EXPECT_NE(said.find(fmt::format("process {} has a group", self)), said.npos) << said;
  }
}

// One memory for both ranks, two where they are taken to be on several hosts.
TEST(Attach, FindsTheGroupsOfAProcess) {
  for (const bool same_host : {true, false}) {
    const std::string name = same_host ? "near" : "far";
    const auto store = make_hash_store(std::chrono::seconds(60));
    std::vector<Member> members;
    for (int rank = 0; rank < 2; ++rank)
      members.push_back(
          {.rank = rank, .host = "localhost", .pid = getpid(), .same_host = same_host});
    std::shared_ptr<ControlPlane> planes[2];
    const auto join = [&](int rank) {
      planes[rank] = make_control_plane(
          {.rank = rank,
           .size = 2,
           .group = name,
           .members = members,
           .store = store,
           .token = {},
           .deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60)});
    };
    std::thread other([&] { join(1); });
    join(0);
    other.join();
    start_record(planes[0]->own_block(), 1, all_reduce_of(4), steady_ns());
    planes[0]->own_block().submitted = 1;
    const pid_t self = getpid();
    const std::vector<GroupRecord> groups = attach({&self, 1});
    for (const auto& plane : planes) unwatch(*plane);
    ASSERT_EQ(groups.size(), 1u);
    EXPECT_EQ(groups[0].group, name);
    EXPECT_EQ(groups[0].size, 2);
    ASSERT_EQ(groups[0].ranks.size(), 2u);
    EXPECT_EQ(groups[0].ranks[1].pid, self);
    ASSERT_EQ(groups[0].ranks[0].ops.size(), 1u);
    EXPECT_EQ(groups[0].ranks[0].ops[0].signature, all_reduce_of(4));
    EXPECT_TRUE(groups[0].ranks[1].ops.empty());
  }
}

}}  // namespace c10d
