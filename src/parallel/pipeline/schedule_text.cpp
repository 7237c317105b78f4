// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "src/parallel/common/throw_invalid.h"
#include "src/parallel/pipeline/schedule_graph.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

// In the order of ActionKind.
constexpr std::array<std::string_view, kActionKinds> kKindNames = {
    "F",           "B",      "I",      "W",      "UNSHARD", "RESHARD",
    "REDUCE_GRAD", "SEND_F", "RECV_F", "SEND_B", "RECV_B"};

// Takes a number below `limit` off the front of `text`; -1: there is none.
int take_number(std::string_view& text, int limit) {
  int number = -1;
  if (text.empty() || text.front() < '0' || text.front() > '9') return -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number >= limit) return -1;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\"");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\"") - first + 1);
}

// Calls take(part, number from 1 on) for the parts of `text` between separators.
template <class F>
void split_text(std::string_view text, char separator, F&& take) {
  for (std::size_t number = 1;; ++number) {
    const std::size_t end = text.find(separator);
    take(text.substr(0, end), number);
    if (end == text.npos) return;
    text.remove_prefix(end + 1);
  }
}

void parse_cell(std::string_view cell, std::vector<Action>& row) {
  constexpr std::string_view kOverlap = ")OVERLAP_F_B";
  if (cell.empty()) return;
  if (cell.front() != '(') return row.push_back(action_from_string(cell));
  if (!cell.ends_with(kOverlap))
    throw_invalid("no action: {} begins with ( but does not end with {}", cell.substr(0, 64),
                  kOverlap);
  split_text(cell.substr(1, cell.size() - 1 - kOverlap.size()), ';',
             [&](std::string_view part, std::size_t) {
               row.push_back(action_from_string(trimmed(part)));
             });
}

}  // namespace

std::string to_string(const Action& action) {
  const auto kind = static_cast<std::size_t>(action.kind);
  std::string text =
      fmt::format("{}{}", action.stage, kind < kKindNames.size() ? kKindNames[kind] : "?");
  if (has_micro_batch(action.kind)) text += std::to_string(action.micro_batch);
  return text;
}

Action action_from_string(std::string_view text) {
  std::string_view rest = text;
  const int stage = take_number(rest, kMaxStages);
  const std::string_view name = rest.substr(0, rest.find_first_of("0123456789"));
  rest.remove_prefix(name.size());
  const auto* const kind = std::find(kKindNames.begin(), kKindNames.end(), name);
  const int micro_batch = take_number(rest, kMaxMicroBatches);
  if (stage >= 0 && kind != kKindNames.end() && rest.empty()) {
    const Action action{stage, static_cast<ActionKind>(kind - kKindNames.begin()), micro_batch};
    if (has_micro_batch(action.kind) == (micro_batch >= 0)) return action;
  }
  throw_invalid(
      "no action: \"{}\"; one is <stage><kind><micro-batch>, such as 2F0, with the "
      "kinds {} (UNSHARD, RESHARD, REDUCE_GRAD without a micro-batch), stages below "
      "{} and micro-batches below {}",
      text.substr(0, 64), fmt::join(kKindNames, " "), kMaxStages, kMaxMicroBatches);
}

Schedule parse_schedule(std::string_view csv) {
  while (!csv.empty() && (csv.back() == '\n' || csv.back() == '\r')) csv.remove_suffix(1);
  Schedule schedule;
  split_text(csv, '\n', [&](std::string_view line, std::size_t row) {
    std::vector<Action>& actions = schedule.ranks.emplace_back();
    split_text(line, ',', [&](std::string_view cell, std::size_t column) {
      try {
        parse_cell(trimmed(cell), actions);
      } catch (const InvalidArgument& error) {
        throw_invalid("schedule, row {}, column {}: {}", row, column, error.what());
      }
    });
  });
  return schedule;
}

std::string to_csv(const Schedule& schedule) {
  std::string csv;
  for (const std::vector<Action>& row : schedule.ranks) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i != 0) csv += ',';
      csv += to_string(row[i]);
    }
    csv += '\n';
  }
  return csv;
}

}}}  // namespace c10d::v0::parallel
