// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "c10d/c/types.h"

// The C interface is c10d/c.h, which says what is true of all of it. This part: the ops. Those of
// c10d::ProcessGroup in process_group.h have the same names and the long contracts.
//
// Buffers. The output comes first. n is the size of the group. `count` is k, a number of elements
// of `dtype`; a buffer of n k elements is n shards of k: shard r is the elements [r k, (r + 1) k).
// With counts, shard r has counts[r] elements and begins where shard r - 1 ends; counts has n
// entries, 0 is allowed. In place means that input and output are the same memory, or that the one
// is this rank's shard of the other; buffers that overlap in any other way are refused. What only
// the root gives or gets may be NULL on the other ranks.
//
// Agreement. All ranks call the ops of a group in the same order, with the same count or counts,
// dtype, reduce op and root, else C10D_MISMATCH on every rank.
//
// Options. NULL is all defaults.
//
// Work. With NULL as `work` an op returns when the result is in place, or with what it failed with.
// Else it returns at once, gives a Work, and uses its buffers until that is done; counts are read
// before it returns. An op on memory of a GPU is enqueued on c10d_call_options::stream.
//
// Codes of every op: C10D_INVALID_ARGUMENT, C10D_UNSUPPORTED and C10D_CONCURRENT_USE, which leave
// the group intact; C10D_DESTROYED, C10D_FORKED_CHILD; and those that break the group, so that
// every pending and later call on every rank fails with the same: C10D_MISMATCH, C10D_TIMED_OUT,
// C10D_PEER_DIED, C10D_PEER_LEFT, C10D_REVOKED, C10D_LINK_LOST, C10D_STORE_LOST,
// C10D_OUT_OF_RESOURCES, C10D_BACKEND_ERROR.
#ifdef __cplusplus
extern "C" {
#endif

// output[i] is the reduction over all ranks of input[i], on every rank, with the same bits. Both
// have k elements.
C10D_C_API c10d_code c10d_all_reduce(const c10d_group* group, void* output, const void* input,
                                     size_t count, c10d_dtype dtype, c10d_reduce_op op,
                                     const c10d_call_options* options, c10d_work** work);
// output, k elements, is a copy of the root's input, on every rank. input is the root's.
C10D_C_API c10d_code c10d_broadcast(const c10d_group* group, void* output, const void* input,
                                    size_t count, c10d_dtype dtype, int32_t root,
                                    const c10d_call_options* options, c10d_work** work);
// Shard r of output, n k elements, is the input of rank r, k elements, on every rank.
C10D_C_API c10d_code c10d_all_gather(const c10d_group* group, void* output, const void* input,
                                     size_t count, c10d_dtype dtype,
                                     const c10d_call_options* options, c10d_work** work);
// The same with counts[r] elements of rank r.
C10D_C_API c10d_code c10d_all_gather_v(const c10d_group* group, void* output, const void* input,
                                       const size_t* counts, c10d_dtype dtype,
                                       const c10d_call_options* options, c10d_work** work);
// output on rank r, k elements, is the reduction over all ranks of shard r of their inputs, n k
// elements.
C10D_C_API c10d_code c10d_reduce_scatter(const c10d_group* group, void* output, const void* input,
                                         size_t count, c10d_dtype dtype, c10d_reduce_op op,
                                         const c10d_call_options* options, c10d_work** work);
// The same with counts[r] elements on rank r.
C10D_C_API c10d_code c10d_reduce_scatter_v(const c10d_group* group, void* output, const void* input,
                                           const size_t* counts, c10d_dtype dtype,
                                           c10d_reduce_op op, const c10d_call_options* options,
                                           c10d_work** work);
// On the root output[i] is the reduction over all ranks of input[i]. Both have k elements; output
// is the root's.
C10D_C_API c10d_code c10d_reduce(const c10d_group* group, void* output, const void* input,
                                 size_t count, c10d_dtype dtype, c10d_reduce_op op, int32_t root,
                                 const c10d_call_options* options, c10d_work** work);
// output[i] on rank r is the reduction over ranks 0 to r of input[i]. Both have k elements. No avg.
C10D_C_API c10d_code c10d_scan(const c10d_group* group, void* output, const void* input,
                               size_t count, c10d_dtype dtype, c10d_reduce_op op,
                               const c10d_call_options* options, c10d_work** work);
// The same over ranks 0 to r - 1. Rank 0 passes an output, too, which keeps its elements.
C10D_C_API c10d_code c10d_exscan(const c10d_group* group, void* output, const void* input,
                                 size_t count, c10d_dtype dtype, c10d_reduce_op op,
                                 const c10d_call_options* options, c10d_work** work);
// On the root shard r of output, n k elements, is the input of rank r, k elements. output is the
// root's.
C10D_C_API c10d_code c10d_gather(const c10d_group* group, void* output, const void* input,
                                 size_t count, c10d_dtype dtype, int32_t root,
                                 const c10d_call_options* options, c10d_work** work);
// The same with counts[r] elements of rank r. Every rank passes all counts.
C10D_C_API c10d_code c10d_gather_v(const c10d_group* group, void* output, const void* input,
                                   const size_t* counts, c10d_dtype dtype, int32_t root,
                                   const c10d_call_options* options, c10d_work** work);
// output on rank r, k elements, is shard r of the root's input, n k elements. input is the root's.
C10D_C_API c10d_code c10d_scatter(const c10d_group* group, void* output, const void* input,
                                  size_t count, c10d_dtype dtype, int32_t root,
                                  const c10d_call_options* options, c10d_work** work);
// The same with counts[r] elements on rank r. Every rank passes all counts.
C10D_C_API c10d_code c10d_scatter_v(const c10d_group* group, void* output, const void* input,
                                    const size_t* counts, c10d_dtype dtype, int32_t root,
                                    const c10d_call_options* options, c10d_work** work);
// Shard s of output on rank r is shard r of the input of rank s. Both have n k elements. Never in
// place.
C10D_C_API c10d_code c10d_all_to_all(const c10d_group* group, void* output, const void* input,
                                     size_t count, c10d_dtype dtype,
                                     const c10d_call_options* options, c10d_work** work);
// The same with counts: this rank sends input_counts[r] elements, shard r of input, to rank r, and
// gets output_counts[s] elements, shard s of output, from rank s. Never in place.
C10D_C_API c10d_code c10d_all_to_all_v(const c10d_group* group, void* output, const void* input,
                                       const size_t* output_counts, const size_t* input_counts,
                                       c10d_dtype dtype, const c10d_call_options* options,
                                       c10d_work** work);
// Returns, or is done, once every rank of the group has called it. Moves no data.
C10D_C_API c10d_code c10d_barrier(const c10d_group* group, const c10d_call_options* options,
                                  c10d_work** work);
// A barrier for debugging: on a timeout the message of every rank names all ranks that did not
// come.
C10D_C_API c10d_code c10d_monitored_barrier(const c10d_group* group, int64_t timeout_ns);

// Sends input, k elements, to rank `peer`. It may or may not wait until the receive is posted.
// Messages from one rank to another with the same tag arrive in the order in which they were sent.
C10D_C_API c10d_code c10d_send(const c10d_group* group, const void* input, size_t count,
                               c10d_dtype dtype, int32_t peer, uint32_t tag,
                               const c10d_call_options* options, c10d_work** work);
// Receives the next message from `peer`, or from C10D_ANY_SOURCE, with this tag into output, which
// has room for k elements. A message of another dtype or of more elements is C10D_MISMATCH; after a
// shorter one the other elements keep their values. `received` says who sent how many; it may be
// NULL. With a Work it stays as it is: see c10d_work_received().
C10D_C_API c10d_code c10d_recv(const c10d_group* group, void* output, size_t count,
                               c10d_dtype dtype, int32_t peer, uint32_t tag,
                               const c10d_call_options* options, c10d_received* received,
                               c10d_work** work);
// Sends input to rank `to` and receives into output from rank `from` at the same time, with the
// same tag and dtype. Ranks that all call it, in a ring say, do not wait for each other in a
// circle. It is no op that a batch takes.
C10D_C_API c10d_code c10d_sendrecv(const c10d_group* group, const void* input, size_t input_count,
                                   int32_t to, void* output, size_t output_count, int32_t from,
                                   c10d_dtype dtype, uint32_t tag, const c10d_call_options* options,
                                   c10d_received* received);
// Waits for a message from `peer` with this tag and says who sent it and how many elements it has.
// The next recv of that source and tag takes it. C10D_UNSUPPORTED on a backend without probe, such
// as gloo. C10D_TIMED_OUT leaves the group intact.
C10D_C_API c10d_code c10d_probe(const c10d_group* group, int32_t peer, uint32_t tag,
                                const c10d_call_options* options, c10d_received* received);
// The same without waiting: C10D_PENDING if there is no such message now.
C10D_C_API c10d_code c10d_iprobe(const c10d_group* group, int32_t peer, uint32_t tag,
                                 c10d_received* received);

#ifdef __cplusplus
}
#endif
