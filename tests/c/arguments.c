// SPDX-License-Identifier: BSD-3-Clause
#include <pthread.h>
#include <string.h>

#include "tests/c/check.h"

// What is wrong on this rank alone is found before anything is sent, and leaves the group intact.
static void test_wrong_ones(const c10d_group* group) {
  int32_t mine = 1, sum = 0;
  CHECK_CODE(C10D_INVALID_ARGUMENT,
             c10d_all_reduce(NULL, &sum, &mine, 1, C10D_I32, C10D_SUM, NULL, NULL));
  CHECK_ERROR("group is NULL");
  CHECK(c10d_last_failure()->code == C10D_INVALID_ARGUMENT);
  CHECK(c10d_last_failure()->reason == C10D_REASON_NONE);
  CHECK(c10d_last_failure()->rank == -1);
  CHECK_CODE(C10D_INVALID_ARGUMENT,
             c10d_all_reduce(group, NULL, &mine, 1, C10D_I32, C10D_SUM, NULL, NULL));
  CHECK_ERROR("output is null");
  const c10d_dtype wrong[] = {-1, 17, 256, INT32_MAX};
  for (int i = 0; i < 4; ++i) {
    CHECK_CODE(C10D_INVALID_ARGUMENT,
               c10d_all_reduce(group, &sum, &mine, 1, wrong[i], C10D_SUM, NULL, NULL));
    CHECK_ERROR("dtype is ");
    CHECK_CODE(C10D_INVALID_ARGUMENT,
               c10d_all_reduce(group, &sum, &mine, 1, C10D_I32, wrong[i], NULL, NULL));
    CHECK_ERROR("reduce op is ");
  }
  CHECK_CODE(C10D_INVALID_ARGUMENT,
             c10d_broadcast(group, &sum, &mine, 1, C10D_I32, c10d_group_size(group), NULL, NULL));
  CHECK_ERROR("root");
  CHECK_CODE(C10D_INVALID_ARGUMENT,
             c10d_all_gather_v(group, &sum, &mine, NULL, C10D_I32, NULL, NULL));
  CHECK_ERROR("counts is NULL");
  CHECK_CODE(C10D_INVALID_ARGUMENT,
             c10d_send(group, &mine, 1, C10D_I32, c10d_group_size(group), 0, NULL, NULL));
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_work_wait(NULL, 0));
  CHECK_ERROR("work is NULL");
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_init_process_group(NULL, NULL));
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_batch_submit(NULL, NULL));
  if (c10d_group_size(group) > 1) {
    CHECK_CODE(C10D_INVALID_ARGUMENT,
               c10d_all_to_all(group, &sum, &mine, SIZE_MAX, C10D_I32, NULL, NULL));
    CHECK_ERROR("count is more than memory can hold");
  }
  const size_t too_many[] = {SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX};
  CHECK_CODE(C10D_INVALID_ARGUMENT,
             c10d_all_to_all_v(group, &sum, &mine, too_many, too_many, C10D_I32, NULL, NULL));
  // A failed call leaves no handle behind.
  c10d_work* work = (c10d_work*)&mine;
  CHECK_CODE(C10D_INVALID_ARGUMENT,
             c10d_all_reduce(group, &sum, &mine, 1, 99, C10D_SUM, NULL, &work));
  CHECK(work == NULL);
}

// The library takes a struct of an older header, and one of a newer header that sets nothing new.
static void test_sizes_of_structs(const c10d_group* group) {
  int32_t mine = 1, sum = 0;
  const int32_t ranks = c10d_group_size(group);
  struct {
    c10d_call_options known;
    uint64_t added;
  } newer = {C10D_CALL_OPTIONS_INIT, 0};
  c10d_call_options* options = &newer.known;
  const size_t sizes[] = {sizeof(size_t), sizeof(size_t) + sizeof(int64_t), sizeof(*options),
                          sizeof(newer)};
  for (int i = 0; i < 4; ++i) {
    options->struct_size = sizes[i];
    // What is beyond the size is not read.
    options->device_type = i < 2 ? 99 : C10D_CPU;
    CHECK_OK(c10d_all_reduce(group, &sum, &mine, 1, C10D_I32, C10D_SUM, options, NULL));
    CHECK(sum == ranks);
  }
  newer.added = 1;
  CHECK_CODE(C10D_INVALID_ARGUMENT,
             c10d_all_reduce(group, &sum, &mine, 1, C10D_I32, C10D_SUM, options, NULL));
  CHECK_ERROR("what this library does not know");
  const size_t wrong[] = {0, sizeof(size_t) - 1, 1 << 20, SIZE_MAX};
  for (int i = 0; i < 4; ++i) {
    options->struct_size = wrong[i];
    CHECK_CODE(C10D_INVALID_ARGUMENT,
               c10d_all_reduce(group, &sum, &mine, 1, C10D_I32, C10D_SUM, options, NULL));
    CHECK_ERROR("struct_size of options is ");
  }
  *options = (c10d_call_options)C10D_CALL_OPTIONS_INIT;
  options->timeout_ns = -1;
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_barrier(group, options, NULL));
  *options = (c10d_call_options)C10D_CALL_OPTIONS_INIT;
  options->device_index = 1 << 16;
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_barrier(group, options, NULL));
}

static void* last_error_of_a_thread(void* arg) {
  (void)arg;
  CHECK(strcmp(c10d_last_error(), "") == 0);
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_work_wait(NULL, 0));
  CHECK_ERROR("work is NULL");
  return NULL;
}

// Each thread has a last error of its own.
static void test_threads(void) {
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_group_set_timeout(NULL, 1));
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, last_error_of_a_thread, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_ERROR("group is NULL");
}

// The functions that return no code.
static void test_null(void) {
  CHECK(c10d_group_rank(NULL) == -1);
  CHECK(c10d_group_size(NULL) == -1);
  CHECK(c10d_group_id(NULL) == NULL);
  CHECK(c10d_group_backend(NULL) == NULL);
  CHECK(c10d_group_timeout(NULL) == -1);
  CHECK(c10d_group_sequence(NULL) == 0);
  CHECK(c10d_store_port(NULL) == 0);
  CHECK(c10d_memory_data(NULL) == NULL);
  CHECK(c10d_memory_bytes(NULL) == 0);
  CHECK(c10d_memory_peer_data(NULL, 0) == NULL);
  CHECK(c10d_work_received(NULL).source == -1);
  c10d_group_abort(NULL, NULL);
  c10d_group_free(NULL);
  c10d_store_free(NULL);
  c10d_work_free(NULL);
  c10d_work_detach(NULL);
  c10d_batch_free(NULL);
  c10d_memory_free(NULL);
  c10d_bytes_free(NULL);
  c10d_backends_free(NULL);
  c10d_plan_free(NULL);
}

static void test_codes(void) {
  CHECK(strcmp(c10d_code_name(C10D_OK), "ok") == 0);
  CHECK(strcmp(c10d_code_name(C10D_PEER_DIED), "peer_died") == 0);
  CHECK(strcmp(c10d_code_name(C10D_TIMED_OUT), "timed_out") == 0);
  CHECK(strcmp(c10d_code_name(C10D_INVALID_ARGUMENT), "invalid_argument") == 0);
  CHECK(strcmp(c10d_code_name(C10D_TIMED_OUT + 1), "unknown") == 0);
  CHECK(strcmp(c10d_code_name(-1), "unknown") == 0);
  CHECK(c10d_reason_of(C10D_OK) == C10D_REASON_NONE);
  CHECK(c10d_reason_of(C10D_TIMED_OUT) == C10D_REASON_TIMEOUT);
  CHECK(c10d_reason_of(C10D_PEER_DIED) == C10D_REASON_PEER_LOST);
  CHECK(c10d_reason_of(C10D_REVOKED) == C10D_REASON_ABORTED);
  CHECK(c10d_reason_of(C10D_NO_MEMORY) == C10D_REASON_INTERNAL);
}

void test_arguments(const c10d_group* group) {
  test_wrong_ones(group);
  test_sizes_of_structs(group);
  test_threads();
  test_null();
  test_codes();
}
