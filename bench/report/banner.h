// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "bench/analyse/summary.h"
#include "bench/model/record.h"

namespace c10d::bench {

// What stands above and below the tables: conventions, machine, libraries, ceilings, checks; then
// control, skips, warnings and the line that repeats the run. Facts are broken into lines of
// `width`.
std::string header_text(const Results& results, const Summary& summary, std::size_t width);
// `json` is the file of the records, which warnings point to; empty: none.
std::string footer_text(const Results& results, const Summary& summary, int exit_code,
                        const std::string& json, std::size_t width);

// The command line as one could type it.
std::string command_text(const Json& run);
// The commit that was measured; empty where the run does not say.
std::string commit_of(const Json& run);
// "2 CPUs, AMD EPYC, 1 NUMA node, VM, Linux 6.1": of one env record.
std::string machine_text(const Json& environment);
// Without anything beyond ASCII, for terminals that ask for that.
std::string to_ascii(std::string text);

}  // namespace c10d::bench
