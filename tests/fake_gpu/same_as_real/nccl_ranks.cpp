// SPDX-License-Identifier: BSD-3-Clause
// NCCL between processes on one GPU: results, what does not match, ranks that die.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "tests/fake_gpu/same_as_real/ranks.h"

namespace same_as_real { namespace {

BEHAVIOUR(duplicate, "nccl2.two_ranks_on_one_gpu_without_hosts", nccl, 40) {
  run_ranks(
      r, 2,
      [](Rank& me) {
        const auto start = Clock::now();
        me.r.fact("state", me.make());
        me.r.note("ms", ms_since(start));
        me.r.note("last_error", text(me.api.get_last_error(me.comm)));
        me.r.fact("op_then", me.api.all_reduce(nullptr, nullptr, 0, nccl::kInt8, nccl::kSum,
                                               me.comm, me.stream));
        const auto abort = Clock::now();
        me.r.fact("abort", me.abort());
        me.r.note("abort.ms", ms_since(abort));
      },
      false);
}

void finish_well(Rank& me) {
  const auto end = Clock::now();
  me.r.fact("finalize", me.api.comm_finalize(me.comm));
  me.r.fact("finalize.then", me.settle());
  me.r.fact("destroy", me.api.comm_destroy(me.comm));
  me.r.note("end.ms", ms_since(end));
}

// Every collective once, on integers whose results have a closed form.
void collectives(Rank& me) {
  const auto start = Clock::now();
  me.r.fact("init", me.make());
  me.r.note("init.ms", ms_since(start));
  auto& a = me.api;
  const int n = me.size, k = 1000;
  const auto I = nccl::kInt32;
  std::vector<int> mine(std::size_t(k * n));
  for (int i = 0; i < k * n; ++i) mine[std::size_t(i)] = me.rank * 100'000 + i;
  const cu::Pointer from = me.put(mine), to = me.put(std::vector<int>(std::size_t(k * n), -1));
  const auto check = [&](const char* key, int code, const std::function<int(int)>& expected,
                         int count) {
    const int state = me.settle();
    const std::string stream = me.finish();
    bool right = true;
    if (count > 0) {
      const auto got = me.get<int>(to, std::size_t(count));
      for (int i = 0; i < count; ++i) right = right && got[std::size_t(i)] == expected(i);
    }
    me.r.fact(key, std::to_string(code) + " state " + std::to_string(state) + " stream " + stream +
                       (right ? " right" : " WRONG"));
    MUST(me.gpu.api.memset_d8_async(to, 255, std::size_t(k * n) * 4, me.stream));
    MUST(me.gpu.api.stream_synchronize(me.stream));
  };
  const int ranks_sum = n * (n - 1) / 2 * 100'000;
  const bool root = me.rank == n - 1;
  check(
      "all_reduce.sum", a.all_reduce(in(from), out(to), k, I, nccl::kSum, me.comm, me.stream),
      [&](int i) { return ranks_sum + n * i; }, k);
  check(
      "all_reduce.max", a.all_reduce(in(from), out(to), k, I, nccl::kMax, me.comm, me.stream),
      [&](int i) { return (n - 1) * 100'000 + i; }, k);
  check(
      "all_reduce.avg", a.all_reduce(in(from), out(to), k, I, nccl::kAvg, me.comm, me.stream),
      [&](int i) { return (ranks_sum + n * i) / n; }, k);
  check(
      "reduce", a.reduce(in(from), out(to), k, I, nccl::kSum, n - 1, me.comm, me.stream),
      [&](int i) { return ranks_sum + n * i; }, root ? k : 0);
  check(
      "broadcast", a.broadcast(in(from), out(to), k, I, n - 1, me.comm, me.stream),
      [&](int i) { return (n - 1) * 100'000 + i; }, k);
  check(
      "all_gather", a.all_gather(in(from), out(to), k, I, me.comm, me.stream),
      [&](int i) { return i / k * 100'000 + i % k; }, k * n);
  check(
      "reduce_scatter", a.reduce_scatter(in(from), out(to), k, I, nccl::kSum, me.comm, me.stream),
      [&](int i) { return ranks_sum + n * (me.rank * k + i); }, k);
  check(
      "all_to_all", a.all_to_all(in(from), out(to), k, I, me.comm, me.stream),
      [&](int i) { return i / k * 100'000 + me.rank * k + i % k; }, k * n);
  check(
      "gather", a.gather(in(from), out(to), k, I, n - 1, me.comm, me.stream),
      [&](int i) { return i / k * 100'000 + i % k; }, root ? k * n : 0);
  check(
      "scatter", a.scatter(in(from), out(to), k, I, n - 1, me.comm, me.stream),
      [&](int i) { return (n - 1) * 100'000 + me.rank * k + i; }, k);
  a.group_start();
  a.send(in(from), k, I, (me.rank + 1) % n, me.comm, me.stream);
  a.recv(out(to), k, I, (me.rank + n - 1) % n, me.comm, me.stream);
  check(
      "send_and_recv_in_a_ring", a.group_end(),
      [&](int i) { return (me.rank + n - 1) % n * 100'000 + i; }, k);
  a.group_start();
  a.all_reduce(in(from), out(to), k, I, nccl::kSum, me.comm, me.stream);
  a.broadcast(in(from), out(to + 4 * std::size_t(k)), k, I, 0, me.comm, me.stream);
  check(
      "two_ops_in_a_group", a.group_end(), [&](int i) { return i < k ? ranks_sum + n * i : i - k; },
      2 * k);
  finish_well(me);
}
BEHAVIOUR(collectives2_blocking, "nccl2.collectives.blocking", nccl, 60) {
  run_ranks(r, 2, collectives, true, {}, 1);
}
RANKS(collectives2, "nccl2.collectives", 2, 60) { collectives(me); }
RANKS(collectives4, "nccl4.collectives", 4, 90) { collectives(me); }
RANKS(collectives8, "nccl8.collectives", 8, 90) { collectives(me); }
BEHAVIOUR(collectives2_free, "nccl2.collectives.any_protocol", nccl, 60) {
  run_ranks(r, 2, collectives, true,
            {{"NCCL_MAX_CTAS", "16"}, {"NCCL_ALGO", ""}, {"NCCL_PROTO", ""}});
}

void timing(Rank& me) {
  me.r.fact("init", me.make());
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 20, std::size_t{64} << 20}) {
    const cu::Pointer p = me.gpu.bytes(bytes);
    MUST(me.gpu.api.memset_d8_async(p, 0, bytes, me.stream));
    std::vector<double> times;
    for (int i = 0; i < 6; ++i) {
      const auto start = Clock::now();
      me.api.all_reduce(in(p), out(p), bytes / 4, nccl::kFloat32, nccl::kSum, me.comm, me.stream);
      me.settle_at_once();
      me.gpu.api.stream_synchronize(me.stream);
      times.push_back(ms_since(start));
    }
    me.r.note("co_located.all_reduce." + std::to_string(bytes) + ".ms", text_of(times));
  }
  me.meet();  // who leaves early may take along what others still need
}
RANKS(timing2, "nccl2.timing", 2, 60) { timing(me); }
RANKS(timing4, "nccl4.timing", 4, 90) { timing(me); }
BEHAVIOUR(timing2_free, "nccl2.timing.any_protocol", nccl, 60) {
  run_ranks(r, 2, timing, true, {{"NCCL_MAX_CTAS", "16"}, {"NCCL_ALGO", ""}, {"NCCL_PROTO", ""}});
}

// Nonblocking: what calls say, how often one must ask.
RANKS(nonblocking, "nccl2.nonblocking", 2, 40) {
  MUST(me.rank == 0 ? int(me.api.get_unique_id(&me.world->id[0])) : 0);
  me.meet();
  nccl::Config config = config_of(me.api, 0);
  const auto start = Clock::now();
  me.r.fact("init", me.api.comm_init_rank_config(&me.comm, 2, me.world->id[0], me.rank, &config));
  int polls = 0;
  me.r.fact("init.then", me.settle(me.comm, 20'000, &polls));
  me.r.note("init.polls", double(polls));
  me.r.note("init.ms", ms_since(start));
  const cu::Pointer p = me.put(std::vector<float>(1000, 1));
  std::string codes, states;
  for (int i = 0; i < 6; ++i) {
    const auto began = Clock::now();
    const int code =
        me.api.all_reduce(in(p), out(p), 1000, nccl::kFloat32, nccl::kSum, me.comm, me.stream);
    nccl::Result state = nccl::kSuccess;
    me.api.comm_get_async_error(me.comm, &state);
    codes += std::to_string(code) + " ";
    states += std::to_string(state) + " ";
    me.r.fact("op." + std::to_string(i) + ".then", me.settle_at_once());
    me.r.note("op." + std::to_string(i), std::to_string(ms_since(began)) + " ms");
  }
  me.r.note("op.codes", codes);
  me.r.note("op.states_at_once", states);
  me.r.fact("stream", me.finish());
  // The first send and recv connect.
  me.api.group_start();
  const int send = me.api.send(in(p), 10, nccl::kFloat32, 1 - me.rank, me.comm, me.stream);
  const int recv = me.api.recv(out(p + 2000), 10, nccl::kFloat32, 1 - me.rank, me.comm, me.stream);
  const int end = me.api.group_end();
  nccl::Result state = nccl::kSuccess;
  me.api.comm_get_async_error(me.comm, &state);
  me.r.note("p2p", std::to_string(send) + " " + std::to_string(recv) + " end " +
                       std::to_string(end) + " state " + std::to_string(state));
  me.r.fact("p2p.then", me.settle(me.comm, 5000, &polls));
  me.r.note("p2p.polls", double(polls));
  me.r.fact("p2p.stream", me.finish());
  nccl::Comm child = nullptr;
  me.r.fact("split", me.api.comm_split(me.comm, me.rank, 0, &child, nullptr));
  me.api.comm_get_async_error(me.comm, &state);
  me.r.note("split.state_at_once", double(state));
  me.r.fact("split.parent", me.settle(me.comm, 5000, &polls));
  me.r.note("split.polls", double(polls));
  me.r.fact("split.child", child ? std::to_string(me.settle(child)) : "null");
  nccl::Comm none = reinterpret_cast<nccl::Comm>(77);
  me.r.fact("split.no_color_on_1",
            me.api.comm_split(me.comm, me.rank == 0 ? 0 : nccl::kNoColor, 0, &none, nullptr));
  me.r.fact("split.no_color_on_1.parent", me.settle());
  me.r.fact("split.no_color_on_1.child", none == nullptr                            ? "null"
                                         : none == reinterpret_cast<nccl::Comm>(77) ? "unset"
                                                                                    : "set");
  me.r.fact("finalize", me.api.comm_finalize(me.comm));
  me.r.fact("finalize.then", me.settle(me.comm, 5000, &polls));
  me.r.note("finalize.polls", double(polls));
  me.r.fact("destroy", me.api.comm_destroy(me.comm));
}

RANKS(late_recv, "nccl2.recv_comes_later", 2, 40) {
  me.r.fact("init", me.make());
  const cu::Pointer p = me.put(std::vector<float>(1000, float(me.rank)));
  if (me.rank == 0) {
    me.api.send(in(p), 2, nccl::kFloat32, 1, me.comm, me.stream);
  } else {
    me.api.recv(out(p + 2000), 2, nccl::kFloat32, 0, me.comm, me.stream);
  }
  me.r.fact("first", me.finish());
  me.meet();
  if (me.rank == 0) {
    me.r.fact("send", me.api.send(in(p), 2, nccl::kFloat32, 1, me.comm, me.stream));
    me.r.fact("send.state", me.settle(me.comm, 3000));
    me.r.fact("send.done_without_recv", me.stream_end(400));
    me.world->word[5] = 1;
    me.r.fact("send.done", me.finish());
  } else {
    wait_for([&] { return me.world->word[5] == 1; }, 10'000);
    me.r.fact("recv", me.api.recv(out(p), 2, nccl::kFloat32, 0, me.comm, me.stream));
    me.r.fact("recv.done", me.finish());
    me.r.fact("recv.value", text_of({me.get<float>(p, 1)[0]}));
  }
  me.meet();
}

// Three ranks, of which one dies; the others shrink without it.
RANKS(shrink, "nccl3.shrink_after_a_kill", 3, 60) {
  me.r.fact("init", me.make());
  const cu::Pointer p = me.put(std::vector<float>(1000, 1));
  const auto op = [&] {
    return int(
        me.api.all_reduce(in(p), out(p), 1000, nccl::kFloat32, nccl::kSum, me.comm, me.stream));
  };
  op();
  me.finish();
  me.meet();
  if (me.rank == 1) {
    sleep_ms(300);
    me.world->word[7] = 1;
    raise(SIGKILL);
  }
  me.r.fact("op", op());
  me.r.fact("op.state", me.settle());
  wait_for([&] { return me.world->word[7] == 1; }, 5000);
  nccl::Result state = nccl::kSuccess;
  const auto start = Clock::now();
  wait_for(
      [&] { return me.api.comm_get_async_error(me.comm, &state) != 0 || state != nccl::kSuccess; },
      3000);
  me.r.note("async_error", std::to_string(state) + " after ms " + std::to_string(ms_since(start)));
  int dead[1] = {1};
  nccl::Comm child = nullptr;
  const auto shrink = Clock::now();
  me.r.fact("shrink", me.api.comm_shrink(me.comm, dead, 1, &child, nullptr, nccl::kShrinkAbort));
  me.r.fact("shrink.parent", me.settle(me.comm, 8000));
  me.r.note("shrink.ms", ms_since(shrink));
  me.r.fact("shrink.child", child ? std::to_string(me.settle(child, 8000)) : "null");
  if (child) {
    int rank = -1, count = -1;
    me.api.comm_user_rank(child, &rank);
    me.api.comm_count(child, &count);
    me.r.fact("shrink.child.rank", std::to_string(rank) + " of " + std::to_string(count));
    me.r.fact("parent.abort", me.abort());
    me.comm = child;
    me.r.fact("shrink.child.op", op());
    me.r.fact("shrink.child.stream", me.finish());
    me.r.fact("shrink.child.destroy", me.api.comm_destroy(me.comm));
  }
}

// Without a question in between: the second call, and an event behind the first.
RANKS(too_early, "nccl2.call_before_the_last_is_ready", 2, 40) {
  me.r.fact("init", me.make());
  const cu::Pointer p = me.put(std::vector<float>(1000, 1));
  const auto op = [&] {
    return int(
        me.api.all_reduce(in(p), out(p), 1000, nccl::kFloat32, nccl::kSum, me.comm, me.stream));
  };
  op();
  me.finish();
  me.meet();
  // The peer comes half a second later.
  if (me.rank == 1) sleep_ms(500);
  const cu::Event behind = me.gpu.event(), settled = me.gpu.event();
  const auto start = Clock::now();
  me.r.fact("op", op());
  MUST(me.gpu.api.event_record(behind, me.stream));
  const int at_once = me.gpu.api.event_query(behind);
  me.r.fact("op.state", me.settle_at_once());
  me.r.note("ready.us", ms_since(start) * 1000);
  MUST(me.gpu.api.event_record(settled, me.stream));
  if (me.rank == 0) {
    me.r.note("event_recorded_in_progress.at_once", double(at_once));
    sleep_ms(50);
    me.r.fact("event_recorded_in_progress.without_the_peer", me.gpu.api.event_query(behind));
    me.r.fact("event_recorded_when_ready.without_the_peer", me.gpu.api.event_query(settled));
  }
  me.r.fact("stream", me.finish());
  me.meet();
  me.r.fact("first", op());
  me.r.fact("second_at_once", op());
  me.r.note("last_error", text(me.api.get_last_error(me.comm)));
  me.r.fact("state", me.settle_at_once());
  me.r.note("stream_then", me.stream_end(500));
  me.r.fact("third", op());
  me.r.fact("finalize", me.api.comm_finalize(me.comm));
  me.r.fact("destroy", me.api.comm_destroy(me.comm));
  me.r.fact("group_end", me.api.group_end());
  me.r.fact("abort", me.abort());
  me.r.fact("stream_after_abort", me.stream_end(5000));
}

// Captured, waiting until NCCL is ready before the capture ends.
void replayed(Rank& me, cu::CaptureMode mode, const std::string& key) {
  const std::vector<float> values(1000, float(me.rank + 1));
  const cu::Pointer from = me.put(values), to = me.put(std::vector<float>(1000, -1));
  me.world->word[0] = 0;
  me.meet();
  me.r.fact(key + ".init", me.make());
  me.api.all_reduce(in(from), out(to), 1000, nccl::kFloat32, nccl::kMax, me.comm, me.stream);
  me.finish();
  cu::Graph graph = nullptr;
  cu::GraphExec exec = nullptr;
  MUST(me.gpu.api.stream_begin_capture(me.stream, mode));
  me.r.fact(key + ".code", me.api.all_reduce(in(from), out(to), 1000, nccl::kFloat32, nccl::kSum,
                                             me.comm, me.stream));
  me.r.fact(key + ".state", me.settle());
  cu::CaptureStatus status = cu::kCaptureNone;
  me.gpu.api.stream_is_capturing(me.stream, &status);
  me.r.fact(key + ".capture", status);
  me.r.fact(key + ".end", me.gpu.api.stream_end_capture(me.stream, &graph));
  if (!graph) {
    me.abort();
    return;
  }
  me.r.fact(key + ".instantiate", me.gpu.api.graph_instantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) me.gpu.api.graph_launch(exec, me.stream);
  me.r.fact(key + ".replay", me.finish());
  me.r.fact(key + ".value", text_of({me.get<float>(to, 1)[0]}));
  me.api.all_reduce(in(from), out(to), 1000, nccl::kFloat32, nccl::kMax, me.comm, me.stream);
  me.r.fact(key + ".eager_after", me.finish());
  me.gpu.api.graph_exec_destroy(exec);
  me.gpu.api.graph_destroy(graph);
  me.r.fact(key + ".destroy", me.api.comm_destroy(me.comm));
}
RANKS(capture_global, "nccl2.capture.global", 2, 40) { replayed(me, cu::kCaptureGlobal, "global"); }
RANKS(capture_thread, "nccl2.capture.thread_local", 2, 40) {
  replayed(me, cu::kCaptureThreadLocal, "thread_local");
}
RANKS(capture_relaxed, "nccl2.capture.relaxed", 2, 40) {
  replayed(me, cu::kCaptureRelaxed, "relaxed");
}
BEHAVIOUR(capture_blocking, "nccl2.capture.global.blocking", nccl, 40) {
  run_ranks(
      r, 2, [](Rank& me) { replayed(me, cu::kCaptureGlobal, "global"); }, true, {}, 1);
}

// What an op costs the calling thread: the call, and the time until NCCL is ready for the next.
void costs(Rank& me) {
  me.r.fact("init", me.make());
  const cu::Pointer p = me.gpu.bytes(1 << 20);
  std::vector<double> call, ready;
  for (int i = 0; i < 60; ++i) {
    const auto start = Clock::now();
    me.api.all_reduce(in(p), out(p), 2, nccl::kFloat32, nccl::kSum, me.comm, me.stream);
    const double called = ms_since(start) * 1000;
    me.settle_at_once();
    const double settled = ms_since(start) * 1000;
    me.gpu.api.stream_synchronize(me.stream);
    if (i < 10) continue;
    call.push_back(called);
    ready.push_back(settled);
  }
  std::sort(call.begin(), call.end());
  std::sort(ready.begin(), ready.end());
  me.r.note("call.us.min_median_max", text_of({call.front(), call[call.size() / 2], call.back()}));
  me.r.note("ready.us.min_median_max",
            text_of({ready.front(), ready[ready.size() / 2], ready.back()}));
  // Several in one group.
  std::vector<double> group;
  for (int i = 0; i < 20; ++i) {
    const auto start = Clock::now();
    me.api.group_start();
    for (int j = 0; j < 8; ++j) {
      me.api.all_reduce(in(p), out(p), 2, nccl::kFloat32, nccl::kSum, me.comm, me.stream);
    }
    me.api.group_end();
    me.settle_at_once();
    group.push_back(ms_since(start) * 1000);
    me.gpu.api.stream_synchronize(me.stream);
  }
  std::sort(group.begin(), group.end());
  me.r.note("group_of_8.ready.us.median", text_of({group[10]}));
  me.meet();
}
RANKS(cost2, "nccl2.cost.nonblocking", 2, 40) { costs(me); }
BEHAVIOUR(cost2_blocking, "nccl2.cost.blocking", nccl, 40) { run_ranks(r, 2, costs, true, {}, 1); }

// A blocking communicator whose first op waits for a peer that does not come: can it be ended?
void first_op_alone(Rank& me) {
  me.r.fact("init", me.make());
  const cu::Pointer p = me.gpu.bytes(4096);
  me.meet();
  if (me.rank == 0) {
    const nccl::Comm comm = me.comm;
    std::atomic<int> code{-1};
    const auto start = Clock::now();
    std::thread caller([&] {
      me.gpu.api.ctx_push(me.gpu.context);
      code = me.api.all_reduce(in(p), out(p), 16, nccl::kFloat32, nccl::kSum, comm, me.stream);
      me.r.note("call.ms", ms_since(start));
    });
    const bool returned = wait_for([&] { return code != -1; }, 1500);
    me.r.fact("returns_without_the_peer", returned);
    nccl::Result state = nccl::kSuccess;
    me.r.fact("async_code", me.api.comm_get_async_error(comm, &state));
    me.r.fact("async_error", state);
    const auto abort = Clock::now();
    me.r.fact("abort", me.abort());
    me.r.note("abort.ms", ms_since(abort));
    me.r.fact("returns_after_abort", wait_for([&] { return code != -1; }, 5000));
    if (code == -1) std::_Exit(7);
    caller.join();
    me.r.fact("code", code.load());
    me.r.fact("stream", me.stream_end(3000));
  }
  me.meet();
  if (me.rank == 1) me.r.fact("abort", me.abort());
  me.meet();
  me.r.fact("new_communicator", me.make(1));
}
BEHAVIOUR(alone_blocking, "nccl2.blocking.first_op_alone", nccl, 40) {
  run_ranks(r, 2, first_op_alone, true, {}, 1);
}
BEHAVIOUR(alone_connected, "nccl2.blocking.first_op_alone.runtime_connect_0", nccl, 40) {
  run_ranks(r, 2, first_op_alone, true, {{"NCCL_RUNTIME_CONNECT", "0"}}, 1);
}

// An initialisation that waits for a rank that does not come, ended by another thread.
void init_alone(Rank& me) {
  if (me.rank == 0) {
    MUST(me.api.get_unique_id(&me.world->id[0]));
    static nccl::Comm comm;
    std::atomic<int> code{-1};
    std::thread caller([&] {
      me.gpu.api.ctx_push(me.gpu.context);
      nccl::Config config = config_of(me.api, 1);
      code = me.api.comm_init_rank_config(&comm, 2, me.world->id[0], 0, &config);
    });
    sleep_ms(1500);
    me.r.fact("returns_without_the_peer", code != -1);
    const bool set = *const_cast<nccl::Comm volatile*>(&comm) != nullptr;
    me.r.fact("comm_is_set", set);
    if (set) {
      const auto abort = Clock::now();
      me.r.fact("abort", me.api.comm_abort(comm));
      me.r.note("abort.ms", ms_since(abort));
    }
    me.r.fact("returns_after_abort", wait_for([&] { return code != -1; }, 4000));
    if (code == -1) std::_Exit(7);
    caller.join();
    me.r.fact("code", code.load());
  }
}
BEHAVIOUR(init_blocking, "nccl2.blocking.init_alone", nccl, 40) {
  run_ranks(r, 2, init_alone, true, {}, 1);
}

// A nonblocking communicator made into a blocking one by a split.
RANKS(split_blocking, "nccl2.split_into_blocking", 2, 40) {
  me.r.fact("init", me.make());
  static nccl::Comm child;
  nccl::Config config = config_of(me.api, 1);
  me.r.fact("split", me.api.comm_split(me.comm, 0, me.rank, &child, &config));
  me.r.fact("parent", me.settle());
  me.r.fact("child_is_set", child != nullptr);
  if (!child) return;
  me.r.fact("child", me.settle(child));
  const nccl::Comm parent = me.comm;
  me.comm = child;
  const cu::Pointer p = me.gpu.bytes(4096);
  std::vector<double> times;
  for (int i = 0; i < 30; ++i) {
    const auto start = Clock::now();
    const int code =
        me.api.all_reduce(in(p), out(p), 2, nccl::kFloat32, nccl::kSum, child, me.stream);
    times.push_back(ms_since(start) * 1000);
    if (i < 2) me.r.fact("op." + std::to_string(i), code);
    me.settle();
    me.gpu.api.stream_synchronize(me.stream);
  }
  std::sort(times.begin(), times.end());
  me.r.note("call.us.min_median_max", text_of({times.front(), times[15], times.back()}));
  me.r.fact("child.destroy", me.api.comm_destroy(child));
  me.r.fact("parent.destroy", me.api.comm_destroy(parent));
}

// What the first op of each kind waits for when NCCL connects during the initialisation.
void first_ops(Rank& me) {
  const auto begin = Clock::now();
  me.r.fact("init", me.make());
  me.r.note("init.ms", ms_since(begin));
  const cu::Pointer p = me.gpu.bytes(1 << 20);
  const auto time = [&](const char* key, const std::function<int()>& call) {
    const auto start = Clock::now();
    call();
    me.settle_at_once();
    me.r.note(std::string(key) + ".ms", ms_since(start));
    me.finish();
  };
  const auto F = nccl::kFloat32;
  time("all_reduce",
       [&] { return int(me.api.all_reduce(in(p), out(p), 2, F, nccl::kSum, me.comm, me.stream)); });
  time("all_reduce.again",
       [&] { return int(me.api.all_reduce(in(p), out(p), 2, F, nccl::kSum, me.comm, me.stream)); });
  time("all_gather",
       [&] { return int(me.api.all_gather(in(p), out(p + 4096), 2, F, me.comm, me.stream)); });
  time("all_to_all",
       [&] { return int(me.api.all_to_all(in(p), out(p + 4096), 2, F, me.comm, me.stream)); });
  time("all_to_all.again",
       [&] { return int(me.api.all_to_all(in(p), out(p + 4096), 2, F, me.comm, me.stream)); });
  me.r.fact("destroy", me.api.comm_destroy(me.comm));
}
RANKS(first_lazy, "nccl2.first_ops", 2, 40) { first_ops(me); }
BEHAVIOUR(first_eager, "nccl2.first_ops.runtime_connect_0", nccl, 40) {
  run_ranks(r, 2, first_ops, true, {{"NCCL_RUNTIME_CONNECT", "0"}});
}

}}  // namespace same_as_real
