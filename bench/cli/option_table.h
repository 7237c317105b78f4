// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "bench/model/options.h"

namespace c10d::bench {

// What the command line holds as text before it is checked.
struct RawOptions {
  std::vector<std::string> ops;
  std::string backends, only;
  std::string min = "1K", max = "64M", step, sizes, time = "0.3s", timeout = "30s", equiv = "2%";
  double factor = 2;
  std::string dtypes = "f32", redops = "sum", root = "0", place = "out", device = "cpu";
  std::string warmup = "auto", order = "random", dirty = "on", sync = "loop", check = "first";
  std::string bind = "auto", cache, start_skew = "0us", min_effect = "5%";
  std::string memory = "plain", size, replay, fail_above, compute_time;
  std::string against;
  std::vector<std::string> side_variables;
  std::string columns, color = "auto", progress = "auto", control = "on";
};

// One option of run and compare.
struct OptionFacts {
  const char* names;       // "-n,--ranks"
  const char* value_name;  // "N", or its values: "on|off"; empty: a flag
  bool usual;              // in --help; others only in --help-all
  const char* group;       // of the help text; empty: in neither
  const char* help;
  // Where it goes; with a vector, the option may be given several times.
  std::variant<std::string*, double*, int*, std::uint64_t*, bool*, std::vector<std::string>*> value;
  int low = 0, high = 0;  // of numbers; equal: any
  bool is_flag() const { return std::holds_alternative<bool*>(value); }
};
// All of them, with values in `raw` and `options`.
std::vector<OptionFacts> option_facts(RawOptions& raw, RunOptions& options);

}  // namespace c10d::bench
