// SPDX-License-Identifier: BSD-3-Clause
// What calls cost. Nothing here is compared.
#include <algorithm>

#include "tests/fake_gpu/same_as_real/ranks.h"

namespace same_as_real { namespace {

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Median of 41 means over 200 calls, in ns. `drain` runs between them.
double cost(const std::function<void()>& call, const std::function<void()>& drain) {
  std::vector<double> times;
  for (int i = 0; i < 41; ++i) {
    const auto start = Clock::now();
    for (int j = 0; j < 200; ++j) call();
    times.push_back(ms_since(start) * 1e6 / 200);
    drain();
  }
  return median(times);
}

BEHAVIOUR(driver_costs, "cost.driver", gpu, 60) {
  Gpu gpu = open_gpu();
  auto& a = gpu.api;
  const cu::Stream s = gpu.stream();
  const cu::Event e = gpu.event(), timed = gpu.event(0), done = gpu.event();
  const cu::Pointer memory = gpu.bytes(1 << 20);
  const cu::Function f = gpu.kernel("empty");
  const auto drain = [&] { a.stream_synchronize(s); };
  MUST(a.event_record(done, s));
  drain();
  cu::CaptureStatus status;
  cu::Context context;
  cu::PointerAttribute which[4] = {cu::kPointerMemoryType, cu::kPointerDeviceOrdinal,
                                   cu::kPointerRangeStart, cu::kPointerRangeSize};
  unsigned type = 0;
  int ordinal = 0;
  cu::Pointer start = 0;
  std::size_t size = 0;
  void* to[4] = {&type, &ordinal, &start, &size};
  r.note("event_record.ns", cost([&] { a.event_record(e, s); }, drain));
  r.note("event_record.timed.ns", cost([&] { a.event_record(timed, s); }, drain));
  r.note("event_query.done.ns", cost([&] { a.event_query(done); }, drain));
  r.note("stream_query.idle.ns", cost([&] { a.stream_query(s); }, drain));
  r.note("stream_is_capturing.ns", cost([&] { a.stream_is_capturing(s, &status); }, drain));
  r.note("pointer_get_attributes.4.ns",
         cost([&] { a.pointer_get_attributes(4, which, to, memory); }, drain));
  r.note("pointer_get_attributes.1.ns",
         cost([&] { a.pointer_get_attributes(1, which, to, memory); }, drain));
  static char host[64];
  r.note("pointer_get_attributes.4.host.ns",
         cost([&] { a.pointer_get_attributes(4, which, to, reinterpret_cast<cu::Pointer>(host)); },
              drain));
  r.note("launch_kernel.ns", cost([&] { gpu.launch(f, s); }, drain));
  r.note("memset_1_mib.ns", cost([&] { a.memset_d8_async(memory, 1, 1 << 20, s); }, drain));
  r.note("d2d_1_kib.ns", cost([&] { a.memcpy_d2d_async(memory, memory + 4096, 1024, s); }, drain));
  r.note("stream_wait_event.ns", cost([&] { a.stream_wait_event(s, done, 0); }, drain));
  r.note("ctx_push_pop.ns", cost(
                                [&] {
                                  a.ctx_push(gpu.context);
                                  a.ctx_pop(&context);
                                },
                                drain));
  r.note("ctx_get_current.ns", cost([&] { a.ctx_get_current(&context); }, drain));
  Gate gate;
  gate.close(gpu, s);
  MUST(a.event_record(e, s));
  r.note("event_query.not_ready.ns", cost([&] { a.event_query(e); }, [] {}));
  gate.open();
  drain();
  std::vector<double> times;
  for (int i = 0; i < 101; ++i) {
    const auto begin = Clock::now();
    gpu.launch(f, s);
    a.stream_synchronize(s);
    times.push_back(ms_since(begin) * 1000);
  }
  r.note("launch_and_synchronize.us", median(times));
  times.clear();
  for (int i = 0; i < 101; ++i) {
    const auto begin = Clock::now();
    a.launch_host_function(
        s, [](void*) {}, nullptr);
    a.stream_synchronize(s);
    times.push_back(ms_since(begin) * 1000);
  }
  r.note("host_function_and_synchronize.us", median(times));
}

BEHAVIOUR(copy_rate, "cost.copy", gpu, 60) {
  Gpu gpu = open_gpu();
  auto& a = gpu.api;
  const cu::Stream s = gpu.stream();
  const cu::Event b = gpu.event(0), e = gpu.event(0);
  const std::size_t bytes = std::size_t{1} << 30;
  const cu::Pointer from = gpu.bytes(bytes), to = gpu.bytes(bytes);
  MUST(a.memset_d8_async(from, 0x5a, bytes, s));
  MUST(a.memset_d8_async(to, 1, bytes, s));
  std::vector<double> rates;
  for (int i = 0; i < 23; ++i) {
    MUST(a.event_record(b, s));
    MUST(a.memcpy_d2d_async(to, from, bytes, s));
    MUST(a.event_record(e, s));
    MUST(a.stream_synchronize(s));
    float ms = 0;
    MUST(a.event_elapsed_time(&ms, b, e));
    if (i >= 3) rates.push_back(2.0 * double(bytes) / (double(ms) / 1000) / 1e9);
  }
  r.note("device_to_device.1_gib.gb_per_s_read_and_written", median(rates));
  void* pinned = nullptr;
  const std::size_t part = 256u << 20;
  MUST(a.mem_host_alloc(&pinned, part, 0));
  for (const bool up : {true, false}) {
    rates.clear();
    for (int i = 0; i < 13; ++i) {
      MUST(a.event_record(b, s));
      MUST(up ? a.memcpy_h2d_async(to, pinned, part, s) : a.memcpy_d2h_async(pinned, to, part, s));
      MUST(a.event_record(e, s));
      MUST(a.stream_synchronize(s));
      float ms = 0;
      MUST(a.event_elapsed_time(&ms, b, e));
      if (i >= 3) rates.push_back(double(part) / (double(ms) / 1000) / 1e9);
    }
    r.note(up ? "host_to_device.pinned.gb_per_s" : "device_to_host.pinned.gb_per_s", median(rates));
  }
}

void nccl_costs(Rank& me, int blocking) {
  nccl::UniqueId id{};
  MUST(me.api.get_unique_id(&id));
  nccl::Config config = config_of(me.api, blocking);
  const int code = me.api.comm_init_rank_config(&me.comm, 1, id, 0, &config);
  me.r.fact("init", code == 7 ? me.settle() : code);
  const cu::Pointer p = me.gpu.bytes(1 << 20), q = me.gpu.bytes(1 << 20);
  const auto drain = [&] { me.gpu.api.stream_synchronize(me.stream); };
  nccl::Result state;
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 20}) {
    const std::string size = std::to_string(bytes);
    me.r.note("all_reduce.in_place." + size + ".ns",
              cost(
                  [&] {
                    me.api.all_reduce(in(p), out(p), bytes / 4, nccl::kFloat32, nccl::kSum, me.comm,
                                      me.stream);
                  },
                  drain));
    me.r.note("all_reduce.out_of_place." + size + ".ns",
              cost(
                  [&] {
                    me.api.all_reduce(in(p), out(q), bytes / 4, nccl::kFloat32, nccl::kSum, me.comm,
                                      me.stream);
                  },
                  drain));
  }
  nccl::RedOp op{};
  float factor = 2;
  MUST(me.api.red_op_create(&op, &factor, nccl::kFloat32, nccl::kScalarHostImmediate, me.comm));
  me.r.note(
      "all_reduce.premul.8.ns",
      cost([&] { me.api.all_reduce(in(p), out(p), 2, nccl::kFloat32, op, me.comm, me.stream); },
           drain));
  me.r.note("get_async_error.ns",
            cost([&] { me.api.comm_get_async_error(me.comm, &state); }, drain));
  me.r.note("empty_group.ns", cost(
                                  [&] {
                                    me.api.group_start();
                                    me.api.group_end();
                                  },
                                  drain));
}
BEHAVIOUR(nccl_cost, "cost.nccl.nonblocking", nccl, 60) {
  run_ranks(r, 1, [](Rank& me) { nccl_costs(me, 0); });
}
BEHAVIOUR(nccl_cost_blocking, "cost.nccl.blocking", nccl, 60) {
  run_ranks(r, 1, [](Rank& me) { nccl_costs(me, 1); });
}

}}  // namespace same_as_real
