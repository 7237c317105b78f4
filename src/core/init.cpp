// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/init.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <fstream>
#include <vector>

#include "c10d/env.h"
#include "src/core/bootstrap.h"
#include "src/core/group_state.h"
#include "src/core/log.h"
#include "src/core/longest_timeout.h"
#include "src/core/token_file.h"
#include "src/core/url.h"

namespace c10d::inline v0 {
namespace {

using std::chrono::steady_clock;

// Where to meet and as whom, before the store is made.
struct Place {
  std::shared_ptr<Store> store;
  int rank = 0;
  int size = 1;
  bool ends_with_rank_0 = false;  // the store
  std::string folder;             // see meet_by_parent(); else empty
};

// Worlds that this process made with ranks of the same parent.
std::atomic<unsigned> g_worlds_by_parent{0};

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
  throw InvalidArgument(
      fmt::format("{}: {} is missing; write {}?rank=0&world_size=2", url.text, name, url.text));
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
  return make_tcp_store(store);
}

constexpr const char* kStoreFile = "/store";

// Ranks that an MPI launcher started on one host and that were given no address share its process
// as parent: a file named after that process, in a directory of this user's own, is where they
// meet. Another one for each world: a rank may still be leaving the last when others come again.
void meet_by_parent(Place& place, Duration timeout) {
  std::string stat_line;
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", getppid())), stat_line);
  // Field 22, counted after the command's closing bracket, is the start time: pids are used again.
  std::size_t at = stat_line.rfind(')');
  for (int field = 2; field < 22 && at != stat_line.npos; ++field) at = stat_line.find(' ', at + 1);
  const std::string start =
      at == stat_line.npos ? "0" : stat_line.substr(at + 1, stat_line.find(' ', at + 1) - at - 1);
  const std::string folder = fmt::format("{}/c10d-{}-{}-{}-{}", env("TMPDIR").value_or("/tmp"),
                                         getuid(), getppid(), start, g_worlds_by_parent.load());
  struct stat status {};
  if ((mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) ||
      lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) ||
      status.st_uid != getuid() || (status.st_mode & 077) != 0)
    throw InvalidArgument(
        fmt::format("{}: not a private directory of this user; remove it, or set "
                    "MASTER_ADDR and MASTER_PORT",
                    folder));
  auto store = make_file_store(folder + kStoreFile, place.size, timeout);
  Store* const address = store.get();
  // Only the last rank to leave, which takes the file away, finds the folder empty.
  place.store = {address, [store = std::move(store), folder](Store*) mutable {
                   store.reset();
                   rmdir(folder.c_str());
                 }};
  place.folder = folder;
}

// Once all are in, each has the file open and nobody needs its name: it shall not stay behind when
// the launcher kills the ranks.
void remove_names(const std::string& folder) {
  unlink((folder + kStoreFile).c_str());
  rmdir(folder.c_str());
}

Place meet_by_env(const InitOptions& options, const std::string& token, Duration timeout) {
  const LaunchInfo launch = detect_launch();
  Place place{.store = nullptr,
              .rank = options.rank.value_or(launch.rank),
              .size = options.size.value_or(launch.size)};
  if (const auto text = env("C10D_STORE")) {
    const Url url = parse_url(*text);
    if (url.scheme != "tcp" || !url.query.empty())
      throw InvalidArgument(fmt::format("C10D_STORE={}: write tcp://host:port", *text));
    place.store = meet_by_tcp(url.host, url.port, false, token, timeout);
  } else if (place.size == 1) {
    place.store = make_hash_store(timeout);
  } else if (const auto address = env("MASTER_ADDR")) {
    const auto port = env_integer("MASTER_PORT", 1, 65535);
    if (!port) throw InvalidArgument("MASTER_ADDR is set but MASTER_PORT is not");
    place.ends_with_rank_0 = true;
    place.store = meet_by_tcp(*address, static_cast<int>(*port), place.rank == 0, token, timeout);
  } else if ((launch.launcher == "openmpi" || launch.launcher == "pmi") &&
             launch.local_size == launch.size) {
    meet_by_parent(place, timeout);
  } else {
    throw InvalidArgument(fmt::format(
        "env://: {} ranks but no place to meet: start with c10d-run, or set MASTER_ADDR and "
        "MASTER_PORT (the same on all ranks), or C10D_STORE=tcp://host:port",
        place.size));
  }
  return place;
}

Place meet(const InitOptions& options, const std::string& token, Duration timeout) {
  if (options.store) {
    if (!options.rank || !options.size)
      throw InvalidArgument("InitOptions: with a store, rank and size must be given");
    return {.store = options.store, .rank = *options.rank, .size = *options.size};
  }
  if (options.url == "env://") return meet_by_env(options, token, timeout);
  const Url url = parse_url(options.url);
  Place place{.store = nullptr,
              .rank = required(options.rank, url, "rank"),
              .size = required(options.size, url, "world_size")};
  if (url.scheme == "tcp") {
    place.ends_with_rank_0 = true;
    place.store = meet_by_tcp(url.host, url.port, place.rank == 0, token, timeout);
  } else {
    place.store = make_file_store(url.path, place.size, timeout);
  }
  return place;
}

// After a world that did not come together. Ranks read in the store why: who serves it stays until
// they have, and not for long when one is gone.
void part(const Place& place, Store& store) noexcept {
  constexpr std::chrono::seconds kPatience{1}, kServersPatience{5};
  const auto key = [](int rank) { return fmt::format("parted/{}", rank); };
  if (!place.ends_with_rank_0) return;
  try {
    store.set(key(place.rank), "", kPatience);
    std::vector<std::string> keys;
    for (int rank = 0; rank < place.size; ++rank) keys.push_back(key(rank));
    if (place.rank == 0) store.wait(keys, kServersPatience);
  } catch (const std::exception&) {  // of a rank that is gone
  }
}

void warn_of_unknown_variables() {
  for (const UnknownEnv& unknown : unknown_env())
    log(LogLevel::warn, "environment variable {} is not one of ours{}", unknown.name,
        unknown.nearest.empty() ? "" : "; did you mean " + unknown.nearest + "?");
}

}  // namespace

ProcessGroup init_process_group(InitOptions options) {
  warn_of_unknown_variables();
  if (options.backend.empty()) options.backend = env("C10D_BACKEND").value_or("native");
  const auto seconds = env_integer("C10D_TIMEOUT", 1, 1'000'000);
  const Duration timeout = capped(options.timeout.value_or(
      seconds ? Duration(std::chrono::seconds(*seconds)) : kDefaultTimeout));
  const Duration connect_timeout = capped(options.connect_timeout.value_or(timeout));
  if (timeout <= Duration::zero() || connect_timeout <= Duration::zero())
    throw InvalidArgument("InitOptions: timeouts must be positive");
  if (options.name.empty() || options.name.find('/') != options.name.npos)
    throw InvalidArgument("InitOptions::name must be a word without a slash");
  const Deadline deadline = steady_clock::now() + connect_timeout;
  const std::string token = find_token(options);
  Place place = meet(options, token, connect_timeout);
  if (place.size < 1 || place.rank < 0 || place.rank >= place.size)
    throw InvalidArgument(
        fmt::format("rank {} of {} ranks makes no sense", place.rank, place.size));
  Bootstrapped met = bootstrap({.store = place.store,
                                .name = options.name,
                                .backend = options.backend,
                                .rank = place.rank,
                                .size = place.size,
                                .deadline = deadline});
  BackendContext context;
  context.rank = place.rank;
  context.size = place.size;
  context.group = options.name;
  context.members = std::move(met.members);
  context.store = std::move(met.store);
  context.token = token;
  context.timeout = timeout;
  std::shared_ptr<ProcessGroup::State> state;
  const auto store = context.store;
  try {
    state = make_group(std::move(context), options.backend, deadline, nullptr, {});
  } catch (...) {
    part(place, *store);
    met.release();
    throw;
  }
  state->release_claim = std::move(met.release);
  if (!place.folder.empty()) {
    remove_names(place.folder);
    g_worlds_by_parent.fetch_add(1);
  }
  log(LogLevel::info, "group \"{}\": rank {} of {}, {}", options.name, place.rank, place.size,
      state->backend->description());
  return ProcessGroup(std::move(state));
}

}  // namespace c10d::inline v0
