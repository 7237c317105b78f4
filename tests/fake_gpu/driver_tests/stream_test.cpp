// SPDX-License-Identifier: BSD-3-Clause
// Order: streams, events, the legacy stream, host functions.
#include <vector>

#include "tests/fake_gpu/driver_tests/process.h"

namespace {

bool is_done(Gpu& gpu, cu::Event event, int ms = 20'000) {
  return soon([&] { return gpu.api.event_query(event) == 0; }, ms);
}

TEST(Stream, RunsInOrderBehindTheCall) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                const cu::Stream stream = gpu.stream();
                const cu::Event event = gpu.event();
                const cu::Pointer memory = gpu.bytes(4);
                EXPECT_EQ(gpu.api.event_query(event), 0) << "never recorded";
                Gate gate(gpu, stream);
                for (unsigned char i = 'a'; i <= 'z'; ++i) {
                  EXPECT_EQ(gpu.api.memset_d8_async(memory, i, 4, stream), 0);
                }
                EXPECT_EQ(gpu.api.event_record(event, stream), 0);
                EXPECT_EQ(gpu.api.event_query(event), cu::kNotReady);
                EXPECT_EQ(gpu.api.stream_query(stream), cu::kNotReady);
                gate.open();
                EXPECT_EQ(gpu.api.event_synchronize(event), 0);
                EXPECT_EQ(gpu.api.event_query(event), 0);
                EXPECT_EQ(gpu.read(memory, 4, stream), "zzzz");
                gpu.give_back(memory);
                gpu.give_back(event);
                gpu.give_back(stream);
              }).clean());
}

TEST(Stream, WaitsForTheRecordBeforeTheWait) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                const cu::Stream one = gpu.stream(), two = gpu.stream(), three = gpu.stream();
                const cu::Event event = gpu.event(), end = gpu.event();
                EXPECT_EQ(gpu.api.stream_wait_event(two, event, 0), 0) << "never recorded: no wait";
                EXPECT_EQ(gpu.api.event_record(end, two), 0);
                EXPECT_TRUE(is_done(gpu, end));
                Gate gate(gpu, one);
                EXPECT_TRUE(soon([&] { return gate.is_reached(); }));
                Gate second(gpu, three);  // behind it: one thread runs host functions
                EXPECT_EQ(gpu.api.event_record(event, one), 0);
                EXPECT_EQ(gpu.api.stream_wait_event(two, event, 0), 0);
                EXPECT_EQ(gpu.api.event_record(event, three), 0) << "no matter for the wait";
                EXPECT_EQ(gpu.api.event_record(end, two), 0);
                EXPECT_FALSE(is_done(gpu, end, 50));
                gate.open();
                EXPECT_TRUE(is_done(gpu, end));
                EXPECT_EQ(gpu.api.event_query(event), cu::kNotReady);
                gpu.give_back(event);  // while it is pending
                second.open();
                EXPECT_EQ(gpu.api.stream_synchronize(three), 0);
                for (const cu::Stream stream : {one, two, three}) gpu.give_back(stream);
                gpu.give_back(end);
              }).clean());
}

TEST(Stream, LegacyJoinsBlockingStreamsOnly) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                const cu::Stream blocking = gpu.stream(cu::kStreamDefault),
                                 other = gpu.stream(cu::kStreamDefault), free = gpu.stream();
                const cu::Event event = gpu.event();
                const auto holds = [&](cu::Stream held, cu::Stream asked) {
                  Gate gate(gpu, held);
                  EXPECT_EQ(gpu.api.event_record(event, asked), 0);
                  const bool is_held = !is_done(gpu, event, 30);
                  gate.open();
                  EXPECT_TRUE(is_done(gpu, event));
                  EXPECT_EQ(gpu.api.stream_synchronize(held), 0);
                  return is_held;
                };
                EXPECT_TRUE(holds(nullptr, blocking));
                EXPECT_TRUE(holds(blocking, nullptr));
                EXPECT_TRUE(holds(blocking, cu::Stream(1))) << "1 is the legacy stream too";
                EXPECT_TRUE(holds(nullptr, cu::Stream(2))) << "2 is the thread's blocking stream";
                EXPECT_FALSE(holds(blocking, other));
                EXPECT_FALSE(holds(nullptr, free));
                EXPECT_FALSE(holds(free, nullptr));
                for (const cu::Stream stream : {blocking, other, free}) gpu.give_back(stream);
                gpu.give_back(event);
              }).clean());
}

TEST(Stream, DestroyedWhileItWorksItStillWorks) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                const cu::Stream stream = gpu.stream();
                const cu::Event event = gpu.event();
                Gate gate(gpu, stream);
                EXPECT_EQ(gpu.api.event_record(event, stream), 0);
                gpu.give_back(stream);
                EXPECT_EQ(gpu.api.event_query(event), cu::kNotReady);
                gate.open();
                EXPECT_TRUE(is_done(gpu, event));
                gpu.give_back(event);
              }).clean());
}

TEST(Stream, ElapsedTime) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                const cu::Stream stream = gpu.stream();
                const cu::Event begin = gpu.event(0), end = gpu.event(0), untimed = gpu.event();
                float ms = -7;
                EXPECT_EQ(gpu.api.event_elapsed_time(&ms, begin, end), cu::kInvalidHandle);
                EXPECT_EQ(gpu.api.event_record(begin, stream), 0);
                EXPECT_EQ(gpu.api.event_record(untimed, stream), 0);
                EXPECT_EQ(gpu.api.event_synchronize(untimed), 0);
                Gate gate(gpu, stream);
                EXPECT_EQ(gpu.api.event_record(end, stream), 0);
                EXPECT_EQ(gpu.api.event_elapsed_time(&ms, begin, end), cu::kNotReady);
                std::this_thread::sleep_for(std::chrono::milliseconds(30));
                gate.open();
                EXPECT_EQ(gpu.api.stream_synchronize(stream), 0);
                EXPECT_EQ(gpu.api.event_elapsed_time(&ms, begin, end), 0);
                EXPECT_GE(ms, 29);
                EXPECT_EQ(gpu.api.event_elapsed_time(&ms, begin, untimed), cu::kInvalidHandle);
                for (const cu::Event event : {begin, end, untimed}) gpu.give_back(event);
                gpu.give_back(stream);
              }).clean());
}

// Each stream adds to a word of its own; two hand a third one to and fro by events.
TEST(Stream, ManyAtOnce) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                constexpr int kStreams = 6, kRounds = 100;
                cu::Pointer words = gpu.bytes(kStreams * 4), shared = gpu.bytes(4);
                EXPECT_EQ(gpu.api.memset_d8_async(words, 0, kStreams * 4, nullptr), 0);
                EXPECT_EQ(gpu.api.memset_d8_async(shared, 0, 4, nullptr), 0);
                EXPECT_EQ(gpu.api.stream_synchronize(nullptr), 0);
                const cu::Function add = gpu.kernel("add_one");
                std::vector<cu::Stream> streams;
                std::vector<std::thread> threads;
                for (int i = 0; i < kStreams; ++i) streams.push_back(gpu.stream());
                for (int i = 0; i < kStreams; ++i) {
                  threads.emplace_back([&, i] {
                    EXPECT_EQ(gpu.api.ctx_push(gpu.context), 0);
                    cu::Pointer word = words + static_cast<unsigned>(i) * 4;
                    for (int round = 0; round < kRounds; ++round) {
                      EXPECT_EQ(gpu.launch(add, streams[std::size_t(i)], {&word}), 0);
                    }
                    EXPECT_EQ(gpu.api.stream_synchronize(streams[std::size_t(i)]), 0);
                  });
                }
                for (std::thread& thread : threads) thread.join();
                const cu::Event event = gpu.event();
                for (int round = 0; round < kRounds; ++round) {
                  const std::size_t at = static_cast<std::size_t>(round) % kStreams;
                  EXPECT_EQ(gpu.api.stream_wait_event(streams[at], event, 0), 0);
                  EXPECT_EQ(gpu.launch(add, streams[at], {&shared}), 0);
                  EXPECT_EQ(gpu.api.event_record(event, streams[at]), 0);
                }
                EXPECT_EQ(gpu.api.event_synchronize(event), 0);
                const std::string each(1, char(kRounds));
                for (unsigned i = 0; i < kStreams; ++i) {
                  EXPECT_EQ(gpu.read(words + i * 4, 1, nullptr), each);
                }
                EXPECT_EQ(gpu.read(shared, 1, nullptr), each);
                for (const cu::Stream stream : streams) gpu.give_back(stream);
                gpu.give_back(event);
                gpu.give_back(words);
                gpu.give_back(shared);
                EXPECT_EQ(gpu.api.module_unload(gpu.module()), 0);
              }).clean());
}

TEST(Stream, HostFunctionsRunInOrderOnAnotherThread) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                static std::vector<int> seen;
                static std::thread::id thread;
                static int numbers[] = {0, 1, 2, 3};
                const auto note = [](void* number) {
                  seen.push_back(*static_cast<int*>(number));
                  thread = std::this_thread::get_id();
                };
                for (int& number : numbers) {
                  EXPECT_EQ(gpu.api.launch_host_function(nullptr, note, &number), 0);
                }
                EXPECT_EQ(gpu.api.launch_host_function(nullptr, nullptr, nullptr),
                          cu::kInvalidValue);
                EXPECT_EQ(gpu.api.stream_synchronize(nullptr), 0);
                EXPECT_EQ(seen, (std::vector<int>{0, 1, 2, 3}));
                EXPECT_NE(thread, std::this_thread::get_id());
              }).clean());
}

TEST(Stream, OneThreadRunsTheHostFunctionsOfAll) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                const cu::Stream one = gpu.stream(), two = gpu.stream();
                const cu::Pointer memory = gpu.bytes(4);
                Gate gate(gpu, one);
                static std::atomic<int> calls;
                EXPECT_EQ(gpu.api.memset_d8_async(memory, 1, 4, two), 0);
                EXPECT_EQ(gpu.api.stream_synchronize(two), 0) << "other work goes on";
                EXPECT_EQ(gpu.api.launch_host_function(
                              two, [](void*) { ++calls; }, nullptr),
                          0);
                EXPECT_FALSE(soon([] { return calls == 1; }, 50));
                gate.open();
                EXPECT_EQ(gpu.api.stream_synchronize(two), 0);
                EXPECT_EQ(calls, 1);
                gpu.give_back(one);
                gpu.give_back(two);
                gpu.give_back(memory);
              }).clean());
}

TEST(Stream, HandlesBringTheirContext) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                const cu::Stream stream = gpu.stream();
                const cu::Event event = gpu.event();
                const cu::Pointer memory = gpu.bytes(4);
                std::thread([&] {
                  EXPECT_EQ(gpu.api.memset_d8_async(memory, 1, 4, stream), 0);
                  EXPECT_EQ(gpu.api.event_record(event, stream), 0);
                  EXPECT_EQ(gpu.api.event_synchronize(event), 0);
                  EXPECT_EQ(gpu.api.stream_synchronize(stream), 0);
                  EXPECT_EQ(gpu.api.mem_free(memory), 0);
                  EXPECT_EQ(gpu.api.event_destroy(event), 0);
                  EXPECT_EQ(gpu.api.stream_destroy(stream), 0);
                }).join();
              }).clean());
}

TEST(Device, Visible) {
  const auto visible = [](const char* list, int result, const std::string& cards) {
    EXPECT_TRUE(without_context("", [&](cu::Api& api) {
                  setenv("CUDA_VISIBLE_DEVICES", list, 1);
                  EXPECT_EQ(api.init(0), result) << list;
                  int count = 0;
                  EXPECT_EQ(api.device_get_count(&count), result == 0 ? 0 : 3);
                  std::string found;
                  for (int i = 0; i < count; ++i) {
                    cu::Uuid uuid{};
                    EXPECT_EQ(api.device_get_uuid(&uuid, i), 0);
                    found += static_cast<char>('0' + uuid.bytes[15] - 1);
                  }
                  EXPECT_EQ(found, cards) << list;
                }).clean());
  };
  visible("", 100, "");
  visible("0", 0, "0");
  visible("5,2,7", 0, "527");
  visible("3,-1,4", 0, "3");
  visible("8", 100, "");
  visible("1,1", 101, "");
}

TEST(Stream, BadArguments) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                cu::Stream stream = nullptr;
                cu::Event event = nullptr;
                EXPECT_EQ(gpu.api.stream_create(nullptr, 0, 0), cu::kInvalidValue);
                EXPECT_EQ(gpu.api.stream_create(&stream, 2, 0), cu::kInvalidValue);
                EXPECT_EQ(gpu.api.event_create(&event, 8), cu::kInvalidValue);
                EXPECT_EQ(gpu.api.event_create(&event, cu::kEventInterprocess), cu::kInvalidValue);
                EXPECT_EQ(gpu.api.event_query(nullptr), cu::kInvalidHandle);
                EXPECT_EQ(gpu.api.stream_query(cu::Stream(0x1234560)), cu::kInvalidHandle);
                EXPECT_EQ(gpu.api.stream_wait_event(nullptr, event = gpu.event(), 2),
                          cu::kInvalidValue);
                gpu.give_back(event);
                // Of another device's context.
                cu::Context other = nullptr;
                EXPECT_EQ(gpu.api.primary_retain(&other, 1), 0);
                event = gpu.event();
                EXPECT_EQ(gpu.api.ctx_push(other), 0);
                stream = gpu.stream();
                EXPECT_EQ(gpu.api.event_record(event, stream), cu::kInvalidHandle);
                cu::Context of = nullptr;
                EXPECT_EQ(gpu.api.stream_get_ctx(stream, &of), 0);
                EXPECT_EQ(of, other);
                gpu.give_back(stream);
                EXPECT_EQ(gpu.api.ctx_pop(&of), 0);
                gpu.give_back(event);
                EXPECT_EQ(gpu.api.primary_release(1), 0);
              }).clean());
}

TEST(Context, StacksAreOfThreads) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                std::thread([&] {
                  cu::Context found = gpu.context;
                  EXPECT_EQ(gpu.api.ctx_get_current(&found), 0);
                  EXPECT_EQ(found, nullptr);
                  EXPECT_EQ(gpu.api.ctx_pop(&found), cu::kInvalidContext);
                  EXPECT_EQ(gpu.api.ctx_push(gpu.context), 0);
                  EXPECT_EQ(gpu.api.ctx_push(gpu.context), 0);
                  EXPECT_EQ(gpu.api.ctx_pop(&found), 0);
                  EXPECT_EQ(found, gpu.context);
                  EXPECT_EQ(gpu.api.ctx_pop(&found), 0);
                  EXPECT_EQ(gpu.api.ctx_pop(&found), cu::kInvalidContext);
                }).join();
                EXPECT_EQ(gpu.api.ctx_push(nullptr), cu::kInvalidValue);
              }).clean());
}

TEST(Context, PrimaryOnesAreCounted) {
  EXPECT_TRUE(without_context("", [](cu::Api& api) {
                cu::Context one = nullptr, two = nullptr;
                EXPECT_EQ(api.primary_retain(&one, 0), cu::kNotInitialized);
                EXPECT_EQ(api.init(0), 0);
                EXPECT_EQ(api.init(1), cu::kInvalidValue);
                EXPECT_EQ(api.primary_retain(&one, 8), cu::kInvalidDevice);
                EXPECT_EQ(api.primary_retain(&one, 0), 0);
                EXPECT_EQ(api.primary_retain(&two, 0), 0);
                EXPECT_EQ(one, two);
                EXPECT_EQ(api.primary_release(0), 0);
                EXPECT_EQ(api.ctx_push(one), 0);
                cu::Pointer memory = 0;
                EXPECT_EQ(api.mem_alloc(&memory, 64), 0) << "still retained";
                EXPECT_EQ(api.mem_free(memory), 0);
                EXPECT_EQ(api.primary_release(0), 0);
              }).clean());
}

TEST(Context, TheLastReleaseWaitsForWhatRuns) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                const cu::Stream stream = gpu.stream();
                Gate gate(gpu, stream);
                gpu.give_back(stream);
                std::atomic<bool> is_released{false};
                std::thread opener([&] {
                  EXPECT_FALSE(soon([&] { return is_released.load(); }, 50));
                  gate.open();
                });
                EXPECT_EQ(gpu.api.primary_release(0), 0);
                is_released = true;
                opener.join();
                EXPECT_EQ(gpu.api.primary_retain(&gpu.context, 0), 0);
              }).clean());
}

TEST(Device, EightWithNamesOfTheirOwn) {
  EXPECT_TRUE(without_context("", [](cu::Api& api) {
                EXPECT_EQ(api.init(0), 0);
                std::vector<std::string> uuids, buses;
                for (int i = 0; i < 8; ++i) {
                  cu::Uuid uuid{};
                  char text[32] = {};
                  EXPECT_EQ(api.device_get_uuid(&uuid, i), 0);
                  EXPECT_EQ(api.device_get_pci_bus_id(text, sizeof text, i), 0);
                  EXPECT_EQ(std::string(text).size(), 12U) << text;
                  for (const auto& other : uuids) EXPECT_NE(other, std::string(uuid.bytes, 16));
                  for (const auto& other : buses) EXPECT_NE(other, text);
                  uuids.emplace_back(uuid.bytes, 16);
                  buses.emplace_back(text);
                }
                char name[7] = {};
                EXPECT_EQ(api.device_get_name(name, sizeof name, 0), 0);
                EXPECT_STREQ(name, "NVIDIA");
                int value = 0;
                EXPECT_EQ(api.device_get_attribute(&value, cu::kMultiprocessors, 7), 0);
                EXPECT_EQ(value, 132);
                EXPECT_EQ(api.device_get_attribute(&value, cu::kMultiprocessors, 8),
                          cu::kInvalidDevice);
                EXPECT_EQ(api.device_get_attribute(&value, cu::DeviceAttribute(9999), 0),
                          cu::kInvalidValue);
                const char* text = nullptr;
                EXPECT_EQ(api.get_error_name(cu::kNotReady, &text), 0);
                EXPECT_STREQ(text, "CUDA_ERROR_NOT_READY");
                EXPECT_EQ(api.get_error_string(cu::kNotReady, &text), 0);
                EXPECT_STREQ(text, "device not ready");
                EXPECT_EQ(api.get_error_name(cu::Result(12345), &text), cu::kInvalidValue);
                EXPECT_EQ(text, nullptr);
              }).clean());
}

}  // namespace
