// SPDX-License-Identifier: BSD-3-Clause
// Ranks that die, end or disagree, and wrong arguments.
#include <csignal>

#include "tests/fake_gpu/nccl_tests/world.h"

namespace {

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

// A rank that waits for a message, and one that waits for the others of its communicator.
TEST(Kill, EndsAMessageAndAnInit) {
  World world;
  world.size = 3;
  const auto ended = run(world, [](Me& me) {
    const auto becomes_remote_error = [&] {
      nccl::Result state = nccl::kSuccess;
      EXPECT_TRUE(soon([&] {
        return me.api.comm_get_async_error(me.comm, &state) != 0 || state == nccl::kRemoteError;
      }));
      EXPECT_EQ(me.api.comm_abort(me.comm), 0);
    };
    EXPECT_EQ(me.make(0), 0);
    const cu::Pointer p = me.put(std::vector<float>(1, 1));
    const auto move = [&] {
      return int(me.rank == 0 ? me.api.recv(out(p), 1, F, 2, me.comm, me.stream)
                              : me.api.send(in(p), 1, F, 0, me.comm, me.stream));
    };
    if (me.rank != 1) {
      EXPECT_EQ(move(), 7);
      EXPECT_EQ(me.settle(), 0);
      EXPECT_EQ(me.stream_end(), 0);
    }
    me.meet();
    if (me.rank == 0) {
      EXPECT_EQ(move(), 7);
      EXPECT_EQ(me.settle(), 0);
    }
    const nccl::Comm first = me.comm;
    if (me.rank > 0) {  // the third rank of this one never comes
      EXPECT_EQ(me.make(0, 1, 3, me.rank - 1, 100), 7);
    }
    me.meet();
    if (me.rank == 2) raise(SIGKILL);
    becomes_remote_error();
    EXPECT_EQ(me.stream_end(), 0);
    if (me.rank == 1) {
      EXPECT_EQ(me.api.comm_abort(first), 0);
    }
  });
  EXPECT_TRUE(ended[0].is_clean()) << ended[0];
  EXPECT_TRUE(ended[1].is_clean()) << ended[1];
  EXPECT_EQ(WTERMSIG(ended[2].status), SIGKILL);
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
    const std::atomic_ref<nccl::Comm> made(comm);
    std::thread caller([&] {
      EXPECT_EQ(me.gpu.ctx_push(me.context), 0);
      nccl::Config blocking = me.config(1);
      code = me.api.comm_init_rank_config(&comm, 2, id, 0, &blocking);
    });
    EXPECT_TRUE(soon([&] { return made != nullptr; }));
    EXPECT_FALSE(soon([&] { return code != -1; }, 100));
    EXPECT_EQ(me.api.comm_abort(made), 0);
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

}  // namespace
