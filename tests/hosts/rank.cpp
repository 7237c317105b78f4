// SPDX-License-Identifier: BSD-3-Clause
// One rank of a job over several hosts that something happens to: hosts-rank FOLDER WHAT [MIB],
// with so much memory beside what it needs. It writes its pid into FOLDER/ready-RANK once the group
// stands, and what came of it into FOLDER/said-RANK: "ok", or what failed and when, by the wall
// clock. `idle`: into FOLDER/took-RANK, in how many seconds the group was made. `held`: rank 0 does
// not call the others of a native group before FOLDER/go is there.
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "c10d/env.h"
#include "c10d/init.h"
#include "c10d/process_group.h"
#include "c10d/store.h"
#include "tests/contract/forwarding_store.h"
#include "tests/hosts/large_ops.h"

namespace {

using namespace c10d;

constexpr std::size_t kMuch = std::size_t{1} << 21;  // elements: 16 MiB of them

// At once, or not at all.
void write(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path part = path.string() + ".part";
  std::ofstream(part) << text;
  std::filesystem::rename(part, path);
}

void reduce(const ProcessGroup& group, std::size_t count) {
  std::vector<std::int64_t> data(count, group.rank() + 1);
  group.all_reduce(data);
  const std::int64_t sum = std::int64_t{group.size()} * (group.size() + 1) / 2;
  for (const std::int64_t element : data)
    if (element != sum) throw std::runtime_error("a wrong result passed as right");
}

// Until the test has written it; calls `look` meanwhile.
template <class Look>
void await(const std::filesystem::path& file, Look look) {
  while (!std::filesystem::exists(file)) {
    look();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Keeps from rank 0 where the others listen.
class HeldStore final : public contract::ForwardingStore {
 public:
  HeldStore(std::shared_ptr<Store> store, std::filesystem::path folder)
      : ForwardingStore(std::move(store)), folder_(std::move(folder)) {}
  std::vector<std::string> multi_get(std::span<const std::string> keys, Limit limit) override {
    if (keys.front().ends_with("native/0")) {
      ForwardingStore::multi_get(keys, std::chrono::minutes(1));
      write(folder_ / "held-0", "");
      await(folder_ / "go", [] {});
    }
    return ForwardingStore::multi_get(keys, limit);
  }

 private:
  const std::filesystem::path folder_;
};

InitOptions options_of(int rank, const std::filesystem::path& folder, const std::string& what) {
  if (what != "held") return {};
  const int size = std::stoi(env("WORLD_SIZE").value_or("0"));
  std::shared_ptr<Store> store = make_file_store(folder / "store", size);
  if (rank == 0) store = std::make_shared<HeldStore>(std::move(store), folder);
  return {.store = std::move(store), .rank = rank, .size = size};
}

// To the next rank, from the one before.
void pass_on(ProcessGroup& group, std::size_t count) {
  const int next = (group.rank() + 1) % group.size();
  const int previous = (group.rank() + group.size() - 1) % group.size();
  std::vector<std::int64_t> out(count, group.rank()), in(count, -1);
  Work sent = group.async().send(out, next);
  group.recv(in, previous);
  sent.wait();
  for (const std::int64_t element : in)
    if (element != previous) throw std::runtime_error("a wrong message passed as right");
}

// On the connections of native. No other of this process has no timeout of the kernel.
void send_garbage() {
  const std::string garbage(64, 'x');
  for (int fd = 3; fd < 256; ++fd) {
    sockaddr_in peer{};
    socklen_t length = sizeof peer;
    const bool connected = getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0;
    unsigned milliseconds = 1;
    length = sizeof milliseconds;
    if (connected && peer.sin_family == AF_INET &&
        getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, &length) == 0 &&
        milliseconds == 0 && send(fd, garbage.data(), garbage.size(), MSG_NOSIGNAL) < 0)
      throw std::runtime_error("no garbage can be sent");
  }
}

// Until `over`, which is written by the test, is there. All ranks see it after the same call.
void reduce_until(ProcessGroup& group, std::size_t count, const std::filesystem::path& over) {
  for (std::int64_t seen = 0; seen == 0;) {
    reduce(group, count);
    std::vector<std::int64_t> there{group.rank() == 0 && std::filesystem::exists(over) ? 1 : 0};
    group.broadcast(there, 0);
    seen = there[0];
  }
}

// Data goes one way only.
void spread_until(ProcessGroup& group, const std::filesystem::path& over) {
  for (std::int64_t seen = 0; seen == 0;) {
    std::vector<std::int64_t> data(std::size_t{1} << 17, group.rank());
    group.broadcast(data, 0);
    if (data.front() != 0 || data.back() != 0)
      throw std::runtime_error("a wrong block passed as right");
    std::vector<std::int64_t> there{group.rank() == 0 && std::filesystem::exists(over) ? 1 : 0};
    group.broadcast(there, 0);
    seen = there[0];
  }
}

void pass_on_until(ProcessGroup& group, const std::filesystem::path& over) {
  for (std::int64_t seen = 0; seen == 0;) {
    for (const std::size_t count : {1, 1000, 1 << 17}) pass_on(group, count);
    std::vector<std::int64_t> there{group.rank() == 0 && std::filesystem::exists(over) ? 1 : 0};
    group.broadcast(there, 0);
    seen = there[0];
  }
}

void await_failure(const ProcessGroup& group, const std::filesystem::path& over) {
  await(over, [&] {
    if (const auto failure = group.failure()) throw_failure(*failure);
  });
}

void make_another_call(const ProcessGroup& group, const std::string& kind) {
  const bool is_other = group.rank() == 2;
  std::vector<std::int64_t> data(kind == "count" && is_other ? 5 : 4);
  std::vector<double> doubles(4);
  if (kind == "root")
    group.broadcast(data, is_other ? 1 : 0);
  else if (kind == "op" && is_other)
    group.broadcast(data, 0);
  else if (kind == "dtype" && is_other)
    group.all_reduce(doubles);
  else
    group.all_reduce(data);
}

// As many bytes of each dtype.
void reduce_counted(const ProcessGroup& group, const std::string& what) {
  constexpr std::size_t kBytes = kMuch * sizeof(std::int64_t);
  if (what == "counted_broadcast") {
    std::vector<std::byte> data(kBytes, std::byte(group.rank() == 0 ? 7 : 0));
    group.broadcast(data, 0);
    if (data.front() != std::byte{7} || data.back() != std::byte{7})
      throw std::runtime_error("a wrong block passed as right");
  } else if (what == "counted_half") {
    std::vector<std::uint16_t> zeros(kBytes / sizeof(std::uint16_t));
    group.all_reduce(View(zeros.data(), zeros.size(), DType::f16));
  } else if (what == "counted_float") {
    std::vector<float> ones(kBytes / sizeof(float), 1);
    group.all_reduce(ones);
    if (ones.front() != static_cast<float>(group.size()) || ones.back() != ones.front())
      throw std::runtime_error("a wrong result passed as right");
  } else {
    reduce(group, kMuch);
  }
}

// Once, of a few elements.
void run_each_op(ProcessGroup& group) {
  const auto size = static_cast<std::size_t>(group.size());
  const std::vector<std::size_t> counts(size, 1);
  std::vector<float> one{1}, result{0}, all(size, 1), results(size);
  group.all_reduce(result, one);
  group.broadcast(one, 0);
  group.all_gather(results, one);
  group.all_gather_v(results, one, counts);
  group.reduce_scatter(result, all);
  group.reduce_scatter_v(result, all, counts);
  group.reduce(result, one, 0);
  group.scan(result, one);
  group.exscan(result, one);
  group.gather(results, one, 0);
  group.gather_v(results, one, counts, 0);
  group.scatter(result, all, 0);
  group.scatter_v(result, all, counts, 0);
  group.all_to_all(results, all);
  group.all_to_all_v(results, all, counts, counts);
  group.barrier();
  pass_on(group, 1);
}

void run(ProcessGroup& group, const std::filesystem::path& folder, const std::string& what) {
  const std::filesystem::path over = folder / "over";
  if (what == "slow") {
    reduce(group, kMuch / 4);
  } else if (what == "idle") {
    await_failure(group, over);
  } else if (what == "small" || what == "large") {
    reduce_until(group, what == "small" ? 1 : std::size_t{8} << 20, over);
  } else if (what == "spread") {
    spread_until(group, over);
  } else if (what == "passed on") {
    pass_on_until(group, over);
  } else if (what == "forming") {
    std::vector<int> all(static_cast<std::size_t>(group.size()));
    std::iota(all.begin(), all.end(), 0);
    for (;;) reduce(group.new_group(all), 1);
  } else if (what == "ending") {  // of an op to which the second host never comes
    if (group.rank() / 2 == 1) return await_failure(group, over);
    std::vector<std::int64_t> data(1);
    const Work work = group.async().all_reduce(data);
    group.shutdown();
    work.wait();
  } else if (what == "held") {
    for (const std::size_t count : {std::size_t{1}, kMuch}) {
      reduce(group, count);
      pass_on(group, count);
    }
    await_failure(group, over);
  } else if (what == "garbage") {
    if (group.rank() + 1 == group.size()) send_garbage();
    reduce(group, kMuch);  // all ranks carry a part of it
  } else if (what == "each op") {
    run_each_op(group);
  } else if (what == "once") {
    reduce(group, kMuch);
  } else if (what.starts_with("counted")) {
    await(folder / "go", [] {});
    reduce_counted(group, what);
  } else if (what == "late") {
    if (group.rank() + 1 == group.size()) std::this_thread::sleep_for(std::chrono::seconds(3));
    reduce(group, kMuch);
    std::vector<float> data(kMuch, 1);
    group.broadcast(data, 0);
  } else if (what == "large ops") {
    hosts::check_large_ops(group);
  } else if (what == "mismatch") {  // ranks of the second host make another call
    std::vector<std::int64_t> data(group.rank() * 2 < group.size() ? 4 : 5);
    group.all_reduce(data);
  } else if (what.starts_with("other ")) {  // rank 2 makes another call
    make_another_call(group, what.substr(6));
  } else if (what == "without_rank_0") {  // which serves the store
    std::vector<int> others;
    for (int rank = 1; rank < group.size(); ++rank) others.push_back(rank);
    if (group.rank() == 0) {
      group.barrier();
      return;
    }
    ProcessGroup rest = group.new_group(others);
    group.barrier();
    while (!std::filesystem::exists(folder / "said-0")) std::this_thread::yield();
    for (int i = 0; i < 100; ++i) reduce(rest, 100);
  } else {
    throw std::runtime_error("what is " + what + "?");
  }
}

std::string now() {
  return std::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::filesystem::path folder = argv[1];
  const std::string what = argv[2];
  const int rank = std::stoi(env("RANK").value_or("-1"));
  const auto failed = [](const DistError& error) {
    return fmt::format("{} {} {} {}", now(), to_string(error.code()), error.failure().rank,
                       error.what());
  };
  static const std::vector<char> resident(argc == 3 ? 0 : std::stoull(argv[3]) << 20U, 'r');
  std::string said = "ok";
  try {
    const auto began = std::chrono::steady_clock::now();
    ProcessGroup group = init_process_group(options_of(rank, folder, what));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    if (what == "idle") write(folder / fmt::format("took-{}", rank), std::to_string(took.count()));
    group.barrier();
    write(folder / fmt::format("ready-{}", rank), std::to_string(getpid()));
    try {
      run(group, folder, what);
    } catch (const DistError& error) {
      said = failed(error);     // before the group ends
      if (what == "forming") {  // for the others, too, need the store of rank 0
        write(folder / fmt::format("said-{}", rank), said);
        await(folder / "over", [] {});
      }
    }
  } catch (const DistError& error) {
    said = failed(error);
  } catch (const std::exception& error) {
    said = fmt::format("{} {} {} {}", now(), "error", -1, error.what());
  }
  write(folder / fmt::format("said-{}", rank), said);
  if (said != "ok") std::cerr << said << "\n";
  return said == "ok" ? 0 : 1;
}
