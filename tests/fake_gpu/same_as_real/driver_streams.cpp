// SPDX-License-Identifier: BSD-3-Clause
// Order: events, streams, host functions; which calls wait for what runs.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>

#include "tests/fake_gpu/same_as_real/kernels.h"
#include "tests/fake_gpu/same_as_real/probe.h"

namespace same_as_real { namespace {

// Whether the event is done soon.
bool is_done(Gpu& gpu, cu::Event event, int ms = 300) {
  return wait_for([&] { return gpu.api.event_query(event) == cu::kSuccess; }, ms);
}

BEHAVIOUR(events, "stream.events", gpu, 40) {
  Gpu gpu = open_gpu();
  auto& a = gpu.api;
  const cu::Stream s = gpu.stream(), t = gpu.stream();
  const cu::Event e = gpu.event(), f = gpu.event();
  r.fact("query.never_recorded", a.event_query(e));
  r.fact("synchronize.never_recorded", a.event_synchronize(e));
  Gate gate;
  gate.close(gpu, s);
  MUST(a.event_record(e, s));
  r.fact("query.behind_a_gate", a.event_query(e));
  r.fact("stream_query.behind_a_gate", a.stream_query(s));
  r.fact("stream_query.other_stream", a.stream_query(t));
  // Waits for what was recorded when the wait was enqueued.
  MUST(a.stream_wait_event(t, e, 0));
  MUST(a.event_record(f, t));
  r.fact("waiting_stream.done", is_done(gpu, f));
  gate.open();
  r.fact("waiting_stream.done_after_the_gate", is_done(gpu, f, 3000));
  MUST(a.stream_synchronize(s));
  r.fact("query.after", a.event_query(e));
  // A wait for an event that is recorded later.
  const cu::Event later = gpu.event();
  MUST(a.stream_wait_event(t, later, 0));
  MUST(a.event_record(f, t));
  r.fact("wait_for_what_is_not_recorded_yet.passes", is_done(gpu, f));
  gate.close(gpu, s);
  MUST(a.event_record(later, s));
  MUST(a.stream_wait_event(t, later, 0));
  MUST(a.stream_wait_event(t, later, 0));
  Gate second;
  const cu::Stream u = gpu.stream();
  second.close(gpu, u);
  MUST(a.event_record(later, u));  // once more, behind another gate
  MUST(a.event_record(f, t));
  gate.open();
  r.fact("wait_is_for_the_record_before_it", is_done(gpu, f, 1000));
  r.fact("query.recorded_twice_is_of_the_last", a.event_query(later));
  second.open();
  MUST(a.stream_synchronize(u));
  // An event that is destroyed while a stream waits for it.
  gate.close(gpu, s);
  MUST(a.event_record(later, s));
  MUST(a.stream_wait_event(t, later, 0));
  r.fact("destroy_while_pending", a.event_destroy(later));
  MUST(a.event_record(f, t));
  r.fact("destroyed_event_still_holds", !is_done(gpu, f));
  gate.open();
  r.fact("destroyed_event.then_done", is_done(gpu, f, 3000));
  r.fact("wait.flags_1", a.stream_wait_event(t, e, 1));
  r.fact("wait.flags_2", a.stream_wait_event(t, e, 2));
  // A stream that is destroyed while it works.
  gate.close(gpu, s);
  MUST(a.event_record(e, s));
  const auto start = Clock::now();
  r.fact("stream_destroy_while_busy", a.stream_destroy(s));
  r.note("stream_destroy_while_busy.ms", ms_since(start));
  r.fact("event_of_destroyed_stream", a.event_query(e));
  gate.open();
  r.fact("event_of_destroyed_stream.done", is_done(gpu, e, 3000));
}

BEHAVIOUR(elapsed, "stream.elapsed_time", gpu, 20) {
  Gpu gpu = open_gpu();
  auto& a = gpu.api;
  const cu::Stream s = gpu.stream();
  const cu::Event b = gpu.event(0), e = gpu.event(0), untimed = gpu.event();
  float ms = -77;
  r.fact("never_recorded", a.event_elapsed_time(&ms, b, e));
  MUST(a.event_record(b, s));
  r.fact("one_never_recorded", a.event_elapsed_time(&ms, b, e));
  Gate gate;
  gate.close(gpu, s);
  MUST(a.event_record(e, s));
  r.fact("not_ready", a.event_elapsed_time(&ms, b, e));
  r.fact("not_ready.value_unchanged", ms == -77);
  sleep_ms(20);
  gate.open();
  MUST(a.stream_synchronize(s));
  r.fact("done", a.event_elapsed_time(&ms, b, e));
  r.fact("done.at_least_19_ms", ms >= 19 && ms < 500);
  r.fact("backwards", a.event_elapsed_time(&ms, e, b));
  r.fact("backwards.is_negative", ms < 0);
  r.fact("same", a.event_elapsed_time(&ms, e, e));
  r.fact("same.is_0", ms == 0);
  MUST(a.event_record(untimed, s));
  MUST(a.stream_synchronize(s));
  r.fact("untimed", a.event_elapsed_time(&ms, b, untimed));
  r.fact("into_null", a.event_elapsed_time(nullptr, b, e));
}

// A stream is held; whether what another gets after that is done.
BEHAVIOUR(legacy, "stream.legacy", gpu, 60) {
  Gpu gpu = open_gpu();
  auto& a = gpu.api;
  const cu::Stream blocking = gpu.stream(cu::kStreamDefault),
                   other = gpu.stream(cu::kStreamDefault),
                   free = gpu.stream(cu::kStreamNonBlocking);
  const cu::Pointer memory = gpu.bytes(4096);
  const cu::Event e = gpu.event();
  const std::map<const char*, cu::Stream> streams = {
      {"null", nullptr},      {"legacy_1", cu::Stream(1)}, {"per_thread_2", cu::Stream(2)},
      {"blocking", blocking}, {"other_blocking", other},   {"non_blocking", free}};
  for (const auto& [held, holder] : streams) {
    for (const auto& [asked, stream] : streams) {
      Gate gate;
      gate.close(gpu, holder);
      MUST(a.memset_d8_async(memory, 1, 64, stream));
      MUST(a.event_record(e, stream));
      r.fact(std::string(held) + "_holds_" + asked, !is_done(gpu, e, 60));
      gate.open();
      MUST(gpu.api.ctx_synchronize());
    }
  }
  // An event alone, without work on the stream.
  Gate gate;
  gate.close(gpu, blocking);
  MUST(a.event_record(e, nullptr));
  r.fact("event_alone.blocking_holds_null", !is_done(gpu, e, 60));
  r.fact("query_of_null_behind_blocking", a.stream_query(nullptr));
  gate.open();
  MUST(gpu.api.ctx_synchronize());
  gate.close(gpu, nullptr);
  MUST(a.event_record(e, blocking));
  r.fact("event_alone.null_holds_blocking", !is_done(gpu, e, 60));
  r.fact("query_of_blocking_behind_null", a.stream_query(blocking));
  gate.open();
  MUST(gpu.api.ctx_synchronize());
}

struct Order {
  std::atomic<int> next{0};
  int seen[8] = {};
  std::thread::id threads[8];
};
struct Step {
  Order* order;
  int number;
};
void step(void* at) {
  auto& s = *static_cast<Step*>(at);
  const int place = s.order->next++;
  s.order->seen[place] = s.number;
  s.order->threads[place] = std::this_thread::get_id();
}

BEHAVIOUR(host_functions, "stream.host_functions", gpu, 40) {
  Gpu gpu = open_gpu();
  auto& a = gpu.api;
  const cu::Stream s = gpu.stream(), t = gpu.stream();
  const cu::Pointer memory = gpu.bytes(4096);
  Order order;
  Step steps[8];
  for (int i = 0; i < 8; ++i) {
    steps[i] = {&order, i};
    MUST(a.launch_host_function(s, step, &steps[i]));
    MUST(a.memset_d8_async(memory, 1, 64, s));
  }
  MUST(a.stream_synchronize(s));
  bool in_order = true, one_thread = true;
  for (int i = 0; i < 8; ++i) {
    in_order = in_order && order.seen[i] == i;
    one_thread = one_thread && order.threads[i] == order.threads[0];
  }
  r.fact("in_order", in_order);
  r.fact("on_one_thread", one_thread);
  r.fact("on_the_callers_thread", order.threads[0] == std::this_thread::get_id());
  r.fact("done_when_synchronize_returns", order.next == 8);
  // Two streams: does a host function that hangs hold that of another stream?
  Gate gate;
  gate.close(gpu, s);
  const bool reached = wait_for([&] { return gate.is_reached(); }, 1000);
  r.fact("reached", reached);
  Order second;
  Step one{&second, 1};
  MUST(a.launch_host_function(t, step, &one));
  r.fact("a_hanging_one_holds_those_of_other_streams",
         !wait_for([&] { return second.next == 1; }, 300));
  gate.open();
  MUST(a.stream_synchronize(t));
  // An event that is recorded before a host function is not held by it.
  const cu::Event e = gpu.event();
  MUST(a.event_record(e, s));
  gate.close(gpu, s);
  r.fact("event_before_it_is_done", is_done(gpu, e));
  gate.open();
  MUST(gpu.api.ctx_synchronize());
}

// A driver call inside a host function. Each in a process of its own: it may hang.
struct Inside {
  Gpu* gpu;
  std::function<int(Gpu&)> call;
  int result = -1;
};
void call_inside(void* at) {
  auto& inside = *static_cast<Inside*>(at);
  inside.result = inside.call(*inside.gpu);
}

cu::Stream beside;
cu::Event some_event;
cu::Pointer some_memory;
cu::Function some_function;

struct FromInside {
  const Reading& r;

  void operator()(const char* key, std::function<int(Gpu&)> call) const {
    const std::string end = in_child(
        [&] {
          Gpu gpu = open_gpu();
          beside = gpu.stream();
          some_event = gpu.event();
          some_memory = gpu.bytes(64);
          some_function = gpu.kernel("empty");
          Inside inside{&gpu, std::move(call)};
          const cu::Stream s = gpu.stream();
          MUST(gpu.api.launch_host_function(s, call_inside, &inside));
          const int after = gpu.api.stream_synchronize(s);
          r.fact(key, inside.result);
          if (after != 0) r.fact(std::string(key) + ".synchronize", after);
          return 0;
        },
        4000);
    if (end != "0") r.fact(key, end);
  }
};

void calls_of_work(const FromInside& with) {
  with("ctx_get_current", [](Gpu& g) {
    cu::Context c = nullptr;
    const int code = g.api.ctx_get_current(&c);
    return code != 0 ? code : c == g.context ? 10001 : c == nullptr ? 10000 : 10002;
  });
  with("ctx_push", [](Gpu& g) { return int(g.api.ctx_push(g.context)); });
  with("event_query", [](Gpu& g) { return int(g.api.event_query(some_event)); });
  with("event_record", [](Gpu& g) { return int(g.api.event_record(some_event, beside)); });
  with("stream_query", [](Gpu& g) { return int(g.api.stream_query(beside)); });
  with("stream_synchronize", [](Gpu& g) { return int(g.api.stream_synchronize(beside)); });
  with("mem_alloc", [](Gpu& g) {
    cu::Pointer p;
    return int(g.api.mem_alloc(&p, 64));
  });
  with("mem_free", [](Gpu& g) { return int(g.api.mem_free(some_memory)); });
  with("memset", [](Gpu& g) { return int(g.api.memset_d8_async(some_memory, 1, 64, beside)); });
  with("launch", [](Gpu& g) { return int(g.launch(some_function, beside)); });
}

void calls_of_the_rest(const FromInside& with) {
  with("event_create", [](Gpu& g) {
    cu::Event e;
    return int(g.api.event_create(&e, 2));
  });
  with("is_capturing", [](Gpu& g) {
    cu::CaptureStatus status;
    return int(g.api.stream_is_capturing(beside, &status));
  });
  with("get_error_name", [](Gpu& g) {
    const char* text;
    return int(g.api.get_error_name(cu::kNotReady, &text));
  });
  with("device_get_count", [](Gpu& g) {
    int count;
    return int(g.api.device_get_count(&count));
  });
  with("push_then_event_query", [](Gpu& g) {
    g.api.ctx_push(g.context);
    return int(g.api.event_query(some_event));
  });
  with("push_then_mem_alloc", [](Gpu& g) {
    cu::Pointer p;
    g.api.ctx_push(g.context);
    return int(g.api.mem_alloc(&p, 64));
  });
  with("pointer_get_attributes", [](Gpu& g) {
    cu::PointerAttribute which = cu::kPointerMemoryType;
    unsigned type = 0;
    void* to = &type;
    return int(g.api.pointer_get_attributes(1, &which, &to, some_memory));
  });
}

BEHAVIOUR(inside_host_function, "stream.calls_inside_a_host_function", gpu, 150) {
  const FromInside with{r};
  calls_of_work(with);
  calls_of_the_rest(with);
}

// Which calls wait until other work of the context is done.
using Calls = std::vector<std::pair<const char*, std::function<int()>>>;

Calls calls_of_handles(Gpu& gpu, [[maybe_unused]] cu::Stream free,
                       [[maybe_unused]] cu::Stream held) {
  static cu::Pointer made;
  static void* pinned_made;
  static cu::Stream stream;
  static cu::Event event;
  event = gpu.event();
  auto& a = gpu.api;
  return {
      {"mem_alloc.64", [&a] { return a.mem_alloc(&made, 64); }},
      {"mem_free.64", [&a] { return a.mem_free(made); }},
      {"mem_alloc.256_mib", [&a] { return a.mem_alloc(&made, 256u << 20); }},
      {"mem_free.256_mib", [&a] { return a.mem_free(made); }},
      {"mem_host_alloc", [&a] { return a.mem_host_alloc(&pinned_made, 1 << 20, 0); }},
      {"mem_free_host", [&a] { return a.mem_free_host(pinned_made); }},
      {"stream_create", [&a] { return a.stream_create(&stream, 1, 0); }},
      {"stream_destroy", [&a] { return a.stream_destroy(stream); }},
      {"event_create", [&a] { return a.event_create(&event, 2); }},
      {"event_record", [&a, free] { return a.event_record(event, free); }},
      {"event_query", [&a] { return a.event_query(event); }},
      {"event_synchronize", [&a] { return a.event_synchronize(event); }},
      {"event_destroy", [&a] { return a.event_destroy(event); }},
      {"stream_query", [&a, free] { return a.stream_query(free); }},
      {"stream_synchronize.other", [&a, free] { return a.stream_synchronize(free); }},
  };
}

Calls copies(Gpu& gpu, [[maybe_unused]] cu::Stream free, [[maybe_unused]] cu::Stream held) {
  static cu::Pointer memory;
  static cu::Pointer other;
  static void* pinned;
  static std::vector<char> pageable(4u << 20);
  memory = gpu.bytes(4u << 20);
  other = gpu.bytes(4u << 20);
  MUST(gpu.api.mem_host_alloc(&pinned, 4u << 20, 0));
  auto& a = gpu.api;
  return {
      {"memset.other", [&a, free] { return a.memset_d8_async(memory, 1, 4u << 20, free); }},
      {"d2d.other", [&a, free] { return a.memcpy_d2d_async(memory, other, 4u << 20, free); }},
      {"h2d.pinned.other",
       [&a, free] { return a.memcpy_h2d_async(memory, pinned, 4u << 20, free); }},
      {"d2h.pinned.other",
       [&a, free] { return a.memcpy_d2h_async(pinned, memory, 4u << 20, free); }},
      {"h2d.pageable_64.other",
       [&a, free] { return a.memcpy_h2d_async(memory, pageable.data(), 64, free); }},
      {"h2d.pageable_4_mib.other",
       [&a, free] { return a.memcpy_h2d_async(memory, pageable.data(), 4u << 20, free); }},
      {"d2h.pageable_4_mib.other",
       [&a, free] { return a.memcpy_d2h_async(pageable.data(), memory, 4u << 20, free); }},
      {"h2d.pinned.held",
       [&a, held] { return a.memcpy_h2d_async(memory, pinned, 4u << 20, held); }},
      {"d2h.pinned.held",
       [&a, held] { return a.memcpy_d2h_async(pinned, memory, 4u << 20, held); }},
      {"h2d.pageable_64.held",
       [&a, held] { return a.memcpy_h2d_async(memory, pageable.data(), 64, held); }},
      {"h2d.pageable_4_mib.held",
       [&a, held] { return a.memcpy_h2d_async(memory, pageable.data(), 4u << 20, held); }},
      {"d2h.pageable_64.held",
       [&a, held] { return a.memcpy_d2h_async(pageable.data(), memory, 64, held); }},
      {"d2h.pageable_4_mib.held",
       [&a, held] { return a.memcpy_d2h_async(pageable.data(), memory, 4u << 20, held); }},
  };
}

Calls other_calls(Gpu& gpu, [[maybe_unused]] cu::Stream free, [[maybe_unused]] cu::Stream held) {
  static cu::Pointer memory;
  static cu::Module module;
  static cu::Function function;
  static cu::Graph graph;
  static cu::GraphExec exec;
  static cu::Context context;
  memory = gpu.bytes(4u << 20);
  auto& a = gpu.api;
  return {
      {"launch.other", [&gpu, free] { return gpu.launch(gpu.kernel("empty"), free); }},
      {"memset.null_stream", [&a] { return a.memset_d8_async(memory, 1, 64, nullptr); }},
      {"stream_query.null_stream", [&a] { return a.stream_query(nullptr); }},
      {"stream_synchronize.null_stream", [&a] { return a.stream_synchronize(nullptr); }},
      {"ctx_synchronize", [&gpu] { return gpu.api.ctx_synchronize(); }},
      {"module_load_data", [&a] { return a.module_load_data(&module, kKernels); }},
      {"module_get_function", [&a] { return a.module_get_function(&function, module, "empty"); }},
      {"launch.new_kernel", [&gpu, free] { return gpu.launch(function, free); }},
      {"module_unload", [&a] { return a.module_unload(module); }},
      {"capture",
       [&a, free] {
         const int begin = a.stream_begin_capture(free, cu::kCaptureRelaxed);
         const int set = a.memset_d8_async(memory, 1, 64, free);
         return begin * 10000 + set * 100 + a.stream_end_capture(free, &graph);
       }},
      {"graph_instantiate", [&a] { return a.graph_instantiate(&exec, graph, 0); }},
      {"graph_launch", [&a, free] { return a.graph_launch(exec, free); }},
      {"graph_exec_destroy", [&a] { return a.graph_exec_destroy(exec); }},
      {"graph_destroy", [&a] { return a.graph_destroy(graph); }},
      {"primary_retain", [&a] { return a.primary_retain(&context, 0); }},
      {"primary_release", [&a] { return a.primary_release(0); }},
      {"mem_get_info",
       [&a] {
         std::size_t x = 0, y = 0;
         return a.mem_get_info(&x, &y);
       }},
      {"mem_free.used_by_the_held_stream",
       [&a, held] {
         cu::Pointer p = 0;
         a.mem_alloc(&p, 1 << 20);
         a.memset_d8_async(p, 1, 1 << 20, held);
         return a.mem_free(p);
       }},
      {"stream_synchronize.held", [&a, held] { return a.stream_synchronize(held); }},
  };
}

Calls calls_that_may_block(Gpu& gpu, cu::Stream free, cu::Stream held) {
  Calls all;
  for (const auto part : {calls_of_handles, copies, other_calls}) {
    for (auto& each : part(gpu, free, held)) all.push_back(each);
  }
  return all;
}

void read_blocking(const Reading& r, Gpu& gpu, bool by_kernel, unsigned flags) {
  const cu::Stream held = gpu.stream(flags), free = gpu.stream();
  Spinner spinner(gpu);
  for (const auto& [name, call] : calls_that_may_block(gpu, free, held)) {
    Gate gate;
    if (by_kernel) {
      spinner.start(held);
    } else {
      gate.close(gpu, held);
    }
    r.fact(name, blocks_until(gpu, call, [&] {
             gate.open();
             spinner.stop();
           }));
    MUST(gpu.api.ctx_synchronize());
  }
}

BEHAVIOUR(behind_host_function, "blocking.behind_a_host_function", gpu, 60) {
  Gpu gpu = open_gpu();
  read_blocking(r, gpu, false, cu::kStreamNonBlocking);
}
BEHAVIOUR(behind_kernel, "blocking.behind_a_kernel", gpu, 60) {
  Gpu gpu = open_gpu();
  read_blocking(r, gpu, true, cu::kStreamNonBlocking);
}
BEHAVIOUR(behind_kernel_legacy, "blocking.behind_a_kernel_on_a_blocking_stream", gpu, 60) {
  Gpu gpu = open_gpu();
  read_blocking(r, gpu, true, cu::kStreamDefault);
}

// Ends of a process with work outstanding.
BEHAVIOUR(ends, "driver.exit_with_work", gpu, 60) {
  const auto with = [&](const char* key, void (*end)(Gpu&, Spinner&)) {
    const auto start = Clock::now();
    const std::string how = in_child(
        [&] {
          Gpu gpu = open_gpu();
          Spinner spinner(gpu);
          r.note(std::string(key) + ".set_up_ms", ms_since(start));
          end(gpu, spinner);
          return 9;
        },
        9000);
    r.fact(key, how);
    r.note(std::string(key) + ".ms", ms_since(start));
  };
  with("idle._exit", [](Gpu&, Spinner&) { _exit(0); });
  with("idle.exit", [](Gpu&, Spinner&) { std::exit(0); });
  with("kernel._exit", [](Gpu& g, Spinner& s) {
    s.start(g.stream());
    _exit(0);
  });
  with("kernel.exit", [](Gpu& g, Spinner& s) {
    s.start(g.stream());
    std::exit(0);
  });
  with("kernel.release_then_exit", [](Gpu& g, Spinner& s) {
    s.start(g.stream());
    g.api.primary_release(0);
    std::exit(0);
  });
  with("host_function._exit", [](Gpu& g, Spinner&) {
    static Gate gate;
    gate.close(g, g.stream());
    _exit(0);
  });
  with("host_function.exit", [](Gpu& g, Spinner&) {
    static Gate gate;
    gate.close(g, g.stream());
    std::exit(0);
  });
}

}}  // namespace same_as_real
