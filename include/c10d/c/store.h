// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "c10d/c/types.h"

// The C interface is c10d/c.h, which says what is true of all of it. This part: stores, small
// key-value stores that bring ranks together. c10d::Store in store.h has the long contract.
//
// A key is a C string, a value any bytes. Ranks that share a store see each other's keys. With a
// timeout of 0 a call does what it can without waiting for a key; C10D_DEFAULT_TIMEOUT is that of
// the store. Every function may be called from any thread: a call that waits delays no other one.
//
// Codes of every call: C10D_STORE_LOST (the server is gone), C10D_STORE_LIMIT, C10D_STORE_ERROR,
// C10D_TIMED_OUT (the message names the keys that are missing), those of the network from
// C10D_LINK_LOST on, C10D_FORKED_CHILD, C10D_INVALID_ARGUMENT.
#ifdef __cplusplus
extern "C" {
#endif

// A store in the memory of this process: for ranks that are threads, and for tests. `timeout_ns` is
// that of calls that give none, by default 300 s.
C10D_C_API c10d_code c10d_hash_store(int64_t timeout_ns, c10d_store** store);
// A store in one file that all ranks can open. It is created if it does not exist, and removed when
// the last of `size` users is gone; with size 0 never.
C10D_C_API c10d_code c10d_file_store(const char* path, int32_t size, int64_t timeout_ns,
                                     c10d_store** store);
// A view of another store: puts `prefix` and a slash before every key.
C10D_C_API c10d_code c10d_prefix_store(const char* prefix, const c10d_store* store,
                                       c10d_store** prefixed);

// Options of c10d_tcp_store(): c10d::TcpStoreOptions.
typedef struct c10d_tcp_store_options {
  size_t struct_size;  // bytes of this struct: C10D_TCP_STORE_OPTIONS_INIT
  const char* host;    // name or address; the server binds exactly this; NULL: 127.0.0.1
  uint16_t port;       // of the server; 0: the server picks a free one
  int32_t server;      // 1: run the server in this process, too; it lives as long as the store
  int32_t listen_fd;   // server: use this bound, listening socket instead; 0: none
  const char* job;     // id of the job; a client of another job gets C10D_WRONG_JOB; NULL: ""
  const void* token;   // secret that both sides prove to know; NULL: none, which loopback allows
  size_t token_bytes;  // its length, 16 to 1024
  int64_t timeout_ns;  // of connecting, and of calls that give none; 0: 300 s
} c10d_tcp_store_options;
// Default options.
#define C10D_TCP_STORE_OPTIONS_INIT \
  { sizeof(c10d_tcp_store_options), NULL, 0, 0, 0, NULL, NULL, 0, 0 }
// A client of a store that a server holds in its memory, and the server itself with
// c10d_tcp_store_options::server. Waits for a server that does not listen yet, until the timeout.
C10D_C_API c10d_code c10d_tcp_store(const c10d_tcp_store_options* options, c10d_store** store);
// Port of the server of a TCP store; 0 of any other store.
C10D_C_API uint16_t c10d_store_port(const c10d_store* store);

// What a function of a custom store gives: c10d_store_answer_give().
typedef struct c10d_store_answer c10d_store_answer;
// The functions that a custom store is made of, and an argument for them. Each returns C10D_OK, or
// a code up to C10D_TIMED_OUT after it has given a message. Any thread may call them, several at
// once; they should answer within a second or so, and never wait for a key. Keys are C strings.
typedef struct c10d_custom_store_functions {
  size_t struct_size;  // bytes of this struct: C10D_CUSTOM_STORE_FUNCTIONS_INIT
  void* user;          // the first argument of every function
  // Sets the value of a key, whether or not it exists.
  c10d_code (*set)(void* user, const char* key, const void* value, size_t size,
                   c10d_store_answer* answer);
  // Gives the value; gives nothing when the key does not exist.
  c10d_code (*try_get)(void* user, const char* key, c10d_store_answer* answer);
  // As c10d_store_add(). Nothing but this function, try_get and delete_key gets keys of numbers.
  c10d_code (*add)(void* user, const char* key, int64_t amount, int64_t* sum,
                   c10d_store_answer* answer);
  // As c10d_store_compare_set(): gives the value that is stored now, or nothing.
  c10d_code (*compare_set)(void* user, const char* key, const void* expected, size_t expected_size,
                           const void* desired, size_t desired_size, c10d_store_answer* answer);
  // Removes a key. `existed` becomes 1 or 0.
  c10d_code (*delete_key)(void* user, const char* key, int32_t* existed, c10d_store_answer* answer);
  void (*free)(void* user);  // called once, when the store ends; NULL: nothing
  int64_t timeout_ns;        // of calls that give none; 0: 300 s
} c10d_custom_store_functions;
// No functions yet: all but `free` must be set.
#define C10D_CUSTOM_STORE_FUNCTIONS_INIT \
  { sizeof(c10d_custom_store_functions), NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0 }
// A store that asks functions of the caller: an adapter to a store of another library, from which
// groups can be made. A wait asks for its keys again and again, every 20 ms at most, and
// c10d_store_multi_get() reads one key after the other. c10d_store_append(), multi_set, num_keys,
// push, pop and barrier are C10D_UNSUPPORTED. When it fails, `free` is not called.
C10D_C_API c10d_code c10d_custom_store(const c10d_custom_store_functions* functions,
                                       c10d_store** store);
// Gives the value that a function of a custom store was asked for, or the message of its failure.
// Copies it. The last one counts.
C10D_C_API c10d_code c10d_store_answer_give(c10d_store_answer* answer, const void* data,
                                            size_t size);

// Gives the handle up. The store ends with the last handle, group or prefix store that uses it.
// NULL is allowed.
C10D_C_API void c10d_store_free(c10d_store* store);

// Sets the value of a key, whether or not it exists.
C10D_C_API c10d_code c10d_store_set(const c10d_store* store, const char* key, const void* value,
                                    size_t size, int64_t timeout_ns);
// Waits until the key exists and gives its value.
C10D_C_API c10d_code c10d_store_get(const c10d_store* store, const char* key, int64_t timeout_ns,
                                    c10d_bytes* value);
// Gives the value now: data is NULL when the key does not exist.
C10D_C_API c10d_code c10d_store_try_get(const c10d_store* store, const char* key,
                                        int64_t timeout_ns, c10d_bytes* value);
// Adds `amount` to the number at `key`, atomically, and gives the sum. A key that does not exist
// counts as 0. C10D_STORE_ERROR when the value is no number or the sum overflows.
C10D_C_API c10d_code c10d_store_add(const c10d_store* store, const char* key, int64_t amount,
                                    int64_t timeout_ns, int64_t* sum);
// Sets the value to `desired` if it equals `expected`, atomically; NULL as `expected` means that
// the key must not exist. Gives the value that is stored now: data is NULL when there is none.
C10D_C_API c10d_code c10d_store_compare_set(const c10d_store* store, const char* key,
                                            const void* expected, size_t expected_size,
                                            const void* desired, size_t desired_size,
                                            int64_t timeout_ns, c10d_bytes* value);
// Appends to the value, atomically, and gives its new length. A key that does not exist counts as
// empty. `length` may be NULL.
C10D_C_API c10d_code c10d_store_append(const c10d_store* store, const char* key, const void* value,
                                       size_t size, int64_t timeout_ns, size_t* length);
// Waits until all of `count` keys exist.
C10D_C_API c10d_code c10d_store_wait(const c10d_store* store, const char* const* keys, size_t count,
                                     int64_t timeout_ns);
// Whether all of `count` keys exist now: `exist` is 1 or 0.
C10D_C_API c10d_code c10d_store_check(const c10d_store* store, const char* const* keys,
                                      size_t count, int64_t timeout_ns, int32_t* exist);
// Waits until all of `count` keys exist and gives their values, all read at the same moment, in
// `values[count]`. Each is freed by itself.
C10D_C_API c10d_code c10d_store_multi_get(const c10d_store* store, const char* const* keys,
                                          size_t count, int64_t timeout_ns, c10d_bytes* values);
// Sets `count` keys at the same moment, or none when it fails.
C10D_C_API c10d_code c10d_store_multi_set(const c10d_store* store, const char* const* keys,
                                          const void* const* values, const size_t* sizes,
                                          size_t count, int64_t timeout_ns);
// Removes a key. `existed` becomes 1 or 0; it may be NULL.
C10D_C_API c10d_code c10d_store_delete_key(const c10d_store* store, const char* key,
                                           int64_t timeout_ns, int32_t* existed);
// Number of keys.
C10D_C_API c10d_code c10d_store_num_keys(const c10d_store* store, int64_t timeout_ns,
                                         size_t* count);
// Appends an element to the queue at `key`. A key holds a value or a queue.
C10D_C_API c10d_code c10d_store_push(const c10d_store* store, const char* key, const void* value,
                                     size_t size, int64_t timeout_ns);
// Waits until the queue at `key` has an element, removes the oldest one and gives it.
C10D_C_API c10d_code c10d_store_pop(const c10d_store* store, const char* key, int64_t timeout_ns,
                                    c10d_bytes* value);
// Waits until `size` callers have arrived at the barrier `key`, which may be used again at once.
C10D_C_API c10d_code c10d_store_barrier(const c10d_store* store, const char* key, int32_t size,
                                        int64_t timeout_ns);

#ifdef __cplusplus
}
#endif
