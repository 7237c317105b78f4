// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/analyse/summary.h"

namespace c10d::bench {

// Columns that --columns takes.
struct ColumnFacts {
  std::string_view name;
  std::string_view help;
};
const std::vector<ColumnFacts>& column_facts();

struct TableStyle {
  // Of the terminal. Tables that do not fit turn to one line per backend, then lose columns.
  std::size_t width = 180;
  bool color = false;
  bool compare = true;
  bool fits = false;                 // the lines `fit` and `cross` below a table
  std::vector<std::string> columns;  // empty: the usual ones
};

// The tables as printed.
std::string text_tables(const Summary& summary, const TableStyle& style);
// The same as Markdown.
std::string markdown_tables(const Summary& summary, const TableStyle& style);

}  // namespace c10d::bench
