// SPDX-License-Identifier: BSD-3-Clause
// The extension of the Python package c10d_torch.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "python/torch/src/failures.h"
#include "python/torch/src/group.h"

namespace py = pybind11;

namespace c10d_torch {
namespace {

// Raises c10d_torch.Error with what is known as attributes; None is not known.
void raise(const Failure& failure) {
  const py::object type = py::module_::import("c10d_torch").attr("Error");
  py::object error = type(failure.message);
  const auto text = [](const std::string& value) -> py::object {
    return value.empty() ? py::object(py::none()) : py::object(py::str(value));
  };
  error.attr("code") = c10d_code_name(failure.code);
  error.attr("reason") = failure.reason;
  error.attr("rank") =
      failure.rank < 0 ? py::object(py::none()) : py::object(py::int_(failure.rank));
  error.attr("pid") = failure.pid <= 0 ? py::object(py::none()) : py::object(py::int_(failure.pid));
  error.attr("host") = text(failure.host);
  error.attr("group") = text(failure.group);
  error.attr("op") = text(failure.op);
  error.attr("sequence") =
      failure.sequence == 0 ? py::object(py::none()) : py::object(py::int_(failure.sequence));
  PyErr_SetObject(type.ptr(), error.ptr());
}

c10::intrusive_ptr<Base> create(const c10::intrusive_ptr<::c10d::Store>& store, int rank, int size,
                                const c10::intrusive_ptr<GroupOptions>& options,
                                const std::string& name) {
  return c10::make_intrusive<Group>(store_over(store), rank, size, options, name);
}

// Whether a group of PyTorch is one of ours over native, which sums along one tree over the ranks.
bool is_native(const c10::intrusive_ptr<Base>& group) {
  const auto* const ours = dynamic_cast<const Group*>(group.get());
  return ours != nullptr && ours->is_native();
}

}  // namespace

PYBIND11_MODULE(_c10d_torch, module) {
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Error& error) {
      raise(error.failure);
    } catch (const Unsupported& error) {
      PyErr_SetString(PyExc_NotImplementedError, error.what_without_backtrace());
    } catch (const Invalid& error) {
      PyErr_SetString(PyExc_ValueError, error.what_without_backtrace());
    }
  });
  py::module_::import("torch.distributed");  // has the types that those here derive from
  py::class_<GroupOptions, c10::intrusive_ptr<GroupOptions>, Base::Options>(module, "Options")
      .def(py::init<std::string, Milliseconds>(), py::arg("backend") = "",
           py::arg("timeout") = Milliseconds(0))
      .def_readonly("backend", &GroupOptions::below)
      .def_readonly("timeout", &GroupOptions::timeout);
  module.def("create", &create, py::call_guard<py::gil_scoped_release>());
  module.def("is_native", &is_native);
  module.def("leave_all", &Group::leave_all, py::call_guard<py::gil_scoped_release>());
}

}  // namespace c10d_torch
