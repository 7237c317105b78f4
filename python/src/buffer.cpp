// SPDX-License-Identifier: BSD-3-Clause
#include "python/src/buffer.h"

#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "c10d/element.h"
#include "python/src/dlpack.h"

namespace nb = nanobind;
static_assert(std::endian::native == std::endian::little,
              "formats such as '<d' are taken as they are");

namespace c10d { namespace python {
namespace {

constexpr const char* kTypes = "f64 f32 f16 bf16 i64 i32 i16 i8 u64 u32 u16 u8 bool c64 c128";

using detail::integer_dtype;

std::optional<DType> checked(DType dtype, std::size_t size) {
  if (size_of(dtype) != size) return {};
  return dtype;
}

// A format of the module struct, of one element.
std::optional<DType> dtype_of_format(const char* format, std::size_t size) {
  if (format == nullptr) return checked(DType::u8, size);
  if (*format == '@' || *format == '=' || *format == '<' || (*format == '|' && size == 1)) ++format;
  const std::string_view text = format;
  if (text == "Zf" || text == "F") return checked(DType::c64, size);
  if (text == "Zd" || text == "D") return checked(DType::c128, size);
  if (text.size() != 1) return {};
  switch (text[0]) {
    case 'd':
      return checked(DType::f64, size);
    case 'f':
      return checked(DType::f32, size);
    case 'e':
      return checked(DType::f16, size);
    case '?':
      return checked(DType::boolean, size);
    case 'c':
      return checked(DType::u8, size);
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n':
      return checked(integer_dtype(size, true), size);
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N':
      return checked(integer_dtype(size, false), size);
    default:
      return {};
  }
}

std::optional<DType> dtype_of(const dlpack::Tensor& tensor) {
  const std::size_t size = tensor.type_bits / 8u;
  if (tensor.type_lanes != 1 || tensor.type_bits % 8 != 0) return {};
  switch (tensor.type_code) {
    case dlpack::signed_integer:
      return checked(integer_dtype(size, true), size);
    case dlpack::unsigned_integer:
      return checked(integer_dtype(size, false), size);
    case dlpack::floating:
      return checked(size == 2 ? DType::f16 : size == 4 ? DType::f32 : DType::f64, size);
    case dlpack::bfloat:
      return checked(DType::bf16, size);
    case dlpack::complex_number:
      return checked(size == 8 ? DType::c64 : DType::c128, size);
    case dlpack::boolean:
      return checked(DType::boolean, size);
    case dlpack::float8_e4m3fn:
      return checked(DType::f8e4m3, size);
    case dlpack::float8_e5m2:
      return checked(DType::f8e5m2, size);
    default:
      return {};
  }
}

// NumPy's arrays of these types of ml_dtypes have no buffer.
std::optional<DType> dtype_of_ml_dtypes(nb::handle object) {
  if (!nb::hasattr(object, "__array_interface__")) return {};
  static constexpr std::array<std::pair<const char*, DType>, 3> kNames = {
      {{"bfloat16", DType::bf16},
       {"float8_e4m3fn", DType::f8e4m3},
       {"float8_e5m2", DType::f8e5m2}}};
  const nb::str name(nb::object(object.attr("dtype").attr("name")));
  for (const auto& [known, dtype] : kNames)
    if (std::strcmp(name.c_str(), known) == 0) return dtype;
  return {};
}

bool is_in_c_order(const dlpack::Tensor& tensor) {
  std::int64_t expected = 1;
  for (std::int32_t i = tensor.dimensions; i-- > 0 && tensor.strides != nullptr;) {
    if (tensor.shape[i] == 0) return true;
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

std::string kind_of_object(nb::handle object) {
  return nb::cast<std::string>(nb::str(object.type().attr("__name__")));
}

bool has_any_buffer(nb::handle object) {
  Py_buffer any{};
  if (PyObject_GetBuffer(object.ptr(), &any, PyBUF_FULL_RO) == 0) {
    PyBuffer_Release(&any);
    return true;
  }
  PyErr_Clear();
  return false;
}

std::string pending_error() {
  nb::python_error error;
  return nb::cast<std::string>(nb::str(error.value()));
}

}  // namespace

void Buffer::release() {
  if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
  capsule_.reset();
}

void Buffer::abandon() noexcept {
  buffer_ = {};
  capsule_.release();
}

void Buffer::refuse(PyObject* type, const std::string& why) const {
  PyErr_SetString(type, (std::string(place_.op) + ": " + place_.argument + ": " + why).c_str());
  throw nb::python_error();
}

bool Buffer::take_buffer(nb::handle object, Use use) {
  constexpr int kRead = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT;
  return PyObject_GetBuffer(object.ptr(), &buffer_,
                            use == Use::write ? kRead | PyBUF_WRITABLE : kRead) == 0;
}

View Buffer::from_buffer() const {
  const auto size = static_cast<std::size_t>(buffer_.itemsize);
  const auto dtype = dtype_of_format(buffer_.format, size);
  if (!dtype)
    refuse(PyExc_TypeError,
           "its elements have the format '" + std::string(buffer_.format ? buffer_.format : "") +
               "', and c10d takes " + kTypes +
               " in the byte order of the machine: convert it with astype(), or move its bytes, "
               "x.view('u1')");
  return {buffer_.buf, static_cast<std::size_t>(buffer_.len) / size, *dtype};
}

View Buffer::take(nb::handle object, Place place, Use use) {
  place_ = place;
  if (object.is_none()) return {};
  const bool has_buffer = PyObject_CheckBuffer(object.ptr()) != 0;
  if (has_buffer && take_buffer(object, use)) return from_buffer();
  PyErr_Clear();
  const bool has_dlpack =
      nb::hasattr(object, "__dlpack__") && nb::hasattr(object, "__dlpack_device__");
  if (has_buffer) {
    if (const auto dtype = dtype_of_ml_dtypes(object))
      return take_small_floats(object, *dtype, use);
    if (!has_dlpack || has_any_buffer(object)) explain(object, use);
  }
  if (has_dlpack) return take_dlpack(object, use);  // also JAX's bf16, which has no buffer
  refuse(PyExc_TypeError, "a " + kind_of_object(object) +
                              " is no buffer: pass a NumPy array, a tensor, an array.array or "
                              "another object with the buffer protocol or DLPack");
}

// As integers of the same size, of which the same memory has a buffer.
View Buffer::take_small_floats(nb::handle object, DType dtype, Use use) {
  const nb::object integers = object.attr("view")(size_of(dtype) == 1 ? "u1" : "u2");
  if (!take_buffer(integers, use)) {
    PyErr_Clear();
    explain(integers, use);
  }
  return {buffer_.buf, static_cast<std::size_t>(buffer_.len) / size_of(dtype), dtype};
}

// Why the buffer of `object` cannot be taken.
void Buffer::explain(nb::handle object, Use use) {
  Py_buffer any{};
  if (PyObject_GetBuffer(object.ptr(), &any, PyBUF_FULL_RO) != 0)
    refuse(PyExc_TypeError, "a " + kind_of_object(object) + " does not give its memory: " +
                                pending_error() + "; c10d takes " + kTypes);
  const bool is_contiguous = PyBuffer_IsContiguous(&any, 'C') != 0;
  const bool is_readonly = any.readonly != 0;
  PyBuffer_Release(&any);
  if (!is_contiguous)
    refuse(PyExc_ValueError,
           use == Use::write
               ? "it is not contiguous (in C order), and c10d writes one block of memory: pass a "
                 "contiguous array and copy the result"
               : "it is not contiguous (in C order): pass numpy.ascontiguousarray(x)");
  if (is_readonly && use == Use::write)
    refuse(PyExc_ValueError,
           "it is read-only, and the op writes to it: pass a writable array, x.copy() for example");
  refuse(PyExc_ValueError, "a " + kind_of_object(object) + " does not give its memory");
}

View Buffer::take_dlpack(nb::handle object, Use use) {
  const nb::object device = object.attr("__dlpack_device__")();
  const auto type = nb::cast<int>(nb::int_(nb::object(device[0])));
  if (type != dlpack::cpu && type != dlpack::cuda_host)
    refuse(PyExc_ValueError,
           (type == dlpack::cuda ? "it is in the memory of GPU " +
                                       nb::cast<std::string>(nb::str(nb::object(device[1])))
                                 : "it is on a device of DLPack's type " + std::to_string(type)) +
               ", and the Python package takes memory of the host: copy it there first, x.cpu() "
               "for example");
  try {
    try {
      capsule_ = object.attr("__dlpack__")(nb::arg("max_version") = nb::make_tuple(1, 0));
    } catch (const nb::python_error& error) {
      if (!error.matches(PyExc_TypeError)) throw;
      capsule_ = object.attr("__dlpack__")();  // of before DLPack 1.0
    }
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
    refuse(PyExc_TypeError, "a " + kind_of_object(object) + " does not give its memory: " +
                                nb::cast<std::string>(nb::str(error.value())));
  }
  constexpr const char *kName = "dltensor", *kVersionedName = "dltensor_versioned";
  bool is_readonly = kind_of_object(object) == "ArrayImpl";  // JAX has immutable arrays
  const dlpack::Tensor* tensor = nullptr;
  if (PyCapsule_IsValid(capsule_.ptr(), kVersionedName)) {
    const auto* managed = static_cast<const dlpack::ManagedVersioned*>(
        PyCapsule_GetPointer(capsule_.ptr(), kVersionedName));
    if (managed->major != 1)
      refuse(PyExc_TypeError,
             "it speaks DLPack " + std::to_string(managed->major) + ", and c10d speaks DLPack 1");
    is_readonly |= (managed->flags & dlpack::ManagedVersioned::kReadOnly) != 0;
    tensor = &managed->tensor;
  } else if (PyCapsule_IsValid(capsule_.ptr(), kName)) {
    tensor =
        &static_cast<const dlpack::Managed*>(PyCapsule_GetPointer(capsule_.ptr(), kName))->tensor;
  } else {
    refuse(PyExc_TypeError, "its __dlpack__() returned no tensor");
  }
  if (is_readonly && use == Use::write)
    refuse(PyExc_ValueError, "it is read-only, and the op writes to it: pass a writable array");
  const auto dtype = python::dtype_of(*tensor);
  if (!dtype)
    refuse(PyExc_TypeError, "its elements have " + std::to_string(tensor->type_bits) +
                                " bits of DLPack's type " + std::to_string(tensor->type_code) +
                                ", and c10d takes " + kTypes);
  if (!is_in_c_order(*tensor))
    refuse(PyExc_ValueError, "it is not contiguous (in C order): pass x.contiguous()");
  std::size_t count = 1;
  for (std::int32_t i = 0; i < tensor->dimensions; ++i)
    count *= static_cast<std::size_t>(tensor->shape[i]);
  return {static_cast<std::byte*>(tensor->data) + tensor->byte_offset, count, *dtype};
}

}}  // namespace c10d::python
