// SPDX-License-Identifier: BSD-3-Clause
// Modules, the limits of a launch, and what is left of a context after an error.
#include <cstring>
#include <fstream>
#include <iterator>

#include "tests/fake_gpu/same_as_real/kernels.h"
#include "tests/fake_gpu/same_as_real/no_fitting_image.h"
#include "tests/fake_gpu/same_as_real/probe.h"

namespace same_as_real { namespace {

BEHAVIOUR(modules, "kernel.modules", gpu, 60) {
  const auto with = [&](const char* key, const std::string& image) {
    const std::string end = in_child([&] {
      Gpu gpu = open_gpu();
      cu::Module module = nullptr;
      const auto start = Clock::now();
      r.fact(key, gpu.api.module_load_data(&module, image.c_str()));
      r.note(std::string(key) + ".ms", ms_since(start));
      return 0;
    });
    if (end != "0") r.fact(key, end);
  };
  std::string text = kKernels;
  with("good", text);
  with("empty", "");
  with("rubbish", "this is no module at all, and long enough to be read as a header of anything");
  with("elf_rubbish", "\177ELF\2\1\1" + std::string(200, 'x'));
  with("ptx.syntax_error", text + "\n.visible .entry broken( { }");
  with("ptx.newer_version",
       ".version 9.9\n.target sm_80\n.address_size 64\n.visible .entry e() { ret; }");
  with("ptx.newer_target",
       ".version 8.7\n.target sm_120\n.address_size 64\n.visible .entry e() { ret; }");
  with("ptx.no_version", ".target sm_80\n.visible .entry e() { ret; }");
  with("fatbin.other_gpu",
       std::string(reinterpret_cast<const char*>(kNoFittingImage), sizeof kNoFittingImage));
  with("cubin.other_gpu",
       std::string(reinterpret_cast<const char*>(kNoFittingCubin), sizeof kNoFittingCubin));
  Gpu gpu = open_gpu();
  cu::Module module = nullptr;
  cu::Function function = nullptr, again = nullptr;
  r.fact("load.into_null", gpu.api.module_load_data(nullptr, kKernels));
  r.fact("load.null_image", gpu.api.module_load_data(&module, nullptr));
  MUST(gpu.api.module_load_data(&module, kKernels));
  r.fact("function.unknown", gpu.api.module_get_function(&function, module, "nobody"));
  r.fact("function.empty_name", gpu.api.module_get_function(&function, module, ""));
  r.fact("function.null_name", gpu.api.module_get_function(&function, module, nullptr));
  r.fact("function.of_null_module", gpu.api.module_get_function(&function, nullptr, "empty"));
  r.fact("function", gpu.api.module_get_function(&function, module, "empty"));
  MUST(gpu.api.module_get_function(&again, module, "empty"));
  r.fact("function.twice_the_same", function == again);
  r.fact("unload.null", gpu.api.module_unload(nullptr));
}

BEHAVIOUR(limits, "kernel.launch_limits", gpu, 40) {
  r.fact("no_parameters_where_one_is_needed", in_child([] {
           Gpu other = open_gpu();
           return int(other.api.launch_kernel(other.kernel("poke"), 1, 1, 1, 1, 1, 1, 0, nullptr,
                                              nullptr, nullptr));
         }));
  Gpu gpu = open_gpu();
  auto& a = gpu.api;
  const cu::Function f = gpu.kernel("empty"), shared = gpu.kernel("use_shared");
  const cu::Pointer memory = gpu.bytes(64);
  const cu::Stream s = gpu.stream();
  cu::Pointer to = memory;
  const auto launch = [&](unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned bytes) {
    const int code = a.launch_kernel(f, gx, gy, gz, bx, by, bz, bytes, s, nullptr, nullptr);
    const int after = a.stream_synchronize(s);
    return std::to_string(code) + (after == 0 ? "" : " then " + std::to_string(after));
  };
  r.fact("block_1024", launch(1, 1, 1, 1024, 1, 1, 0));
  r.fact("block_1025", launch(1, 1, 1, 1025, 1, 1, 0));
  r.fact("block_0", launch(1, 1, 1, 0, 1, 1, 0));
  r.fact("block_32x32x2", launch(1, 1, 1, 32, 32, 2, 0));
  r.fact("block_z_64", launch(1, 1, 1, 1, 1, 64, 0));
  r.fact("block_z_65", launch(1, 1, 1, 1, 1, 65, 0));
  r.fact("grid_0", launch(0, 1, 1, 1, 1, 1, 0));
  r.fact("grid_x_2^31_minus_1", launch(2147483647u, 1, 1, 0, 1, 1, 0));
  r.fact("grid_x_2^31", launch(2147483648u, 1, 1, 1, 1, 1, 0));
  r.fact("grid_y_65535", launch(1, 65535, 1, 1, 1, 1, 0));
  r.fact("grid_y_65536", launch(1, 65536, 1, 1, 1, 1, 0));
  r.fact("grid_z_65536", launch(1, 1, 65536, 1, 1, 1, 0));
  r.fact("shared_48_kib", launch(1, 1, 1, 32, 1, 1, 48 << 10));
  r.fact("shared_48_kib_and_4", launch(1, 1, 1, 32, 1, 1, (48 << 10) + 4));
  r.fact("attribute_227_kib", a.func_set_attribute(f, cu::kMaxDynamicSharedMemory, 227 << 10));
  r.fact("attribute_228_kib", a.func_set_attribute(f, cu::kMaxDynamicSharedMemory, 228 << 10));
  r.fact("attribute_minus_1", a.func_set_attribute(f, cu::kMaxDynamicSharedMemory, -1));
  r.fact("shared_227_kib", launch(1, 1, 1, 32, 1, 1, 227 << 10));
  r.fact("shared_227_kib_and_4", launch(1, 1, 1, 32, 1, 1, (227 << 10) + 4));
  r.fact("shared_of_another_kernel_is_not_raised",
         gpu.launch(shared, s, {&to}, 1, 1, (48 << 10) + 4));
  r.fact("legacy_stream", a.launch_kernel(f, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  int value = 0;
  const int attributes[] = {0, 1, 4, 8};  // threads per block, shared bytes, registers, dynamic
  for (const int attribute : attributes) {
    gpu.more.func_get_attribute(&value, attribute, shared);
    r.fact("function_attribute." + std::to_string(attribute), value);
  }
}

// How many streams with a spinning kernel until one waits behind another.
void count_streams(const Reading& r, Gpu& gpu) {
  auto& a = gpu.api;
  const cu::Function f = gpu.kernel("empty");
  std::vector<Spinner> many;
  std::vector<cu::Stream> streams;
  int beside = 0;
  for (int i = 0; i < 40; ++i) {
    many.emplace_back(gpu);
    streams.push_back(gpu.stream());
  }
  for (int i = 0; i < 40; ++i) {
    many[std::size_t(i)].start(streams[std::size_t(i)]);
    const cu::Stream probe = gpu.stream();
    MUST(gpu.launch(f, probe));
    if (!wait_for([&] { return a.stream_query(probe) == cu::kSuccess; }, 60)) break;
    beside = i + 1;
  }
  for (Spinner& each : many) each.stop();
  MUST(gpu.api.ctx_synchronize());
  r.note("spinning_streams_beside_which_a_new_one_runs", double(beside));
}

BEHAVIOUR(cooperative, "kernel.cooperative", gpu, 40) {
  Gpu gpu = open_gpu();
  auto& a = gpu.api;
  const cu::Function f = gpu.kernel("empty");
  const cu::Stream s = gpu.stream();
  int sms = 0, blocks = 0;
  MUST(a.device_get_attribute(&sms, cu::kMultiprocessors, 0));
  for (const int threads : {32, 128, 256, 512, 1024, 1025, 0}) {
    blocks = -1;
    const std::string key = "threads_" + std::to_string(threads);
    r.fact(key + ".occupancy", a.occupancy(&blocks, f, threads, 0));
    r.fact(key + ".blocks", blocks);
    if (blocks <= 0) continue;
    const auto launch = [&](int grid) {
      const int code =
          a.launch_cooperative(f, unsigned(grid), 1, 1, unsigned(threads), 1, 1, 0, s, nullptr);
      return std::to_string(code) + " then " + std::to_string(a.stream_synchronize(s));
    };
    r.fact(key + ".all_that_fit", launch(blocks * sms));
    r.fact(key + ".one_more", launch(blocks * sms + 1));
  }
  for (const int kib : {1, 16, 32, 48, 49}) {
    blocks = -1;
    const int code = a.occupancy(&blocks, f, 128, std::size_t(kib) << 10);
    r.fact("shared_" + std::to_string(kib) + "_kib",
           std::to_string(code) + " blocks " + std::to_string(blocks));
  }
  MUST(a.func_set_attribute(f, cu::kMaxDynamicSharedMemory, 227 << 10));
  for (const int kib : {64, 100, 113, 114, 227, 228}) {
    blocks = -1;
    const int code = a.occupancy(&blocks, f, 128, std::size_t(kib) << 10);
    r.fact("optin_shared_" + std::to_string(kib) + "_kib",
           std::to_string(code) + " blocks " + std::to_string(blocks));
  }
  // Beside another kernel that fills the GPU: is a cooperative grid accepted, and does it wait?
  Spinner spinner(gpu);
  const cu::Stream t = gpu.stream();
  spinner.start(t);
  r.fact("beside_a_running_kernel",
         a.launch_cooperative(f, unsigned(sms), 1, 1, 1024, 1, 1, 0, s, nullptr));
  r.fact("beside_a_running_kernel.done",
         wait_for([&] { return a.stream_query(s) == cu::kSuccess; }, 300));
  spinner.stop();
  MUST(gpu.api.ctx_synchronize());
  // Two spinning kernels of one process: do they run together?
  Spinner second(gpu);
  spinner.start(t);
  second.start(s);
  const cu::Stream u = gpu.stream();
  MUST(gpu.launch(f, u));
  r.fact("a_third_stream_runs_beside_two_kernels",
         wait_for([&] { return a.stream_query(u) == cu::kSuccess; }, 300));
  spinner.stop();
  second.stop();
  MUST(gpu.api.ctx_synchronize());
  count_streams(r, gpu);
}

// Whether a new primary context helps.
void context_after_error(const Reading& r, Gpu& gpu) {
  auto& a = gpu.api;
  cu::Context context = nullptr;
  cu::Pointer made = 0;
  int number = 0;
  unsigned flags = 0;
  r.fact("primary_release", a.primary_release(0));
  r.fact("primary_get_state", gpu.more.primary_get_state(0, &flags, &number));
  r.fact("primary_get_state.active", number);
  r.fact("primary_retain", a.primary_retain(&context, 0));
  r.fact("primary_retain.same", context == gpu.context);
  r.fact("ctx_push.new", a.ctx_push(context));
  r.fact("mem_alloc.new", a.mem_alloc(&made, 64));
  r.fact("ctx_synchronize.new", gpu.api.ctx_synchronize());
}

// After the error every call is made once.
void after_error(const Reading& r, Gpu& gpu, const std::function<int(cu::Stream)>& fail) {
  auto& a = gpu.api;
  const cu::Stream s = gpu.stream(), t = gpu.stream();
  const cu::Event e = gpu.event(), before = gpu.event(), never = gpu.event();
  const cu::Function empty = gpu.kernel("empty");
  cu::Pointer memory = gpu.bytes(4096), made = 0;
  void* pinned = nullptr;
  MUST(a.mem_host_alloc(&pinned, 4096, 0));
  MUST(a.event_record(before, t));
  MUST(a.stream_synchronize(t));
  r.fact("the_launch", fail(s));
  a.event_record(e, s);
  r.fact("its_event", a.event_synchronize(e));
  r.fact("stream_synchronize", a.stream_synchronize(s));
  r.fact("stream_query", a.stream_query(s));
  r.fact("stream_query.other", a.stream_query(t));
  r.fact("stream_synchronize.other", a.stream_synchronize(t));
  r.fact("event_query", a.event_query(e));
  r.fact("event_query.done_before", a.event_query(before));
  r.fact("event_query.never_recorded", a.event_query(never));
  r.fact("event_record", a.event_record(before, t));
  cu::Event event = nullptr;
  cu::Stream stream = nullptr;
  cu::Context context = nullptr;
  cu::CaptureStatus status;
  cu::Module module = nullptr;
  cu::Function function = nullptr;
  cu::IpcMemory ipc;
  int number = 0;
  std::size_t x = 0, y = 0;
  cu::PointerAttribute which = cu::kPointerMemoryType;
  unsigned type = 0;
  void* to = &type;
  char bytes[64];
  r.fact("event_create", a.event_create(&event, 2));
  r.fact("event_destroy", a.event_destroy(never));
  r.fact("stream_create", a.stream_create(&stream, 1, 0));
  r.fact("stream_wait_event", a.stream_wait_event(t, before, 0));
  r.fact("stream_is_capturing", a.stream_is_capturing(t, &status));
  r.fact("stream_get_ctx", a.stream_get_ctx(t, &context));
  r.fact("stream_begin_capture", a.stream_begin_capture(t, cu::kCaptureRelaxed));
  r.fact("ctx_get_current", a.ctx_get_current(&context));
  r.fact("ctx_get_device", a.ctx_get_device(&number));
  r.fact("ctx_pop", a.ctx_pop(&context));
  r.fact("ctx_push", a.ctx_push(context));
  r.fact("mem_get_info", a.mem_get_info(&x, &y));
  r.fact("mem_alloc", a.mem_alloc(&made, 64));
  r.fact("mem_host_alloc", a.mem_host_alloc(&pinned, 64, 0));
  r.fact("memset", a.memset_d8_async(memory, 1, 64, t));
  r.fact("d2h", a.memcpy_d2h_async(bytes, memory, 64, t));
  r.fact("pointer_get_attributes", a.pointer_get_attributes(1, &which, &to, memory));
  r.fact("launch", gpu.launch(empty, t));
  r.fact("host_function", a.launch_host_function(
                              t, [](void*) {}, nullptr));
  r.fact("module_load_data", a.module_load_data(&module, kKernels));
  r.fact("module_get_function", a.module_get_function(&function, gpu.module, "spin"));
  r.fact("occupancy", a.occupancy(&number, empty, 32, 0));
  r.fact("ipc_get_mem_handle", a.ipc_get_mem_handle(&ipc, memory));
  r.fact("device_get_count", a.device_get_count(&number));
  r.fact("init", a.init(0));
  r.fact("mem_free", a.mem_free(memory));
  r.fact("mem_free_host", a.mem_free_host(pinned));
  r.fact("event_destroy.its", a.event_destroy(e));
  r.fact("stream_destroy", a.stream_destroy(s));
  r.fact("module_unload", a.module_unload(gpu.module));
  r.fact("ctx_synchronize", gpu.api.ctx_synchronize());
  context_after_error(r, gpu);
}

BEHAVIOUR(illegal_address, "error.illegal_address", gpu, 60) {
  Gpu gpu = open_gpu();
  gpu.kernel("empty");
  cu::Pointer nowhere = 0x1000;
  unsigned value = 1;
  after_error(r, gpu, [&](cu::Stream s) {
    return gpu.launch(gpu.kernel("poke"), s, {&nowhere, &value});
  });
}
BEHAVIOUR(misaligned, "error.misaligned_address", gpu, 60) {
  Gpu gpu = open_gpu();
  gpu.kernel("empty");
  cu::Pointer odd = gpu.bytes(64) + 1;
  unsigned value = 1;
  after_error(r, gpu, [&](cu::Stream s) {
    return gpu.launch(gpu.kernel("poke"), s, {&odd, &value});
  });
}
BEHAVIOUR(trap, "error.trap", gpu, 60) {
  Gpu gpu = open_gpu();
  gpu.kernel("empty");
  after_error(r, gpu, [&](cu::Stream s) { return gpu.launch(gpu.kernel("stop"), s); });
}
// Another process goes on.
BEHAVIOUR(other_process, "error.in_another_process", gpu, 60) {
  Gpu* gpu = nullptr;
  std::atomic<bool> failed{false};
  std::string end;
  std::thread child([&] {
    end = in_child([&] {
      Gpu other = open_gpu();
      cu::Pointer nowhere = 0x1000;
      unsigned value = 1;
      other.launch(other.kernel("poke"), nullptr, {&nowhere, &value});
      return other.api.ctx_synchronize() == cu::kIllegalAddress ? 7 : 8;
    });
    failed = true;
  });
  child.join();
  r.fact("the_other_failed", end);
  static Gpu own = open_gpu();
  gpu = &own;
  r.fact("this_one.launch", gpu->launch(gpu->kernel("empty"), nullptr));
  r.fact("this_one.synchronize", gpu->api.ctx_synchronize());
}
// Other streams of the same context that still work when the error happens.
BEHAVIOUR(beside, "error.beside_a_running_kernel", gpu, 60) {
  Gpu gpu = open_gpu();
  Spinner spinner(gpu);
  gpu.kernel("poke");
  const cu::Stream s = gpu.stream(), t = gpu.stream();
  spinner.start(t);
  cu::Pointer nowhere = 0x1000;
  unsigned value = 1;
  MUST(gpu.launch(gpu.kernel("poke"), s, {&nowhere, &value}));
  const auto start = Clock::now();
  r.fact("query_becomes_700",
         wait_for([&] { return gpu.api.stream_query(s) == cu::kIllegalAddress; }, 3000));
  r.note("query_becomes_700.ms", ms_since(start));
  r.fact("other_stream_at_once", gpu.api.stream_query(t));
  spinner.stop();
}

}}  // namespace same_as_real
