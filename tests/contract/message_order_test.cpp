// SPDX-License-Identifier: BSD-3-Clause
// Point-to-point: messages match by (peer, tag, order), and several may be outstanding.
#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <string>

#include "tests/contract/ranks.h"

namespace c10d::contract { namespace {

class Messages : public OnBackend {};

using One = std::array<std::int32_t, 1>;

TEST_P(Messages, OfOnePeerAndTagKeepTheirOrder) {
  run(2, [](ProcessGroup& group) {
    constexpr int kMessages = 200;
    for (int i = 0; i < kMessages; ++i) {
      One data{i};
      if (group.rank() == 0) {
        group.send(data, 1, 5);
      } else {
        data[0] = -1;
        EXPECT_EQ(group.recv(data, 0, 5).source, 0);
        EXPECT_EQ(data[0], i);
      }
    }
  });
}

TEST_P(Messages, OfDifferentTagsAreTakenInAnyOrder) {
  run(2, [](ProcessGroup& group) {
    std::array<One, 3> data;
    std::vector<Work> works;
    if (group.rank() == 0) {
      for (int tag = 0; tag < 3; ++tag) {
        data[static_cast<std::size_t>(tag)] = {10 + tag};
        works.push_back(
            group.isend(data[static_cast<std::size_t>(tag)], 1, static_cast<std::uint32_t>(tag)));
      }
    } else {
      for (const int tag : {2, 0, 1}) {
        group.recv(data[static_cast<std::size_t>(tag)], 0, static_cast<std::uint32_t>(tag));
        EXPECT_EQ(data[static_cast<std::size_t>(tag)][0], 10 + tag);
      }
    }
    for (const Work& work : works) work.wait();
  });
}

TEST_P(Messages, CrossingSendsAndReceivesDoNotBlockEachOther) {
  run(2, [](ProcessGroup& group) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{1} << 20}) {
      std::vector<std::int32_t> out(count, group.rank() + 1), in(count);
      const Work sent = group.isend(out, 1 - group.rank());
      const Work received = group.irecv(in, 1 - group.rank());
      received.wait();
      sent.wait();
      EXPECT_EQ(in, std::vector<std::int32_t>(count, 2 - group.rank()));
    }
  });
}

TEST_P(Messages, DoNotDisturbCollectives) {
  run(3, [](ProcessGroup& group) {
    const int next = (group.rank() + 1) % 3, last = (group.rank() + 2) % 3;
    One out{group.rank()}, in{-1};
    const Work received = group.irecv(in, last, 1);
    expect_usable(group);
    const Work sent = group.isend(out, next, 1);
    expect_usable(group);
    received.wait();
    sent.wait();
    EXPECT_EQ(in[0], last);
    EXPECT_EQ(group.sequence(), 2u);
  });
}

TEST_P(Messages, FromAnySourceNameTheirSender) {
  run(3, [](ProcessGroup& group) {
    if (const Support support = group.supports({.op = OpKind::recv}); !support) return;
    if (group.rank() != 0) {
      const One data{100 + group.rank()};
      group.send(data, 0, 9);
      return;
    }
    std::set<int> sources;
    for (int i = 0; i < 2; ++i) {
      One data{};
      const Received received = group.recv(data, kAnySource, 9);
      sources.insert(received.source);
      EXPECT_EQ(received.count, 1u);
      EXPECT_EQ(data[0], 100 + received.source);
    }
    EXPECT_EQ(sources, (std::set<int>{1, 2}));
  });
}

// Sizes on both sides of what a backend sends at once.
TEST_P(Messages, ShorterThanTheBufferSayHowLongTheyAre) {
  run(2, [](ProcessGroup& group) {
    for (const std::size_t sent : {std::size_t{0}, std::size_t{3}, std::size_t{1} << 18}) {
      const std::vector<std::int32_t> out(sent, 7);
      std::vector<std::int32_t> in(sent + 1000, -1);
      for (const bool async : {false, true}) {
        if (group.rank() == 0) {
          group.send(out, 1);
          continue;
        }
        Received received;
        if (async) {
          const Work work = group.irecv(in, 0);
          work.wait();
          received = work.received();
        } else {
          received = group.recv(in, 0);
        }
        EXPECT_EQ(received.source, 0);
        EXPECT_EQ(received.count, sent);
        EXPECT_EQ(std::count(in.begin(), in.end(), 7), static_cast<std::ptrdiff_t>(sent));
        EXPECT_EQ(std::count(in.begin(), in.end(), -1), 1000) << "what follows keeps its values";
      }
    }
    expect_usable(group);
  });
}

TEST_P(Messages, LongerThanTheBufferAreAMismatchThatNamesBothLengths) {
  run(2, [](ProcessGroup& group) {
    std::vector<float> memory(2000);
    const auto exchange = [&] {
      if (group.rank() == 0)
        group.send(std::span(memory).first(1234), 1);
      else
        group.recv(std::span(memory).first(1000), 0);
      group.barrier();
    };
    const Failure failure = failure_of(exchange);
    EXPECT_EQ(failure.code, Code::mismatch);
    for (const char* count : {"1234", "1000"})
      EXPECT_NE(failure.message.find(count), std::string::npos) << failure.message;
  });
}

// Also a short one, which a backend might take over at once.
TEST_P(Messages, ToARankThatLeftFail) {
  Latch left(1);
  run(2, [&](ProcessGroup& group) {
    if (group.rank() == 1) {
      group.shutdown();
      left.count_down();
      return;
    }
    left.wait();
    const One data{1};
    const Failure failure = failure_of([&] { group.send(data, 1); });
    EXPECT_EQ(failure.code, Code::peer_left);
    EXPECT_EQ(failure.rank, 1);
    EXPECT_EQ(code_of([&] { group.isend(data, 1).wait(); }), Code::peer_left);
  });
}

TEST_P(Messages, GoRoundTheRing) {
  run(3, [](ProcessGroup& group) {
    const int next = (group.rank() + 1) % 3, previous = (group.rank() + 2) % 3;
    const std::vector<std::int64_t> out(1 << 17, group.rank());  // more than a send holds
    std::vector<std::int64_t> in(out.size());
    const Received received = group.sendrecv(out, next, in, previous, 5);
    EXPECT_EQ(received.source, previous);
    EXPECT_EQ(received.count, out.size());
    EXPECT_EQ(in, std::vector<std::int64_t>(out.size(), previous));
  });
}

TEST_P(Messages, OfNoElementsArrive) {
  run(2, [](ProcessGroup& group) {
    const View none(nullptr, 0, DType::f32);
    One marker{7};
    if (group.rank() == 0) {
      group.send(none, 1);
      group.send(marker, 1);
    } else {
      group.recv(none, 0);
      marker[0] = 0;
      group.recv(marker, 0);
      EXPECT_EQ(marker[0], 7);
    }
  });
}

C10D_ON_EACH_BACKEND(Messages);

// What rank 1 leaves in the channel of rank 0, on stderr in the end.
std::string said_of(int sent, int received) {
  testing::internal::CaptureStderr();
  run_ranks("native", 2, [&](ProcessGroup& group) {
    std::array<std::int32_t, 4> memory{};
    for (int i = 0; i < sent && group.rank() == 0; ++i) group.send(memory, 1, 7);
    for (int i = 0; i < received && group.rank() == 1; ++i) group.recv(memory, 0, 7);
    group.barrier();
  });
  return testing::internal::GetCapturedStderr();
}

TEST(UnreceivedMessages, AreToldOnceAtTheEndOfTheGroup) {
  EXPECT_EQ(said_of(5, 5), "");
  const std::string text = said_of(5, 2);
  EXPECT_NE(
      text.find(
          "3 messages from rank 0 to rank 1 were never received (tag 7, 16 bytes: the first)"),
      std::string::npos)
      << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_NE(
      said_of(1, 0).find("1 message from rank 0 to rank 1 was never received (tag 7, 16 bytes)"),
      std::string::npos);
  EXPECT_NE(said_of(200, 1).find("199 messages"), std::string::npos);
}

}}  // namespace c10d::contract
