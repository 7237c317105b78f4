// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nanobind/nanobind.h>

#include "c10d/view.h"

namespace c10d { namespace python {

// The memory of a Python object that an op reads or writes, through the buffer protocol or DLPack.
// It holds the object until it ends, which needs the GIL.
class Buffer {
 public:
  enum class Use : std::uint8_t { read, write };
  // How errors name it: "all_reduce: output".
  struct Place {
    const char* op;
    const char* argument;
  };

  Buffer() = default;
  ~Buffer() { release(); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // Takes the memory of `object`, once; None is no buffer. Throws TypeError or ValueError that says
  // what is wrong with it and what to do.
  View take(nanobind::handle object, Place place, Use use);
  void release();
  // Keeps the object for ever: where the interpreter ends, nobody can release it.
  void abandon() noexcept;

 private:
  View from_buffer() const;
  bool take_buffer(nanobind::handle object, Use use);
  View take_small_floats(nanobind::handle object, DType dtype, Use use);
  View take_dlpack(nanobind::handle object, Use use);
  [[noreturn]] void refuse(PyObject* type, const std::string& why) const;
  [[noreturn]] void explain(nanobind::handle object, Use use);

  Place place_{};
  Py_buffer buffer_{};  // taken where its obj is not null
  nanobind::object capsule_;
};

}}  // namespace c10d::python
