// SPDX-License-Identifier: BSD-3-Clause
#include "bench/report/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "bench/text/format.h"
#include "bench/text/svg.h"

namespace c10d::bench {
namespace {

constexpr std::size_t kColours = 8;

std::string style_of(std::size_t backend) { return fmt::format("s{}", backend % kColours); }

std::string tip_of(const BackendCell& cell, std::uint64_t bytes) {
  std::string tip = fmt::format("{} {}: {} us", cell.backend, bytes_text(bytes),
                                microseconds_text(cell.p50.value));
  if (cell.p50.ci95)
    tip += fmt::format(" [{}, {}]", microseconds_text(cell.p50.ci95->low),
                       microseconds_text(cell.p50.ci95->high));
  if (cell.alg) tip += fmt::format(", {:.3g} GB/s", *cell.alg);
  if (cell.compare)
    tip += fmt::format(", ratio {} {}", ratio_text(cell.compare->ratio),
                       to_string(cell.compare->verdict));
  return tip;
}

bool has_memcpy(const Summary& summary) {
  return std::find(summary.backends.begin(), summary.backends.end(), "memcpy") !=
         summary.backends.end();
}

// One line per backend, and memcpy's; y from the time in us.
template <class F>
std::vector<ChartSeries> series_of(const OpTable& table, const Summary& summary, F&& y) {
  std::vector<ChartSeries> all;
  if (!has_memcpy(summary)) {
    ChartSeries ceiling{summary.copy_name(), "ceiling", 0, {}};
    for (const SizeRow& row : table.rows)
      if (row.ceil_us && row.bytes >= 4096)
        ceiling.points.push_back(
            {static_cast<double>(row.bytes), y(*row.ceil_us, row.bytes), std::nullopt, ""});
    all.push_back(std::move(ceiling));
  }
  for (std::size_t b = 0; b < summary.backends.size(); ++b) {
    ChartSeries series{summary.backends[b], style_of(b), static_cast<int>(b), {}};
    for (const SizeRow& row : table.rows) {
      const BackendCell& cell = row.cells[b];
      if (cell.skip || cell.p50.value <= 0 || row.bytes == 0) continue;
      ChartPoint point{static_cast<double>(row.bytes), y(cell.p50.value, row.bytes), std::nullopt,
                       tip_of(cell, row.bytes)};
      if (cell.p50.ci95) {
        const double a = y(cell.p50.ci95->low, row.bytes);
        const double z = y(cell.p50.ci95->high, row.bytes);
        point.band = Interval{std::min(a, z), std::max(a, z)};
      }
      series.points.push_back(std::move(point));
    }
    all.push_back(std::move(series));
  }
  return all;
}

std::string figure(const std::string& caption, const Chart& chart) {
  return fmt::format("<figure><figcaption>{}</figcaption>{}</figure>", caption, draw_chart(chart));
}

std::string verdict_class(Verdict verdict) {
  return verdict == Verdict::none ? "none" : std::string(to_string(verdict));
}

// Blue where the base is faster, orange where it is slower; the ratio stands in the cell, so that
// colour never speaks alone.
std::string heat_cell(const BackendCell* cell) {
  if (cell == nullptr) return "<td></td>";
  if (cell->skip)
    return fmt::format("<td class=\"skip\" title=\"{}\">skip</td>",
                       escape_html(cell->skip->reason));
  if (!cell->compare) return "<td></td>";
  const CompareRecord& compare = *cell->compare;
  const double strength = std::min(1.0, std::abs(std::log2(compare.ratio.value)) / 4);
  const bool clear = compare.verdict == Verdict::slower || compare.verdict == Verdict::faster;
  return fmt::format("<td class=\"{}{}\" style=\"--heat:{:.0f}%\" title=\"{}\">{}</td>",
                     compare.ratio.value >= 1 ? "win" : "lose", clear ? "" : " vague",
                     clear ? 12 + strength * 60 : 0, escape_html(tip_of(*cell, compare.key.bytes)),
                     ratio_text(compare.ratio.value));
}

std::string heat_map(const Summary& summary, std::size_t backend) {
  std::set<std::uint64_t> sizes;
  for (const OpTable& table : summary.tables)
    for (const SizeRow& row : table.rows) sizes.insert(row.bytes);
  std::string html = fmt::format(
      "<div><h3>{} / {}</h3><div class=\"scroll\"><table class=\"heat\"><thead><tr><th></th>",
      escape_html(summary.backends[backend]),
      escape_html(summary.backends[summary.bases[backend]]));
  for (const std::uint64_t size : sizes)
    html += fmt::format("<th>{}</th>", size == 0 ? "-" : bytes_text(size));
  html += "</tr></thead><tbody>";
  for (const OpTable& table : summary.tables) {
    html += fmt::format("<tr><th>{}</th>", escape_html(table.title()));
    for (const std::uint64_t size : sizes) {
      const auto row = std::find_if(table.rows.begin(), table.rows.end(),
                                    [&](const SizeRow& r) { return r.bytes == size; });
      html += heat_cell(row == table.rows.end() ? nullptr : &row->cells[backend]);
    }
    html += "</tr>";
  }
  return html + "</tbody></table></div></div>";
}

std::string figure_text(const std::optional<double>& value, const char* format) {
  return value ? fmt::format(fmt::runtime(format), *value) : "";
}

std::string number_row(const SizeRow& row, const BackendCell& cell, bool first,
                       const Summary& summary) {
  const bool has_links = summary.cuda || summary.several_hosts;
  std::string html = fmt::format(
      "<tr{}><td>{}</td><td class=\"name\">{}</td>", first ? " class=\"first\"" : "",
      first ? (row.bytes == 0 ? "-" : bytes_text(row.bytes)) : "", escape_html(cell.backend));
  if (cell.skip)
    return html + fmt::format("<td colspan=\"11\" class=\"skip\">skip: {}</td></tr>",
                              escape_html(cell.skip->reason));
  html +=
      fmt::format("<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
                  microseconds_text(cell.p50.value) + (cell.modes ? kTwoModes : ""),
                  microseconds_text(cell.p90), cell.p99 ? microseconds_text(*cell.p99) : "",
                  microseconds_text(cell.max), figure_text(cell.alg, "{:.3g}"),
                  figure_text(has_links ? cell.bus : cell.mem, "{:.3g}"),
                  cell.ceil ? fmt::format("{:.0f}", *cell.ceil * 100) : "");
  if (summary.several_hosts) html += fmt::format("<td>{}</td>", figure_text(cell.net, "{:.3g}"));
  if (has_links) html += fmt::format("<td>{}</td>", cell.cpu ? microseconds_text(*cell.cpu) : "");
  html += fmt::format("<td{}>{}</td>", cell.wrong > 0 ? " class=\"bad\"" : "", cell.wrong);
  if (!cell.compare) return html + "<td class=\"name\"></td></tr>";
  return html + fmt::format("<td class=\"name\">{} <b class=\"{}\">{}</b></td></tr>",
                            ratio_text(cell.compare->ratio), verdict_class(cell.compare->verdict),
                            to_string(cell.compare->verdict));
}

}  // namespace

std::string legend(const Summary& summary) {
  std::string html = "<p class=\"legend\">";
  for (std::size_t b = 0; b < summary.backends.size(); ++b)
    html += fmt::format("<span>{} {}</span>", draw_mark(style_of(b), static_cast<int>(b)),
                        escape_html(summary.backends[b]));
  if (!has_memcpy(summary))
    html += fmt::format("<span>{} {}</span>", draw_mark("ceiling", 0),
                        summary.cuda            ? "a copy of S on the GPU"
                        : summary.several_hosts ? "connections between two hosts"
                                                : "memcpy(S), one core");
  return html + "</p>";
}

std::vector<Figure> charts_of(const OpTable& table, const Summary& summary) {
  if (table.rows.size() < 2) return {};
  const auto time = [](double us, std::uint64_t) { return us; };
  const auto bandwidth = [&table](double us, std::uint64_t bytes) {
    return static_cast<double>(bytes) * table.key.concurrent * 1e-3 / us;
  };
  return {
      {"time",
       "time, &micro;s &ndash; lower is better",
       {table.title() + ": time against size", "us", series_of(table, summary, time)}},
      {"bandwidth",
       "algorithm bandwidth S / t, GB/s &ndash; higher is better",
       {table.title() + ": bandwidth against size", "GB/s", series_of(table, summary, bandwidth)}}};
}

std::string op_figures(const OpTable& table, const Summary& summary) {
  std::string html;
  for (const Figure& one : charts_of(table, summary)) html += figure(one.caption, one.chart);
  return html.empty() ? "" : "<div class=\"figures\">" + html + "</div>";
}

std::string op_numbers(const OpTable& table, const Summary& summary) {
  const bool compare = !summary.compares.empty();
  std::string html =
      "<details><summary>numbers</summary><div class=\"scroll\"><table "
      "class=\"numbers\"><thead><tr><th>S</th><th class=\"name\">backend"
      "</th><th>p50 &micro;s</th><th>p90</th><th>p99</th><th>max</th><th>algbw "
      "GB/s</th>";
  const bool has_links = summary.cuda || summary.several_hosts;
  html += fmt::format("<th>{} GB/s</th><th>% of {}</th>", has_links ? "busbw" : "membw",
                      summary.copy_name());
  if (summary.several_hosts) html += "<th>net GB/s</th>";
  if (has_links) html += "<th>CPU &micro;s</th>";
  html += "<th>#wrong</th><th class=\"name\">";
  html += compare ? "ratio [95 % CI], verdict" : "";
  html += "</th></tr></thead><tbody>";
  bool modes = false;
  for (const SizeRow& row : table.rows)
    for (std::size_t b = 0; b < row.cells.size(); ++b) {
      html += number_row(row, row.cells[b], b == 0, summary);
      modes = modes || row.cells[b].modes;
    }
  html += "</tbody></table></div>";
  if (modes) html += fmt::format("<p>{}</p>", kTwoModesLegend);
  return html + "</details>";
}

std::string verdict_table(const Summary& summary) {
  if (summary.compares.empty()) return "";
  const std::string base = escape_html(summary.base_name());
  std::string html = fmt::format(
      "<div class=\"scroll\"><table class=\"verdicts\"><thead><tr><th class=\"name\">against "
      "{}</th><th>time, geometric mean</th>"
      "<th>least</th><th>most</th><th>slower</th><th>same</th><th>faster</th><th>no "
      "verdict</th></tr></thead><tbody>",
      base);
  for (std::size_t b = 0; b < summary.backends.size(); ++b) {
    if (summary.is_base(b)) continue;
    std::map<Verdict, int> counts;
    double log_sum = 0;
    double least = 0;
    double most = 0;
    int count = 0;
    for (const CompareRecord& record : summary.compares) {
      if (record.other != summary.backends[b]) continue;
      ++counts[record.verdict];
      log_sum += std::log(record.ratio.value);
      least = count == 0 ? record.ratio.value : std::min(least, record.ratio.value);
      most = std::max(most, record.ratio.value);
      ++count;
    }
    html +=
        fmt::format("<tr><td class=\"name\">{} {}</td>",
                    draw_mark(style_of(b), static_cast<int>(b)), escape_html(summary.backends[b]));
    if (count == 0) {
      html += "<td colspan=\"7\" class=\"skip\">not measured</td></tr>";
      continue;
    }
    html += fmt::format(
        "<td><b>{} "
        "&times;</b></td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        ratio_text(std::exp(log_sum / count)), ratio_text(least), ratio_text(most),
        counts[Verdict::slower], counts[Verdict::same], counts[Verdict::faster],
        counts[Verdict::none]);
  }
  return html + "</tbody></table></div>";
}

std::string heat_maps(const Summary& summary) {
  if (summary.compares.empty()) return "";
  std::string html =
      "<p>Time divided by the base's time: above 1 (blue) the base is faster, below 1 (orange) it "
      "is slower. No colour: the interval "
      "allows no verdict, or the two are the same.</p>";
  html += "<div class=\"maps\">";
  for (std::size_t b = 0; b < summary.backends.size(); ++b)
    if (!summary.is_base(b)) html += heat_map(summary, b);
  return html + "</div>";
}

}  // namespace c10d::bench
