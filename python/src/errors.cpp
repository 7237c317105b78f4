// SPDX-License-Identifier: BSD-3-Clause
#include "python/src/errors.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <new>

namespace nb = nanobind;

namespace c10d { namespace python {
namespace {

nb::object optional(bool known, const nb::object& value) { return known ? value : nb::none(); }

void raise(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const DistError& error) {
    const nb::object exception = exception_of(error.failure());
    PyErr_SetObject(exception.type().ptr(), exception.ptr());
  } catch (const InvalidArgument& error) {
    PyErr_SetString(nb::module_::import_("c10d._errors").attr("InvalidArgument").ptr(),
                    error.what());
  }
}

}  // namespace

nb::object exception_of(const Failure& failure) {
  const nb::object make = nb::module_::import_("c10d._errors").attr("make");
  return make(DistError(failure).what(), nb::arg("code") = to_string(failure.code),
              nb::arg("reason") = to_string(reason_of(failure.code)),
              nb::arg("rank") = optional(failure.rank >= 0, nb::int_(failure.rank)),
              nb::arg("host") = optional(!failure.host.empty(), nb::cast(failure.host)),
              nb::arg("pid") = optional(failure.pid != 0, nb::int_(failure.pid)),
              nb::arg("group") = optional(!failure.group.empty(), nb::cast(failure.group)),
              nb::arg("op") = optional(!failure.op.empty(), nb::cast(failure.op)),
              nb::arg("sequence") = optional(failure.sequence != 0, nb::int_(failure.sequence)));
}

void translate_exceptions() { nb::register_exception_translator(raise); }

}}  // namespace c10d::python
