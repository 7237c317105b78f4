// SPDX-License-Identifier: BSD-3-Clause
#include "bench/cli/other_spellings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "bench/text/format.h"
#include "c10d/error.h"

namespace c10d::bench {
namespace {

constexpr std::string_view kRankCount = "-n N sets the number of ranks, one process each";
constexpr std::string_view kSizeRange = "-b MIN -e MAX sets the sizes";
constexpr std::string_view kNewProcesses =
    "--launches N starts processes anew, --blocks N measures again in the same ones";
constexpr std::string_view kSlowestRank =
    "times are always those of the slowest rank; leave it out";
constexpr std::string_view kCpuTime =
    "with --device cuda the column cpu is there anyway; leave it out";
constexpr std::string_view kOwnStream =
    "ops on GPUs are on a stream of the rank's own; leave it out";
constexpr std::string_view kFreeMemory =
    "a run that needs more than the free memory is refused anyway";
constexpr std::string_view kRegistered = "--memory heap registers the buffers";
constexpr std::string_view kAlwaysWaits =
    "each rank waits for each op; --sync says how ops follow each other";

constexpr auto kOtherSpellings = std::to_array<OtherSpelling>({
    {"--minbytes", "--min", ""},
    {"--maxbytes", "--max", ""},
    {"--stepfactor", "--factor", ""},
    {"--stepbytes", "--step", ""},
    {"--iterations", "--iters", ""},
    {"--warmup-iters", "--warmup", ""},
    {"-x", "--warmup", ""},
    {"--datatype", "--dtype", ""},
    {"--op", "--redop", ""},
    {"--window-size", "--window", ""},
    {"-W", "--window", ""},
    {"--output-file", "--json", ""},
    {"-J", "--json", ""},
    {"--backend", "--backends", ""},
    {"-g", "", kRankCount},
    {"--ngpus", "", kRankCount},
    {"-t", "", kRankCount},
    {"--nthreads", "", kRankCount},
    {"-m", "", kSizeRange},  // but -m MIN:MAX is taken
    {"--message-size", "", kSizeRange},
    {"--agg-iters", "", "--sync loop, the default, starts each op right after the one before"},
    {"-N", "", kNewProcesses},
    {"--run-cycles", "", kNewProcesses},
    {"-T", "", "--timeout TIME is the deadline of an operation, -d NAME the dtype"},
    {"-p", "", "all ranks start at the same time; leave it out"},
    {"--parallel-init", "", "all ranks start at the same time; leave it out"},
    {"-z", "", kAlwaysWaits},
    {"--blocking", "", kAlwaysWaits},
    {"-y", "", kOwnStream},
    {"--stream-null", "", kOwnStream},
    {"-a", "", kSlowestRank},
    {"--average", "", kSlowestRank},
    {"-C", "", kCpuTime},
    {"--report-cputime", "", kCpuTime},
    {"-R", "", kRegistered},
    {"--local-register", "", kRegistered},
    {"-M", "", kFreeMemory},
    {"--mem-limit", "", kFreeMemory},
    {"--cudagraph", "", "-G N is the number of ops in a CUDA graph"},
    {"-u", "", "--check says when results are compared"},
    {"--validation", "", "--check says when results are compared"},
    {"--full", "", "the table has p90, p99 and max anyway; leave it out"},
});

using Names = std::pair<std::string_view, std::string_view>;
constexpr auto kOtherDTypes = std::to_array<Names>({
    {"double", "f64"},
    {"float64", "f64"},
    {"float", "f32"},
    {"float32", "f32"},
    {"half", "f16"},
    {"float16", "f16"},
    {"bfloat16", "bf16"},
    {"int64", "i64"},
    {"int32", "i32"},
    {"int", "i32"},
    {"int16", "i16"},
    {"int8", "i8"},
    {"char", "i8"},
    {"uint64", "u64"},
    {"uint32", "u32"},
    {"uint16", "u16"},
    {"uint8", "u8"},
    {"byte", "u8"},
    {"complex64", "c64"},
    {"complex128", "c128"},
    {"float8_e4m3fn", "f8e4m3"},
    {"float8_e5m2", "f8e5m2"},
});
constexpr auto kOtherRedOps = std::to_array<Names>({{"mulsum", "premul_sum"}});

std::string_view ours_of(std::string_view name, std::span<const Names> names) {
  const auto found = std::ranges::find(names, name, &Names::first);
  return found == names.end() ? name : found->second;
}

bool is_short(std::string_view argument) {
  return argument.size() > 1 && argument[0] == '-' && argument[1] != '-';
}

// "-i 1M" of nccl-tests is a step of sizes.
void refuse_step(std::string_view value) {
  if (!parse_bytes(value) || value.find_first_not_of("0123456789") == std::string_view::npos)
    return;
  throw InvalidArgument(fmt::format(
      "-i {0}: -i is the number of iterations; --step {0} sets the step of sizes", value));
}

}  // namespace

std::span<const OtherSpelling> other_spellings() { return kOtherSpellings; }

std::vector<std::string> in_our_spelling(const std::vector<std::string>& arguments,
                                         bool (*wants_value)(const std::string&)) {
  std::vector<std::string> ours;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const std::size_t end = std::min(is_short(argument) ? 2 : argument.find('='), argument.size());
    const std::string name = argument.substr(0, end);
    std::string rest = argument.substr(end);  // "=8" or, of one letter, "8"
    const auto found = std::ranges::find(kOtherSpellings, name, &OtherSpelling::theirs);
    if (found == kOtherSpellings.end()) {
      ours.push_back(argument);
      if (!wants_value(argument) || i + 1 == arguments.size()) continue;
      ours.push_back(arguments[++i]);
      if (argument == "-i") refuse_step(ours.back());
      continue;
    }
    if (name == "-m" || name == "--message-size") {
      if (rest.starts_with('=')) rest.erase(0, 1);
      if (rest.empty() && i + 1 < arguments.size()) rest = arguments[++i];
      if (const std::size_t colon = rest.find(':'); colon != std::string::npos) {
        if (rest.find(':', colon + 1) != std::string::npos)
          throw InvalidArgument(fmt::format("{}: {} is not MIN:MAX", name, rest));
        ours.insert(ours.end(), {"--min", rest.substr(0, colon), "--max", rest.substr(colon + 1)});
        continue;
      }
    }
    if (found->ours.empty())
      throw InvalidArgument(fmt::format("there is no option {}: {}", name, found->instead));
    const bool joins = !rest.empty() && !rest.starts_with('=');
    ours.push_back(fmt::format("{}{}{}", found->ours, joins ? "=" : "", rest));
    if (rest.empty() && i + 1 < arguments.size()) ours.push_back(arguments[++i]);
  }
  return ours;
}

DType dtype_of(std::string_view name) { return dtype_from_string(ours_of(name, kOtherDTypes)); }

ReduceOp::Kind redop_of(std::string_view name) {
  return reduce_op_from_string(ours_of(name, kOtherRedOps));
}

}  // namespace c10d::bench
