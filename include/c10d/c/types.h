// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "c10d/c/error.h"

// The C interface is c10d/c.h, which says what is true of all of it. This part: what calls take.
#ifdef __cplusplus
extern "C" {
#endif

// A store: see store.h in this folder.
typedef struct c10d_store c10d_store;
// A group of ranks, c10d::ProcessGroup: see group.h in this folder.
typedef struct c10d_group c10d_group;
// An op that runs, c10d::Work: see work.h in this folder.
typedef struct c10d_work c10d_work;
// Ops that start together, c10d::Batch: see work.h in this folder.
typedef struct c10d_batch c10d_batch;
// Memory of a group: see group.h in this folder.
typedef struct c10d_memory c10d_memory;

// As argument of a function: the timeout of the group or the store. Any negative number is.
#define C10D_DEFAULT_TIMEOUT ((int64_t)-1)
// Peer of a recv or a probe that takes a message from any rank.
#define C10D_ANY_SOURCE ((int32_t)-1)
// Color of a rank that joins none of the groups of c10d_split().
#define C10D_NO_COLOR INT32_MIN

// The type of the elements of a buffer. One of c10d_dtypes.
typedef int32_t c10d_dtype;
// The dtypes, c10d::DType in element.h. Their numbers never change.
enum c10d_dtypes {
  C10D_F64 = 0,      // double
  C10D_F32 = 1,      // float
  C10D_F16 = 2,      // IEEE binary16
  C10D_BF16 = 3,     // the upper half of a float
  C10D_I64 = 4,      // int64_t
  C10D_I32 = 5,      // int32_t
  C10D_I16 = 6,      // int16_t
  C10D_I8 = 7,       // int8_t
  C10D_U64 = 8,      // uint64_t
  C10D_U32 = 9,      // uint32_t
  C10D_U16 = 10,     // uint16_t
  C10D_U8 = 11,      // uint8_t
  C10D_BOOL = 12,    // bool, one byte
  C10D_C64 = 13,     // two floats: real part, imaginary part
  C10D_C128 = 14,    // two doubles
  C10D_F8E4M3 = 15,  // to be moved; to be reduced by nccl only
  C10D_F8E5M2 = 16,  // likewise
};

// How elements are combined. One of c10d_reduce_ops.
typedef int32_t c10d_reduce_op;
// The reductions, c10d::ReduceOp::Kind in collective.h, which says what each does on which dtype.
// Their numbers never change.
enum c10d_reduce_ops {
  C10D_SUM = 0,         // integers wrap around
  C10D_AVG = 1,         // sum divided by the number of ranks; floating point and complex only
  C10D_PROD = 2,        // integers wrap around
  C10D_MIN = 3,         // NaN if any element is NaN
  C10D_MAX = 4,         // NaN if any element is NaN
  C10D_BAND = 5,        // bitwise and; integers and bool only
  C10D_BOR = 6,         // bitwise or; integers and bool only
  C10D_BXOR = 7,        // bitwise exclusive or; integers and bool only
  C10D_PREMUL_SUM = 8,  // every input times c10d_call_options::premul_factor, then sum
};

// Where memory lies. One of c10d_device_types.
typedef int32_t c10d_device_type;
// The kinds of devices, c10d::DeviceType in element.h. Their numbers never change.
enum c10d_device_types {
  C10D_CPU = 0,   // memory of the host
  C10D_CUDA = 1,  // memory of a CUDA GPU
};

// Bytes that the library hands out. Give them back with c10d_bytes_free(). Behind them stands a
// zero that `size` does not count, so that text is a C string.
typedef struct c10d_bytes {
  char* data;   // NULL: there is no value; a value of no bytes has data
  size_t size;  // number of bytes
} c10d_bytes;
// Frees what `bytes` holds, and makes it hold nothing. NULL is allowed.
C10D_C_API void c10d_bytes_free(c10d_bytes* bytes);

// What a recv got, c10d::Received.
typedef struct c10d_received {
  int32_t source;  // the rank that sent the message; -1: nothing was received
  size_t count;    // number of elements in the message
} c10d_received;

// Options of one op. NULL instead of it: all defaults.
typedef struct c10d_call_options {
  size_t struct_size;            // bytes of this struct: C10D_CALL_OPTIONS_INIT
  int64_t timeout_ns;            // of this call; 0: that of the group
  c10d_device_type device_type;  // where the buffers of the call lie
  int32_t device_index;          // which GPU, with C10D_CUDA
  void* stream;          // the cudaStream_t that orders an op on a GPU; NULL: the default one
  double premul_factor;  // of C10D_PREMUL_SUM; the same on every rank
  c10d_batch* batch;     // add the op to this batch instead of starting it; NULL: start it
} c10d_call_options;
// Default options: c10d_call_options options = C10D_CALL_OPTIONS_INIT;
#define C10D_CALL_OPTIONS_INIT \
  { sizeof(c10d_call_options), 0, C10D_CPU, 0, NULL, 0, NULL }

#ifdef __cplusplus
}
#endif
