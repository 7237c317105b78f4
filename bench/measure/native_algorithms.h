// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace c10d::bench {

// What native can run for an op, some of it on registered memory only.
struct OpAlgorithms {
  std::string op;
  std::vector<std::string> names;
};
// Asks a group of `ranks` threads of this process.
std::vector<OpAlgorithms> native_algorithms(int ranks);

// The names in short: "one_shot/{streaming,temporal}/{32768,131072} pull/{streaming,temporal}".
std::string folded(const std::vector<std::string>& names);

// Whether `algorithm`, e.g. "two_shot/streaming/32768", is what `asked` wants for the op:
// "two_shot", "two_shot/streaming", "all_reduce=two_shot,pull". What wants nothing of the op is
// content.
bool is_as_asked(std::string_view op, std::string_view algorithm, std::string_view asked);

// Throws InvalidArgument, with the nearest name, when a part of `asked` is no algorithm of any op.
void refuse_unknown_algorithm(std::string_view asked, int ranks);

}  // namespace c10d::bench
