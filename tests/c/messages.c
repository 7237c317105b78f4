// SPDX-License-Identifier: BSD-3-Clause
#include "tests/c/check.h"

// Each rank sends 3 elements to the next one.
static void test_ring(const c10d_group* group) {
  const int32_t n = c10d_group_size(group), rank = c10d_group_rank(group);
  const int32_t next = (rank + 1) % n, previous = (rank + n - 1) % n;
  const int32_t in[3] = {rank, rank + 1, rank + 2};
  int32_t out[4] = {-1, -1, -1, -1};
  c10d_received received = {-1, 0};
  CHECK_OK(c10d_sendrecv(group, in, 3, next, out, 4, previous, C10D_I32, 7, NULL, &received));
  CHECK(received.source == previous && received.count == 3);
  for (int32_t i = 0; i < 3; ++i) CHECK(out[i] == previous + i);
  CHECK(out[3] == -1);

  c10d_work* work = NULL;
  CHECK_OK(c10d_recv(group, out, 3, C10D_I32, previous, 8, NULL, NULL, &work));
  CHECK_OK(c10d_send(group, in, 3, C10D_I32, next, 8, NULL, NULL));
  CHECK_OK(c10d_work_wait(work, LONG_NS));
  received = c10d_work_received(work);
  CHECK(received.source == previous && received.count == 3);
  CHECK(out[0] == previous);
  c10d_work_free(work);
}

// All ranks send to rank 0, which takes what comes.
static void test_any_source(const c10d_group* group) {
  const int32_t n = c10d_group_size(group), rank = c10d_group_rank(group);
  if (rank != 0) CHECK_OK(c10d_send(group, &rank, 1, C10D_I32, 0, 9, NULL, NULL));
  int32_t sum = 0;
  for (int32_t i = 1; rank == 0 && i < n; ++i) {
    int32_t from = -1;
    c10d_received received = {-1, 0};
    CHECK_OK(c10d_recv(group, &from, 1, C10D_I32, C10D_ANY_SOURCE, 9, NULL, &received, NULL));
    CHECK(received.source == from && received.count == 1);
    sum += from;
  }
  CHECK(rank != 0 || sum == n * (n - 1) / 2);
}

// What probe finds is what recv gets next, on a backend that has it.
static void test_probe(const c10d_group* group) {
  const int32_t n = c10d_group_size(group), rank = c10d_group_rank(group);
  c10d_received received = {-1, 0};
  const c10d_code code = c10d_iprobe(group, (rank + 1) % n, 10, &received);
  if (code == C10D_UNSUPPORTED) return;
  CHECK_CODE(C10D_PENDING, code);
  CHECK(received.source == -1);
  CHECK_OK(c10d_barrier(group, NULL, NULL));
  const int32_t sent[2] = {5, 6};
  int32_t got[2] = {0, 0};
  if (rank == 1) CHECK_OK(c10d_send(group, sent, 2, C10D_I32, 0, 10, NULL, NULL));
  if (rank == 0) {
    CHECK_OK(c10d_probe(group, 1, 10, NULL, &received));
    CHECK(received.source == 1 && received.count == 2);
    CHECK_OK(c10d_recv(group, got, 2, C10D_I32, 1, 10, NULL, NULL, NULL));
    CHECK(got[0] == 5 && got[1] == 6);
  }
  CHECK_OK(c10d_barrier(group, NULL, NULL));
}

void test_messages(const c10d_group* group) {
  if (c10d_group_size(group) == 1) return;
  test_ring(group);
  test_any_source(group);
  test_probe(group);
}
