// SPDX-License-Identifier: BSD-3-Clause
// The control plane with ranks as threads: once in shared memory, once over the mesh.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <latch>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "src/base/members.h"
#include "src/control/make_control_plane.h"
#include "src/recorder/flight_recorder.h"

namespace c10d { namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Plane = std::shared_ptr<ControlPlane>;
using Cause = std::shared_ptr<const Failure>;

Deadline in(Duration patience) { return steady_clock::now() + patience; }
constexpr std::chrono::seconds kLong{20};

std::array<float, 64> g_memory;
Op all_reduce_of(std::size_t count) {
  const View tensor(g_memory.data(), count, DType::f32);
  return AllReduce{tensor, tensor, {}};
}

// A call as the funnel makes it, with the bookkeeping of its record.
class Made {
 public:
  Made(ControlPlane& plane, int size, Op op, std::uint64_t sequence, Duration timeout = kLong)
      : op_(op),
        call_{op_, sequence, hash_of(signature_of(op_, size)), in(timeout), false, 0},
        plane_(plane) {
    call_.record = start_record(plane.own_block(), sequence, signature_of(op_, size), steady_ns());
    plane.own_block().submitted = sequence;
  }
  ~Made() { finish_record(plane_.own_block(), call_.record, true, steady_ns()); }
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;
  const Call& call() const { return call_; }

 private:
  const Op op_;
  Call call_;
  ControlPlane& plane_;
};

// Whether the group breaks soon, though nobody asks: the monitor looks.
bool breaks(const ControlPlane& plane) {
  const Deadline end = in(kLong);
  while (!plane.broken() && steady_clock::now() < end) std::this_thread::yield();
  return plane.broken();
}

class ControlPlanes : public testing::TestWithParam<bool> {
 protected:
  // Runs `body(plane, rank)` on each rank.
  void run(int size, const std::function<void(ControlPlane&, int)>& body) {
    store_ = make_prefix_store("g", make_hash_store(kLong));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        try {
          const Plane plane = make_control_plane({.rank = rank,
                                                  .size = size,
                                                  .group = "g",
                                                  .members = members(size),
                                                  .store = store_,
                                                  .token = {},
                                                  .deadline = in(kLong)});
          body(*plane, rank);
          plane->leave();
          unwatch(*plane);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
  }

  // All of this process; said to be on several hosts for the mesh.
  static std::vector<Member> members(int size) {
    std::vector<Member> all;
    for (int rank = 0; rank < size; ++rank)
      all.push_back({.rank = rank, .host = "localhost", .pid = getpid(), .same_host = GetParam()});
    return all;
  }

  std::shared_ptr<Store> store_;  // of the last run
};

TEST_P(ControlPlanes, EqualCallsAgree) {
  run(3, [](ControlPlane& plane, int rank) {
    std::mt19937 random(static_cast<unsigned>(rank));
    for (std::uint64_t sequence = 1; sequence <= 100; ++sequence) {
      const Made made(plane, 3, all_reduce_of(sequence % 7), sequence);
      if (random() % 4 == 0) std::this_thread::yield();
      EXPECT_EQ(plane.agree(made.call(), Control::Waiting::spin), nullptr);
    }
    EXPECT_FALSE(plane.broken());
    EXPECT_EQ(plane.failure(), nullptr);
  });
}

TEST_P(ControlPlanes, ABarrierNamesEveryMissingRankOfMany) {
  std::latch failed(1);
  run(40, [&](ControlPlane& plane, int rank) {
    if (rank == 0) {
      plane.barrier(in(milliseconds(200)));
      failed.count_down();
    }
    failed.wait();
    const Cause cause = plane.fail({.code = Code::revoked, .message = "the first one counts"});
    EXPECT_EQ(cause->code, Code::timed_out);
    EXPECT_EQ(cause->rank, 1);
    EXPECT_EQ(cause->message,
              "39 of 40 ranks did not reach monitored_barrier: ranks 1-39 (host localhost)");
  });
}

// What the library logs, as long as it lives.
class LogReader {
 public:
  LogReader() : before_(dup(STDERR_FILENO)) {
    EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0);
    dup2(ends_[1], STDERR_FILENO);
  }
  ~LogReader() {
    dup2(before_, STDERR_FILENO);
    for (const int fd : {before_, ends_[0], ends_[1]}) close(fd);
  }
  LogReader(const LogReader&) = delete;
  LogReader& operator=(const LogReader&) = delete;

  // All that was logged up to the first line with `text`, or until nothing more comes.
  std::string read_to(const std::string& text) {
    std::string log;
    for (pollfd ready{ends_[0], POLLIN, 0}; log.find(text) == log.npos;) {
      char bytes[1024];
      if (poll(&ready, 1, 20'000) <= 0) break;
      log.append(bytes, static_cast<std::size_t>(
                            std::max<ssize_t>(read(ends_[0], bytes, sizeof bytes), 0)));
    }
    return log;
  }

 private:
  const int before_;
  std::array<int, 2> ends_{};
};

// Returns when the monitor has looked so often.
void await_ticks(const RankBlock& block, int ticks) {
  const Deadline end = in(kLong);
  for (std::int64_t last = 0; ticks > 0 && steady_clock::now() < end; std::this_thread::yield()) {
    const std::int64_t beat = block.heartbeat_ns;
    if (std::exchange(last, beat) != beat) --ticks;
  }
}

TEST_P(ControlPlanes, AnOpThatRunsForASecondIsWarnedOfOnceWithWhoIsMissing) {
  std::latch warned(1);
  run(2, [&](ControlPlane& plane, int rank) {
    if (rank == 1) return warned.wait();
    LogReader log;
    std::string text;
    for (std::uint64_t sequence = 1; sequence <= 2; ++sequence) {
      const Op op = all_reduce_of(8);
      const std::int64_t start = steady_ns() - std::chrono::nanoseconds(kLateOp).count();
      const auto record = start_record(plane.own_block(), sequence, signature_of(op, 2), start);
      plane.own_block().submitted = sequence;
      text += log.read_to(fmt::format("#{} runs for", sequence));
      await_ticks(plane.own_block(), 50);
      finish_record(plane.own_block(), record, true, steady_ns());
    }
    warned.count_down();
    EXPECT_EQ(std::ranges::count(text, '\n'), 2) << text;
    const std::string who = "runs for 1 s; not there yet: rank 1 (host localhost";
    for (const int sequence : {1, 2})
      EXPECT_NE(text.find(fmt::format("all_reduce #{} {}", sequence, who)), std::string::npos)
          << text;
  });
}

Cause announce(ControlPlane& plane, const Made& made) {
  return plane.announce_in_order(made.call(), signature_of(made.call().op, 2));
}

TEST_P(ControlPlanes, ARankLeadsByAsManyCallsAsThereAreSlots) {
  std::latch tried(1);
  run(2, [&](ControlPlane& plane, int rank) {
    constexpr std::uint64_t kLast = 2 * kAnnounced;
    if (rank == 0) {
      for (std::uint64_t sequence = 1; sequence <= kAnnounced; ++sequence)
        EXPECT_EQ(announce(plane, Made(plane, 2, all_reduce_of(sequence % 7), sequence)), nullptr);
      EXPECT_EQ(plane.poll_enqueued(1), Control::Agreement::pending);
      tried.count_down();
    } else {
      tried.wait();
      for (std::uint64_t sequence = 1; sequence <= kAnnounced; ++sequence)
        EXPECT_EQ(announce(plane, Made(plane, 2, all_reduce_of(sequence % 7), sequence)), nullptr);
    }
    for (std::uint64_t sequence = kAnnounced + 1; sequence <= kLast; ++sequence)
      EXPECT_EQ(announce(plane, Made(plane, 2, all_reduce_of(sequence % 7), sequence)), nullptr);
    const Deadline end = in(kLong);
    while (plane.poll_enqueued(kLast) != Control::Agreement::agreed && steady_clock::now() < end)
      std::this_thread::yield();
    EXPECT_EQ(plane.poll_enqueued(kLast), Control::Agreement::agreed);
    EXPECT_FALSE(plane.broken());
  });
}

TEST_P(ControlPlanes, ARankThatIsTooFarAheadTimesOutAndNamesTheOther) {
  std::latch failed(1);
  run(2, [&](ControlPlane& plane, int rank) {
    if (rank == 0) {
      for (std::uint64_t sequence = 1; sequence <= kAnnounced; ++sequence)
        EXPECT_EQ(announce(plane, Made(plane, 2, all_reduce_of(8), sequence)), nullptr);
      const Made last(plane, 2, all_reduce_of(8), kAnnounced + 1, milliseconds(100));
      const Cause cause = announce(plane, last);
      failed.count_down();
      if (!cause) return ADD_FAILURE() << "it leads by more";
      EXPECT_EQ(cause->code, Code::timed_out);
      EXPECT_EQ(cause->rank, 1);
    }
    failed.wait();
    EXPECT_TRUE(breaks(plane));
  });
}

TEST_P(ControlPlanes, ADifferenceThatIsComparedBehindBreaksTheGroupOnEveryRank) {
  run(2, [&](ControlPlane& plane, int rank) {
    EXPECT_EQ(announce(plane, Made(plane, 2, all_reduce_of(8), 1)), nullptr);
    const Made made(plane, 2, all_reduce_of(rank == 0 ? 8 : 9), 2);
    const Cause at_once = announce(plane, made);
    if (at_once) {
      EXPECT_EQ(at_once->code, Code::mismatch);
    }
    if (!breaks(plane)) return ADD_FAILURE() << "nobody compared";
    const Cause cause = plane.failure();
    EXPECT_EQ(cause->code, Code::mismatch);
    for (const char* call : {"all_reduce(sum, f32 x 8) #2", "all_reduce(sum, f32 x 9) #2"})
      EXPECT_NE(cause->message.find(call), std::string::npos) << cause->message;
    EXPECT_EQ(plane.poll_enqueued(2), Control::Agreement::failed);
  });
}

// Rank 0 sends two elements more than rank 1 expects; what each sends itself fits.
TEST_P(ControlPlanes, CountsThatDoNotFitAreFoundBehindTheCall) {
  for (const std::size_t sent : {3, 5})
    run(2, [&](ControlPlane& plane, int rank) {
      const std::array<std::size_t, 2> sends =
          rank == 0 ? std::array<std::size_t, 2>{1, sent} : std::array<std::size_t, 2>{4, 2};
      const std::array<std::size_t, 2> expects =
          rank == 0 ? std::array<std::size_t, 2>{1, 4} : std::array<std::size_t, 2>{3, 2};
      const View tensor(g_memory.data(), 8, DType::f32);
      const Made made(plane, 2, AllToAllV{tensor, tensor, expects, sends}, 1);
      announce(plane, made);
      const Deadline end = in(kLong);
      while (plane.poll_enqueued(1) == Control::Agreement::pending && steady_clock::now() < end)
        std::this_thread::yield();
      EXPECT_EQ(plane.broken(), sent != 3);
      if (sent == 3) return;
      EXPECT_EQ(plane.failure()->code, Code::mismatch);
      EXPECT_NE(plane.failure()->message.find("all_to_all_v #1 with counts that do not fit"),
                std::string::npos)
          << plane.failure()->message;
    });
}

TEST_P(ControlPlanes, AnOddCallIsTheSameMismatchOnEveryRank) {
  for (int odd = 0; odd < 3; ++odd) {
    std::mutex mutex;
    std::vector<Failure> causes;
    run(3, [&](ControlPlane& plane, int rank) {
      const Made made(plane, 3, all_reduce_of(rank == odd ? 9 : 8), 1);
      Cause cause = plane.agree(made.call(), Control::Waiting::spin);
      if (!cause) cause = plane.failure();
      ASSERT_NE(cause, nullptr) << "rank " << rank;
      const std::lock_guard lock(mutex);
      causes.push_back(*cause);
    });
    ASSERT_EQ(causes.size(), 3u);
    for (const Failure& cause : causes) {
      EXPECT_EQ(cause.code, Code::mismatch);
      EXPECT_EQ(cause.message, causes.front().message);
      EXPECT_NE(cause.message.find("x 8"), cause.message.npos) << cause.message;
      EXPECT_NE(cause.message.find("x 9"), cause.message.npos) << cause.message;
      EXPECT_EQ(cause.op, "all_reduce");
      EXPECT_EQ(cause.sequence, 1u);
      EXPECT_EQ(cause.group, "g");
      EXPECT_NE(cause.rank, -1);
    }
  }
}

TEST_P(ControlPlanes, AnOddCallIsToldApartFromThoseThatAgree) {
  for (const int odd : {0, 1, 3}) {
    std::latch announced(3);
    run(4, [&](ControlPlane& plane, int rank) {
      const Made made(plane, 4, all_reduce_of(rank == odd ? 9 : 8), 1);
      if (rank != odd) {
        plane.announce(made.call());
        announced.count_down();
      }
      announced.wait();
      Cause cause = plane.agree(made.call(), Control::Waiting::spin);
      if (!cause) cause = plane.failure();
      ASSERT_NE(cause, nullptr) << "rank " << rank;
      EXPECT_EQ(cause->rank, odd);
      const std::string others = odd == 0 ? "1-3" : odd == 1 ? "0, 2, 3" : "0-2";
      EXPECT_EQ(cause->message.find("rank " + std::to_string(odd) + " disagrees with " + others),
                0u)
          << cause->message;
    });
  }
}

// All ranks hear of it, and their own messages are others.
TEST_P(ControlPlanes, ATimeoutOfAMessageSaysWhoseItIs) {
  run(3, [](ControlPlane& plane, int rank) {
    if (rank == 1) {
      const View output(g_memory.data(), 8, DType::f32);
      const Made made(plane, 3, Recv{output, 2, 77}, 5);
      plane.fail(plane.timed_out(made.call(), "waiting for the send"));
    }
    ASSERT_TRUE(breaks(plane));
    const std::string message = plane.failure()->message;
    EXPECT_EQ(message.find("the deadline of recv(f32 x 8, from 2, tag 77) #5 of rank 1 (host "
                           "localhost, pid "),
              0u)
        << message;
    EXPECT_NE(message.find("waiting for the send; missing: rank 2 (host"), message.npos) << message;
    EXPECT_EQ(plane.failure()->rank, 2);
  });
}

TEST_P(ControlPlanes, CountsOfAllToAllMustFitPairwise) {
  run(2, [](ControlPlane& plane, int rank) {
    const std::vector<std::size_t> fit{3, 3}, too_many{4, 3};
    const View out(g_memory.data(), 6, DType::f32);
    for (std::uint64_t sequence = 1; sequence <= 2; ++sequence) {
      const bool bad = sequence == 2 && rank == 1;
      const Made made(plane, 2, AllToAllV{out, out, fit, bad ? too_many : fit}, sequence);
      const Cause cause = plane.agree(made.call(), Control::Waiting::spin);
      ASSERT_EQ(cause == nullptr, sequence == 1);
      if (!cause) continue;
      EXPECT_EQ(cause->code, Code::mismatch);
      EXPECT_NE(cause->message.find("= 4"), cause->message.npos) << cause->message;
      EXPECT_NE(cause->message.find("= 3"), cause->message.npos) << cause->message;
    }
  });
}

TEST_P(ControlPlanes, AgreementMayBePolled) {
  std::latch polled(1);
  run(2, [&](ControlPlane& plane, int rank) {
    const Made first(plane, 2, all_reduce_of(4), 1);
    if (rank == 1) polled.wait();
    plane.announce(first.call());
    if (rank == 0) {
      EXPECT_EQ(plane.poll_agreement(first.call()), Control::Agreement::pending);
      polled.count_down();
    }
    Control::Agreement agreement;
    while ((agreement = plane.poll_agreement(first.call())) == Control::Agreement::pending)
      std::this_thread::yield();
    EXPECT_EQ(agreement, Control::Agreement::agreed);
    const Made second(plane, 2, all_reduce_of(rank == 0 ? 4 : 5), 2);
    plane.announce(second.call());
    while ((agreement = plane.poll_agreement(second.call())) == Control::Agreement::pending)
      std::this_thread::yield();
    EXPECT_EQ(agreement, Control::Agreement::failed);
    EXPECT_EQ(plane.failure()->code, Code::mismatch);
  });
}

// Two ranks give up at the same time: what the one writes of rank 1 is no arrival to the other.
TEST_P(ControlPlanes, ARankThatDoesNotEnterIsNamed) {
  std::latch failed(2), entered(2);
  run(3, [&](ControlPlane& plane, int rank) {
    if (rank == 1) {
      failed.wait();
      EXPECT_EQ(plane.resolve_cause({.code = Code::corrupt}, kLong)->code, Code::timed_out);
      return;
    }
    const Made made(plane, 3, all_reduce_of(4), 1, milliseconds(0));
    plane.announce(made.call());
    entered.arrive_and_wait();
    const Cause cause = plane.agree(made.call(), Control::Waiting::spin);
    ASSERT_NE(cause, nullptr);
    EXPECT_EQ(cause->code, Code::timed_out);
    EXPECT_EQ(cause->rank, 1);
    EXPECT_EQ(cause->pid, getpid());
    EXPECT_NE(cause->message.find("rank 1 (host localhost"), cause->message.npos) << cause->message;
    failed.count_down();
  });
}

// Rank 0 enters and gives up at once; rank 1 sees later that all have entered. It must not go into
// the op alone: a wrapped library may wait for rank 0 for ever.
TEST_P(ControlPlanes, ACallThatOneRankGaveUpGoesThroughOnNone) {
  std::latch gave_up(1);
  run(2, [&](ControlPlane& plane, int rank) {
    if (rank == 1) gave_up.wait();
    const Made made(plane, 2, all_reduce_of(4), 1,
                    rank == 0 ? milliseconds(0) : duration_cast<milliseconds>(kLong));
    const Cause cause = plane.agree(made.call(), Control::Waiting::spin);
    if (rank == 0) gave_up.count_down();
    ASSERT_NE(cause, nullptr) << "rank " << rank;
    EXPECT_EQ(cause->code, Code::timed_out);
  });
}

// Rank 0 has announced the first of three calls; the others make all three before it looks at them.
// What they do after the first has failed, or the group broke, must not decide on the first.
class LaterCalls : public ControlPlanes {
 protected:
  // Whether rank 0 goes into its first call.
  bool rank_0_goes(bool agrees) {
    std::latch announced(1), over(2);
    std::atomic<bool> goes = false;
    run(3, [&](ControlPlane& plane, int rank) {
      const auto count = [&](std::uint64_t sequence) -> std::size_t {
        return rank == 0 && !agrees ? 10 : sequence;
      };
      const Made first(plane, 3, all_reduce_of(count(1)), 1);
      if (rank == 0) {
        plane.announce(first.call());
        announced.count_down();
        over.wait();
        goes = plane.agree(first.call(), Control::Waiting::spin) == nullptr;
        EXPECT_TRUE(breaks(plane));
        return;
      }
      announced.wait();
      const Cause cause = plane.agree(first.call(), Control::Waiting::spin);
      EXPECT_EQ(cause == nullptr, agrees);
      plane.fail({.code = Code::revoked, .message = "enough"});
      for (std::uint64_t sequence = 2; sequence <= 3; ++sequence) {
        const Made made(plane, 3, all_reduce_of(count(sequence)), sequence);
        EXPECT_NE(plane.agree(made.call(), Control::Waiting::spin), nullptr);
      }
      over.count_down();
    });
    return goes;
  }
};

TEST_P(LaterCalls, LetNobodyIntoAMismatch) { EXPECT_FALSE(rank_0_goes(false)); }
TEST_P(LaterCalls, KeepNobodyOutOfACall) { EXPECT_TRUE(rank_0_goes(true)); }

// Both ranks enter a call that a third party has given up, and dies before it says why.
TEST_P(ControlPlanes, NobodyIsNamedWhereNobodyKnowsWhoGaveUp) {
  if (!GetParam()) GTEST_SKIP() << "over the mesh the rank that gave up is asked";
  std::latch marked(1);
  run(2, [&](ControlPlane& plane, int rank) {
    if (rank == 0) {
      GroupHeader& header = *(reinterpret_cast<GroupHeader*>(&plane.own_block()) - 1);
      header.gates[static_cast<std::size_t>(Gate::calls)].abandoned = 1;
      header.gates[static_cast<std::size_t>(Gate::calls)].decided = 2;
      marked.count_down();
    }
    marked.wait();
    const Made made(plane, 2, all_reduce_of(4), 1);
    const Cause cause = plane.agree(made.call(), Control::Waiting::spin);
    ASSERT_NE(cause, nullptr);
    EXPECT_EQ(cause->code, Code::timed_out);
    EXPECT_EQ(cause->rank, -1) << cause->message;
    EXPECT_EQ(cause->message.find("rank 0"), cause->message.npos) << cause->message;
    EXPECT_EQ(cause->message.find("rank 1"), cause->message.npos) << cause->message;
  });
}

TEST_P(ControlPlanes, TheFirstOfManyFailuresWinsEverywhere) {
  for (int round = 0; round < 10; ++round) {
    std::latch start(8);
    std::mutex mutex;
    std::vector<Failure> seen;
    run(2, [&](ControlPlane& plane, int rank) {
      std::vector<std::thread> threads;
      for (int i = 0; i < 4; ++i)
        threads.emplace_back([&, i] {
          start.arrive_and_wait();
          const Cause cause = plane.fail({.code = Code::link_lost,
                                          .message = "cable",
                                          .rank = 4 * rank + i,
                                          .host = "there",
                                          .pid = 100 + 4 * rank + i,
                                          .op = "recv",
                                          .sequence = 12});
          const std::lock_guard lock(mutex);
          seen.push_back(*cause);
        });
      for (std::thread& thread : threads) thread.join();
      EXPECT_TRUE(plane.broken());
    });
    ASSERT_EQ(seen.size(), 8u);
    for (const Failure& cause : seen) {
      EXPECT_EQ(cause.rank, seen.front().rank);
      EXPECT_EQ(cause.pid, 100 + cause.rank);
      EXPECT_EQ(cause.code, Code::link_lost);
      EXPECT_EQ(cause.message, "cable");
      EXPECT_EQ(cause.host, "there");
      EXPECT_EQ(cause.op, "recv");
      EXPECT_EQ(cause.sequence, 12u);
    }
  }
}

TEST_P(ControlPlanes, LongTextsAreCutNotSpilt) {
  run(2, [](ControlPlane& plane, int rank) {
    if (rank == 0)
      plane.fail({.code = Code::corrupt,
                  .message = std::string(100000, 'm'),
                  .host = std::string(1000, 'h'),
                  .op = "op"});
    const Cause cause = plane.resolve_cause({.code = Code::link_lost}, kLong);
    EXPECT_EQ(cause->code, Code::corrupt);
    EXPECT_TRUE(cause->message.starts_with("mmmm"));
    EXPECT_EQ(cause->message.find_first_not_of('m'), cause->message.npos);
    EXPECT_EQ(cause->host.find_first_not_of('h'), cause->host.npos);
  });
}

TEST_P(ControlPlanes, ExplainPrefersEvidence) {
  std::latch explaining(1);
  run(2, [&](ControlPlane& plane, int rank) {
    if (rank == 0) {
      explaining.wait();
      plane.fail({.code = Code::peer_died, .message = "evidence", .rank = 1});
    } else {
      explaining.count_down();
      EXPECT_EQ(plane.resolve_cause({.code = Code::link_lost}, kLong)->message, "evidence");
    }
  });
  run(1, [&](ControlPlane& plane, int) {
    EXPECT_EQ(
        plane.resolve_cause({.code = Code::link_lost, .message = "else"}, milliseconds(5))->message,
        "else");
  });
}

TEST_P(ControlPlanes, ABarrierCountsRoundsAndNamesAllThatAreMissing) {
  std::latch failed(2);
  std::atomic<ControlPlane*> second = nullptr;
  run(4, [&](ControlPlane& plane, int rank) {
    if (rank == 2) second = &plane;
    for (int round = 0; round < 20; ++round) EXPECT_EQ(plane.barrier(in(kLong)), nullptr);
    if (rank == 1 || rank == 3) {
      failed.wait();
      return;
    }
    if (rank == 0)  // rank 2 is there
      while (second.load()->own_block().barriers.load() < 21) std::this_thread::yield();
    const Cause cause = plane.barrier(rank == 0 ? in(milliseconds(0)) : in(kLong));
    ASSERT_NE(cause, nullptr);
    EXPECT_EQ(cause->code, Code::timed_out);
    EXPECT_NE(cause->message.find("rank 1 "), cause->message.npos) << cause->message;
    EXPECT_NE(cause->message.find("rank 3 "), cause->message.npos) << cause->message;
    EXPECT_EQ(cause->message.find("rank 2 "), cause->message.npos) << cause->message;
    failed.count_down();
  });
}

// As for a call: beyond the barrier a library may wait for rank 0 for ever.
TEST_P(ControlPlanes, ABarrierThatOneRankGaveUpIsPassedByNone) {
  std::latch gave_up(1);
  run(2, [&](ControlPlane& plane, int rank) {
    EXPECT_EQ(plane.barrier(in(kLong)), nullptr);
    if (rank == 1) gave_up.wait();
    const Cause cause = plane.barrier(rank == 0 ? in(milliseconds(0)) : in(kLong));
    if (rank == 0) gave_up.count_down();
    ASSERT_NE(cause, nullptr) << "rank " << rank;
    EXPECT_EQ(cause->code, Code::timed_out);
  });
}

INSTANTIATE_TEST_SUITE_P(Each, ControlPlanes, testing::Values(true, false),
                         [](const auto& of) { return of.param ? "SharedMemory" : "Mesh"; });
INSTANTIATE_TEST_SUITE_P(Each, LaterCalls, testing::Values(true, false),
                         [](const auto& of) { return of.param ? "SharedMemory" : "Mesh"; });

TEST(Names, OfManyRanksTellAllInLittleRoom) {
  std::vector<Member> members;
  std::vector<int> odd, most;
  for (int rank = 0; rank < 2048; ++rank) {
    members.push_back({.rank = rank, .host = rank < 1024 ? "a" : "b", .pid = 7});
    if (rank % 2 == 1) odd.push_back(rank);
    if (rank != 4 && rank != 7 && rank != 1500) most.push_back(rank);
  }
  EXPECT_EQ(names_of(members, {}), "");
  EXPECT_EQ(names_of(members, {3, 1024}), "rank 3 (host a, pid 7), rank 1024 (host b, pid 7)");
  EXPECT_EQ(names_of(members, most),
            "ranks 0-3, 5, 6, 8-1023 (host a), ranks 1024-1499, 1501-2047 (host b)");
  EXPECT_LT(names_of(members, odd).size(), sizeof SharedFailure::message - 100);
}

}}  // namespace c10d
