// SPDX-License-Identifier: BSD-3-Clause
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "c10d/init.h"
#include "python/src/arguments.h"
#include "python/src/call.h"
#include "python/src/errors.h"
#include "python/src/interpreter.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace c10d { namespace python {
namespace {

Group* init(std::string backend, std::string url, std::shared_ptr<Store> store,
            std::optional<int> rank, std::optional<int> size, nb::handle timeout,
            nb::handle connect_timeout, const nb::bytes& token, std::string name) {
  InitOptions options{.backend = std::move(backend),
                      .url = std::move(url),
                      .store = std::move(store),
                      .rank = rank,
                      .size = size,
                      .timeout = duration_of(timeout, "timeout"),
                      .connect_timeout = duration_of(connect_timeout, "connect_timeout"),
                      .token = std::string(token.c_str(), token.size()),
                      .name = std::move(name)};
  return new Group(without_gil(nullptr, [&] { return init_process_group(std::move(options)); }));
}

// Null where there is none: a rank that split() was given no color.
Group* maybe(ProcessGroup group) { return group ? new Group(std::move(group)) : nullptr; }

Group* new_group(const Group& group, const std::vector<int>& ranks, const std::string& name) {
  const ProcessGroup& from = group.handle;
  return maybe(without_gil(&from, [&] { return from.new_group(std::span(ranks), name); }));
}

Group* split(const Group& group, std::optional<int> color, int key) {
  return maybe(without_gil(&group.handle, [&] { return group.handle.split(color, key); }));
}

Group* split_by_host(const Group& group) {
  return maybe(without_gil(&group.handle, [&] { return group.handle.split_by_host(); }));
}

void monitored_barrier(const Group& group, nb::handle timeout) {
  const auto limit = duration_of(timeout, "timeout");
  without_gil(&group.handle, [&] { group.handle.monitored_barrier(limit); });
}

void shut_down(const Group& group, nb::handle timeout) {
  const Duration limit = duration_of(timeout, "timeout").value_or(std::chrono::seconds(30));
  without_gil(&group.handle, [&] { group.handle.shutdown(limit); });
}

void abort(const Group& group, const std::string& why) {
  const WithoutGil released;
  group.handle.abort(why);
}

// "KeyError: 'lost'", in UTF-8 whatever it holds; the name of its type where str() of it fails.
std::string described(nb::handle type, nb::handle value) {
  std::string text = "an exception";
  try {
    text = nb::cast<std::string>(nb::str(type.attr("__name__")));
    const nb::object bytes = nb::str(value).attr("encode")("utf-8", "backslashreplace");
    text += ": " + std::string(PyBytes_AsString(bytes.ptr()));
  } catch (const std::exception&) {  // that of the user counts
  }
  return text;
}

// The end of a with statement. An exception aborts the group: the others need not wait for it.
void leave(const Group& group, nb::handle type, nb::handle value) {
  if (type.is_none()) return shut_down(group, nb::none());
  abort(group, described(type, value));
}

nb::object failure_of(const Group& group) {
  const Failure* const failure = group.handle.failure();
  return failure == nullptr ? nb::none() : exception_of(*failure);
}

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

std::string show(const Group& group) {
  const ProcessGroup& handle = group.handle;
  return "<c10d.ProcessGroup \"" + handle.id() + "\", rank " + std::to_string(handle.rank()) +
         " of " + std::to_string(handle.size()) + ", " + handle.backend() + ">";
}

}  // namespace

void bind_group(nb::module_& module) {
  Documented<Member>(module, "Member")
      .def_ro("rank", &Member::rank)
      .def_ro("host", &Member::host)
      .def_ro("pid", &Member::pid)
      .def_ro("same_host", &Member::same_host)
      .def("__repr__", [](const Member& self) {
        return "Member(rank=" + std::to_string(self.rank) + ", host='" + self.host +
               "', pid=" + std::to_string(self.pid) +
               ", same_host=" + (self.same_host ? "True" : "False") + ")";
      });
  Documented<Group> group(module, "ProcessGroup", nb::is_weak_referenceable());
  group.def_prop_ro("rank", [](const Group& self) { return self.handle.rank(); })
      .def_prop_ro("size", [](const Group& self) { return self.handle.size(); })
      .def_prop_ro("name", [](const Group& self) { return self.handle.id(); })
      .def_prop_ro("backend", [](const Group& self) { return self.handle.backend(); })
      .def_prop_ro("description", [](const Group& self) { return self.handle.description(); })
      .def_prop_ro("members", [](const Group& self) { return self.handle.members(); })
      .def_prop_ro("sequence", [](const Group& self) { return self.handle.sequence(); })
      .def_prop_ro("reduces_along_rank_tree",
                   [](const Group& self) { return self.handle.reduces_along_rank_tree(); })
      .def_prop_ro("failure", failure_of)
      .def_prop_ro(
          "store", [](const Group& self) -> Store& { return self.handle.store(); },
          nb::rv_policy::reference_internal)
      .def_prop_rw(
          "timeout", [](const Group& self) { return seconds(self.handle.timeout()); },
          [](const Group& self, nb::handle timeout) {
            if (const auto limit = duration_of(timeout, "timeout")) self.handle.set_timeout(*limit);
          })
      .def("new_group", new_group, "ranks"_a, "name"_a = "")
      .def("split", split, "color"_a.none(), "key"_a = 0)
      .def("split_by_host", split_by_host)
      .def("monitored_barrier", monitored_barrier, "timeout"_a = nb::none())
      .def("abort", abort, "why"_a = "abort() was called")
      .def("shutdown", shut_down, "timeout"_a = nb::none())
      .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
      .def(
          "__exit__",
          [](const Group& self, nb::handle type, nb::handle value, nb::handle) {
            leave(self, type, value);
          },
          "type"_a.none(), "value"_a.none(), "traceback"_a.none())
      .def("__repr__", show);
  bind_ops(group);
  define(module, "init_process_group", init, "backend"_a = "", nb::kw_only(), "url"_a = "env://",
         "store"_a = nb::none(), "rank"_a = nb::none(), "size"_a = nb::none(),
         "timeout"_a = nb::none(), "connect_timeout"_a = nb::none(), "token"_a = nb::bytes("", 0),
         "name"_a = "world");
}

}}  // namespace c10d::python
