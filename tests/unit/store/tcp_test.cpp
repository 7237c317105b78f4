// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "src/net/handshake.h"
#include "src/net/reserve_port.h"
#include "src/net/socket.h"
#include "src/store/refusals.h"
#include "tests/unit/store/kinds.h"
#include "tests/unit/store/tcp_proxy.h"

namespace c10d::test { namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// The addresses on which this port is listened to, as the kernel prints them.
std::vector<std::string> listeners(std::uint16_t port) {
  std::vector<std::string> found;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream lines(table);
    std::string line;
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state;
      words >> number >> local >> remote >> state;
      const std::size_t colon = local.find(':');
      if (state != "0A" || colon == std::string::npos) continue;
      if (std::stoul(local.substr(colon + 1), nullptr, 16) == port)
        found.push_back(local.substr(0, colon));
    }
  }
  return found;
}

TEST(TcpStore, BindsExactlyWhatWasAsked) {
  const auto server = tcp_server();
  EXPECT_NE(server->port(), 0);
  EXPECT_EQ(listeners(server->port()), std::vector<std::string>{"0100007F"});
  const auto second = make_tcp_store({.host = "127.0.0.2", .server = true, .timeout = 5s});
  EXPECT_EQ(listeners(second->port()), std::vector<std::string>{"0200007F"});
}

TEST(TcpStore, WildcardNeedsAFlagAndAToken) {
  EXPECT_THROW(make_tcp_store({.host = "0.0.0.0", .server = true, .token = kToken}),
               InvalidArgument);
  EXPECT_THROW(make_tcp_store({.host = "0.0.0.0", .server = true, .allow_wildcard = true}),
               InvalidArgument);
  const auto server = make_tcp_store({.host = "0.0.0.0",
                                      .server = true,
                                      .job = "job",
                                      .token = kToken,
                                      .allow_wildcard = true,
                                      .timeout = 5s});
  EXPECT_EQ(listeners(server->port()), std::vector<std::string>{"00000000"});
  server->set("k", "v");
}

TEST(TcpStore, NamesTheAddressThatIsInUse) {
  const auto server = tcp_server();
  const Failure failure =
      failure_of([&] { make_tcp_store({.port = server->port(), .server = true, .timeout = 5s}); });
  EXPECT_EQ(failure.code, Code::address_in_use);
  EXPECT_NE(failure.message.find("127.0.0.1:" + std::to_string(server->port())), std::string::npos)
      << failure.message;
}

TEST(TcpStore, TakesOverAListeningSocket) {
  Fd listener = listen_tcp(resolve("127.0.0.1", 0).front());
  const std::uint16_t port = local_address(listener.get()).port();
  const auto server = make_tcp_store({.server = true,
                                      .listen_fd = listener.release(),
                                      .job = "job",
                                      .token = kToken,
                                      .timeout = 5s});
  EXPECT_EQ(server->port(), port);
  make_tcp_store(client_of(*server))->set("k", "v");
  EXPECT_EQ(server->get("k"), "v");
}

TEST(TcpStore, TheServerMayComeLater) {
  const auto held = hold_port();
  std::shared_ptr<TcpStore> client;
  std::jthread early([&] { client = make_tcp_store({.port = held.second, .timeout = 20s}); });
  const auto server = make_tcp_store({.port = held.second, .server = true, .timeout = 20s});
  early.join();
  client->set("k", "v");
  EXPECT_EQ(server->get("k"), "v");
}

// One process may end its store and serve the next at the same address.
TEST(TcpStore, AServerThatIsLeavingIsNotTheLast) {
  const auto held = hold_port();
  std::shared_ptr<TcpStore> client;
  std::jthread early([&] { client = make_tcp_store({.port = held.second, .timeout = 60s}); });
  {
    const Fd leaving = listen_tcp(resolve("127.0.0.1", held.second).front());
    ASSERT_TRUE(wait_for(leaving.get(), POLLIN, steady_clock::now() + 60s));
    const Fd connection(accept4(leaving.get(), nullptr, nullptr, SOCK_CLOEXEC));
    char hello[512];
    EXPECT_GT(recv(connection.get(), hello, sizeof hello, 0), 0);
    std::string goodbye;
    append_frame(goodbye, goodbye_frame, 0, {});
    EXPECT_TRUE(send_all(connection.get(), goodbye, steady_clock::now() + 60s));
  }
  const auto server = make_tcp_store({.port = held.second, .server = true, .timeout = 60s});
  early.join();
  ASSERT_NE(client, nullptr);
  client->set("k", "v");
  EXPECT_EQ(server->get("k"), "v");
}

TEST(TcpStore, NobodyThereIsATimeoutThatNamesTheAddress) {
  const auto [held, port] = hold_port();
  const Failure failure =
      failure_of([port = port] { make_tcp_store({.port = port, .timeout = 100ms}); });
  EXPECT_EQ(failure.code, Code::timed_out);
  EXPECT_NE(failure.message.find(std::to_string(port)), std::string::npos) << failure.message;
}

TEST(TcpStore, AListenerThatSaysNothingIsToldFromOneThatIsGone) {
  const Fd listener = listen_tcp(resolve("127.0.0.1", 0).front());
  const std::uint16_t port = local_address(listener.get()).port();
  const Failure failure = failure_of([&] { make_tcp_store({.port = port, .timeout = 1s}); });
  EXPECT_EQ(failure.code, Code::timed_out);
  EXPECT_NE(failure.message.find("does not answer"), std::string::npos) << failure.message;
}

TEST(TcpStore, AnotherJobAndAWrongTokenAreTurnedAway) {
  const auto server = tcp_server();
  TcpStoreOptions options = client_of(*server);
  options.job = "another";
  const Failure job = failure_of([&] { make_tcp_store(options); });
  EXPECT_EQ(job.code, Code::wrong_job);
  EXPECT_NE(job.message.find("'another'"), std::string::npos) << job.message;
  EXPECT_NE(job.message.find("'job'"), std::string::npos) << job.message;
  options = client_of(*server);
  options.token = std::string(32, 'x');
  EXPECT_EQ(failure_of([&] { make_tcp_store(options); }).code, Code::not_authenticated);
  options.token = "";
  EXPECT_EQ(failure_of([&] { make_tcp_store(options); }).code, Code::not_authenticated);
  server->set("k", "v");
}

TEST(TcpStore, WhoeverWaitsFindsThatAnotherTokenWasRefused) {
  const auto server = tcp_server();
  const auto behind = make_prefix_store("a", make_prefix_store("b", server));
  EXPECT_EQ(refusals_of(*behind), "");
  TcpStoreOptions options = client_of(*server);
  options.job = "another";
  EXPECT_EQ(failure_of([&] { make_tcp_store(options); }).code, Code::wrong_job);
  options = client_of(*server);
  options.token = std::string(32, 'x');
  for (const char* found : {"; 1 connection from 127.0.0.1 was refused: another token",
                            "; 2 connections from 127.0.0.1 were refused: another token"}) {
    EXPECT_EQ(failure_of([&] { make_tcp_store(options); }).code, Code::not_authenticated);
    const Deadline end = steady_clock::now() + 30s;
    while (refusals_of(*behind) != found && steady_clock::now() < end) std::this_thread::yield();
    EXPECT_EQ(refusals_of(*behind), found);
  }
  EXPECT_EQ(refusals_of(*make_hash_store(1h)), "");
}

TEST(TcpStore, ClientsHaveALimit) {
  const auto server = tcp_server({.clients = 2});
  auto second = make_tcp_store(client_of(*server));
  const Failure failure = failure_of([&] { make_tcp_store(client_of(*server)); });
  EXPECT_EQ(failure.code, Code::store_limit);
  EXPECT_NE(failure.message.find("StoreLimits::clients"), std::string::npos) << failure.message;
  // A goodbye makes room.
  second.reset();
  make_tcp_store(client_of(*server))->set("k", "v");
}

TEST(TcpStore, AServerThatShutsDownEndsWaitsAtOnce) {
  auto server = tcp_server();
  const auto client = make_tcp_store(client_of(*server));
  std::atomic<bool> waiting = false;
  Failure failure;
  std::jthread waiter([&] {
    waiting = true;
    failure = failure_of([&] { client->get("never"); });
  });
  while (!waiting) std::this_thread::yield();
  const auto start = steady_clock::now();
  server.reset();
  waiter.join();
  EXPECT_LT(steady_clock::now() - start, 15s);
  EXPECT_EQ(failure.code, Code::store_lost);
  const Failure later = failure_of([&] { client->set("k", "v"); });
  EXPECT_EQ(later.code, Code::store_lost);
  EXPECT_NE(later.message.find("the process that serves a store ends last"), std::string::npos)
      << later.message;
}

// A server in a process of its own, until the end of this.
class ServerProcess {
 public:
  ServerProcess() {
    Fd listener = listen_tcp(resolve("127.0.0.1", 0).front());
    port_ = local_address(listener.get()).port();
    pid_ = fork();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto server =
        make_tcp_store({.server = true, .listen_fd = listener.release(), .timeout = 30s});
    for (;;) pause();
  }
  ~ServerProcess() {
    signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;
  std::uint16_t port() const { return port_; }
  void signal(int signo) const { EXPECT_EQ(kill(pid_, signo), 0); }
  void stop() const {
    signal(SIGSTOP);
    EXPECT_EQ(waitpid(pid_, nullptr, WUNTRACED), pid_);
  }

 private:
  std::uint16_t port_ = 0;
  pid_t pid_ = -1;
};

TEST(TcpStore, AKilledServerIsNoticedLongBeforeTheDeadline) {
  const ServerProcess server;
  const auto client = make_tcp_store({.port = server.port(), .timeout = 30s});
  std::vector<Failure> failures(3);
  std::atomic<int> waiting = 0;
  std::vector<std::jthread> waiters;
  for (Failure& failure : failures)
    waiters.emplace_back([&] {
      ++waiting;
      failure = failure_of([&] { client->get("never"); });
    });
  while (waiting < 3) std::this_thread::yield();
  client->set("k", "v");
  const auto start = steady_clock::now();
  server.signal(SIGKILL);
  waiters.clear();
  EXPECT_LT(steady_clock::now() - start, 15s);
  for (const Failure& failure : failures) EXPECT_EQ(failure.code, Code::store_lost);
}

// Its answers to calls that were given up free their places, also where no call is under way.
TEST(TcpStore, AServerThatWasStoppedForManyCallsServesLaterOnes) {
  constexpr int kMostCalls = 1024;
  const ServerProcess server;
  const auto client = make_tcp_store({.port = server.port(), .timeout = 30s});
  client->set("k", "v");
  server.stop();
  std::vector<std::jthread> callers;
  for (int i = 0; i < kMostCalls; ++i)
    callers.emplace_back(
        [&] { EXPECT_EQ(failure_of([&] { client->set("k", "w", 1ms); }).code, Code::timed_out); });
  callers.clear();
  const auto set = [&] { client->set("k", "x"); };
  EXPECT_EQ(failure_of(set).code, Code::store_limit);
  server.signal(SIGCONT);
  const auto end = steady_clock::now() + 30s;
  for (bool served = false; !served && steady_clock::now() < end;) {
    try {
      set();
      served = true;
    } catch (const DistStoreError&) {  // the answers are still on their way
      std::this_thread::yield();
    }
  }
  EXPECT_EQ(client->try_get("k"), "x");
}

TcpStoreOptions with_will(const TcpStore& server, std::string value) {
  return {.port = server.port(),
          .job = "job",
          .token = kToken,
          .timeout = 20s,
          .last_will = {{"there", value}, {"gone/" + value, std::move(value)}}};
}

TEST(TcpStore, AWillIsCarriedOutWhenItsClientIsGone) {
  const auto server = tcp_server();
  server->set("there", "already");
  make_tcp_store(with_will(*server, "left"));
  EXPECT_EQ(server->get("gone/left", 20s), "left");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto store = make_tcp_store(with_will(*server, "killed"));
    store->set("up", "");
    for (;;) pause();
  }
  server->get("up", 20s);
  EXPECT_EQ(server->try_get("gone/killed"), std::nullopt);
  kill(child, SIGKILL);
  EXPECT_EQ(server->get("gone/killed", 20s), "killed");
  EXPECT_EQ(server->get("there"), "already");
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

TEST(TcpStore, AWillHasALimit) {
  const auto server = tcp_server();
  EXPECT_THROW(make_tcp_store(with_will(*server, std::string(2048, 'x'))), InvalidArgument);
}

TEST(TcpStore, AForkedChildLeavesTheParentsStoreAlone) {
  auto server = tcp_server();
  server->set("k", "v");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    bool refused = false;
    try {
      server->set("k", "child");
    } catch (const DistBackendError& error) {
      refused = error.code() == Code::forked_child;
    }
    server.reset();
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(server->get("k"), "v");
}

// It may be made known yet, as a server may be started yet.
TEST(TcpStore, AHostNameThatIsNotKnownIsWaitedFor) {
  const Failure failure =
      failure_of([] { make_tcp_store({.host = "no such name", .port = 1, .timeout = 100ms}); });
  EXPECT_EQ(failure.code, Code::timed_out);
  EXPECT_NE(failure.message.find("'no such name' has no address"), std::string::npos)
      << failure.message;
}

// Every call is carried out once, however often the connection breaks in whatever place.
TEST(TcpStore, ReconnectionsRepeatNothing) {
  const auto server = tcp_server();
  TcpProxy proxy(server->port());
  TcpStoreOptions options = client_of(*server);
  options.port = proxy.port();
  const auto client = make_tcp_store(options);
  constexpr int kThreads = 4;
  constexpr int kRounds = 200;
  std::atomic<int> running = kThreads;
  std::mutex mutex;
  std::vector<std::string> popped;
  const auto work = [&](int t) {
    std::int64_t last = 0;
    for (int i = 0; i < kRounds; ++i) {
      const std::int64_t sum = client->add("n", 1);
      EXPECT_GT(sum, last);
      last = sum;
      client->append("log", "x");
      const std::string mine = "cas" + std::to_string(t);
      const auto before = i == 0 ? std::nullopt : std::optional(std::to_string(i - 1));
      EXPECT_EQ(client->compare_set(mine, before, std::to_string(i)), std::to_string(i));
      client->push("q", std::to_string(t * kRounds + i));
      const std::string element = client->pop("q");
      client->barrier("b", kThreads);
      const std::lock_guard lock(mutex);
      popped.push_back(element);
    }
  };
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      try {
        work(t);
      } catch (const DistError& error) {
        ADD_FAILURE() << "thread " << t << ": " << error.what();
      }
      --running;
    });
  int cuts = 0;
  while (running > 0) {
    // Cut after some bytes more, so that the breaks fall into frames as well as between them.
    proxy.cut_after(1 + (cuts * 997) % 4001);
    ++cuts;
  }
  threads.clear();
  EXPECT_GT(cuts, 3);
  EXPECT_EQ(server->get("n"), std::to_string(kThreads * kRounds));
  EXPECT_EQ(server->get("log").size(), static_cast<std::size_t>(kThreads * kRounds));
  std::sort(popped.begin(), popped.end());
  EXPECT_EQ(std::unique(popped.begin(), popped.end()), popped.end());
  EXPECT_EQ(popped.size(), static_cast<std::size_t>(kThreads * kRounds));
  EXPECT_FALSE(server->check(std::vector<std::string>{"q"}));
}

// More answers at once than the server queues for a client, whatever it is that ends the calls.
TEST(TcpStore, ManyThreadsOfOneClientMayAskForLargeValuesAtOnce) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 20;
  const auto server = tcp_server({.value_bytes = 64 * 1024, .output_queue_bytes = 64 * 1024});
  const auto client = make_tcp_store(client_of(*server));
  const auto large = [](int which) {
    return std::string(40 * 1024, static_cast<char>('a' + which));
  };
  std::atomic<int> popped = 0;
  std::vector<std::thread> threads;
  for (int me = 0; me < kThreads; ++me)
    threads.emplace_back([&, me] {
      const std::string own = "own/" + std::to_string(me);
      for (int round = 0; round < kRounds; ++round) {
        EXPECT_EQ(client->get("round/" + std::to_string(round)), large(round));
        EXPECT_EQ(client->compare_set(own, round == 0 ? std::nullopt : std::optional(large(round)),
                                      large(round + 1)),
                  large(round + 1));
        popped += client->pop("queue")[0];
        EXPECT_EQ(client->add("done", 1) > 0, true);
      }
    });
  int pushed = 0;
  for (int round = 0; round < kRounds; ++round) {
    server->set("round/" + std::to_string(round), large(round));
    for (int i = 0; i < kThreads; ++i) {
      const std::string element = large((round + i) % 20);
      pushed += element[0];
      server->push("queue", element);
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(popped, pushed);
  EXPECT_EQ(client->add("done", 0), kThreads * kRounds);
  EXPECT_FALSE(client->check(std::vector<std::string>{"queue"}));
}

}}  // namespace c10d::test
