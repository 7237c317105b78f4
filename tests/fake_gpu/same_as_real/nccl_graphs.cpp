// SPDX-License-Identifier: BSD-3-Clause
// CUDA graphs with ops of NCCL, as the backend captures them: of blocking communicators, and what
// ends these while a graph holds their ops (docs/adr/0016).
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/fake_gpu/same_as_real/ranks.h"

namespace same_as_real { namespace {

constexpr std::size_t kCount = 1000;
const auto F = nccl::kFloat32;

struct Replay {
  cu::Graph graph = nullptr;
  cu::GraphExec exec = nullptr;
};

// What `calls` put on the stream of the rank, in the mode that programs take unless they choose.
// `calls` gives the code of the last.
Replay captured(Rank& me, const std::function<int()>& calls) {
  Replay replay;
  MUST(me.gpu.api.stream_begin_capture(me.stream, cu::kCaptureGlobal));
  me.r.fact("code", calls());
  cu::CaptureStatus status = cu::kCaptureNone;
  me.gpu.api.stream_is_capturing(me.stream, &status);
  me.r.fact("capture", status);
  MUST(me.gpu.api.stream_end_capture(me.stream, &replay.graph));
  MUST(me.gpu.api.graph_instantiate(&replay.exec, replay.graph, 0));
  return replay;
}

void destroy(Rank& me, const Replay& replay) {
  MUST(me.gpu.api.graph_exec_destroy(replay.exec));
  MUST(me.gpu.api.graph_destroy(replay.graph));
}

// Replays with `mine` in `from`, of which rank 0 has one, rank 1 twice that; the first number of
// `to`.
void replay(Rank& me, const Replay& replay, const std::string& key, cu::Pointer from,
            cu::Pointer to, float mine) {
  const std::vector<float> values(kCount, mine * float(me.rank + 1));
  MUST(me.gpu.more.memcpy_h2d(from, values.data(), kCount * sizeof(float)));
  me.r.fact(key + ".launch", me.gpu.api.graph_launch(replay.exec, me.stream));
  me.r.fact(key + ".stream", me.finish());
  me.r.fact(key + ".value", text_of({me.get<float>(to, 1)[0]}));
}

void sum(Rank& me) {
  me.r.fact("init", me.make());
  const cu::Pointer from = me.put(std::vector<float>(kCount, 0));
  const cu::Pointer to = me.put(std::vector<float>(kCount, -1));
  const Replay graph = captured(me, [&] {
    const int code =
        me.api.all_reduce(in(from), out(to), kCount, F, nccl::kSum, me.comm, me.stream);
    std::thread([&] {  // the one that watches
      nccl::Result state = nccl::kInProgress;
      me.r.fact("asked_by_another_thread", me.api.comm_get_async_error(me.comm, &state));
      me.r.fact("state", state);
    })
        .join();
    return code;
  });
  replay(me, graph, "first", from, to, 1);
  replay(me, graph, "second", from, to, 10);
  me.meet();
  destroy(me, graph);
  me.r.fact("destroy", me.api.comm_destroy(me.comm));
}

// Messages in a group, then a collective of what came.
void messages(Rank& me) {
  me.r.fact("init", me.make());
  const cu::Pointer from = me.put(std::vector<float>(kCount, 0)), came = me.gpu.bytes(kCount * 4);
  const cu::Pointer to = me.put(std::vector<float>(kCount, -1));
  const Replay graph = captured(me, [&] {
    MUST(me.api.group_start());
    MUST(me.api.send(in(from), kCount, F, 1 - me.rank, me.comm, me.stream));
    MUST(me.api.recv(out(came), kCount, F, 1 - me.rank, me.comm, me.stream));
    MUST(me.api.group_end());
    return me.api.broadcast(in(came), out(to), kCount, F, 1, me.comm, me.stream);
  });
  replay(me, graph, "first", from, to, 1);
  replay(me, graph, "second", from, to, 10);
  me.meet();
  destroy(me, graph);
  me.r.fact("destroy", me.api.comm_destroy(me.comm));
}

// `end` is called while a graph holds an op, and the graph is destroyed later. With `alone` rank 0
// is in a replay then, in which rank 1 has no part.
void ended(Rank& me, const std::function<int()>& end, bool alone) {
  me.r.fact("init", me.make());
  const cu::Pointer p = me.put(std::vector<float>(kCount, 1));
  const Replay graph = captured(me, [&] {
    return int(me.api.all_reduce(in(p), out(p), kCount, F, nccl::kSum, me.comm, me.stream));
  });
  if (!alone || me.rank == 0) MUST(me.gpu.api.graph_launch(graph.exec, me.stream));
  me.r.fact("replay", me.stream_end(alone ? 200 : 10'000));
  me.meet();
  me.r.fact("ended", blocks_until(me.gpu, end, [&] {
              me.r.fact("stream_meanwhile", me.stream_end(2000));
              destroy(me, graph);
            }));
  me.r.fact("context_after", me.gpu.api.ctx_synchronize());
  me.meet();
  me.r.fact("new_communicator", me.make(1));
}

void blocking(const Reading& r, void (*body)(Rank&)) { run_ranks(r, 2, body, true, {}, 1); }

BEHAVIOUR(sums, "nccl2.graph.first_op_is_captured", nccl, 40) { blocking(r, sum); }
BEHAVIOUR(in_group, "nccl2.graph.messages", nccl, 40) { blocking(r, messages); }
BEHAVIOUR(destroyed, "nccl2.graph.destroy_while_a_graph_holds_it", nccl, 40) {
  blocking(r, [](Rank& me) {
    ended(
        me, [&] { return int(me.api.comm_destroy(me.comm)); }, false);
  });
}
BEHAVIOUR(aborted, "nccl2.graph.abort_while_a_graph_holds_it", nccl, 40) {
  blocking(r, [](Rank& me) {
    ended(
        me, [&] { return int(me.api.comm_abort(me.comm)); }, false);
  });
}
BEHAVIOUR(aborted_alone, "nccl2.graph.abort_of_a_replay", nccl, 40) {
  blocking(r, [](Rank& me) {
    ended(
        me, [&] { return int(me.api.comm_abort(me.comm)); }, true);
  });
}

}}  // namespace same_as_real
