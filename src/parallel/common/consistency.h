// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string_view>

#include "c10d/parallel/parameters.h"
#include "c10d/process_group.h"

namespace c10d { inline namespace v0 { namespace parallel {

// Collective: a group of the same ranks, for a thread of the caller's own.
ProcessGroup duplicate_group(const ProcessGroup& group, std::string_view name);

// Collective: throws a mismatch on every rank that names the first difference unless `list` and
// `options`, a line of text, are the same everywhere and right by check_list(). `problem`: what
// else this rank found wrong; empty when nothing. `who` begins the messages.
void agree_on_parameters(const ProcessGroup& group, std::string_view who,
                         std::span<const ParamSpec> list, std::string_view options,
                         std::string problem = {});

}}}  // namespace c10d::v0::parallel
