// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "c10d/c/types.h"

// The C interface is c10d/c.h, which says what is true of all of it. This part: groups of ranks and
// their memory. c10d::ProcessGroup in process_group.h has the long contract.
//
// All ranks call the functions that are collective in the same order, among the ops of the group,
// else C10D_MISMATCH. One thread at a time may call a group, else C10D_CONCURRENT_USE;
// c10d_group_abort() and the functions that only ask may be called from any thread at any time.
#ifdef __cplusplus
extern "C" {
#endif

// Options of c10d_init_process_group(): c10d::InitOptions in init.h.
typedef struct c10d_init_options {
  size_t struct_size;       // bytes of this struct: C10D_INIT_OPTIONS_INIT
  const char* backend;      // "native", "gloo", "mpi", "nccl"; NULL: C10D_BACKEND, else native
  const char* url;          // how the ranks find each other: env://, tcp://, file://; NULL: env://
  const c10d_store* store;  // use this store instead of the url; then `size` must be given
  int32_t rank;             // with `size`, instead of that of the url or the environment
  int32_t size;             // number of ranks; 0: rank and size are those of the url or environment
  const int32_t* device;    // the GPU of this rank; NULL: C10D_DEVICE, else by its local rank
  int64_t timeout_ns;       // of every op; 0: C10D_TIMEOUT, else 5 minutes
  int64_t connect_timeout_ns;  // until all ranks joined; 0: timeout_ns
  const void* token;           // secret of the job; NULL: that of the environment, else none
  size_t token_bytes;          // its length, 16 to 1024
  const char* name;            // of the group; NULL: "world"
} c10d_init_options;
// Default options.
#define C10D_INIT_OPTIONS_INIT \
  { sizeof(c10d_init_options), NULL, NULL, NULL, 0, 0, NULL, 0, 0, NULL, 0, NULL }

// Brings the ranks of a job together and gives their group (torch.distributed.init_process_group).
// `options` may be NULL. Collective. Codes: C10D_INVALID_ARGUMENT; C10D_TIMED_OUT, which names the
// ranks that did not arrive; C10D_MISMATCH; C10D_UNSUPPORTED: the backend is not available, and the
// message says why; those of the network.
C10D_C_API c10d_code c10d_init_process_group(const c10d_init_options* options, c10d_group** group);
// Gives the handle up. With the last handle of a group (stores of c10d_group_store() and batches
// are some, too) it ends, as by c10d_group_shutdown() with a timeout of one second. Memory and
// Works may outlive it. NULL is allowed.
C10D_C_API void c10d_group_free(c10d_group* group);
// Leaves the group in good order: waits until the pending ops of this rank are done, then tells the
// peers that it left. If ops still run after the timeout, by default 30 s, they fail with
// C10D_DESTROYED. So does every later call.
C10D_C_API c10d_code c10d_group_shutdown(const c10d_group* group, int64_t timeout_ns);
// Breaks the group: pending and later calls fail with C10D_REVOKED on every rank, and the message
// shows `why`, which may be NULL. One rank calls it, from any thread. It returns within 100 ms.
C10D_C_API void c10d_group_abort(const c10d_group* group, const char* why);

// Rank of this process in the group, in [0, size); -1 when `group` is NULL.
C10D_C_API int32_t c10d_group_rank(const c10d_group* group);
// Number of ranks in the group; -1 when `group` is NULL.
C10D_C_API int32_t c10d_group_size(const c10d_group* group);
// Name of the group, as errors print it; NULL when `group` is NULL. As long valid as the handle.
C10D_C_API const char* c10d_group_id(const c10d_group* group);
// Name of its backend; NULL when `group` is NULL. As long valid as the handle.
C10D_C_API const char* c10d_group_backend(const c10d_group* group);
// What the backend says of itself, for people: library, version, transport.
C10D_C_API c10d_code c10d_group_description(const c10d_group* group, c10d_bytes* text);
// Number of collectives that this rank has called. Calls that were refused do not count.
C10D_C_API uint64_t c10d_group_sequence(const c10d_group* group);
// C10D_OK, or the code of the first failure of a group that is broken; c10d_last_failure() then has
// all of it.
C10D_C_API c10d_code c10d_group_failure(const c10d_group* group);
// Timeout of the calls that give none of their own, in nanoseconds; -1 when `group` is NULL.
C10D_C_API int64_t c10d_group_timeout(const c10d_group* group);
// Sets that timeout on this rank. It must be positive.
C10D_C_API c10d_code c10d_group_set_timeout(const c10d_group* group, int64_t timeout_ns);
// A handle of the store that holds the keys of this group only. The caller frees it.
C10D_C_API c10d_code c10d_group_store(const c10d_group* group, c10d_store** store);

// One rank of a group.
typedef struct c10d_member {
  size_t struct_size;  // bytes of this struct: C10D_MEMBER_INIT
  int32_t same_host;   // 1: it is on the host of this rank
  int64_t pid;         // its process id
  const char* host;    // name of its host; as long valid as the handle of the group
} c10d_member;
// A struct for c10d_group_member().
#define C10D_MEMBER_INIT \
  { sizeof(c10d_member), 0, 0, NULL }
// Says where `rank` of the group runs.
C10D_C_API c10d_code c10d_group_member(const c10d_group* group, int32_t rank, c10d_member* member);

// Makes a group of `count` ranks of this group: ranks[i] gets rank i there. Only these ranks call
// it, with the same ranks and the same `name`, which may be NULL.
C10D_C_API c10d_code c10d_new_group(const c10d_group* group, const int32_t* ranks, size_t count,
                                    const char* name, c10d_group** new_group);
// Splits the group (MPI_Comm_split): one new group for each color, its ranks in the order of key,
// then of their rank here. With C10D_NO_COLOR the new group is NULL. Collective.
C10D_C_API c10d_code c10d_split(const c10d_group* group, int32_t color, int32_t key,
                                c10d_group** new_group);
// Splits the group by host (MPI_COMM_TYPE_SHARED). Collective.
C10D_C_API c10d_code c10d_split_by_host(const c10d_group* group, c10d_group** new_group);

// Memory of `bytes` bytes on every rank, zeroed, aligned to 4096 bytes (on a GPU 256), and shared
// between the ranks where the backend can do that: c10d::Allocation in buffer.h. With C10D_CUDA it
// lies on the GPU of this rank. Collective: the same bytes and kind of device on every rank.
C10D_C_API c10d_code c10d_allocate(const c10d_group* group, size_t bytes, c10d_device_type device,
                                   c10d_memory** memory);
// Its first byte, an address on the device where it lies; NULL when `memory` is NULL.
C10D_C_API void* c10d_memory_data(const c10d_memory* memory);
// Its size; 0 when `memory` is NULL.
C10D_C_API size_t c10d_memory_bytes(const c10d_memory* memory);
// The memory of `rank` from the same call of c10d_allocate(), in this process. NULL where ranks
// cannot access each other's memory, and for a rank that is not in the group.
C10D_C_API void* c10d_memory_peer_data(const c10d_memory* memory, int32_t rank);
// Frees it. No op may use it any more. NULL is allowed.
C10D_C_API void c10d_memory_free(c10d_memory* memory);

#ifdef __cplusplus
}
#endif
