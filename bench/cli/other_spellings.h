// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/collective.h"

// What users of nccl-tests and of the OSU benchmarks type.
namespace c10d::bench {

struct OtherSpelling {
  std::string_view theirs;   // an option
  std::string_view ours;     // the same here; empty: there is none
  std::string_view instead;  // then: what to do, for the error
};
std::span<const OtherSpelling> other_spellings();

// The arguments of run or compare in the spelling of this program. Throws InvalidArgument for an
// option that has no counterpart here, and for one that means something else here.
std::vector<std::string> in_our_spelling(const std::vector<std::string>& arguments,
                                         bool (*wants_value)(const std::string& argument));

// "float", "int32" and "f32" alike. Throws InvalidArgument.
DType dtype_of(std::string_view name);
ReduceOp::Kind redop_of(std::string_view name);

}  // namespace c10d::bench
