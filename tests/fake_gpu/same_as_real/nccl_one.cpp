// SPDX-License-Identifier: BSD-3-Clause
// NCCL with one rank: codes, states, groups, memory.
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tests/fake_gpu/same_as_real/ranks.h"

namespace same_as_real { namespace {

// Needs no GPU.
BEHAVIOUR(texts, "nccl.texts", nccl, 20) {
  const nccl::Api api = open_nccl();
  r.fact("version", api.version);
  for (int code = -1; code <= 9; ++code) {
    r.fact("text." + std::to_string(code), text(api.get_error_string(nccl::Result(code))));
  }
  r.fact("last_error.null", text(api.get_last_error(nullptr)));
}

std::size_t entries(const char* folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

BEHAVIOUR(unique_id, "nccl.unique_id", nccl, 20) {
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  const nccl::Api api = open_nccl();
  const std::size_t files = entries("/proc/self/fd"), threads = entries("/proc/self/task");
  nccl::UniqueId id{}, other{};
  r.fact("get", api.get_unique_id(&id));
  r.note("new_descriptors", double(entries("/proc/self/fd") - files));
  r.note("new_threads", double(entries("/proc/self/task") - threads));
  r.fact("get.again", api.get_unique_id(&other));
  r.fact("differs", std::memcmp(&id, &other, sizeof id) != 0);
  r.fact("null", api.get_unique_id(nullptr));
}

std::vector<std::pair<const char*, std::function<int()>>> calls_of(const nccl::Api& a,
                                                                   nccl::Comm& comm, void* memory,
                                                                   nccl::Stream s) {
  static int number;
  static nccl::Result state;
  static nccl::RedOp op;
  static float factor = 2;
  static void* handle;
  static nccl::Window window;
  const auto F = nccl::kFloat32;
  char* at = static_cast<char*>(memory);
  return {
      {"count", [=, &a, &comm] { return a.comm_count(comm, &number); }},
      {"cu_device", [=, &a, &comm] { return a.comm_cu_device(comm, &number); }},
      {"user_rank", [=, &a, &comm] { return a.comm_user_rank(comm, &number); }},
      {"get_async_error", [=, &a, &comm] { return a.comm_get_async_error(comm, &state); }},
      {"all_reduce", [=, &a, &comm] { return a.all_reduce(at, at, 4, F, nccl::kSum, comm, s); }},
      {"reduce", [=, &a, &comm] { return a.reduce(at, at, 4, F, nccl::kSum, 0, comm, s); }},
      {"broadcast", [=, &a, &comm] { return a.broadcast(at, at, 4, F, 0, comm, s); }},
      {"reduce_scatter",
       [=, &a, &comm] { return a.reduce_scatter(at, at, 4, F, nccl::kSum, comm, s); }},
      {"all_gather", [=, &a, &comm] { return a.all_gather(at, at, 4, F, comm, s); }},
      {"all_to_all", [=, &a, &comm] { return a.all_to_all(at, at + 64, 4, F, comm, s); }},
      {"gather", [=, &a, &comm] { return a.gather(at, at + 64, 4, F, 0, comm, s); }},
      {"scatter", [=, &a, &comm] { return a.scatter(at, at + 64, 4, F, 0, comm, s); }},
      {"send_and_recv_to_self",
       [=, &a, &comm] {
         a.group_start();
         const int one = a.send(at, 4, F, 0, comm, s);
         const int two = a.recv(at + 64, 4, F, 0, comm, s);
         return one * 10000 + two * 100 + a.group_end();
       }},
      {"red_op_create",
       [=, &a, &comm] {
         return a.red_op_create(&op, &factor, F, nccl::kScalarHostImmediate, comm);
       }},
      {"red_op_destroy", [=, &a, &comm] { return a.red_op_destroy(op, comm); }},
      {"register", [=, &a, &comm] { return a.comm_register(comm, at, 4096, &handle); }},
      {"deregister", [=, &a, &comm] { return a.comm_deregister(comm, handle); }},
      {"window_register", [=, &a, &comm] { return a.window_register(comm, at, 4096, &window, 0); }},
      {"window_deregister", [=, &a, &comm] { return a.window_deregister(comm, window); }},
  };
}

// Calls that may crash, each in a process of its own.
void in_a_child(const Reading& r, const char* key, const std::function<int()>& call) {
  const std::string end = in_child([&] {
    r.fact(key, call());
    return 0;
  });
  if (end != "0") r.fact(key, end);
}

BEHAVIOUR(null_comm, "nccl.null_comm", nccl, 60) {
  const nccl::Api a = open_nccl();
  static char memory[8192];
  nccl::Comm none = nullptr, made = nullptr;
  for (const auto& [name, call] : calls_of(a, none, memory, nullptr)) in_a_child(r, name, call);
  in_a_child(r, "finalize", [&] { return a.comm_finalize(nullptr); });
  in_a_child(r, "destroy", [&] { return a.comm_destroy(nullptr); });
  in_a_child(r, "abort", [&] { return a.comm_abort(nullptr); });
  in_a_child(r, "split", [&] { return a.comm_split(nullptr, 0, 0, &made, nullptr); });
  in_a_child(r, "shrink", [&] { return a.comm_shrink(nullptr, nullptr, 0, &made, nullptr, 0); });
  in_a_child(r, "revoke", [&] { return a.comm_revoke(nullptr, 0); });
  a.all_reduce(memory, memory, 4, nccl::kFloat32, nccl::kSum, nullptr, nullptr);
  r.fact("last_error", text(a.get_last_error(nullptr)));
}

// A communicator of two ranks of which one never comes: what each call says, and what it does to
// the state.
BEHAVIOUR(in_progress_calls, "nccl.calls_while_in_progress", nccl, 150) {
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  setenv("NCCL_DEBUG", "WARN", 1);
  setenv("NCCL_RAS_ENABLE", "0", 1);
  static nccl::Api api;
  static nccl::Comm comm = nullptr;
  api = open_nccl();
  const std::size_t count = calls_of(api, comm, nullptr, nullptr).size();
  for (std::size_t i = 0; i < count; ++i) {
    const char* name = calls_of(api, comm, nullptr, nullptr)[i].first;
    const std::string end = in_child([&] {
      Gpu gpu = open_gpu();
      const cu::Stream stream = gpu.stream();
      void* memory = out(gpu.bytes(8192));
      nccl::UniqueId id{};
      MUST(api.get_unique_id(&id));
      nccl::Config config = config_of(api, 0);
      api.comm_init_rank_config(&comm, 2, id, 0, &config);
      const int code = calls_of(api, comm, memory, stream)[i].second();
      nccl::Result state = nccl::kSuccess;
      api.comm_get_async_error(comm, &state);
      r.fact(name, std::to_string(code) + " state " + std::to_string(state) + " group_end " +
                       std::to_string(api.group_end()));
      return 0;
    });
    if (end != "0") r.fact(name, end);
  }
}

ONE_RANK(in_progress, "nccl.init", 60) {
  MUST(me.api.get_unique_id(&me.world->id[0]));
  nccl::Config config = config_of(me.api, 0);
  const auto start = Clock::now();
  me.r.fact("init", me.api.comm_init_rank_config(&me.comm, 1, me.world->id[0], 0, &config));
  me.r.note("init.us", ms_since(start) * 1000);
  me.r.fact("comm_is_set", me.comm != nullptr);
  nccl::Result state = nccl::kSuccess;
  me.r.fact("get_async_error", me.api.comm_get_async_error(me.comm, &state));
  me.r.fact("state", state);
  int polls = 0;
  me.r.fact("then", me.settle(me.comm, 20'000, &polls));
  me.r.note("polls", double(polls));
  me.r.note("ready.ms", ms_since(start));
  for (int i = 0; i < 3; ++i) {
    const auto again = Clock::now();
    me.world->word[1] = 0;
    me.r.fact("again." + std::to_string(i), me.make(1));
    me.r.note("again." + std::to_string(i) + ".ms", ms_since(again));
  }
  me.r.fact("stream", me.finish());
}

BEHAVIOUR(missing_rank, "nccl.a_rank_never_comes", nccl, 100) {
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  setenv("NCCL_DEBUG", "WARN", 1);
  const auto with = [&](const char* key, int (*call)(const nccl::Api&, nccl::Comm)) {
    const std::string end = in_child(
        [&] {
          Gpu gpu = open_gpu();
          const nccl::Api api = open_nccl();
          nccl::UniqueId id{};
          nccl::Comm comm = nullptr;
          MUST(api.get_unique_id(&id));
          nccl::Config config = config_of(api, 0);
          r.fact(std::string(key) + ".init", api.comm_init_rank_config(&comm, 2, id, 0, &config));
          sleep_ms(400);
          nccl::Result state = nccl::kSuccess;
          api.comm_get_async_error(comm, &state);
          r.fact(std::string(key) + ".state_before", state);
          const auto start = Clock::now();
          r.fact(key, call(api, comm));
          r.note(std::string(key) + ".ms", ms_since(start));
          return 0;
        },
        8'000);
    if (end != "0") r.fact(key, end);
  };
  with("abort", [](const nccl::Api& a, nccl::Comm c) { return int(a.comm_abort(c)); });
  with("destroy", [](const nccl::Api& a, nccl::Comm c) { return int(a.comm_destroy(c)); });
  with("finalize", [](const nccl::Api& a, nccl::Comm c) { return int(a.comm_finalize(c)); });
  with("count", [](const nccl::Api& a, nccl::Comm c) {
    int count = 0;
    return int(a.comm_count(c, &count));
  });
  with("user_rank", [](const nccl::Api& a, nccl::Comm c) {
    int count = 0;
    return int(a.comm_user_rank(c, &count));
  });
  with("all_reduce", [](const nccl::Api& a, nccl::Comm c) {
    return int(a.all_reduce(nullptr, nullptr, 0, nccl::kFloat32, nccl::kSum, c, nullptr));
  });
  with("split", [](const nccl::Api& a, nccl::Comm c) {
    nccl::Comm made = nullptr;
    return int(a.comm_split(c, 0, 0, &made, nullptr));
  });
  with("revoke", [](const nccl::Api& a, nccl::Comm c) { return int(a.comm_revoke(c, 0)); });
  with("exit", [](const nccl::Api&, nccl::Comm) {
    std::exit(0);
    return 0;
  });
}

ONE_RANK(init_arguments, "nccl.init_arguments", 90) {
  nccl::UniqueId id{};
  MUST(me.api.get_unique_id(&id));
  nccl::Comm comm = nullptr;
  const auto end = [&](int code) {
    if (code == 0 || code == nccl::kInProgress) {
      if (comm) {
        me.settle(comm);
        me.api.comm_abort(comm);
      }
      MUST(me.api.get_unique_id(&id));
    }
    comm = nullptr;
    return code;
  };
  const auto init = [&](const char* key, int ranks, int rank, nccl::Config config) {
    const int code = me.api.comm_init_rank_config(&comm, ranks, id, rank, &config);
    std::string text = std::to_string(code);
    if (comm && code == nccl::kInProgress) text += " then " + std::to_string(me.settle(comm));
    me.r.fact(key, text);
    end(code);
  };
  const nccl::Config good = config_of(me.api, 0), blocking = config_of(me.api, 1);
  init("0_ranks", 0, 0, good);
  init("minus_1_ranks", -1, 0, good);
  init("rank_1_of_1", 1, 1, good);
  init("rank_minus_1", 1, -1, good);
  init("0_ranks.blocking", 0, 0, blocking);
  init("rank_1_of_1.blocking", 1, 1, blocking);
  me.r.fact("null_comm", me.api.comm_init_rank_config(nullptr, 1, id, 0, nullptr));
  me.r.fact("null_config", end(me.api.comm_init_rank_config(&comm, 1, id, 0, nullptr)));
  nccl::Config config = good;
  config.magic = 1;
  init("wrong_magic", 1, 0, config);
  config = good;
  config.size = 8;
  init("size_8", 1, 0, config);
  config.size = 4096;
  init("size_4096", 1, 0, config);
  config = good;
  config.size = nccl::kConfigBytes218;
  config.version = 21803;
  init("as_2.18.3", 1, 0, config);
  config = good;
  config.version = 23203;
  init("version_of_2.32.3", 1, 0, config);
  config = good;
  config.blocking = 2;
  init("blocking_2", 1, 0, config);
  config = good;
  config.cga_cluster_size = 99;
  init("cga_99", 1, 0, config);
  config = good;
  config.min_ctas = 8;
  config.max_ctas = 4;
  init("min_over_max_ctas", 1, 0, config);
  config = good;
  config.max_ctas = 0;
  init("max_ctas_0", 1, 0, config);
  config = good;
  config.cta_policy = 77;
  init("cta_policy_77", 1, 0, config);
  config = good;
  config.net_name = "nobody";
  init("net_name_nobody", 1, 0, config);
}

// An id that NCCL did not make.
ONE_RANK(zero_id, "nccl.init_with_zero_id", 60) {
  nccl::Comm comm = nullptr;
  nccl::Config config = config_of(me.api, 0);
  nccl::UniqueId zero{};
  const int code = me.api.comm_init_rank_config(&comm, 1, zero, 0, &config);
  me.r.fact("zero_id",
            std::to_string(code) +
                (comm && code == 7 ? " then " + std::to_string(me.settle(comm, 5000)) : ""));
  me.r.fact("zero_id.last_error", text(me.api.get_last_error(nullptr)));
}

// The thread has no context: NCCL takes the runtime's, of device 0.
ONE_RANK(no_context, "nccl.on_a_thread_without_context", 60) {
  std::thread([&] {
    me.r.fact("init", me.make());
    int device = -1;
    me.api.comm_cu_device(me.comm, &device);
    me.r.fact("device", device);
    cu::Context current = nullptr;
    me.gpu.api.ctx_get_current(&current);
    me.r.fact("context_of_the_thread_after_init", current == nullptr          ? "null"
                                                  : current == me.gpu.context ? "primary"
                                                                              : "other");
  }).join();
  const cu::Pointer memory = me.gpu.bytes(4096);
  std::thread([&] {
    me.r.fact("all_reduce", me.api.all_reduce(in(memory), out(memory), 4, nccl::kFloat32,
                                              nccl::kSum, me.comm, me.stream));
    cu::Context current = nullptr;
    me.gpu.api.ctx_get_current(&current);
    me.r.fact("context_of_the_thread_after_op", current == nullptr          ? "null"
                                                : current == me.gpu.context ? "primary"
                                                                            : "other");
  }).join();
  me.r.fact("stream", me.finish());
}

ONE_RANK(values, "nccl.values", 60) {
  me.r.fact("init", me.make());
  auto& a = me.api;
  const std::vector<float> values = {1.5f, -0.0f, 0.0f, -2.25f, 1e30f, 3, 7, 0.1f};
  const cu::Pointer from = me.put(values), to = me.put(std::vector<float>(8, 99));
  for (const auto& [name, op] : std::map<const char*, nccl::RedOp>{{"sum", nccl::kSum},
                                                                   {"prod", nccl::kProd},
                                                                   {"max", nccl::kMax},
                                                                   {"min", nccl::kMin},
                                                                   {"avg", nccl::kAvg}}) {
    a.all_reduce(in(from), out(to), 8, nccl::kFloat32, op, me.comm, me.stream);
    me.settle();
    me.finish();
    const auto got = me.get<float>(to, 8);
    me.r.fact(name, text_of({got.begin(), got.end()}));
  }
  nccl::RedOp op{};
  float factor = 3;
  me.r.fact("premul.create",
            a.red_op_create(&op, &factor, nccl::kFloat32, nccl::kScalarHostImmediate, me.comm));
  me.r.note("premul.number", double(op));
  me.r.fact("premul.number_is_above_4", op > 4);
  me.r.fact("premul.all_reduce",
            a.all_reduce(in(from), out(to), 8, nccl::kFloat32, op, me.comm, me.stream));
  me.r.fact("premul.destroy_at_once", a.red_op_destroy(op, me.comm));
  me.finish();
  const auto got = me.get<float>(to, 8);
  me.r.fact("premul", text_of({got.begin(), got.end()}));
  const cu::Pointer scalar = me.put(std::vector<float>{5});
  me.r.fact("premul.device_scalar",
            a.red_op_create(&op, out(scalar), nccl::kFloat32, nccl::kScalarDevice, me.comm));
  a.all_reduce(in(from), out(to), 8, nccl::kFloat32, op, me.comm, me.stream);
  me.finish();
  me.r.fact("premul.device_scalar.first", text_of({me.get<float>(to, 1)[0]}));
  for (int type = 0; type < 10; ++type) {
    const int code =
        a.all_reduce(in(from), out(to), 8, nccl::DataType(type), nccl::kAvg, me.comm, me.stream);
    me.r.fact("avg.dtype_" + std::to_string(type), std::to_string(code) + " stream " + me.finish());
  }
}

void scenario(const Reading& r, const char* key, void (*body)(Rank&, const std::string&)) {
  static World world;
  const std::string end = in_child([&] {
    Rank me{r, 0, 1, &world, open_gpu(), open_nccl()};
    me.stream = me.gpu.stream();
    MUST(me.make());
    body(me, key);
    return 0;
  });
  r.fact(std::string(key) + ".process", end);
}
int reduce_something(Rank& me) {
  const cu::Pointer p = me.gpu.bytes(4096);
  return me.api.all_reduce(in(p), out(p + 2048), 4, nccl::kFloat32, nccl::kSum, me.comm, me.stream);
}

void ends_behind_a_gate(const Reading& r) {
  scenario(r, "finalize_behind_a_gate", [](Rank& me, const std::string& key) {
    Gate gate;
    gate.close(me.gpu, me.stream);
    me.r.fact(key + ".op", reduce_something(me));
    me.r.fact(key, me.api.comm_finalize(me.comm));
    sleep_ms(300);
    nccl::Result state = nccl::kSuccess;
    me.api.comm_get_async_error(me.comm, &state);
    me.r.fact(key + ".state", state);
    gate.open();
    me.r.fact(key + ".then", me.settle());
    me.r.fact(key + ".destroy", me.api.comm_destroy(me.comm));
  });
  scenario(r, "destroy_behind_a_gate", [](Rank& me, const std::string& key) {
    Gate gate;
    gate.close(me.gpu, me.stream);
    me.r.fact(key + ".op", reduce_something(me));
    me.r.fact(key,
              blocks_until(
                  me.gpu, [&] { return me.api.comm_destroy(me.comm); }, [&] { gate.open(); }, 700));
    me.r.fact(key + ".stream", me.stream_end());
  });
  scenario(r, "abort_behind_a_gate", [](Rank& me, const std::string& key) {
    Gate gate;
    gate.close(me.gpu, me.stream);
    me.r.fact(key + ".op", reduce_something(me));
    me.r.fact(key,
              blocks_until(
                  me.gpu, [&] { return me.api.comm_abort(me.comm); }, [&] { gate.open(); }, 700));
    me.r.fact(key + ".stream", me.stream_end());
  });
  scenario(r, "exit_without_destroy", [](Rank& me, const std::string& key) {
    me.r.fact(key + ".op", reduce_something(me));
    std::exit(0);
  });
  scenario(r, "init_behind_a_gate", [](Rank& me, const std::string& key) {
    Gate gate;
    gate.close(me.gpu, me.stream);
    me.world->word[0] = 0;
    me.r.fact(key, me.make(0, -1, -1, 3000));
    gate.open();
    me.r.fact(key + ".then", me.settle());
  });
}

BEHAVIOUR(ends, "nccl.finalize_and_destroy", nccl, 90) {
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  setenv("NCCL_DEBUG", "WARN", 1);
  setenv("NCCL_RAS_ENABLE", "0", 1);
  scenario(r, "finalize_then_destroy", [](Rank& me, const std::string& key) {
    me.r.fact(key + ".op", reduce_something(me));
    const auto start = Clock::now();
    nccl::Result state = nccl::kSuccess;
    me.r.fact(key + ".finalize", me.api.comm_finalize(me.comm));
    me.api.comm_get_async_error(me.comm, &state);
    me.r.fact(key + ".state_at_once", state);
    int polls = 0;
    me.r.fact(key + ".then", me.settle(me.comm, 10'000, &polls));
    me.r.note(key + ".ms", ms_since(start));
    me.r.note(key + ".polls", double(polls));
    const auto destroy = Clock::now();
    me.r.fact(key + ".destroy", me.api.comm_destroy(me.comm));
    me.r.note(key + ".destroy.ms", ms_since(destroy));
    me.r.fact(key + ".stream", me.stream_end());
  });
  scenario(r, "op_after_finalize", [](Rank& me, const std::string& key) {
    me.api.comm_finalize(me.comm);
    me.settle();
    me.r.fact(key, reduce_something(me));
    me.r.fact(key + ".state", me.settle());
    me.r.fact(key + ".stream", me.finish());
    me.r.fact(key + ".destroy", me.api.comm_destroy(me.comm));
  });
  scenario(r, "destroy_while_finalizing", [](Rank& me, const std::string& key) {
    me.api.comm_finalize(me.comm);
    const auto start = Clock::now();
    me.r.fact(key, me.api.comm_destroy(me.comm));
    me.r.note(key + ".ms", ms_since(start));
  });
  scenario(r, "destroy_alone", [](Rank& me, const std::string& key) {
    const auto start = Clock::now();
    me.r.fact(key, me.api.comm_destroy(me.comm));
    me.r.note(key + ".ms", ms_since(start));
    me.world->word[0] = 0;
    me.r.fact(key + ".next_init", me.make());
  });
  scenario(r, "abort_alone", [](Rank& me, const std::string& key) {
    const auto start = Clock::now();
    me.r.fact(key, me.api.comm_abort(me.comm));
    me.r.note(key + ".ms", ms_since(start));
    me.world->word[0] = 0;
    me.r.fact(key + ".next_init", me.make());
  });
  scenario(r, "abort_after_finalize", [](Rank& me, const std::string& key) {
    me.api.comm_finalize(me.comm);
    me.settle();
    me.r.fact(key, me.api.comm_abort(me.comm));
  });
  ends_behind_a_gate(r);
}

// After its end a communicator is no more: NCCL may crash.
BEHAVIOUR(dead_comm, "nccl.dead_comm", nccl, 120) {
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  setenv("NCCL_DEBUG", "WARN", 1);
  const auto with = [&](const char* key, int (*call)(Rank&)) {
    static World world;
    const std::string end = in_child([&] {
      Rank me{r, 0, 1, &world, open_gpu(), open_nccl()};
      me.stream = me.gpu.stream();
      MUST(me.make());
      MUST(me.api.comm_destroy(me.comm));
      r.note(key, std::to_string(call(me)));
      return 0;
    });
    if (end != "0") r.note(key, end);
  };
  with("destroy_twice", [](Rank& me) { return int(me.api.comm_destroy(me.comm)); });
  with("abort_after_destroy", [](Rank& me) { return int(me.api.comm_abort(me.comm)); });
  with("finalize_after_destroy", [](Rank& me) { return int(me.api.comm_finalize(me.comm)); });
  with("async_error_after_destroy", [](Rank& me) {
    nccl::Result state = nccl::kSuccess;
    return int(me.api.comm_get_async_error(me.comm, &state)) * 100 + state;
  });
  with("op_after_destroy", [](Rank& me) {
    const cu::Pointer p = me.gpu.bytes(64);
    return int(me.api.all_reduce(in(p), out(p), 4, nccl::kFloat32, nccl::kSum, me.comm, me.stream));
  });
  with("count_after_destroy", [](Rank& me) {
    int count = 0;
    return int(me.api.comm_count(me.comm, &count));
  });
}

ONE_RANK(groups, "nccl.groups", 60) {
  me.r.fact("init", me.make());
  auto& a = me.api;
  const std::vector<float> values = {1, 2, 3, 4};
  const cu::Pointer from = me.put(values), to = me.put(std::vector<float>(4, 99));
  const auto op = [&] {
    return int(a.all_reduce(in(from), out(to), 4, nccl::kFloat32, nccl::kSum, me.comm, me.stream));
  };
  me.r.fact("end_without_start", a.group_end());
  me.r.fact("start", a.group_start());
  me.r.fact("op_inside", op());
  sleep_ms(50);
  me.r.fact("nothing_before_the_end", me.get<float>(to, 1)[0] == 99);
  me.r.fact("async_error_inside", me.settle());
  me.r.fact("end", a.group_end());
  me.r.fact("end.state", me.settle());
  me.r.fact("end.stream", me.finish());
  me.r.fact("end.value", me.get<float>(to, 1)[0] == 1);
  me.r.fact("nested.start", a.group_start());
  me.r.fact("nested.start.2", a.group_start());
  me.r.fact("nested.op", op());
  me.r.fact("nested.end", a.group_end());
  me.r.fact("nested.end.2", a.group_end());
  me.r.fact("nested.end.3", a.group_end());
  me.r.fact("empty.start", a.group_start());
  me.r.fact("empty.end", a.group_end());
  // Communicators made in a group.
  nccl::UniqueId id{};
  MUST(a.get_unique_id(&id));
  nccl::Comm second = nullptr;
  nccl::Config config = config_of(a, 0);
  a.group_start();
  me.r.fact("init_inside", a.comm_init_rank_config(&second, 1, id, 0, &config));
  me.r.fact("init_inside.comm_is_set", second != nullptr);
  me.r.fact("init_inside.end", a.group_end());
  me.r.fact("init_inside.comm_is_set_then", second != nullptr);
  if (second) me.r.fact("init_inside.then", me.settle(second));
  a.group_start();
  me.r.fact("abort_inside", a.comm_abort(me.comm));
  if (second) me.r.fact("abort_inside.2", a.comm_abort(second));
  me.r.fact("abort_inside.end", a.group_end());
  // A group that is never ended.
  std::thread([&] {
    me.r.fact("other_thread.end_without_start", a.group_end());
    a.group_start();
  }).join();
}

ONE_RANK(capture, "nccl.capture", 60) {
  me.r.fact("init", me.make());
  auto& a = me.api;
  const std::vector<float> values = {1, 2, 3, 4};
  const cu::Pointer from = me.put(values), to = me.put(std::vector<float>(4, 99));
  nccl::RedOp op{};
  float factor = 2;
  MUST(a.red_op_create(&op, &factor, nccl::kFloat32, nccl::kScalarHostImmediate, me.comm));
  for (const auto& [name, mode] :
       std::map<std::string, cu::CaptureMode>{{"global", cu::kCaptureGlobal},
                                              {"thread_local", cu::kCaptureThreadLocal},
                                              {"relaxed", cu::kCaptureRelaxed}}) {
    cu::Graph graph = nullptr;
    cu::GraphExec exec = nullptr;
    MUST(me.gpu.more.memcpy_h2d(to, std::vector<float>(4, 99).data(), 16));
    MUST(me.gpu.api.stream_begin_capture(me.stream, mode));
    me.r.fact(name + ".premul",
              a.all_reduce(in(from), out(to), 4, nccl::kFloat32, op, me.comm, me.stream));
    me.r.fact(name + ".sum",
              a.all_reduce(in(from), out(from), 4, nccl::kFloat32, nccl::kSum, me.comm, me.stream));
    cu::CaptureStatus status = cu::kCaptureNone;
    me.gpu.api.stream_is_capturing(me.stream, &status);
    me.r.fact(name + ".state", status);
    nccl::Result state = nccl::kSuccess;
    me.r.fact(name + ".async_error", a.comm_get_async_error(me.comm, &state));
    me.r.fact(name + ".end", me.gpu.api.stream_end_capture(me.stream, &graph));
    if (!graph) continue;
    me.r.fact(name + ".instantiate", me.gpu.api.graph_instantiate(&exec, graph, 0));
    for (int i = 0; i < 3; ++i) me.gpu.api.graph_launch(exec, me.stream);
    me.r.fact(name + ".replay", me.finish());
    me.r.fact(name + ".value", text_of({me.get<float>(to, 1)[0]}));
    me.r.fact(name + ".exec_destroy", me.gpu.api.graph_exec_destroy(exec));
    me.r.fact(name + ".graph_destroy", me.gpu.api.graph_destroy(graph));
  }
  // Calls of a communicator inside a capture that is none of its ops.
  cu::Graph graph = nullptr;
  MUST(me.gpu.api.stream_begin_capture(me.stream, cu::kCaptureGlobal));
  void* memory = nullptr;
  me.r.fact("mem_alloc_inside", a.mem_alloc(&memory, 4096));
  cu::CaptureStatus status = cu::kCaptureNone;
  me.gpu.api.stream_is_capturing(me.stream, &status);
  me.r.fact("mem_alloc_inside.state", status);
  me.gpu.api.stream_end_capture(me.stream, &graph);
  // Destroyed while a graph holds it.
  cu::GraphExec exec = nullptr;
  MUST(me.gpu.api.stream_begin_capture(me.stream, cu::kCaptureRelaxed));
  a.all_reduce(in(from), out(to), 4, nccl::kFloat32, op, me.comm, me.stream);
  MUST(me.gpu.api.stream_end_capture(me.stream, &graph));
  MUST(me.gpu.api.graph_instantiate(&exec, graph, 0));
  me.r.fact("destroy_while_a_graph_holds_it", blocks_until(
                                                  me.gpu, [&] { return a.comm_destroy(me.comm); },
                                                  [&] {
                                                    me.gpu.api.graph_exec_destroy(exec);
                                                    me.gpu.api.graph_destroy(graph);
                                                  },
                                                  1000));
}

ONE_RANK(memory, "nccl.memory", 60) {
  me.r.fact("init", me.make());
  auto& a = me.api;
  void *p = nullptr, *small = nullptr, *handle = nullptr, *second = nullptr;
  me.r.fact("alloc", a.mem_alloc(&p, 1 << 20));
  me.r.fact("alloc.1_byte", a.mem_alloc(&small, 1));
  void* none = reinterpret_cast<void*>(77);
  me.r.fact("alloc.0_bytes", a.mem_alloc(&none, 0));
  me.r.fact("alloc.0_bytes.is_null", none == nullptr);
  me.r.fact("alloc.1_tib", a.mem_alloc(&none, std::size_t{1} << 40));
  me.r.fact("alloc.into_null", a.mem_alloc(nullptr, 64));
  cu::PointerAttribute which[3] = {cu::kPointerMemoryType, cu::kPointerRangeSize,
                                   cu::kPointerRangeStart};
  unsigned type = 0;
  std::size_t size = 0;
  cu::Pointer start = 0;
  void* to[3] = {&type, &size, &start};
  const auto at = reinterpret_cast<cu::Pointer>(small);
  me.r.fact("attributes", me.gpu.api.pointer_get_attributes(3, which, to, at));
  me.r.fact("attributes.type", type);
  me.r.fact("attributes.range_of_1_byte", size);
  me.r.fact("aligned_to_4096", at % 4096 == 0);
  me.r.fact("memset", me.gpu.api.memset_d8_async(at, 1, 1, nullptr));
  cu::IpcMemory ipc;
  me.r.fact("ipc_get_mem_handle", me.gpu.api.ipc_get_mem_handle(&ipc, at));
  me.r.fact("cuMemFree", me.gpu.api.mem_free(at));
  me.r.fact("register", a.comm_register(me.comm, p, 1 << 20, &handle));
  me.r.fact("register.handle_is_null", handle == nullptr);
  me.r.fact("register.again", a.comm_register(me.comm, p, 1 << 20, &second));
  me.r.fact("register.again.same", handle == second);
  me.r.fact("deregister", a.comm_deregister(me.comm, handle));
  me.r.fact("deregister.null", a.comm_deregister(me.comm, nullptr));
  const cu::Pointer plain = me.gpu.bytes(1 << 20);
  me.r.fact("register.plain", a.comm_register(me.comm, out(plain), 1 << 20, &handle));
  me.r.fact("register.plain.handle_is_null", handle == nullptr);
  nccl::Window window = nullptr;
  const auto win = [&](const char* key, void* memory, std::size_t bytes, int flags) {
    window = reinterpret_cast<nccl::Window>(77);
    std::string text = std::to_string(a.window_register(me.comm, memory, bytes, &window, flags));
    text += " state " + std::to_string(me.settle());
    text += window == nullptr                              ? " null"
            : window == reinterpret_cast<nccl::Window>(77) ? " unset"
                                                           : " window";
    if (window != nullptr && window != reinterpret_cast<nccl::Window>(77)) {
      text += " deregister " + std::to_string(a.window_deregister(me.comm, window));
    }
    me.r.fact(key, text);
  };
  win("window.symmetric", p, 1 << 20, 1);
  win("window.default", p, 1 << 20, 0);
  me.r.fact("free.plain", a.mem_free(out(plain)));
  me.r.fact("free", a.mem_free(p));
  me.r.fact("free.null", a.mem_free(nullptr));
  me.r.fact("op_then", a.all_reduce(small, small, 0, nccl::kInt8, nccl::kSum, me.comm, me.stream));
}

ONE_RANK(children, "nccl.split_shrink_revoke", 60) {
  me.r.fact("init", me.make());
  auto& a = me.api;
  const cu::Pointer p = me.gpu.bytes(4096);
  nccl::Comm made = reinterpret_cast<nccl::Comm>(77);
  const auto start = Clock::now();
  me.r.fact("split", a.comm_split(me.comm, 0, 0, &made, nullptr));
  me.r.fact("split.parent", me.settle());
  me.r.note("split.ms", ms_since(start));
  me.r.fact("split.child_is_set", made != nullptr && made != reinterpret_cast<nccl::Comm>(77));
  if (made && made != reinterpret_cast<nccl::Comm>(77)) {
    me.r.fact("split.child", me.settle(made));
    me.r.fact("split.child.op",
              a.all_reduce(in(p), out(p), 4, nccl::kFloat32, nccl::kSum, made, me.stream));
    me.r.fact("split.child.destroy", a.comm_destroy(made));
  }
  made = reinterpret_cast<nccl::Comm>(77);
  me.r.fact("split.no_color", a.comm_split(me.comm, nccl::kNoColor, 0, &made, nullptr));
  me.r.fact("split.no_color.parent", me.settle());
  me.r.fact("split.no_color.child_is_null", made == nullptr);
  me.world->word[2] = 0;
  me.r.fact("init.3", me.make(2));
  const auto revoke = Clock::now();
  me.r.fact("revoke", a.comm_revoke(me.comm, 0));
  me.r.fact("revoke.then", me.settle());
  me.r.note("revoke.ms", ms_since(revoke));
  me.r.fact("revoke.destroy", a.comm_destroy(me.comm));
}

ONE_RANK(two, "nccl.two_communicators", 60) {
  me.r.fact("first", me.make(0));
  const nccl::Comm first = me.comm;
  me.r.fact("second", me.make(1));
  const cu::Pointer p = me.gpu.bytes(4096);
  me.r.fact("op.first",
            me.api.all_reduce(in(p), out(p), 4, nccl::kFloat32, nccl::kSum, first, me.stream));
  me.r.fact("op.second",
            me.api.all_reduce(in(p), out(p), 4, nccl::kFloat32, nccl::kSum, me.comm, me.stream));
  me.r.fact("stream", me.finish());
  // Two ranks of one communicator in one process, on one GPU.
  nccl::UniqueId id{};
  MUST(me.api.get_unique_id(&id));
  nccl::Comm both[2] = {};
  nccl::Config config[2] = {config_of(me.api, 0), config_of(me.api, 0)};
  me.api.group_start();
  me.r.fact("both.init.0", me.api.comm_init_rank_config(&both[0], 2, id, 0, &config[0]));
  me.r.fact("both.init.1", me.api.comm_init_rank_config(&both[1], 2, id, 1, &config[1]));
  me.r.fact("both.end", me.api.group_end());
  me.r.fact("both.then.0", me.settle(both[0]));
  me.r.fact("both.then.1", me.settle(both[1]));
  me.r.note("both.last_error", text(me.api.get_last_error(both[0])));
  me.r.fact("both.abort.0", me.api.comm_abort(both[0]));
  me.r.fact("both.abort.1", me.api.comm_abort(both[1]));
}

}}  // namespace same_as_real
