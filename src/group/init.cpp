// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/init.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "c10d/env.h"
#include "src/base/env_table.h"
#include "src/base/log.h"
#include "src/base/members.h"
#include "src/base/mutex.h"
#include "src/base/timeouts.h"
#include "src/group/bootstrap.h"
#include "src/group/group_state.h"
#include "src/net/network.h"
#include "src/net/token_file.h"
#include "src/net/url.h"
#include "src/recorder/dump.h"

namespace c10d { inline namespace v0 {
namespace {

using std::chrono::steady_clock;

std::string find_token(const InitOptions& options) {
  if (!options.token.empty()) return options.token;
  if (const auto fd = env_integer("C10D_TOKEN_FD", 0, 1 << 20)) {
    const int token_fd = static_cast<int>(*fd);
    std::string token = read_token_fd(token_fd);
    fcntl(token_fd, F_SETFD, FD_CLOEXEC);  // programs that this one starts get no secret
    return token;
  }
  if (const auto path = env("C10D_TOKEN_FILE")) return read_token_file(*path);
  return {};
}

int required(const std::optional<int>& value, const Url& url, const char* name) {
  if (value) return *value;
  if (const auto in_url = url.integer(name)) return *in_url;
  throw InvalidArgument(fmt::format("{}: {} is missing; write {}?rank=0&world_size=2", url.text,
                                    name, url.text.substr(0, url.text.find('?'))));
}

// What this process serves at one address as rank 0 of several worlds is one store. A thread
// that waits for one store does not delay threads that need a store at another address.
std::shared_ptr<Store> serve(const TcpStoreOptions& options) {
  using Key = std::tuple<pid_t, std::string, int, std::string, std::string>;
  struct Served {
    Mutex mutex;
    std::weak_ptr<Store> store C10D_GUARDED_BY(mutex);

    bool is_over() {
      MutexLock lock(mutex);
      return store.expired();
    }
  };
  static Mutex mutex;
  static auto& all = *new std::map<Key, std::shared_ptr<Served>>();
  std::shared_ptr<Served> here;
  {
    MutexLock lock(mutex);
    std::erase_if(all, [](const auto& entry) {
      return entry.second.use_count() == 1 && entry.second->is_over();
    });
    std::shared_ptr<Served>& known =
        all[{getpid(), options.host, options.port, options.job, options.token}];
    if (!known) known = std::make_shared<Served>();
    here = known;
  }
  MutexLock lock(here->mutex);
  std::shared_ptr<Store> store = here->store.lock();
  if (store)
    store->set_timeout(options.timeout);
  else
    here->store = store = make_tcp_store(options);
  return store;
}

std::shared_ptr<Store> meet_by_tcp(const std::string& host, int port, bool server,
                                   const std::string& token, Duration timeout) {
  TcpStoreOptions store;
  store.host = host;
  store.port = static_cast<std::uint16_t>(port);
  store.server = server;
  store.job = env("C10D_JOB_ID").value_or("");
  store.token = token;
  store.timeout = timeout;
  if (server) return serve(store);
  return make_tcp_store(store);
}

// What the ranks that one start of a launcher brought up on this host have in common, and no
// others: a step of Slurm, also where a script stands between it and the rank; else the parent.
std::string common_start(const LaunchInfo& launch) {
  const auto value = [](std::string_view name) { return env(name).value_or("none"); };
  if (launch.launcher == "slurm")
    return fmt::format("slurm-{}.{}-{}", value("SLURM_JOB_ID"), value("SLURM_STEP_ID"),
                       value("SLURM_SRUN_COMM_PORT"));
  constexpr int kStartTime = 22;  // pids are used again
  return fmt::format("{}-{}", getppid(), process_stat(getppid(), kStartTime));
}

// Ranks that a launcher started on one host and that were given no address meet in a file named
// after that start, in a directory of this user's own. Once all are in, each has it open for all
// its worlds, also for those after one that failed, and nobody needs its name: it shall not stay
// behind when the launcher kills the ranks.
class HostRendezvous {
 public:
  HostRendezvous(const LaunchInfo& launch, Duration timeout)
      : folder_(make_folder(common_start(launch))) {
    store_ = make_file_store(folder_ + kStoreFile, launch.size, timeout);
  }
  HostRendezvous(const HostRendezvous&) = delete;
  HostRendezvous& operator=(const HostRendezvous&) = delete;
  // Where not all met: only the last rank to leave, which takes the file away, finds the folder
  // empty. Else a folder of this name is what the next program of the same start meets in.
  ~HostRendezvous() {
    store_.reset();
    if (!names_gone_) rmdir(folder_.c_str());
  }

  const std::shared_ptr<Store>& store() const { return store_; }
  // Once: others may meet under the same later.
  void remove_names() {
    if (names_gone_.exchange(true)) return;
    unlink((folder_ + kStoreFile).c_str());
    rmdir(folder_.c_str());
  }
  // Another rank has removed them.
  void note_names_gone() { names_gone_ = true; }

 private:
  static constexpr const char* kStoreFile = "/store";

  static std::string make_folder(const std::string& name) {
    const std::string folder =
        fmt::format("{}/c10d-{}-{}", env("TMPDIR").value_or("/tmp"), getuid(), name);
    struct stat status {};
    if ((mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) ||
        lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) ||
        status.st_uid != getuid() || (status.st_mode & 077) != 0)
      throw InvalidArgument(
          fmt::format("{}: not a private directory of this user; remove it, or set "
                      "MASTER_ADDR and MASTER_PORT",
                      folder));
    return folder;
  }

  std::string folder_;
  std::shared_ptr<Store> store_;
  std::atomic<bool> names_gone_{false};
};

// This process's own, from its first world to its end. A forked child has another parent to meet
// by, and does not leave in the name of this process.
struct OwnRendezvous {
  Mutex mutex;
  pid_t owner = -1;
  std::shared_ptr<HostRendezvous> rendezvous;

  ~OwnRendezvous() { let_go_after_fork(); }
  void let_go_after_fork() {
    if (owner != getpid() && rendezvous) new std::shared_ptr<HostRendezvous>(std::move(rendezvous));
    owner = getpid();
  }
};

std::shared_ptr<HostRendezvous> meet_on_host(const LaunchInfo& launch, Duration timeout) {
  static OwnRendezvous own;
  MutexLock lock(own.mutex);
  own.let_go_after_fork();
  if (!own.rendezvous) own.rendezvous = std::make_shared<HostRendezvous>(launch, timeout);
  own.rendezvous->store()->set_timeout(timeout);
  return own.rendezvous;
}

bool all_on_one_host(const LaunchInfo& launch) {
  const std::string& by = launch.launcher;
  return (by == "openmpi" || by == "pmi" || by == "slurm") && launch.local_size == launch.size;
}

[[noreturn]] void throw_no_place(int size, const LaunchInfo& launch) {
  constexpr std::string_view kForSlurm =
      ": MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)";
  throw InvalidArgument(fmt::format(
      "env://: {} ranks, but no rendezvous address: start with c10d-run, or set MASTER_ADDR "
      "and MASTER_PORT (the same on all ranks{}), or C10D_STORE=tcp://host:port",
      size, launch.launcher == "slurm" ? kForSlurm : ""));
}

// Before a store is made, so that a rank that cannot belong does not wait for a server or take a
// place. And before memory is taken, which every rank needs for each of the others.
void check_rank(int rank, int size) {
  if (size > kMaxWorldSize)
    throw InvalidArgument(
        fmt::format("a world of {} ranks: there are at most {}; correct the world "
                    "size, or form several groups",
                    size, kMaxWorldSize));
  if (size < 1 || rank < 0 || rank >= size)
    throw InvalidArgument(fmt::format("rank {} of {} ranks makes no sense", rank, size));
}

// Where to meet and as whom.
struct Place {
  std::shared_ptr<Store> store;
  int rank = 0;
  int size = 1;
  bool ends_with_rank_0 = false;            // the store
  std::shared_ptr<HostRendezvous> on_host;  // of all its ranks, or null
};

Place meet_by_env(const InitOptions& options, const std::string& token, Duration timeout) {
  const LaunchInfo launch = detect_launch();
  Place place{.store = nullptr,
              .rank = options.rank.value_or(launch.rank),
              .size = options.size.value_or(launch.size)};
  check_rank(place.rank, place.size);
  if (const auto text = env("C10D_STORE")) {
    const Url url = parse_url(*text);
    if (url.scheme != "tcp" || !url.query.empty())
      throw InvalidArgument(fmt::format("C10D_STORE={}: write tcp://host:port", *text));
    place.store = meet_by_tcp(url.host, url.port, false, token, timeout);
  } else if (place.size == 1) {
    place.store = make_hash_store(timeout);
  } else if (const auto address = env("MASTER_ADDR")) {
    // torchrun's agent then serves a store of its own at MASTER_PORT; ours is at the next port.
    const bool is_taken =
        launch.launcher == "torchrun" && env("TORCHELASTIC_USE_AGENT_STORE") == "True";
    const auto port = env_integer("MASTER_PORT", 1, is_taken ? 65534 : 65535);
    if (!port) throw InvalidArgument("MASTER_ADDR is set but MASTER_PORT is not");
    if (place.rank == 0 && launch.local_size < place.size)
      if (const std::string doubt = doubt_about(*address); !doubt.empty())
        log(LogLevel::warn, "MASTER_ADDR={}: {}; mend /etc/hosts, or give a numeric address",
            *address, doubt);
    place.ends_with_rank_0 = true;
    place.store = meet_by_tcp(*address, static_cast<int>(*port) + (is_taken ? 1 : 0),
                              place.rank == 0, token, timeout);
  } else if (!all_on_one_host(launch)) {
    throw_no_place(place.size, launch);
  } else {
    const auto rendezvous = meet_on_host(launch, timeout);
    place.store = rendezvous->store();
    if (place.size == launch.size) place.on_host = rendezvous;
  }
  return place;
}

Place meet(const InitOptions& options, const std::string& token, Duration timeout) {
  if (options.store) {
    if (!options.rank || !options.size)
      throw InvalidArgument("InitOptions: with a store, rank and size must be given");
    check_rank(*options.rank, *options.size);
    return {.store = options.store, .rank = *options.rank, .size = *options.size};
  }
  if (options.url == "env://") return meet_by_env(options, token, timeout);
  const Url url = parse_url(options.url);
  Place place{.store = nullptr,
              .rank = required(options.rank, url, "rank"),
              .size = required(options.size, url, "world_size")};
  check_rank(place.rank, place.size);
  if (url.scheme == "tcp") {
    place.ends_with_rank_0 = true;
    place.store = meet_by_tcp(url.host, url.port, place.rank == 0, token, timeout);
  } else {
    place.store = make_file_store(url.path, place.size, timeout);
  }
  return place;
}

// What a rank that wants the next world finds may be the server of the world before: rank 0 has yet
// to shut it down, and to start another.
bool was_of_the_world_before(const Place& place) {
  const auto* const store = dynamic_cast<const TcpStore*>(place.store.get());
  return place.ends_with_rank_0 && place.rank != 0 && store != nullptr && store->was_shut_down();
}

struct Meeting {
  Place place;
  Bootstrapped met;
};

// `before`: what another server said, or empty.
Place meet_again(const InitOptions& options, const std::string& token, Duration timeout,
                 const std::string& before) {
  try {
    return meet(options, token, std::max(Duration(1), timeout));
  } catch (const DistTimeoutError& error) {
    if (before.empty()) throw;
    Failure failure = error.failure();
    failure.message += "; there was one before: " + before;
    throw_failure(std::move(failure));
  }
}

Meeting meet_all(const InitOptions& options, const std::string& token, Duration timeout) {
  const Deadline deadline = steady_clock::now() + timeout;
  for (std::string before;;) {  // what the server of the world before said
    Place place = meet_again(options, token, deadline - steady_clock::now(), before);
    if (place.ends_with_rank_0) place.store->set_timeout(timeout);
    try {
      Bootstrapped met = bootstrap({.store = place.store,
                                    .name = options.name,
                                    .backend = options.backend,
                                    .rank = place.rank,
                                    .size = place.size,
                                    .deadline = deadline,
                                    .ends_with_rank_0 = place.ends_with_rank_0});
      return {.place = std::move(place), .met = std::move(met)};
    } catch (const DistStoreError& error) {
      if (!was_of_the_world_before(place) || steady_clock::now() >= deadline) throw;
      if (before.empty())
        log(LogLevel::info,
            "group \"{}\", rank {}: the store was shut down; waiting for the next one",
            options.name, place.rank);
      before = error.failure().message;
    }
  }
}

// Once per process and variable.
void warn_of_environment() {
  static Mutex mutex;
  static auto& warned = *new std::set<std::string>();
  MutexLock lock(mutex);
  for (const UnknownEnv& unknown : unknown_env())
    if (warned.insert(unknown.name).second)
      log(LogLevel::warn, "c10d does not know the environment variable {}{}", unknown.name,
          unknown.nearest.empty() ? "" : "; did you mean " + unknown.nearest + "?");
  const auto look = [](const char* name, const std::string& folder) {
    std::error_code unknown;
    if (!folder.empty() && !std::filesystem::is_directory(folder, unknown) &&
        warned.insert(name).second)
      log(LogLevel::warn, "{}: {} is no folder", name, folder);
  };
  look("C10D_RECORD_DIR", env("C10D_RECORD_DIR").value_or(""));
  std::istringstream folders(env("C10D_BACKEND_PATH").value_or(""));
  for (std::string folder; std::getline(folders, folder, ':');) look("C10D_BACKEND_PATH", folder);
}

}  // namespace

ProcessGroup init_process_group(InitOptions options) {
  warn_of_environment();
  install_dump_signal();
  if (options.backend.empty()) options.backend = env("C10D_BACKEND").value_or("native");
  const auto seconds = env_integer("C10D_TIMEOUT", 1, 1'000'000);
  const Duration timeout = clamp_timeout(options.timeout.value_or(
      seconds ? Duration(std::chrono::seconds(*seconds)) : kDefaultTimeout));
  const Duration connect_timeout = clamp_timeout(options.connect_timeout.value_or(timeout));
  if (timeout <= Duration::zero() || connect_timeout <= Duration::zero())
    throw InvalidArgument("InitOptions: timeouts must be positive");
  if (options.name.empty() || options.name.find('/') != options.name.npos)
    throw InvalidArgument(fmt::format(
        "InitOptions::name is \"{}\": it must not be empty or hold a slash", options.name));
  if (options.device && (*options.device < 0 || *options.device >= kMaxDevices))
    throw InvalidArgument(fmt::format("InitOptions::device is {}: it is not in [0, {})",
                                      *options.device, kMaxDevices));
  const std::string token = find_token(options);
  auto [place, met] = meet_all(options, token, connect_timeout);
  // Before any rank can be through: what the same step starts next meets under the same name.
  if (place.on_host && place.rank == 0) place.on_host->remove_names();
  BackendContext context;
  context.rank = place.rank;
  context.size = place.size;
  context.group = options.name;
  context.members = std::move(met.members);
  context.store = std::move(met.store);
  context.token = token;
  context.timeout = timeout;
  if (options.device) context.device = cuda_device(*options.device);
  std::shared_ptr<detail::GroupState> state;
  try {
    state = make_group(std::move(context), options.backend, connect_timeout, nullptr, {});
  } catch (...) {
    met.release();
    met.part();
    throw;
  }
  if (place.on_host) place.on_host->note_names_gone();
  state->release_claim = std::move(met.release);
  state->abort_on(options.stop);
  ProcessGroup group = detail::GroupState::group_of(std::move(state));
  log(LogLevel::info, "group \"{}\": rank {} of {}, {}", options.name, place.rank, place.size,
      group.description());  // which may throw: the group ends then as any other
  return group;
}

}}  // namespace c10d::v0
