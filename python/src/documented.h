// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>

namespace c10d { namespace python {

// What the stub says of a name, such as "Store.set"; empty where it says nothing.
const char* doc_of(const std::string& name);

// A class of the extension whose help() is that of the stub.
template <class... Types>
class Documented : public nanobind::class_<Types...> {
  using Base = nanobind::class_<Types...>;

 public:
  template <class... Extra>
  Documented(nanobind::handle scope, const char* name, const Extra&... extra)
      : Base(scope, name, doc_of(name), extra...), name_(name) {}

  template <class... More>
  Documented& def(const char* name, More&&... more) {
    Base::def(name, std::forward<More>(more)..., doc(name));
    return *this;
  }
  template <class... More>
  Documented& def_static(const char* name, More&&... more) {
    Base::def_static(name, std::forward<More>(more)..., doc(name));
    return *this;
  }
  template <class... More>
  Documented& def_prop_ro(const char* name, More&&... more) {
    Base::def_prop_ro(name, std::forward<More>(more)..., doc(name));
    return *this;
  }
  template <class... More>
  Documented& def_prop_rw(const char* name, More&&... more) {
    Base::def_prop_rw(name, std::forward<More>(more)..., doc(name));
    return *this;
  }
  template <class... More>
  Documented& def_ro(const char* name, More&&... more) {
    Base::def_ro(name, std::forward<More>(more)..., doc(name));
    return *this;
  }

 private:
  const char* doc(const char* member) const { return doc_of(name_ + "." + member); }

  const std::string name_;
};

// A function of the module, likewise.
template <class... More>
void define(nanobind::module_& module, const char* name, More&&... more) {
  module.def(name, std::forward<More>(more)..., doc_of(name));
}

}}  // namespace c10d::python
