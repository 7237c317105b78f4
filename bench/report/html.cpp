// SPDX-License-Identifier: BSD-3-Clause
#include "bench/report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <set>

#include "bench/report/banner.h"
#include "bench/report/figures.h"
#include "bench/report/table.h"
#include "bench/text/format.h"
#include "bench/text/output_file.h"
#include "bench/text/svg.h"
#include "bench/text/terminal.h"
#include "c10d/error.h"

namespace c10d::bench {
namespace {

constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--page:#f9f9f7;--card:#fcfcfb;--ink:#0b0b0b;--soft:#52514e;
--faint:#898781;--line:#e1e0d9;
--good:#006300;--bad:#d03b3b;--win:42,120,214;--lose:235,104,52;
--c0:#2a78d6;--c1:#eb6834;--c2:#1baf7a;--c3:#4a3aa7;--c4:#eda100;--c5:#e87ba4;--c6:#008300;
--c7:#e34948}
@media(prefers-color-scheme:dark){:root{--page:#0d0d0d;--card:#1a1a19;--ink:#fff;--soft:#c3c2b7;
--line:#2c2c2a;
--good:#0ca30c;--bad:#e66767;--win:57,135,229;--lose:217,89,38;
--c0:#3987e5;--c1:#d95926;--c2:#199e70;--c3:#9085e9;--c4:#c98500;--c5:#d55181;--c6:#008300;
--c7:#e66767}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1240px;margin:0 auto;padding:28px 24px 60px}
h1{font-size:25px;margin:0 0 4px}h2{font-size:19px;margin:36px 0 10px}h3{font-size:15px;
margin:18px 0 6px;font-weight:600}
p{margin:6px 0}.soft{color:var(--soft)}
section{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:16px 20px;
margin:14px 0}
section h3:first-child{margin-top:0}
.tiles{display:flex;flex-wrap:wrap;gap:12px;margin:18px 0}
.tile{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 18px;
min-width:130px}
.tile b{display:block;font-size:26px;line-height:1.2;font-weight:600}.tile span{color:var(--soft);
font-size:13px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13.5px}
th,td{padding:4px 10px;text-align:right;white-space:nowrap}
th{font-weight:600;color:var(--soft)}thead th{border-bottom:1px solid var(--line)}
td.name,th.name{text-align:left}.facts th{text-align:left;vertical-align:top}
.facts td{text-align:left;white-space:normal}
tr.first td{border-top:1px solid var(--line)}
.maps{display:flex;flex-wrap:wrap;gap:4px 32px}.maps>div{min-width:0}
.heat tbody th{text-align:left}
.heat th,.heat td{padding:4px 7px}
.heat td{border:2px solid var(--card);min-width:52px}.maps h3{margin-top:14px}
.win{background:rgba(var(--win),var(--heat))}.lose{background:rgba(var(--lose),var(--heat))}
.vague,.skip{color:var(--faint)}.bad{color:var(--bad);font-weight:700}
b.slower{color:var(--ink)}b.faster{color:var(--ink)}b.none,b.same{color:var(--soft);font-weight:400}
.legend{display:flex;flex-wrap:wrap;gap:6px 20px;color:var(--soft);font-size:13.5px}
.legend span{display:inline-flex;align-items:center;gap:6px}.key{vertical-align:middle}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(400px,1fr));gap:18px}
figure{margin:0}figcaption{color:var(--soft);font-size:13px;margin-bottom:2px}
.chart{width:100%;height:auto;display:block}
.grid{stroke:var(--line);stroke-width:1}.axis{stroke:var(--faint);stroke-width:1}
.tick{fill:var(--faint);font-size:11.5px;font-family:inherit}
polyline{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.ceiling polyline{stroke:var(--faint);stroke-dasharray:5 5}
.mark>*{stroke:var(--card);stroke-width:1.5}.band{opacity:.16}
details{margin-top:8px}summary{cursor:pointer;color:var(--soft);font-size:13.5px}
pre{background:var(--page);border:1px solid var(--line);border-radius:6px;padding:10px 14px;
overflow-x:auto;font-size:13px;margin:8px 0}
@media print{:root{color-scheme:light}body{background:#fff;font-size:11px}main{max-width:none;
padding:0}
section{break-inside:avoid;border-color:#ccc}.figures{grid-template-columns:1fr 1fr}
details>*{display:block}}
)";

std::string series_styles() {
  std::string css;
  for (int i = 0; i < 8; ++i)
    css += fmt::format(
        ".s{0} polyline{{stroke:var(--c{0})}}.s{0} .mark>*,.s{0} "
        ".band,.key.s{0}>:not(polyline){{fill:var(--c{0})}}",
        i);
  return css;
}

std::string tile(const std::string& value, const std::string& label, bool bad = false) {
  return fmt::format("<div class=\"tile\"><b{}>{}</b><span>{}</span></div>",
                     bad ? " class=\"bad\"" : "", escape_html(value), escape_html(label));
}

std::string tiles(const Summary& summary) {
  std::string html = "<div class=\"tiles\">";
  html += tile(std::to_string(summary.measured), "cells measured");
  html += tile(std::to_string(summary.wrong), "wrong elements", summary.wrong > 0);
  html += tile(std::to_string(summary.skipped), "cells skipped");
  html += tile(std::to_string(summary.ranks), "ranks");
  html += tile(fmt::format("{} x {}", summary.launches, summary.blocks), "launches x blocks");
  for (const ControlRecord& control : summary.controls)
    html += tile(
        ratio_text(control.ratio.value),
        fmt::format("{} against {}{}", control.backend, control.kind == "aa" ? "itself" : "alone",
                    control.trust == Trust::ok ? "" : ": noisy"));
  return html + "</div>";
}

std::string fact(const std::string& name, const std::string& value) {
  return value.empty() ? ""
                       : fmt::format("<tr><th>{}</th><td>{}</td></tr>", escape_html(name),
                                     escape_html(value));
}

std::string environment(const Results& results) {
  std::string html = "<section><table class=\"facts\">";
  const Json& run = results.run;
  if (run.is_object()) {
    html += fact("started", run.value("start", ""));
    html += fact("tool", run.value("tool", ""));
    html += fact("commit", commit_of(run));
    html += fact("launcher", run.value("launcher", ""));
    html += fact("seed", std::to_string(run.value("seed", std::uint64_t{0})));
    for (const std::string& busy : busy_parts(results)) html += fact("busy", busy);
  }
  std::set<std::string> said;
  for (const Json& machine : results.environments) {
    const std::string text =
        fmt::format("{}: {}", machine.value("host", ""), machine_text(machine));
    const bool is_new = said.insert(text).second;
    if (is_new) html += fact("host", text);
    for (const std::string& gpu : is_new ? gpu_parts(machine) : std::vector<std::string>())
      html += fact("gpu", gpu);
    const Json libs = machine.value("libs", Json::object());  // sets of processes have others
    for (const auto& [name, lib] : libs.items()) {
      const std::string version = lib.value("ver", "");
      const std::string about = lib.value("about", "");
      const bool told = about.find(version) != about.npos;  // also when there is none
      const std::string row =
          fact(name, told ? about : version + (about.empty() ? "" : " - ") + about);
      if (said.insert(row).second) html += row;
    }
    if (!is_new) continue;
    const Json vars = machine.value("vars", Json::object());
    for (const auto& [name, value] : vars.items()) html += fact(name, value.get<std::string>());
  }
  return html + "</table></section>";
}

std::string notes(const Results& results, const Summary& summary) {
  std::set<std::string> lines;
  for (const std::string& note : skip_notes(summary)) lines.insert("skipped: " + note);
  for (const WarnRecord& warn : results.warnings)
    lines.insert(fmt::format("{} {}", warn.code, warn.text));
  if (!results.complete) lines.insert("the run ended before everything was measured");
  if (lines.empty()) return "";
  std::string html = "<section><h3>Notes</h3><ul>";
  for (const std::string& line : lines) html += fmt::format("<li>{}</li>", escape_html(line));
  return html + "</ul></section>";
}

std::string title_of(const Results& results, const Summary& summary) {
  const bool compare = !summary.compares.empty();
  std::string backends;
  for (const std::string& name : summary.backends)
    backends += (backends.empty() ? "" : compare ? " against " : ", ") + name;
  if (summary.backends.size() > 2 && compare) {
    backends = summary.backends.front() + " against ";
    for (std::size_t i = 1; i < summary.backends.size(); ++i)
      backends += (i == 1                             ? ""
                   : i + 1 == summary.backends.size() ? " and "
                                                      : ", ") +
                  summary.backends[i];
  }
  const std::string run = results.run.is_object() ? results.run.value("id", "") : "";
  return fmt::format("{}, {} ranks{}", backends, summary.ranks,
                     run.empty() ? "" : " (run " + run + ")");
}

// Nobody asked for a file: what the run itself printed.
void print_tables(const Results& results, const Summary& summary, bool compare, bool verbose) {
  const Detail detail = verbose ? Detail::full : Detail::brief;
  TableStyle style;
  style.width = terminal_width(fileno(stdout), style.width);
  style.color = use_color(Switch::automatic, fileno(stdout));
  style.compare = compare;
  style.fits = verbose;
  std::string text = header_text(results, summary, detail, style.width) +
                     text_tables(summary, style) +
                     footer_text(results, summary, detail, 0, "", style.width);
  if (ascii_only()) text = to_ascii(text);
  std::fputs(text.c_str(), stdout);
}

}  // namespace

std::string html_report(const Results& results, const Summary& summary) {
  const std::string title = escape_html(title_of(results, summary));
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\">"
      "<title>c10d-bench: {}</title><style>{}{}</style></head><body><main><h1>{}</h1>",
      title, kStyle, series_styles(), title);
  html +=
      "<p class=\"soft\">Time is that of the slowest rank in each iteration; every number is a "
      "median over launches and blocks with "
      "its 95 % interval. GB/s = 10<sup>9</sup> bytes per second. S as in nccl-tests. ";
  html += summary.cuda ? "Buffers are on GPUs, which time batches of ops. Bus bandwidth does not "
                         "apply where ranks share a GPU."
          : summary.several_hosts
              ? "% of link is of what connections between two hosts carry."
              : "Bus bandwidth does not apply: the ranks share one host's memory.";
  if (summary.graph_ops > 0)
    html += fmt::format(" Ops per CUDA graph: {}; a call is its launch, divided by that number.",
                        summary.graph_ops);
  html += "</p>";
  html += tiles(summary);
  if (!summary.compares.empty())
    html += "<h2>Verdicts</h2><section>" + verdict_table(summary) + "</section><section>" +
            heat_maps(summary) + "</section>";
  html += "<h2>Operations</h2>" + legend(summary);
  for (const OpTable& table : summary.tables)
    html += fmt::format("<section><h3>{}</h3>{}{}</section>", escape_html(table.title()),
                        op_figures(table, summary), op_numbers(table, summary));
  html += notes(results, summary);
  html += "<h2>Environment</h2>" + environment(results);
  html += fmt::format("<h2>Again</h2><pre>{}</pre></main></body></html>\n",
                      escape_html(command_text(results)));
  return html;
}

void write_figures(const std::string& folder, const Summary& summary) {
  make_folder("--svg", folder);
  for (const OpTable& table : summary.tables) {
    std::string name = table.title();
    std::replace_if(
        name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0 && c != '_'; },
        '-');
    for (const Figure& figure : charts_of(table, summary))
      write_file("--svg",
                 std::filesystem::path(folder) / fmt::format("{}-{}.svg", name, figure.name),
                 standalone_svg(figure.chart));
  }
}

int write_report(const std::vector<std::string>& files, const std::string& path,
                 const std::string& svg, bool verbose) {
  Results results;
  for (const std::string& file : files) {
    std::error_code none;
    if (!path.empty() && std::filesystem::equivalent(path, file, none))
      throw InvalidArgument(fmt::format("-o {}: this is a file to read", path));
    read_results(file, results);
  }
  if (results.cells.empty() && results.skips.empty())
    throw InvalidArgument(fmt::format("report: no cells in {}", fmt::join(files, ", ")));
  const Json& run = results.run;
  const bool compare = run.is_object() && run.value("command", "") == "compare";
  const double equiv = run.is_object() ? run.value("equiv", 0.02) : 0.02;
  const Summary summary = summarise(results, compare, equiv);
  if (!svg.empty()) write_figures(svg, summary);
  if (!path.empty()) write_file("-o", path, html_report(results, summary));
  if (path.empty() && svg.empty()) print_tables(results, summary, compare, verbose);
  return 0;
}

}  // namespace c10d::bench
