// SPDX-License-Identifier: BSD-3-Clause
// probe() and iprobe(): a message is seen, stays, and goes to the next recv.
#include <vector>

#include "tests/contract/ranks.h"

namespace c10d::contract { namespace {

class Probe : public OnBackend {
 public:
  // Of backends that can look.
  void run_probes(int size, const Body& body) const {
    run(size, [&](ProcessGroup& group) {
      try {
        static_cast<void>(group.iprobe(group.rank(), 99));
      } catch (const DistBackendError& error) {
        EXPECT_EQ(error.code(), Code::unsupported);
        EXPECT_NE(std::string_view(error.what()).find("cannot look"), std::string_view::npos);
        return expect_usable(group);
      }
      body(group);
    });
  }
};

// Lengths: within a line, within the ring, offered.
TEST_P(Probe, SaysWhoSentHowManyElementsAndLeavesTheMessage) {
  for (const std::size_t count : {0u, 3u, 3'000u, 3'000'000u}) {
    SCOPED_TRACE(count);
    run_probes(3, [&](ProcessGroup& group) {
      const std::vector<float> message(count, 7);
      if (group.rank() == 1) group.send(message, 0, 5);
      if (group.rank() == 0) {
        EXPECT_FALSE(group.iprobe(1, 6));
        EXPECT_FALSE(group.iprobe(2, 5));
        for (const int peer : {1, kAnySource, 1}) {
          const Received seen = group.probe(peer, 5);
          EXPECT_EQ(seen.source, 1);
          EXPECT_EQ(seen.count, count);
        }
        std::vector<float> output(group.probe(1, 5).count);
        EXPECT_EQ(group.recv(output, 1, 5).count, count);
        EXPECT_EQ(output, message);
        EXPECT_FALSE(group.iprobe(1, 5));
      }
      group.barrier();
    });
  }
}

TEST_P(Probe, SeesMessagesInTheOrderOfTheirSends) {
  run_probes(2, [](ProcessGroup& group) {
    if (group.rank() == 1)
      for (std::size_t i = 1; i <= 3; ++i) {
        const std::vector<int> message(i, 1);
        group.send(message, 0);
      }
    if (group.rank() == 0)
      for (std::size_t i = 1; i <= 3; ++i) {
        std::vector<int> output(group.probe(kAnySource).count);
        EXPECT_EQ(output.size(), i);
        group.recv(output, 1);
      }
    group.barrier();
  });
}

TEST_P(Probe, ThatTimesOutLeavesTheGroupIntact) {
  run_probes(2, [](ProcessGroup& group) {
    const CallOptions soon{.timeout = std::chrono::milliseconds(20)};
    EXPECT_EQ(code_of([&] { group.probe(1 - group.rank(), 0, soon); }), Code::timed_out);
    EXPECT_THROW(group.probe(2), InvalidArgument);
    EXPECT_THROW(static_cast<void>(group.iprobe(-2)), InvalidArgument);
    expect_usable(group);
  });
}

TEST_P(Probe, EndsWithTheGroupAndWithAPeerThatLeft) {
  run_probes(2, [](ProcessGroup& group) {
    const ProcessGroup other = group.new_group({0, 1});
    if (group.rank() == 1) {
      group.abort("enough");
      other.shutdown();
      return;
    }
    EXPECT_EQ(code_of([&] { group.probe(1); }), Code::revoked);
    EXPECT_EQ(code_of([&] { other.probe(1); }), Code::peer_left);
  });
}

C10D_ON_EACH_BACKEND(Probe);

}}  // namespace c10d::contract
