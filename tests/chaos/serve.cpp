// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/chaos/rank.h"

namespace c10d::chaos {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::int32_t entries_of(const char* folder) {
  return static_cast<std::int32_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

// What this process has in its hands.
Held held() {
  Held all{entries_of("/proc/self/fd"), entries_of("/proc/self/task"), 0};
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    all.mappings += line.find("memfd:c10d") != line.npos ? 1 : 0;
  return all;
}

// A wrapped library may close a little later.
Held held_in_the_end(const Held& before) {
  const std::int64_t end = steady_now() + 3'000'000'000;
  for (;;) {
    const Held now = held();
    if ((now.descriptors <= before.descriptors && now.threads <= before.threads &&
         now.mappings <= before.mappings) ||
        steady_now() >= end)
      return now;
    usleep(2000);
  }
}

// What a process has only one of is there afterwards.
void warm_up(const Place& place, int rank) {
  const auto store = make_file_store(place.folder + "/warm", place.ranks, seconds(60));
  ProcessGroup world = init_process_group({.backend = place.backend,
                                           .store = store,
                                           .rank = rank,
                                           .size = place.ranks,
                                           .timeout = seconds(60),
                                           .name = "warm"});
  ProcessGroup group = world.split(0);
  const auto memory = group.allocate<std::uint8_t>(4096);
  std::vector<float> data(8, 1);
  group.async().all_reduce(data).wait();
  const int peer = (rank + 1) % place.ranks, other = (rank + place.ranks - 1) % place.ranks;
  std::vector<float> received(8);
  const Work message = group.irecv(received, other);
  message.on_done([](const Failure*) {});  // not done yet, so that the thread of callbacks starts
  group.barrier();
  group.isend(data, peer).wait();
  message.wait();
  group.barrier();
}

void set_state(Board& board, RankBoard& mine, RankState state) {
  mine.state = state;
  ++board.news;
  wake(board.news);
}

void plant_at_end(Plant plant, const std::string& folder) {
  if (plant == Plant::leak)
    for (int i = 0; i < 3; ++i) static_cast<void>(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (plant == Plant::file) {
    const std::string name = "/dev/shm/" + planted_name(folder) + std::to_string(getpid());
    close(open(name.c_str(), O_CREAT | O_CLOEXEC, 0600));
  }
  if (plant == Plant::orphan && fork() == 0)
    while (true) pause();
}

// Until the driver says something else than `phase`; it ends this process where that takes too
// long.
void await_change(const Board& board, std::uint32_t phase) {
  while (board.phase == phase) wait_while(board.phase, phase, milliseconds(1000));
}

}  // namespace

std::string board_path(const std::string& folder) { return folder + "/board"; }

std::string planted_name(const std::string& folder) {
  const std::string any = "c10d-chaos-planted-";
  return folder.empty() ? any : any + std::filesystem::path(folder).filename().string() + "-";
}

void serve(const Place& place, int rank) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_DUMPABLE, 1);
  const BoardFile file(board_path(place.folder), false);
  Board& board = *file;
  RankBoard& mine = board.ranks[rank];
  mine.pid = getpid();
  warm_up(place, rank);
  std::uint32_t phase = board.phase;
  set_state(board, mine, RankState::idle);
  while (true) {
    await_change(board, phase);
    if (board.over) return;
    phase = board.phase;
    set_state(board, mine, RankState::running);
    const Plan plan = draw(place.backend, board.seed);
    mine.before = held();
    {
      CaseRank one(board, place, plan, rank);
      one.run();
      set_state(board, mine, RankState::settled);
      await_change(board, phase);
      phase = board.phase;
      one.end();
    }
    if (rank == plan.ranks - 1) plant_at_end(board.plant, place.folder);
    mine.after = held_in_the_end(mine.before);
    set_state(board, mine, RankState::idle);
  }
}

}  // namespace c10d::chaos
