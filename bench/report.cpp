// SPDX-License-Identifier: BSD-3-Clause
#include "bench/report.h"
namespace c10d::bench {
std::string html_report(const Results&, const Summary&) { return ""; }
int write_report(const std::vector<std::string>&, const std::string&) { return 0; }
}
