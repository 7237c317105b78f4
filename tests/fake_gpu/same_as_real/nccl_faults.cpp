// SPDX-License-Identifier: BSD-3-Clause
// NCCL between processes when the ranks disagree, die or leave.
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "tests/fake_gpu/same_as_real/ranks.h"

namespace same_as_real { namespace {

// How a call on which the ranks disagree ends, on each rank, within three seconds.
void disagree(Rank& me, const std::function<int(cu::Pointer, cu::Pointer)>& call, std::size_t show,
              bool connected = true) {
  me.r.fact("init", me.make());
  const cu::Pointer from = me.put(std::vector<float>(1 << 20, float(me.rank + 1)));
  const cu::Pointer to = me.put(std::vector<float>(1 << 20, -1));
  const cu::Pointer warm = me.put(std::vector<float>(4096, 0));
  if (connected) {  // as far as NCCL connects at the first use
    me.api.all_reduce(in(warm), out(warm), 16, nccl::kFloat32, nccl::kSum, me.comm, me.stream);
    me.finish();
    me.api.group_start();
    me.api.send(in(warm), 16, nccl::kFloat32, 1 - me.rank, me.comm, me.stream);
    me.api.recv(out(warm + 8192), 16, nccl::kFloat32, 1 - me.rank, me.comm, me.stream);
    me.api.group_end();
    me.r.fact("warm", me.finish());
  }
  me.meet();
  me.r.fact("code", call(from, to));
  const int state = me.settle(me.comm, 3000);
  const std::string end = state == nccl::kInProgress ? "in progress" : me.stream_end(3000);
  me.r.note("state", double(state));
  me.r.note("stream", end);
  if (end == "0") {
    const auto got = me.get<float>(to, show);
    me.r.note("first", text_of({got[0]}));
    me.r.note("last", text_of({got[show - 1]}));
  }
  nccl::Result later = nccl::kSuccess;
  me.api.comm_get_async_error(me.comm, &later);
  me.r.note("state_after_3_s", double(later));
  me.meet();
  const auto start = Clock::now();
  me.r.fact("abort", me.abort());
  me.r.note("abort.ms", ms_since(start));
  me.r.fact("stream_after_abort", me.stream_end(5000));
  if (end == "hangs") {
    me.r.note("first_after_abort", text_of({me.get<float>(to, show)[0]}));
  }
  me.meet();
  me.r.fact("new_communicator", me.make(1));
}
RANKS(wrong_count_small, "nccl2.disagree.count_4_and_8", 2, 40) {
  disagree(
      me,
      [&](cu::Pointer from, cu::Pointer to) {
        return int(me.api.all_reduce(in(from), out(to), me.rank == 0 ? 4 : 8, nccl::kFloat32,
                                     nccl::kSum, me.comm, me.stream));
      },
      8);
}
RANKS(wrong_count_large, "nccl2.disagree.count_1000_and_1000000", 2, 40) {
  disagree(
      me,
      [&](cu::Pointer from, cu::Pointer to) {
        return int(me.api.all_reduce(in(from), out(to), me.rank == 0 ? 1000 : 1000000,
                                     nccl::kFloat32, nccl::kSum, me.comm, me.stream));
      },
      1000);
}
RANKS(wrong_dtype, "nccl2.disagree.f32_and_f64", 2, 40) {
  disagree(
      me,
      [&](cu::Pointer from, cu::Pointer to) {
        return int(me.api.all_reduce(in(from), out(to), 1000,
                                     me.rank == 0 ? nccl::kFloat32 : nccl::kFloat64, nccl::kSum,
                                     me.comm, me.stream));
      },
      1000);
}
RANKS(wrong_op, "nccl2.disagree.sum_and_max", 2, 40) {
  disagree(
      me,
      [&](cu::Pointer from, cu::Pointer to) {
        return int(me.api.all_reduce(in(from), out(to), 1000, nccl::kFloat32,
                                     me.rank == 0 ? nccl::kSum : nccl::kMax, me.comm, me.stream));
      },
      1000);
}
RANKS(wrong_root, "nccl2.disagree.root", 2, 40) {
  disagree(
      me,
      [&](cu::Pointer from, cu::Pointer to) {
        return int(
            me.api.broadcast(in(from), out(to), 1000, nccl::kFloat32, me.rank, me.comm, me.stream));
      },
      1000);
}
RANKS(wrong_kind, "nccl2.disagree.all_reduce_and_all_gather", 2, 40) {
  disagree(
      me,
      [&](cu::Pointer from, cu::Pointer to) {
        return me.rank == 0 ? int(me.api.all_reduce(in(from), out(to), 1000, nccl::kFloat32,
                                                    nccl::kSum, me.comm, me.stream))
                            : int(me.api.all_gather(in(from), out(to), 1000, nccl::kFloat32,
                                                    me.comm, me.stream));
      },
      1000);
}
RANKS(one_stays_away, "nccl2.disagree.one_calls_nothing", 2, 40) {
  disagree(
      me,
      [&](cu::Pointer from, cu::Pointer to) {
        return me.rank == 0 ? int(me.api.all_reduce(in(from), out(to), 1000, nccl::kFloat32,
                                                    nccl::kSum, me.comm, me.stream))
                            : 0;
      },
      1000);
}
RANKS(one_stays_away_first, "nccl2.disagree.one_calls_nothing_and_nothing_is_connected", 2, 40) {
  disagree(
      me,
      [&](cu::Pointer from, cu::Pointer to) {
        return me.rank == 0 ? int(me.api.all_reduce(in(from), out(to), 1000, nccl::kFloat32,
                                                    nccl::kSum, me.comm, me.stream))
                            : 0;
      },
      1000, false);
}
RANKS(send_alone, "nccl2.disagree.send_without_recv", 2, 40) {
  disagree(
      me,
      [&](cu::Pointer from, cu::Pointer) {
        return me.rank == 0 ? int(me.api.send(in(from), 2, nccl::kFloat32, 1, me.comm, me.stream))
                            : 0;
      },
      2);
}
RANKS(send_longer, "nccl2.disagree.send_1000_recv_10", 2, 40) {
  disagree(
      me,
      [&](cu::Pointer from, cu::Pointer to) {
        return me.rank == 0
                   ? int(me.api.send(in(from), 1000, nccl::kFloat32, 1, me.comm, me.stream))
                   : int(me.api.recv(out(to), 10, nccl::kFloat32, 0, me.comm, me.stream));
      },
      10);
}
RANKS(send_shorter, "nccl2.disagree.send_10_recv_1000", 2, 40) {
  disagree(
      me,
      [&](cu::Pointer from, cu::Pointer to) {
        return me.rank == 0
                   ? int(me.api.send(in(from), 10, nccl::kFloat32, 1, me.comm, me.stream))
                   : int(me.api.recv(out(to), 1000, nccl::kFloat32, 0, me.comm, me.stream));
      },
      1000);
}

// The last rank kills itself; what the others see.
void survive(Rank& me, bool in_an_op, void (*death)()) {
  me.r.fact("init", me.make());
  const cu::Pointer p = me.put(std::vector<float>(1 << 20, 1));
  const auto op = [&] {
    return int(
        me.api.all_reduce(in(p), out(p), 1 << 20, nccl::kFloat32, nccl::kSum, me.comm, me.stream));
  };
  me.r.fact("op", op());
  me.r.fact("op.stream", me.finish());
  me.meet();
  if (me.rank == me.size - 1) {
    sleep_ms(300);
    me.world->word[7] = 1;
    death();
  }
  if (in_an_op) {
    me.r.fact("op_without_the_dead", op());
    me.r.fact("op_without_the_dead.state", me.settle(me.comm, 200));
  }
  wait_for([&] { return me.world->word[7] == 1; }, 5000);
  const auto start = Clock::now();
  nccl::Result state = nccl::kSuccess;
  const bool seen = wait_for(
      [&] { return me.api.comm_get_async_error(me.comm, &state) != 0 || state != nccl::kSuccess; },
      4000);
  me.r.fact("async_error", seen ? std::to_string(state) : "none");
  me.r.note("async_error.ms", ms_since(start));
  me.r.note("last_error", text(me.api.get_last_error(me.comm)));
  me.r.fact("stream", me.stream_end(500));
  const auto begin = Clock::now();
  me.r.fact("op_after", op());
  me.r.note("op_after.ms", ms_since(begin));
  const int then = me.settle(me.comm, 3000);
  me.r.fact("op_after.state", then);
  me.r.note("op_after.settled.ms", ms_since(begin));
  wait_for(
      [&] { return me.api.comm_get_async_error(me.comm, &state) != 0 || state > nccl::kSuccess; },
      3000);
  me.r.note("op_after.state_later", double(state));
  me.r.note("op_after.stream", me.stream_end(300));
  const auto abort = Clock::now();
  me.r.fact("abort", me.abort());
  me.r.note("abort.ms", ms_since(abort));
  me.r.fact("stream_after_abort", me.stream_end(5000));
  me.r.fact("context_after", me.gpu.api.ctx_synchronize());
  // The survivors go on.
  const auto again = Clock::now();
  me.r.fact("new_communicator", me.make(1, me.size - 1));
  me.r.note("new_communicator.ms", ms_since(again));
  me.r.fact("new_communicator.op", op());
  me.r.fact("new_communicator.stream", me.finish());
  me.r.fact("new_communicator.destroy", me.api.comm_destroy(me.comm));
}
void die() { raise(SIGKILL); }
void leave() { _exit(0); }
void leave_by_exit() { std::exit(0); }
RANKS(killed_idle, "nccl2.killed.idle", 2, 40) { survive(me, false, die); }
RANKS(killed_busy, "nccl2.killed.in_an_op", 2, 40) { survive(me, true, die); }
RANKS(killed_busy3, "nccl4.killed.in_an_op", 4, 60) { survive(me, true, die); }
BEHAVIOUR(killed_blocking, "nccl2.killed.in_an_op.blocking", nccl, 60) {
  run_ranks(
      r, 2, [](Rank& me) { survive(me, true, die); }, true, {}, 1);
}
RANKS(left, "nccl2.left.by__exit", 2, 40) { survive(me, true, leave); }
RANKS(left_exit, "nccl2.left.by_exit", 2, 40) { survive(me, true, leave_by_exit); }

// One rank ends the communicator, the other is in an op.
void one_ends(Rank& me, int (*end)(Rank&)) {
  me.r.fact("init", me.make());
  const cu::Pointer p = me.put(std::vector<float>(1000, 1));
  const auto op = [&] {
    return int(
        me.api.all_reduce(in(p), out(p), 1000, nccl::kFloat32, nccl::kSum, me.comm, me.stream));
  };
  op();
  me.finish();
  me.meet();
  const auto start = Clock::now();
  if (me.rank == 1) {
    sleep_ms(300);
    me.r.fact("end", end(me));
    me.r.note("end.ms", ms_since(start));
    me.world->word[7] = 1;
    wait_for([&] { return me.world->word[6] == 1; }, 15'000);
    return;
  }
  me.r.fact("op", op());
  me.r.fact("op.state", me.settle(me.comm, 2000));
  me.r.fact("stream", me.stream_end(2000));
  nccl::Result state = nccl::kSuccess;
  me.api.comm_get_async_error(me.comm, &state);
  me.r.fact("async_error", state);
  const bool ended = me.world->word[7] == 1;
  me.r.note("the_other_has_ended", ended ? "yes" : "no");
  const auto abort = Clock::now();
  me.r.fact("abort", me.abort());
  me.r.note("abort.ms", ms_since(abort));
  me.r.fact("stream_after_abort", me.stream_end(5000));
  me.world->word[6] = 1;
}
RANKS(one_aborts, "nccl2.one_ends.abort", 2, 40) {
  one_ends(me, [](Rank& it) { return int(it.api.comm_abort(it.comm)); });
}
RANKS(one_destroys, "nccl2.one_ends.destroy", 2, 40) {
  one_ends(me, [](Rank& it) { return int(it.api.comm_destroy(it.comm)); });
}
RANKS(one_finalizes, "nccl2.one_ends.finalize", 2, 40) {
  one_ends(me, [](Rank& it) {
    const int code = it.api.comm_finalize(it.comm);
    return code * 100 + it.settle(it.comm, 4000);
  });
}
RANKS(one_revokes, "nccl2.one_ends.revoke", 2, 40) {
  one_ends(me, [](Rank& it) {
    const int code = it.api.comm_revoke(it.comm, 0);
    return code * 100 + it.settle(it.comm, 4000);
  });
}

// A rank whose own part is done leaves at once.
void leave_early(Rank& me, void (*leave_by)()) {
  me.r.fact("init", me.make());
  const std::size_t count = 16u << 20;
  const cu::Pointer p = me.gpu.bytes(count * 4);
  for (int i = 0; i < 3; ++i) {
    me.api.all_reduce(in(p), out(p), count, nccl::kFloat32, nccl::kSum, me.comm, me.stream);
    if (i < 2) me.finish();
  }
  if (me.rank == 1) {
    me.r.note("stream", me.finish());
    leave_by();
  }
  me.r.note("stream", me.finish(4000));
  nccl::Result state = nccl::kSuccess;
  me.api.comm_get_async_error(me.comm, &state);
  me.r.note("async_error", double(state));
  me.r.note("last_error", text(me.api.get_last_error(me.comm)));
  me.r.fact("abort", me.abort());
  me.r.fact("stream_after_abort", me.stream_end(5000));
}
RANKS(left_early, "nccl2.left_when_its_part_was_done.by__exit", 2, 40) { leave_early(me, leave); }
RANKS(left_early_exit, "nccl2.left_when_its_part_was_done.by_exit", 2, 40) {
  leave_early(me, leave_by_exit);
}

}}  // namespace same_as_real
