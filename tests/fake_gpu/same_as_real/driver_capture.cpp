// SPDX-License-Identifier: BSD-3-Clause
// What a stream capture allows, what ends it, and replay.
#include <cstring>
#include <map>

#include "tests/fake_gpu/same_as_real/kernels.h"
#include "tests/fake_gpu/same_as_real/probe.h"

namespace same_as_real { namespace {

struct Scene {
  Gpu gpu = open_gpu();
  cu::Stream captured = gpu.stream(), other = gpu.stream(), blocking = gpu.stream(0);
  cu::Event recorded = gpu.event(), inside = gpu.event(), fresh = gpu.event();
  cu::Pointer memory = gpu.bytes(4096), victim = gpu.bytes(4096);
  void* pinned = nullptr;
  cu::Function function = gpu.kernel("empty");
  cu::GraphExec exec = nullptr;

  Scene() {
    MUST(gpu.api.mem_host_alloc(&pinned, 4096, 0));
    MUST(gpu.api.event_record(recorded, other));
    MUST(gpu.api.stream_synchronize(other));
    cu::Graph graph = nullptr;
    MUST(gpu.api.stream_begin_capture(other, cu::kCaptureRelaxed));
    MUST(gpu.api.memset_d8_async(memory, 1, 64, other));
    MUST(gpu.api.stream_end_capture(other, &graph));
    MUST(gpu.api.graph_instantiate(&exec, graph, 0));
  }
};

using Calls = std::vector<std::pair<const char*, std::function<int(Scene&)>>>;

void nothing(void*) {}

Calls calls_of_memory_and_events() {
  static cu::Pointer pointer;
  static void* host;
  static cu::Event event;
  return {
      {"mem_alloc", [](Scene& s) { return s.gpu.api.mem_alloc(&pointer, 64); }},
      {"mem_free",
       [](Scene& s) {
         const int code = s.gpu.api.mem_free(s.victim);
         if (code == 0) s.gpu.api.mem_alloc(&s.victim, 4096);
         return code;
       }},
      {"mem_host_alloc", [](Scene& s) { return s.gpu.api.mem_host_alloc(&host, 64, 0); }},
      {"mem_get_info",
       [](Scene& s) {
         std::size_t a = 0, b = 0;
         return s.gpu.api.mem_get_info(&a, &b);
       }},
      {"event_create", [](Scene& s) { return s.gpu.api.event_create(&event, 2); }},
      {"event_query.recorded_before", [](Scene& s) { return s.gpu.api.event_query(s.recorded); }},
      {"event_synchronize.recorded_before",
       [](Scene& s) { return s.gpu.api.event_synchronize(s.recorded); }},
      {"event_record.captured",
       [](Scene& s) { return s.gpu.api.event_record(s.inside, s.captured); }},
      {"event_record.other", [](Scene& s) { return s.gpu.api.event_record(s.fresh, s.other); }},
      {"event_record.null_stream",
       [](Scene& s) { return s.gpu.api.event_record(s.fresh, nullptr); }},
      {"event_query.captured_event",
       [](Scene& s) {
         s.gpu.api.event_record(s.inside, s.captured);
         return int(s.gpu.api.event_query(s.inside));
       }},
      {"event_synchronize.captured_event",
       [](Scene& s) {
         s.gpu.api.event_record(s.inside, s.captured);
         return int(s.gpu.api.event_synchronize(s.inside));
       }},
      {"event_query.never_recorded", [](Scene& s) { return s.gpu.api.event_query(s.fresh); }},
  };
}

Calls calls_of_streams() {
  static cu::Stream stream;
  return {
      {"stream_create", [](Scene& s) { return s.gpu.api.stream_create(&stream, 1, 0); }},
      {"stream_destroy.new",
       [](Scene& s) {
         s.gpu.api.stream_create(&stream, 1, 0);
         return int(s.gpu.api.stream_destroy(stream));
       }},
      {"stream_query.captured", [](Scene& s) { return s.gpu.api.stream_query(s.captured); }},
      {"stream_synchronize.captured",
       [](Scene& s) { return s.gpu.api.stream_synchronize(s.captured); }},
      {"stream_query.other", [](Scene& s) { return s.gpu.api.stream_query(s.other); }},
      {"stream_synchronize.other", [](Scene& s) { return s.gpu.api.stream_synchronize(s.other); }},
      {"stream_query.null_stream", [](Scene& s) { return s.gpu.api.stream_query(nullptr); }},
      {"stream_query.blocking", [](Scene& s) { return s.gpu.api.stream_query(s.blocking); }},
      {"ctx_synchronize", [](Scene& s) { return s.gpu.api.ctx_synchronize(); }},
  };
}

Calls calls_that_enqueue() {
  static char bytes[64];
  return {
      {"memset.captured",
       [](Scene& s) { return s.gpu.api.memset_d8_async(s.memory, 1, 64, s.captured); }},
      {"memset.other",
       [](Scene& s) { return s.gpu.api.memset_d8_async(s.memory, 1, 64, s.other); }},
      {"memset.null_stream",
       [](Scene& s) { return s.gpu.api.memset_d8_async(s.memory, 1, 64, nullptr); }},
      {"memset.blocking",
       [](Scene& s) { return s.gpu.api.memset_d8_async(s.memory, 1, 64, s.blocking); }},
      {"launch.null_stream", [](Scene& s) { return s.gpu.launch(s.function, nullptr); }},
      {"h2d.pageable.captured",
       [](Scene& s) { return s.gpu.api.memcpy_h2d_async(s.memory, bytes, 64, s.captured); }},
      {"d2h.pageable.captured",
       [](Scene& s) { return s.gpu.api.memcpy_d2h_async(bytes, s.memory, 64, s.captured); }},
      {"h2d.pinned.captured",
       [](Scene& s) { return s.gpu.api.memcpy_h2d_async(s.memory, s.pinned, 64, s.captured); }},
      {"memcpy_d2h_synchronous",
       [](Scene& s) { return s.gpu.more.memcpy_d2h(bytes, s.memory, 64); }},
      {"launch.captured", [](Scene& s) { return s.gpu.launch(s.function, s.captured); }},
      {"host_function.captured",
       [](Scene& s) { return s.gpu.api.launch_host_function(s.captured, nothing, nullptr); }},
      {"wait_event.recorded_before",
       [](Scene& s) { return s.gpu.api.stream_wait_event(s.captured, s.recorded, 0); }},
      {"wait_event.recorded_before.external",
       [](Scene& s) { return s.gpu.api.stream_wait_event(s.captured, s.recorded, 1); }},
      {"wait_event.never_recorded",
       [](Scene& s) { return s.gpu.api.stream_wait_event(s.captured, s.fresh, 0); }},
      {"wait_event.joins_another_stream",
       [](Scene& s) {
         s.gpu.api.event_record(s.inside, s.captured);
         return int(s.gpu.api.stream_wait_event(s.other, s.inside, 0));
       }},
  };
}

Calls other_calls() {
  static cu::Module module;
  static cu::Graph graph;
  static cu::IpcMemory ipc;
  return {
      {"is_capturing",
       [](Scene& s) {
         cu::CaptureStatus status;
         return int(s.gpu.api.stream_is_capturing(s.captured, &status)) * 1000 + status;
       }},
      {"is_capturing.other",
       [](Scene& s) {
         cu::CaptureStatus status;
         return int(s.gpu.api.stream_is_capturing(s.other, &status)) * 1000 + status;
       }},
      {"is_capturing.null_stream",
       [](Scene& s) {
         cu::CaptureStatus status = cu::CaptureStatus(9);
         return int(s.gpu.api.stream_is_capturing(nullptr, &status)) * 1000 + status;
       }},
      {"pointer_get_attributes",
       [](Scene& s) {
         cu::PointerAttribute which = cu::kPointerMemoryType;
         unsigned type = 0;
         void* to = &type;
         return int(s.gpu.api.pointer_get_attributes(1, &which, &to, s.memory));
       }},
      {"module_load_data", [](Scene& s) { return s.gpu.api.module_load_data(&module, kKernels); }},
      {"begin_capture.again",
       [](Scene& s) { return s.gpu.api.stream_begin_capture(s.captured, cu::kCaptureRelaxed); }},
      {"begin_capture.null_stream",
       [](Scene& s) { return s.gpu.api.stream_begin_capture(nullptr, cu::kCaptureRelaxed); }},
      {"end_capture.other", [](Scene& s) { return s.gpu.api.stream_end_capture(s.other, &graph); }},
      {"graph_launch.captured",
       [](Scene& s) { return s.gpu.api.graph_launch(s.exec, s.captured); }},
      {"graph_launch.other", [](Scene& s) { return s.gpu.api.graph_launch(s.exec, s.other); }},
      {"ipc_get_mem_handle", [](Scene& s) { return s.gpu.api.ipc_get_mem_handle(&ipc, s.memory); }},
      {"occupancy",
       [](Scene& s) {
         int blocks = 0;
         return int(s.gpu.api.occupancy(&blocks, s.function, 128, 0));
       }},
      {"stream_get_ctx",
       [](Scene& s) {
         cu::Context context;
         return int(s.gpu.api.stream_get_ctx(s.captured, &context));
       }},
  };
}

Calls calls() {
  Calls all;
  for (const auto part :
       {calls_of_memory_and_events, calls_of_streams, calls_that_enqueue, other_calls}) {
    for (auto& each : part()) all.push_back(each);
  }
  return all;
}

// "code of the call, state of the capture after it, code of its end".
std::string in_capture(Scene& s, cu::CaptureMode mode, const std::function<int(Scene&)>& call,
                       bool on_another_thread, bool relaxed) {
  MUST(s.gpu.api.stream_begin_capture(s.captured, mode));
  MUST(s.gpu.api.memset_d8_async(s.memory, 1, 64, s.captured));
  int code = -1;
  const auto body = [&] {
    cu::CaptureMode exchanged = cu::kCaptureRelaxed;
    if (relaxed) s.gpu.api.exchange_capture_mode(&exchanged);
    code = call(s);
    if (relaxed) s.gpu.api.exchange_capture_mode(&exchanged);
  };
  if (on_another_thread) {
    std::thread([&] {
      s.gpu.api.ctx_push(s.gpu.context);
      body();
    }).join();
  } else {
    body();
  }
  cu::CaptureStatus status = cu::CaptureStatus(9);
  s.gpu.api.stream_is_capturing(s.captured, &status);
  cu::Graph graph = nullptr;
  const int end = s.gpu.api.stream_end_capture(s.captured, &graph);
  const bool is_graph = graph != nullptr;
  if (graph) s.gpu.api.graph_destroy(graph);
  return std::to_string(code) + ", state " + std::to_string(status) + ", end " +
         std::to_string(end) + (is_graph ? " graph" : " no graph");
}

void read_mode(const Reading& r, cu::CaptureMode mode, bool on_another_thread, bool relaxed) {
  Scene* scene = new Scene;  // a capture that broke may leave streams that nobody can use
  for (const auto& [name, call] : calls()) {
    r.fact(name, in_capture(*scene, mode, call, on_another_thread, relaxed));
    cu::CaptureStatus status = cu::kCaptureNone;
    scene->gpu.api.stream_is_capturing(scene->other, &status);
    if (status != cu::kCaptureNone || scene->gpu.api.ctx_synchronize() != 0) scene = new Scene;
  }
}

BEHAVIOUR(global, "capture.global", gpu, 60) { read_mode(r, cu::kCaptureGlobal, false, false); }
BEHAVIOUR(thread_local_, "capture.thread_local", gpu, 60) {
  read_mode(r, cu::kCaptureThreadLocal, false, false);
}
BEHAVIOUR(relaxed, "capture.relaxed", gpu, 60) { read_mode(r, cu::kCaptureRelaxed, false, false); }
BEHAVIOUR(global_other, "capture.global.from_another_thread", gpu, 60) {
  read_mode(r, cu::kCaptureGlobal, true, false);
}
BEHAVIOUR(thread_other, "capture.thread_local.from_another_thread", gpu, 60) {
  read_mode(r, cu::kCaptureThreadLocal, true, false);
}
BEHAVIOUR(global_other_relaxed, "capture.global.from_another_relaxed_thread", gpu, 60) {
  read_mode(r, cu::kCaptureGlobal, true, true);
}
BEHAVIOUR(global_relaxed, "capture.global.exchanged_to_relaxed", gpu, 60) {
  read_mode(r, cu::kCaptureGlobal, false, true);
}

BEHAVIOUR(modes, "capture.exchange_mode", gpu, 20) {
  r.fact("null", in_child([&] {
           Gpu other = open_gpu();
           return other.api.exchange_capture_mode(nullptr);
         }));
  Gpu gpu = open_gpu();
  auto& a = gpu.api;
  cu::CaptureMode mode = cu::kCaptureRelaxed;
  r.fact("exchange", a.exchange_capture_mode(&mode));
  r.fact("first_was", mode);
  mode = cu::kCaptureThreadLocal;
  r.fact("exchange.2", a.exchange_capture_mode(&mode));
  r.fact("second_was", mode);
  mode = cu::CaptureMode(7);
  r.fact("unknown", a.exchange_capture_mode(&mode));
  std::thread([&] {
    cu::CaptureMode of_thread = cu::kCaptureRelaxed;
    r.fact("without_context", a.exchange_capture_mode(&of_thread));
    r.fact("fresh_thread_was", of_thread);
  }).join();
}

BEHAVIOUR(ends, "capture.ends", gpu, 40) {
  Gpu gpu = open_gpu();
  auto& a = gpu.api;
  const cu::Stream s = gpu.stream(), t = gpu.stream();
  const cu::Event e = gpu.event();
  const cu::Pointer memory = gpu.bytes(4096);
  cu::Graph graph = nullptr;
  r.fact("end_without_begin", a.stream_end_capture(s, &graph));
  r.fact("begin.null_stream", a.stream_begin_capture(nullptr, cu::kCaptureGlobal));
  r.fact("begin.legacy_1", a.stream_begin_capture(cu::Stream(1), cu::kCaptureGlobal));
  r.fact("begin.unknown_mode", a.stream_begin_capture(s, cu::CaptureMode(9)));
  MUST(a.stream_begin_capture(s, cu::kCaptureGlobal));
  r.fact("empty.end", a.stream_end_capture(s, &graph));
  cu::GraphExec exec = nullptr;
  r.fact("empty.instantiate", a.graph_instantiate(&exec, graph, 0));
  r.fact("empty.launch", a.graph_launch(exec, s));
  MUST(a.stream_synchronize(s));
  // From another thread.
  for (const auto& [name, mode] :
       std::map<const char*, cu::CaptureMode>{{"global", cu::kCaptureGlobal},
                                              {"thread_local", cu::kCaptureThreadLocal},
                                              {"relaxed", cu::kCaptureRelaxed}}) {
    MUST(a.stream_begin_capture(s, mode));
    int code = -1;
    std::thread([&] {
      a.ctx_push(gpu.context);
      code = a.stream_end_capture(s, &graph);
    }).join();
    r.fact(std::string(name) + ".end_on_another_thread", code);
    if (code != 0) {
      r.fact(std::string(name) + ".end_then", a.stream_end_capture(s, &graph));
    }
  }
  // A second stream that is joined in and not joined back.
  MUST(a.stream_begin_capture(s, cu::kCaptureGlobal));
  MUST(a.event_record(e, s));
  MUST(a.stream_wait_event(t, e, 0));
  cu::CaptureStatus status = cu::kCaptureNone;
  MUST(a.stream_is_capturing(t, &status));
  r.fact("joined_stream.state", status);
  MUST(a.memset_d8_async(memory, 1, 64, t));
  r.fact("joined_stream.end", a.stream_end_capture(t, &graph));
  a.stream_is_capturing(s, &status);
  r.fact("joined_stream.end.state_of_first", status);
  r.fact("unjoined.end", a.stream_end_capture(s, &graph));
  a.stream_is_capturing(t, &status);
  r.fact("unjoined.state_of_second", status);
  // Joined back.
  const cu::Event back = gpu.event();
  r.fact("fork.begin", a.stream_begin_capture(s, cu::kCaptureGlobal));
  a.event_record(e, s);
  a.stream_wait_event(t, e, 0);
  a.memset_d8_async(memory, 1, 64, t);
  a.event_record(back, t);
  r.fact("fork.join", a.stream_wait_event(s, back, 0));
  r.fact("fork.end", a.stream_end_capture(s, &graph));
  r.fact("event_of_a_capture.query", a.event_query(back));
  r.fact("event_of_a_capture.synchronize", a.event_synchronize(back));
  r.fact("event_of_a_capture.wait", a.stream_wait_event(t, back, 0));
  r.fact("event_of_a_capture.record_again", a.event_record(back, t));
  // Capture of a stream that is busy.
  Gate gate;
  gate.close(gpu, s);
  r.fact("begin_while_busy", a.stream_begin_capture(s, cu::kCaptureRelaxed));
  r.fact("end_while_busy", a.stream_end_capture(s, &graph));
  gate.open();
  MUST(a.stream_synchronize(s));
  // Destroyed while it captures.
  MUST(a.stream_begin_capture(s, cu::kCaptureRelaxed));
  r.fact("destroy_while_capturing", a.stream_destroy(s));
}

void count(void* counter) { ++*static_cast<std::atomic<int>*>(counter); }

BEHAVIOUR(replay, "capture.replay", gpu, 40) {
  Gpu gpu = open_gpu();
  auto& a = gpu.api;
  const cu::Stream s = gpu.stream(), t = gpu.stream();
  cu::Pointer memory = gpu.bytes(4096);
  std::atomic<int> calls{0};
  MUST(a.memset_d8_async(memory, 0, 64, s));
  MUST(a.stream_synchronize(s));
  cu::Graph graph = nullptr;
  MUST(a.stream_begin_capture(s, cu::kCaptureGlobal));
  MUST(gpu.launch(gpu.kernel("add_one"), s, {&memory}));
  MUST(a.launch_host_function(s, count, &calls));
  const cu::Event inside = gpu.event();
  MUST(a.event_record(inside, s));
  MUST(a.stream_end_capture(s, &graph));
  MUST(a.stream_synchronize(s));
  unsigned value = 99;
  MUST(gpu.more.memcpy_d2h(&value, memory, 4));
  r.fact("nothing_runs_in_the_capture", value == 0 && calls == 0);
  cu::GraphExec exec = nullptr;
  r.fact("instantiate", a.graph_instantiate(&exec, graph, 0));
  r.fact("graph_destroy_before_launch", a.graph_destroy(graph));
  for (int i = 0; i < 3; ++i) r.fact("launch." + std::to_string(i), a.graph_launch(exec, s));
  MUST(a.stream_synchronize(s));
  MUST(gpu.more.memcpy_d2h(&value, memory, 4));
  r.fact("three_launches.kernels", value);
  r.fact("three_launches.host_functions", calls.load());
  r.fact("event_inside.query_after_launch", a.event_query(inside));
  // The same graph on two streams at once.
  Gate gate;
  gate.close(gpu, s);
  MUST(a.graph_launch(exec, s));
  MUST(a.graph_launch(exec, t));
  r.fact("second_stream_waits_for_the_first", !wait_for([&] { return calls == 4; }, 300));
  gate.open();
  MUST(a.stream_synchronize(s));
  MUST(a.stream_synchronize(t));
  r.fact("both_ran", calls == 5);
  gate.close(gpu, s);
  MUST(a.graph_launch(exec, s));
  r.fact("exec_destroy_while_pending",
         blocks_until(
             gpu, [&] { return a.graph_exec_destroy(exec); }, [&] { gate.open(); }));
  MUST(a.stream_synchronize(s));
  r.fact("it_still_ran", calls == 6);
}

}}  // namespace same_as_real
