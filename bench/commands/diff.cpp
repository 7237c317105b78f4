// SPDX-License-Identifier: BSD-3-Clause
#include "bench/commands/diff.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/analyse/run_diff.h"
#include "bench/text/format.h"
#include "c10d/error.h"

namespace c10d::bench {
namespace {

Results results_of(const std::string& file) {
  Results results;
  read_results(file, results);
  return results;
}

std::string name_of(const CellDiff& cell) {
  std::string name = cell.key.op;
  for (const std::string& part : {cell.key.dtype, cell.key.redop, cell.key.place})
    if (!part.empty()) name += " " + part;
  if (cell.key.root >= 0) name += fmt::format(" root {}", cell.key.root);
  if (cell.key.cache != "hot") name += " " + cell.key.cache;
  if (cell.key.concurrent != 1) name += fmt::format(" x{}", cell.key.concurrent);
  return name;
}

void print_cells(const RunDiff& diff) {
  std::size_t widest = 2;
  for (const CellDiff& cell : diff.cells) widest = std::max(widest, name_of(cell).size());
  fmt::print("{:<{}}  {:<10}  {:>8}  {:>9}  {:>9}  {:<22}  {}\n", "op", widest, "backend", "S",
             "old us", "new us", "new / old [95% CI]", "verdict");
  for (const CellDiff& cell : diff.cells)
    fmt::print("{:<{}}  {:<10}  {:>8}  {:>9}  {:>9}  {:<22}  {}\n", name_of(cell), widest,
               cell.backend, cell.key.bytes == 0 ? "-" : bytes_text(cell.key.bytes),
               microseconds_text(cell.old_us.value), microseconds_text(cell.new_us.value),
               ratio_text(cell.ratio), to_string(cell.verdict));
}

}  // namespace

int print_diff(const DiffOptions& options) {
  const Results old_run = results_of(options.old_file), new_run = results_of(options.new_file);
  const double equiv = old_run.run.is_object() ? old_run.run.value("equiv", 0.02) : 0.02;
  const RunDiff diff = diff_runs(old_run, new_run, equiv);
  if (diff.cells.empty())
    throw InvalidArgument(
        fmt::format("diff: {} and {} have no cell in common", options.old_file, options.new_file));
  for (const FactDiff& fact : diff.facts)
    fmt::print("{}: {} -> {}\n", fact.name, fact.old_text.empty() ? "-" : fact.old_text,
               fact.new_text.empty() ? "-" : fact.new_text);
  if (!diff.facts.empty()) fmt::print("\n");
  print_cells(diff);
  for (const auto& [count, file] :
       {std::pair(diff.only_old, &options.old_file), std::pair(diff.only_new, &options.new_file)})
    if (count != 0)
      fmt::print("{} cell{} only in {}\n", count, count == 1 ? " is" : "s are", *file);
  fmt::print(
      "\nThe runs were at different times: whatever changed on the machine is in the ratio.\n"
      "c10d-bench compare --against measures two builds in turns.\n");
  const double limit = 1 + options.fail_above.value_or(0);
  const auto slower =
      std::count_if(diff.cells.begin(), diff.cells.end(), [&](const CellDiff& cell) {
        return cell.ratio.ci95 && cell.ratio.ci95->low > 1 && cell.ratio.value > limit;
      });
  if (!options.fail_above || slower == 0) return 0;
  fmt::print("{} cell{} slower by more than {:g} %\n", slower, slower == 1 ? " is" : "s are",
             *options.fail_above * 100);
  return 1;
}

}  // namespace c10d::bench
