// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fault/nccl/job.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

#include "c10d/env.h"

namespace c10d::fault {

std::ostream& operator<<(std::ostream& out, const Told& told) {
  return out << told.end << " " << told.step << " after " << told.taken.count()
             << " ms: " << told.error.code << " " << told.error.rank << told.error.what;
}

bool may_have_hosts() { return std::system("unshare --uts true 2>/dev/null") == 0; }

bool on_one_gpu() {
  static const bool one = env("NCCL_HOSTID").has_value();
  return one;
}

NcclJob::NcclJob(int size, const std::string& script, const std::vector<std::string>& settings,
                 Hosts hosts) {
  namespace fs = std::filesystem;
  fs::create_directory(folder_ / "reports");
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path() / "c10d-fault-nccl";
  for (int rank = 0; rank < size; ++rank) {
    std::vector<std::string> command = {"/bin/sh",
                                        "-c",
                                        "exec 2>\"$0\"; exec \"$@\"",
                                        log_file(rank),
                                        "/usr/bin/env",
                                        "FAKE_GPU=watcher = c10d-nccl-watch; " + script,
                                        "FAKE_GPU_RANK=" + std::to_string(rank),
                                        "FAKE_GPU_REPORTS=" + folder_ / "reports"};
    if (on_one_gpu()) command.push_back("NCCL_HOSTID=rank-" + std::to_string(rank));
    command.insert(command.end(), settings.begin(), settings.end());
    if (hosts == Hosts::each_its_own)
      command.insert(command.end(), {"C10D_NET_INTERFACE=lo", "unshare", "--uts", "sh", "-c",
                                     "echo \"$0\" >/proc/sys/kernel/hostname; exec \"$@\"",
                                     "host" + std::to_string(rank)});
    command.insert(command.end(), {program.string(), std::to_string(rank), folder_.path()});
    pids_.push_back(ranks_.emplace_back(command).pid());
  }
  for (int rank = 0; rank < size; ++rank)
    (*this)[rank].tell("device " + std::to_string(on_one_gpu() ? 0 : rank));
  for (const Told& told : hear_all()) EXPECT_TRUE(told.end.starts_with("ok")) << told;
}

std::string NcclJob::log_file(int rank) const { return folder_ / "log." + std::to_string(rank); }

std::string NcclJob::log(int rank) const {
  std::ifstream file(log_file(rank));
  return {std::istreambuf_iterator<char>(file), {}};
}

void NcclJob::tell_all(const std::string& line) {
  for (Child& rank : ranks_) rank.tell(line);
}

std::string NcclJob::init(const std::string& name, std::chrono::milliseconds timeout,
                          int all_but) const {
  std::string line = "init " + name + " " + std::to_string(timeout.count());
  for (int rank = 0; rank < size(); ++rank)
    if (rank != all_but) line += " " + std::to_string(rank);
  return line;
}

Told NcclJob::hear(int rank) {
  Told told;
  told.end = (*this)[rank].hear();
  if (!told.end.starts_with("took")) return told;
  std::istringstream words(told.end);
  std::int64_t taken = 0;
  words >> told.end >> taken;
  std::getline(words, told.step);
  told.taken = std::chrono::milliseconds(taken);
  const std::string line = (*this)[rank].hear();
  told.end = line.substr(0, line.find(' '));
  told.error = parse_error(line);
  return told;
}

std::vector<Told> NcclJob::hear_all() {
  std::vector<Told> all;
  for (int rank = 0; rank < size(); ++rank) all.push_back(hear(rank));
  return all;
}

void NcclJob::expect_errors(const std::string& code, const std::vector<int>& ranks,
                            std::chrono::milliseconds within,
                            const std::vector<std::string>& words) {
  for (const int rank : ranks) {
    const Told told = hear(rank);
    EXPECT_EQ(told.error.code, code) << "rank " << rank << ": " << told;
    EXPECT_LE(told.taken, bound(within)) << "rank " << rank << ": " << told;
    for (const std::string& word : words)
      EXPECT_NE(told.error.what.find(word), std::string::npos)
          << "rank " << rank << " does not say " << word << ": " << told;
  }
}

void NcclJob::expect_ok(const std::string& line) {
  tell_all(line);
  for (int rank = 0; rank < size(); ++rank) {
    const Told told = hear(rank);
    EXPECT_EQ(told.end, "ok " + line) << "rank " << rank << ": " << told << log(rank);
  }
}

std::map<std::string, NcclJob::Calls> NcclJob::calls(int rank) const {
  const std::string name = std::to_string(pids_[static_cast<std::size_t>(rank)]) + ".json";
  std::ifstream file(folder_ / "reports" + "/" + name);
  std::string report{std::istreambuf_iterator<char>(file), {}};
  constexpr std::string_view kKey = "\"calls\":";
  const std::size_t at = report.find(kKey);
  std::map<std::string, Calls> all;
  if (at == std::string::npos) return all;
  report.erase(0, at + kKey.size());
  for (char& c : report)
    if (std::string_view("[],\"}").find(c) != std::string_view::npos) c = ' ';
  std::istringstream rows(report);
  int number = 0;
  for (std::string function, place; rows >> function >> number >> place;)
    (place == "all" ? all[function].count : all[function].first[place]) = number;
  return all;
}

void NcclJob::expect_clean_end(bool all_is_freed) {
  for (int rank = 0; rank < size(); ++rank) EXPECT_EQ((*this)[rank].end(), 0) << log(rank);
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "reports")) {
    std::ifstream file(entry.path());
    const std::string report{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NE(report.find("\"violations\":[]"), report.npos) << report;
    const bool may_leave = !all_is_freed || report.find("\"end\":\"exit\"") == report.npos;
    EXPECT_TRUE(may_leave || report.find("\"left\":{}") != report.npos) << report;
  }
}

}  // namespace c10d::fault
