// SPDX-License-Identifier: BSD-3-Clause
#include "bench/text/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "bench/text/format.h"

namespace c10d::bench {
namespace {

constexpr double kWidth = 560;
constexpr double kHeight = 300;
constexpr double kLeft = 62;
constexpr double kRight = 14;
constexpr double kTop = 14;
constexpr double kBottom = 40;

// A logarithmic number line from data to pixels.
class Axis {
 public:
  Axis(double low, double high, double from, double to)
      : low_(std::log10(low)), high_(std::log10(high)), from_(from), to_(to) {
    if (high_ - low_ < 1e-9) high_ = low_ + 1;
  }
  double at(double value) const {
    return from_ + (std::log10(value) - low_) / (high_ - low_) * (to_ - from_);
  }

 private:
  double low_, high_, from_, to_;
};

struct Range {
  double low = std::numeric_limits<double>::max();
  double high = 0;
  void include(double value) {
    if (value <= 0) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

std::string mark_at(double x, double y, int marker) {
  switch (marker % 4) {
    case 0:
      return fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="4"/>)", x, y);
    case 1:
      return fmt::format(R"(<rect x="{:.1f}" y="{:.1f}" width="7.4" height="7.4"/>)", x - 3.7,
                         y - 3.7);
    case 2:
      return fmt::format(R"(<path d="M{:.1f} {:.1f}l5 5l-5 5l-5 -5z"/>)", x, y - 5);
    default:
      return fmt::format(R"(<path d="M{:.1f} {:.1f}l4.8 8.4h-9.6z"/>)", x, y - 5.2);
  }
}

std::string grid_line(double y, const std::string& label) {
  return fmt::format(R"(<line class="grid" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>)"
                     R"(<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>)",
                     kLeft, kWidth - kRight, y, y, kLeft - 8, y + 4, label);
}

std::string y_grid(const Axis& axis, const Range& range) {
  std::string svg;
  const int first = static_cast<int>(std::ceil(std::log10(range.low) - 1e-9));
  const int last = static_cast<int>(std::floor(std::log10(range.high) + 1e-9));
  const int step = std::max(1, (last - first + 5) / 6);
  for (int power = first; power <= last; power += step)
    svg += grid_line(axis.at(std::pow(10.0, power)), fmt::format("{:g}", std::pow(10.0, power)));
  return svg;
}

std::string x_grid(const Axis& axis, const std::vector<double>& sizes) {
  std::string svg;
  // A label needs about 56 pixels.
  double last = -1e9;
  for (const double size : sizes) {
    const double x = axis.at(size);
    if (x - last < 56) continue;
    last = x;
    svg += fmt::format(R"(<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)",
                       x, kHeight - kBottom + 18, bytes_text(static_cast<std::uint64_t>(size)));
  }
  return svg;
}

std::string band_of(const ChartSeries& series, const Axis& x, const Axis& y) {
  std::string upper;
  std::string lower;
  for (const ChartPoint& point : series.points) {
    const Interval band = point.band.value_or(Interval{point.y, point.y});
    if (band.low <= 0) return "";
    upper += fmt::format("{:.1f},{:.1f} ", x.at(point.x), y.at(band.high));
    lower = fmt::format("{:.1f},{:.1f} ", x.at(point.x), y.at(band.low)) + lower;
  }
  return fmt::format(R"(<polygon class="band" points="{}{}"/>)", upper, lower);
}

std::string series_svg(const ChartSeries& series, const Axis& x, const Axis& y) {
  std::string line;
  std::string marks;
  for (const ChartPoint& point : series.points) {
    line += fmt::format("{:.1f},{:.1f} ", x.at(point.x), y.at(point.y));
    if (series.style != "ceiling")
      marks += fmt::format("<g class=\"mark\"><title>{}</title>{}</g>", escape_html(point.tip),
                           mark_at(x.at(point.x), y.at(point.y), series.marker));
  }
  return fmt::format(R"(<g class="{}">{}<polyline points="{}"/>{}</g>)", series.style,
                     band_of(series, x, y), line, marks);
}

}  // namespace

std::string escape_html(const std::string& text) {
  constexpr std::string_view kSpecial = "&<>\"'";
  constexpr std::array kEntities = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
  std::string safe;
  for (const char c : text) {
    const std::size_t at = kSpecial.find(c);
    safe += at == kSpecial.npos ? std::string(1, c) : kEntities[at];
  }
  return safe;
}

std::string draw_mark(const std::string& style, int marker) {
  const std::string mark = style == "ceiling" ? "" : mark_at(14, 8, marker);
  return fmt::format(R"(<svg class="key {}" width="28" height="16" aria-hidden="true">)"
                     R"(<polyline points="1,8 27,8"/>{}</svg>)",
                     style, mark);
}

namespace {

// What is inside the chart's own coordinates; empty without points.
std::string chart_body(const Chart& chart) {
  Range xs;
  Range ys;
  std::vector<double> sizes;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      xs.include(point.x);
      ys.include(point.y);
      if (point.band) ys.include(point.band->high);
      if (point.band) ys.include(point.band->low);
      sizes.push_back(point.x);
    }
  }
  if (sizes.empty()) return "";
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  ys.low = std::pow(10.0, std::floor(std::log10(ys.low) * 2) / 2);
  ys.high = std::pow(10.0, std::ceil(std::log10(ys.high) * 2) / 2);
  const Axis x(xs.low, xs.high, kLeft + 12, kWidth - kRight - 12);
  const Axis y(ys.low, ys.high, kHeight - kBottom, kTop);
  std::string svg = y_grid(y, ys) + x_grid(x, sizes);
  svg += fmt::format(R"(<line class="axis" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>)",
                     kLeft, kWidth - kRight, kHeight - kBottom, kHeight - kBottom);
  for (const ChartSeries& series : chart.series)
    if (!series.points.empty()) svg += series_svg(series, x, y);
  return svg;
}

// As the report's, on white paper.
constexpr const char* kFileStyle =
    "text{font:12px system-ui,sans-serif;fill:#52514e}.title{font-size:14px;fill:#0b0b0b}"
    ".grid{stroke:#e1e0d9}.axis{stroke:#898781}.band{opacity:.16}"
    "polyline{fill:none;stroke-width:2;stroke-linejoin:round}"
    ".ceiling polyline{stroke:#898781;stroke-dasharray:5 5}.mark>*{stroke:#fff;stroke-width:1.5}";
constexpr std::array kFileColours = {"#2a78d6", "#eb6834", "#1baf7a", "#4a3aa7",
                                     "#eda100", "#e87ba4", "#008300", "#e34948"};

}  // namespace

std::string draw_chart(const Chart& chart) {
  const std::string body = chart_body(chart);
  if (body.empty()) return "";
  return fmt::format(
      R"(<svg class="chart" viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">{}</svg>)",
      kWidth, kHeight, escape_html(chart.title), body);
}

std::string standalone_svg(const Chart& chart) {
  constexpr double kHead = 48;
  constexpr double kFoot = 12;
  std::string style = kFileStyle;
  for (std::size_t i = 0; i < kFileColours.size(); ++i)
    style += fmt::format(".s{0}{{fill:{1}}}.s{0} polyline{{stroke:{1}}}", i, kFileColours[i]);
  std::string svg = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" )"
      R"(height="{1:.0f}"><style>{2}</style><rect width="100%" height="100%" fill="#fff"/>)"
      R"(<text class="title" x="{3:.0f}" y="20">{4}</text>)",
      kWidth, kHead + kHeight + kFoot, style, kLeft, escape_html(chart.title));
  double x = kLeft;
  for (const ChartSeries& series : chart.series) {
    if (series.points.empty()) continue;
    const std::string mark = series.style == "ceiling" ? "" : mark_at(x + 14, 36, series.marker);
    svg += fmt::format(R"(<g class="{}"><polyline points="{:.0f},36 {:.0f},36"/>{}</g>)",
                       series.style, x, x + 28, mark);
    svg += fmt::format(R"(<text x="{:.0f}" y="40">{}</text>)", x + 34, escape_html(series.name));
    x += 52 + 7.5 * static_cast<double>(display_width(series.name));
  }
  svg += fmt::format(R"x(<text x="8" y="40">{}</text><g transform="translate(0 {:.0f})">{}</g>)x",
                     escape_html(chart.y_label), kHead, chart_body(chart));
  return svg +
         fmt::format(R"(<text x="{:.0f}" y="{:.0f}" text-anchor="end">S</text></svg>)",
                     kWidth - kRight, kHead + kHeight + 2) +
         "\n";
}

}  // namespace c10d::bench
