// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/model/stats.h"

namespace c10d::bench {

// "8 B", "1 KiB", "16 MiB": binary units, at most one decimal.
std::string bytes_text(std::uint64_t bytes);
// Microseconds as tables print them: two decimals below 10, one below 1000, else none.
std::string microseconds_text(double us);
// Three significant digits: "0.412", "11.3", "470".
std::string ratio_text(double ratio);
// "1.02 [0.98, 1.05]", without the interval where there is none.
std::string ratio_text(const Estimate& ratio);
// Seconds as "850 ms", "12.3 s", "4 min 05 s".
std::string seconds_text(double seconds);
// Columns that the text takes on a terminal (UTF-8 code points).
std::size_t display_width(std::string_view text);
std::string pad_left(std::string_view text, std::size_t width);
std::string pad_right(std::string_view text, std::size_t width);
// "label  part · part": as many lines as `width` asks for, each of whole parts. Nothing of none.
std::string entry_text(std::string_view label, const std::vector<std::string>& parts,
                       std::size_t width);

// "8", "4K", "16M", "1G", also with B or iB behind: nothing when it is no size.
std::optional<std::uint64_t> parse_bytes(std::string_view text);
// "0.05s", "30s", "200ms", "20us", "5m"; a bare number is seconds. Nothing when it is no duration.
std::optional<double> parse_seconds(std::string_view text);
// "5%" or "0.05". Nothing when it is neither.
std::optional<double> parse_fraction(std::string_view text);

}  // namespace c10d::bench
