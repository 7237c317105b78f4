// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fake_gpu/same_as_real/ranks.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace same_as_real {

nccl::Api open_nccl() {
  nccl::Api api = nccl::open_api(options().nccl);
  if (!api) {
    std::fprintf(stderr, "%s\n", api.why.c_str());
    std::exit(5);
  }
  return api;
}

nccl::Config config_of(const nccl::Api& api, int blocking) {
  nccl::Config config;
  config.size = nccl::kConfigBytes218;
  if (api.version >= 22800) config.size = nccl::kConfigBytes228;
  config.version = static_cast<unsigned>(api.version);
  config.blocking = blocking;
  return config;
}

std::string text_of(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) {
    char number[40];
    std::snprintf(number, sizeof number, "%.9g", value);
    text += (text.empty() ? "" : " ") + std::string(number);
  }
  return text;
}

std::string text(const char* value) {
  std::string all = value ? value : "null", kept;
  for (std::size_t i = 0; i < all.size();) {
    std::size_t end = i;
    const bool hex = all.compare(i, 2, "0x") == 0;
    if (hex) end += 2;
    while (end < all.size() && (hex ? std::isxdigit(all[end]) : std::isdigit(all[end])) != 0) ++end;
    if (end - i > 5) {
      kept += '#';
      i = end;
    } else {
      kept += all[i++];
    }
  }
  return kept;
}

void Rank::meet(int ms) {
  std::atomic<int>& count = world->arrived[phase++];
  ++count;
  if (!wait_for([&] { return count >= size; }, ms)) {
    r.fact("does_not_meet", phase);
    std::_Exit(6);
  }
}

int Rank::settle(nccl::Comm of, int ms, int* polls) {
  nccl::Result state = nccl::kInProgress;
  int asked = 0;
  wait_for(
      [&] {
        ++asked;
        const nccl::Result code = api.comm_get_async_error(of, &state);
        if (code != 0) state = code;
        return state != nccl::kInProgress;
      },
      ms);
  if (polls) *polls = asked;
  return state;
}

int Rank::make(int id, int count, int as, int ms) {
  if (count < 0) count = size;
  if (as < 0) as = rank;
  if (as == 0) {
    MUST(api.get_unique_id(&world->id[id]));
    world->word[id] = 1;
  } else if (!wait_for([&] { return world->word[id] == 1; }, ms)) {
    std::_Exit(6);
  }
  nccl::Config config = config_of(api, blocking);
  const int code = api.comm_init_rank_config(&comm, count, world->id[id], as, &config);
  if (code != nccl::kSuccess && code != nccl::kInProgress) return code;
  return settle(comm, ms);
}

int Rank::settle_at_once() {
  nccl::Result state = nccl::kInProgress;
  const auto start = Clock::now();
  while (state == nccl::kInProgress && ms_since(start) < 10'000) {
    const nccl::Result code = api.comm_get_async_error(comm, &state);
    if (code != 0) state = code;
  }
  return state;
}

std::string Rank::stream_end(int ms) {
  int code = -1;
  const bool done = wait_for(
      [&] {
        code = gpu.api.stream_query(stream);
        return code != cu::kNotReady;
      },
      ms);
  return done ? std::to_string(code) : "hangs";
}

std::string Rank::finish(int ms) {
  if (comm && settle(comm, ms) == nccl::kInProgress) return "in progress";
  return stream_end(ms);
}

int Rank::abort() {
  const int code = api.comm_abort(comm);
  comm = nullptr;
  return code;
}

void run_ranks(const Reading& r, int size, void (*body)(Rank&), bool hosts,
               const Environment& environment, int blocking) {
  void* page =
      mmap(nullptr, sizeof(World), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  World* world = new (page) World{};
  const std::string job = std::to_string(getpid());
  int rank = 0;
  std::vector<pid_t> children(1, 0);
  for (int i = 1; i < size; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      rank = i;
      break;
    }
    children.push_back(child);
  }
  Environment all = {
      {"NCCL_NET", "Socket"},     {"NCCL_SOCKET_IFNAME", "lo"}, {"NCCL_IB_DISABLE", "1"},
      {"NCCL_MNNVL_ENABLE", "0"}, {"NCCL_NVLS_ENABLE", "0"},    {"NCCL_P2P_DISABLE", "1"},
      {"NCCL_SHM_DISABLE", "1"},  {"NCCL_MAX_CTAS", "2"},       {"NCCL_ALGO", "Ring"},
      {"NCCL_PROTO", "Simple"},   {"NCCL_RAS_ENABLE", "0"},     {"NCCL_DEBUG", "WARN"}};
  if (size == 1) {
    all = {{"NCCL_SOCKET_IFNAME", "lo"}, {"NCCL_RAS_ENABLE", "0"}, {"NCCL_DEBUG", "WARN"}};
  }
  if (hosts && size > 1) all["NCCL_HOSTID"] = job + "-r" + std::to_string(rank);
  for (const auto& [name, value] : environment) {
    if (value.empty()) {
      all.erase(name);
    } else {
      all[name] = value;
    }
  }
  for (const auto& [name, value] : all) {
    setenv(name.c_str(), value.c_str(), name == "NCCL_DEBUG" ? 0 : 1);  // INFO from outside
  }
  world->pids[rank] = getpid();
  Rank me{size == 1 ? r : r.of_rank(rank), rank, size, world, open_gpu(), open_nccl()};
  me.stream = me.gpu.stream();
  me.blocking = blocking;
  body(me);
  std::fflush(nullptr);
  if (rank != 0) _exit(0);
  for (int i = 1; i < size; ++i) {
    int status = 0;
    waitpid(children[std::size_t(i)], &status, 0);
    r.fact("r" + std::to_string(i) + ".end", WIFSIGNALED(status)
                                                 ? "signal " + std::to_string(WTERMSIG(status))
                                                 : "exit " + std::to_string(WEXITSTATUS(status)));
  }
}

}  // namespace same_as_real
