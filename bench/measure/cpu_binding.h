// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "bench/model/options.h"

namespace c10d::bench {

// A CPU that this process may use, and where it is.
struct Cpu {
  int number = 0;
  int package = 0;
  int core = 0;  // of the package
};
std::vector<Cpu> usable_cpus();

// The CPUs of `rank` among those of all ranks: neighbours, so that ranks share neither a core nor,
// as far as it works out, a package. Bind::automatic is a set of at least two CPUs, or, where there
// are too few, none. Empty: not bound.
std::vector<int> cpus_of_rank(std::vector<Cpu> cpus, int rank, int ranks, Bind bind);

// "0-3,8".
std::string cpus_text(std::vector<int> cpus);

}  // namespace c10d::bench
