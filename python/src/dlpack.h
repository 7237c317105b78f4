// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// The structs of the DLPack protocol, as far as an importer reads them. Their layout is fixed.
namespace c10d { namespace python { namespace dlpack {

enum DeviceCode : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3 };
enum TypeCode : std::uint8_t {
  signed_integer = 0,
  unsigned_integer = 1,
  floating = 2,
  bfloat = 4,
  complex_number = 5,
  boolean = 6,
  float8_e4m3fn = 10,
  float8_e5m2 = 12
};

struct Tensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t dimensions;
  std::uint8_t type_code;
  std::uint8_t type_bits;
  std::uint16_t type_lanes;
  const std::int64_t* shape;
  const std::int64_t* strides;  // in elements; null: C order
  std::uint64_t byte_offset;
};

// What a capsule "dltensor" holds; its destructor frees it.
struct Managed {
  Tensor tensor;
};

// What a capsule "dltensor_versioned" holds.
struct ManagedVersioned {
  static constexpr std::uint64_t kReadOnly = 1;

  std::uint32_t major, minor;
  void* manager;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};

}}}  // namespace c10d::python::dlpack
