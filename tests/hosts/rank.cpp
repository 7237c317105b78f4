// SPDX-License-Identifier: BSD-3-Clause
// One rank of a job over several hosts that something happens to: hosts-rank FOLDER WHAT. It writes
// its pid into FOLDER/ready-RANK once the group stands, and what came of it into FOLDER/said-RANK:
// "ok", or what failed and when, by the wall clock.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "c10d/env.h"
#include "c10d/init.h"
#include "c10d/process_group.h"

namespace {

using namespace c10d;

constexpr std::size_t kMuch = std::size_t{1} << 21;  // elements: 16 MiB of them

// At once, or not at all.
void write(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path part = path.string() + ".part";
  std::ofstream(part) << text;
  std::filesystem::rename(part, path);
}

void reduce(ProcessGroup& group, std::size_t count) {
  std::vector<std::int64_t> data(count, group.rank() + 1);
  group.all_reduce(data);
  const std::int64_t sum = std::int64_t{group.size()} * (group.size() + 1) / 2;
  for (const std::int64_t element : data)
    if (element != sum) throw std::runtime_error("a wrong result passed as right");
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

void await_failure(const ProcessGroup& group, const std::filesystem::path& over) {
  while (!std::filesystem::exists(over)) {
    if (const auto failure = group.failure()) throw_failure(*failure);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void run(ProcessGroup& group, const std::filesystem::path& folder, const std::string& what) {
  const std::filesystem::path over = folder / "over";
  if (what == "slow") {
    reduce(group, kMuch / 4);
  } else if (what == "idle") {
    await_failure(group, over);
  } else if (what == "small" || what == "large") {
    reduce_until(group, what == "small" ? 1 : std::size_t{8} << 20, over);
  } else if (what == "once") {
    reduce(group, kMuch);
  } else if (what == "late") {
    if (group.rank() + 1 == group.size()) std::this_thread::sleep_for(std::chrono::seconds(3));
    reduce(group, kMuch);
    std::vector<float> data(kMuch, 1);
    group.broadcast(data, 0);
  } else if (what == "mismatch") {  // ranks of the second host make another call
    std::vector<std::int64_t> data(group.rank() * 2 < group.size() ? 4 : 5);
    group.all_reduce(data);
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
  if (argc != 3) return 2;
  const std::filesystem::path folder = argv[1];
  const int rank = std::stoi(env("RANK").value_or("-1"));
  const auto failed = [](const DistError& error) {
    return fmt::format("{} {} {} {}", now(), to_string(error.code()), error.failure().rank,
                       error.what());
  };
  std::string said = "ok";
  try {
    ProcessGroup group = init_process_group();
    group.barrier();
    write(folder / fmt::format("ready-{}", rank), std::to_string(getpid()));
    try {
      run(group, folder, argv[2]);
    } catch (const DistError& error) {
      said = failed(error);  // before the group ends
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
