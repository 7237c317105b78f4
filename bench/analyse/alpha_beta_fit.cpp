// SPDX-License-Identifier: BSD-3-Clause
#include "bench/analyse/alpha_beta_fit.h"

#include <fmt/format.h>

#include <cmath>

#include "bench/text/format.h"

namespace c10d::bench {
namespace {

constexpr double kWorst = 0.2;
constexpr std::size_t kFewest = 3;

// A line through the longest run of sizes that it describes; nothing when there is none.
void fit_prefix(std::vector<double> bytes, std::vector<double> us, FitRecord& record) {
  for (; bytes.size() >= kFewest; bytes.pop_back(), us.pop_back()) {
    const LineFit line = fit_line(bytes, us);
    if (line.worst > kWorst) continue;
    record.line = line;
    record.from = static_cast<std::uint64_t>(bytes.front());
    record.to = static_cast<std::uint64_t>(bytes.back());
    return;
  }
}

// Between the two neighbours with opposite verdicts, where the ratio passes 1.
std::optional<std::uint64_t> crossover(const OpTable& table, std::size_t backend) {
  const CompareRecord* last = nullptr;
  for (const SizeRow& row : table.rows) {
    const std::optional<CompareRecord>& now = row.cells[backend].compare;
    if (!now || (now->verdict != Verdict::slower && now->verdict != Verdict::faster)) continue;
    if (last != nullptr && last->verdict != now->verdict) {
      const double a = std::log(last->ratio.value);
      const double b = std::log(now->ratio.value);
      const double x = std::log(static_cast<double>(last->key.bytes));
      const double y = std::log(static_cast<double>(now->key.bytes));
      return static_cast<std::uint64_t>(std::exp(x + (y - x) * a / (a - b)));
    }
    last = &*now;
  }
  return std::nullopt;
}

// "native 0.24 us + S/6.1 GB/s (n1/2 1.4 KiB) to 128 KiB".
std::string fit_line_text(const FitRecord& fit, std::uint64_t largest) {
  std::string text = fmt::format("{} {} us", fit.backend, microseconds_text(fit.line->alpha));
  if (fit.line->beta > 0) {
    text += fmt::format(" + S/{} GB/s", ratio_text(fit.key.concurrent * 1e-3 / fit.line->beta));
    if (fit.line->alpha > 0)
      text += fmt::format(" (n1/2 {})",
                          bytes_text(static_cast<std::uint64_t>(fit.line->alpha / fit.line->beta)));
  }
  return fit.to < largest ? text + " to " + bytes_text(fit.to) : text;
}

}  // namespace

std::vector<FitRecord> fits_of(const OpTable& table) {
  std::vector<FitRecord> fits;
  if (table.rows.empty()) return fits;
  for (std::size_t b = 0; b < table.rows.front().cells.size(); ++b) {
    FitRecord record;
    record.key = table.key;
    record.backend = table.rows.front().cells[b].backend;
    std::vector<double> bytes;
    std::vector<double> us;
    std::string base;  // empty: is one, or was not compared
    for (const SizeRow& row : table.rows) {
      const BackendCell& cell = row.cells[b];
      if (cell.skip || row.bytes == 0 || cell.p50.value <= 0) continue;
      bytes.push_back(static_cast<double>(row.bytes));
      us.push_back(cell.p50.value);
      if (cell.compare) base = cell.compare->base;
    }
    if (bytes.size() < kFewest) continue;
    fit_prefix(std::move(bytes), std::move(us), record);
    if (!base.empty()) {
      record.other = base;
      record.overtakes_at = crossover(table, b);
    }
    fits.push_back(std::move(record));
  }
  return fits;
}

std::string fit_text(const OpTable& table, std::size_t width) {
  std::vector<std::string> lines;
  std::vector<std::string> crossings;
  for (const FitRecord& fit : table.fits) {
    if (fit.line) lines.push_back(fit_line_text(fit, table.rows.back().bytes));
    if (fit.other.empty()) continue;
    crossings.push_back(
        fmt::format("{}<->{}: {}", fit.other, fit.backend,
                    fit.overtakes_at ? "about " + bytes_text(*fit.overtakes_at) : "none in range"));
  }
  return entry_text("fit", lines, width) + entry_text("cross", crossings, width);
}

}  // namespace c10d::bench
