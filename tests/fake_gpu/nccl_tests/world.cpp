// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fake_gpu/nccl_tests/world.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace {

using std::chrono::steady_clock;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void run_rank(const World& world, Shared* shared, int rank, const std::function<void(Me&)>& body) {
  Me me;
  me.rank = rank;
  me.size = world.size;
  me.shared = shared;
  me.gpu = cu::open_api(FAKE_CUDA);
  me.api = nccl::open_api(FAKE_NCCL_FOLDER "/libfake_nccl_" + world.version + ".so");
  ASSERT_TRUE(me.gpu) << me.gpu.why;
  ASSERT_TRUE(me.api) << me.api.why;
  ASSERT_EQ(me.gpu.init(0), 0);
  ASSERT_EQ(me.gpu.primary_retain(&me.context, rank), 0);
  ASSERT_EQ(me.gpu.ctx_push(me.context), 0);
  ASSERT_EQ(me.gpu.stream_create(&me.stream, cu::kStreamNonBlocking, 0), 0);
  body(me);
  if (!world.gives_back) return;
  EXPECT_EQ(me.gpu.stream_destroy(me.stream), 0);
  for (const cu::Pointer at : me.memory) EXPECT_EQ(me.gpu.mem_free(at), 0);
  EXPECT_EQ(me.gpu.ctx_pop(&me.context), 0);
  EXPECT_EQ(me.gpu.primary_release(rank), 0);
}

[[noreturn]] void run_child(const World& world, const std::string& folder, Shared* shared, int rank,
                            const std::function<void(Me&)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(100);
  setenv("FAKE_GPU", world.script.c_str(), 1);
  setenv("FAKE_GPU_REPORTS", folder.c_str(), 1);
  for (const auto& [name, value] : world.environment) setenv(name.c_str(), value.c_str(), 1);
  const std::string errors = folder + "/errors" + std::to_string(getpid());
  if (!std::freopen(errors.c_str(), "w", stderr)) _exit(70);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  shared->pid[rank] = getpid();
  if (world.as == As::processes) {
    run_rank(world, shared, rank, body);
  } else {
    std::vector<std::thread> threads;
    for (int i = 0; i < world.size; ++i) {
      threads.emplace_back([&, i] { run_rank(world, shared, i, body); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::fflush(nullptr);
  std::exit(::testing::Test::HasFailure() ? 1 : 0);
}

}  // namespace

std::vector<Ended> run(const World& world, const std::function<void(Me&)>& body) {
  std::string folder = ::testing::TempDir() + "fake_nccl_XXXXXX";
  if (!mkdtemp(folder.data())) throw std::runtime_error("no folder for the reports");
  void* page =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* shared = new (page) Shared{};
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < (world.as == As::threads ? 1 : world.size); ++rank) {
    const pid_t child = fork();
    if (child == 0) run_child(world, folder, shared, rank, body);
    children.push_back(child);
  }
  std::vector<Ended> all;
  for (const pid_t child : children) {
    Ended ended;
    waitpid(child, &ended.status, 0);
    ended.report = text_of(folder + "/" + std::to_string(child) + ".json");
    ended.errors = text_of(folder + "/errors" + std::to_string(child));
    all.push_back(std::move(ended));
  }
  munmap(page, sizeof(Shared));
  std::filesystem::remove_all(folder);
  return all;
}

void run_clean(const World& world, const std::function<void(Me&)>& body) {
  for (const Ended& ended : run(world, body)) EXPECT_TRUE(ended.is_clean()) << ended;
}

void run_into(const World& world, const std::string& kind, const std::function<void(Me&)>& body) {
  bool found = false;
  for (const Ended& ended : run(world, body)) {
    EXPECT_EQ(ended.status, 0) << ended;
    EXPECT_TRUE(ended.has_only(kind) || ended.has("\"violations\":[]")) << ended;
    found = found || ended.has_only(kind);
  }
  EXPECT_TRUE(found) << kind;
}

bool Ended::is_clean() const {
  return status == 0 && has("\"end\":\"exit\",\"violations\":[],\"left\":{}");
}

bool Ended::has_only(const std::string& kind) const {
  const auto count = [&](const std::string& text) {
    int found = 0;
    for (std::size_t at = 0; (at = report.find(text, at)) != std::string::npos; ++at) ++found;
    return found;
  };
  const int kinds = count("\"kind\":");
  return kinds > 0 && kinds == count("\"kind\":\"" + kind + "\"");
}

std::ostream& operator<<(std::ostream& to, const Ended& ended) {
  return to << "status " << ended.status << ", " << ended.report << ended.errors;
}

bool soon(const std::function<bool()>& answer, int ms) {
  const auto start = steady_clock::now();
  while (!answer()) {
    if (ms_since(start) > ms) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

nccl::Config Me::config(int blocking) const {
  nccl::Config made;
  made.size = api.version < 22800 ? nccl::kConfigBytes218 : nccl::kConfigBytes228;
  made.version = static_cast<unsigned>(api.version);
  made.blocking = blocking;
  return made;
}

int Me::make(int blocking, int id, int count, int as, int ms) {
  if (count < 0) count = size;
  if (as < 0) as = rank;
  if (as == 0) {
    EXPECT_EQ(api.get_unique_id(&shared->id[id]), 0);
    shared->has_id[id] = 1;
  } else if (!soon([&] { return shared->has_id[id] != 0; })) {
    return -1;
  }
  nccl::Config made = config(blocking);
  const int code = api.comm_init_rank_config(&comm, count, shared->id[id], as, &made);
  if (code != nccl::kSuccess && code != nccl::kInProgress) return code;
  return settle(comm, ms);
}

int Me::settle(nccl::Comm of, int ms) {
  nccl::Result state = nccl::kInProgress;
  soon(
      [&] {
        EXPECT_EQ(api.comm_get_async_error(of, &state), 0);
        return state != nccl::kInProgress;
      },
      ms);
  return state;
}

int Me::stream_end(int ms) {
  int code = cu::kNotReady;
  soon(
      [&] {
        code = gpu.stream_query(stream);
        return code != cu::kNotReady;
      },
      ms);
  return code;
}

void Me::meet() {
  std::atomic<int>& count = shared->arrived[phase++];
  ++count;
  EXPECT_TRUE(soon([&] { return count >= size; }, 60'000));
}

cu::Pointer Me::bytes(std::size_t count) {
  cu::Pointer at = 0;
  EXPECT_EQ(gpu.mem_alloc(&at, count), 0);
  memory.push_back(at);
  return at;
}

int Me::sum(nccl::Comm of, cu::Pointer at, cu::Stream on) const {
  return api.all_reduce(in(at), out(at), 1, nccl::kFloat32, nccl::kSum, of, on ? on : stream);
}
