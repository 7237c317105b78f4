// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fault/job.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace c10d { namespace {

C10D_SKIP_OTHER_BACKENDS();

}}  // namespace c10d

namespace c10d::fault {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
namespace fs = std::filesystem;

std::set<std::string> entries(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) names.insert(entry.path());
  return names;
}

// Other programs come and go meanwhile: only what bears our names counts.
std::set<std::string> of_ours(const fs::path& folder) {
  std::set<std::string> names = entries(folder);
  std::erase_if(names, [](const std::string& name) {
    return fs::path(name).filename().string().find("c10d") == std::string::npos;
  });
  return names;
}

constexpr const char* kOtherRank = "other";  // than the one with the trap

std::string g_temporary_folder;

}  // namespace

const std::string& temporary_folder() { return g_temporary_folder; }

Job::Job(const std::string& backend, int size, Rendezvous rendezvous) {
  std::string place = "file:" + folder_ / "store";
  if (rendezvous == Rendezvous::store_process) {
    store_.emplace_back(std::vector<std::string>{C10D_FAULT_RANK, "store"});
    place = "tcp:" + store_.front().hear();
  }
  start(backend, size, place, {});
  for (Child& rank : ranks_) EXPECT_EQ(rank.hear(), "ready");
}

Job::Job(const std::string& backend, int size, const Trap& trap) {
  start(backend, size, "file:" + folder_ / "store", trap);
}

void Job::start(const std::string& backend, int size, const std::string& place, const Trap& trap) {
  for (int rank = 0; rank < size; ++rank)
    ranks_.emplace_back(std::vector<std::string>{
        C10D_FAULT_RANK, "serve", backend, std::to_string(rank), std::to_string(size), place,
        trap.how.empty() || rank == trap.rank ? trap.how : kOtherRank});
}

void Job::tell_all_but(int rank, const std::string& line) {
  for (int i = 0; i < size(); ++i)
    if (i != rank) (*this)[i].tell(line);
}

std::vector<Heard> Job::errors_of_all_but(int rank) {
  std::vector<Heard> errors;
  for (int i = 0; i < size(); ++i)
    if (i != rank) errors.push_back(parse_error((*this)[i].hear_of("error")));
  return errors;
}

void Job::expect_ok_from_all() {
  for (Child& rank : ranks_) EXPECT_EQ(rank.hear(), "ok");
}

void Job::expect_no_named_memory() const {
  for (const Child& rank : ranks_) {
    std::ifstream maps("/proc/" + std::to_string(rank.pid()) + "/maps");
    for (std::string line; std::getline(maps, line);)
      EXPECT_EQ(line.find("/dev/shm/"), std::string::npos) << line;
  }
}

void Job::kill_store() {
  store_.front().signal(SIGKILL);
  store_.clear();
}

double load_factor() {
  static const double factor = [] {
    constexpr milliseconds kSlow{1000};
    const auto start = steady_clock::now();
    const Job job("native", 4);
    const std::chrono::duration<double> taken = steady_clock::now() - start;
    return std::max(1.0, taken / kSlow);
  }();
  return factor;
}

milliseconds bound(milliseconds quiet) {
  return std::chrono::duration_cast<milliseconds>(quiet * load_factor());
}

void Clean::SetUp() {
  static const std::string above = testing::TempDir();  // before TMPDIR is ours
  g_temporary_folder = above + "/c10d-fault-XXXXXX";
  ASSERT_NE(mkdtemp(g_temporary_folder.data()), nullptr);
  setenv("TMPDIR", g_temporary_folder.c_str(), 1);
  load_factor();
  descriptors_ = entries("/proc/self/fd");
  shared_memory_ = of_ours("/dev/shm");
}

void Clean::TearDown() {
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
  EXPECT_EQ(entries("/proc/self/fd").size(), descriptors_.size());
  EXPECT_EQ(of_ours("/dev/shm"), shared_memory_);
  EXPECT_EQ(entries(g_temporary_folder), std::set<std::string>());
  fs::remove_all(g_temporary_folder);
}

std::vector<std::string> mpi_launchers() {
  std::vector<std::string> all;
  std::istringstream words(C10D_MPI_LAUNCHERS);
  for (std::string word; words >> word;) all.push_back(word);
  return all;
}

std::string flavour_of(const testing::TestParamInfo<std::string>& info) {
  const std::string ending = fs::path(info.param).extension().string();
  return ending.empty() ? info.param : ending.substr(1);
}

}  // namespace c10d::fault
