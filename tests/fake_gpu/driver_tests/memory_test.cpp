// SPDX-License-Identifier: BSD-3-Clause
// Memory: no host code reaches it, bounds, poison, other processes.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <vector>

#include "tests/fake_gpu/driver_tests/process.h"

namespace {

// What the process ends with when it touches the address. The handlers of sanitizers stay away.
int end_of_access(bool write) {
  return with_gpu([write](Gpu& gpu) {
           std::signal(SIGSEGV, SIG_DFL);
           auto* const address = reinterpret_cast<volatile char*>(gpu.bytes(64));
           if (write) {
             *address = 1;
           } else {
             static_cast<void>(*address);
           }
         })
      .signal;
}

TEST(Memory, HostCodeThatTouchesItDies) {
  EXPECT_EQ(end_of_access(false), SIGSEGV);
  EXPECT_EQ(end_of_access(true), SIGSEGV);
}

TEST(Memory, IsPoisonedAndAligned) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                const cu::Pointer small = gpu.bytes(3), large = gpu.bytes(3U << 20);
                EXPECT_EQ(small % 512, 0U);
                EXPECT_EQ(large % (2U << 20), 0U);
                EXPECT_EQ(gpu.read(small, 3, nullptr), "\xCB\xCB\xCB");
                EXPECT_EQ(gpu.read(large + (3U << 20) - 2, 2, nullptr), "\xCB\xCB");
                gpu.give_back(small);
                gpu.give_back(large);
                cu::Pointer none = 0;
                EXPECT_EQ(gpu.api.mem_alloc(&none, 0), cu::kInvalidValue);
                EXPECT_EQ(gpu.api.mem_alloc(nullptr, 64), cu::kInvalidValue);
                EXPECT_EQ(gpu.api.mem_alloc(&none, ~std::size_t{0}), cu::kOutOfMemory);
                EXPECT_EQ(gpu.api.mem_free(0), 0);
              }).clean());
}

TEST(Memory, Copies) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                const cu::Stream stream = gpu.stream();
                const cu::Pointer a = gpu.bytes(1 << 20), b = gpu.bytes(1 << 20);
                void* pinned = nullptr;
                EXPECT_EQ(gpu.api.mem_host_alloc(&pinned, 1 << 20, 0), 0);
                std::string text = "what a copy takes it takes at once";
                Gate gate(gpu, stream);
                EXPECT_EQ(gpu.api.memcpy_h2d_async(a, text.data(), text.size(), stream), 0);
                const std::string sent = text;
                text.assign(text.size(), 'x');  // pageable: the bytes are already taken
                EXPECT_EQ(gpu.api.memcpy_d2d_async(b, a, sent.size(), stream), 0);
                EXPECT_EQ(gpu.api.memcpy_d2h_async(pinned, b, sent.size(), stream), 0);
                EXPECT_EQ(gpu.api.stream_query(stream), cu::kNotReady)
                    << "pinned: it does not wait";
                gate.open();
                EXPECT_EQ(gpu.api.stream_synchronize(stream), 0);
                EXPECT_EQ(std::string(static_cast<char*>(pinned), sent.size()), sent);
                EXPECT_EQ(gpu.read(b, sent.size(), stream), sent);
                const std::string big(1 << 20, 'q');
                EXPECT_EQ(gpu.api.memcpy_h2d_async(a, big.data(), big.size(), stream), 0);
                EXPECT_EQ(gpu.api.stream_query(stream), 0) << "pageable and large: it waited";
                EXPECT_EQ(gpu.read(a, big.size(), stream), big);
                EXPECT_EQ(gpu.api.memcpy_h2d_async(a, nullptr, 4, stream), cu::kInvalidValue);
                EXPECT_EQ(gpu.api.mem_free_host(pinned), 0);
                gpu.give_back(a);
                gpu.give_back(b);
                gpu.give_back(stream);
              }).clean());
}

TEST(Memory, EveryAccessIsChecked) {
  const auto wrong = [](const char* kind,
                        const std::function<cu::Result(Gpu&, cu::Pointer)>& call) {
    EXPECT_TRUE(with_gpu([&](Gpu& gpu) {
                  const cu::Pointer memory = gpu.bytes(100);
                  EXPECT_EQ(call(gpu, memory), cu::kInvalidValue);
                  gpu.give_back(memory);
                }).only(kind));
  };
  static char host[256];
  wrong("out of bounds",
        [](Gpu& g, cu::Pointer p) { return g.api.memcpy_h2d_async(p + 1, host, 100, nullptr); });
  wrong("out of bounds",
        [](Gpu& g, cu::Pointer p) { return g.api.memcpy_d2h_async(host, p + 100, 1, nullptr); });
  wrong("out of bounds",
        [](Gpu& g, cu::Pointer p) { return g.api.memcpy_d2d_async(p, p + 60, 50, nullptr); });
  wrong("out of bounds", [](Gpu& g, cu::Pointer) {
    return g.api.memset_d8_async(reinterpret_cast<cu::Pointer>(host), 0, 1, nullptr);
  });
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                cu::Pointer nowhere = 0x1000;
                unsigned value = 1;
                EXPECT_EQ(gpu.launch(gpu.kernel("poke"), nullptr, {&nowhere, &value}), 0);
                EXPECT_EQ(gpu.api.stream_synchronize(nullptr), cu::kIllegalAddress);
              }).ok)
      << "a kernel's own access breaks the context";
}

TEST(Memory, WhatIsToldOfAnAddress) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                const cu::Pointer memory = gpu.bytes(100);
                void* pinned = nullptr;
                EXPECT_EQ(gpu.api.mem_host_alloc(&pinned, 50, 0), 0);
                struct {
                  unsigned type = 77;
                  int device = 77;
                  cu::Pointer start = 77;
                  std::size_t size = 77;
                } told;
                const auto ask = [&](cu::Pointer of) {
                  told = {};
                  cu::PointerAttribute which[] = {cu::kPointerMemoryType, cu::kPointerDeviceOrdinal,
                                                  cu::kPointerRangeStart, cu::kPointerRangeSize};
                  void* to[] = {&told.type, &told.device, &told.start, &told.size};
                  EXPECT_EQ(gpu.api.pointer_get_attributes(4, which, to, of), 0);
                };
                ask(memory + 99);
                EXPECT_EQ(told.type, unsigned{cu::kDeviceMemory});
                EXPECT_EQ(told.device, 0);
                EXPECT_EQ(told.start, memory);
                EXPECT_EQ(told.size, 100U);
                ask(memory + 100);
                EXPECT_EQ(told.type, 0U);
                ask(reinterpret_cast<cu::Pointer>(pinned));
                EXPECT_EQ(told.type, unsigned{cu::kHostMemory});
                ask(reinterpret_cast<cu::Pointer>(&told));
                EXPECT_EQ(told.type, 0U);
                EXPECT_EQ(told.device, -2);
                EXPECT_EQ(told.start, 77U) << "it stays as it was";
                EXPECT_EQ(gpu.api.mem_free_host(pinned), 0);
                gpu.give_back(memory);
              }).clean());
}

// The owner is the child of the process that opens its memory.
struct Page {
  std::atomic<int> step;
  cu::IpcMemory handle;
};

TEST(Memory, OtherProcessesOpenIt) {
  void* const at =
      mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Page& page = *new (at) Page{};
  const auto reached = [&](int step) { return soon([&] { return page.step >= step; }, 20'000); };
  const pid_t owner = fork();
  ASSERT_GE(owner, 0);
  if (owner == 0) {
    const Ended ended = with_gpu([&](Gpu& gpu) {
      const cu::Pointer memory = gpu.bytes(8192);
      EXPECT_EQ(gpu.api.memset_d8_async(memory, 'o', 8192, nullptr), 0);
      EXPECT_EQ(gpu.api.stream_synchronize(nullptr), 0);
      EXPECT_EQ(gpu.api.ipc_get_mem_handle(&page.handle, memory + 10), 0);
      cu::Pointer own = 0;
      EXPECT_EQ(gpu.api.ipc_open_mem_handle(&own, page.handle, 1), cu::kInvalidContext);
      page.step = 1;
      EXPECT_TRUE(reached(2));
      EXPECT_EQ(gpu.read(memory + 8190, 2, nullptr), "oi");
      gpu.give_back(memory);
      page.step = 3;
      EXPECT_TRUE(reached(4));
    });
    _exit(ended.clean() ? 0 : 1);
  }
  EXPECT_TRUE(with_gpu([&](Gpu& gpu) {
                ASSERT_TRUE(reached(1));
                cu::Pointer opened = 0, again = 0;
                EXPECT_EQ(gpu.api.ipc_open_mem_handle(&opened, page.handle, 0), cu::kInvalidValue);
                EXPECT_EQ(gpu.api.ipc_open_mem_handle(&opened, page.handle, 1), 0);
                EXPECT_EQ(gpu.api.ipc_open_mem_handle(&again, page.handle, 1), 0);
                EXPECT_EQ(opened, again);
                EXPECT_EQ(gpu.read(opened, 2, nullptr), "oo");
                EXPECT_EQ(gpu.api.memset_d8_async(opened + 8191, 'i', 1, nullptr), 0);
                EXPECT_EQ(gpu.api.stream_synchronize(nullptr), 0);
                EXPECT_EQ(gpu.api.mem_free(opened), cu::kInvalidValue) << "it is not ours";
                page.step = 2;
                ASSERT_TRUE(reached(3));
                EXPECT_EQ(gpu.api.ipc_close_mem_handle(opened), 0);
                EXPECT_EQ(gpu.api.ipc_close_mem_handle(opened), 0) << "it was opened twice";
                EXPECT_EQ(gpu.api.ipc_close_mem_handle(opened), cu::kInvalidValue);
                EXPECT_EQ(gpu.api.ipc_open_mem_handle(&opened, page.handle, 1), cu::kInvalidValue)
                    << "the owner has freed it";
                page.step = 4;
              }).clean());
  page.step = 4;
  int status = 0;
  waitpid(owner, &status, 0);
  EXPECT_EQ(status, 0);
  munmap(at, sizeof(Page));
}

}  // namespace
