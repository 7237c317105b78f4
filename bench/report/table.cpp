// SPDX-License-Identifier: BSD-3-Clause
#include "bench/report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bench/analyse/alpha_beta_fit.h"
#include "bench/text/format.h"

namespace c10d::bench {
namespace {

// A grid of text: groups above columns, columns right-aligned but for those of words.
struct TextColumn {
  std::string group;  // "" stands alone
  std::string header;
  bool left = false;
};
struct Grid {
  std::vector<TextColumn> columns;
  std::vector<std::vector<std::string>> rows;
};

std::string bandwidth_text(const std::optional<double>& gbps) {
  if (!gbps) return "-";
  return fmt::format(fmt::runtime(*gbps < 0.0095  ? "{:.1g}"
                                  : *gbps < 9.995 ? "{:.2f}"
                                                  : "{:.1f}"),
                     *gbps);
}

std::string value_of(const BackendCell& cell, std::string_view column) {
  if (column == "wrong" && !cell.skip) return fmt::format("{}", cell.wrong);
  if (cell.skip) return column == "p50" ? "skip" : "";
  if (column == "p50") return microseconds_text(cell.p50.value) + (cell.modes ? kTwoModes : "");
  if (column == "cpu") return cell.cpu ? microseconds_text(*cell.cpu) : "-";
  if (column == "min") return microseconds_text(cell.min);
  if (column == "p90") return microseconds_text(cell.p90);
  if (column == "p99") return cell.p99 ? microseconds_text(*cell.p99) : "";
  if (column == "max") return microseconds_text(cell.max);
  if (column == "algbw") return bandwidth_text(cell.alg);
  if (column == "busbw") return cell.bus ? bandwidth_text(cell.bus) : "n/a";
  if (column == "membw") return bandwidth_text(cell.mem);
  if (column == "net") return bandwidth_text(cell.net);
  if (column == "ceil") return cell.ceil ? fmt::format("{:.0f}", *cell.ceil * 100) : "-";
  if (column == "algo") return cell.algo.empty() ? "unknown" : cell.algo;
  if (column == "samples") return fmt::format("{}", cell.samples);
  if (column == "ratio") return cell.compare ? ratio_text(cell.compare->ratio) : "1";
  if (column == "verdict")
    return cell.compare ? std::string(to_string(cell.compare->verdict)) : "base";
  return "";
}

std::string header_of(std::string_view column) {
  if (column == "p50" || column == "p90" || column == "p99" || column == "min" || column == "max" ||
      column == "cpu")
    return fmt::format("{} us", column);
  if (column == "ceil") return "%ceil";
  if (column == "wrong") return "#wrong";
  if (column == "ratio") return "ratio [95% CI]";
  return std::string(column);
}

bool is_word(std::string_view column) {
  return column == "verdict" || column == "ratio" || column == "algo";
}

using Names = std::vector<std::string>;

// What a narrow terminal has no room for goes in this order; "memcpy" is its time beside the cells.
constexpr std::array<std::string_view, 9> kDispensable = {
    "max", "membw", "p90", "busbw", "algbw", "memcpy", "p99", "net", "ceil"};

bool is_dropped(std::string_view column, std::size_t dropped) {
  const auto end = kDispensable.begin() + static_cast<std::ptrdiff_t>(dropped);
  return std::find(kDispensable.begin(), end, column) != end;
}

// Of any backend.
bool has(const OpTable& table, std::optional<double> BackendCell::*field) {
  return std::ranges::any_of(table.rows, [&](const SizeRow& row) {
    return std::ranges::any_of(row.cells,
                               [&](const BackendCell& c) { return (c.*field).has_value(); });
  });
}

// Of `backend`; of any without it.
bool has_busbw(const OpTable& table, std::optional<std::size_t> backend = {}) {
  if (!backend) return has(table, &BackendCell::bus);
  return std::ranges::any_of(
      table.rows, [&](const SizeRow& row) { return row.cells[*backend].bus.has_value(); });
}

// Which of the columns that not every run has there are.
struct Extras {
  bool busbw;
  bool cpu;
  bool net;
};
Extras extras_of(const OpTable& table, std::optional<std::size_t> backend = {}) {
  return {has_busbw(table, backend), has(table, &BackendCell::cpu), has(table, &BackendCell::net)};
}

Names columns_of(bool base, const TableStyle& style, bool in_long, Extras extras,
                 std::size_t dropped) {
  Names names = style.columns;
  if (!names.empty()) return names;
  if (!style.compare)
    names = {"p50", "p90", "p99", "max", "cpu", "algbw", "busbw", "membw", "net", "ceil", "wrong"};
  else if (in_long)
    names = {"p50", "p90",  "p99",   "max",   "cpu",    "algbw",
             "net", "ceil", "wrong", "ratio", "verdict"};
  else if (base)
    names = {"p50", "p99", "cpu", "algbw", "net", "ceil", "wrong"};
  else
    names = {"p50", "cpu", "wrong", "ratio", "verdict"};
  std::erase_if(names, [&](const std::string& name) {
    return is_dropped(name, dropped) || (name == "busbw" && !extras.busbw) ||
           (name == "cpu" && !extras.cpu) || (name == "membw" && extras.cpu) ||
           (name == "net" && !extras.net);
  });
  return names;
}

std::string size_text(const SizeRow& row) { return row.bytes == 0 ? "-" : bytes_text(row.bytes); }
// The rate of a link does not say how long small messages take.
std::string copy_text(const SizeRow& row, const Summary& summary) {
  const bool is_rate = summary.several_hosts && !summary.cuda;
  if (!row.ceil_us || (is_rate && row.bytes < 4096)) return "-";
  return microseconds_text(*row.ceil_us);
}

// One line per size, backends side by side.
Grid wide(const OpTable& table, const Summary& summary, const TableStyle& style,
          std::size_t dropped) {
  Grid grid;
  // As a subject it has columns of its own.
  const bool copy = std::ranges::find(summary.backends, "memcpy") == summary.backends.end() &&
                    !is_dropped("memcpy", dropped);
  grid.columns = {{"", "S", false}};
  if (copy) grid.columns.push_back({summary.copy_name(), "us", false});
  std::vector<Names> names;
  for (std::size_t b = 0; b < summary.backends.size(); ++b) {
    const bool base = summary.is_base(b) && style.compare && summary.backends.size() > 1;
    names.push_back(columns_of(summary.is_base(b), style, false, extras_of(table, b), dropped));
    for (const std::string& column : names.back())
      grid.columns.push_back(
          {summary.backends[b] + (base ? " (base)" : ""), header_of(column), is_word(column)});
  }
  for (const SizeRow& row : table.rows) {
    std::vector<std::string> line = {size_text(row)};
    if (copy) line.push_back(copy_text(row, summary));
    for (std::size_t b = 0; b < row.cells.size(); ++b)
      for (const std::string& column : names[b]) line.push_back(value_of(row.cells[b], column));
    grid.rows.push_back(std::move(line));
  }
  return grid;
}

// One line per size and backend.
Grid tall(const OpTable& table, const Summary& summary, const TableStyle& style,
          std::size_t dropped) {
  Grid grid;
  const Names names = columns_of(true, style, true, extras_of(table), dropped);
  const bool copy = !is_dropped("memcpy", dropped);
  grid.columns = {{"", "S", false}};
  if (copy) grid.columns.push_back({"", fmt::format("{} us", summary.copy_name()), false});
  grid.columns.push_back({"", "backend", true});
  for (const std::string& column : names)
    grid.columns.push_back({"", header_of(column), is_word(column)});
  for (const SizeRow& row : table.rows) {
    for (std::size_t b = 0; b < row.cells.size(); ++b) {
      std::vector<std::string> line = {b == 0 ? size_text(row) : ""};
      if (copy) line.push_back(b == 0 ? copy_text(row, summary) : "");
      line.push_back(row.cells[b].backend);
      for (const std::string& column : names) line.push_back(value_of(row.cells[b], column));
      grid.rows.push_back(std::move(line));
    }
  }
  return grid;
}

// The columns from `first` on that are of its group: where they end, and how wide they are
// together.
std::pair<std::size_t, std::size_t> group_at(const Grid& grid,
                                             const std::vector<std::size_t>& widths,
                                             std::size_t first) {
  std::size_t end = first + 1;
  std::size_t width = widths[first];
  while (end < grid.columns.size() && !grid.columns[first].group.empty() &&
         grid.columns[end].group == grid.columns[first].group)
    width += 2 + widths[end++];
  return {end, width};
}

std::vector<std::size_t> widths_of(const Grid& grid) {
  std::vector<std::size_t> widths;
  for (const TextColumn& column : grid.columns) widths.push_back(display_width(column.header));
  for (const auto& row : grid.rows)
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], display_width(row[i]));
  // A group's name may be wider than its columns together: the last one takes the rest.
  for (std::size_t i = 0; i < grid.columns.size();) {
    const auto [end, width] = group_at(grid, widths, i);
    const std::size_t need = display_width(grid.columns[i].group);
    if (need > width) widths[end - 1] += need - width;
    i = end;
  }
  return widths;
}

std::size_t total(const std::vector<std::size_t>& widths) {
  std::size_t sum = 0;
  for (const std::size_t width : widths) sum += width + 2;
  return sum;
}

std::string paint(std::string text, std::string_view trimmed, bool color) {
  if (!color) return text;
  const char* code = trimmed == "faster"   ? "32"
                     : trimmed == "slower" ? "31"
                     : trimmed == "skip"   ? "2"
                                           : nullptr;
  return code == nullptr ? text : fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

std::string group_line(const Grid& grid, const std::vector<std::size_t>& widths) {
  std::string line;
  for (std::size_t i = 0; i < grid.columns.size();) {
    const auto [end, width] = group_at(grid, widths, i);
    line += "  ";
    line += end == i + 1 ? pad_left(grid.columns[i].group, width)
                         : pad_right(grid.columns[i].group, width);
    i = end;
  }
  return line;
}

std::string rstrip(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string draw(const Grid& grid, const TableStyle& style) {
  const std::vector<std::size_t> widths = widths_of(grid);
  std::string text;
  const bool grouped = std::any_of(grid.columns.begin(), grid.columns.end(),
                                   [](const TextColumn& c) { return !c.group.empty(); });
  if (grouped) text += rstrip(group_line(grid, widths));
  std::string header;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    const TextColumn& column = grid.columns[i];
    header += "  " + (column.left ? pad_right(column.header, widths[i])
                                  : pad_left(column.header, widths[i]));
  }
  text += rstrip(header);
  for (const auto& row : grid.rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padded =
          grid.columns[i].left ? pad_right(row[i], widths[i]) : pad_left(row[i], widths[i]);
      line += "  " + paint(padded, row[i], style.color);
    }
    text += rstrip(line);
  }
  return text;
}

// Backends side by side where there is room, else one below the other, with fewer columns if need
// be.
Grid grid_of(const OpTable& table, const Summary& summary, const TableStyle& style) {
  const bool single = summary.backends.size() == 1;
  Grid grid = wide(table, summary, style, 0);
  for (std::size_t dropped = 0;
       total(widths_of(grid)) > style.width && dropped <= kDispensable.size(); ++dropped)
    grid = single ? wide(table, summary, style, dropped) : tall(table, summary, style, dropped);
  return grid;
}

// What the mark in it means; nothing where there is none.
std::string legend_of(const Grid& grid) {
  for (const auto& row : grid.rows)
    for (const std::string& text : row)
      if (text.ends_with(kTwoModes)) return fmt::format("{}\n", kTwoModesLegend);
  return "";
}

std::string title_of(const OpTable& table, const Summary& summary) {
  std::string title =
      fmt::format("{}{}, {} rank{}", table.title(),
                  table.key.place == "out" && table.key.op != "barrier" ? ", out of place" : "",
                  summary.ranks, summary.ranks == 1 ? "" : "s");
  if (summary.launches > 0)  // else everything was skipped
    title += fmt::format(", {} launch{} x {} block{}", summary.launches,
                         summary.launches == 1 ? "" : "es", summary.blocks,
                         summary.blocks == 1 ? "" : "s");
  if (summary.graph_ops > 0)
    title += fmt::format(", CUDA graphs of {} op{}", summary.graph_ops,
                         summary.graph_ops == 1 ? "" : "s");
  return title + (table.key.cache == "hot" ? ", hot cache" : "");
}

}  // namespace

const std::vector<ColumnFacts>& column_facts() {
  static const std::vector<ColumnFacts> facts = {
      {"p50",
       "median time, us: of a block, of a launch's blocks, geometric mean of launches; * two "
       "modes"},
      {"min", "fastest iteration, us"},
      {"cpu",
       "CPU time, us: on a GPU of one call until it returns; between hosts of one op, all threads "
       "of the rank that takes most"},
      {"p90", "90th percentile over all iterations, us"},
      {"p99", "99th percentile, us; blank below 300 iterations"},
      {"max", "slowest iteration, us"},
      {"algbw", "S / p50 in GB/s (1e9 bytes)"},
      {"busbw", "algbw times nccl-tests' factor; n/a where ranks share memory, or a GPU"},
      {"membw", "bytes that all ranks together must read and write, / p50, in GB/s"},
      {"net", "bytes that each host must send, / p50, in GB/s; between hosts only"},
      {"ceil",
       "time of memcpy(S) on one core, of a copy of S on the GPU, or, between hosts, of what the "
       "link must carry, / p50, in percent; blank below 4 KiB"},
      {"samples", "timed iterations"},
      {"algo", "the algorithm that ran, where the backend says; unknown where it does not"},
      {"wrong", "elements that differ from the oracle, over all ranks and checks"},
      {"ratio", "this backend's time / the base's, paired in blocks, with the 95% interval"},
      {"verdict", "same, slower, faster or no verdict"},
  };
  return facts;
}

std::string text_tables(const Summary& summary, const TableStyle& style) {
  std::string text;
  for (const OpTable& table : summary.tables) {
    text += '\n' + title_of(table, summary) + '\n';
    const Grid grid = grid_of(table, summary, style);
    text += draw(grid, style) + legend_of(grid);
    if (style.fits) text += fit_text(table, style.width);
  }
  return text;
}

std::string markdown_tables(const Summary& summary, const TableStyle& style) {
  std::string text;
  TableStyle tall_style = style;
  tall_style.width = 140;
  for (const OpTable& table : summary.tables) {
    const Grid grid = grid_of(table, summary, tall_style);
    text += fmt::format("\n### {}\n\n|", title_of(table, summary));
    for (const TextColumn& column : grid.columns)
      text +=
          fmt::format(" {}{}{} |", column.group, column.group.empty() ? "" : " ", column.header);
    text += "\n|";
    for (const TextColumn& column : grid.columns) text += column.left ? " :-- |" : " --: |";
    text += '\n';
    for (const auto& row : grid.rows) text += fmt::format("| {} |\n", fmt::join(row, " | "));
    if (const std::string legend = legend_of(grid); !legend.empty()) text += "\n\\" + legend;
  }
  return text;
}

}  // namespace c10d::bench
