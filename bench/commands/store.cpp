// SPDX-License-Identifier: BSD-3-Clause
#include "bench/commands/store.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <exception>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "bench/model/record.h"
#include "bench/model/stats.h"
#include "bench/text/format.h"
#include "c10d/store.h"

namespace c10d::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Operation {
  const char* name;
  std::function<void(Store&, const std::string& key)> call;
};

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = {
      {"set", [](Store& store,
                 const std::string& key) { store.set(key, "0123456789abcdef0123456789abcdef"); }},
      {"get", [](Store& store, const std::string& key) { store.get(key); }},
      {"add", [](Store& store, const std::string&) { store.add("sum", 1); }},
      {"wait", [](Store& store, const std::string& key) { store.wait(std::array{key}); }},
  };
  return all;
}

struct Line {
  const char* operation;
  std::size_t clients;
  double per_second;
  Quantiles us;
};

// All clients call `operation` as fast as they can for `seconds`; each is a connection of its own.
Line measure(const Operation& operation, const std::vector<std::shared_ptr<TcpStore>>& clients,
             double seconds) {
  std::vector<std::vector<double>> samples(clients.size());
  std::vector<std::thread> threads;
  std::barrier start(static_cast<std::ptrdiff_t>(clients.size()));
  std::atomic<bool> failed{false};
  std::exception_ptr problem;
  for (std::size_t i = 0; i < clients.size(); ++i) {
    threads.emplace_back([&, i] {
      const std::string key = fmt::format("key/{}", i);
      start.arrive_and_wait();
      const auto until = Clock::now() + std::chrono::duration<double>(seconds);
      try {
        for (auto now = Clock::now(); now < until;) {
          operation.call(*clients[i], key);
          const auto after = Clock::now();
          samples[i].push_back(std::chrono::duration<double, std::micro>(after - now).count());
          now = after;
        }
      } catch (...) {
        if (!failed.exchange(true)) problem = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (problem) std::rethrow_exception(problem);
  std::vector<double> all;
  for (const std::vector<double>& part : samples) all.insert(all.end(), part.begin(), part.end());
  if (all.empty()) all = {0};
  return {operation.name, clients.size(), static_cast<double>(all.size()) / seconds,
          quantiles(std::move(all))};
}

std::string random_token() {
  std::random_device device;
  std::string token;
  for (int i = 0; i < 32; ++i) token += static_cast<char>('!' + device() % 94);
  return token;
}

void print(const Line& line, bool as_json) {
  if (as_json) {
    const Json json = {{"v", 1},
                       {"t", "store"},
                       {"op", line.operation},
                       {"clients", line.clients},
                       {"per_second", line.per_second},
                       {"us",
                        {{"min", line.us.min},
                         {"p50", line.us.p50},
                         {"p90", line.us.p90},
                         {"p99", line.us.p99 ? Json(*line.us.p99) : Json(nullptr)},
                         {"max", line.us.max}}}};
    fmt::print("{}\n", json.dump());
    return;
  }
  fmt::print("{:<6} {:>8} {:>12.0f} {:>10} {:>10} {:>10}\n", line.operation, line.clients,
             line.per_second, microseconds_text(line.us.p50),
             line.us.p99 ? microseconds_text(*line.us.p99) : "", microseconds_text(line.us.max));
  std::fflush(stdout);
}

}  // namespace

int run_store_bench(double seconds, bool as_json) {
  TcpStoreOptions server;
  server.server = true;
  server.job = "c10d-bench";
  server.token = random_token();
  const std::shared_ptr<TcpStore> host = make_tcp_store(server);
  TcpStoreOptions client = server;
  client.server = false;
  client.port = host->port();
  if (!as_json)
    fmt::print(
        "TcpStore on loopback, values of 32 bytes, one connection per client\n\n{:<6} {:>8} {:>12} "
        "{:>10} {:>10} {:>10}\n",
        "op", "clients", "per second", "p50 us", "p99 us", "max us");
  std::vector<std::shared_ptr<TcpStore>> clients;
  for (const std::size_t count : {1, 16, 128}) {
    while (clients.size() < count) clients.push_back(make_tcp_store(client));
    for (const Operation& operation : operations())
      print(measure(operation, clients, seconds), as_json);
  }
  return 0;
}

}  // namespace c10d::bench
