// SPDX-License-Identifier: BSD-3-Clause
#include <string.h>

#include "tests/c/check.h"

static void wait_for_rank_0(const c10d_group* group, const c10d_store* store, const char* key) {
  if (c10d_group_rank(group) != 0) CHECK_OK(c10d_store_wait(store, &key, 1, LONG_NS));
}

// Rank 0 starts an op, and the others only when it has seen that the op runs.
static void test_wait(const c10d_group* group, const c10d_store* store) {
  const int32_t n = c10d_group_size(group), rank = c10d_group_rank(group);
  const int32_t mine = rank + 1;
  int32_t sum = 0;
  c10d_work* work = NULL;
  wait_for_rank_0(group, store, "rank 0 has started");
  CHECK_OK(c10d_all_reduce(group, &sum, &mine, 1, C10D_I32, C10D_SUM, NULL, &work));
  if (rank == 0 && n > 1) {
    CHECK_CODE(C10D_PENDING, c10d_work_wait(work, 0));
    CHECK_CODE(C10D_PENDING, c10d_work_wait(work, 1000 * 1000));
    CHECK(c10d_work_received(work).source == -1);
    CHECK_OK(c10d_store_set(store, "rank 0 has started", "", 0, LONG_NS));
  }
  CHECK_OK(c10d_work_wait(work, C10D_DEFAULT_TIMEOUT));
  CHECK(sum == n * (n + 1) / 2);
  CHECK_OK(c10d_work_wait(work, 0));
  CHECK_OK(c10d_work_synchronize_stream(work, NULL));
  c10d_work_free(work);
}

// Tells through a store of this process which code it got.
static void tell(void* arg, const c10d_failure* failure) {
  const c10d_store* store = (const c10d_store*)arg;
  const char* name = c10d_code_name(failure == NULL ? C10D_OK : failure->code);
  CHECK(failure == NULL || (failure->message[0] != '\0' && failure->reason != C10D_REASON_NONE));
  CHECK_OK(c10d_store_push(store, "called with", name, strlen(name), LONG_NS));
}

static void expect_told(c10d_store* store, const char* name) {
  c10d_bytes told = {NULL, 0};
  CHECK_OK(c10d_store_pop(store, "called with", LONG_NS, &told));
  CHECK(strcmp(told.data, name) == 0);
  c10d_bytes_free(&told);
}

static void test_callback(const c10d_group* group) {
  c10d_store* store = NULL;
  CHECK_OK(c10d_hash_store(LONG_NS, &store));
  c10d_work* work = NULL;
  CHECK_OK(c10d_barrier(group, NULL, &work));
  CHECK_OK(c10d_work_on_done(work, tell, store));
  expect_told(store, "ok");
  CHECK_OK(c10d_work_on_done(work, tell, store));  // at once, for it is done
  expect_told(store, "ok");
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_work_on_done(work, NULL, store));
  CHECK_ERROR("callback is NULL");
  c10d_work_free(work);

  // The op of a group that is aborted.
  c10d_group* broken = group_to_break(group);
  if (c10d_group_rank(group) == 0 && c10d_group_size(group) > 1) {
    CHECK_OK(c10d_barrier(broken, NULL, &work));
    CHECK_OK(c10d_work_on_done(work, tell, store));
    c10d_group_abort(broken, "the test wants it");
    expect_told(store, "revoked");
    CHECK_CODE(C10D_REVOKED, c10d_work_wait(work, C10D_DEFAULT_TIMEOUT));
    CHECK_ERROR("the test wants it");
    c10d_work_free(work);
  }
  CHECK_OK(c10d_barrier(group, NULL, NULL));
  c10d_group_free(broken);
  c10d_store_free(store);
}

// One that was given up runs on, and nobody waits for it: rank 0 gives it up before the others
// start.
static void test_detach(const c10d_group* group, const c10d_store* store) {
  const int32_t n = c10d_group_size(group), mine = 1;
  static int32_t sum = 0;
  c10d_work* work = NULL;
  wait_for_rank_0(group, store, "rank 0 has given up");
  CHECK_OK(c10d_all_reduce(group, &sum, &mine, 1, C10D_I32, C10D_SUM, NULL, &work));
  c10d_work_detach(work);
  CHECK_OK(c10d_store_set(store, "rank 0 has given up", "", 0, LONG_NS));
  CHECK_OK(c10d_barrier(group, NULL, NULL));
  CHECK(sum == n);
}

// Messages to both sides and a sum, started together.
static void test_batch(const c10d_group* group) {
  const int32_t n = c10d_group_size(group), rank = c10d_group_rank(group);
  const int32_t next = (rank + 1) % n, previous = (rank + n - 1) % n;
  if (n == 1) return;
  c10d_call_options options = C10D_CALL_OPTIONS_INIT;
  CHECK_OK(c10d_batch_create(group, NULL, &options.batch));
  for (int round = 0; round < 2; ++round) {
    int32_t from_next = -1, from_previous = -1, sum = -1;
    CHECK_OK(c10d_recv(group, &from_next, 1, C10D_I32, next, 1, &options, NULL, NULL));
    CHECK_OK(c10d_recv(group, &from_previous, 1, C10D_I32, previous, 2, &options, NULL, NULL));
    CHECK_OK(c10d_send(group, &rank, 1, C10D_I32, previous, 1, &options, NULL));
    CHECK_OK(c10d_send(group, &rank, 1, C10D_I32, next, 2, &options, NULL));
    CHECK_OK(c10d_all_reduce(group, &sum, &rank, 1, C10D_I32, C10D_SUM, &options, NULL));
    c10d_work* work = NULL;
    CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_barrier(group, &options, &work));
    CHECK_ERROR("of a batch");
    CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_sendrecv(group, &rank, 1, next, &sum, 1, previous,
                                                    C10D_I32, 0, &options, NULL));
    CHECK_ERROR("no op that a batch takes");
    CHECK(sum == -1);
    if (round == 0) {
      CHECK_OK(c10d_batch_submit(options.batch, NULL));
    } else {
      CHECK_OK(c10d_batch_submit(options.batch, &work));
      CHECK_OK(c10d_work_wait(work, LONG_NS));
      c10d_work_free(work);
    }
    CHECK(from_next == next && from_previous == previous && sum == n * (n - 1) / 2);
  }
  c10d_group* other = group_to_break(group);
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_barrier(other, &options, NULL));
  CHECK_ERROR("another group");
  c10d_group_free(other);
  c10d_batch_free(options.batch);
}

void test_work(const c10d_group* group) {
  c10d_store* store = NULL;
  CHECK_OK(c10d_group_store(group, &store));
  test_wait(group, store);
  test_callback(group);
  test_detach(group, store);
  test_batch(group);
  c10d_store_free(store);
}
