// SPDX-License-Identifier: BSD-3-Clause
// The promises of the public headers on memory of GPUs. CMake runs it on the stand-ins for the
// driver and for NCCL: each rank has a GPU of its own.
#include <array>
#include <future>
#include <numeric>
#include <vector>

#include "c10d/cuda.h"
#include "tests/contract/ranks.h"

namespace c10d::contract { namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Numbers = std::vector<std::int32_t>;
using OfGpu = Buffer<std::int32_t>;

constexpr milliseconds kShort{300};

// The GPU of this rank: memory on it, and a stream of its own.
class Gpu {
 public:
  explicit Gpu(const ProcessGroup& group) : device_(group.device().index), stream_(device_) {}

  OfGpu make(const Numbers& numbers) const {
    auto memory = cuda::device_allocate<std::int32_t>(numbers.size(), device_);
    cuda::copy(memory, numbers, stream_);
    stream_.synchronize();
    return memory;
  }
  // What is there once all before it on the stream is done.
  Numbers read(const OfGpu& memory) const { return read(memory, stream_); }
  static Numbers read(const OfGpu& memory, const cuda::Stream& stream) {
    Numbers numbers(memory.size());
    cuda::copy(numbers, memory, stream);
    stream.synchronize();
    return numbers;
  }
  CallOptions on() const { return {.stream = stream_}; }
  CallOptions within(Duration timeout) const { return {.timeout = timeout, .stream = stream_}; }
  const cuda::Stream& stream() const { return stream_; }
  int device() const { return device_; }

 private:
  const int device_;
  const cuda::Stream stream_;
};

// One all_reduce that gives the right sum. NCCL waits for the peers in the first one.
void expect_usable_on(const Gpu& gpu, const ProcessGroup& group) {
  const int n = group.size();
  const OfGpu data = gpu.make({group.rank() + 1, 1});
  group.all_reduce(data, gpu.on());
  EXPECT_EQ(gpu.read(data), (Numbers{n * (n + 1) / 2, n}));
}

std::vector<std::string> backends_of_gpus() {
  std::vector<std::string> names;
  for (const BackendInfo& info : known_backends())
    if (info.cuda_only && info.available) names.push_back(info.name);
  return names;
}

class OnGpus : public OnBackend {};
INSTANTIATE_TEST_SUITE_P(Each, OnGpus, testing::ValuesIn(backends_of_gpus()), backend_of);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OnGpus);

TEST_P(OnGpus, ACallReturnsWhenItIsEnqueuedAndWhatFollowsOnTheStreamSeesItsResult) {
  Latch returned(1);
  run(2, [&](ProcessGroup& group) {
    const Gpu gpu(group);
    expect_usable_on(gpu, group);
    const OfGpu data = gpu.make({group.rank(), 7});
    if (group.rank() == 1) returned.wait();
    group.all_reduce(data, gpu.on());
    if (group.rank() == 0) returned.count_down();
    EXPECT_EQ(gpu.read(data), (Numbers{1, 14}));
  });
}

TEST_P(OnGpus, WaitHoldsTheThreadAndOrderHoldsAStreamOnly) {
  Latch looked(1);
  run(2, [&](ProcessGroup& group) {
    const Gpu gpu(group);
    expect_usable_on(gpu, group);
    const cuda::Stream follower(gpu.device());
    const cuda::Event behind(gpu.device());
    const OfGpu data = gpu.make({group.rank() + 5});
    if (group.rank() == 1) looked.wait();
    const Work work = group.async().all_reduce(data, gpu.on());
    work.synchronize_stream(follower);
    behind.record(follower);
    if (group.rank() == 0) {
      EXPECT_FALSE(behind.done());
      EXPECT_FALSE(work.done());
      EXPECT_EQ(code_of([&] { work.wait(milliseconds(20)); }), Code::timed_out);
      EXPECT_EQ(group.failure(), nullptr);
      looked.count_down();
    }
    EXPECT_EQ(Gpu::read(data, follower), Numbers{11});
    work.wait();
    EXPECT_EQ(work.state(), WorkState::ok);
  });
}

TEST_P(OnGpus, ABarrierOfTheHostWaitsForWhatThisRankHasEnqueued) {
  Latch enqueued(1);
  run(2, [&](ProcessGroup& group) {
    const Gpu gpu(group);
    expect_usable_on(gpu, group);
    const OfGpu data = gpu.make(Numbers(1 << 16, 1));
    const cuda::Event over(gpu.device());
    if (group.rank() == 1) enqueued.wait();
    group.all_reduce(data, gpu.on());
    over.record(gpu.stream());
    if (group.rank() == 0) enqueued.count_down();
    group.barrier();
    EXPECT_TRUE(over.done());
    EXPECT_EQ(gpu.read(data), Numbers(1 << 16, 2));
  });
}

TEST_P(OnGpus, TheDestructorOfAWorkWaitsUntilTheDeadlineEndsTheOp) {
  Latch over(1);
  run(2, [&](ProcessGroup& group) {
    const Gpu gpu(group);
    expect_usable_on(gpu, group);
    if (group.rank() == 1) return over.wait();
    const auto start = steady_clock::now();
    {
      const OfGpu data = gpu.make({1});
      const Work work = group.async().all_reduce(data, gpu.within(kShort));
    }
    EXPECT_GE(steady_clock::now() - start, kShort);
    EXPECT_EQ(code_of([&] { group.barrier(); }), Code::timed_out);
    over.count_down();
  });
}

// The failure of a call that has returned comes from the next one.
TEST_P(OnGpus, ARankThatDoesNotComeIsNamedOnEveryRank) {
  Latch failed(2);
  run(3, [&](ProcessGroup& group) {
    const Gpu gpu(group);
    expect_usable_on(gpu, group);
    const OfGpu data = gpu.make({1});
    if (group.rank() == 0) {
      failed.wait();
    } else {
      group.all_reduce(data, gpu.within(kShort));
      EXPECT_EQ(code_of([&] { group.barrier(); }), Code::timed_out);
      failed.count_down();
    }
    const Failure failure = failure_of([&] { group.all_reduce(data, gpu.on()); });
    EXPECT_EQ(failure.code, Code::timed_out);
    EXPECT_EQ(failure.rank, 0);
    EXPECT_NE(failure.message.find("missing: rank 0 "), std::string::npos) << failure.message;
    EXPECT_EQ(failure.message, failure_of([&] { group.barrier(); }).message);
    gpu.stream().synchronize();  // then nothing uses the memory any more
  });
}

TEST_P(OnGpus, AbortEndsAnOpAndLeavesOtherGroupsAlone) {
  Latch begun(1);
  run(2, [&](ProcessGroup& group) {
    const Gpu gpu(group);
    ProcessGroup sub = group.new_group({0, 1});
    expect_usable_on(gpu, sub);
    const OfGpu data = gpu.make({1});
    Work work;
    if (group.rank() == 0) {
      work = sub.async().all_reduce(data, gpu.on());
      begun.count_down();
    } else {
      begun.wait();
      sub.abort("enough");
    }
    const Failure failure = failure_of([&] {
      work.wait();
      sub.barrier();
    });
    EXPECT_EQ(failure.code, Code::revoked);
    EXPECT_EQ(failure.rank, 1);
    EXPECT_NE(failure.message.find("enough"), std::string::npos) << failure.message;
    expect_usable_on(gpu, group);
    expect_usable_on(gpu, group.new_group({0, 1}));
  });
}

TEST_P(OnGpus, RanksThatCallDifferentOpsAllGetTheMismatch) {
  run(2, [](ProcessGroup& group) {
    const Gpu gpu(group);
    const OfGpu data = gpu.make({1, 2, 3, 4});
    const std::size_t count = group.rank() == 0 ? 4 : 3;
    const Failure failure =
        failure_of([&] { group.async().all_reduce(data.view().slice(0, count), gpu.on()).wait(); });
    EXPECT_EQ(failure.code, Code::mismatch);
    for (const char* call : {"i32 x 4", "i32 x 3"})
      EXPECT_NE(failure.message.find(call), std::string::npos) << failure.message;
  });
}

TEST_P(OnGpus, HostAndGpuTensorsTakeTurnsInOneOrder) {
  run(3, [](ProcessGroup& group) {
    const Gpu gpu(group);
    for (int i = 0; i < 3; ++i) {
      expect_usable_on(gpu, group);
      expect_usable(group);
    }
    EXPECT_EQ(group.sequence(), 6u);
    EXPECT_EQ(group.all_reduce(group.rank() + 1), 6);  // a value is of the host
  });
}

TEST_P(OnGpus, MessagesMatchInTheirOrder) {
  run(2, [](ProcessGroup& group) {
    const Gpu gpu(group);
    const int other = 1 - group.rank();
    if (group.rank() == 0) {
      for (int i = 1; i <= 3; ++i) {
        const OfGpu out = gpu.make(Numbers(5, i));
        group.send(out, other, gpu.on());
        gpu.stream().synchronize();
      }
    } else {
      for (int i = 1; i <= 3; ++i) {
        const OfGpu in = gpu.make(Numbers(5, -1));
        const Received received = group.recv(in, other, gpu.on());
        EXPECT_EQ(received.source, other);
        EXPECT_EQ(received.count, 5u);
        EXPECT_EQ(gpu.read(in), Numbers(5, i));
      }
    }
    const OfGpu data = gpu.make({1});
    EXPECT_EQ(code_of([&] { group.recv(data, kAnySource, gpu.on()); }), Code::unsupported);
    EXPECT_EQ(code_of([&] { group.send(data, group.rank(), gpu.on()); }), Code::unsupported);
    expect_usable_on(gpu, group);
  });
}

TEST_P(OnGpus, OfABatchTheOrderOfSendsAndReceivesDoesNotMatter) {
  run(3, [](ProcessGroup& group) {
    const Gpu gpu(group);
    const int next = (group.rank() + 1) % 3, last = (group.rank() + 2) % 3;
    for (const bool async : {false, true}) {
      const OfGpu out = gpu.make(Numbers(1 << 16, group.rank())), in = gpu.make(Numbers(1 << 16));
      const OfGpu sum = gpu.make({group.rank()}), most = gpu.make({group.rank()});
      Batch batch = group.batch(gpu.on());
      batch.add(Send{out, next, 0});
      batch.add(Recv{in, last, 0});
      batch.add(AllReduce{sum, sum, {}});
      batch.add(AllReduce{most, most, ReduceOp::max});
      async ? batch.submit_async().wait() : batch.submit();
      EXPECT_EQ(gpu.read(in), Numbers(1 << 16, last));
      EXPECT_EQ(gpu.read(sum), Numbers{3});
      EXPECT_EQ(gpu.read(most), Numbers{2});
      batch.submit();  // it is empty
      EXPECT_EQ(group.sequence(), async ? 4u : 2u);
    }
  });
}

TEST_P(OnGpus, AWrongOpInABatchStartsNone) {
  run(2, [](ProcessGroup& group) {
    const Gpu gpu(group);
    const OfGpu good = gpu.make({1}), shorter = gpu.make({});
    if (group.rank() == 0) {
      Batch batch = group.batch(gpu.on());
      batch.add(AllReduce{good, good, {}});
      batch.add(AllReduce{shorter, good, {}});
      EXPECT_THROW(batch.submit(), InvalidArgument);
      Batch unsupported = group.batch(gpu.on());
      unsupported.add(AllReduce{good, good, {}});
      unsupported.add(AllReduce{good, good, ReduceOp::avg});  // of integers
      EXPECT_EQ(code_of([&] { unsupported.submit(); }), Code::unsupported);
    }
    expect_usable_on(gpu, group);
    EXPECT_EQ(gpu.read(good), Numbers{1});
    EXPECT_EQ(group.sequence(), 1u);
  });
}

TEST_P(OnGpus, ABatchFailsAsOne) {
  Latch failed(1);
  run(2, [&](ProcessGroup& group) {
    const Gpu gpu(group);
    expect_usable_on(gpu, group);
    const OfGpu one = gpu.make({1}), two = gpu.make({1});
    if (group.rank() == 1) return failed.wait();
    Batch batch = group.batch(gpu.within(kShort));
    batch.add(AllReduce{one, one, {}});
    batch.add(AllReduce{two, two, {}});
    const Failure failure = failure_of([&] { batch.submit_async().wait(); });
    EXPECT_EQ(failure.code, Code::timed_out);
    EXPECT_EQ(failure.rank, 1);
    failed.count_down();
  });
}

TEST_P(OnGpus, WrongArgumentsAreRefusedAndHarmNothing) {
  run(2, [](ProcessGroup& group) {
    const Gpu gpu(group);
    const OfGpu data = gpu.make({1, 2, 3, 4, 5});
    const View view = data;
    const CallOptions on = gpu.on();
    View null = view;
    null.data = nullptr;
    EXPECT_THROW(group.all_reduce(null, on), InvalidArgument);
    EXPECT_THROW(group.all_reduce(view.slice(0, 3), view.slice(1, 3), on), InvalidArgument);
    EXPECT_THROW(group.all_reduce(view.slice(0, 2), view.slice(3, 1), on), InvalidArgument);
    EXPECT_THROW(group.broadcast(view, 2, on), InvalidArgument);
    EXPECT_THROW(group.reduce(view.slice(0, 2), view.slice(2, 2), -1, on), InvalidArgument);
    EXPECT_THROW(group.all_gather(view.slice(0, 3), view.slice(3, 2), on), InvalidArgument);
    EXPECT_THROW(group.send(view, 2, on), InvalidArgument);
    EXPECT_THROW(group.all_reduce(view, gpu.within(Duration(0))), InvalidArgument);
    EXPECT_EQ(group.sequence(), 0u);
    EXPECT_EQ(group.failure(), nullptr);
    expect_usable_on(gpu, group);
  });
}

TEST_P(OnGpus, WhatIsDeniedIsUnsupportedWithThatReason) {
  run(2, [](ProcessGroup& group) {
    const Gpu gpu(group);
    const OfGpu memory = gpu.make(Numbers(4));
    int denied = 0;
    for (int d = 0; d < kDTypeCount; ++d)
      for (int k = 0; k < kReduceOpCount; ++k) {
        const auto dtype = static_cast<DType>(d);
        const auto kind = static_cast<ReduceOp::Kind>(k);
        const Support support = group.supports({.op = OpKind::all_reduce,
                                                .dtype = dtype,
                                                .reduce_op = kind,
                                                .device = DeviceType::cuda});
        if (support) continue;
        ++denied;
        const View view(memory.device_data(), 1, dtype, memory.device());
        const Failure failure = failure_of([&] { group.all_reduce(view, kind, gpu.on()); });
        EXPECT_EQ(failure.code, Code::unsupported);
        EXPECT_FALSE(support.reason.empty());
        EXPECT_NE(failure.message.find(support.reason), std::string::npos) << failure.message;
      }
    EXPECT_GT(denied, 0) << "bitwise ops on floats make no sense anywhere";
    expect_usable_on(gpu, group);
  });
}

TEST_P(OnGpus, ManyOpsMayBePendingAndOneMayBeDropped) {
  run(2, [](ProcessGroup& group) {
    constexpr int kOps = 100;  // more than ranks may lead by
    const Gpu gpu(group);
    std::vector<OfGpu> data;
    for (int i = 0; i < kOps; ++i) data.push_back(gpu.make(Numbers(10, i)));
    std::vector<Work> works;
    for (const OfGpu& one : data) works.push_back(group.async().all_reduce(one, gpu.on()));
    works.front().detach();
    for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
    for (int i = 0; i < kOps; ++i)
      EXPECT_EQ(gpu.read(data[static_cast<std::size_t>(i)]), Numbers(10, 2 * i));
  });
}

TEST_P(OnGpus, ACallbackMaySubmitOps) {
  run(2, [](ProcessGroup& group) {
    const Gpu gpu(group);
    const OfGpu first = gpu.make({1}), second = gpu.make({2});
    std::promise<Work> chained;
    group.async().all_reduce(first, gpu.on()).on_done([&](const Failure* failure) {
      EXPECT_EQ(failure, nullptr);
      chained.set_value(group.async().all_reduce(second, gpu.on()));
    });
    chained.get_future().get().wait();
    EXPECT_EQ(gpu.read(first), Numbers{2});
    EXPECT_EQ(gpu.read(second), Numbers{4});
  });
}

TEST_P(OnGpus, GroupsAreOfTheirMembersAlone) {
  run(4, [](ProcessGroup& world) {
    const Gpu gpu(world);
    const int rank = world.rank();
    const auto ranks_of = [&](const ProcessGroup& group) {
      const OfGpu mine = gpu.make({rank});
      const OfGpu all = gpu.make(Numbers(static_cast<std::size_t>(group.size())));
      group.all_gather(all, mine, gpu.on());
      return gpu.read(all);
    };
    if (rank % 3 == 0) {
      EXPECT_EQ(ranks_of(world.new_group({3, 0})), (Numbers{3, 0}));
    }
    const ProcessGroup half = world.split(rank % 2, -rank);
    EXPECT_EQ(half.device(), world.device());
    EXPECT_EQ(ranks_of(half), rank % 2 == 0 ? (Numbers{2, 0}) : (Numbers{3, 1}));
    EXPECT_EQ(ranks_of(world), (Numbers{0, 1, 2, 3}));
    world.shutdown();
    world = ProcessGroup();
    EXPECT_EQ(ranks_of(half).size(), 2u);
  });
}

TEST_P(OnGpus, MemoryOfTheGroupIsZeroed) {
  run(2, [](ProcessGroup& group) {
    const Gpu gpu(group);
    const auto memory = group.allocate<std::int32_t>(1000, group.device());
    EXPECT_EQ(gpu.read(memory), Numbers(1000));
    group.broadcast(memory, 1, gpu.on());
    EXPECT_EQ(group.allocate<double>(0, group.device()).size(), 0u);
    EXPECT_THROW(group.allocate<double>(~std::size_t{0} / 4, group.device()), InvalidArgument);
    expect_usable_on(gpu, group);
  });
}

TEST_P(OnGpus, TheOthersGoOnWithoutTheRankThatLeft) {
  const auto store = make_hash_store(kTimeout);
  run(3, [&](ProcessGroup& group) {
    const Gpu gpu(group);
    expect_usable_on(gpu, group);
    if (group.rank() == 1) {
      group = ProcessGroup();
      return;
    }
    const OfGpu data = gpu.make({1});
    const Failure failure = failure_of([&] { group.async().all_reduce(data, gpu.on()).wait(); });
    EXPECT_EQ(reason_of(failure.code), Reason::peer_lost) << failure.message;
    EXPECT_EQ(failure.rank, 1) << failure.message;
    const int place = group.rank() / 2;
    const int device = group.device().index;
    group = init_process_group({.backend = GetParam(),
                                .store = make_prefix_store("rest", store),
                                .rank = place,
                                .size = 2,
                                .device = device,
                                .timeout = kTimeout});
    expect_usable_on(gpu, group);
  });
}

}}  // namespace c10d::contract
