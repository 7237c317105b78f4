// SPDX-License-Identifier: BSD-3-Clause
// Return codes: without cuInit, without a context, with one, with handles that are none.
#include <cstdlib>
#include <cstring>
#include <map>

#include "tests/fake_gpu/same_as_real/kernels.h"
#include "tests/fake_gpu/same_as_real/probe.h"

namespace same_as_real { namespace {

// Handles for every call. Those that there are without a context stay null.
struct Handles {
  cu::Pointer memory = 0;
  void* pinned = nullptr;
  cu::Stream stream = nullptr;
  cu::Event event = nullptr, timed = nullptr;
  cu::Module module = nullptr;
  cu::Function function = nullptr;
};

Handles handles_of(Gpu& gpu) {
  Handles h;
  h.memory = gpu.bytes(4096);
  MUST(gpu.api.mem_host_alloc(&h.pinned, 4096, 0));
  h.stream = gpu.stream();
  h.event = gpu.event();
  h.timed = gpu.event(0);
  h.function = gpu.kernel("empty");
  h.module = gpu.module;
  MUST(gpu.api.event_record(h.event, h.stream));
  MUST(gpu.api.event_record(h.timed, h.stream));
  MUST(gpu.api.stream_synchronize(h.stream));
  return h;
}

void nothing(void*) {}

using Call = std::function<int()>;
using Calls = std::vector<std::pair<const char*, Call>>;

Calls calls_of_memory(Gpu& gpu, Handles& h) {
  static int number;
  static const char* text;
  static char name[100];
  static cu::Uuid uuid;
  static cu::Context context;
  static cu::Device device;
  static std::size_t size;
  static std::size_t size2;
  static cu::Pointer pointer;
  static void* host;
  static char bytes[64];
  auto& a = gpu.api;
  const auto attributes = [&a](cu::Pointer of) {
    cu::PointerAttribute which = cu::kPointerMemoryType;
    unsigned type = 0;
    void* to = &type;
    return a.pointer_get_attributes(1, &which, &to, of);
  };
  return {
      {"driver_get_version", [&] { return a.driver_get_version(&number); }},
      {"get_error_name", [&] { return a.get_error_name(cu::kNotReady, &text); }},
      {"get_error_string", [&] { return a.get_error_string(cu::kNotReady, &text); }},
      {"device_get", [&] { return a.device_get(&device, 0); }},
      {"device_get_count", [&] { return a.device_get_count(&number); }},
      {"device_get_name", [&] { return a.device_get_name(name, 100, 0); }},
      {"device_get_uuid", [&] { return a.device_get_uuid(&uuid, 0); }},
      {"device_get_attribute", [&] { return a.device_get_attribute(&number, cu::kWarpSize, 0); }},
      {"device_get_pci_bus_id", [&] { return a.device_get_pci_bus_id(name, 100, 0); }},
      {"ctx_get_current", [&] { return a.ctx_get_current(&context); }},
      {"ctx_get_device", [&] { return a.ctx_get_device(&device); }},
      {"mem_get_info", [&] { return a.mem_get_info(&size, &size2); }},
      {"mem_alloc", [&] { return a.mem_alloc(&pointer, 256); }},
      {"mem_free", [&] { return a.mem_free(pointer); }},
      {"mem_host_alloc", [&] { return a.mem_host_alloc(&host, 256, 0); }},
      {"mem_free_host", [&] { return a.mem_free_host(host); }},
      {"memcpy_h2d_async", [&] { return a.memcpy_h2d_async(h.memory, bytes, 64, h.stream); }},
      {"memcpy_d2h_async", [&] { return a.memcpy_d2h_async(bytes, h.memory, 64, h.stream); }},
      {"memcpy_d2d_async",
       [&] { return a.memcpy_d2d_async(h.memory + 1024, h.memory, 64, h.stream); }},
      {"memset_d8_async", [&] { return a.memset_d8_async(h.memory, 1, 64, h.stream); }},
      {"pointer_get_attributes", [=, &h] { return attributes(h.memory); }},
  };
}

Calls calls_of_streams(Gpu& gpu, Handles& h) {
  static int number;
  static cu::Context context;
  static cu::Stream stream;
  static cu::Event event;
  static cu::CaptureStatus status;
  static cu::CaptureMode mode = cu::kCaptureGlobal;
  static float ms;
  static cu::Module module;
  static cu::Function function;
  static cu::IpcMemory ipc;
  static cu::Graph graph;
  auto& a = gpu.api;
  return {
      {"stream_create", [&] { return a.stream_create(&stream, 1, 0); }},
      {"stream_query", [&] { return a.stream_query(h.stream); }},
      {"stream_synchronize", [&] { return a.stream_synchronize(h.stream); }},
      {"stream_get_ctx", [&] { return a.stream_get_ctx(h.stream, &context); }},
      {"stream_is_capturing", [&] { return a.stream_is_capturing(h.stream, &status); }},
      {"event_create", [&] { return a.event_create(&event, 2); }},
      {"event_record", [&] { return a.event_record(h.event, h.stream); }},
      {"stream_wait_event", [&] { return a.stream_wait_event(h.stream, h.event, 0); }},
      {"event_synchronize", [&] { return a.event_synchronize(h.event); }},
      {"event_query", [&] { return a.event_query(h.event); }},
      {"event_elapsed_time", [&] { return a.event_elapsed_time(&ms, h.timed, h.timed); }},
      {"event_destroy", [&] { return a.event_destroy(event); }},
      {"stream_destroy", [&] { return a.stream_destroy(stream); }},
      {"exchange_capture_mode", [&] { return a.exchange_capture_mode(&mode); }},
      {"stream_begin_capture",
       [&] { return a.stream_begin_capture(h.stream, cu::kCaptureRelaxed); }},
      {"stream_end_capture", [&] { return a.stream_end_capture(h.stream, &graph); }},
      {"module_load_data", [&] { return a.module_load_data(&module, kKernels); }},
      {"module_get_function", [&] { return a.module_get_function(&function, h.module, "empty"); }},
      {"module_unload", [&] { return a.module_unload(module); }},
      {"launch_kernel", [&] { return gpu.launch(h.function, h.stream); }},
      {"launch_host_function", [&] { return a.launch_host_function(h.stream, nothing, nullptr); }},
      {"occupancy", [&] { return a.occupancy(&number, h.function, 128, 0); }},
      {"ipc_get_mem_handle", [&] { return a.ipc_get_mem_handle(&ipc, h.memory); }},
      {"ctx_pop", [&] { return a.ctx_pop(&context); }},
      {"ctx_push", [&] { return a.ctx_push(context); }},
  };
}

// Every call of the table, once, with sensible arguments.
Calls calls_of(Gpu& gpu, Handles& h) {
  Calls all = calls_of_memory(gpu, h);
  for (auto& each : calls_of_streams(gpu, h)) all.push_back(each);
  return all;
}

// With null handles a call may crash: each has a process of its own, which initialises anew.
void each_in_a_child(const Reading& r, bool init) {
  Gpu none = open_driver();
  Handles h;
  for (std::size_t i = 0; i < calls_of(none, h).size(); ++i) {
    const char* name = calls_of(none, h)[i].first;
    const std::string end = in_child([&] {
      if (init) MUST(none.api.init(0));
      r.fact(name, calls_of(none, h)[i].second());
      return 0;
    });
    if (end != "0") r.fact(name, end);
  }
}

BEHAVIOUR(before_init, "driver.before_init", gpu, 120) { each_in_a_child(r, false); }
BEHAVIOUR(without_context, "driver.without_context", gpu, 120) { each_in_a_child(r, true); }

BEHAVIOUR(with_context, "driver.with_context", gpu, 60) {
  Gpu gpu = open_gpu();
  Handles h = handles_of(gpu);
  for (const auto& [name, call] : calls_of(gpu, h)) r.fact(name, call());
}

// The handles belong to the context of another thread, and this one has none.
BEHAVIOUR(on_a_fresh_thread, "driver.on_a_fresh_thread", gpu, 60) {
  Gpu gpu = open_gpu();
  Handles h = handles_of(gpu);
  std::thread([&] {
    for (const auto& [name, call] : calls_of(gpu, h)) r.fact(name, call());
  }).join();
}

BEHAVIOUR(init_codes, "driver.init", gpu, 60) {
  Gpu gpu = open_driver();
  r.fact("flags_1", gpu.api.init(1));
  r.fact("flags_0", gpu.api.init(0));
  r.fact("again", gpu.api.init(0));
  // After a fork the driver of the parent is of no use.
  r.fact("in_a_forked_child.count", in_child([&] {
           int count = 0;
           return gpu.api.device_get_count(&count);
         }));
  r.fact("in_a_forked_child.init", in_child([&] { return gpu.api.init(0); }));
}

BEHAVIOUR(visible_devices, "driver.visible_devices", gpu, 60) {
  for (const char* devices : {"", "0", "7", "-1", "0,0", "GPU-0"}) {
    const std::string key = std::string("'") + devices + "'";
    in_child([&] {
      setenv("CUDA_VISIBLE_DEVICES", devices, 1);
      Gpu gpu = open_driver();
      int count = -1;
      r.fact(key + ".init", gpu.api.init(0));
      r.fact(key + ".get_count", gpu.api.device_get_count(&count));
      r.fact(key + ".count", count);
      return 0;
    });
  }
}

void read_limits(const Reading& r, Gpu& gpu) {
  auto& a = gpu.api;
  const std::map<const char*, cu::DeviceAttribute> limits = {
      {"max_threads_per_block", cu::kMaxThreadsPerBlock},
      {"max_block_x", cu::kMaxBlockX},
      {"max_grid_x", cu::kMaxGridX},
      {"max_grid_y", cu::kMaxGridY},
      {"shared_per_block", cu::kSharedMemoryPerBlock},
      {"shared_per_block_optin", cu::kSharedMemoryPerBlockOptin},
      {"shared_per_multiprocessor", cu::kSharedMemoryPerMultiprocessor},
      {"warp_size", cu::kWarpSize},
      {"multiprocessors", cu::kMultiprocessors},
      {"can_map_host_memory", cu::kCanMapHostMemory},
      {"l2_bytes", cu::kL2CacheBytes},
      {"threads_per_multiprocessor", cu::kThreadsPerMultiprocessor},
      {"blocks_per_multiprocessor", cu::kBlocksPerMultiprocessor},
      {"registers_per_multiprocessor", cu::kRegistersPerMultiprocessor},
      {"unified_addressing", cu::kUnifiedAddressing},
      {"capability_major", cu::kComputeCapabilityMajor},
      {"capability_minor", cu::kComputeCapabilityMinor},
      {"cooperative_launch", cu::kCooperativeLaunch},
      {"multicast_supported", cu::kMulticastSupported},
      {"reserved_shared_per_block", cu::DeviceAttribute(111)},
      {"async_engines", cu::DeviceAttribute(40)},
      {"concurrent_kernels", cu::DeviceAttribute(31)},
      {"compute_mode", cu::DeviceAttribute(20)},
      {"gpu_overlap", cu::DeviceAttribute(15)},
      {"max_registers_per_block", cu::DeviceAttribute(12)},
      {"memory_pools", cu::DeviceAttribute(115)},
      {"posix_fd_handles", cu::DeviceAttribute(103)},
      {"fabric_handles", cu::DeviceAttribute(128)},
      {"virtual_memory", cu::DeviceAttribute(102)},
      {"host_native_atomics", cu::DeviceAttribute(86)},
      {"pageable_memory_access", cu::DeviceAttribute(88)},
      {"concurrent_managed_access", cu::DeviceAttribute(89)},
      {"gpu_direct_rdma", cu::DeviceAttribute(116)},
      {"dma_buf", cu::DeviceAttribute(124)},
      {"compute_preemption", cu::DeviceAttribute(90)},
  };
  for (const auto& [key, attribute] : limits) {
    int value = -1;
    a.device_get_attribute(&value, attribute, 0);
    r.fact(std::string("limit.") + key, value);
  }
}

BEHAVIOUR(devices, "driver.devices", gpu, 60) {
  Gpu gpu = open_gpu();
  auto& a = gpu.api;
  int count = 0, value = 0;
  cu::Device device = -1;
  cu::Context context = nullptr;
  MUST(a.device_get_count(&count));
  r.note("count", double(count));
  r.fact("get_beyond", a.device_get(&device, count));
  r.fact("get_minus_1", a.device_get(&device, -1));
  r.fact("retain_beyond", a.primary_retain(&context, count));
  r.fact("release_beyond", a.primary_release(count));
  r.fact("attribute_of_beyond", a.device_get_attribute(&value, cu::kWarpSize, count));
  r.fact("attribute_unknown", a.device_get_attribute(&value, cu::DeviceAttribute(9999), 0));
  r.fact("attribute_0", a.device_get_attribute(&value, cu::DeviceAttribute(0), 0));
  cu::Uuid uuid{};
  r.fact("uuid_of_beyond", a.device_get_uuid(&uuid, count));
  MUST(a.device_get_uuid(&uuid, 0));
  bool zero = true;
  for (const char c : uuid.bytes) zero = zero && c == 0;
  r.fact("uuid_is_zero", zero);
  char name[100] = {};
  MUST(a.device_get_name(name, 100, 0));
  r.fact("name", name);
  r.fact("name_in_4_bytes", a.device_get_name(name, 4, 0));
  r.fact("name_in_4_bytes.is", name);
  MUST(a.device_get_pci_bus_id(name, 100, 0));
  r.fact("pci_bus_id.length", std::strlen(name));
  r.fact("pci_bus_id_in_4_bytes", a.device_get_pci_bus_id(name, 4, 0));
  MUST(a.driver_get_version(&value));
  r.fact("driver_version", value);
  std::size_t total = 0, free = 0;
  MUST(a.mem_get_info(&free, &total));
  r.note("memory.total", double(total));
  r.note("memory.free", double(free));
  MUST(gpu.more.device_total_mem(&total, 0));
  r.note("memory.device_total", double(total));
  read_limits(r, gpu);
  int least = 0, greatest = 0;
  gpu.more.ctx_get_stream_priority_range(&least, &greatest);
  r.fact("priority.least", least);
  r.fact("priority.greatest", greatest);
}

BEHAVIOUR(error_names, "driver.error_names", gpu, 20) {
  Gpu gpu = open_driver();
  for (const int code :
       {0,   1,   2,   3,   4,   34,  46,  100, 101, 200, 201, 209, 218,   222, 400,
        401, 500, 600, 700, 701, 702, 704, 709, 715, 716, 719, 720, 800,   801, 802,
        803, 804, 900, 901, 902, 903, 904, 905, 906, 907, 908, 999, 12345, -1}) {
    const char* text = "unchanged";
    const std::string key = std::to_string(code);
    const int result = gpu.api.get_error_name(cu::Result(code), &text);
    r.fact(key + ".name", std::to_string(result) + " " + (text ? text : "null"));
    text = "unchanged";
    gpu.api.get_error_string(cu::Result(code), &text);
    r.fact(key + ".text", text ? text : "null");
  }
}

BEHAVIOUR(primary_context, "driver.primary_context", gpu, 60) {
  Gpu gpu = open_driver();
  auto& a = gpu.api;
  MUST(a.init(0));
  const auto state = [&](const char* key) {
    unsigned flags = 99;
    int active = 99;
    gpu.more.primary_get_state(0, &flags, &active);
    r.fact(key, std::to_string(active) + " flags " + std::to_string(flags));
  };
  state("state.at_first");
  r.fact("release.never_retained", a.primary_release(0));
  cu::Context one = nullptr, two = nullptr, current = nullptr;
  auto start = Clock::now();
  r.fact("retain", a.primary_retain(&one, 0));
  r.note("retain.ms", ms_since(start));
  state("state.retained");
  a.ctx_get_current(&current);
  r.fact("retain_makes_it_current", current == one);
  r.fact("retain.again", a.primary_retain(&two, 0));
  r.fact("retain.again.same", one == two);
  r.fact("push", a.ctx_push(one));
  cu::Pointer memory = 0;
  MUST(a.mem_alloc(&memory, 4096));
  cu::Stream stream = gpu.stream();
  cu::Event event = gpu.event();
  r.fact("release.1", a.primary_release(0));
  state("state.after_release_1");
  r.fact("alloc.after_release_1", a.memset_d8_async(memory, 1, 64, stream));
  start = Clock::now();
  r.fact("release.2", a.primary_release(0));
  r.note("release.2.ms", ms_since(start));
  state("state.after_release_2");
  r.fact("release.3", a.primary_release(0));
  a.ctx_get_current(&current);
  r.fact("current.after_last_release_is_it", current == one);
  cu::Device device = -1;
  r.fact("ctx_get_device.after_last_release", a.ctx_get_device(&device));
  cu::Pointer other = 0;
  r.fact("mem_alloc.after_last_release", a.mem_alloc(&other, 4096));
  r.fact("retain.new", a.primary_retain(&two, 0));
  r.fact("retain.new.same", one == two);
  r.fact("mem_alloc.after_new_retain", a.mem_alloc(&other, 4096));
  cu::PointerAttribute which = cu::kPointerMemoryType;
  unsigned type = 77;
  void* to = &type;
  r.fact("old_memory.attributes", a.pointer_get_attributes(1, &which, &to, memory));
  r.fact("old_memory.type", type);
  r.fact("old_memory.free", a.mem_free(memory));
  r.note("old_event.query", double(a.event_query(event)));
  r.note("old_stream.query", double(a.stream_query(stream)));
}

BEHAVIOUR(context_stack, "driver.context_stack", gpu, 60) {
  r.fact("push.not_a_context", in_child([&] {
           Gpu other = open_gpu();
           alignas(64) static char bytes[4096];
           return other.api.ctx_push(reinterpret_cast<cu::Context>(bytes));
         }));
  Gpu gpu = open_gpu();
  auto& a = gpu.api;
  std::thread([&] {
    cu::Context context = reinterpret_cast<cu::Context>(1);
    r.fact("fresh.get_current", a.ctx_get_current(&context));
    r.fact("fresh.current_is_null", context == nullptr);
    r.fact("fresh.pop", a.ctx_pop(&context));
    r.fact("push.null", a.ctx_push(nullptr));
    r.fact("push", a.ctx_push(gpu.context));
    r.fact("push.twice", a.ctx_push(gpu.context));
    r.fact("pop.1", a.ctx_pop(&context));
    r.fact("pop.1.is_it", context == gpu.context);
    r.fact("pop.2", a.ctx_pop(&context));
    r.fact("pop.3", a.ctx_pop(&context));
    MUST(a.ctx_push(gpu.context));
    r.fact("pop.into_null", a.ctx_pop(nullptr));
    a.ctx_get_current(&context);
    r.fact("pop.into_null.popped", context == nullptr);
    r.fact("set_current", gpu.more.ctx_set_current(gpu.context));
    r.fact("set_current.null", gpu.more.ctx_set_current(nullptr));
    r.fact("pop.after_set_null", a.ctx_pop(&context));
    MUST(a.ctx_push(gpu.context));  // and the thread ends with it
  }).join();
  cu::Context current = nullptr;
  a.ctx_get_current(&current);
  r.fact("first_thread_keeps_its_own", current == gpu.context);
}

// What is no handle, or no longer. A process each: the driver may crash.
struct InAChild {
  const Reading& r;

  void operator()(const char* key, int (*call)(Gpu&)) const {
    const std::string end = in_child([&] {
      Gpu gpu = open_gpu();
      r.fact(key, call(gpu));
      return 0;
    });
    if (end != "0") r.fact(key, end);
  }
};

void destroyed_streams(const InAChild& with) {
  with("stream.destroyed.query", [](Gpu& g) {
    const cu::Stream s = g.stream();
    MUST(g.api.stream_destroy(s));
    return int(g.api.stream_query(s));
  });
  with("stream.destroyed.synchronize", [](Gpu& g) {
    const cu::Stream s = g.stream();
    MUST(g.api.stream_destroy(s));
    return int(g.api.stream_synchronize(s));
  });
  with("stream.destroyed.record", [](Gpu& g) {
    const cu::Stream s = g.stream();
    const cu::Event e = g.event();
    MUST(g.api.stream_destroy(s));
    return int(g.api.event_record(e, s));
  });
  with("stream.destroyed.destroy", [](Gpu& g) {
    const cu::Stream s = g.stream();
    MUST(g.api.stream_destroy(s));
    return int(g.api.stream_destroy(s));
  });
  with("stream.destroyed.is_capturing", [](Gpu& g) {
    const cu::Stream s = g.stream();
    cu::CaptureStatus status;
    MUST(g.api.stream_destroy(s));
    return int(g.api.stream_is_capturing(s, &status));
  });
  with("stream.destroyed.get_ctx", [](Gpu& g) {
    const cu::Stream s = g.stream();
    cu::Context context;
    MUST(g.api.stream_destroy(s));
    return int(g.api.stream_get_ctx(s, &context));
  });
  with("stream.destroyed.memset", [](Gpu& g) {
    const cu::Stream s = g.stream();
    const cu::Pointer p = g.bytes(64);
    MUST(g.api.stream_destroy(s));
    return int(g.api.memset_d8_async(p, 0, 64, s));
  });
  with("stream.destroyed.launch", [](Gpu& g) {
    const cu::Stream s = g.stream();
    const cu::Function f = g.kernel("empty");
    MUST(g.api.stream_destroy(s));
    return int(g.launch(f, s));
  });
}

void destroyed_events(const InAChild& with) {
  with("event.destroyed.query", [](Gpu& g) {
    const cu::Event e = g.event();
    MUST(g.api.event_destroy(e));
    return int(g.api.event_query(e));
  });
  with("event.destroyed.record", [](Gpu& g) {
    const cu::Event e = g.event();
    MUST(g.api.event_destroy(e));
    return int(g.api.event_record(e, nullptr));
  });
  with("event.destroyed.destroy", [](Gpu& g) {
    const cu::Event e = g.event();
    MUST(g.api.event_destroy(e));
    return int(g.api.event_destroy(e));
  });
  with("event.destroyed.wait", [](Gpu& g) {
    const cu::Event e = g.event();
    MUST(g.api.event_destroy(e));
    return int(g.api.stream_wait_event(nullptr, e, 0));
  });
}

void no_handles(const InAChild& with) {
  with("event.null.query", [](Gpu& g) { return int(g.api.event_query(nullptr)); });
  with("event.null.record", [](Gpu& g) { return int(g.api.event_record(nullptr, nullptr)); });
  with("event.null.destroy", [](Gpu& g) { return int(g.api.event_destroy(nullptr)); });
  with("stream.null.destroy", [](Gpu& g) { return int(g.api.stream_destroy(nullptr)); });
  with("stream.garbage.query", [](Gpu& g) {
    alignas(64) static char bytes[4096];
    return int(g.api.stream_query(reinterpret_cast<cu::Stream>(bytes)));
  });
  with("stream.1.query", [](Gpu& g) { return int(g.api.stream_query(cu::Stream(1))); });
  with("stream.2.query", [](Gpu& g) { return int(g.api.stream_query(cu::Stream(2))); });
  with("stream.3.query", [](Gpu& g) { return int(g.api.stream_query(cu::Stream(3))); });
  with("module.unloaded.get_function", [](Gpu& g) {
    g.kernel("empty");
    cu::Function f;
    MUST(g.api.module_unload(g.module));
    return int(g.api.module_get_function(&f, g.module, "empty"));
  });
  with("module.unloaded.launch", [](Gpu& g) {
    const cu::Function f = g.kernel("empty");
    MUST(g.api.module_unload(g.module));
    return int(g.launch(f, nullptr));
  });
  with("module.unloaded.unload", [](Gpu& g) {
    g.kernel("empty");
    MUST(g.api.module_unload(g.module));
    return int(g.api.module_unload(g.module));
  });
  with("function.null.launch", [](Gpu& g) { return int(g.launch(nullptr, nullptr)); });
  with("graph.null.instantiate", [](Gpu& g) {
    cu::GraphExec exec;
    return int(g.api.graph_instantiate(&exec, nullptr, 0));
  });
  with("graph.null.launch", [](Gpu& g) { return int(g.api.graph_launch(nullptr, nullptr)); });
}

void wrong_arguments(const InAChild& with) {
  with("mem_alloc.into_null", [](Gpu& g) { return int(g.api.mem_alloc(nullptr, 64)); });
  with("mem_alloc.0_bytes", [](Gpu& g) {
    cu::Pointer p;
    return int(g.api.mem_alloc(&p, 0));
  });
  with("stream_create.into_null", [](Gpu& g) { return int(g.api.stream_create(nullptr, 1, 0)); });
  with("stream_create.flags_2", [](Gpu& g) {
    cu::Stream s;
    return int(g.api.stream_create(&s, 2, 0));
  });
  with("stream_create.priority_99", [](Gpu& g) {
    cu::Stream s;
    return int(g.api.stream_create(&s, 1, 99));
  });
  with("event_create.into_null", [](Gpu& g) { return int(g.api.event_create(nullptr, 2)); });
  with("event_create.flags_8", [](Gpu& g) {
    cu::Event e;
    return int(g.api.event_create(&e, 8));
  });
  with("event_create.interprocess_alone", [](Gpu& g) {
    cu::Event e;
    return int(g.api.event_create(&e, 4));
  });
  with("event_create.interprocess_untimed", [](Gpu& g) {
    cu::Event e;
    return int(g.api.event_create(&e, 6));
  });
  with("host_function.null",
       [](Gpu& g) { return int(g.api.launch_host_function(nullptr, nullptr, nullptr)); });
  with("pointer_get_attributes.0_of_them",
       [](Gpu& g) { return int(g.api.pointer_get_attributes(0, nullptr, nullptr, g.bytes(64))); });
}

BEHAVIOUR(dead_handles, "driver.dead_handles", gpu, 150) {
  const InAChild with{r};
  destroyed_streams(with);
  destroyed_events(with);
  no_handles(with);
  wrong_arguments(with);
}

}}  // namespace same_as_real
