// SPDX-License-Identifier: BSD-3-Clause
// One rank of a fault test, as a process: c10d-fault-rank serve|mismatch|store ...
// It dies with its parent, whatever happens to that.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstring>
#include <iostream>
#include <sstream>
#include <thread>

#include "c10d/env.h"
#include "c10d/init.h"
#include "tests/fault/mismatch.h"
#include "tests/fault/mpi_trap.h"
#include "tests/fault/reuse.h"
#include "tests/fault/say.h"
#include "tests/fault/trap_store.h"

namespace c10d::fault { namespace {

// "file:/path" or "tcp:port".
std::shared_ptr<Store> store_at(const std::string& place, int size) {
  const std::string rest = place.substr(place.find(':') + 1);
  if (place.starts_with("file:")) return make_file_store(rest, size, kRankTimeout);
  return make_tcp_store(
      {.port = static_cast<std::uint16_t>(std::stoi(rest)), .timeout = kRankTimeout});
}

// Runs ops one after the other in a thread of their own, so that the main thread can still abort.
class Server {
 public:
  explicit Server(ProcessGroup& group) : group_(group) {}

  void run() {
    std::string line;
    while (std::getline(std::cin, line)) {
      std::istringstream words(line);
      std::string command;
      words >> command;
      if (command == "abort") {
        group_.abort("told to");
        say("aborted");
      } else {
        finish();
        obey(command, words);
      }
    }
    finish();
  }

 private:
  void obey(const std::string& command, std::istringstream& words) {
    if (command == "all_reduce" || command == "async" || command == "loop") {
      std::size_t count = 0;
      std::int64_t milliseconds = 0;
      words >> count >> milliseconds;
      CallOptions options;
      if (milliseconds > 0) options.timeout = std::chrono::milliseconds(milliseconds);
      op_ =
          std::thread([this, count, options, loop = command == "loop", async = command == "async"] {
            guarded([&] {
              say("calling");
              do {
                all_reduce(count, async, options);
                say("ok");
              } while (loop);
            });
          });
    } else if (command == "recv") {
      int peer = 0;
      words >> peer;
      op_ = std::thread([this, peer] {
        guarded([&] {
          say("calling");
          float element = 0;
          group_.recv(std::span(&element, 1), peer);
          say("ok");
        });
      });
    } else if (command == "monitored_barrier") {
      op_ = std::thread([this] {
        guarded([&] {
          say("calling");
          group_.monitored_barrier();
          say("ok");
        });
      });
    } else if (command == "allocate") {
      std::size_t count = 0;
      words >> count;
      guarded([&] {
        group_.allocate<float>(count);
        say("ok");
      });
    } else if (command == "new_groups" || command == "allocations") {
      std::int64_t milliseconds = 0;
      words >> milliseconds;
      group_.set_timeout(std::chrono::milliseconds(milliseconds));
      guarded([&] { command == "new_groups" ? make_groups() : make_buffers(); });
    } else if (command == "hold") {
      std::size_t mebibytes = 0;
      words >> mebibytes;
      held_.assign(mebibytes << 20, 1);
      say("holding");
    } else if (command == "shutdown") {
      guarded([&] {
        group_.shutdown();
        say("left");
      });
    } else if (command == "exit") {
      std::exit(0);
    } else {
      say("what is " + command + "?");
    }
  }

  // For ever: what ends it is an error.
  void make_groups() {
    std::vector<int> ranks;
    for (int rank = 0; rank < group_.size(); ++rank) ranks.push_back(rank);
    for (int i = 0;; ++i) group_.new_group(ranks, std::to_string(i)).barrier();
  }
  void make_buffers() {
    while (true) {
      const Buffer<float> buffer = group_.allocate<float>(1000);
      all_reduce(1000, false, {});
    }
  }

  void all_reduce(std::size_t count, bool async, const CallOptions& options) {
    std::vector<float> data(count, static_cast<float>(group_.rank() + 1));
    if (async)
      group_.async().all_reduce(data, options).wait();
    else
      group_.all_reduce(data, options);
    const int sum = group_.size() * (group_.size() + 1) / 2;
    for (const float element : data)
      if (element != static_cast<float>(sum))
        throw std::runtime_error("a wrong result passed as right");
  }

  template <class Task>
  void guarded(const Task& task) {
    try {
      task();
    } catch (const std::exception& error) {
      say_error(error);
    }
  }

  void finish() {
    if (op_.joinable()) op_.join();
  }

  ProcessGroup& group_;
  std::thread op_;
  std::vector<char> held_;
};

int serve(const std::string& backend, int rank, int size, const std::string& place,
          const std::string& trap) {
  // Whoever waits for a rank in a trap is told, or else does not answer.
  const Duration timeout = trap.empty() ? Duration(kRankTimeout) : std::chrono::hours(1);
  std::shared_ptr<Store> store = store_at(place, size);
  store->set_timeout(timeout);
  if (trap.starts_with("die") || trap.starts_with("exec") || trap.starts_with("throw"))
    store = make_trap_store(std::move(store), trap);
  ProcessGroup group = init_process_group({.backend = backend,
                                           .store = std::move(store),
                                           .rank = rank,
                                           .size = size,
                                           .timeout = timeout});
  say("ready");
  Server(group).run();
  return 0;
}

int check_mismatches(const std::string& backend, int rank, int size, const std::string& place) {
  ProcessGroup group = init_process_group({.backend = backend,
                                           .store = store_at(place, size),
                                           .rank = rank,
                                           .size = size,
                                           .timeout = kRankTimeout});
  for (const MismatchRow& row : mismatch_rows()) say(call_mismatched(group, row));
  const int rounds = backend == "mpi" ? 200 : 50;  // where it went wrong: once in a hundred
  if (call_mismatched_with_more_queued(group, rounds) != rounds) return 1;
  group.barrier();
  return 0;
}

// All wait until each has said its part: MPI's launcher ends them with the first.
int check_reuse(const std::string& backend, int rank, const std::string& place, int rounds) {
  const std::shared_ptr<Store> store = store_at(place, kReuseRanks);
  try {
    ProcessGroup world = init_process_group({.backend = backend,
                                             .store = store,
                                             .rank = rank,
                                             .size = kReuseRanks,
                                             .timeout = kRankTimeout});
    say(reuse_after_failures(world, rounds));
  } catch (const std::exception& error) {
    say_error(error);
  }
  store->set("said/" + std::to_string(rank), "");
  store->wait(std::vector<std::string>{"said/0", "said/1", "said/2"});
  return 0;
}

// A world and a subgroup under MPI's launcher, which ends all ranks with the first that does not
// end as MPI wants: so all wait until each has said its part. `victim` walks into the trap.
int make_on_mpi(const std::string& place, const std::string& output, int victim,
                const std::string& trap) {
  const LaunchInfo launch = detect_launch();
  redirect(output + "." + std::to_string(launch.rank));
  if (launch.rank == victim) set_mpi_trap(trap);
  const std::shared_ptr<Store> store = store_at(place, launch.size);
  try {
    ProcessGroup world = init_process_group({.backend = "mpi",
                                             .store = store,
                                             .rank = launch.rank,
                                             .size = launch.size,
                                             .timeout = kRankTimeout});
    say("ready");
    const ProcessGroup reversed = world.new_group(std::vector{2, 1, 0});
    say("ready");
  } catch (const std::exception& error) {
    say_error(error);
  }
  std::vector<std::string> all;
  for (int rank = 0; rank < launch.size; ++rank)
    if (rank != victim || trap != "exit") all.push_back("said/" + std::to_string(rank));
  store->set("said/" + std::to_string(launch.rank), "");
  store->wait(all);
  return 0;
}

// One rank stops where the trap says: the others say with which error their part of it ends, and
// how it is called; what they log goes where they say it.
int be_held_on_mpi(const std::string& place, const std::string& output, int victim,
                   const std::string& trap, std::chrono::milliseconds timeout) {
  const LaunchInfo launch = detect_launch();
  redirect(output + "." + std::to_string(launch.rank), true);
  say("pid " + std::to_string(getpid()));
  if (launch.rank == victim) set_mpi_trap(trap);
  const std::shared_ptr<Store> store = store_at(place, launch.size);
  const bool whole = trap == "MPI_Init_thread" || trap == "MPI_Finalize";
  try {
    ProcessGroup world = init_process_group({.backend = "mpi",
                                             .store = store,
                                             .rank = launch.rank,
                                             .size = launch.size,
                                             .timeout = whole ? timeout : kRankTimeout});
    world.set_timeout(timeout);
    if (trap == "MPI_Comm_create_group") world.new_group(std::vector{2, 1, 0});
    const bool large = trap == "MPI_Iallreduce";
    std::vector<float> data(large ? 1 << 20 : 2, 1);
    if (large) world.all_reduce(data);
    if (trap == "MPI_Allreduce") world.async().all_reduce(data).wait();
  } catch (const std::exception& error) {
    say_error(error);
  }
  say("over");
  std::vector<std::string> all;
  for (int rank = 0; rank < launch.size; ++rank)
    if (rank != victim || trap == "MPI_Finalize") all.push_back("over/" + std::to_string(rank));
  store->set("over/" + std::to_string(launch.rank), "");
  store->wait(all);
  return 0;
}

int keep_store() {
  const auto store = make_tcp_store({.server = true, .timeout = kRankTimeout});
  say(std::to_string(store->port()));
  std::string line;
  std::getline(std::cin, line);
  return 0;
}

int run(const std::vector<std::string>& arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string& mode = arguments.at(0);
  if (mode == "store") return keep_store();
  if (mode == "serve")
    return serve(arguments.at(1), std::stoi(arguments.at(2)), std::stoi(arguments.at(3)),
                 arguments.at(4), arguments.at(5));
  if (mode == "mismatch")
    return check_mismatches(arguments.at(1), std::stoi(arguments.at(2)), std::stoi(arguments.at(3)),
                            arguments.at(4));
  if (mode == "reuse")
    return check_reuse(arguments.at(1), std::stoi(arguments.at(2)), arguments.at(3),
                       std::stoi(arguments.at(4)));
  if (mode == "reuse-on-mpi") {
    const int rank = detect_launch().rank;
    redirect(arguments.at(1) + "." + std::to_string(rank));
    return check_reuse("mpi", rank, arguments.at(2), std::stoi(arguments.at(3)));
  }
  if (mode == "make-on-mpi")
    return make_on_mpi(arguments.at(1), arguments.at(2), std::stoi(arguments.at(3)),
                       arguments.at(4));
  if (mode == "held-on-mpi")
    return be_held_on_mpi(arguments.at(1), arguments.at(2), std::stoi(arguments.at(3)),
                          arguments.at(4), std::chrono::milliseconds(std::stoi(arguments.at(5))));
  if (mode ==
      "mismatch-in-file") {  // rank and size from the launcher, one file per rank for output
    const LaunchInfo launch = detect_launch();
    redirect(arguments.at(3) + "." + std::to_string(launch.rank));
    return check_mismatches(arguments.at(1), launch.rank, launch.size, arguments.at(2));
  }
  throw std::invalid_argument("unknown mode " + mode);
}

}}  // namespace c10d::fault

int main(int argc, char** argv) try {
  return c10d::fault::run({argv + 1, argv + argc});
} catch (const std::exception& error) {
  c10d::fault::say_error(error);
  return 1;
}
