// SPDX-License-Identifier: BSD-3-Clause
#include "bench/measure/case_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/measure/gpu.h"
#include "bench/measure/machine.h"
#include "c10d/error.h"

namespace c10d::bench {
namespace {

bool is_kept(const std::vector<CellFilter>& only, const Case& c) {
  return only.empty() || std::any_of(only.begin(), only.end(), [&](const CellFilter& filter) {
           return filter.bytes == c.bytes && (!filter.op || *filter.op == c.op);
         });
}

[[noreturn]] void throw_nothing(const Sweep& sweep) {
  std::string_view why;
  for (const DType dtype : sweep.dtypes)
    for (const ReduceOp::Kind redop : sweep.redops)
      for (const BenchOp op : sweep.ops)
        if (why.empty()) why = why_unsupported(facts_of(op).kind, redop, dtype);
  throw InvalidArgument(fmt::format("nothing to measure: {}",
                                    why.empty() ? "no case is left of these options" : why));
}

// Together the ranks' buffers are more than twice what the last-level caches hold; those of one
// rank need not be more than that either. On a GPU it is those of one rank.
std::uint64_t rotation_bytes(int ranks, bool cuda) {
  if (cuda) return beyond_l2_bytes();
  const std::uint64_t all = 2 * last_level_bytes();
  return std::min(
      all, all * static_cast<std::uint64_t>(numa_nodes()) / static_cast<std::uint64_t>(ranks));
}

}  // namespace

std::vector<Case> cases_of(const CaseOptions& options, int ranks) {
  Sweep sweep = options.sweep;
  if (sweep.last_level > 0 && options.cuda) sweep.last_level = beyond_l2_bytes() / 4;
  if (options.all_roots)
    for (int root = 0; root < ranks; ++root) sweep.roots.push_back(root);
  if (!sweep.roots.empty() && sweep.roots.front() >= ranks)
    throw InvalidArgument(fmt::format("--root {}: there are {} ranks", sweep.roots.front(), ranks));
  std::vector<Case> cases = expand(sweep, ranks);
  if (cases.empty()) throw_nothing(sweep);
  std::erase_if(cases, [&](const Case& c) { return !is_kept(options.only, c); });
  if (cases.empty()) throw InvalidArgument("--only: no such cell among those of these options");
  for (Case& c : cases)
    if (c.cache == Cache::rotate) c.walk = rotation_bytes(ranks, options.cuda);
  return cases;
}

std::string rounding_note(const CaseOptions& options, int ranks) {
  constexpr std::size_t kTold = 3;
  std::vector<std::string> told;
  std::size_t more = 0;
  if (!options.only.empty()) return "";  // these are as they were measured
  for (const BenchOp op : options.sweep.ops) {
    if (op == BenchOp::barrier) continue;
    for (const DType dtype : options.sweep.dtypes)
      for (const std::uint64_t size : options.sweep.sizes) {
        const std::uint64_t measured = whole_bytes(op, dtype, ranks, size);
        if (measured == size) continue;
        if (told.size() == kTold)
          ++more;
        else
          told.push_back(fmt::format("{} B of {} {} is {} B", size, facts_of(op).name,
                                     to_string(dtype), measured));
      }
  }
  if (told.empty()) return "";
  return fmt::format("S is whole elements on each rank: {}{}", fmt::join(told, ", "),
                     more == 0 ? "" : fmt::format(", and {} more", more));
}

}  // namespace c10d::bench
