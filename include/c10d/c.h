// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The C interface of c10d, for C11, and for every language that calls C: Python's ctypes, Julia,
// Rust, Go. It is in libc10d.so, flat, and needs nothing but the C library. docs/c.md is a tour.
//
//     c10d_group* group;
//     if (c10d_init_process_group(NULL, &group) != C10D_OK) puts(c10d_last_error());
//     c10d_all_reduce(group, sum, mine, 1024, C10D_F32, C10D_SUM, NULL, NULL);
//     c10d_group_free(group);
//
// Failures. A call returns a c10d_code, C10D_OK when it did what it should. After any other one but
// C10D_PENDING c10d_last_error() has the message and c10d_last_failure() all facts, both for this
// thread. No exception leaves a call. NULL where a handle or a result is needed, and a number that
// is no value of an enum, are C10D_INVALID_ARGUMENT, and the message names the argument.
//
// Results. A call writes what it gives to the pointers behind its other arguments. When it fails, a
// handle there is NULL and bytes are none; anything else stays as it is.
//
// Handles. c10d_store, c10d_group, c10d_work, c10d_batch and c10d_memory are freed by the function
// of that name, once, and not used after it. A function that takes a handle may be called from
// several threads as its header says; none may run while the handle is freed.
//
// Structs. One that begins with struct_size can grow: begin with its initialiser, which sets that
// and the defaults. A field of value 0 or NULL is a default, so that a library takes structs of an
// older header. It takes those of a newer one, too, if what it does not know is 0.
//
// Text. A `const char*` is a C string in UTF-8, read before the call returns.
//
// Times are nanoseconds. In a struct 0 is the default; as an argument of a function it means not to
// wait, and C10D_DEFAULT_TIMEOUT is the default.

#include "c10d/c/error.h"
#include "c10d/c/group.h"
#include "c10d/c/ops.h"
#include "c10d/c/query.h"
#include "c10d/c/store.h"
#include "c10d/c/types.h"
#include "c10d/c/work.h"
