// SPDX-License-Identifier: BSD-3-Clause
// What the judge finds.
#include <pthread.h>
#include <unistd.h>

#include "tests/fake_gpu/nccl_tests/world.h"

namespace {

TEST(Judge, FindsCallsOfADestroyedCommunicator) {
  run_into({}, "destroyed communicator", [](Me& me) {
    EXPECT_EQ(me.make(1), 0);
    EXPECT_EQ(me.api.comm_destroy(me.comm), 0);
    EXPECT_EQ(me.api.comm_destroy(me.comm), 4);
    const cu::Pointer p = me.put(std::vector<float>(1, 1));
    EXPECT_EQ(me.sum(p), 4);
  });
}

TEST(Judge, FindsAGraphOfADestroyedCommunicator) {
  World world;
  world.size = 1;
  run_into(world, "destroyed communicator", [](Me& me) {
    EXPECT_EQ(me.make(1), 0);
    const cu::Pointer p = me.put(std::vector<float>(1, 1)), q = me.bytes(4);
    cu::Graph graph = nullptr;
    cu::GraphExec exec = nullptr;
    EXPECT_EQ(me.gpu.stream_begin_capture(me.stream, cu::kCaptureThreadLocal), 0);
    EXPECT_EQ(me.api.all_gather(in(p), out(q), 1, F, me.comm, me.stream), 0);
    EXPECT_EQ(me.gpu.stream_end_capture(me.stream, &graph), 0);
    EXPECT_EQ(me.gpu.graph_instantiate(&exec, graph, 0), 0);
    EXPECT_EQ(me.api.comm_destroy(me.comm), 0);
    EXPECT_EQ(me.gpu.graph_launch(exec, me.stream), 0);
    EXPECT_EQ(me.stream_end(), 0);
    EXPECT_EQ(me.gpu.graph_exec_destroy(exec), 0);
    EXPECT_EQ(me.gpu.graph_destroy(graph), 0);
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
