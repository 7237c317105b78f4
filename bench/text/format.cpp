// SPDX-License-Identifier: BSD-3-Clause
#include "bench/text/format.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace c10d::bench {

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> units = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  if (value == std::floor(value)) return fmt::format("{:.0f} {}", value, units[unit]);
  return fmt::format("{:.1f} {}", value, units[unit]);
}

std::string microseconds_text(double us) {
  if (us < 9.995) return fmt::format("{:.2f}", us);
  if (us < 999.95) return fmt::format("{:.1f}", us);
  return fmt::format("{:.0f}", us);
}

std::string ratio_text(double ratio) {
  if (ratio >= 99.95) return fmt::format("{:.0f}", ratio);
  if (ratio >= 9.995) return fmt::format("{:.1f}", ratio);
  if (ratio >= 0.0995) return fmt::format("{:.2f}", ratio);
  if (ratio >= 0.00995) return fmt::format("{:.3f}", ratio);
  return fmt::format("{:.2g}", ratio);
}

std::string ratio_text(const Estimate& ratio) {
  if (!ratio.ci95) return ratio_text(ratio.value);
  return fmt::format("{} [{}, {}]", ratio_text(ratio.value), ratio_text(ratio.ci95->low),
                     ratio_text(ratio.ci95->high));
}

std::string seconds_text(double seconds) {
  if (seconds < 0.9995) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 99.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::lround(seconds));
  return fmt::format("{} min {:02} s", whole / 60, whole % 60);
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (const char c : text)
    if ((static_cast<unsigned char>(c) & 0xC0U) != 0x80U) ++width;
  return width;
}

std::string pad_left(std::string_view text, std::size_t width) {
  const std::size_t have = display_width(text);
  return std::string(have < width ? width - have : 0, ' ') + std::string(text);
}

std::string pad_right(std::string_view text, std::size_t width) {
  const std::size_t have = display_width(text);
  return std::string(text) + std::string(have < width ? width - have : 0, ' ');
}

std::string entry_text(std::string_view label, const std::vector<std::string>& parts,
                       std::size_t width) {
  constexpr std::string_view kDot = " · ";
  std::string text;
  std::string line = pad_right(label, 6);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool fits = display_width(line) + display_width(kDot) + display_width(parts[i]) <= width;
    if (i > 0 && !fits) text += std::exchange(line, std::string(6, ' ')) + "\n";
    line += i == 0 || !fits ? " " : kDot;
    line += parts[i];
  }
  return parts.empty() ? "" : text + line + "\n";
}

namespace {

// The number at the front of `text`; leaves the rest in `text`. Only digits and one point: no sign,
// no exponent.
std::optional<double> take_number(std::string_view& text) {
  std::size_t length = 0;
  bool point = false;
  bool digit = false;
  while (length < text.size()) {
    const char c = text[length];
    if (c == '.' && !point) {
      point = true;
    } else if (c >= '0' && c <= '9') {
      digit = true;
    } else {
      break;
    }
    ++length;
  }
  if (!digit || length > 30) return std::nullopt;
  const double value = std::strtod(std::string(text.substr(0, length)).c_str(), nullptr);
  text.remove_prefix(length);
  return value;
}

}  // namespace

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  const std::optional<double> number = take_number(text);
  if (!number) return std::nullopt;
  double scale = 1;
  if (!text.empty()) {
    constexpr std::string_view letters = "KMGT";
    const char upper = static_cast<char>(text.front() & ~0x20);
    if (const std::size_t at = letters.find(upper); at != std::string_view::npos) {
      scale = std::pow(1024.0, static_cast<double>(at + 1));
      text.remove_prefix(1);
    }
  }
  if (!text.empty() && text != "B" && text != "iB") return std::nullopt;
  const double bytes = *number * scale;
  if (bytes != std::floor(bytes) || bytes > 1e15) return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

std::optional<double> parse_seconds(std::string_view text) {
  const std::optional<double> number = take_number(text);
  if (!number) return std::nullopt;
  if (text.empty() || text == "s") return *number;
  if (text == "ms") return *number * 1e-3;
  if (text == "us") return *number * 1e-6;
  if (text == "m" || text == "min") return *number * 60;
  return std::nullopt;
}

std::optional<double> parse_fraction(std::string_view text) {
  const std::optional<double> number = take_number(text);
  if (!number) return std::nullopt;
  if (text == "%") return *number / 100;
  if (!text.empty()) return std::nullopt;
  return *number;
}

}  // namespace c10d::bench
