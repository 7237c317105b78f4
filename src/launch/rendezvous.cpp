// SPDX-License-Identifier: BSD-3-Clause
#include "src/launch/rendezvous.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <utility>

#include "src/base/host.h"
#include "src/base/log.h"
#include "src/base/timeouts.h"
#include "src/net/address.h"
#include "src/net/token.h"
#include "src/store/refusals.h"
#include "src/sync/thread.h"

namespace c10d { inline namespace v0 {
namespace {

using std::chrono::steady_clock;

// Between heartbeats; also the longest wait before a thread looks for a failure.
constexpr std::chrono::seconds kBeat{1};
constexpr std::chrono::seconds kUnanswered{2};  // what a call takes that host 0 does not answer
constexpr std::chrono::seconds kOtherHost0{3};  // for another host 0 to answer
constexpr std::chrono::seconds kPatience{1};    // with the store, to tell something
constexpr std::chrono::seconds kJoinPatience{20};
constexpr std::chrono::seconds kLinger{3};  // of host 0's store, for the others to read the end
constexpr std::chrono::seconds kMissingReport{10};
constexpr int kLostExitCode = 1;

// "go" decides the rendezvous, once: kGo, or why there will be none. Then "stop" ends the run.
constexpr std::string_view kGo = "go";
constexpr std::string_view kStop = "stop";
constexpr const char* kLaunchPrefix = "launch";

// Of each launcher, and of each rank.
constexpr std::size_t kMaxStoreClients = 1 << 16;

std::string host_key(int number) { return fmt::format("host/{}", number); }
std::string joined_key(int number) { return fmt::format("joined/{}", number); }
std::string beat_key(int number) { return fmt::format("beat/{}", number); }
std::string ended_key(int number) { return fmt::format("ended/{}", number); }
std::string left_key(const std::string& nonce) { return "left/" + nonce; }

std::string to_text(const Verdict& verdict) {
  return fmt::format("{} {} {}\n{}", verdict.exit_code, verdict.host,
                     static_cast<int>(verdict.code), verdict.text);
}

Verdict verdict_from(const std::string& text) {
  const std::size_t line = text.find('\n');
  Verdict verdict;
  int code = -1;
  if (line == text.npos ||
      std::sscanf(text.c_str(), "%d %d %d", &verdict.exit_code, &verdict.host, &code) != 3 ||
      code < 0 || code > static_cast<int>(Code::timed_out))
    throw_failure({.code = Code::corrupt, .message = "a malformed message of another host"});
  verdict.code = static_cast<Code>(code);
  verdict.text = text.substr(line + 1);
  return verdict;
}

// What a host says of itself, one line.
struct Introduction {
  int ranks = 0;
  std::string nonce;
  std::string name;  // "pid 12 on node1"
};

Introduction introduction_from(const std::string& text) {
  Introduction found;
  char nonce[17] = {};
  int name_at = 0;
  if (std::sscanf(text.c_str(), "%d %16s %n", &found.ranks, nonce, &name_at) != 2 || name_at == 0)
    throw_failure({.code = Code::corrupt, .message = "a malformed greeting of another host"});
  found.nonce = nonce;
  found.name = text.substr(static_cast<std::size_t>(name_at));
  return found;
}

std::vector<std::string> keys_of(int count, std::string (*key)(int)) {
  std::vector<std::string> keys;
  for (int number = 0; number < count; ++number) keys.push_back(key(number));
  return keys;
}

}  // namespace

Rendezvous::Rendezvous(const MultiHostOptions& hosts, int ranks, std::uint16_t master_port)
    : hosts_(hosts),
      ranks_(ranks),
      master_port_(master_port),
      name_(fmt::format("pid {} on {}", getpid(), host_name())),
      nonce_(to_hex(random_bytes(8))),
      deadline_(steady_clock::now() + clamp_timeout(hosts.timeout)),
      news_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!news_)
    throw_failure({.code = Code::out_of_resources, .message = "eventfd: " + error_text(errno)});
  if (hosts.number == 0) connect();
  thread_ = start_thread([this] { run(); });
}

Rendezvous::~Rendezvous() {
  fail(kLostExitCode, "its launcher gave up");
  thread_.join();
  if (serves_) wait_for_others_to_leave();
}

std::shared_ptr<Store> Rendezvous::store() {
  MutexLock lock(mutex_);
  return store_;
}

std::optional<World> Rendezvous::take_world() {
  MutexLock lock(mutex_);
  std::uint64_t count = 0;
  static_cast<void>(!read(news_.get(), &count, sizeof count));
  return std::exchange(world_, std::nullopt);
}

std::optional<Verdict> Rendezvous::take_verdict() {
  MutexLock lock(mutex_);
  return std::exchange(verdict_, std::nullopt);
}

void Rendezvous::fail(int exit_code, std::string_view text) noexcept {
  {
    MutexLock lock(mutex_);
    if (!to_tell_ || to_tell_->exit_code == 0)
      to_tell_ = {.exit_code = exit_code,
                  .host = hosts_.number,
                  .text = fmt::format("host {} ({}): {}", hosts_.number, host_name(), text)};
  }
  tell();
  // After tell(): else the joining thread would leave first, and its last will would give another
  // reason.
  given_up_ = true;
}

void Rendezvous::ended() noexcept {
  {
    MutexLock lock(mutex_);
    to_tell_ = Verdict{.host = hosts_.number};
  }
  tell();
}

// Harmless when it was told before: the thread comes back to what the store did not answer in time.
void Rendezvous::tell() noexcept try {
  std::shared_ptr<Store> store;
  std::optional<Verdict> mine;
  {
    MutexLock lock(mutex_);
    store = store_;
    mine = to_tell_;
  }
  if (!store || !mine || known_) return;
  if (mine->exit_code != 0) {
    const std::string text = to_text(*mine);
    if (store->compare_set(kGo, std::nullopt, text, kPatience) == kGo)
      store->compare_set(kStop, std::nullopt, text, kPatience);
  } else {
    store->set(ended_key(hosts_.number), "", kPatience);
    if (store->check(keys_of(hosts_.count, ended_key), kPatience))
      store->compare_set(kStop, std::nullopt, to_text(Verdict{}), kPatience);
  }
} catch (const std::exception&) {  // the thread finds out what happened to the store
}

void Rendezvous::run() noexcept {
  Verdict verdict{.host = hosts_.number};
  try {
    if (!store()) connect();
    claim();
    if (auto failed = wait_for_all()) {
      verdict = *std::move(failed);
    } else {
      const World world = read_world();
      {
        MutexLock lock(mutex_);
        world_ = world;
      }
      eventfd_write(news_.get(), 1);
      verdict = watch();
    }
  } catch (const DistError& error) {
    verdict = {kLostExitCode, hosts_.number, error.code(), error.failure().message};
  } catch (const std::exception& error) {
    verdict = {kLostExitCode, hosts_.number, Code::backend_error, error.what()};
  }
  known_ = true;
  {
    MutexLock lock(mutex_);
    if (!serves_) store_.reset();  // host 0 waits for it: see will()
    verdict_ = std::move(verdict);
  }
  eventfd_write(news_.get(), 1);
}

void Rendezvous::connect() {
  TcpStoreOptions options;
  options.host = hosts_.address;
  options.port = hosts_.port;
  options.server = hosts_.number == 0;
  options.job = hosts_.job;
  options.token = hosts_.token;
  options.timeout = kBeat;
  options.limits.clients = kMaxStoreClients;
  for (;;) {
    try {
      options.last_will = options.server ? Will() : will();
      auto made = make_prefix_store(kLaunchPrefix, join(options));
      MutexLock lock(mutex_);
      store_ = std::move(made);
      serves_ = options.server;
      return;
    } catch (const DistTimeoutError& error) {
      if (!given_up_ && steady_clock::now() < deadline_) continue;
      throw_failure({.code = Code::timed_out,
                     .message = fmt::format("host 0 of {} does not serve the job's store: {}",
                                            hosts_.count, error.failure().message)});
    }
  }
}

// A host 0 that cannot serve may find another host 0 there: then all hosts are to know.
std::shared_ptr<Store> Rendezvous::join(TcpStoreOptions& options) {
  try {
    return make_tcp_store(options);
  } catch (const DistNetworkError& error) {
    if (!std::exchange(options.server, false)) throw;
    options.timeout = kOtherHost0;
    try {
      return make_tcp_store(options);
    } catch (const std::exception&) {  // nobody, or somebody else
    }
    throw_failure(error.failure());
  }
}

// Tells that this launcher has left, and if nothing had ended the job by then, ends it.
Rendezvous::Will Rendezvous::will() const {
  const std::string gone = to_text(
      {.exit_code = kLostExitCode,
       .host = hosts_.number,
       .text = fmt::format(
           "host {} ({}) is gone: its launcher ended without notice, or the connection to it broke",
           hosts_.number, name_)});
  const auto key = [](std::string_view name) { return fmt::format("{}/{}", kLaunchPrefix, name); };
  return {{key(kGo), gone}, {key(kStop), gone}, {key(left_key(nonce_)), ""}};
}

// Repeats what may be repeated until host 0 answers, unless this host has given up meanwhile.
template <class Call>
auto Rendezvous::insist(const Call& call) {
  const Deadline until = steady_clock::now() + kJoinPatience;
  for (;;) try {
      return call(*store());
    } catch (const DistTimeoutError&) {
      if (given_up_ || steady_clock::now() >= until) throw;
    }
}

void Rendezvous::refuse(const std::string& text) {
  try {
    end_rendezvous(Code::mismatch, text);
  } catch (const DistError&) {  // host 0 went with it
  }
  throw_failure({.code = Code::mismatch, .message = text});
}

std::string Rendezvous::end_rendezvous(Code code, std::string_view text) {
  return set_first(kGo, to_text({kLostExitCode, hosts_.number, code, std::string(text)}));
}

// What is there once `value` was set where nothing was.
std::string Rendezvous::set_first(std::string_view key, std::string_view value) {
  return insist([&](Store& store) {
    return store.compare_set(key, std::nullopt, value, kBeat).value_or("");
  });
}

// First the place: host 0 waits at the end for the hosts that have one.
void Rendezvous::claim() {
  const std::string mine = fmt::format("{} {} {}", ranks_, nonce_, name_);
  const std::string key = host_key(hosts_.number);
  if (serves_) set_first("master_port", std::to_string(master_port_));
  insist([&](Store& store) { return store.add(beat_key(hosts_.number), 0, kBeat); });
  // Host 0 serves the store.
  const std::string claimed = hosts_.number == 0 && !serves_
                                  ? insist([&](Store& store) { return store.get(key, kBeat); })
                                  : set_first(key, mine);
  if (claimed != mine)
    refuse(fmt::format("two launchers are host {}: {} and {}; give every host a number of its own",
                       hosts_.number, introduction_from(claimed).name, name_));
  const std::string count = fmt::format("{} (host {}, {})", hosts_.count, hosts_.number, name_);
  const std::string first = set_first("count", count);
  if (std::atoi(first.c_str()) != hosts_.count)
    refuse(fmt::format("the hosts disagree on the number of hosts: {} and {}", first, count));
  set_first(joined_key(hosts_.number), "");
  const std::vector<std::string> all = keys_of(hosts_.count, joined_key);
  if (insist([&](Store& store) { return store.check(all, kBeat); })) set_first(kGo, kGo);
}

std::string Rendezvous::missing_hosts() {
  std::string missing;
  for (int number = 0; number < hosts_.count; ++number)
    if (!store()->try_get(host_key(number), kPatience))
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", number);
  return missing;
}

std::optional<Verdict> Rendezvous::wait_for_all() {
  Deadline report = steady_clock::now() + kMissingReport;
  for (;;) try {
      tell();
      const Deadline now = steady_clock::now();
      if (now >= report) {
        log(LogLevel::warn, "still waiting for hosts {} of {}", missing_hosts(), hosts_.count);
        report = now + kMissingReport;
      }
      const std::string decided =
          now < deadline_ ? store()->get(kGo, kBeat) : end_late_rendezvous();
      if (decided == kGo) return std::nullopt;
      return verdict_from(decided);
    } catch (const DistTimeoutError&) {  // nothing yet, or no answer
      // Then host 0 did not hear of it, and will not soon.
      if (given_up_ || steady_clock::now() >= deadline_ + kMissingReport) throw;
    }
}

std::string Rendezvous::end_late_rendezvous() {
  return end_rendezvous(
      Code::timed_out,
      fmt::format("of {} hosts these did not arrive within {} s: {}{}", hosts_.count,
                  std::chrono::duration_cast<std::chrono::seconds>(hosts_.timeout).count(),
                  missing_hosts(), refusals_of(*store())));
}

World Rendezvous::read_world() {
  World world;
  const std::string port = insist([](Store& store) { return store.get("master_port", kBeat); });
  world.master_port = static_cast<std::uint16_t>(std::atoi(port.c_str()));
  const std::vector<std::string> keys = keys_of(hosts_.count, host_key);
  const std::vector<std::string> all =
      insist([&](Store& store) { return store.multi_get(keys, kBeat); });
  for (int number = 0; number < hosts_.count; ++number) {
    const Introduction host = introduction_from(all[static_cast<std::size_t>(number)]);
    if (number < hosts_.number) world.first_rank += host.ranks;
    world.size += host.ranks;
    others_.push_back(host.name);
  }
  const std::size_t clients = static_cast<std::size_t>(world.size) + others_.size();
  if (clients > kMaxStoreClients)
    throw_failure({.code = Code::store_limit,
                   .message = fmt::format("{} ranks on {} hosts: the store on host 0 serves {} "
                                          "ranks and launchers; start fewer ranks",
                                          world.size, hosts_.count, kMaxStoreClients)});
  beats_.resize(others_.size());
  silent_.resize(others_.size());
  return world;
}

std::optional<Verdict> Rendezvous::find_silent_host() {
  const std::vector<std::string> now =
      store()->multi_get(keys_of(hosts_.count, beat_key), kPatience);
  for (std::size_t number = 1; number < now.size(); ++number) {
    // In looks, not by the clock: it may be this host that stood still.
    silent_[number] = now[number] == beats_[number] ? silent_[number] + 1 : 0;
    if (silent_[number] * kBeat < hosts_.silence) continue;
    dead_host_ = static_cast<int>(number);
    return Verdict{.exit_code = kLostExitCode,
                   .host = static_cast<int>(number),
                   .text = fmt::format("host {} ({}) sent no heartbeat for {} s", number,
                                       others_[number], silent_[number] * kBeat.count())};
  }
  beats_ = now;
  return std::nullopt;
}

Verdict Rendezvous::watch() try {
  const auto store = this->store();
  for (int unanswered = 0; unanswered * kUnanswered < hosts_.silence;) {
    ++unanswered;
    try {
      store->add(beat_key(hosts_.number), 1, kBeat);
      unanswered = 0;
      tell();
      if (hosts_.number == 0)
        if (const auto silent = find_silent_host())
          store->compare_set(kStop, std::nullopt, to_text(*silent), kPatience);
      return verdict_from(store->get(kStop, kBeat));
    } catch (const DistTimeoutError&) {  // nothing yet, or no answer
    }
  }
  throw_failure({.code = Code::timed_out, .message = "its store does not answer"});
} catch (const DistError& error) {
  return {.exit_code = kLostExitCode,
          .host = 0,
          .text = fmt::format("host 0 ({}) is lost: {}", others_.front(), error.failure().message)};
}

void Rendezvous::wait_for_others_to_leave() noexcept try {
  const auto store = this->store();
  std::vector<std::string> keys;
  for (int number = 1; number < hosts_.count; ++number) {
    if (number == dead_host_) continue;
    if (const auto host = store->try_get(host_key(number), kPatience))
      keys.push_back(left_key(introduction_from(*host).nonce));
  }
  if (!keys.empty()) store->wait(keys, kLinger);
} catch (const std::exception&) {  // they learn from the end of the store
}

}}  // namespace c10d::v0
