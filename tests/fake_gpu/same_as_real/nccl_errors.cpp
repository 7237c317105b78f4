// SPDX-License-Identifier: BSD-3-Clause
// NCCL with one rank: what each mistake does to the call, the communicator and the thread.
#include <string>

#include "tests/fake_gpu/same_as_real/ranks.h"

namespace same_as_real { namespace {

// Each case on a communicator and a thread of its own: an error may stay with both.
struct Case {
  Rank& me;
  int blocking;

  void with(const char* key, const std::function<int(Rank&)>& call) const {
    std::thread([&] {
      MUST(me.gpu.api.ctx_push(me.gpu.context));
      Rank one = me;
      nccl::UniqueId id{};
      MUST(one.api.get_unique_id(&id));
      nccl::Config config = config_of(one.api, blocking);
      one.comm = nullptr;
      const int init = one.api.comm_init_rank_config(&one.comm, 1, id, 0, &config);
      if (init != 0 && init != nccl::kInProgress) return me.r.fact(key, "no communicator");
      MUST(one.settle());
      const int code = call(one);
      std::string all = std::to_string(code) + ", state " + std::to_string(one.settle());
      if (code != 0) all += ", \"" + text(one.api.get_last_error(one.comm)) + "\"";
      all += ", stream " + one.finish(3000);
      const cu::Pointer p = one.gpu.bytes(64);
      all += ", next op " + std::to_string(one.api.all_reduce(in(p), out(p), 4, nccl::kFloat32,
                                                              nccl::kSum, one.comm, one.stream));
      all += ", group_end " + std::to_string(one.api.group_end());
      const int destroy = one.api.comm_destroy(one.comm);
      all += ", destroy " + std::to_string(destroy);
      all += ", group_end " + std::to_string(one.api.group_end());
      if (destroy != 0) all += ", abort " + std::to_string(one.api.comm_abort(one.comm));
      me.r.fact(key, all);
    }).join();
  }
};

// What the cases use; NCCL writes the last three later.
void* p;
char* beside;
float host[64];
Rank* all;
nccl::Comm made;
nccl::Window window;
void* handle;
constexpr auto F = nccl::kFloat32;
constexpr auto S = nccl::kSum;

void bad_types(const Case& c) {
  c.with("good", [](Rank& x) { return int(x.api.all_reduce(p, p, 4, F, S, x.comm, x.stream)); });
  c.with("count_0", [](Rank& x) { return int(x.api.all_reduce(p, p, 0, F, S, x.comm, x.stream)); });
  c.with("count_0.null_buffers", [](Rank& x) {
    return int(x.api.all_reduce(nullptr, nullptr, 0, F, S, x.comm, x.stream));
  });
  c.with("dtype_12", [](Rank& x) {
    return int(x.api.all_reduce(p, p, 4, nccl::DataType(12), S, x.comm, x.stream));
  });
  c.with("dtype_minus_1", [](Rank& x) {
    return int(x.api.all_reduce(p, p, 4, nccl::DataType(-1), S, x.comm, x.stream));
  });
  c.with("op_5", [](Rank& x) {
    return int(x.api.all_reduce(p, p, 4, F, nccl::RedOp(5), x.comm, x.stream));
  });
  c.with("op_minus_1", [](Rank& x) {
    return int(x.api.all_reduce(p, p, 4, F, nccl::RedOp(-1), x.comm, x.stream));
  });
}

void bad_roots(const Case& c) {
  c.with("broadcast.root_1",
         [](Rank& x) { return int(x.api.broadcast(p, p, 4, F, 1, x.comm, x.stream)); });
  c.with("broadcast.root_minus_1",
         [](Rank& x) { return int(x.api.broadcast(p, p, 4, F, -1, x.comm, x.stream)); });
  c.with("reduce.root_1",
         [](Rank& x) { return int(x.api.reduce(p, p, 4, F, S, 1, x.comm, x.stream)); });
  c.with("gather.root_1",
         [](Rank& x) { return int(x.api.gather(p, beside, 4, F, 1, x.comm, x.stream)); });
  c.with("send.peer_1", [](Rank& x) { return int(x.api.send(p, 4, F, 1, x.comm, x.stream)); });
  c.with("recv.peer_minus_1",
         [](Rank& x) { return int(x.api.recv(p, 4, F, -1, x.comm, x.stream)); });
  c.with("send.to_itself_alone",
         [](Rank& x) { return int(x.api.send(p, 4, F, 0, x.comm, x.stream)); });
}

void odd_buffers(const Case& c) {
  c.with("unaligned", [](Rank& x) {
    return int(x.api.all_reduce(static_cast<char*>(p) + 1, beside + 1, 4, F, S, x.comm, x.stream));
  });
  c.with("out_of_place",
         [](Rank& x) { return int(x.api.all_reduce(p, beside, 4, F, S, x.comm, x.stream)); });
  c.with("overlapping", [](Rank& x) {
    return int(x.api.all_reduce(p, static_cast<char*>(p) + 8, 4, F, S, x.comm, x.stream));
  });
  c.with("legacy_stream",
         [](Rank& x) { return int(x.api.all_reduce(p, beside, 4, F, S, x.comm, nullptr)); });
  c.with("broadcast.null_send",
         [](Rank& x) { return int(x.api.broadcast(nullptr, p, 4, F, 0, x.comm, x.stream)); });
  c.with("host_memory.in_place",
         [](Rank& x) { return int(x.api.all_reduce(host, host, 4, F, S, x.comm, x.stream)); });
  c.with("host_memory.out_of_place",
         [](Rank& x) { return int(x.api.all_reduce(host, host + 32, 4, F, S, x.comm, x.stream)); });
  c.with("null_buffers.in_place", [](Rank& x) {
    return int(x.api.all_reduce(nullptr, nullptr, 4, F, S, x.comm, x.stream));
  });
  c.with("null_buffers.out_of_place",
         [](Rank& x) { return int(x.api.all_reduce(p, nullptr, 4, F, S, x.comm, x.stream)); });
  c.with("gigantic_count.in_place", [](Rank& x) {
    return int(x.api.all_reduce(p, p, std::size_t{1} << 60, F, S, x.comm, x.stream));
  });
  c.with("gigantic_count.out_of_place", [](Rank& x) {
    return int(x.api.all_reduce(p, beside, std::size_t{1} << 60, F, S, x.comm, x.stream));
  });
}

void operators(const Case& c) {
  for (const int type : {10, 11}) {
    for (const auto& [name, op] :
         std::map<const char*, nccl::RedOp>{{"sum", S}, {"avg", nccl::kAvg}, {"max", nccl::kMax}}) {
      static int of;
      static nccl::RedOp by;
      of = type;
      by = op;
      c.with(("dtype_" + std::to_string(type) + "." + name).c_str(), [](Rank& x) {
        return int(x.api.all_reduce(p, beside, 8, nccl::DataType(of), by, x.comm, x.stream));
      });
    }
  }
  c.with("premul.used_after_destroy", [](Rank& x) {
    nccl::RedOp op{};
    float factor = 3;
    MUST(x.api.red_op_create(&op, &factor, F, nccl::kScalarHostImmediate, x.comm));
    MUST(x.api.red_op_destroy(op, x.comm));
    return int(x.api.all_reduce(p, beside, 4, F, op, x.comm, x.stream));
  });
  c.with("premul.wrong_dtype", [](Rank& x) {
    nccl::RedOp op{};
    float factor = 3;
    MUST(x.api.red_op_create(&op, &factor, nccl::kFloat16, nccl::kScalarHostImmediate, x.comm));
    return int(x.api.all_reduce(p, beside, 4, F, op, x.comm, x.stream));
  });
  c.with("premul.destroyed_twice", [](Rank& x) {
    nccl::RedOp op{};
    float factor = 3;
    MUST(x.api.red_op_create(&op, &factor, F, nccl::kScalarHostImmediate, x.comm));
    MUST(x.api.red_op_destroy(op, x.comm));
    return int(x.api.red_op_destroy(op, x.comm));
  });
  c.with("premul.destroy_sum", [](Rank& x) { return int(x.api.red_op_destroy(S, x.comm)); });
  c.with("premul.dtype_12", [](Rank& x) {
    nccl::RedOp op{};
    float factor = 3;
    return int(
        x.api.red_op_create(&op, &factor, nccl::DataType(12), nccl::kScalarHostImmediate, x.comm));
  });
}

void lifetimes(const Case& c) {
  c.with("finalize", [](Rank& x) { return int(x.api.comm_finalize(x.comm)); });
  c.with("finalize_twice", [](Rank& x) {
    const int first = x.api.comm_finalize(x.comm);
    x.settle();
    return first * 100 + x.api.comm_finalize(x.comm);
  });
  c.with("split.into_null",
         [](Rank& x) { return int(x.api.comm_split(x.comm, 0, 0, nullptr, nullptr)); });
  c.with("split.color_minus_2",
         [](Rank& x) { return int(x.api.comm_split(x.comm, -2, 0, &made, nullptr)); });
  c.with("shrink.0_excluded", [](Rank& x) {
    int nobody[1] = {0};
    return int(x.api.comm_shrink(x.comm, nobody, 0, &made, nullptr, 0));
  });
  c.with("shrink.itself_excluded", [](Rank& x) {
    int itself[1] = {0};
    return int(x.api.comm_shrink(x.comm, itself, 1, &made, nullptr, 0));
  });
  c.with("revoke.flags_1", [](Rank& x) { return int(x.api.comm_revoke(x.comm, 1)); });
  c.with("revoke", [](Rank& x) { return int(x.api.comm_revoke(x.comm, 0)); });
  c.with("revoke_twice", [](Rank& x) {
    const int first = x.api.comm_revoke(x.comm, 0);
    x.settle();
    return first * 100 + x.api.comm_revoke(x.comm, 0);
  });
  c.with("revoke_then_finalize", [](Rank& x) {
    const int first = x.api.comm_revoke(x.comm, 0);
    x.settle();
    return first * 100 + x.api.comm_finalize(x.comm);
  });
  c.with("revoke_then_split", [](Rank& x) {
    const int first = x.api.comm_revoke(x.comm, 0);
    x.settle();
    return first * 100 + x.api.comm_split(x.comm, 0, 0, &made, nullptr);
  });
}

void windows(const Case& c) {
  c.with("window.symmetric", [](Rank& x) {
    void* memory = nullptr;
    MUST(x.api.mem_alloc(&memory, 1 << 20));
    return int(x.api.window_register(x.comm, memory, 1 << 20, &window, 1));
  });
  c.with("window.symmetric.odd", [](Rank& x) {
    void* memory = nullptr;
    MUST(x.api.mem_alloc(&memory, 1 << 20));
    return int(x.api.window_register(x.comm, static_cast<char*>(memory) + 100, 1000, &window, 1));
  });
  c.with("window.symmetric.plain_memory", [](Rank& x) {
    window = reinterpret_cast<nccl::Window>(77);
    const int code = x.api.window_register(x.comm, p, 1 << 20, &window, 1);
    x.settle();
    return code * 10 + (window == nullptr                              ? 1
                        : window == reinterpret_cast<nccl::Window>(77) ? 2
                                                                       : 3);
  });
  c.with("window.flags_8", [](Rank& x) {
    void* memory = nullptr;
    MUST(x.api.mem_alloc(&memory, 1 << 20));
    return int(x.api.window_register(x.comm, memory, 1 << 20, &window, 8));
  });
  c.with("window.0_bytes", [](Rank& x) {
    void* memory = nullptr;
    MUST(x.api.mem_alloc(&memory, 1 << 20));
    return int(x.api.window_register(x.comm, memory, 0, &window, 1));
  });
  c.with("window.host",
         [](Rank& x) { return int(x.api.window_register(x.comm, host, 256, &window, 1)); });
}

void groups(const Case& c) {
  c.with("register.host",
         [](Rank& x) { return int(x.api.comm_register(x.comm, host, 256, &handle)); });
  c.with("deregister.unknown", [](Rank& x) { return int(x.api.comm_deregister(x.comm, host)); });
  c.with("group.wrong_op_inside", [](Rank& x) {
    x.api.group_start();
    const int wrong = x.api.all_reduce(p, p, 4, nccl::DataType(12), S, x.comm, x.stream);
    const int right = x.api.all_reduce(p, beside, 4, F, S, x.comm, x.stream);
    return wrong * 10000 + right * 100 + x.api.group_end();
  });
  c.with("group.two_streams", [](Rank& x) {
    const cu::Stream other = x.gpu.stream();
    x.api.group_start();
    const int one = x.api.all_reduce(p, beside, 4, F, S, x.comm, x.stream);
    const int two = x.api.all_reduce(p, beside, 4, F, S, x.comm, other);
    return one * 10000 + two * 100 + x.api.group_end();
  });
  c.with("group.simulate_end", [](Rank& x) {
    nccl::SimulationInfo info;
    info.version = unsigned(x.api.version);
    x.api.group_start();
    const int op = x.api.all_reduce(p, beside, 4, F, S, x.comm, x.stream);
    const int code = x.api.group_simulate_end(&info);
    all->r.note("group.simulate_end.us", double(info.estimated_time));
    return op * 100 + code;
  });
  c.with("group.simulate_end.null", [](Rank& x) {
    x.api.group_start();
    return int(x.api.group_simulate_end(nullptr));
  });
  c.with("group.abort_inside", [](Rank& x) {
    nccl::UniqueId id{};
    nccl::Comm second = nullptr;
    nccl::Config config = config_of(x.api, 0);
    MUST(x.api.get_unique_id(&id));
    x.api.comm_init_rank_config(&second, 1, id, 0, &config);
    x.settle(second);
    x.api.group_start();
    const int code = x.api.comm_abort(second);
    return code * 100 + x.api.group_end();
  });
  c.with("group.blocking_and_nonblocking", [](Rank& x) {
    nccl::UniqueId id{};
    nccl::Comm second = nullptr;
    nccl::Config config = config_of(x.api, 1);
    MUST(x.api.get_unique_id(&id));
    MUST(x.api.comm_init_rank_config(&second, 1, id, 0, &config));
    x.api.group_start();
    const int one = x.api.all_reduce(p, beside, 4, F, S, x.comm, x.stream);
    const int two = x.api.all_reduce(p, beside, 4, F, S, second, x.stream);
    return one * 10000 + two * 100 + x.api.group_end();
  });
}

void read_mistakes(Rank& me, int blocking) {
  all = &me;
  p = out(me.gpu.bytes(1 << 20));
  beside = static_cast<char*>(p) + 4096;
  const Case c{me, blocking};
  bad_types(c);
  bad_roots(c);
  odd_buffers(c);
  operators(c);
  lifetimes(c);
  windows(c);
  groups(c);
}
ONE_RANK(arguments, "nccl.errors.nonblocking", 120) { read_mistakes(me, 0); }
ONE_RANK(arguments_blocking, "nccl.errors.blocking", 120) { read_mistakes(me, 1); }

// With the check of pointers that NCCL has.
BEHAVIOUR(check_pointers, "nccl.check_pointers", nccl, 60) {
  run_ranks(
      r, 1,
      [](Rank& me) {
        static void *pinned, *device;
        MUST(me.gpu.api.mem_host_alloc(&pinned, 4096, 0));
        device = out(me.gpu.bytes(4096));
        const Case c{me, 0};
        const auto with = [&](const char* key, void* memory) {
          static void* at;
          at = memory;
          c.with(key, [](Rank& x) {
            return int(x.api.all_reduce(at, at, 4, nccl::kFloat32, nccl::kSum, x.comm, x.stream));
          });
        };
        with("host_memory", host);
        with("null", nullptr);
        with("pinned", pinned);
        with("device", device);
      },
      true, {{"NCCL_CHECK_POINTERS", "1"}});
}

}}  // namespace same_as_real
