// SPDX-License-Identifier: BSD-3-Clause
// Ops of nccl that a CUDA graph captures. Ranks are threads, each with a GPU of its own.
#include "tests/nccl/graph.h"

#include <gmock/gmock.h>

#include <chrono>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "c10d/batch.h"
#include "c10d/cuda.h"
#include "src/device/gpu.h"
#include "tests/contract/ranks.h"

namespace c10d::nccl_test { namespace {

using contract::failure_of;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::size_t kCount = 1000;

// A rank with buffers of f32 on its GPU, and a stream there.
struct Rank {
  explicit Rank(ProcessGroup& group_)
      : group(group_),
        gpu(group.device().index),
        stream(gpu),
        in(cuda::device_allocate<float>(kCount, gpu)),
        out(cuda::device_allocate<float>(kCount, gpu)),
        other(cuda::device_allocate<float>(kCount, gpu)) {}

  CallOptions on() const { return {.stream = stream}; }
  float number() const { return static_cast<float>(group.rank() + 1); }
  void put(float value) const {
    const std::vector<float> numbers(kCount, value);
    cuda::copy(in, numbers, stream);
    cuda::fill(out.view(), 0xff, stream);
  }
  std::vector<float> get() const {
    std::vector<float> numbers(kCount);
    cuda::copy(numbers, out, stream);
    stream.synchronize();
    return numbers;
  }

  ProcessGroup& group;
  const int gpu;
  const OnGpu here{gpu};
  const cuda::Stream stream;
  const Buffer<float> in, out, other;
};

void on_ranks(int size, const std::function<void(Rank&)>& body) {
  contract::run_ranks("nccl", size, [&](ProcessGroup& group) {
    Rank rank(group);
    body(rank);
  });
}

// The output of an op of n ranks, of which rank r has the input scale * (r + 1).
struct Case {
  const char* name;
  std::function<void(Rank&)> op;
  std::function<float(float n, float r)> result;  // for the scale 1: all of these are linear
};

float sum_up_to(float n) { return n * (n + 1) / 2; }

std::vector<Case> cases() {
  return {
      {"all_reduce", [](Rank& rank) { rank.group.all_reduce(rank.out, rank.in, rank.on()); },
       [](float n, float) { return sum_up_to(n); }},
      {"all_reduce by max",
       [](Rank& rank) { rank.group.all_reduce(rank.out, rank.in, ReduceOp::max, rank.on()); },
       [](float n, float) { return n; }},
      {"all_reduce by premul_sum",
       [](Rank& rank) { rank.group.all_reduce(rank.out, rank.in, ReduceOp::premul(3), rank.on()); },
       [](float n, float) { return 3 * sum_up_to(n); }},
      {"scan", [](Rank& rank) { rank.group.scan(rank.out, rank.in, ReduceOp::sum, rank.on()); },
       [](float, float r) { return sum_up_to(r + 1); }},
      {"broadcast",
       [](Rank& rank) {
         rank.group.broadcast(rank.out, rank.in, rank.group.size() - 1, rank.on());
       },
       [](float n, float) { return n; }},
      {"send and recv in a batch",
       [](Rank& rank) {
         const int n = rank.group.size(), r = rank.group.rank();
         Batch batch = rank.group.batch(rank.on());
         batch.add(Send{rank.in, (r + 1) % n, 0});
         batch.add(Recv{rank.out, (r + n - 1) % n, 0});
         batch.submit();
       },
       [](float n, float r) { return r == 0 ? n : r; }},
      {"a barrier, two ops in a batch of which NCCL lacks one",
       [](Rank& rank) {
         rank.group.barrier(rank.on());
         Batch batch = rank.group.batch(rank.on());
         batch.add(AllReduce{rank.out, rank.in, ReduceOp::max});
         batch.add(AllReduce{rank.other, rank.in, ReduceOp::sum});
         batch.submit();
       },
       [](float n, float) { return n; }},
  };
}

TEST(Graph, EveryReplayRunsItsOps) {
  on_ranks(3, [](Rank& rank) {
    const auto n = static_cast<float>(rank.group.size());
    const auto r = static_cast<float>(rank.group.rank());
    for (const Case& c : cases()) {
      SCOPED_TRACE(c.name);
      const Graph graph(rank.stream, [&] { c.op(rank); });
      for (const float scale : {1.0F, 2.0F, 5.0F}) {
        rank.put(scale * rank.number());
        graph.launch(rank.stream);
        EXPECT_EQ(rank.get(), std::vector<float>(kCount, scale * c.result(n, r)));
        // The same call that is not captured, between the replays.
        rank.put(rank.number());
        c.op(rank);
        EXPECT_EQ(rank.get(), std::vector<float>(kCount, c.result(n, r)));
      }
    }
    rank.group.barrier();
  });
}

TEST(Graph, ACapturedCallStartsNothing) {
  on_ranks(2, [](Rank& rank) {
    rank.put(rank.number());
    rank.group.barrier();
    const Graph graph(rank.stream, [&] {
      rank.group.all_reduce(rank.in, rank.on());
      const Work work = rank.group.async().all_reduce(rank.in, rank.on());
      work.wait();  // until all ranks have captured it
      EXPECT_EQ(work.state(), WorkState::ok);
    });
    rank.group.barrier();  // it waits for no replay
    std::vector<float> numbers(kCount);
    cuda::copy(numbers, rank.in, rank.stream);
    rank.stream.synchronize();
    EXPECT_EQ(numbers, std::vector<float>(kCount, rank.number()));
  });
}

TEST(Graph, AStreamThatWaitsForACapturedOpJoinsTheCapture) {
  on_ranks(2, [](Rank& rank) {
    const cuda::Stream side(rank.gpu);
    const cuda::Event fork(rank.gpu);
    const auto sum = cuda::device_allocate<float>(kCount, rank.gpu);
    const Graph graph(rank.stream, [&] {
      fork.record(rank.stream);
      fork.wait(side);
      const Work work = rank.group.async().all_reduce(sum, rank.in, {.stream = side});
      work.synchronize_stream(rank.stream);
      cuda::copy(rank.out, sum, rank.stream);
    });
    for (const float scale : {1.0F, 4.0F}) {
      rank.put(scale * rank.number());
      graph.launch(rank.stream);
      EXPECT_EQ(rank.get(), std::vector<float>(kCount, scale * 3));
    }
    rank.group.barrier();
  });
}

TEST(Graph, ACallThatDiffersIsNamedWhereItIsCaptured) {
  on_ranks(2, [](Rank& rank) {
    const std::size_t count = rank.group.rank() == 0 ? 4 : 8;
    const View some(rank.in.device_data(), count, DType::f32, rank.in.device());
    Failure failure;
    const Graph graph(rank.stream, [&] {
      failure = failure_of([&] { rank.group.async().all_reduce(some, rank.on()).wait(); });
    });
    EXPECT_EQ(failure.code, Code::mismatch) << failure.message;
    EXPECT_THAT(failure.message, AllOf(HasSubstr("f32 x 4"), HasSubstr("f32 x 8")));
    EXPECT_EQ(failure_of([&] { rank.group.barrier(); }).code, Code::mismatch);
  });
  // What only the next barrier waits for.
  on_ranks(2, [](Rank& rank) {
    const Graph graph(rank.stream, [&] {
      rank.group.all_reduce(rank.in, rank.group.rank() == 0 ? ReduceOp::sum : ReduceOp::prod,
                            rank.on());
    });
    const Failure failure = failure_of([&] { rank.group.barrier(); });
    EXPECT_EQ(failure.code, Code::mismatch) << failure.message;
    EXPECT_THAT(failure.message, AllOf(HasSubstr("sum"), HasSubstr("prod")));
  });
}

TEST(Graph, MessagesThatDifferAreNamedWhereTheyAreCaptured) {
  on_ranks(2, [](Rank& rank) {
    const bool sends = rank.group.rank() == 0;
    const View some(rank.in.device_data(), sends ? 4 : 8, DType::f32, rank.in.device());
    Failure failure;
    const Graph graph(rank.stream, [&] {
      failure = failure_of([&] {
        (sends ? rank.group.isend(some, 1, 0, rank.on()) : rank.group.irecv(some, 0, 0, rank.on()))
            .wait();
      });
    });
    EXPECT_EQ(failure.code, Code::mismatch) << failure.message;
    EXPECT_THAT(failure.message, AllOf(HasSubstr("f32 x 4"), HasSubstr("f32 x 8")));
  });
}

TEST(Graph, ARankThatDoesNotCaptureIsNamedAtTheDeadline) {
  on_ranks(2, [](Rank& rank) {
    if (rank.group.rank() == 1) {
      while (!rank.group.failure()) std::this_thread::yield();
      return;
    }
    Failure failure;
    const Graph graph(rank.stream, [&] {
      failure = failure_of([&] {
        rank.group.async()
            .all_reduce(rank.in, {.timeout = milliseconds(300), .stream = rank.stream})
            .wait();
      });
    });
    EXPECT_EQ(failure.code, Code::timed_out);
    EXPECT_EQ(failure.rank, 1);
    EXPECT_THAT(failure.message, HasSubstr("capture"));
  });
}

TEST(Graph, ABrokenCaptureIsRefusedAndTheGroupStaysWhole) {
  on_ranks(2, [](Rank& rank) {
    const driver::Api& api = driver_api();
    EXPECT_EQ(api.stream_begin_capture(rank.stream, driver::kCaptureThreadLocal), 0);
    const cuda::Stream outside(rank.gpu);
    const cuda::Event event(rank.gpu);
    event.record(outside);
    EXPECT_EQ(api.stream_wait_event(rank.stream, event.get(), 0), driver::kStreamCaptureIsolation);
    try {
      rank.group.all_reduce(rank.in, rank.on());
      ADD_FAILURE() << "nothing was thrown";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("has broken the capture"));
    }
    driver::Graph graph = nullptr;
    EXPECT_NE(api.stream_end_capture(rank.stream, &graph), 0);
    rank.put(rank.number());
    rank.group.all_reduce(rank.out, rank.in, rank.on());
    EXPECT_EQ(rank.get(), std::vector<float>(kCount, 3));
    rank.group.barrier();
  });
}

std::size_t free_bytes() {
  std::size_t available = 0, all = 0;
  check_driver(driver_api().mem_get_info(&available, &all), "cuMemGetInfo");
  return available;
}

// NCCL waits for the graph before it gives up the communicator. The program goes on, and the memory
// of the group is there until then.
TEST(Graph, AGroupEndsAlthoughAGraphHoldsItsOps) {
  on_ranks(2, [](Rank& rank) {
    rank.put(rank.number());
    std::optional<Graph> graph(std::in_place, rank.stream, [&] {
      rank.group.all_reduce(rank.out, rank.in, ReduceOp::min, rank.on());
    });
    graph->launch(rank.stream);
    EXPECT_EQ(rank.get(), std::vector<float>(kCount, 1));
    const auto start = steady_clock::now();
    rank.group.shutdown(std::chrono::seconds(60));
    EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(20));
    rank.group = {};
    const std::size_t held = free_bytes();
    graph.reset();
    const auto deadline = steady_clock::now() + contract::kTimeout;
    while (free_bytes() < held + (std::size_t{16} << 20) && steady_clock::now() < deadline)
      std::this_thread::yield();
    EXPECT_LT(steady_clock::now(), deadline) << "the memory of the group was not freed";
  });
}

}}  // namespace c10d::nccl_test
