// SPDX-License-Identifier: BSD-3-Clause
#include "python/src/errors.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <string_view>

namespace nb = nanobind;

namespace c10d { namespace python {
namespace {

// A name, a host or an argument may be no UTF-8.
nb::object text_of(std::string_view text) {
  nb::object decoded =
      nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
  if (!decoded.is_valid()) throw nb::python_error();
  return decoded;
}

nb::object optional(bool known, const nb::object& value) { return known ? value : nb::none(); }

// Code of Python runs here, and so may the handler of a signal: what it raises comes first.
void raise(const std::exception_ptr& thrown, void*) try {
  try {
    std::rethrow_exception(thrown);
  } catch (const DistError& error) {
    const nb::object exception = exception_of(error.failure());
    PyErr_SetObject(exception.type().ptr(), exception.ptr());
  } catch (const InvalidArgument& error) {
    PyErr_SetObject(nb::module_::import_("c10d._errors").attr("InvalidArgument").ptr(),
                    text_of(error.what()).ptr());
  }
} catch (nb::python_error& raised) {
  raised.restore();
}

}  // namespace

nb::object exception_of(const Failure& failure) {
  const nb::object make = nb::module_::import_("c10d._errors").attr("make");
  return make(text_of(DistError(failure).what()), nb::arg("code") = to_string(failure.code),
              nb::arg("reason") = to_string(reason_of(failure.code)),
              nb::arg("rank") = optional(failure.rank >= 0, nb::int_(failure.rank)),
              nb::arg("host") = optional(!failure.host.empty(), text_of(failure.host)),
              nb::arg("pid") = optional(failure.pid != 0, nb::int_(failure.pid)),
              nb::arg("group") = optional(!failure.group.empty(), text_of(failure.group)),
              nb::arg("op") = optional(!failure.op.empty(), text_of(failure.op)),
              nb::arg("sequence") = optional(failure.sequence != 0, nb::int_(failure.sequence)));
}

void translate_exceptions() { nb::register_exception_translator(raise); }

}}  // namespace c10d::python
