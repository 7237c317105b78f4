// SPDX-License-Identifier: BSD-3-Clause
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/c/check.h"

static void expect(c10d_bytes* value, const char* data, size_t size) {
  CHECK(value->data != NULL && value->size == size);
  CHECK(memcmp(value->data, data, size) == 0 && value->data[size] == '\0');
  c10d_bytes_free(value);
  CHECK(value->data == NULL && value->size == 0);
}

// Every call, in a store that this rank alone uses.
static void test_calls(const c10d_store* store) {
  c10d_bytes value = {NULL, 0};
  CHECK_OK(c10d_store_set(store, "a", "x\0y", 3, C10D_DEFAULT_TIMEOUT));
  CHECK_OK(c10d_store_get(store, "a", C10D_DEFAULT_TIMEOUT, &value));
  expect(&value, "x\0y", 3);
  CHECK_OK(c10d_store_set(store, "empty", NULL, 0, C10D_DEFAULT_TIMEOUT));
  CHECK_OK(c10d_store_try_get(store, "empty", C10D_DEFAULT_TIMEOUT, &value));
  expect(&value, "", 0);
  CHECK_OK(c10d_store_try_get(store, "none", C10D_DEFAULT_TIMEOUT, &value));
  CHECK(value.data == NULL);
  CHECK_CODE(C10D_TIMED_OUT, c10d_store_get(store, "none", 0, &value));
  CHECK_ERROR("none");
  CHECK(c10d_last_failure()->reason == C10D_REASON_TIMEOUT && value.data == NULL);

  int64_t sum = 0;
  CHECK_OK(c10d_store_add(store, "count", 40, C10D_DEFAULT_TIMEOUT, &sum));
  CHECK_OK(c10d_store_add(store, "count", 2, C10D_DEFAULT_TIMEOUT, &sum));
  CHECK(sum == 42);
  CHECK_CODE(C10D_STORE_ERROR, c10d_store_add(store, "a", 1, C10D_DEFAULT_TIMEOUT, &sum));
  CHECK(sum == 42);

  CHECK_OK(c10d_store_compare_set(store, "cas", NULL, 0, "1", 1, C10D_DEFAULT_TIMEOUT, &value));
  expect(&value, "1", 1);
  CHECK_OK(c10d_store_compare_set(store, "cas", "0", 1, "2", 1, C10D_DEFAULT_TIMEOUT, &value));
  expect(&value, "1", 1);
  CHECK_OK(c10d_store_compare_set(store, "cas", "1", 1, "2", 1, C10D_DEFAULT_TIMEOUT, &value));
  expect(&value, "2", 1);
  CHECK_OK(c10d_store_compare_set(store, "none", "1", 1, "2", 1, C10D_DEFAULT_TIMEOUT, &value));
  CHECK(value.data == NULL);

  size_t length = 0, keys = 0;
  CHECK_OK(c10d_store_append(store, "text", "ab", 2, C10D_DEFAULT_TIMEOUT, NULL));
  CHECK_OK(c10d_store_append(store, "text", "c", 1, C10D_DEFAULT_TIMEOUT, &length));
  CHECK(length == 3);
  const char* const names[] = {"one", "two"};
  const void* const values[] = {"1", "22"};
  const size_t sizes[] = {1, 2};
  c10d_bytes got[2];
  int32_t flag = -1;
  CHECK_OK(c10d_store_check(store, names, 2, C10D_DEFAULT_TIMEOUT, &flag));
  CHECK(flag == 0);
  CHECK_OK(c10d_store_multi_set(store, names, values, sizes, 2, C10D_DEFAULT_TIMEOUT));
  CHECK_OK(c10d_store_check(store, names, 2, C10D_DEFAULT_TIMEOUT, &flag));
  CHECK(flag == 1);
  CHECK_OK(c10d_store_wait(store, names, 2, C10D_DEFAULT_TIMEOUT));
  CHECK_OK(c10d_store_multi_get(store, names, 2, C10D_DEFAULT_TIMEOUT, got));
  expect(&got[0], "1", 1);
  expect(&got[1], "22", 2);
  CHECK_OK(c10d_store_num_keys(store, C10D_DEFAULT_TIMEOUT, &keys));
  CHECK(keys == 7);  // a, empty, count, cas, text, one, two
  CHECK_OK(c10d_store_delete_key(store, "two", C10D_DEFAULT_TIMEOUT, &flag));
  CHECK(flag == 1);
  CHECK_OK(c10d_store_delete_key(store, "two", C10D_DEFAULT_TIMEOUT, &flag));
  CHECK(flag == 0);
  CHECK_CODE(C10D_TIMED_OUT, c10d_store_multi_get(store, names, 2, 0, got));
  CHECK(got[0].data == NULL && got[1].data == NULL);

  CHECK_OK(c10d_store_push(store, "queue", "first", 5, C10D_DEFAULT_TIMEOUT));
  CHECK_OK(c10d_store_push(store, "queue", "second", 6, C10D_DEFAULT_TIMEOUT));
  CHECK_OK(c10d_store_pop(store, "queue", C10D_DEFAULT_TIMEOUT, &value));
  expect(&value, "first", 5);
  CHECK_OK(c10d_store_barrier(store, "barrier", 1, C10D_DEFAULT_TIMEOUT));
  CHECK_CODE(C10D_TIMED_OUT, c10d_store_barrier(store, "barrier", 2, 0));

  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_store_set(NULL, "a", "", 0, 0));
  CHECK_ERROR("store is NULL");
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_store_set(store, NULL, "", 0, 0));
  CHECK_ERROR("key is NULL");
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_store_set(store, "a", NULL, 1, 0));
  CHECK_ERROR("value is NULL");
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_store_get(store, "a", 0, NULL));
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_store_wait(store, NULL, 1, 0));
  CHECK_ERROR("keys is NULL");
}

static void test_kinds_of_stores(void) {
  c10d_store *store = NULL, *view = NULL;
  CHECK_OK(c10d_hash_store(C10D_DEFAULT_TIMEOUT, &store));
  test_calls(store);
  CHECK(c10d_store_port(store) == 0);
  c10d_store_free(store);

  char folder[] = "/tmp/c10d_c_XXXXXX", path[64];
  CHECK(mkdtemp(folder) != NULL);
  snprintf(path, sizeof(path), "%s/store", folder);
  CHECK_OK(c10d_file_store(path, 1, LONG_NS, &store));
  test_calls(store);
  c10d_store_free(store);
  CHECK(rmdir(folder) == 0);  // the last user has removed the file
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_file_store(NULL, 1, LONG_NS, &store));
  CHECK(store == NULL);

  static const char kToken[] = "0123456789abcdef";
  c10d_tcp_store_options options = C10D_TCP_STORE_OPTIONS_INIT;
  options.server = 1;
  options.token = kToken;
  options.token_bytes = sizeof(kToken) - 1;
  options.timeout_ns = LONG_NS;
  CHECK_OK(c10d_tcp_store(&options, &store));
  test_calls(store);
  options.server = 0;
  options.port = c10d_store_port(store);
  CHECK(options.port != 0);
  c10d_store* client = NULL;
  CHECK_OK(c10d_tcp_store(&options, &client));
  CHECK_OK(c10d_prefix_store("p", client, &view));
  c10d_store_free(client);  // the view keeps it
  c10d_bytes value = {NULL, 0};
  CHECK_OK(c10d_store_set(view, "key", "v", 1, C10D_DEFAULT_TIMEOUT));
  CHECK_OK(c10d_store_get(store, "p/key", C10D_DEFAULT_TIMEOUT, &value));
  expect(&value, "v", 1);
  c10d_store_free(view);
  options.token = "fedcba9876543210";
  CHECK_CODE(C10D_NOT_AUTHENTICATED, c10d_tcp_store(&options, &client));
  CHECK(client == NULL);
  c10d_store_free(store);
}

// A custom store over another store.
typedef struct under {
  c10d_store* store;
  const char* broken;  // the reason why every call fails
  int freed;
} under;

static c10d_code answer_bytes(c10d_code code, c10d_bytes* value, c10d_store_answer* answer) {
  if (code != C10D_OK) {
    CHECK_OK(c10d_store_answer_give(answer, c10d_last_error(), strlen(c10d_last_error())));
  } else if (value != NULL && value->data != NULL) {
    CHECK_OK(c10d_store_answer_give(answer, value->data, value->size));
  }
  c10d_bytes_free(value);
  return code;
}

static c10d_code under_set(void* user, const char* key, const void* value, size_t size,
                           c10d_store_answer* answer) {
  return answer_bytes(c10d_store_set(((under*)user)->store, key, value, size, LONG_NS), NULL,
                      answer);
}

static c10d_code under_try_get(void* user, const char* key, c10d_store_answer* answer) {
  const under* const self = user;
  c10d_bytes value = {NULL, 0};
  if (self->broken != NULL) {
    CHECK_OK(c10d_store_answer_give(answer, self->broken, strlen(self->broken)));
    return C10D_STORE_LOST;
  }
  return answer_bytes(c10d_store_try_get(self->store, key, LONG_NS, &value), &value, answer);
}

static c10d_code under_add(void* user, const char* key, int64_t amount, int64_t* sum,
                           c10d_store_answer* answer) {
  return answer_bytes(c10d_store_add(((under*)user)->store, key, amount, LONG_NS, sum), NULL,
                      answer);
}

static c10d_code under_compare_set(void* user, const char* key, const void* expected,
                                   size_t expected_size, const void* desired, size_t desired_size,
                                   c10d_store_answer* answer) {
  c10d_bytes value = {NULL, 0};
  const c10d_code code = c10d_store_compare_set(((under*)user)->store, key, expected, expected_size,
                                                desired, desired_size, LONG_NS, &value);
  return answer_bytes(code, &value, answer);
}

static c10d_code under_delete_key(void* user, const char* key, int32_t* existed,
                                  c10d_store_answer* answer) {
  return answer_bytes(c10d_store_delete_key(((under*)user)->store, key, LONG_NS, existed), NULL,
                      answer);
}

static void under_free(void* user) { ((under*)user)->freed += 1; }

static void custom_store_over(under* user, c10d_store** store) {
  c10d_custom_store_functions functions = C10D_CUSTOM_STORE_FUNCTIONS_INIT;
  functions.user = user;
  functions.set = under_set;
  functions.try_get = under_try_get;
  functions.add = under_add;
  functions.compare_set = under_compare_set;
  functions.delete_key = under_delete_key;
  functions.free = under_free;
  CHECK_OK(c10d_custom_store(&functions, store));
  functions.delete_key = NULL;
  c10d_store* none = NULL;
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_custom_store(&functions, &none));
  CHECK_ERROR("delete_key is NULL");
  CHECK(none == NULL && user->freed == 0);
}

// The calls that a custom store has, its limits and its errors.
static void test_custom_store(void) {
  under user = {NULL, NULL, 0};
  c10d_store* store = NULL;
  c10d_bytes value = {NULL, 0};
  int64_t sum = 0;
  int32_t flag = -1;
  CHECK_OK(c10d_hash_store(LONG_NS, &user.store));
  custom_store_over(&user, &store);
  CHECK_OK(c10d_store_set(store, "a", "x\0y", 3, C10D_DEFAULT_TIMEOUT));
  CHECK_OK(c10d_store_get(store, "a", C10D_DEFAULT_TIMEOUT, &value));
  expect(&value, "x\0y", 3);
  CHECK_OK(c10d_store_try_get(store, "none", C10D_DEFAULT_TIMEOUT, &value));
  CHECK(value.data == NULL);
  CHECK_OK(c10d_store_add(store, "count", 42, C10D_DEFAULT_TIMEOUT, &sum));
  CHECK(sum == 42);
  CHECK_OK(c10d_store_compare_set(store, "cas", NULL, 0, "", 0, C10D_DEFAULT_TIMEOUT, &value));
  expect(&value, "", 0);
  CHECK_OK(c10d_store_compare_set(store, "cas", NULL, 0, "1", 1, C10D_DEFAULT_TIMEOUT, &value));
  expect(&value, "", 0);
  CHECK_OK(c10d_store_compare_set(store, "cas", "", 0, "1", 1, C10D_DEFAULT_TIMEOUT, &value));
  expect(&value, "1", 1);
  const char* const names[] = {"a", "cas", "late"};
  c10d_bytes got[3];
  CHECK_CODE(C10D_TIMED_OUT, c10d_store_wait(store, names, 3, 5 * 1000 * 1000));
  CHECK_ERROR("late");
  CHECK_OK(c10d_store_multi_get(store, names, 2, C10D_DEFAULT_TIMEOUT, got));
  expect(&got[0], "x\0y", 3);
  expect(&got[1], "1", 1);
  CHECK_OK(c10d_store_check(store, names, 3, C10D_DEFAULT_TIMEOUT, &flag));
  CHECK(flag == 0);
  CHECK_OK(c10d_store_delete_key(store, "a", C10D_DEFAULT_TIMEOUT, &flag));
  CHECK(flag == 1);

  char key[1026];
  memset(key, 'k', sizeof(key) - 1);
  key[sizeof(key) - 1] = '\0';
  CHECK_CODE(C10D_STORE_LIMIT, c10d_store_set(store, key, "", 0, C10D_DEFAULT_TIMEOUT));
  char* const large = calloc(1, ((size_t)8 << 20) + 1);
  CHECK(large != NULL);
  CHECK_CODE(C10D_STORE_LIMIT,
             c10d_store_set(store, "a", large, ((size_t)8 << 20) + 1, C10D_DEFAULT_TIMEOUT));
  free(large);
  CHECK_CODE(C10D_STORE_ERROR, c10d_store_add(store, "cas2", INT64_MAX, 0, &sum) == C10D_OK
                                   ? c10d_store_add(store, "cas2", 1, 0, &sum)
                                   : C10D_INTERNAL);
  CHECK_ERROR("overflows");
  CHECK_CODE(C10D_UNSUPPORTED, c10d_store_push(store, "q", "", 0, C10D_DEFAULT_TIMEOUT));
  CHECK_ERROR("push");
  user.broken = "out of paper";
  CHECK_CODE(C10D_STORE_LOST, c10d_store_get(store, "cas", C10D_DEFAULT_TIMEOUT, &value));
  CHECK_ERROR("out of paper");
  CHECK(user.freed == 0);
  c10d_store_free(store);
  CHECK(user.freed == 1);
  c10d_store_free(user.store);
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_store_answer_give(NULL, "", 0));
}

// A group of all ranks that meets in a custom store.
static void test_group_over_a_custom_store(const c10d_group* group) {
  if (strcmp(c10d_group_backend(group), "mpi") == 0) return;  // its ranks meet in MPI
  under user = {NULL, NULL, 0};
  c10d_init_options options = C10D_INIT_OPTIONS_INIT;
  c10d_store* store = NULL;
  c10d_group* other = NULL;
  int32_t sum = 1;
  CHECK_OK(c10d_group_store(group, &user.store));
  custom_store_over(&user, &store);
  options.store = store;
  options.backend = c10d_group_backend(group);
  options.name = "custom";
  options.rank = c10d_group_rank(group);
  options.size = c10d_group_size(group);
  CHECK_OK(c10d_init_process_group(&options, &other));
  c10d_store_free(store);
  CHECK_OK(c10d_all_reduce(other, &sum, &sum, 1, C10D_I32, C10D_SUM, NULL, NULL));
  CHECK(sum == options.size);
  CHECK_OK(c10d_group_shutdown(other, C10D_DEFAULT_TIMEOUT));
  c10d_group_free(other);
  CHECK_OK(c10d_barrier(group, NULL, NULL));
  c10d_store_free(user.store);
}

// A group that meets in a store of the test: alone, for its ranks would be threads.
static void test_group_over_a_store(void) {
  c10d_init_options options = C10D_INIT_OPTIONS_INIT;
  c10d_store* store = NULL;
  c10d_group* group = NULL;
  CHECK_OK(c10d_hash_store(LONG_NS, &store));
  options.store = store;
  options.backend = "native";
  options.name = "alone";
  options.rank = 0;
  options.size = 1;
  CHECK_OK(c10d_init_process_group(&options, &group));
  CHECK(c10d_group_size(group) == 1 && strstr(c10d_group_id(group), "alone") != NULL);
  c10d_group_free(group);
  options.backend = "carrier pigeon";
  CHECK_CODE(C10D_UNSUPPORTED, c10d_init_process_group(&options, &group));
  CHECK_ERROR("carrier pigeon");
  CHECK(group == NULL);
  c10d_store_free(store);
}

// All ranks see the keys of the group's store.
void test_stores(const c10d_group* group) {
  test_kinds_of_stores();
  test_custom_store();
  test_group_over_a_store();
  test_group_over_a_custom_store(group);
  const int32_t n = c10d_group_size(group);
  c10d_store* store = NULL;
  int64_t sum = 0;
  CHECK_OK(c10d_group_store(group, &store));
  CHECK_OK(c10d_store_add(store, "arrived", 1, C10D_DEFAULT_TIMEOUT, &sum));
  CHECK_OK(c10d_store_barrier(store, "all", n, LONG_NS));
  CHECK_OK(c10d_store_add(store, "arrived", 0, C10D_DEFAULT_TIMEOUT, &sum));
  CHECK(sum == n);
  c10d_store_free(store);
}
