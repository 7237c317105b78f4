// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nanobind/nanobind.h>

#include "c10d/error.h"

namespace c10d { namespace python {

// The exception of the package for a failure: an object of a subclass of c10d.Error.
nanobind::object exception_of(const Failure& failure);
// Makes Python's exceptions of those of the library.
void translate_exceptions();

}}  // namespace c10d::python
