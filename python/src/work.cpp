// SPDX-License-Identifier: BSD-3-Clause
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "python/src/call.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace c10d { namespace python {

void bind_work(nb::module_& module) {
  Documented<Received>(module, "Received")
      .def_ro("source", &Received::source)
      .def_ro("count", &Received::count)
      .def("__repr__", [](const Received& self) {
        return "Received(source=" + std::to_string(self.source) +
               ", count=" + std::to_string(self.count) + ")";
      });
  Documented<PyWork>(module, "Work", nb::is_weak_referenceable())
      .def("wait", &PyWork::wait, "timeout"_a = nb::none())
      .def("done", &PyWork::done)
      .def_prop_ro("state", [](const PyWork& self) { return to_string(self.state()); })
      .def("exception", &PyWork::exception)
      .def_prop_ro("received", &PyWork::received)
      .def("on_done", &PyWork::on_done, "callback"_a)
      .def("__await__", [](nb::handle self) {
        return nb::module_::import_("c10d._await").attr("wait")(self).attr("__await__")();
      });
}

}}  // namespace c10d::python
