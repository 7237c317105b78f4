// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "c10d/c/types.h"

// The C interface is c10d/c.h, which says what is true of all of it. This part: ops that run while
// the caller goes on, and batches. c10d::Work in work.h and c10d::Batch in batch.h have the long
// contract. The functions of a Work may be called from any thread; a batch is for one at a time.
#ifdef __cplusplus
extern "C" {
#endif

// Waits until the op is done, for `timeout_ns` at most; C10D_DEFAULT_TIMEOUT: as long as the
// deadline of the op lets it run; 0: does not wait. C10D_OK: the result is in place, and the
// buffers belong to the caller again. C10D_PENDING: the op still runs. Any other code: what the op
// failed with, at every call.
C10D_C_API c10d_code c10d_work_wait(const c10d_work* work, int64_t timeout_ns);
// Makes a cudaStream_t wait for the op, instead of this thread. For an op on CPU memory, and for a
// batch, it waits in this thread.
C10D_C_API c10d_code c10d_work_synchronize_stream(const c10d_work* work, void* stream);
// What a recv got: source is -1 and count 0 until it is ok, and for every other op.
C10D_C_API c10d_received c10d_work_received(const c10d_work* work);

// Gets `arg`, and the failure of an op: NULL when it is ok. The failure is valid during the call.
typedef void (*c10d_callback)(void* arg, const c10d_failure* failure);
// Calls `callback` once: at once in this thread when the op is already done, else later in the
// library's one callback thread. c10d_work_wait() does not wait for it. The callback may start ops
// with a Work; it must not block on the group of this op, nor throw. C10D_OUT_OF_RESOURCES when
// 65,536 callbacks wait for their turn.
C10D_C_API c10d_code c10d_work_on_done(const c10d_work* work, c10d_callback callback, void* arg);

// Waits until the op is done, whether or not it fails, and frees the handle. So the buffers may be
// freed after it. The deadline of the op bounds the wait. NULL is allowed.
C10D_C_API void c10d_work_free(c10d_work* work);
// Frees the handle without waiting. The op continues to use its buffers, which must stay valid
// until it is done, and its failure breaks the group. NULL is allowed.
C10D_C_API void c10d_work_detach(c10d_work* work);

// An empty batch of ops of a group. `options` may be NULL; its timeout and stream are those of all
// ops of the batch. An op is added by its own function, with c10d_call_options::batch; then its
// `work` and `received` are NULL, and the other options but the device and the factor are not read.
// Counts must stay valid until c10d_batch_submit(). A message that a recv takes has exactly as many
// elements.
C10D_C_API c10d_code c10d_batch_create(const c10d_group* group, const c10d_call_options* options,
                                       c10d_batch** batch);
// Starts all ops of the batch and empties it. With NULL as `work` it returns once all are done, and
// with what the first op that fails fails with. Else it returns at once, and the Work is done when
// all ops are. If one of them is C10D_INVALID_ARGUMENT or C10D_UNSUPPORTED, it starts none.
C10D_C_API c10d_code c10d_batch_submit(c10d_batch* batch, c10d_work** work);
// Frees the batch. Ops that were not submitted do not run. NULL is allowed.
C10D_C_API void c10d_batch_free(c10d_batch* batch);

#ifdef __cplusplus
}
#endif
