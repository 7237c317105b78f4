// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stddef.h>
#include <stdint.h>

// What libc10d.so exports for C.
#define C10D_C_API __attribute__((visibility("default")))

// The C interface is c10d/c.h, which says what is true of all of it. This part: failures.
#ifdef __cplusplus
extern "C" {
#endif

// What a call returns: C10D_OK, or what happened. One of c10d_codes.
typedef int32_t c10d_code;
// The codes. Their numbers never change; new ones may come. Those up to 999 are c10d::Code in
// error.h, which says more of each, plus one.
enum c10d_codes {
  C10D_OK = 0,                  // the call did what it should
  C10D_PEER_DIED = 1,           // a rank's process ended without leaving the group
  C10D_PEER_LEFT = 2,           // a rank left the group while others still called it
  C10D_MISMATCH = 3,            // ranks made different calls; the message shows both
  C10D_REVOKED = 4,             // c10d_group_abort() was called
  C10D_DESTROYED = 5,           // the group was shut down or freed
  C10D_FORKED_CHILD = 6,        // the group or store belongs to the parent process
  C10D_CONCURRENT_USE = 7,      // a second thread called the group, which stays intact
  C10D_UNSUPPORTED = 8,         // this backend cannot do that; the group stays intact
  C10D_OUT_OF_RESOURCES = 9,    // memory, descriptors or threads
  C10D_BACKEND_ERROR = 10,      // the wrapped library reported an error
  C10D_LINK_LOST = 11,          // a connection between ranks broke
  C10D_WRONG_JOB = 12,          // the other side belongs to another job
  C10D_VERSION_MISMATCH = 13,   // the other side is another version
  C10D_CORRUPT = 14,            // the other side sent bytes that make no sense
  C10D_NOT_AUTHENTICATED = 15,  // the other side does not know the job's token
  C10D_ADDRESS_IN_USE = 16,     // another process listens at this address
  C10D_UNREACHABLE = 17,        // nobody answers at this address
  C10D_STORE_LOST = 18,         // the connection to the store ended
  C10D_STORE_LIMIT = 19,        // a limit of docs/limits.md
  C10D_STORE_ERROR = 20,  // the request makes no sense, such as add of a value that is no number
  C10D_TIMED_OUT = 21,    // a deadline passed; the message says who is missing
  C10D_INVALID_ARGUMENT = 1000,  // own arguments or environment make no sense; nothing was sent
  C10D_NO_MEMORY = 1001,         // malloc found none
  C10D_INTERNAL = 1002,          // an exception that the library should not throw: see the message
  C10D_PENDING = 1003,           // no failure: it is not there yet, where a call did not wait
};

// What a caller can do about a failure. One of c10d_reasons.
typedef int32_t c10d_reason;
// The reasons: c10d::Reason in error.h plus one. Their numbers never change.
enum c10d_reasons {
  C10D_REASON_NONE = 0,         // of C10D_OK, C10D_PENDING and C10D_INVALID_ARGUMENT
  C10D_REASON_TIMEOUT = 1,      // try with more time, or look for the rank that is named
  C10D_REASON_PEER_LOST = 2,    // continue without that rank, or start again
  C10D_REASON_MISMATCH = 3,     // a bug of the program, or processes that do not belong together
  C10D_REASON_ABORTED = 4,      // this program ended the group or used it wrongly
  C10D_REASON_UNSUPPORTED = 5,  // use another call or another backend
  C10D_REASON_INTERNAL = 6,     // a resource or a library failed: the message says which
};

// All that is known of a failure. A fact that is not known is "", -1 or 0. The library makes it:
// fields may be added at its end, and struct_size says how much there is.
typedef struct c10d_failure {
  size_t struct_size;   // bytes of this struct
  c10d_code code;       // what happened
  c10d_reason reason;   // what a caller can do about it
  const char* message;  // one line with every field that is known
  int32_t rank;         // the rank that died, did not arrive or disagrees
  int64_t pid;          // its process id
  const char* host;     // its host
  const char* group;    // c10d_group_id()
  const char* op;       // "all_reduce"
  uint64_t sequence;    // number of that op in its group, from 1 on
} c10d_failure;

// The message of the last call that failed on this thread; "" if none has. Valid until the next one
// fails on this thread, or the thread ends. Never NULL.
C10D_C_API const char* c10d_last_error(void);
// All that is known of that failure. As long valid. Never NULL.
C10D_C_API const c10d_failure* c10d_last_failure(void);
// Name of a code: "ok", "peer_died", "invalid_argument", ...; "unknown" of any other number. Valid
// as long as the process.
C10D_C_API const char* c10d_code_name(c10d_code code);
// The reason that belongs to a code; C10D_REASON_INTERNAL for any other number.
C10D_C_API c10d_reason c10d_reason_of(c10d_code code);

#ifdef __cplusplus
}
#endif
