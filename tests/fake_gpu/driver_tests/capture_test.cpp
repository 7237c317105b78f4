// SPDX-License-Identifier: BSD-3-Clause
// Stream capture and graphs.
#include "tests/fake_gpu/driver_tests/process.h"

namespace {

struct Scene {
  explicit Scene(Gpu& g) : gpu(g) {}
  ~Scene() {
    for (const cu::Stream each : {stream, other}) gpu.give_back(each);
    for (const cu::Event each : {fork, join}) gpu.give_back(each);
    gpu.give_back(memory);
  }
  cu::Result fill(cu::Stream on, unsigned char value = 'x') {
    return gpu.api.memset_d8_async(memory, value, 4, on);
  }
  cu::CaptureStatus status(cu::Stream of) {
    cu::CaptureStatus found = cu::kCaptureNone;
    EXPECT_EQ(gpu.api.stream_is_capturing(of, &found), 0);
    return found;
  }
  void begin(cu::CaptureMode mode = cu::kCaptureThreadLocal) {
    EXPECT_EQ(gpu.api.stream_begin_capture(stream, mode), 0);
  }
  cu::Result end() {
    cu::Graph graph = nullptr;
    const cu::Result result = gpu.api.stream_end_capture(stream, &graph);
    EXPECT_EQ(graph != nullptr, result == 0);
    if (graph) {
      EXPECT_EQ(gpu.api.graph_destroy(graph), 0);
    }
    return result;
  }

  Gpu& gpu;
  cu::Stream stream = gpu.stream(), other = gpu.stream();
  cu::Event fork = gpu.event(), join = gpu.event();
  cu::Pointer memory = gpu.bytes(4);
};

Ended in_scene(const std::function<void(Scene&)>& body) {
  return with_gpu([&](Gpu& gpu) {
    Scene scene(gpu);
    body(scene);
  });
}

TEST(Capture, RunsNothingUntilItIsReplayed) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                const cu::Stream stream = gpu.stream();
                cu::Pointer word = gpu.bytes(4);
                const cu::Function add = gpu.kernel("add_one");
                static std::atomic<int> calls;
                EXPECT_EQ(gpu.api.memset_d8_async(word, 0, 4, stream), 0);
                EXPECT_EQ(gpu.api.stream_synchronize(stream), 0);
                EXPECT_EQ(gpu.api.stream_begin_capture(stream, cu::kCaptureGlobal), 0);
                EXPECT_EQ(gpu.launch(add, stream, {&word}), 0);
                EXPECT_EQ(gpu.api.launch_host_function(
                              stream, [](void*) { ++calls; }, nullptr),
                          0);
                cu::Graph graph = nullptr;
                EXPECT_EQ(gpu.api.stream_end_capture(stream, &graph), 0);
                EXPECT_EQ(gpu.read(word, 1, stream), std::string(1, '\0'));
                EXPECT_EQ(calls, 0);
                cu::GraphExec exec = nullptr;
                EXPECT_EQ(gpu.api.graph_instantiate(&exec, graph, 0), 0);
                EXPECT_EQ(gpu.api.graph_destroy(graph), 0);
                for (int i = 0; i < 3; ++i) EXPECT_EQ(gpu.api.graph_launch(exec, stream), 0);
                EXPECT_EQ(gpu.read(word, 1, stream), "\3");
                EXPECT_EQ(calls, 3);
                // On another stream it waits for its launch before.
                const cu::Stream other = gpu.stream();
                void* word_of_host = nullptr;
                EXPECT_EQ(gpu.api.mem_host_alloc(&word_of_host, 4, 0), 0);
                auto* const go = static_cast<std::atomic<unsigned>*>(word_of_host);
                unsigned long long limit = 10'000'000'000;
                EXPECT_EQ(gpu.launch(gpu.kernel("spin"), stream, {&word_of_host, &limit}), 0);
                EXPECT_EQ(gpu.api.graph_launch(exec, stream), 0);
                EXPECT_EQ(gpu.api.graph_launch(exec, other), 0);
                EXPECT_FALSE(soon([&] { return gpu.api.stream_query(other) == 0; }, 50));
                EXPECT_EQ(gpu.api.graph_exec_destroy(exec), 0) << "while it is pending";
                *go = 1;
                EXPECT_EQ(gpu.api.stream_synchronize(other), 0);
                EXPECT_EQ(calls, 5);
                EXPECT_EQ(gpu.api.mem_free_host(word_of_host), 0);
                EXPECT_EQ(gpu.api.graph_launch(nullptr, stream), cu::kInvalidValue);
                gpu.give_back(stream);
                gpu.give_back(other);
                gpu.give_back(word);
                EXPECT_EQ(gpu.api.module_unload(gpu.module()), 0);
              }).clean());
}

TEST(Capture, ForksAndJoins) {
  EXPECT_TRUE(in_scene([](Scene& s) {
                s.begin();
                EXPECT_EQ(s.gpu.api.event_record(s.fork, s.stream), 0);
                EXPECT_EQ(s.gpu.api.stream_wait_event(s.other, s.fork, 0), 0);
                EXPECT_EQ(s.status(s.other), cu::kCaptureActive);
                EXPECT_EQ(s.fill(s.other), 0);
                EXPECT_EQ(s.gpu.api.event_record(s.join, s.other), 0);
                EXPECT_EQ(s.gpu.api.stream_wait_event(s.stream, s.join, 0), 0);
                EXPECT_EQ(s.end(), 0);
                EXPECT_EQ(s.status(s.other), cu::kCaptureNone);
                EXPECT_EQ(s.gpu.api.event_query(s.join), cu::kInvalidValue) << "of an old capture";
                EXPECT_EQ(s.gpu.api.event_record(s.join, s.other), 0)
                    << "then it is an event again";
                EXPECT_EQ(s.gpu.api.event_synchronize(s.join), 0);
              }).clean());
  EXPECT_TRUE(in_scene([](Scene& s) {
                s.begin();
                EXPECT_EQ(s.gpu.api.event_record(s.fork, s.stream), 0);
                EXPECT_EQ(s.gpu.api.stream_wait_event(s.other, s.fork, 0), 0);
                EXPECT_EQ(s.fill(s.other), 0);
                EXPECT_EQ(s.end(), cu::kStreamCaptureUnjoined);
              }).clean());
  EXPECT_TRUE(in_scene([](Scene& s) {
                s.begin();
                EXPECT_EQ(s.gpu.api.event_record(s.fork, s.stream), 0);
                EXPECT_EQ(s.gpu.api.stream_wait_event(s.other, s.fork, 0), 0);
                cu::Graph graph = nullptr;
                EXPECT_EQ(s.gpu.api.stream_end_capture(s.other, &graph),
                          cu::kStreamCaptureUnmatched);
                EXPECT_EQ(s.end(), cu::kStreamCaptureInvalidated);
              }).only("in a capture"));
}

TEST(Capture, WhatBreaksIt) {
  const auto breaks = [](cu::Result code, const std::function<cu::Result(Scene&)>& call) {
    EXPECT_TRUE(in_scene([&](Scene& s) {
                  EXPECT_EQ(s.gpu.api.event_record(s.fork, s.other), 0);
                  s.begin();
                  EXPECT_EQ(call(s), code);
                  EXPECT_EQ(s.status(s.stream), cu::kCaptureInvalidated);
                  EXPECT_EQ(s.fill(s.stream), cu::kStreamCaptureInvalidated);
                  EXPECT_EQ(s.end(), cu::kStreamCaptureInvalidated);
                  EXPECT_EQ(s.status(s.stream), cu::kCaptureNone);
                }).only("in a capture"));
  };
  breaks(cu::kStreamCaptureUnsupported,
         [](Scene& s) { return s.gpu.api.stream_synchronize(s.stream); });
  breaks(cu::kStreamCaptureUnsupported, [](Scene& s) { return s.gpu.api.stream_query(s.stream); });
  breaks(cu::kStreamCaptureUnsupported, [](Scene& s) { return s.gpu.api.stream_query(s.other); });
  breaks(cu::kCapturedEvent, [](Scene& s) {
    EXPECT_EQ(s.gpu.api.event_record(s.join, s.stream), 0);
    return s.gpu.api.event_query(s.join);
  });
  breaks(cu::kStreamCaptureIsolation,
         [](Scene& s) { return s.gpu.api.stream_wait_event(s.stream, s.fork, 0); });
}

TEST(Capture, OfABlockingStreamForbidsLegacyWork) {
  EXPECT_TRUE(
      with_gpu([](Gpu& gpu) {
        const cu::Stream stream = gpu.stream(cu::kStreamDefault);
        const cu::Pointer memory = gpu.bytes(4);
        EXPECT_EQ(gpu.api.stream_begin_capture(nullptr, cu::kCaptureRelaxed),
                  cu::kStreamCaptureUnsupported);
        EXPECT_EQ(gpu.api.stream_begin_capture(stream, cu::kCaptureRelaxed), 0);
        EXPECT_EQ(gpu.api.memset_d8_async(memory, 1, 4, nullptr), cu::kStreamCaptureImplicit);
        cu::Graph graph = nullptr;
        EXPECT_EQ(gpu.api.stream_end_capture(stream, &graph), cu::kStreamCaptureInvalidated);
        EXPECT_EQ(gpu.api.memset_d8_async(memory, 1, 4, nullptr), 0);
        EXPECT_EQ(gpu.api.stream_synchronize(nullptr), 0);
        gpu.give_back(memory);
        gpu.give_back(stream);
      }).only("in a capture"));
}

// Whether an allocation is forbidden, by the mode of the capture, the thread and the thread's mode.
cu::Result allocate(Gpu& gpu, cu::CaptureMode of_thread) {
  cu::CaptureMode mode = of_thread;
  EXPECT_EQ(gpu.api.exchange_capture_mode(&mode), 0);
  cu::Pointer memory = 0;
  const cu::Result result = gpu.api.mem_alloc(&memory, 64);
  if (memory) gpu.give_back(memory);
  EXPECT_EQ(gpu.api.exchange_capture_mode(&mode), 0);
  EXPECT_EQ(mode, of_thread);
  return result;
}

TEST(Capture, ModesForbidCalls) {
  const cu::CaptureMode modes[] = {cu::kCaptureGlobal, cu::kCaptureThreadLocal,
                                   cu::kCaptureRelaxed};
  for (const cu::CaptureMode mode : modes) {
    for (const cu::CaptureMode of_thread : modes) {
      for (const bool same_thread : {false, true}) {
        const bool forbidden =
            mode != cu::kCaptureRelaxed && of_thread != cu::kCaptureRelaxed &&
            (same_thread || (mode == cu::kCaptureGlobal && of_thread == cu::kCaptureGlobal));
        const Ended ended = in_scene([&](Scene& s) {
          s.begin(mode);
          cu::Result result = cu::kSuccess;
          if (same_thread) {
            result = allocate(s.gpu, of_thread);
          } else {
            std::thread([&] {
              EXPECT_EQ(s.gpu.api.ctx_push(s.gpu.context), 0);
              result = allocate(s.gpu, of_thread);
            }).join();
          }
          EXPECT_EQ(result, forbidden ? cu::kStreamCaptureUnsupported : cu::kSuccess);
          EXPECT_EQ(s.end(), forbidden ? cu::kStreamCaptureInvalidated : cu::kSuccess);
        });
        EXPECT_TRUE(forbidden ? ended.only("in a capture") : ended.clean())
            << mode << of_thread << same_thread;
      }
    }
  }
}

TEST(Capture, EndsOnItsThread) {
  EXPECT_TRUE(in_scene([](Scene& s) {
                s.begin(cu::kCaptureThreadLocal);
                std::thread([&] {
                  EXPECT_EQ(s.gpu.api.ctx_push(s.gpu.context), 0);
                  EXPECT_EQ(s.end(), cu::kStreamCaptureWrongThread);
                }).join();
                EXPECT_EQ(s.status(s.stream), cu::kCaptureNone) << "it ended all the same";
                s.begin(cu::kCaptureRelaxed);
                std::thread([&] {
                  EXPECT_EQ(s.gpu.api.ctx_push(s.gpu.context), 0);
                  EXPECT_EQ(s.end(), 0);
                }).join();
                EXPECT_EQ(s.end(), 401) << "there is none";
              }).clean());
}

}  // namespace
