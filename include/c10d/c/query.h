// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "c10d/c/types.h"

// The C interface is c10d/c.h, which says what is true of all of it. This part: what a program can
// ask about backends, launchers and the library. Everything may be called from any thread.
#ifdef __cplusplus
extern "C" {
#endif

// Version of the library that is loaded, with compiler and build type: "0.1.0 (g++ 12.2.0,
// Release)". As long valid as the process.
C10D_C_API const char* c10d_version(void);

// Rank and size of this process, as its launcher set them in the environment: c10d::LaunchInfo.
typedef struct c10d_launch_info {
  size_t struct_size;  // bytes of this struct: C10D_LAUNCH_INFO_INIT
  int32_t rank;        // in the job
  int32_t size;        // ranks of the job
  int32_t local_rank;  // on this host
  int32_t local_size;  // ranks on this host
  char launcher[16];   // "c10d", "torchrun", "openmpi", "pmi", "slurm", "k8s", or "none"
} c10d_launch_info;
// A struct for c10d_detect_launch().
#define C10D_LAUNCH_INFO_INIT \
  { sizeof(c10d_launch_info), 0, 0, 0, 0, "" }
// Finds the launcher of this process, as docs/launching.md says. C10D_INVALID_ARGUMENT for a number
// that is malformed, or when two launchers disagree.
C10D_C_API c10d_code c10d_detect_launch(c10d_launch_info* info);

// What is known of one backend without a group: c10d::BackendInfo. The library makes it: fields may
// be added at its end.
typedef struct c10d_backend_info {
  const char* name;        // "native", "gloo", ...
  int32_t available;       // 1: a group can be made with it
  int32_t needs_launcher;  // 1: ranks are processes that the wrapped library's launcher starts
  int32_t cuda_only;       // 1: it serves memory of GPUs only
  const char* reason;      // why it is not available, and which package has what is missing
  const char* version;     // of the wrapped library
  const char* path;        // of the module; "" when it is built in
} c10d_backend_info;
// The backends that this build knows or finds on C10D_BACKEND_PATH. The library makes it.
typedef struct c10d_backends {
  size_t count;                           // number of backends
  const c10d_backend_info* const* infos;  // one of each
} c10d_backends;
// Lists the backends; opens their modules. c10d_backends_free() frees the list and all in it.
C10D_C_API c10d_code c10d_list_backends(c10d_backends** backends);
// Frees a list. NULL is allowed.
C10D_C_API void c10d_backends_free(c10d_backends* backends);

// Asks whether a backend can do an op: c10d::Query.
typedef struct c10d_query {
  size_t struct_size;            // bytes of this struct: C10D_QUERY_INIT
  const char* op;                // "all_reduce", "send", ...: the names of kOpTraits in op_traits.h
  c10d_dtype dtype;              // of its buffers
  c10d_reduce_op reduce_op;      // of reductions only
  c10d_device_type device_type;  // where its buffers lie
  int32_t any_source;            // 1: a recv from C10D_ANY_SOURCE
  int32_t tags_out_of_order;     // 1: recv in another order of tags than the sends
  int32_t to_self;               // 1: a message of a rank to itself
  int32_t captured;              // 1: the stream of the op is captured into a CUDA graph
} c10d_query;
// A query of an op of f32 and sum on the CPU: fill in its name.
#define C10D_QUERY_INIT \
  { sizeof(c10d_query), NULL, C10D_F32, C10D_SUM, C10D_CPU, 0, 0, 0, 0 }
// C10D_OK if the backend of the group can do the op, else C10D_UNSUPPORTED, and the message says
// why. The answer depends on nothing but the query and the build.
C10D_C_API c10d_code c10d_supports(const c10d_group* group, const c10d_query* query);
// The same of backend `name`, without a group; C10D_UNSUPPORTED also when it is not available.
C10D_C_API c10d_code c10d_backend_supports(const char* name, const c10d_query* query);

// Asks which algorithm a backend takes for a call: c10d::PlanQuery.
typedef struct c10d_plan_query {
  size_t struct_size;  // bytes of this struct: C10D_PLAN_QUERY_INIT
  const char* op;      // its name
  c10d_dtype dtype;    // of its buffers
  int32_t registered;  // 1: the buffers are from c10d_allocate()
  uint64_t bytes;      // of the larger buffer of one rank
} c10d_plan_query;
// A query of an op of f32: fill in name and size.
#define C10D_PLAN_QUERY_INIT \
  { sizeof(c10d_plan_query), NULL, C10D_F32, 0, 0 }
// One algorithm that a backend can take for a call. The library makes it.
typedef struct c10d_plan_option {
  const char* name;  // as C10D_NATIVE_PLAN takes it, between hosts C10D_NATIVE_HOSTS_PLAN
  double us;         // time that is expected on rank 0, in microseconds
  int32_t measured;  // 1: c10d-bench tune measured it; else the built-in model says so
} c10d_plan_option;
// The answer to a c10d_plan_query. The library makes it.
typedef struct c10d_plan {
  size_t count;                            // number of options; 0: the backend has no choice
  const c10d_plan_option* const* options;  // the one that is taken, then the others
  double bound_us;                         // no algorithm is expected to take less
} c10d_plan;
// Says which algorithm the backend of the group takes. c10d_plan_free() frees the answer.
C10D_C_API c10d_code c10d_group_plan(const c10d_group* group, const c10d_plan_query* query,
                                     c10d_plan** plan);
// Frees an answer. NULL is allowed.
C10D_C_API void c10d_plan_free(c10d_plan* plan);

#ifdef __cplusplus
}
#endif
