// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/store.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/arguments.h"
#include "python/src/call.h"
#include "python/src/interpreter.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace c10d { namespace python {
namespace {

using Keys = std::vector<std::string>;

std::string value_of(nb::handle value) {
  if (nb::isinstance<nb::bytes>(value)) {
    const auto bytes = nb::borrow<nb::bytes>(value);
    return {bytes.c_str(), bytes.size()};
  }
  if (nb::isinstance<nb::str>(value)) try {
      return nb::cast<std::string>(value);
    } catch (const std::bad_cast&) {
      throw nb::value_error("a value of a store is stored as UTF-8, and this str has a surrogate");
    }
  if (PyObject_CheckBuffer(value.ptr()) != 0) {
    const nb::object bytes = nb::steal(PyBytes_FromObject(value.ptr()));
    if (!bytes.is_valid()) throw nb::python_error();
    return value_of(bytes);
  }
  throw nb::type_error("a value of a store is bytes, a buffer, or a str that is stored as UTF-8");
}

// A str, bytes or os.PathLike, as os.open() takes it.
std::string path_of(nb::handle path) {
  PyObject* encoded = nullptr;
  if (PyUnicode_FSConverter(path.ptr(), &encoded) == 0) throw nb::python_error();
  const auto bytes = nb::steal<nb::bytes>(encoded);
  return {bytes.c_str(), bytes.size()};
}

nb::bytes to_python(const std::string& value) { return nb::bytes(value.data(), value.size()); }

nb::object to_python(const std::optional<std::string>& value) {
  return value ? nb::object(to_python(*value)) : nb::none();
}

// A method that calls `call(store, ..., timeout)` without the GIL.
template <class Call>
auto waiting(nb::handle timeout, Call&& call) {
  const auto limit = duration_of(timeout, "timeout");
  return without_gil(nullptr, [&] { return call(limit); });
}

void bind_values(Documented<Store>& store) {
  const auto patience = "timeout"_a = nb::none();
  store
      .def(
          "set",
          [](Store& self, const std::string& key, nb::handle value, nb::handle timeout) {
            const std::string bytes = value_of(value);
            waiting(timeout, [&](auto limit) { self.set(key, bytes, limit); });
          },
          "key"_a, "value"_a, patience)
      .def(
          "get",
          [](Store& self, const std::string& key, nb::handle timeout) {
            return to_python(waiting(timeout, [&](auto limit) { return self.get(key, limit); }));
          },
          "key"_a, patience)
      .def(
          "try_get",
          [](Store& self, const std::string& key, nb::handle timeout) {
            return to_python(
                waiting(timeout, [&](auto limit) { return self.try_get(key, limit); }));
          },
          "key"_a, patience)
      .def(
          "add",
          [](Store& self, const std::string& key, std::int64_t amount, nb::handle timeout) {
            return waiting(timeout, [&](auto limit) { return self.add(key, amount, limit); });
          },
          "key"_a, "amount"_a, patience)
      .def(
          "compare_set",
          [](Store& self, const std::string& key, nb::handle expected, nb::handle desired,
             nb::handle timeout) {
            std::optional<std::string> before;
            if (!expected.is_none()) before = value_of(expected);
            const std::string bytes = value_of(desired);
            return to_python(waiting(
                timeout, [&](auto limit) { return self.compare_set(key, before, bytes, limit); }));
          },
          "key"_a, "expected"_a.none(), "desired"_a, patience)
      .def(
          "append",
          [](Store& self, const std::string& key, nb::handle value, nb::handle timeout) {
            const std::string bytes = value_of(value);
            return waiting(timeout, [&](auto limit) { return self.append(key, bytes, limit); });
          },
          "key"_a, "value"_a, patience)
      .def(
          "delete_key",
          [](Store& self, const std::string& key, nb::handle timeout) {
            return waiting(timeout, [&](auto limit) { return self.delete_key(key, limit); });
          },
          "key"_a, patience);
}

void bind_waits(Documented<Store>& store) {
  const auto patience = "timeout"_a = nb::none();
  store
      .def(
          "wait",
          [](Store& self, const Keys& keys, nb::handle timeout) {
            waiting(timeout, [&](auto limit) { self.wait(std::span(keys), limit); });
          },
          "keys"_a, patience)
      .def(
          "check",
          [](Store& self, const Keys& keys, nb::handle timeout) {
            return waiting(timeout, [&](auto limit) { return self.check(std::span(keys), limit); });
          },
          "keys"_a, patience)
      .def(
          "multi_get",
          [](Store& self, const Keys& keys, nb::handle timeout) {
            nb::list values;
            for (const std::string& value : waiting(
                     timeout, [&](auto limit) { return self.multi_get(std::span(keys), limit); }))
              values.append(to_python(value));
            return values;
          },
          "keys"_a, patience)
      .def(
          "num_keys",
          [](Store& self, nb::handle timeout) {
            return waiting(timeout, [&](auto limit) { return self.num_keys(limit); });
          },
          patience)
      .def(
          "push",
          [](Store& self, const std::string& key, nb::handle value, nb::handle timeout) {
            const std::string bytes = value_of(value);
            waiting(timeout, [&](auto limit) { self.push(key, bytes, limit); });
          },
          "key"_a, "value"_a, patience)
      .def(
          "pop",
          [](Store& self, const std::string& key, nb::handle timeout) {
            return to_python(waiting(timeout, [&](auto limit) { return self.pop(key, limit); }));
          },
          "key"_a, patience)
      .def(
          "barrier",
          [](Store& self, const std::string& key, int size, nb::handle timeout) {
            waiting(timeout, [&](auto limit) { self.barrier(key, size, limit); });
          },
          "key"_a, "size"_a, patience);
}

std::shared_ptr<TcpStore> tcp_store(std::string host, std::uint16_t port, bool server,
                                    std::string job, const nb::bytes& token, nb::handle timeout) {
  const TcpStoreOptions options{
      .host = std::move(host),
      .port = port,
      .server = server,
      .job = std::move(job),
      .token = std::string(token.c_str(), token.size()),
      .timeout = duration_of(timeout, "timeout").value_or(kDefaultStoreTimeout)};
  return without_gil(nullptr, [&] { return make_tcp_store(options); });
}

}  // namespace

void bind_stores(nb::module_& module) {
  Documented<Store> store(module, "Store");
  bind_values(store);
  bind_waits(store);
  Documented<TcpStore, Store>(module, "TcpStore")
      .def_prop_ro("host", [](const TcpStore& self) { return self.host(); })
      .def_prop_ro("port", [](const TcpStore& self) { return self.port(); });
  const auto patience = "timeout"_a = nb::none();
  define(module, "tcp_store", tcp_store, "host"_a = "127.0.0.1", "port"_a = 0, nb::kw_only(),
         "server"_a = false, "job"_a = "", "token"_a = nb::bytes("", 0), patience);
  define(
      module, "file_store",
      [](nb::handle path, int size, nb::handle timeout) {
        std::string file = path_of(path);
        const Duration limit = duration_of(timeout, "timeout").value_or(kDefaultStoreTimeout);
        return without_gil(nullptr, [&] { return make_file_store(std::move(file), size, limit); });
      },
      "path"_a, "size"_a = 0, patience);
  define(
      module, "hash_store",
      [](nb::handle timeout) {
        return make_hash_store(duration_of(timeout, "timeout").value_or(kDefaultStoreTimeout));
      },
      patience);
  define(module, "prefix_store", make_prefix_store, "prefix"_a, "store"_a);
}

}}  // namespace c10d::python
