// SPDX-License-Identifier: BSD-3-Clause
// What the script does, and what the judge sees.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/fake_gpu/driver_tests/process.h"

namespace {

TEST(Fault, OfOneCall) {
  EXPECT_TRUE(with_script("cuMemAlloc_v2 #2 = 2", [](Gpu& gpu) {
                const cu::Pointer first = gpu.bytes(64);
                cu::Pointer second = 0;
                EXPECT_EQ(gpu.api.mem_alloc(&second, 64), cu::kOutOfMemory);
                EXPECT_EQ(second, 0U);
                gpu.give_back(gpu.bytes(64));
                gpu.give_back(first);
              }).clean());
}

TEST(Fault, AnyCodeOfAnyFunction) {
  EXPECT_TRUE(without_context("cuInit = 803", [](cu::Api& api) {
                EXPECT_EQ(api.init(0), cu::kSystemDriverMismatch);
              }).ok);
  EXPECT_TRUE(without_context("cuDeviceGetCount #1 = 12345", [](cu::Api& api) {
                EXPECT_EQ(api.init(0), 0);
                int count = 0;
                EXPECT_EQ(api.device_get_count(&count), 12345);
                EXPECT_EQ(api.device_get_count(&count), 0);
                EXPECT_EQ(count, 8);
              }).clean());
}

TEST(Fault, StickyErrorsBreakTheContext) {
  const Ended ended = with_script("cuEventQuery #1 = 700", [](Gpu& gpu) {
    const cu::Event event = gpu.event();
    EXPECT_EQ(gpu.api.event_query(event), cu::kIllegalAddress);
    EXPECT_EQ(gpu.api.event_query(event), cu::kIllegalAddress);
    cu::Pointer memory = 0;
    EXPECT_EQ(gpu.api.mem_alloc(&memory, 64), cu::kIllegalAddress);
    EXPECT_EQ(gpu.api.stream_synchronize(nullptr), cu::kIllegalAddress);
  });
  EXPECT_TRUE(ended.only("left in a context"));
  EXPECT_TRUE(with_script("cuCtxGetDevice #1 = 1", [](Gpu& gpu) {
                cu::Device device = 0;
                EXPECT_EQ(gpu.api.ctx_get_device(&device), 1);
                gpu.give_back(gpu.bytes(64));  // not sticky
              }).clean());
}

TEST(Fault, OfAnOpComesLater) {
  const Ended ended = with_script("op cuMemsetD8Async #2 = 719", [](Gpu& gpu) {
    const cu::Stream stream = gpu.stream();
    const cu::Pointer memory = gpu.bytes(64);
    EXPECT_EQ(gpu.api.memset_d8_async(memory, 1, 64, stream), 0);
    EXPECT_EQ(gpu.api.stream_synchronize(stream), 0);
    EXPECT_EQ(gpu.api.memset_d8_async(memory, 2, 64, stream), 0) << "the enqueue succeeds";
    EXPECT_EQ(gpu.api.stream_synchronize(stream), cu::kLaunchFailed);
    EXPECT_EQ(gpu.api.stream_query(stream), cu::kLaunchFailed);
    EXPECT_EQ(gpu.api.memset_d8_async(memory, 1, 64, stream), cu::kLaunchFailed);
    // The last release does not make it whole.
    EXPECT_EQ(gpu.api.primary_release(0), 0);
    cu::Context again = nullptr;
    EXPECT_EQ(gpu.api.primary_retain(&again, 0), cu::kLaunchFailed);
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  });
  EXPECT_TRUE(ended.ok) << ended.errors;
}

TEST(Fault, Delays) {
  EXPECT_TRUE(with_script("cuEventCreate #1 200ms; op #1 200ms", [](Gpu& gpu) {
                EXPECT_GE(seconds_of([&] { gpu.give_back(gpu.event()); }), 0.2);
                const cu::Pointer memory = gpu.bytes(64);
                EXPECT_GE(seconds_of([&] { gpu.read(memory, 1, nullptr); }), 0.2);
                gpu.give_back(memory);
              }).clean());
}

// A delay that nobody lives to see: what returns was not delayed.
TEST(Fault, ADelayHoldsItsCallOrOpOnly) {
  const Ended ended = with_script("cuEventCreate #2 3000s; op #1 3000s", [](Gpu& gpu) {
    gpu.event();
    const cu::Pointer memory = gpu.bytes(64);
    EXPECT_EQ(gpu.api.memset_d8_async(memory, 0, 64, nullptr), 0);
    EXPECT_EQ(gpu.api.stream_query(nullptr), cu::kNotReady);
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  });
  EXPECT_TRUE(ended.ok) << ended.errors;
}

TEST(Fault, AHangLastsAndOtherStreamsGoOn) {
  const Ended ended = with_script("op #1 hang", [](Gpu& gpu) {
    const cu::Stream stuck = gpu.stream(), other = gpu.stream();
    const cu::Pointer memory = gpu.bytes(64);
    EXPECT_EQ(gpu.api.memset_d8_async(memory, 1, 64, stuck), 0);
    EXPECT_EQ(gpu.api.memset_d8_async(memory, 2, 64, other), 0);
    EXPECT_EQ(gpu.api.stream_synchronize(other), 0);
    EXPECT_FALSE(soon([&] { return gpu.api.stream_query(stuck) == 0; }, 100));
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  });
  EXPECT_TRUE(ended.ok);
  EXPECT_TRUE(ended.has("\"end\":\"running\"")) << ended.report;
}

TEST(Fault, ACallThatHangsForEver) {
  const Ended ended = with_script("cuCtxGetDevice hang for ever", [](Gpu& gpu) {
    std::atomic<bool> returned{false};
    std::thread([&] {
      cu::Device device = 0;
      gpu.api.ctx_get_device(&device);
      returned = true;
    }).detach();
    EXPECT_FALSE(soon([&] { return returned.load(); }, 100));
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  });
  EXPECT_TRUE(ended.ok);
}

TEST(Fault, ARankDies) {
  const auto three = [](Gpu& gpu) {
    const cu::Pointer memory = gpu.bytes(64);
    for (int i = 0; i < 3; ++i) {
      gpu.api.memset_d8_async(memory, 1, 64, nullptr);
      gpu.api.stream_synchronize(nullptr);
      std::fprintf(stderr, "%d\n", i);
      std::fflush(stderr);
    }
  };
  Ended ended = with_script("kill after op #2", three);
  EXPECT_EQ(ended.signal, SIGKILL);
  EXPECT_EQ(ended.errors, "0\n");
  ended = with_script("kill at cuStreamSynchronize #3", three);
  EXPECT_EQ(ended.signal, SIGKILL);
  EXPECT_EQ(ended.errors, "0\n1\n");
  EXPECT_EQ(with_script("rank 1: kill at op #1", three).signal, 0) << "that was another rank";
}

TEST(Fault, RanksAreTheCurrentDevicesOfThreads) {
  EXPECT_TRUE(with_script("rank 1: cuMemGetInfo_v2 #1 = 2", [](Gpu& gpu) {
                std::size_t free = 0, total = 0;
                EXPECT_EQ(gpu.api.mem_get_info(&free, &total), 0);
                std::thread([&] {
                  cu::Context context = nullptr;
                  EXPECT_EQ(gpu.api.primary_retain(&context, 1), 0);
                  EXPECT_EQ(gpu.api.ctx_push(context), 0);
                  EXPECT_EQ(gpu.api.mem_get_info(&free, &total), 2);
                  EXPECT_EQ(gpu.api.mem_get_info(&free, &total), 0);
                  EXPECT_EQ(gpu.api.primary_release(1), 0);
                }).join();
              }).clean());
}

TEST(Fault, FullMemoryAndFewDevices) {
  EXPECT_TRUE(with_script("devices=2; memory=64M", [](Gpu& gpu) {
                int count = 0;
                EXPECT_EQ(gpu.api.device_get_count(&count), 0);
                EXPECT_EQ(count, 2);
                cu::Device device = 0;
                EXPECT_EQ(gpu.api.device_get(&device, 2), cu::kInvalidDevice);
                std::size_t free = 0, total = 0;
                EXPECT_EQ(gpu.api.mem_get_info(&free, &total), 0);
                EXPECT_EQ(total, 64U << 20);
                const cu::Pointer most = gpu.bytes(60U << 20);
                cu::Pointer more = 0;
                EXPECT_EQ(gpu.api.mem_alloc(&more, 5U << 20), cu::kOutOfMemory);
                gpu.give_back(most);
                // Again and again: what was freed makes place.
                for (int i = 0; i < 50; ++i) gpu.give_back(gpu.bytes(40U << 20));
                EXPECT_EQ(gpu.api.mem_get_info(&free, &total), 0);
                EXPECT_EQ(free, total);
              }).clean());
  EXPECT_TRUE(
      without_context("devices=0", [](cu::Api& api) { EXPECT_EQ(api.init(0), cu::kNoDevice); }).ok);
}

// --- The judge: each kind of violation.

TEST(Judge, ACallWithoutContext) {
  EXPECT_TRUE(without_context("", [](cu::Api& api) {
                EXPECT_EQ(api.init(0), 0);
                cu::Pointer memory = 0;
                EXPECT_EQ(api.mem_alloc(&memory, 64), cu::kInvalidContext);
              }).only("no context"));
}

TEST(Judge, ADestroyedContext) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                EXPECT_EQ(gpu.api.primary_release(0), 0);
                cu::Pointer memory = 0;
                EXPECT_EQ(gpu.api.mem_alloc(&memory, 64), cu::kContextIsDestroyed);
                EXPECT_EQ(gpu.api.primary_retain(&gpu.context, 0), 0);
              }).only("no context"));
}

TEST(Judge, FreedInUse) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                const cu::Stream stream = gpu.stream();
                const cu::Pointer memory = gpu.bytes(64);
                Gate gate(gpu, stream);
                EXPECT_EQ(gpu.api.memset_d8_async(memory, 1, 64, stream), 0);
                std::atomic<bool> is_freed{false};
                std::thread opener([&] {
                  EXPECT_TRUE(soon([] {
                    return report_of_this_process().find("freed in use") != std::string::npos;
                  }));
                  EXPECT_FALSE(soon([&] { return is_freed.load(); }, 50)) << "the free waits";
                  gate.open();
                });
                gpu.give_back(memory);
                is_freed = true;
                opener.join();
                gpu.give_back(stream);
              }).only("freed in use"));
}

TEST(Judge, UsedAfterFree) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                const cu::Pointer memory = gpu.bytes(64);
                gpu.give_back(memory);
                EXPECT_EQ(gpu.api.memset_d8_async(memory, 1, 64, nullptr), cu::kInvalidValue);
              }).only("used after free"));
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                const cu::Pointer memory = gpu.bytes(64);
                gpu.give_back(memory);
                EXPECT_EQ(gpu.api.mem_free(memory), cu::kInvalidValue);
              }).only("used after free"));
}

TEST(Judge, OutOfBounds) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                const cu::Pointer memory = gpu.bytes(100);
                EXPECT_EQ(gpu.api.memset_d8_async(memory, 1, 100, nullptr), 0);
                EXPECT_EQ(gpu.api.memset_d8_async(memory, 1, 101, nullptr), cu::kInvalidValue);
                EXPECT_EQ(gpu.api.stream_synchronize(nullptr), 0);
                gpu.give_back(memory);
              }).only("out of bounds"));
}

TEST(Judge, DestroyedHandles) {
  const auto crashes = [](const std::function<void(Gpu&)>& use) {
    const Ended ended = with_gpu([&](Gpu& gpu) {
      std::signal(SIGSEGV, SIG_DFL);  // sanitizers have handlers
      use(gpu);
    });
    EXPECT_EQ(ended.signal, SIGSEGV) << "as the driver does";
    EXPECT_TRUE(ended.has("\"kind\":\"destroyed handle\"")) << ended.report;
    EXPECT_NE(ended.errors.find("was used: the driver crashes here"), std::string::npos);
  };
  crashes([](Gpu& gpu) {
    const cu::Event event = gpu.event();
    gpu.give_back(event);
    gpu.api.event_query(event);
  });
  crashes([](Gpu& gpu) {
    const cu::Stream stream = gpu.stream();
    gpu.give_back(stream);
    gpu.api.stream_query(stream);
  });
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                const cu::Module module = gpu.module();
                EXPECT_EQ(gpu.api.module_unload(module), 0);
                EXPECT_EQ(gpu.api.module_unload(module), cu::kInvalidHandle);
              }).only("destroyed handle"));
}

TEST(Judge, AHostFunctionThatCallsTheDriver) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                static Gpu* inside;
                static int code;
                inside = &gpu;
                EXPECT_EQ(gpu.api.launch_host_function(
                              nullptr,
                              [](void*) {
                                cu::Pointer memory = 0;
                                code = inside->api.mem_alloc(&memory, 64);
                              },
                              nullptr),
                          0);
                EXPECT_EQ(gpu.api.stream_synchronize(nullptr), 0);
                EXPECT_EQ(code, cu::kNotPermitted);
              }).only("host function"));
}

TEST(Judge, ForbiddenInACapture) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                const cu::Stream stream = gpu.stream();
                EXPECT_EQ(gpu.api.stream_begin_capture(stream, cu::kCaptureGlobal), 0);
                cu::Pointer memory = 0;
                EXPECT_EQ(gpu.api.mem_alloc(&memory, 64), cu::kStreamCaptureUnsupported);
                cu::Graph graph = nullptr;
                EXPECT_EQ(gpu.api.stream_end_capture(stream, &graph),
                          cu::kStreamCaptureInvalidated);
                gpu.give_back(stream);
              }).only("in a capture"));
}

TEST(Judge, AWatcherThatBlocks) {
  EXPECT_TRUE(with_script("watcher=watch", [](Gpu& gpu) {
                const cu::Event event = gpu.event();
                std::thread([&] {
                  pthread_setname_np(pthread_self(), "watch");
                  EXPECT_EQ(gpu.api.ctx_push(gpu.context), 0);
                  EXPECT_EQ(gpu.api.event_query(event), 0);
                  EXPECT_EQ(gpu.api.event_synchronize(event), 0);
                }).join();
                gpu.give_back(event);
              }).only("watcher"));
}

TEST(Judge, WhatIsLeft) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) { gpu.event(); }).only("left in a context"));
  const Ended ended = with_gpu([](Gpu& gpu) {
    gpu.event();
    gpu.bytes(64);
    gpu.module();
    cu::Context again = nullptr;
    EXPECT_EQ(gpu.api.primary_retain(&again, 0), 0);
  });
  EXPECT_TRUE(ended.has("\"left\":{\"event\":1,\"memory\":1,\"module\":1}")) << ended.report;
}

TEST(Judge, AForkLeavesTheReportOfItsParentAlone) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                const cu::Event event = gpu.event();
                gpu.give_back(event);
                const std::string before = report_of_this_process();
                const pid_t child = fork();
                ASSERT_GE(child, 0);
                if (child == 0) {
                  alarm(60);
                  std::signal(SIGSEGV, SIG_DFL);
                  gpu.api.event_query(event);
                  _exit(0);
                }
                int status = 0;
                EXPECT_EQ(waitpid(child, &status, 0), child);
                EXPECT_TRUE(WIFSIGNALED(status)) << status;
                EXPECT_EQ(report_of_this_process(), before);
              }).clean());
}

TEST(Judge, CountsCallsByTheirPlaces) {
  const auto body = [](Gpu& gpu) {
    for (int i = 0; i < 2; ++i) gpu.give_back(gpu.event());
    gpu.give_back(gpu.event());
  };
  EXPECT_TRUE(with_gpu(body).has("\"calls\":[]"));
  EXPECT_TRUE(with_script("cuEventRecord = 1", body).has("[\"cuEventCreate\",3,\"all\"]"));
  const Ended ended = with_script("places = 2", body);
  EXPECT_TRUE(ended.has("[\"cuEventCreate\",1,\"fake_gpu_driver")) << ended.report;
  EXPECT_FALSE(ended.has("[\"cuEventCreate\",2,\"")) << ended.report;
  EXPECT_TRUE(ended.has("[\"cuEventCreate\",3,\"fake_gpu_driver")) << ended.report;
}

TEST(Judge, AReleaseTooMany) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                EXPECT_EQ(gpu.api.primary_release(0), 0);
                EXPECT_EQ(gpu.api.primary_release(0), cu::kInvalidContext);
                EXPECT_EQ(gpu.api.primary_retain(&gpu.context, 0), 0);
              }).only("no context"));
}

TEST(Judge, AKernelWithoutBody) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                cu::Module module = nullptr;
                cu::Function function = nullptr;
                EXPECT_EQ(gpu.api.module_load_data(
                              &module, ".version 7.0\n.target sm_80\n.visible .entry other() { }"),
                          0);
                EXPECT_EQ(gpu.api.module_get_function(&function, module, "other"), cu::kNotFound);
                EXPECT_EQ(gpu.api.module_unload(module), 0);
              }).only("no body"));
}

}  // namespace
