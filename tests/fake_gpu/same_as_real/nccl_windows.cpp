// SPDX-License-Identifier: BSD-3-Clause
// Symmetric windows with memory of ncclMemAlloc, as the backend opens and closes them: of blocking
// communicators (docs/adr/0017). nccl.memory and nccl.errors have the arguments.
#include <functional>
#include <string>
#include <vector>

#include "tests/fake_gpu/same_as_real/ranks.h"

namespace same_as_real { namespace {

constexpr std::size_t kCount = 1000, kBytes = 1 << 20;
const auto F = nccl::kFloat32;

struct InWindow {
  void* at = nullptr;
  nccl::Window window = nullptr;
};

InWindow open_window(Rank& me, const std::string& key) {
  InWindow made;
  MUST(me.api.mem_alloc(&made.at, kBytes));
  me.r.fact(key + ".register",
            me.api.window_register(me.comm, made.at, kBytes, &made.window, nccl::kWindowSymmetric));
  me.r.fact(key + ".window", made.window != nullptr);
  const std::vector<float> values(kCount, float(me.rank + 1));
  MUST(me.gpu.more.memcpy_h2d(reinterpret_cast<cu::Pointer>(made.at), values.data(),
                              kCount * sizeof(float)));
  return made;
}

int sum(Rank& me, void* at) {
  return me.api.all_reduce(at, at, kCount, F, nccl::kSum, me.comm, me.stream);
}
float first_of(Rank& me, void* at) {
  return me.get<float>(reinterpret_cast<cu::Pointer>(at), 1)[0];
}

// A rank closes its window when its buffer ends, whatever the others do.
void right(Rank& me) {
  me.r.fact("init", me.make());
  const InWindow memory = open_window(me, "open");
  me.r.fact("op", sum(me, memory.at));
  me.r.fact("op.stream", me.finish());
  me.r.fact("op.value", text_of({first_of(me, memory.at)}));
  me.meet();
  const auto close = [&] {
    me.r.fact("close",
              blocks_until(
                  me.gpu, [&] { return me.api.window_deregister(me.comm, memory.window); }, [] {}));
  };
  if (me.rank == 0) close();
  me.meet();
  if (me.rank == 1) close();
  me.meet();
  me.r.fact("op_then", sum(me, memory.at));
  me.r.fact("op_then.stream", me.finish());
  me.r.fact("op_then.value", text_of({first_of(me, memory.at)}));
  me.r.fact("free", me.api.mem_free(memory.at));
  me.meet();
  me.r.fact("destroy", me.api.comm_destroy(me.comm));
}

// The ranks pass what no program may: what the op makes of it is only noted. The abort ends it, and
// leaves the windows open.
void mismatched(Rank& me, bool plain) {
  me.r.fact("init", me.make());
  const InWindow one = open_window(me, "one"), two = open_window(me, "two");
  void* const other = plain ? out(me.put(std::vector<float>(kCount, 2))) : two.at;
  void* const passed = me.rank == 0 ? one.at : other;
  me.meet();
  me.r.fact("op", sum(me, passed));
  const std::string end = me.stream_end(2000);
  me.r.note("op.stream", end);
  if (end == "0") me.r.note("op.value", double(first_of(me, passed)));
  nccl::Result state = nccl::kSuccess;
  me.api.comm_get_async_error(me.comm, &state);
  me.r.fact("state", state);
  me.meet();
  me.r.fact("abort", me.abort());
  me.r.fact("stream_after_abort", me.stream_end(5000));
  me.r.fact("one.free", me.api.mem_free(one.at));
  me.r.fact("two.free", me.api.mem_free(two.at));
}

// The other rank has failed before.
void alone(Rank& me) {
  me.r.fact("init", me.make());
  if (me.rank == 0) {
    InWindow made;
    MUST(me.api.mem_alloc(&made.at, kBytes));
    me.r.fact("register", blocks_until(
                              me.gpu,
                              [&] {
                                return me.api.window_register(me.comm, made.at, kBytes,
                                                              &made.window, nccl::kWindowSymmetric);
                              },
                              [&] { me.r.fact("abort", me.api.comm_abort(me.comm)); }));
    me.r.fact("free", me.api.mem_free(made.at));
  }
  me.meet();
  if (me.rank == 1) me.r.fact("abort", me.abort());
}

void blocking(const Reading& r, int size, void (*body)(Rank&)) {
  run_ranks(r, size, body, true, {}, 1);
}

BEHAVIOUR(windows, "nccl2.window.same_allocation", nccl, 40) { blocking(r, 2, right); }
BEHAVIOUR(other_allocation, "nccl2.window.other_allocation", nccl, 40) {
  blocking(r, 2, [](Rank& me) { mismatched(me, false); });
}
BEHAVIOUR(plain_memory, "nccl2.window.plain_memory_on_one_rank", nccl, 40) {
  blocking(r, 2, [](Rank& me) { mismatched(me, true); });
}
BEHAVIOUR(one_rank, "nccl2.window.one_rank_alone", nccl, 40) { blocking(r, 2, alone); }

// No program may: the window must be closed before.
BEHAVIOUR(freed, "nccl.window.freed_while_open", nccl, 40) {
  blocking(r, 1, [](Rank& me) {
    me.r.fact("init", me.make());
    const InWindow memory = open_window(me, "open");
    me.r.fact("free", me.api.mem_free(memory.at));
    me.r.fact("close", me.api.window_deregister(me.comm, memory.window));
    me.r.fact("destroy", me.api.comm_destroy(me.comm));
  });
}

}}  // namespace same_as_real
