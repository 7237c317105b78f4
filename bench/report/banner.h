// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include "bench/analyse/summary.h"
#include "bench/model/record.h"

namespace c10d::bench {

// How much of a run is told: the machine, skips and warnings; or everything.
enum class Detail : std::uint8_t { brief, full };

// What stands above and below the tables: machine, wrong data; in full also conventions, libraries,
// ceilings, checks; then skips and warnings; in full also controls and the line that repeats the
// run. Facts are broken into lines of `width`.
std::string header_text(const Results& results, const Summary& summary, Detail detail,
                        std::size_t width);
// `json` is the file of the records, which warnings point to; empty: none.
std::string footer_text(const Results& results, const Summary& summary, Detail detail,
                        int exit_code, const std::string& json, std::size_t width);

// The command line as one could type it, with what started the ranks if they were on several hosts.
// `only` takes the place of the cells that the run was for; empty: these.
std::string command_text(const Results& results, const std::string& only = {});
// The commit that was measured; empty where the run does not say.
std::string commit_of(const Json& run);
// "2 CPUs, AMD EPYC, 1 NUMA node, VM, Linux 6.1": of one env record.
// The GPUs of the ranks in an env record, and by which library the driver was reached: a stand-in
// has no times of a GPU. Nothing of a run on the CPU.
std::vector<std::string> gpu_parts(const Json& environment);
// What --busy asked for.
std::vector<std::string> busy_parts(const Results& results);
std::string machine_text(const Json& environment);
// Without anything beyond ASCII, for terminals that ask for that.
std::string to_ascii(std::string text);

}  // namespace c10d::bench
