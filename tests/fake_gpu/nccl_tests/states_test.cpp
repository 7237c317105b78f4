// SPDX-License-Identifier: BSD-3-Clause
// What communicators say of themselves, and how they begin, multiply and end.
#include <csignal>
#include <cstdio>
#include <set>

#include "tests/fake_gpu/nccl_tests/world.h"

namespace {

// What a library exports, as nm says it.
std::set<std::string> exported_by(const std::string& library) {
  std::set<std::string> names;
  const std::string command = NM " --dynamic --defined-only --format=just-symbols " + library;
  FILE* const lines = popen(command.c_str(), "r");
  if (!lines) return names;
  char name[256];
  while (std::fscanf(lines, "%255s", name) == 1) names.insert(name);
  EXPECT_EQ(pclose(lines), 0);
  return names;
}

TEST(Symbols, AreThoseOfTheVersion) {
  const std::map<std::string, int> versions = {
      {"2.18.3", 21803}, {"2.28.9", 22809}, {"2.32.3", 23203}};
  for (const auto& [version, of] : versions) {
    const int number = of;
    std::set<std::string> expected;
#define C10D_LIST(since, member, symbol, ...) \
  if (since <= number) expected.insert(#symbol);
    C10D_NCCL_FUNCTIONS(C10D_LIST)
#undef C10D_LIST
    EXPECT_EQ(exported_by(FAKE_NCCL_FOLDER "/libfake_nccl_" + version + ".so"), expected);
    World world;
    world.version = version;
    world.size = 1;
    run_clean(world, [&](Me& me) { EXPECT_EQ(me.api.version, number); });
  }
}

// In progress in every call, until it is asked often enough.
TEST(Nonblocking, IsInProgressForAWhile) {
  run_clean({}, [](Me& me) {
    if (me.rank == 0) {
      EXPECT_EQ(me.api.get_unique_id(&me.shared->id[0]), 0);
    }
    me.meet();
    nccl::Config config = me.config(0);
    EXPECT_EQ(me.api.comm_init_rank_config(&me.comm, 2, me.shared->id[0], me.rank, &config), 7);
    ASSERT_NE(me.comm, nullptr);
    nccl::Result state = nccl::kSuccess;
    EXPECT_EQ(me.api.comm_get_async_error(me.comm, &state), 0);
    EXPECT_EQ(state, nccl::kInProgress);
    EXPECT_EQ(me.settle(), 0);
    const cu::Pointer p = me.put(std::vector<float>(4, 1));
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(me.sum(p), 7);
      EXPECT_EQ(me.api.comm_get_async_error(me.comm, &state), 0);
      EXPECT_EQ(state, nccl::kInProgress);
      EXPECT_EQ(me.settle(), 0);
    }
    EXPECT_EQ(me.get<float>(p, 1)[0], 8);
    me.meet();
    EXPECT_EQ(me.api.comm_finalize(me.comm), 7);
    EXPECT_EQ(me.settle(), 0);
    EXPECT_EQ(me.api.comm_destroy(me.comm), 0);
  });
}

// What is behind the call on the stream is not behind the op until NCCL is ready.
TEST(Nonblocking, LaunchesLater) {
  run_clean({}, [](Me& me) {
    EXPECT_EQ(me.make(0), 0);
    const cu::Pointer p = me.put(std::vector<float>(4, 1));
    EXPECT_EQ(me.sum(p), 7);
    EXPECT_EQ(me.settle(), 0);
    EXPECT_EQ(me.stream_end(), 0);
    me.meet();
    if (me.rank == 0) {
      EXPECT_EQ(me.sum(p), 7);
      EXPECT_EQ(me.stream_end(), 0);
      EXPECT_EQ(me.settle(), 0);
      EXPECT_EQ(me.stream_end(50), cu::kNotReady);
    }
    me.meet();
    if (me.rank == 1) {
      EXPECT_EQ(me.sum(p), 7);
      EXPECT_EQ(me.settle(), 0);
    }
    EXPECT_EQ(me.stream_end(), 0);
    EXPECT_EQ(me.api.comm_destroy(me.comm), 0);
  });
}

TEST(Nonblocking, IsMisusedWhileInProgress) {
  run_into({}, "in progress", [](Me& me) {
    EXPECT_EQ(me.make(0), 0);
    const cu::Pointer p = me.put(std::vector<float>(4, 1));
    EXPECT_EQ(me.sum(p), 7);
    EXPECT_EQ(me.sum(p), nccl::kInvalidArgument);
    EXPECT_EQ(me.settle(), nccl::kInvalidArgument);
    EXPECT_EQ(me.sum(p), nccl::kInvalidArgument);
    EXPECT_EQ(me.api.comm_destroy(me.comm), nccl::kInvalidArgument);
    EXPECT_EQ(me.api.group_end(), 0);  // NCCL forgets one
    EXPECT_EQ(me.api.comm_abort(me.comm), 0);
  });
}

TEST(Init, RefusesTwoRanksOfOneDevice) {
  const auto body = [](Me& me) {
    me.gpu.ctx_pop(&me.context);
    EXPECT_EQ(me.gpu.primary_retain(&me.context, 0), 0);
    EXPECT_EQ(me.gpu.ctx_push(me.context), 0);
    const bool is_apart = getenv("APART") != nullptr;
    if (is_apart) setenv("NCCL_HOSTID", std::to_string(me.rank).c_str(), 1);
    const int state = me.make(0);
    EXPECT_EQ(state, is_apart ? 0 : nccl::kInvalidUsage);
    if (!is_apart) {
      EXPECT_NE(std::string(me.api.get_last_error(nullptr)).find("Duplicate GPU detected"),
                std::string::npos);
    }
    EXPECT_EQ(me.api.comm_abort(me.comm), 0);
    EXPECT_EQ(me.gpu.primary_release(0), 0);
    me.gpu.ctx_pop(&me.context);
    me.gpu.primary_retain(&me.context, me.rank);
    me.gpu.ctx_push(me.context);
    me.gpu.primary_release(me.rank);
  };
  run_clean({}, body);
  World apart;
  apart.environment["APART"] = "1";
  run_clean(apart, body);
}

TEST(Children, AreMadeBySplit) {
  for (const int blocking : {0, 1}) {
    World world;
    world.size = 4;
    world.as = blocking ? As::threads : As::processes;
    run_clean(world, [&](Me& me) {
      EXPECT_EQ(me.make(blocking), 0);
      for (int round = 0; round < 3; ++round) {
        // Rank 3 is left out; the others are in reverse order.
        nccl::Comm child = nullptr;
        const int color = me.rank == 3 ? nccl::kNoColor : 5;
        EXPECT_EQ(me.api.comm_split(me.comm, color, -me.rank, &child, nullptr), 0);
        EXPECT_EQ(me.settle(), 0);
        EXPECT_EQ(child == nullptr, me.rank == 3);
        if (!child) continue;
        EXPECT_EQ(me.settle(child), 0);
        int rank = -1, size = -1, device = -1;
        EXPECT_EQ(me.api.comm_user_rank(child, &rank), 0);
        EXPECT_EQ(me.api.comm_count(child, &size), 0);
        EXPECT_EQ(me.api.comm_cu_device(child, &device), 0);
        EXPECT_EQ(rank, 2 - me.rank);
        EXPECT_EQ(size, 3);
        EXPECT_EQ(device, me.rank);
        const cu::Pointer p = me.put(std::vector<float>(1, 1));
        me.sum(child, p);
        EXPECT_EQ(me.settle(child), 0);
        EXPECT_EQ(me.get<float>(p, 1)[0], 3);
        EXPECT_EQ(me.api.comm_destroy(child), 0);
      }
      EXPECT_EQ(me.api.comm_destroy(me.comm), 0);
    });
  }
}

TEST(Children, AreMadeByShrinkAfterAKill) {
  World world;
  world.size = 3;
  const auto ended = run(world, [](Me& me) {
    EXPECT_EQ(me.make(0), 0);
    me.meet();
    if (me.rank == 1) raise(SIGKILL);
    nccl::Comm child = nullptr;
    int dead[1] = {1};
    EXPECT_EQ(me.api.comm_shrink(me.comm, dead, 0, &child, nullptr, 0), nccl::kInvalidArgument);
    EXPECT_EQ(me.api.comm_shrink(me.comm, &me.rank, 1, &child, nullptr, 0), nccl::kInvalidArgument);
    EXPECT_EQ(me.api.comm_shrink(me.comm, dead, 1, &child, nullptr, nccl::kShrinkAbort), 0);
    EXPECT_EQ(me.settle(), 0);
    EXPECT_EQ(me.settle(child), 0);
    const cu::Pointer p = me.put(std::vector<float>(1, 1));
    me.sum(child, p);
    EXPECT_EQ(me.settle(child), 0);
    EXPECT_EQ(me.get<float>(p, 1)[0], 2);
    EXPECT_EQ(me.api.comm_abort(me.comm), 0);
    EXPECT_EQ(me.api.comm_destroy(child), 0);
  });
  EXPECT_TRUE(ended[0].is_clean()) << ended[0];
  EXPECT_TRUE(ended[2].is_clean()) << ended[2];
}

TEST(Revoke, EndsOpsAndLeavesTheRest) {
  run_clean({}, [](Me& me) {
    EXPECT_EQ(me.make(0), 0);
    const cu::Pointer p = me.put(std::vector<float>(1, 1));
    me.sum(p);
    EXPECT_EQ(me.settle(), 0);
    EXPECT_EQ(me.stream_end(), 0);
    me.meet();
    if (me.rank == 0) {
      me.sum(p);
      EXPECT_EQ(me.settle(), 0);
      EXPECT_EQ(me.stream_end(50), cu::kNotReady);
    }
    EXPECT_EQ(me.api.comm_revoke(me.comm, 1), nccl::kInvalidArgument);
    if (me.rank == 1) me.meet();  // the op of rank 0 does not see it revoke
    EXPECT_EQ(me.api.comm_revoke(me.comm, 0), 7);
    EXPECT_EQ(me.settle(), 0);
    EXPECT_EQ(me.stream_end(), 0);
    if (me.rank == 0) me.meet();
    EXPECT_EQ(me.sum(p), nccl::kInvalidUsage);
    nccl::Comm child = nullptr;
    EXPECT_EQ(me.api.comm_split(me.comm, 0, me.rank, &child, nullptr), 0);
    EXPECT_EQ(me.settle(), 0);
    EXPECT_EQ(me.settle(child), 0);
    me.sum(child, p);
    EXPECT_EQ(me.settle(child), 0);
    EXPECT_EQ(me.get<float>(p, 1)[0], 4);
    EXPECT_EQ(me.api.comm_destroy(child), 0);
    EXPECT_EQ(me.api.comm_destroy(me.comm), 0);
  });
}

// Two communicators whose ops wait on one stream end in a group only; before 2.22 not even there.
TEST(Group, AbortsTogether) {
  run_clean({}, [](Me& me) {
    EXPECT_EQ(me.make(0, 0), 0);
    const nccl::Comm first = me.comm;
    EXPECT_EQ(me.make(0, 1), 0);
    const cu::Pointer p = me.put(std::vector<float>(1, 1));
    for (int round = 0; round < 2; ++round) {
      if (round == 1 && me.rank == 1) break;
      for (const nccl::Comm comm : {first, me.comm}) {
        me.sum(comm, p);
        EXPECT_EQ(me.settle(comm), 0);
      }
      if (round == 0) {
        EXPECT_EQ(me.stream_end(), 0);
        me.meet();
      }
    }
    EXPECT_EQ(me.api.group_start(), 0);
    EXPECT_EQ(me.api.comm_abort(me.comm), 0);  // behind the first on the stream
    EXPECT_EQ(me.api.comm_abort(first), 0);
    EXPECT_EQ(me.api.group_end(), 0);
    EXPECT_EQ(me.stream_end(), 0);
    me.meet();
  });
}

TEST(Group, MakesCommunicatorsInOneThread) {
  World world;
  world.size = 1;
  run_clean(world, [](Me& me) {
    cu::Context other = nullptr;
    EXPECT_EQ(me.gpu.primary_retain(&other, 1), 0);
    nccl::UniqueId id{};
    EXPECT_EQ(me.api.get_unique_id(&id), 0);
    nccl::Comm comms[2] = {};
    cu::Pointer p[2];
    cu::Stream streams[2] = {me.stream, nullptr};
    EXPECT_EQ(me.api.group_start(), 0);
    for (int rank = 0; rank < 2; ++rank) {
      if (rank == 1) {
        EXPECT_EQ(me.gpu.ctx_push(other), 0);
        EXPECT_EQ(me.gpu.stream_create(&streams[1], cu::kStreamNonBlocking, 0), 0);
      }
      nccl::Config config = me.config(1);
      EXPECT_EQ(me.api.comm_init_rank_config(&comms[rank], 2, id, rank, &config), 0);
      p[rank] = 0;
      EXPECT_EQ(me.gpu.mem_alloc(&p[rank], 16), 0);
      EXPECT_EQ(me.gpu.memset_d8_async(p[rank], 0, 16, streams[rank]), 0);
    }
    EXPECT_EQ(me.api.group_end(), 0);
    EXPECT_EQ(me.api.group_start(), 0);
    for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(me.sum(comms[rank], p[rank], streams[rank]), 0);
    EXPECT_EQ(me.api.group_end(), 0);
    for (const auto& stream : streams) EXPECT_EQ(me.gpu.stream_synchronize(stream), 0);
    for (const auto& comm : comms) EXPECT_EQ(me.api.comm_destroy(comm), 0);
    EXPECT_EQ(me.gpu.stream_destroy(streams[1]), 0);
    EXPECT_EQ(me.gpu.mem_free(p[1]), 0);
    EXPECT_EQ(me.gpu.ctx_pop(&other), 0);
    EXPECT_EQ(me.gpu.mem_free(p[0]), 0);
    EXPECT_EQ(me.gpu.primary_release(1), 0);
  });
}

TEST(Graph, ReplaysACollective) {
  World world;
  world.as = As::threads;
  run_clean(world, [](Me& me) {
    EXPECT_EQ(me.make(0), 0);
    const cu::Pointer p = me.put(std::vector<float>(1, 1));
    cu::Graph graph = nullptr;
    cu::GraphExec exec = nullptr;
    EXPECT_EQ(me.gpu.stream_begin_capture(me.stream, cu::kCaptureThreadLocal), 0);
    EXPECT_EQ(me.sum(p), 7);
    EXPECT_EQ(me.settle(), 0);
    EXPECT_EQ(me.gpu.stream_end_capture(me.stream, &graph), 0);
    EXPECT_EQ(me.gpu.graph_instantiate(&exec, graph, 0), 0);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(me.gpu.graph_launch(exec, me.stream), 0);
    EXPECT_EQ(me.get<float>(p, 1)[0], 8);
    EXPECT_EQ(me.gpu.graph_exec_destroy(exec), 0);
    EXPECT_EQ(me.gpu.graph_destroy(graph), 0);
    EXPECT_EQ(me.api.comm_destroy(me.comm), 0);
  });
}

TEST(Memory, IsAllocatedAndRegistered) {
  run_clean({}, [](Me& me) {
    EXPECT_EQ(me.make(0), 0);
    void *at = nullptr, *handle = nullptr;
    nccl::Window window = nullptr;
    EXPECT_EQ(me.api.mem_alloc(&at, 100), 0);
    EXPECT_EQ(me.api.comm_register(me.comm, at, 100, &handle), 0);
    EXPECT_EQ(me.api.comm_deregister(me.comm, handle), 0);
    EXPECT_EQ(me.api.comm_deregister(me.comm, handle), nccl::kInvalidUsage);
    EXPECT_EQ(me.api.window_register(me.comm, at, 4096, &window, nccl::kWindowSymmetric), 0);
    EXPECT_EQ(me.settle(), 0);
    EXPECT_NE(window, nullptr);
    EXPECT_EQ(me.api.window_deregister(me.comm, window), 0);
    const cu::Pointer plain = me.bytes(4096);
    EXPECT_EQ(me.api.mem_free(out(plain)), nccl::kUnhandledCudaError);
    EXPECT_EQ(me.api.mem_free(at), 0);
    EXPECT_EQ(me.api.comm_destroy(me.comm), 0);
  });
}

}  // namespace
