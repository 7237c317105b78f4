// SPDX-License-Identifier: BSD-3-Clause
#include "bench/commands/tune.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "bench/commands/native_probe.h"
#include "bench/measure/machine.h"
#include "bench/model/record.h"
#include "bench/run/controller.h"
#include "c10d/env.h"
#include "c10d/spi/plan.h"

namespace c10d::bench {
namespace {

constexpr std::uint64_t kSizes[] = {256, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20};
constexpr std::uint64_t kLargest = 16 << 20;
constexpr std::uint64_t kMixedFrom = 1 << 20;
constexpr double kSeconds = 0.004;  // of one size
constexpr double kLongUs = 2000;    // what takes longer grows with the bytes

bool is_planned(BenchOp op) { return op != BenchOp::barrier && op < BenchOp::send; }

class Tuning {
 public:
  int run() {
    if (probe_.is_root()) find_folder();
    std::size_t done = 0;
    const std::size_t all = names(false).size() + names(true).size();
    for (const bool registered : {false, true}) {
      for (const std::string& name : names(registered)) {
        measure(name, registered);
        if (probe_.is_root())
          fmt::print(stderr, "{}/{} {}{}\n", ++done, all, name,
                     registered ? " on registered memory" : "");
      }
    }
    return probe_.is_root() ? write() : 0;
  }

 private:
  // Before anything is measured: that takes minutes.
  void find_folder() {
    if (is_between_hosts(detect_launch()))
      throw InvalidArgument("tune: plans are of the ranks of one host; start it there with -n");
    path_ = report(BenchOp::all_reduce, false).path;
    if (path_.empty())
      throw InvalidArgument("set XDG_CACHE_HOME or HOME: there is no folder for the tuning");
    const std::filesystem::path folder = path_.parent_path();
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error || access(folder.c_str(), W_OK) != 0)
      throw InvalidArgument(
          fmt::format("{}: {}; set XDG_CACHE_HOME to a folder that can be written", folder.string(),
                      error ? error.message() : std::strerror(errno)));
  }
  PlanReport report(BenchOp op, bool registered) {
    return probe_.control().plan({facts_of(op).kind, DType::f32, 1 << 20, registered});
  }
  // The same on every rank.
  std::set<std::string> names(bool registered) {
    std::set<std::string> all;
    for (const OpFacts& facts : op_facts())
      for (const PlanOption& option : report(facts.op, registered).options)
        if (is_planned(facts.op) && (!registered || is_direct(option.name)))
          all.insert(option.name);
    return all;
  }
  static bool is_direct(const std::string& name) {
    return name.starts_with("pull") || name.starts_with("push");
  }
  bool applies(BenchOp op, const std::string& name, bool registered) {
    const auto options = report(op, registered).options;
    return std::any_of(options.begin(), options.end(),
                       [&](const PlanOption& option) { return option.name == name; });
  }

  void measure(const std::string& name, bool registered) {
    probe_.open(name, registered, kLargest);
    for (const OpFacts& facts : op_facts()) {
      if (!is_planned(facts.op) || !applies(facts.op, name, registered)) continue;
      curve(facts, name, registered, DType::f32);
      if (is_reduction(facts.kind)) curve(facts, name, registered, DType::bf16);
    }
  }

  void curve(const OpFacts& facts, const std::string& name, bool registered, DType dtype) {
    Json row{{"op", facts.name}, {"choice", name}, {"half", dtype == DType::bf16}};
    for (const std::uint64_t bytes : kSizes) {
      // Only large results tell it from its temporal twin.
      if (bytes < kMixedFrom && name.find("/mixed") != name.npos) continue;
      const double us = std::max(1e-3, probe_.measure(facts.op, dtype, bytes, kSeconds));
      row["bytes"].push_back(bytes);
      row["us"].push_back(us);
      if (us > kLongUs) break;
    }
    // What goes through staging costs the same wherever the memory lies.
    for (const bool place : {false, true}) {
      if (place != registered && is_direct(name)) continue;
      row["registered"] = place;
      curves_.push_back(row);
    }
  }

  int write() {
    const PlanReport about = report(BenchOp::all_reduce, false);
    // Somebody else may tune for the same group.
    const std::filesystem::path fresh = fmt::format("{}.{}", path_.string(), getpid());
    {
      std::ofstream file(fresh, std::ios::binary);
      Json all{{"fingerprint", about.fingerprint}, {"curves", curves_}};
      file << all.dump() << '\n';
      if (!file.flush())
        throw InvalidArgument(fmt::format("{}: cannot be written", fresh.string()));
    }
    std::filesystem::rename(fresh, path_);
    fmt::print("{}\n{} curves in {}\n", about.fingerprint, curves_.size(), about.path);
    return 0;
  }

  Probe probe_;
  std::vector<Json> curves_;
  std::filesystem::path path_;  // on rank 0
};

}  // namespace

int run_tune(int asked, const std::vector<std::string>& argv) {
  const int ranks = ranks_to_probe(asked);
  refuse_beyond_memory(ranks, kLargest);
  if (detect_launch().launcher == "none") return launch_self(argv, ranks);
  return Tuning().run();
}

}  // namespace c10d::bench
