// SPDX-License-Identifier: BSD-3-Clause
// Memory: what is told of an address, bounds, what is freed, other processes.
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "tests/fake_gpu/same_as_real/probe.h"

namespace same_as_real { namespace {

void attributes(const Reading& r, Gpu& gpu, const std::string& key, cu::Pointer of) {
  constexpr unsigned kCount = 7;
  cu::PointerAttribute which[kCount] = {cu::kPointerContext,    cu::kPointerMemoryType,
                                        cu::kPointerIsManaged,  cu::kPointerDeviceOrdinal,
                                        cu::kPointerRangeStart, cu::kPointerRangeSize,
                                        cu::PointerAttribute(4) /* host pointer */};
  cu::Context context = reinterpret_cast<cu::Context>(77);
  unsigned type = 77, managed = 77;
  int ordinal = 77;
  cu::Pointer start = 77;
  std::size_t size = 77;
  void* host = reinterpret_cast<void*>(77);
  void* to[kCount] = {&context, &type, &managed, &ordinal, &start, &size, &host};
  const int code = gpu.api.pointer_get_attributes(kCount, which, to, of);
  std::string text = std::to_string(code) + " type " + std::to_string(type) + " ordinal " +
                     std::to_string(ordinal) + " size " + std::to_string(size) + " start " +
                     (start == 0    ? "0"
                      : start == 77 ? "unset"
                                    : std::to_string(long(of - start)) + " below") +
                     " context " +
                     (context == gpu.context ? "ours"
                      : context == nullptr   ? "null"
                                             : "other") +
                     " host " +
                     (host == nullptr                             ? "null"
                      : reinterpret_cast<cu::Pointer>(host) == of ? "same"
                                                                  : "other") +
                     " managed " + std::to_string(managed);
  r.fact(key, text);
}

BEHAVIOUR(pointer_attributes, "memory.pointer_attributes", gpu, 60) {
  Gpu gpu = open_gpu();
  const cu::Pointer memory = gpu.bytes(100'000);
  attributes(r, gpu, "device", memory);
  attributes(r, gpu, "device.inside", memory + 777);
  attributes(r, gpu, "device.last_byte", memory + 99'999);
  attributes(r, gpu, "device.one_behind", memory + 100'000);
  attributes(r, gpu, "device.behind_512", memory + 100'352);
  const cu::Pointer large = gpu.bytes(64u << 20);
  attributes(r, gpu, "large.inside", large + 1'000'000);
  attributes(r, gpu, "large.one_behind", large + (64u << 20));
  r.fact("device.aligned_to_512", memory % 512 == 0);
  r.fact("large.aligned_to_2_mib", large % (2u << 20) == 0);
  static char bytes[64];
  char local[64];
  void* heap = std::malloc(4096);
  attributes(r, gpu, "host.static", reinterpret_cast<cu::Pointer>(bytes));
  attributes(r, gpu, "host.stack", reinterpret_cast<cu::Pointer>(local));
  attributes(r, gpu, "host.heap", reinterpret_cast<cu::Pointer>(heap));
  attributes(r, gpu, "null", 0);
  attributes(r, gpu, "nowhere", 0x1234560000);
  void *pinned = nullptr, *mapped = nullptr;
  MUST(gpu.api.mem_host_alloc(&pinned, 5000, 0));
  MUST(gpu.api.mem_host_alloc(&mapped, 5000, cu::kHostAllocPortable | cu::kHostAllocDeviceMap));
  attributes(r, gpu, "pinned", reinterpret_cast<cu::Pointer>(pinned));
  attributes(r, gpu, "pinned.inside", reinterpret_cast<cu::Pointer>(pinned) + 100);
  attributes(r, gpu, "pinned.mapped", reinterpret_cast<cu::Pointer>(mapped));
  MUST(gpu.api.mem_free(memory));
  attributes(r, gpu, "device.freed", memory);
  MUST(gpu.api.mem_free(large));
  attributes(r, gpu, "large.freed", large);
  MUST(gpu.api.mem_free_host(pinned));
  attributes(r, gpu, "pinned.freed", reinterpret_cast<cu::Pointer>(pinned));
  std::thread([&] { attributes(r, gpu, "on_a_thread_without_context", large); }).join();
  std::free(heap);
}

BEHAVIOUR(free_codes, "memory.free", gpu, 60) {
  Gpu gpu = open_gpu();
  auto& a = gpu.api;
  const cu::Pointer memory = gpu.bytes(4096);
  r.fact("null", a.mem_free(0));
  r.fact("inside", a.mem_free(memory + 64));
  r.fact("first", a.mem_free(memory));
  r.fact("second", a.mem_free(memory));
  static char bytes[64];
  r.fact("host_memory", a.mem_free(reinterpret_cast<cu::Pointer>(bytes)));
  void* pinned = nullptr;
  MUST(a.mem_host_alloc(&pinned, 4096, 0));
  r.fact("pinned_by_mem_free", a.mem_free(reinterpret_cast<cu::Pointer>(pinned)));
  r.fact("host.inside", a.mem_free_host(static_cast<char*>(pinned) + 64));
  r.fact("host.first", a.mem_free_host(pinned));
  r.fact("host.second", a.mem_free_host(pinned));
  r.fact("host.null", a.mem_free_host(nullptr));
  r.fact("host.not_ours", a.mem_free_host(bytes));
  const cu::Pointer again = gpu.bytes(4096);
  r.note("the_same_address_again", again == memory ? "yes" : "no");
}

BEHAVIOUR(out_of_memory, "memory.out_of_memory", gpu, 60) {
  Gpu gpu = open_gpu();
  auto& a = gpu.api;
  std::size_t free = 0, total = 0;
  MUST(a.mem_get_info(&free, &total));
  cu::Pointer pointer = 77;
  r.fact("twice_the_card", a.mem_alloc(&pointer, total * 2));
  r.fact("pointer_is_unchanged", pointer == 77);
  r.fact("a_little_more_than_free", a.mem_alloc(&pointer, free + (1u << 20)));
  r.fact("size_max", a.mem_alloc(&pointer, ~std::size_t{0}));
  r.fact("then_64_bytes", a.mem_alloc(&pointer, 64));
  r.fact("then_synchronize", gpu.api.ctx_synchronize());
  cu::Pointer large = 0;
  r.fact("most_of_it", a.mem_alloc(&large, free - (std::size_t{2} << 30)));
  std::size_t left = 0;
  MUST(a.mem_get_info(&left, &total));
  r.note("left_then", double(left));
  cu::Pointer more = 0;
  r.fact("then_4_gib", a.mem_alloc(&more, std::size_t{4} << 30));
  r.fact("stream_create.when_nearly_full",
         a.stream_create(reinterpret_cast<cu::Stream*>(&more), 1, 0));
  r.fact("free", a.mem_free(large));
}

BEHAVIOUR(bounds, "memory.bounds", gpu, 60) {
  const auto with = [&](const char* key, const std::function<int(Gpu&, cu::Stream)>& call) {
    const std::string end = in_child([&] {
      Gpu gpu = open_gpu();
      const cu::Stream stream = gpu.stream();
      r.fact(key, call(gpu, stream));
      r.fact(std::string(key) + ".then_synchronize", gpu.api.stream_synchronize(stream));
      return 0;
    });
    if (end != "0") r.fact(key, end);
  };
  static char host[1 << 16];
  with("h2d.into_null",
       [](Gpu& g, cu::Stream s) { return g.api.memcpy_h2d_async(0, host, 64, s); });
  with("h2d.from_null",
       [](Gpu& g, cu::Stream s) { return g.api.memcpy_h2d_async(g.bytes(64), nullptr, 64, s); });
  with("h2d.0_bytes_null",
       [](Gpu& g, cu::Stream s) { return g.api.memcpy_h2d_async(0, nullptr, 0, s); });
  with("h2d.beyond",
       [](Gpu& g, cu::Stream s) { return g.api.memcpy_h2d_async(g.bytes(64), host, 128, s); });
  with("h2d.beyond_2_mib", [](Gpu& g, cu::Stream s) {
    return g.api.memcpy_h2d_async(g.bytes(4u << 20) + (4u << 20) - 64, host, 1 << 16, s);
  });
  with("h2d.into_host", [](Gpu& g, cu::Stream s) {
    return g.api.memcpy_h2d_async(reinterpret_cast<cu::Pointer>(host), host + 1024, 64, s);
  });
  with("h2d.from_device", [](Gpu& g, cu::Stream s) {
    const cu::Pointer p = g.bytes(4096);
    return g.api.memcpy_h2d_async(p, reinterpret_cast<void*>(p + 1024), 64, s);
  });
  with("h2d.into_freed", [](Gpu& g, cu::Stream s) {
    const cu::Pointer p = g.bytes(64u << 20);
    MUST(g.api.mem_free(p));
    return g.api.memcpy_h2d_async(p, host, 64, s);
  });
  with("d2h.into_device", [](Gpu& g, cu::Stream s) {
    const cu::Pointer p = g.bytes(4096);
    return g.api.memcpy_d2h_async(reinterpret_cast<void*>(p + 1024), p, 64, s);
  });
  with("d2h.from_host", [](Gpu& g, cu::Stream s) {
    return g.api.memcpy_d2h_async(host, reinterpret_cast<cu::Pointer>(host + 1024), 64, s);
  });
  with("d2d.overlapping", [](Gpu& g, cu::Stream s) {
    const cu::Pointer p = g.bytes(4096);
    return g.api.memcpy_d2d_async(p, p + 32, 64, s);
  });
  with("d2d.from_host", [](Gpu& g, cu::Stream s) {
    return g.api.memcpy_d2d_async(g.bytes(4096), reinterpret_cast<cu::Pointer>(host), 64, s);
  });
  with("d2d.from_nowhere", [](Gpu& g, cu::Stream s) {
    return g.api.memcpy_d2d_async(g.bytes(4096), 0x1234560000, 64, s);
  });
  with("memset.null", [](Gpu& g, cu::Stream s) { return g.api.memset_d8_async(0, 1, 64, s); });
  with("memset.0_bytes",
       [](Gpu& g, cu::Stream s) { return g.api.memset_d8_async(g.bytes(64), 1, 0, s); });
  with("memset.beyond",
       [](Gpu& g, cu::Stream s) { return g.api.memset_d8_async(g.bytes(64), 1, 8u << 20, s); });
  with("memset.host", [](Gpu& g, cu::Stream s) {
    return g.api.memset_d8_async(reinterpret_cast<cu::Pointer>(host), 1, 64, s);
  });
  with("memset.pinned", [](Gpu& g, cu::Stream s) {
    void* p = nullptr;
    MUST(g.api.mem_host_alloc(&p, 4096, 0));
    return g.api.memset_d8_async(reinterpret_cast<cu::Pointer>(p), 1, 64, s);
  });
}

BEHAVIOUR(host_access, "memory.host_access", gpu, 40) {
  r.fact("read", in_child([] {
           Gpu gpu = open_gpu();
           return *reinterpret_cast<volatile char*>(gpu.bytes(4096));
         }));
  r.fact("write", in_child([] {
           Gpu gpu = open_gpu();
           *reinterpret_cast<volatile char*>(gpu.bytes(4096)) = 1;
           return 0;
         }));
  r.fact("read_pinned_freed", in_child([] {
           Gpu gpu = open_gpu();
           void* pinned = nullptr;
           MUST(gpu.api.mem_host_alloc(&pinned, 1 << 20, 0));
           MUST(gpu.api.mem_free_host(pinned));
           return int(*static_cast<volatile char*>(pinned)) * 0;
         }));
}

// What two processes share.
struct Page {
  std::atomic<int> step;
  cu::IpcMemory handle, inside;
  int code;
};
Page* shared_page() {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return new (page) Page{};
}
void await(Page& page, int step) {
  if (!wait_for([&] { return page.step >= step; }, 15'000)) std::exit(6);
}

void import_memory(const Reading& r, Page& page) {
  Gpu gpu = open_gpu();
  auto& a = gpu.api;
  await(page, 1);
  cu::Pointer one = 0, two = 0, inside = 0;
  r.fact("open", a.ipc_open_mem_handle(&one, page.handle, cu::kIpcLazyEnablePeerAccess));
  r.fact("open.flags_0", a.ipc_open_mem_handle(&two, page.handle, 0));
  r.fact("open.twice", a.ipc_open_mem_handle(&two, page.handle, 1));
  r.fact("open.twice.same", one == two);
  r.fact("open.inside", a.ipc_open_mem_handle(&inside, page.inside, 1));
  r.fact("open.inside.below_1024", inside == one + 1024);
  r.fact("open.inside.is_the_start", inside == one);
  attributes(r, gpu, "opened", one + 5);
  unsigned char bytes[2] = {};
  r.fact("read", gpu.more.memcpy_d2h(bytes, one + 100, 2));
  r.fact("read.value", bytes[0]);
  r.fact("mem_free_of_opened", a.mem_free(one));
  MUST(a.memset_d8_async(one, 9, 64, nullptr));
  MUST(a.stream_synchronize(nullptr));
  page.step = 2;
  await(page, 3);
  r.fact("read.after_the_owner_freed", gpu.more.memcpy_d2h(bytes, one + 100, 2));
  r.fact("read.after_the_owner_freed.value", bytes[0]);
  r.fact("close", a.ipc_close_mem_handle(one));
  r.fact("close.second", a.ipc_close_mem_handle(one));
  r.fact("close.third", a.ipc_close_mem_handle(one));
  r.fact("read.after_close", gpu.more.memcpy_d2h(bytes, one + 100, 2));
  r.fact("open.after_the_owner_freed", a.ipc_open_mem_handle(&two, page.handle, 1));
  page.step = 4;
  await(page, 5);
  r.fact("open.after_the_owner_died", a.ipc_open_mem_handle(&two, page.handle, 1));
}

BEHAVIOUR(ipc, "memory.ipc", gpu, 60) {
  Page& page = *shared_page();
  const pid_t child = fork();
  if (child == 0) {
    Gpu gpu = open_gpu();
    auto& a = gpu.api;
    const cu::Pointer memory = gpu.bytes(4u << 20);
    MUST(a.memset_d8_async(memory, 7, 4u << 20, nullptr));
    MUST(a.stream_synchronize(nullptr));
    r.fact("get", a.ipc_get_mem_handle(&page.handle, memory));
    r.fact("get.inside", a.ipc_get_mem_handle(&page.inside, memory + 1024));
    r.fact("get.same_handle_inside", std::memcmp(&page.handle, &page.inside, 64) == 0);
    cu::IpcMemory handle;
    cu::Pointer opened = 0;
    r.fact("get.null", a.ipc_get_mem_handle(&handle, 0));
    static char host[64];
    r.fact("get.host", a.ipc_get_mem_handle(&handle, reinterpret_cast<cu::Pointer>(host)));
    void* pinned = nullptr;
    MUST(a.mem_host_alloc(&pinned, 4096, 0));
    r.fact("get.pinned", a.ipc_get_mem_handle(&handle, reinterpret_cast<cu::Pointer>(pinned)));
    r.fact("open.in_own_process", a.ipc_open_mem_handle(&opened, page.handle, 1));
    std::memset(&handle, 0, sizeof handle);
    r.fact("open.garbage", a.ipc_open_mem_handle(&opened, handle, 1));
    page.step = 1;
    await(page, 2);
    unsigned char byte = 0;
    MUST(gpu.more.memcpy_d2h(&byte, memory, 1));
    r.fact("the_owner_sees", byte);
    r.fact("owner_frees_while_open", a.mem_free(memory));
    page.step = 3;
    await(page, 4);
    _exit(0);
  }
  std::thread reaper([&] {
    int status = 0;
    waitpid(child, &status, 0);
    page.step = 5;
  });
  import_memory(r, page);
  reaper.join();
}

// A descriptor over a socket.
void send_descriptor(int socket, int descriptor) {
  char byte = 0, control[CMSG_SPACE(sizeof(int))] = {};
  iovec data{&byte, 1};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  if (sendmsg(socket, &message, 0) < 0) std::exit(7);
}
int receive_descriptor(int socket) {
  char byte = 0, control[CMSG_SPACE(sizeof(int))] = {};
  iovec data{&byte, 1};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, 0) <= 0 || !CMSG_FIRSTHDR(&message)) return -1;
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
  return descriptor;
}

cu::Pointer mapped(const Reading& r, Gpu& gpu, const std::string& key, Handle handle,
                   std::size_t size) {
  cu::Pointer at = 0;
  const MemoryAccess access{{1, 0}, 3};
  r.fact(key + ".reserve", gpu.more.mem_reserve(&at, size, 0, 0, 0));
  r.fact(key + ".map", gpu.more.mem_map(at, size, 0, handle, 0));
  unsigned char byte = 0;
  r.fact(key + ".read_without_access", gpu.more.memcpy_d2h(&byte, at, 1));
  r.fact(key + ".set_access", gpu.more.mem_set_access(at, size, &access, 1));
  return at;
}

BEHAVIOUR(vmm, "memory.vmm", gpu, 60) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return;
  const std::size_t size = 4u << 20;
  const pid_t child = fork();
  if (child == 0) {
    Gpu gpu = open_gpu();
    const int descriptor = receive_descriptor(ends[1]);
    r.fact("other_process.got_a_descriptor", descriptor >= 0);
    Handle handle = 0;
    r.fact("other_process.import",
           gpu.more.mem_import(&handle, reinterpret_cast<void*>(std::intptr_t{descriptor}), 1));
    const cu::Pointer at = mapped(r, gpu, "other_process", handle, size);
    unsigned char byte = 0;
    r.fact("other_process.read", gpu.more.memcpy_d2h(&byte, at + 10, 1));
    r.fact("other_process.value", byte);
    r.fact("other_process.import_garbage",
           gpu.more.mem_import(&handle, reinterpret_cast<void*>(1), 1));
    std::fflush(nullptr);
    _exit(0);
  }
  Gpu gpu = open_gpu();
  MemoryProperties properties;
  std::size_t granularity = 0, recommended = 0;
  r.fact("granularity", gpu.more.mem_granularity(&granularity, &properties, 0));
  gpu.more.mem_granularity(&recommended, &properties, 1);
  r.fact("granularity.minimum", granularity);
  r.fact("granularity.recommended", recommended);
  Handle handle = 0, again = 0;
  r.fact("create.odd_size", gpu.more.mem_create(&handle, 12345, &properties, 0));
  r.fact("create", gpu.more.mem_create(&handle, size, &properties, 0));
  const cu::Pointer at = mapped(r, gpu, "own", handle, size);
  r.fact("own.memset", gpu.api.memset_d8_async(at, 42, size, nullptr));
  r.fact("own.synchronize", gpu.api.stream_synchronize(nullptr));
  attributes(r, gpu, "own.attributes", at + 5);
  cu::IpcMemory ipc;
  r.fact("own.ipc_get_mem_handle", gpu.api.ipc_get_mem_handle(&ipc, at));
  r.fact("own.mem_free", gpu.api.mem_free(at));
  int descriptor = -1;
  r.fact("export", gpu.more.mem_export(&descriptor, handle, 1, 0));
  send_descriptor(ends[0], descriptor);
  r.fact("import_in_own_process",
         gpu.more.mem_import(&again, reinterpret_cast<void*>(std::intptr_t{descriptor}), 1));
  r.fact("import_in_own_process.same_handle", again == handle);
  const cu::Pointer second = mapped(r, gpu, "second", again, size);
  unsigned char byte = 0;
  r.fact("second.read", gpu.more.memcpy_d2h(&byte, second + 7, 1));
  r.fact("second.value", byte);
  r.fact("release_before_unmap", gpu.more.mem_release(handle));
  r.fact("read_after_release", gpu.more.memcpy_d2h(&byte, at + 7, 1));
  r.fact("unmap", gpu.more.mem_unmap(at, size));
  r.fact("address_free", gpu.more.mem_address_free(at, size));
  int status = 0;
  waitpid(child, &status, 0);
  r.fact("other_process.end", status);
}

BEHAVIOUR(multicast, "memory.multicast", gpu, 30) {
  Gpu gpu = open_gpu();
  for (const unsigned devices : {0u, 1u, 2u}) {
    MulticastProperties properties;
    properties.devices = devices;
    properties.size = 2u << 20;
    Handle handle = 0;
    r.fact(std::to_string(devices) + "_devices", gpu.more.multicast_create(&handle, &properties));
  }
}

}}  // namespace same_as_real
