// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "bench/record.h"
#include "bench/summary.h"

namespace c10d::bench {

// One HTML file that needs nothing else: inline style, figures as SVG, no script, no network.
std::string html_report(const Results& results, const Summary& summary);

// Merges files of earlier runs, launches numbered on, into one report. Returns an exit code.
int write_report(const std::vector<std::string>& files, const std::string& path);

}  // namespace c10d::bench
