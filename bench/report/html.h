// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "bench/analyse/summary.h"
#include "bench/model/record.h"

namespace c10d::bench {

// One HTML file that needs nothing else: inline style, figures as SVG, no script, no network.
std::string html_report(const Results& results, const Summary& summary);

// The figures of the report, each as a file of its own that opens in any viewer: DIR/OP...-time.svg
// and so on. Throws InvalidArgument when one cannot be written.
void write_figures(const std::string& folder, const Summary& summary);

// Merges files of earlier runs, launches numbered on, into one report, into figures, or both; an
// empty path is not written. Without any path it prints the tables, and with `verbose` all that
// stands around them. Returns an exit code.
int write_report(const std::vector<std::string>& files, const std::string& path,
                 const std::string& svg, bool verbose);

}  // namespace c10d::bench
