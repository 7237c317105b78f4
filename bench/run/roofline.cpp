// SPDX-License-Identifier: BSD-3-Clause
#include "bench/run/roofline.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "bench/measure/arena.h"
#include "bench/measure/machine.h"
#include "bench/model/record.h"
#include "bench/model/stats.h"
#include "bench/text/format.h"
#include "c10d/error.h"

namespace c10d::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kFarCopy = std::uint64_t{128} << 20;  // no cache has a part of it

double microseconds_of(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// Median over about 50 ms of runs.
double median_time(const std::function<void()>& work) {
  std::vector<double> samples;
  work();
  const auto until = Clock::now() + std::chrono::milliseconds(50);
  while (samples.size() < 5 || Clock::now() < until) samples.push_back(microseconds_of(work));
  return median(std::move(samples));
}

std::uint64_t cache_bytes(int name, std::uint64_t otherwise) {
  const long bytes = sysconf(name);
  return bytes > 0 ? static_cast<std::uint64_t>(bytes) : otherwise;
}

CeilRecord copy_at(const char* level, std::uint64_t bytes) {
  const Arena memory(2 * bytes);
  auto* from = static_cast<std::byte*>(memory.data());
  // Short copies are timed in batches: one of them is near the clock's own cost.
  const auto batch = std::max<std::uint64_t>(1, (std::uint64_t{1} << 20) / bytes);
  const double us = median_time([&] {
                      for (std::uint64_t i = 0; i < batch; ++i) {
                        std::memcpy(from + bytes, from, bytes);
                        asm volatile("" : : "r"(from) : "memory");
                      }
                    }) /
                    static_cast<double>(batch);
  return {"memcpy", level, bytes, 0, static_cast<double>(bytes) * 1e-3 / us, us};
}

void copies(std::vector<CeilRecord>& ceilings) {
  const std::uint64_t l1 = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, 32 << 10);
  const std::uint64_t l2 = cache_bytes(_SC_LEVEL2_CACHE_SIZE, 512 << 10);
  const std::uint64_t l3 = cache_bytes(_SC_LEVEL3_CACHE_SIZE, 8 << 20);
  ceilings.push_back(copy_at("L1", l1 / 4));
  ceilings.push_back(copy_at("L2", l2 / 4));
  ceilings.push_back(copy_at("L3", std::min<std::uint64_t>(l3 / 4, 16 << 20)));
  ceilings.push_back(copy_at("DRAM", kFarCopy));
}

// Half of the round trip of one flag between two threads, as two ranks see it.
CeilRecord flag_between_cores() {
  constexpr int kMostRounds = 20'000;
  constexpr int kEnd = -1;
  const bool alone = allowed_cpus() < 2;
  alignas(128) std::atomic<int> ping{0};
  alignas(128) std::atomic<int> pong{0};
  std::thread other([&] {
    for (int last = 0; last != kEnd;) {
      int value = last;
      while ((value = ping.load(std::memory_order_acquire)) == last)
        if (alone) std::this_thread::yield();
      pong.store(last = value, std::memory_order_release);
    }
  });
  const auto bounce = [&](int value) {
    ping.store(value, std::memory_order_release);
    while (pong.load(std::memory_order_acquire) != value)
      if (alone) std::this_thread::yield();
  };
  int rounds = 0;
  const auto until = Clock::now() + std::chrono::milliseconds(100);
  const double us = microseconds_of([&] {
    do bounce(++rounds);
    while (rounds < kMostRounds && (rounds % 16 != 0 || Clock::now() < until));
  });
  bounce(kEnd);
  other.join();
  return {"shm", "", 4, 0, std::nullopt, us / rounds / 2};
}

// One core writes a block, the other copies it out: two blocks in turn, so that both work at once.
CeilRecord stream_between_cores() {
  constexpr std::uint64_t kBlock = 64 << 10;
  constexpr std::uint64_t kMostBlocks = 4096;
  const Arena source(kBlock);
  const Arena shared(2 * kBlock);
  const Arena sink(kBlock);
  alignas(128) std::atomic<std::uint64_t> written{0};
  alignas(128) std::atomic<std::uint64_t> taken{0};
  const auto slot = [&](std::uint64_t i) {
    return static_cast<std::byte*>(shared.data()) + i % 2 * kBlock;
  };
  std::atomic<std::uint64_t> end{kMostBlocks};
  std::thread reader([&] {
    for (std::uint64_t i = 0; i < end.load(std::memory_order_acquire); ++i) {
      while (written.load(std::memory_order_acquire) <= i) std::this_thread::yield();
      std::memcpy(sink.data(), slot(i), kBlock);
      taken.store(i + 1, std::memory_order_release);
    }
  });
  // The end is set before the last block is written, so that the reader knows it in time.
  const auto until = Clock::now() + std::chrono::milliseconds(200);
  std::uint64_t blocks = 0;
  const double us = microseconds_of([&] {
    for (bool last = false; !last; ++blocks) {
      while (taken.load(std::memory_order_acquire) + 2 <= blocks) std::this_thread::yield();
      std::memcpy(slot(blocks), source.data(), kBlock);
      last = blocks + 1 == kMostBlocks || Clock::now() > until;
      if (last) end.store(blocks + 1, std::memory_order_release);
      written.store(blocks + 1, std::memory_order_release);
    }
    reader.join();
  });
  const auto count = static_cast<double>(blocks);
  return {"shm", "", kBlock, 0, static_cast<double>(kBlock) * count * 1e-3 / us, us / count};
}

[[noreturn]] void throw_socket(const char* what) {
  throw_failure(
      {Code::out_of_resources, fmt::format("ceiling: {}: {}", what, std::strerror(errno))});
}

// A connected pair of sockets over 127.0.0.1.
std::array<int, 2> loopback_pair() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (listener < 0 || bind(listener, generic, length) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, generic, &length) != 0)
    throw_socket("no listening socket on 127.0.0.1");
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (client < 0 || connect(client, generic, length) != 0)
    throw_socket("cannot connect to 127.0.0.1");
  const int server = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  close(listener);
  if (server < 0) throw_socket("cannot accept on 127.0.0.1");
  for (const int fd : {client, server}) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const timeval limit{10, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }
  return {client, server};
}

void send_all(int fd, const void* data, std::size_t bytes) {
  for (const char* at = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) throw_socket("loopback send");
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
}

void receive_all(int fd, void* data, std::size_t bytes) {
  for (char* at = static_cast<char*>(data); bytes > 0;) {
    const ssize_t got = recv(fd, at, bytes, 0);
    if (got <= 0) throw_socket("loopback receive");
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

void loopback(std::vector<CeilRecord>& ceilings) {
  constexpr int kMostRounds = 2000;
  constexpr char kLast = 1;
  // On a busy machine each round waits for two turns on a CPU.
  const auto until = Clock::now() + std::chrono::milliseconds(100);
  int rounds = 0;
  constexpr std::uint64_t kBlock = 256 << 10;
  constexpr std::uint64_t kBlocks = 1024;
  const std::array<int, 2> fds = loopback_pair();
  // A socket that fails on either side is an error of this thread.
  std::future<void> other = std::async(std::launch::async, [&] {
    std::vector<char> block(kBlock);
    do {
      receive_all(fds[1], block.data(), 8);
      send_all(fds[1], block.data(), 8);
    } while (block.front() != kLast);
    for (std::uint64_t i = 0; i < kBlocks; ++i) receive_all(fds[1], block.data(), kBlock);
    send_all(fds[1], block.data(), 8);
  });
  std::vector<char> block(kBlock);
  const double trips = microseconds_of([&] {
    while (block.front() != kLast) {
      ++rounds;
      if (rounds == kMostRounds || Clock::now() > until) block.front() = kLast;
      send_all(fds[0], block.data(), 8);
      receive_all(fds[0], block.data(), 8);
    }
  });
  const double stream = microseconds_of([&] {
    for (std::uint64_t i = 0; i < kBlocks; ++i) send_all(fds[0], block.data(), kBlock);
    receive_all(fds[0], block.data(), 8);
  });
  other.get();
  for (const int fd : fds) close(fd);
  ceilings.push_back({"tcp", "", 8, 0, std::nullopt, trips / rounds / 2});
  ceilings.push_back({"tcp", "", kBlock, 0, static_cast<double>(kBlock * kBlocks) * 1e-3 / stream,
                      stream / kBlocks});
}

const char* explain(const CeilRecord& ceiling) {
  if (ceiling.kind == "memcpy") return "one core copies";
  if (ceiling.kind == "shm")
    return ceiling.gbps ? "one core writes, another copies out"
                        : "a flag, one way between two cores";
  return ceiling.gbps ? "stream over 127.0.0.1" : "8 bytes, one way over 127.0.0.1";
}

}  // namespace

std::vector<CeilRecord> measure_ceilings() {
  refuse_beyond_memory(2 * kFarCopy, "the ceiling of memcpy", "end what else runs here");
  std::vector<CeilRecord> ceilings;
  copies(ceilings);
  ceilings.push_back(flag_between_cores());
  ceilings.push_back(stream_between_cores());
  loopback(ceilings);
  return ceilings;
}

void take_ceilings(Session& session) {
  try {
    for (const CeilRecord& ceiling : measure_ceilings()) session.take(to_json(ceiling));
  } catch (const std::exception& error) {
    session.warn("W012", fmt::format("the ceilings could not be measured: {}", error.what()));
  }
}

int print_ceilings(bool as_json) {
  const std::vector<CeilRecord> ceilings = measure_ceilings();
  if (!as_json)
    fmt::print("{}\n\n{:<8} {:<5} {:>9} {:>9} {:>9}\n", cpu_model(), "what", "level", "bytes",
               "GB/s", "us");
  for (const CeilRecord& ceiling : ceilings) {
    if (as_json) {
      fmt::print("{}\n", to_json(ceiling).dump());
      continue;
    }
    fmt::print("{:<8} {:<5} {:>9} {:>9} {:>9}  {}\n", ceiling.kind, ceiling.level,
               bytes_text(ceiling.bytes), ceiling.gbps ? fmt::format("{:.1f}", *ceiling.gbps) : "",
               microseconds_text(ceiling.us), explain(ceiling));
  }
  if (const auto work = other_work(); work && !as_json)
    fmt::print("\n{}: the machine alone can do more\n", *work);
  return 0;
}

}  // namespace c10d::bench
