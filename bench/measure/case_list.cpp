// SPDX-License-Identifier: BSD-3-Clause
#include "bench/measure/case_list.h"

#include <fmt/format.h>

#include <algorithm>

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
// rank need not be more than that either.
std::uint64_t rotation_bytes(int ranks) {
  const std::uint64_t all = 2 * last_level_bytes();
  return std::min(
      all, all * static_cast<std::uint64_t>(numa_nodes()) / static_cast<std::uint64_t>(ranks));
}

}  // namespace

std::vector<Case> cases_of(const CaseOptions& options, int ranks) {
  Sweep sweep = options.sweep;
  if (options.all_roots)
    for (int root = 0; root < ranks; ++root) sweep.roots.push_back(root);
  if (!sweep.roots.empty() && sweep.roots.front() >= ranks)
    throw InvalidArgument(fmt::format("--root {}: there are {} ranks", sweep.roots.front(), ranks));
  std::vector<Case> cases = expand(sweep, ranks);
  if (cases.empty()) throw_nothing(sweep);
  std::erase_if(cases, [&](const Case& c) { return !is_kept(options.only, c); });
  if (cases.empty()) throw InvalidArgument("--only: no such cell among those of these options");
  for (Case& c : cases)
    if (c.cache == Cache::rotate) c.walk = rotation_bytes(ranks);
  return cases;
}

}  // namespace c10d::bench
