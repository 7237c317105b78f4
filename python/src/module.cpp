// SPDX-License-Identifier: BSD-3-Clause
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "c10d/capability.h"
#include "c10d/env.h"
#include "python/src/call.h"
#include "python/src/errors.h"
#include "python/src/interpreter.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace c10d { namespace python { namespace {

void bind_facts(nb::module_& module) {
  Documented<LaunchInfo>(module, "LaunchInfo")
      .def_ro("rank", &LaunchInfo::rank)
      .def_ro("size", &LaunchInfo::size)
      .def_ro("local_rank", &LaunchInfo::local_rank)
      .def_ro("local_size", &LaunchInfo::local_size)
      .def_ro("launcher", &LaunchInfo::launcher)
      .def_ro("evidence", &LaunchInfo::evidence)
      .def("__repr__", [](const LaunchInfo& self) {
        return "LaunchInfo(rank=" + std::to_string(self.rank) +
               ", size=" + std::to_string(self.size) + ", launcher='" + self.launcher + "')";
      });
  define(module, "detect_launch", detect_launch);
  Documented<BackendInfo>(module, "BackendInfo")
      .def_ro("name", &BackendInfo::name)
      .def_ro("available", &BackendInfo::available)
      .def_ro("reason", &BackendInfo::reason)
      .def_ro("version", &BackendInfo::version)
      .def_ro("path", &BackendInfo::path)
      .def("__repr__", [](const BackendInfo& self) {
        return "BackendInfo(name='" + self.name + "', " +
               (self.available ? "available=True, version='" + self.version
                               : "available=False, reason='" + self.reason) +
               "')";
      });
  define(module, "list_backends", [] {
    const WithoutGil released;
    return list_backends();
  });
  module.attr("version") = version();
}

void bind_reduce_op(nb::module_& module) {
  Documented<ReduceOp> op(module, "ReduceOp");
  op.def_static("premul", &ReduceOp::premul, "factor"_a)
      .def_prop_ro("name", [](const ReduceOp& self) { return to_string(self.kind); })
      .def_ro("factor", &ReduceOp::factor)
      .def("__repr__", [](const ReduceOp& self) {
        if (self.kind == ReduceOp::premul_sum)
          return "ReduceOp.premul(" + nb::cast<std::string>(nb::repr(nb::float_(self.factor))) +
                 ")";
        return "ReduceOp." + std::string(to_string(self.kind));
      });
  for (int kind = 0; kind < kReduceOpCount; ++kind) {
    if (kind == ReduceOp::premul_sum) continue;  // needs a factor
    const auto one = static_cast<ReduceOp::Kind>(kind);
    const nb::object value = nb::cast(ReduceOp(one));
    const nb::str name(std::string(to_string(one)).c_str());
    op.attr(name) = value;
    op.attr(name.attr("upper")()) = value;  // as MPI and PyTorch write it
  }
}

}}}  // namespace c10d::python

NB_MODULE(_c10d, module) {
  using namespace c10d::python;
  nb::set_leak_warnings(false);  // a program may end with a group in a global
  translate_exceptions();
  bind_facts(module);
  bind_reduce_op(module);
  bind_stores(module);
  bind_work(module);
  bind_group(module);
  module.attr("ANY_SOURCE") = c10d::kAnySource;
  module.def("_end", [] {
    LibraryThread::begin_end();
    end_python_groups();
    LibraryThread::await_end();
  });
  module.def("_after_fork_in_child", LibraryThread::forget);
}
