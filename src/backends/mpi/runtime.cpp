// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/mpi/runtime.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <future>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "c10d/env.h"
#include "src/backends/common/failures.h"
#include "src/backends/mpi/network.h"
#include "src/base/host.h"
#include "src/base/log.h"
#include "src/base/members.h"
#include "src/sync/thread.h"

namespace c10d { inline namespace v0 {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kMaxLine = 300;  // of the command line in a message
constexpr std::chrono::milliseconds kApartLook{10};
constexpr std::chrono::microseconds kExitLook{200};
constexpr std::chrono::seconds kTell{10};  // between warnings about a wait at exit
// At exit, for ops that were given up: they may end now that other ranks make progress too.
constexpr std::chrono::seconds kGraceAtExit{1};

Mutex start_mutex;
Mutex turn_mutex;
std::atomic<int> groups = 0;
std::atomic<bool> concurrent = false;
std::atomic<bool> start_failed = false;

bool launched_by_mpi() {
  return env("OMPI_COMM_WORLD_SIZE") || env("PMI_SIZE") || env("PMI_RANK") || env("PMIX_RANK");
}

// "a:2,b:1", as c10d-run -H takes it.
std::string hosts_of(const std::vector<Member>& members) {
  std::vector<std::pair<std::string, int>> hosts;
  for (const Member& member : members) {
    if (hosts.empty() || hosts.back().first != member.host) hosts.emplace_back(member.host, 0);
    ++hosts.back().second;
  }
  std::string list;
  for (const auto& [host, ranks] : hosts)
    list += fmt::format("{}{}:{}", list.empty() ? "" : ",", host, ranks);
  return list;
}

// The command line that would have worked.
std::string line_to_type(const BackendContext& context) {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string program((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  while (!program.empty() && program.back() == '\0') program.pop_back();
  for (char& c : program)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  if (program.empty() || program.size() > kMaxLine) program = "<program>";
  if (!context.all_local())
    return fmt::format("eval \"$(c10d-run -H {} --print mpirun {})\"", hosts_of(context.members),
                       program);
  std::string line = fmt::format("mpirun -n {} ", context.size);
#ifdef OPEN_MPI
  if (geteuid() == 0) line += "--allow-run-as-root ";
  if (context.size > allowed_cpus()) line += "--oversubscribe ";
#endif
  return line + program;
}

[[noreturn]] void throw_unsupported(const BackendContext& context, std::string message) {
  throw_failure(failure_in(context, Code::unsupported, std::move(message), context.rank));
}

// The ranks of MPI, and how long this one waits at exit for a rank that does not run. For ranks
// that run it waits without limit: if it left without them, mpirun would end the job.
struct World {
  std::vector<Member> members;
  Duration timeout{};
  bool on_one_host = false;
};
World& world() {
  static World& of_process = *new World();
  return of_process;
}

// Ops that were given up: each entry says whether MPI is done with one.
struct GivenUp {
  Mutex mutex;
  std::vector<std::function<bool()>> kept C10D_GUARDED_BY(mutex);

  // How many are not done at `end`.
  std::size_t wait_until(Deadline end) {
    MutexLock lock(mutex);
    for (;; std::this_thread::sleep_for(kExitLook)) {
      std::erase_if(kept, [](const std::function<bool()>& is_done) { return is_done(); });
      if (kept.empty() || steady_clock::now() >= end) return kept.size();
    }
  }
};
GivenUp& given_up() {
  static GivenUp& of_process = *new GivenUp();
  return of_process;
}

void warn_of_exit(std::string_view why) {
  log(LogLevel::warn, "exits without MPI_Finalize, so mpirun reports a failure: {}", why);
}

void finalise_at_exit() try {
  int finalised = 0;
  if (MPI_Finalized(&finalised) != MPI_SUCCESS || finalised) return;
  if (groups.load() != 0) return warn_of_exit("a group exists, or one is still being made");
  const World& all = world();
  if (const std::size_t left = given_up().wait_until(steady_clock::now() + kGraceAtExit); left != 0)
    return warn_of_exit(
        fmt::format("MPI is still in {} op{} of groups that broke, and waits there for other ranks",
                    left, left == 1 ? "" : "s"));
  const auto start = steady_clock::now();
  auto next = start + std::min<Duration>(all.timeout, kTell);
  call_apart([] { MPI_Finalize(); },
             [&] {
               const auto now = steady_clock::now();
               if (now < next) return;
               next = now + kTell;
               const std::vector<int> idle = not_running(all.members);
               const std::string text =
                   fmt::format("waits for {:.0f} s in MPI_Finalize for the other ranks; {}",
                               std::chrono::duration<double>(now - start).count(),
                               about_not_running(all.members, idle));
               if (now - start >= all.timeout && !(idle.empty() && all.on_one_host))
                 throw std::runtime_error(text + "; exits without it");
               log(LogLevel::warn, "{}", text);
             });
} catch (const std::exception& error) {
  log(LogLevel::error, "{}", error.what());
}

// Open MPI opens parts of itself as plugins, which look for its symbols in the global scope; a
// module of ours is opened in a scope of its own.
void make_symbols_global() {
#ifdef OPEN_MPI
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&MPI_Init_thread), &info) != 0 && info.dli_fname)
    dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
#endif
}

// Open MPI has its all_reduce of large vectors poll through a tree of two or three ranks, which
// takes a quarter longer than a ring, unless the user has chosen.
void choose_polled_algorithm() {
#ifdef OPEN_MPI
  constexpr int kUnchosen = 0, kRing = 1;
  int index = 0, level = 0, count = 0, chosen = kRing;
  if (MPI_T_init_thread(MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS) return;
  MPI_T_cvar_handle variable;
  if (MPI_T_cvar_get_index("coll_libnbc_iallreduce_algorithm", &index) == MPI_SUCCESS &&
      MPI_T_cvar_handle_alloc(index, nullptr, &variable, &count) == MPI_SUCCESS) {
    if (MPI_T_cvar_read(variable, &chosen) == MPI_SUCCESS && chosen == kUnchosen)
      MPI_T_cvar_write(variable, &kRing);
    MPI_T_cvar_handle_free(&variable);
  }
  MPI_T_finalize();
#endif
}

// MPI_Finalize calls it first, while MPI still works.
int end_groups_of_mpi(MPI_Comm, int, void*, void*) {
  end_groups("mpi");
  return MPI_SUCCESS;
}

// So that a program which finalises MPI itself may do so while it has groups.
void end_groups_in_finalize() {
  int key = MPI_KEYVAL_INVALID;
  check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, end_groups_of_mpi, &key, nullptr));
  check_mpi(MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr));
  check_mpi(MPI_Comm_free_keyval(&key));
}

bool is_initialised() {
  int flag = 0;
  MPI_Initialized(&flag);
  return flag != 0;
}

void initialise() {
  int level = MPI_THREAD_SINGLE;
  make_symbols_global();
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level));
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  std::atexit(finalise_at_exit);
}

}  // namespace

void call_apart(std::function<void()> call, const std::function<void()>& look) {
  std::packaged_task<void()> task(
      [hold = std::make_shared<MpiHold>(), call = std::move(call)]() mutable {
        const auto held = std::move(hold);  // until the call is done, and no longer
        call();
      });
  std::future<void> done = task.get_future();
  start_thread(std::move(task)).detach();
  while (done.wait_for(kApartLook) != std::future_status::ready) look();
  done.get();
}

namespace {

// The thread that failed to start MPI may still be in MPI_Init_thread.
void check_not_failed(const BackendContext& context) {
  if (start_failed && !is_initialised())
    throw_unsupported(context, "MPI failed to start in this process before; it cannot start twice");
}

}  // namespace

void check_startable(const BackendContext& context) {
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (finalised)
    throw_unsupported(context, "MPI was finalised in this process and cannot start again");
  check_not_failed(context);
  if (!is_initialised() && !launched_by_mpi())
    throw_unsupported(context,
                      fmt::format("the mpi backend needs the launcher of its MPI: type `{}`",
                                  line_to_type(context)));
}

void start_mpi(const BackendContext& context, const std::function<void()>& look) {
  MutexLock lock(start_mutex);
  if (!is_initialised()) {
    check_not_failed(context);
    if (!context.all_local()) choose_network_of_mpi();
    world() = {context.members, context.timeout, context.all_local()};
    try {
      call_apart(initialise, look);
    } catch (...) {
      start_failed = true;
      throw;
    }
  }
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (level < MPI_THREAD_SERIALIZED)
    throw_unsupported(context,
                      "the program initialised MPI for one thread only: call MPI_Init_thread with "
                      "MPI_THREAD_MULTIPLE, or let the mpi backend initialise MPI");
  concurrent = level == MPI_THREAD_MULTIPLE;
  static const bool ends_groups = [] {
    const auto turn = mpi_turn();
    end_groups_in_finalize();
    return true;
  }();
  (void)ends_groups;
  choose_polled_algorithm();
}

namespace {

std::pair<int, int> rank_and_size() {
  const auto turn = mpi_turn();
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return {rank, size};
}

}  // namespace

std::optional<int> rank_in_world() {
  if (!is_initialised()) return std::nullopt;
  return rank_and_size().first;
}

bool is_whole_world(const BackendContext& context, const std::vector<int>& ranks) {
  const auto [rank, size] = rank_and_size();
  const bool fits = ranks.empty()
                        ? rank == context.rank && size == context.size
                        : std::set<int>(ranks.begin(), ranks.end()).size() == ranks.size();
  if (fits)
    return ranks.empty() || (size == context.size && std::is_sorted(ranks.begin(), ranks.end()));
  throw_unsupported(
      context,
      fmt::format("group {} has {} ranks and this is rank {}, but MPI started {} and "
                  "this is its rank {}: type `{}`",
                  context.group, context.size, context.rank, size, rank, line_to_type(context)));
}

MpiHold::MpiHold() noexcept { ++groups; }
MpiHold::~MpiHold() { --groups; }

void keep_for_good(std::function<bool()> is_done) {
  MutexLock lock(given_up().mutex);
  given_up().kept.push_back(std::move(is_done));
}

std::unique_lock<Mutex> mpi_turn() {
  return mpi_is_concurrent() ? std::unique_lock<Mutex>() : std::unique_lock(turn_mutex);
}

bool mpi_is_concurrent() noexcept { return concurrent.load(std::memory_order_relaxed); }

void check_mpi(int code) {
  if (code == MPI_SUCCESS) return;
  int error_class = 0, length = 0;
  char text[MPI_MAX_ERROR_STRING] = "";
  MPI_Error_class(code, &error_class);
  MPI_Error_string(code, text, &length);
  throw std::runtime_error(fmt::format("{} (class {})", text, error_class));
}

const char* mpi_version() {
  static const std::string version = [] {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string_view all(text, static_cast<std::size_t>(length));
    std::string line(all.substr(0, all.find_first_of("\n,")));
    for (char& c : line)
      if (c == '\t') c = ' ';
    return line;
  }();
  return version.c_str();
}

int mpi_tag_limit() {
  static const int limit = [] {
    int* value = nullptr;
    int found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found);
    return found ? *value : 32767;
  }();
  return limit;
}

}}  // namespace c10d::v0
