// SPDX-License-Identifier: BSD-3-Clause
#include "python/src/arguments.h"

#include <nanobind/stl/string.h>

#include <chrono>
#include <cmath>
#include <string>

namespace nb = nanobind;

namespace c10d { namespace python {

std::optional<Duration> duration_of(nb::handle seconds, const char* what) {
  if (seconds.is_none()) return {};
  nb::object number = nb::borrow(seconds);
  if (nb::hasattr(seconds, "total_seconds")) number = seconds.attr("total_seconds")();
  const double value = PyFloat_AsDouble(number.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw nb::type_error((std::string(what) + " is a number of seconds or a timedelta").c_str());
  }
  if (std::isnan(value)) throw nb::value_error((std::string(what) + " is not a number").c_str());
  constexpr double kMost = 366.0 * 24 * 3600;  // as much counts
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value < -kMost ? -kMost
                                                                            : value > kMost
                                                                                ? kMost
                                                                                : value));
}

ReduceOp reduce_op_of(nb::handle op) {
  if (op.is_none()) return ReduceOp::sum;
  if (nb::isinstance<nb::str>(op)) {
    const nb::object name = op.attr("lower")();
    const auto kind = reduce_op_from_string(nb::cast<std::string>(name));
    if (kind == ReduceOp::premul_sum)
      throw nb::value_error("op: \"premul_sum\" has a factor: pass c10d.ReduceOp.premul(factor)");
    return kind;
  }
  if (nb::isinstance<ReduceOp>(op)) return nb::cast<ReduceOp>(op);
  throw nb::type_error("op is a c10d.ReduceOp or a name such as \"max\"");
}

std::vector<std::size_t> counts_of(nb::handle numbers, const char* what) {
  std::vector<std::size_t> counts;
  for (const nb::handle number : numbers) {
    const Py_ssize_t count = PyNumber_AsSsize_t(number.ptr(), PyExc_OverflowError);
    if (count == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    if (count < 0)
      throw nb::value_error((std::string(what) + " holds " + std::to_string(count) +
                             "; numbers of elements start at 0")
                                .c_str());
    counts.push_back(static_cast<std::size_t>(count));
  }
  return counts;
}

}}  // namespace c10d::python
