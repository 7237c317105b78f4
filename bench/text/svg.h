// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/model/stats.h"

namespace c10d::bench {

// A line chart over message sizes, both axes logarithmic, drawn as SVG. Colours are CSS classes
// (s0, s1, ... and ceiling), so that the page decides on them for light, dark and paper.
struct ChartPoint {
  double x = 0;
  double y = 0;
  std::optional<Interval> band;
  std::string tip;  // shown on hover
};
struct ChartSeries {
  std::string name;
  std::string style;  // CSS class
  int marker = 0;     // shape
  std::vector<ChartPoint> points;
};
struct Chart {
  std::string title;
  std::string y_label;
  std::vector<ChartSeries> series;
};
std::string draw_chart(const Chart& chart);

// The chart as a file of its own: with its title, what its axes are, and its legend.
std::string standalone_svg(const Chart& chart);

// The mark of a series, for legends.
std::string draw_mark(const std::string& style, int marker);

std::string escape_html(const std::string& text);

}  // namespace c10d::bench
