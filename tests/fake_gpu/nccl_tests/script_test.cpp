// SPDX-License-Identifier: BSD-3-Clause
// What the script does to calls and ops.
#include <unistd.h>

#include <csignal>

#include "tests/fake_gpu/nccl_tests/world.h"

namespace {

// A call of the table without any argument.
template <class... A>
std::string said(nccl::Result (*function)(A...)) {
  return std::to_string(function(A{}...));
}
template <class... A>
std::string said(const char* (*function)(A...)) {
  return function(A{}...);
}

TEST(Script, WorksForEveryCallOfTheTable) {
  World world;
  world.version = "2.32.3";
  world.size = 1;
#define C10D_FAIL(since, member, symbol, ...) world.script += "rank 0: " #symbol " = 5; ";
  C10D_NCCL_FUNCTIONS(C10D_FAIL)
#undef C10D_FAIL
  run_clean(world, [](Me& me) {
#define C10D_CALL(since, member, symbol, ...) called[#symbol] = said(me.api.member);
    std::map<std::string, std::string> called;
    C10D_NCCL_FUNCTIONS(C10D_CALL)
#undef C10D_CALL
    EXPECT_EQ(called["ncclCommGetAsyncError"], "4");  // the script makes states, not results
    called.erase("ncclCommGetAsyncError");
    for (const auto& [symbol, result] : called) {
      const bool is_text = symbol == "ncclGetErrorString" || symbol == "ncclGetLastError";
      EXPECT_EQ(result, is_text ? "invalid usage (run with NCCL_DEBUG=WARN for details)" : "5")
          << symbol;
    }
  });
}

// One rank copies all its input: a dropped op leaves the output as it was.
TEST(Script, WorksForEveryOp) {
  World world;
  world.size = 1;
  const std::vector<std::string> names = {"ncclAllReduce",     "ncclReduce",    "ncclBroadcast",
                                          "ncclReduceScatter", "ncclAllGather", "ncclAlltoAll",
                                          "ncclGather",        "ncclScatter",   "ncclSend"};
  for (const std::string& name : names) world.script += "op " + name + " #2 = 0; ";
  run_clean(world, [&](Me& me) {
    EXPECT_EQ(me.make(1), 0);
    auto& a = me.api;
    const cu::Pointer from = me.put(std::vector<float>{1}), to = me.put(std::vector<float>{0});
    const auto ops = [&](const std::string& name) -> int {
      const auto sum = nccl::kSum;
      if (name == "ncclAllReduce")
        return a.all_reduce(in(from), out(to), 1, F, sum, me.comm, me.stream);
      if (name == "ncclReduce")
        return a.reduce(in(from), out(to), 1, F, sum, 0, me.comm, me.stream);
      if (name == "ncclBroadcast")
        return a.broadcast(in(from), out(to), 1, F, 0, me.comm, me.stream);
      if (name == "ncclReduceScatter")
        return a.reduce_scatter(in(from), out(to), 1, F, sum, me.comm, me.stream);
      if (name == "ncclAllGather") return a.all_gather(in(from), out(to), 1, F, me.comm, me.stream);
      if (name == "ncclAlltoAll") return a.all_to_all(in(from), out(to), 1, F, me.comm, me.stream);
      if (name == "ncclGather") return a.gather(in(from), out(to), 1, F, 0, me.comm, me.stream);
      if (name == "ncclScatter") return a.scatter(in(from), out(to), 1, F, 0, me.comm, me.stream);
      EXPECT_EQ(a.group_start(), 0);
      EXPECT_EQ(a.send(in(from), 1, F, 0, me.comm, me.stream), 0);
      EXPECT_EQ(a.recv(out(to), 1, F, 0, me.comm, me.stream), 0);
      return a.group_end();
    };
    for (const std::string& name : names) {
      for (const float expected : {1.0F, 0.0F, 1.0F}) {
        EXPECT_EQ(me.gpu.memset_d8_async(to, 0, 4, me.stream), 0);
        EXPECT_EQ(ops(name), 0) << name;
        EXPECT_EQ(me.get<float>(to, 1)[0], expected) << name;
      }
    }
    EXPECT_EQ(a.comm_destroy(me.comm), 0);
  });
}

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

// Also that which makes the communicator.
TEST(Script, HangsACallUntilAbort) {
  World world;
  world.size = 1;
  world.script = "ncclCommInitRankConfig #1 hang; ncclAllReduce hang; ncclCommSplit hang";
  run_clean(world, [](Me& me) {
    const cu::Pointer p = me.put(std::vector<float>(1, 1));
    nccl::Comm comm = nullptr, child = nullptr;
    const auto init = [&] {
      nccl::UniqueId id{};
      EXPECT_EQ(me.api.get_unique_id(&id), 0);
      nccl::Config config = me.config(1);
      return int(me.api.comm_init_rank_config(&comm, 1, id, 0, &config));
    };
    const auto ends_by_abort = [&](const std::function<int()>& call) {
      std::atomic<int> code{-1};
      std::thread caller([&] {
        EXPECT_EQ(me.gpu.ctx_push(me.context), 0);
        code = call();
      });
      const std::atomic_ref<nccl::Comm> made(comm);
      EXPECT_TRUE(soon([&] { return made != nullptr; }));
      EXPECT_FALSE(soon([&] { return code != -1; }, 50));
      EXPECT_EQ(me.api.comm_abort(made), 0);
      caller.join();
      EXPECT_EQ(code, nccl::kInternalError);
    };
    ends_by_abort(init);
    EXPECT_EQ(init(), 0);
    ends_by_abort([&] { return me.sum(comm, p); });
    EXPECT_EQ(init(), 0);
    ends_by_abort([&] { return int(me.api.comm_split(comm, 0, 0, &child, nullptr)); });
  });
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

}  // namespace
