// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <vector>

#include "c10d/call.h"
#include "c10d/collective.h"

namespace c10d { namespace python {

// Seconds, or a datetime.timedelta; None is nothing. `what` is how errors name it.
std::optional<Duration> duration_of(nanobind::handle seconds, const char* what);
// A ReduceOp, or the name of one; None is sum.
ReduceOp reduce_op_of(nanobind::handle op);
// A sequence of integers that are not negative.
std::vector<std::size_t> counts_of(nanobind::handle numbers, const char* what);

}}  // namespace c10d::python
