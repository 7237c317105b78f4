// SPDX-License-Identifier: BSD-3-Clause
// Ranks that die, end or disagree; the script; the judge.
#include <csignal>

#include "tests/fake_gpu/nccl_tests/world.h"

namespace {

constexpr auto F = nccl::kFloat32;

// Of the process; its peers see it in their next op, or in the one that waits.
void survive(Me& me, int blocking) {
  EXPECT_EQ(me.make(blocking), 0);
  const cu::Pointer p = me.put(std::vector<float>(1, 1));
  me.sum(p);
  EXPECT_EQ(me.settle(), 0);
  EXPECT_EQ(me.stream_end(), 0);
  me.meet();
  if (me.rank == me.size - 1) raise(SIGKILL);
  me.sum(p);
  const auto start = std::chrono::steady_clock::now();
  nccl::Result state = nccl::kSuccess;
  EXPECT_TRUE(soon([&] {
    return me.api.comm_get_async_error(me.comm, &state) != 0 || state == nccl::kRemoteError;
  }));
  EXPECT_LT(ms_since(start), 3000);
  EXPECT_EQ(me.gpu.stream_query(me.stream), cu::kNotReady);
  EXPECT_EQ(me.sum(p), nccl::kRemoteError);
  EXPECT_EQ(me.api.comm_abort(me.comm), 0);
  EXPECT_EQ(me.stream_end(), 0);
  EXPECT_EQ(me.make(blocking, 1, me.size - 1), 0);
  const cu::Pointer q = me.put(std::vector<float>(1, 1));
  me.sum(q);
  EXPECT_EQ(me.settle(), 0);
  EXPECT_EQ(me.get<float>(q, 1)[0], float(me.size - 1));
  EXPECT_EQ(me.api.comm_destroy(me.comm), 0);
}

TEST(Kill, IsARemoteErrorForTheOthers) {
  for (const int size : {2, 4}) {
    World world;
    world.size = size;
    const auto ended = run(world, [&](Me& me) { survive(me, size == 4); });
    for (int rank = 0; rank < size - 1; ++rank) {
      EXPECT_TRUE(ended[std::size_t(rank)].is_clean()) << ended[std::size_t(rank)];
    }
    EXPECT_EQ(WTERMSIG(ended.back().status), SIGKILL);
  }
}

TEST(End, OfOneIsSeenByTheOther) {
  for (const auto as : {As::threads, As::processes}) {
    World world;
    world.as = as;
    run_clean(world, [](Me& me) {
      EXPECT_EQ(me.make(0), 0);
      const cu::Pointer p = me.put(std::vector<float>(1, 1));
      me.sum(p);
      EXPECT_EQ(me.settle(), 0);
      EXPECT_EQ(me.stream_end(), 0);
      me.meet();
      if (me.rank == 1) {
        EXPECT_EQ(me.api.comm_abort(me.comm), 0);
        return;
      }
      me.sum(p);
      EXPECT_TRUE(soon([&] { return me.settle() == nccl::kRemoteError; }));
      EXPECT_EQ(me.stream_end(50), cu::kNotReady);
      EXPECT_EQ(me.api.comm_abort(me.comm), 0);
      EXPECT_EQ(me.stream_end(), 0);
    });
  }
}

TEST(Init, OfARankThatNeverComesEndsByAbort) {
  World world;
  world.size = 1;
  run_clean(world, [](Me& me) {
    nccl::UniqueId id{};
    EXPECT_EQ(me.api.get_unique_id(&id), 0);
    nccl::Config config = me.config(0);
    EXPECT_EQ(me.api.comm_init_rank_config(&me.comm, 2, id, 0, &config), 7);
    EXPECT_EQ(me.settle(me.comm, 100), 7);
    EXPECT_EQ(me.api.comm_abort(me.comm), 0);
    // Blocking, ended by another thread.
    EXPECT_EQ(me.api.get_unique_id(&id), 0);
    std::atomic<int> code{-1};
    nccl::Comm comm = nullptr;
    std::atomic_ref<nccl::Comm> seen(comm);
    std::thread caller([&] {
      EXPECT_EQ(me.gpu.ctx_push(me.context), 0);
      nccl::Config blocking = me.config(1);
      code = me.api.comm_init_rank_config(&comm, 2, id, 0, &blocking);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_EQ(code, -1);
    EXPECT_EQ(me.api.comm_abort(seen), 0);
    caller.join();
    EXPECT_EQ(code, nccl::kInternalError);
  });
}

TEST(Counts, ThatDifferHangOrGiveRubbish) {
  run_clean({}, [](Me& me) {
    EXPECT_EQ(me.make(1), 0);
    const cu::Pointer p = me.put(std::vector<float>(100'000, 1));
    // One piece or two: the first rank goes on alone.
    const std::size_t count = me.rank == 0 ? 10 : 100'000;
    EXPECT_EQ(me.api.all_reduce(in(p), out(p), count, F, nccl::kSum, me.comm, me.stream), 0);
    EXPECT_EQ(me.stream_end(me.rank == 0 ? 5000 : 100), me.rank == 0 ? 0 : cu::kNotReady);
    nccl::Result state = nccl::kSystemError;
    EXPECT_EQ(me.api.comm_get_async_error(me.comm, &state), 0);
    EXPECT_EQ(state, nccl::kSuccess);
    me.meet();
    EXPECT_EQ(me.api.comm_abort(me.comm), 0);
    EXPECT_EQ(me.stream_end(), 0);
  });
}

TEST(Arguments, HaveTheCodesOfNccl) {
  World world;
  run_clean(world, [](Me& me) {
    const cu::Pointer p = me.put(std::vector<float>(4, 1));
    auto& a = me.api;
    EXPECT_EQ(me.sum(nullptr, p), nccl::kInvalidArgument);
    EXPECT_STREQ(a.get_last_error(nullptr), "AllReduce : comm argument is NULL");
    EXPECT_EQ(me.make(1), 0);
    const nccl::Comm blocking = me.comm;
    EXPECT_EQ(me.make(0, 1), 0);
    for (const nccl::Comm comm : {blocking, me.comm}) {
      const bool stays = comm != blocking;
      EXPECT_EQ(a.all_reduce(in(p), out(p), 4, nccl::DataType(12), nccl::kSum, comm, me.stream), 4);
      EXPECT_EQ(me.settle(comm), stays ? 4 : 0);
      EXPECT_EQ(a.all_reduce(in(p), out(p), 4, F, nccl::RedOp(5), comm, me.stream), 4);
      EXPECT_EQ(a.all_reduce(in(p), out(p), 4, F, nccl::RedOp(-1), comm, me.stream), 4);
      EXPECT_EQ(a.broadcast(in(p), out(p), 4, F, 2, comm, me.stream), 4);
      EXPECT_EQ(a.send(in(p), 4, F, -1, comm, me.stream), 4);
      EXPECT_EQ(me.settle(comm), stays ? 4 : 0);
    }
    EXPECT_EQ(a.comm_destroy(blocking), 0);
    EXPECT_EQ(a.comm_abort(me.comm), 0);
  });
}

// --- The script

TEST(Script, MakesCallsFail) {
  World world;
  world.script = "rank 1: ncclAllReduce #2 = 3";
  run_clean(world, [](Me& me) {
    EXPECT_EQ(me.make(0), 0);
    const cu::Pointer p = me.put(std::vector<float>(1, 1));
    EXPECT_EQ(me.sum(p), 7);
    EXPECT_EQ(me.settle(), 0);
    EXPECT_EQ(me.stream_end(), 0);
    EXPECT_EQ(me.sum(p), me.rank == 1 ? 3 : 7);
    EXPECT_EQ(me.settle(), me.rank == 1 ? 3 : 0);
    me.meet();
    EXPECT_EQ(me.api.comm_abort(me.comm), 0);
    EXPECT_EQ(me.stream_end(), 0);
  });
}

TEST(Script, HangsAnOpUntilAbort) {
  World world;
  world.script = "rank 1: op ncclAllReduce #2 hang; all: ncclCommAbort 100ms";
  for (const auto as : {As::threads, As::processes}) {
    world.as = as;
    run_clean(world, [](Me& me) {
      EXPECT_EQ(me.make(1), 0);
      const cu::Pointer p = me.put(std::vector<float>(1, 1));
      EXPECT_EQ(me.sum(p), 0);
      EXPECT_EQ(me.stream_end(), 0);
      EXPECT_EQ(me.sum(p), 0);
      EXPECT_EQ(me.stream_end(100), cu::kNotReady);
      me.meet();
      const auto start = std::chrono::steady_clock::now();
      EXPECT_EQ(me.api.comm_abort(me.comm), 0);
      EXPECT_GE(ms_since(start), 100);
      EXPECT_EQ(me.stream_end(), 0);
    });
  }
}

TEST(Script, IsStuckEvenForAbort) {
  World world;
  world.size = 2;
  world.script = "op ncclAllReduce hang for ever";
  world.gives_back = false;
  for (const Ended& ended : run(world, [](Me& me) {
         EXPECT_EQ(me.make(1), 0);
         const cu::Pointer p = me.put(std::vector<float>(1, 1));
         EXPECT_EQ(me.sum(p), 0);
         static std::atomic<bool> is_over{false};
         std::thread([comm = me.comm, abort = me.api.comm_abort] {
           abort(comm);
           is_over = true;
         }).detach();
         EXPECT_FALSE(soon([] { return is_over.load(); }, 200));
         std::fflush(nullptr);
         _exit(::testing::Test::HasFailure() ? 1 : 0);
       })) {
    EXPECT_EQ(ended.status, 0) << ended;
  }
}

TEST(Script, MakesAsyncErrors) {
  World world;
  world.script = "rank 0: ncclCommGetAsyncError #40 = 6";
  run_clean(world, [](Me& me) {
    EXPECT_EQ(me.make(1), 0);
    nccl::Result state = nccl::kSuccess;
    int asked = 0;
    for (; asked < 60 && state == nccl::kSuccess; ++asked) {
      EXPECT_EQ(me.api.comm_get_async_error(me.comm, &state), 0);
    }
    EXPECT_EQ(state, me.rank == 0 ? nccl::kRemoteError : nccl::kSuccess);
    EXPECT_EQ(me.api.comm_abort(me.comm), 0);
  });
}

TEST(Script, HidesAsyncErrors) {
  World world;
  world.script = "rank 0: ncclCommGetAsyncError = 0";
  const auto ended = run(world, [](Me& me) {
    EXPECT_EQ(me.make(1), 0);
    const cu::Pointer p = me.put(std::vector<float>(1, 1));
    EXPECT_EQ(me.sum(p), 0);
    EXPECT_EQ(me.stream_end(), 0);
    me.meet();
    if (me.rank == 1) raise(SIGKILL);
    EXPECT_EQ(me.sum(p), 0);
    EXPECT_EQ(me.stream_end(100), cu::kNotReady);
    EXPECT_EQ(me.settle(), 0);
    EXPECT_EQ(me.api.comm_abort(me.comm), 0);
    EXPECT_EQ(me.stream_end(), 0);
  });
  EXPECT_TRUE(ended[0].is_clean()) << ended[0];
}

TEST(Script, KillsAfterAnOp) {
  World world;
  world.script = "rank 1: kill after op ncclAllReduce #1";
  const auto ended = run(world, [](Me& me) {
    EXPECT_EQ(me.make(0), 0);
    const cu::Pointer p = me.put(std::vector<float>(1, 1));
    EXPECT_EQ(me.sum(p), 7);
    EXPECT_EQ(me.settle(), 0);
    EXPECT_EQ(me.stream_end(), 0);
    me.sum(p);
    EXPECT_TRUE(soon([&] { return me.settle() == nccl::kRemoteError; }));
    EXPECT_EQ(me.api.comm_abort(me.comm), 0);
  });
  EXPECT_TRUE(ended[0].is_clean()) << ended[0];
  EXPECT_EQ(WTERMSIG(ended[1].status), SIGKILL);
}

// --- The judge

TEST(Judge, FindsCallsOfADestroyedCommunicator) {
  run_into({}, "destroyed communicator", [](Me& me) {
    EXPECT_EQ(me.make(1), 0);
    EXPECT_EQ(me.api.comm_destroy(me.comm), 0);
    EXPECT_EQ(me.api.comm_destroy(me.comm), 4);
    const cu::Pointer p = me.put(std::vector<float>(1, 1));
    EXPECT_EQ(me.sum(p), 4);
  });
}

TEST(Judge, FindsGroupsThatAreNotEnded) {
  World world;
  world.size = 1;
  run_into(world, "unbalanced group",
           [](Me& me) { std::thread([&] { EXPECT_EQ(me.api.group_start(), 0); }).join(); });
  run_into(world, "unbalanced group", [](Me& me) { EXPECT_EQ(me.api.group_end(), 5); });
}

TEST(Judge, FindsCommunicatorsLeftAtExit) {
  World world;
  world.size = 1;
  const auto ended = run(world, [](Me& me) { EXPECT_EQ(me.make(1), 0); });
  EXPECT_TRUE(ended[0].has("\"left\":{\"communicator\":1}")) << ended[0];
}

TEST(Judge, FindsManagementInACapture) {
  World world;
  world.size = 1;
  run_into(world, "in a capture", [](Me& me) {
    EXPECT_EQ(me.make(1), 0);
    cu::Graph graph = nullptr;
    EXPECT_EQ(me.gpu.stream_begin_capture(me.stream, cu::kCaptureGlobal), 0);
    EXPECT_EQ(me.api.comm_destroy(me.comm), 0);
    EXPECT_NE(me.gpu.stream_end_capture(me.stream, &graph), 0);
  });
}

TEST(Judge, FindsMemoryDuringACollective) {
  run_into({}, "memory during a collective", [](Me& me) {
    EXPECT_EQ(me.make(1), 0);
    const cu::Pointer p = me.put(std::vector<float>(1, 1));
    EXPECT_EQ(me.sum(p), 0);
    EXPECT_EQ(me.stream_end(), 0);
    me.meet();
    void* at = nullptr;
    if (me.rank == 0) {
      EXPECT_EQ(me.sum(p), 0);
      EXPECT_EQ(me.api.mem_alloc(&at, 100), 0);
    }
    me.meet();
    if (me.rank == 1) {
      EXPECT_EQ(me.sum(p), 0);
    }
    EXPECT_EQ(me.stream_end(), 0);
    EXPECT_EQ(me.api.mem_free(at), 0);
    EXPECT_EQ(me.api.comm_destroy(me.comm), 0);
  });
}

// On one stream each: the ranks wait for one another for ever.
TEST(Judge, FindsAnotherOrderOfCommunicators) {
  for (const auto as : {As::threads, As::processes}) {
    World world;
    world.as = as;
    run_into(world, "launch order", [](Me& me) {
      EXPECT_EQ(me.make(1, 0), 0);
      nccl::Comm comms[2] = {me.comm, nullptr};
      EXPECT_EQ(me.make(1, 1), 0);
      comms[1] = me.comm;
      const cu::Pointer p = me.put(std::vector<float>(1, 1));
      for (const nccl::Comm comm : comms) EXPECT_EQ(me.sum(comm, p), 0);
      EXPECT_EQ(me.stream_end(), 0);
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(me.sum(comms[(i + me.rank) % 2], p), 0);
        me.meet();
      }
      EXPECT_EQ(me.stream_end(50), cu::kNotReady);
      EXPECT_EQ(me.api.group_start(), 0);
      for (const nccl::Comm comm : comms) EXPECT_EQ(me.api.comm_abort(comm), 0);
      EXPECT_EQ(me.api.group_end(), 0);
      EXPECT_EQ(me.stream_end(), 0);
      me.meet();
    });
  }
}

TEST(Judge, FindsHostMemory) {
  for (const Ended& ended : run({}, [](Me& me) {
         EXPECT_EQ(me.make(1), 0);
         static float host[4];
         EXPECT_EQ(me.api.all_reduce(host, host, 4, F, nccl::kSum, me.comm, me.stream), 0);
         EXPECT_EQ(me.stream_end(), cu::kIllegalAddress);
         std::fflush(nullptr);
         _exit(::testing::Test::HasFailure() ? 1 : 0);
       })) {
    EXPECT_EQ(ended.status, 0) << ended;
    EXPECT_TRUE(ended.has_only("illegal access")) << ended;
  }
}

TEST(Judge, FindsAnInitWithoutContext) {
  World world;
  world.size = 1;
  run_into(world, "no context", [](Me& me) {
    std::thread([&] {
      EXPECT_EQ(me.make(1), 0);
      cu::Context taken = nullptr;
      EXPECT_EQ(me.gpu.ctx_get_current(&taken), 0);
      EXPECT_EQ(taken, me.context);
      EXPECT_EQ(me.api.comm_destroy(me.comm), 0);
      EXPECT_EQ(me.gpu.primary_release(0), 0);
    }).join();
  });
}

TEST(Judge, FindsAWatcherThatBlocks) {
  World world;
  world.size = 1;
  world.script = "watcher = watcher";
  run_into(world, "watcher", [](Me& me) {
    EXPECT_EQ(me.make(1), 0);
    std::thread([&] {
      pthread_setname_np(pthread_self(), "watcher");
      nccl::Result state = nccl::kSuccess;
      EXPECT_EQ(me.api.comm_get_async_error(me.comm, &state), 0);
      EXPECT_EQ(me.api.comm_abort(me.comm), 0);
    }).join();
  });
}

}  // namespace
