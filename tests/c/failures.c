// SPDX-License-Identifier: BSD-3-Clause
#include <string.h>

#include "tests/c/check.h"

// Ranks that make different calls: each rank is told both.
static void test_mismatch(const c10d_group* group) {
  c10d_group* broken = group_to_break(group);
  int32_t data = 1;
  const c10d_code code =
      c10d_group_rank(group) == 0
          ? c10d_all_reduce(broken, &data, &data, 1, C10D_I32, C10D_SUM, NULL, NULL)
          : c10d_broadcast(broken, &data, &data, 1, C10D_I32, 0, NULL, NULL);
  CHECK_CODE(C10D_MISMATCH, code);
  CHECK_ERROR("all_reduce");
  CHECK_ERROR("broadcast");
  const c10d_failure* failure = c10d_last_failure();
  CHECK(failure->struct_size == sizeof(*failure) && failure->code == C10D_MISMATCH);
  CHECK(failure->reason == C10D_REASON_MISMATCH && failure->sequence == 1);
  CHECK(strcmp(failure->group, c10d_group_id(broken)) == 0);
  CHECK(strcmp(failure->message, c10d_last_error()) == 0);
  // The group has failed, and says so at every call.
  CHECK_CODE(C10D_MISMATCH, c10d_group_failure(broken));
  CHECK_CODE(C10D_MISMATCH, c10d_barrier(broken, NULL, NULL));
  CHECK_OK(c10d_barrier(group, NULL, NULL));
  c10d_group_free(broken);
}

// Only rank 0 calls: its deadline passes, and names the others.
static void test_timeout(const c10d_group* group) {
  c10d_group* broken = group_to_break(group);
  c10d_call_options options = C10D_CALL_OPTIONS_INIT;
  options.timeout_ns = 100 * 1000 * 1000;
  if (c10d_group_rank(group) == 0) {
    CHECK_CODE(C10D_TIMED_OUT, c10d_barrier(broken, &options, NULL));
    CHECK_ERROR("rank 1");
    CHECK(c10d_last_failure()->reason == C10D_REASON_TIMEOUT);
  }
  CHECK_OK(c10d_barrier(group, NULL, NULL));
  CHECK_CODE(C10D_TIMED_OUT, c10d_barrier(broken, NULL, NULL));
  CHECK_OK(c10d_barrier(group, NULL, NULL));
  c10d_group_free(broken);
}

static void test_abort(const c10d_group* group) {
  c10d_group* broken = group_to_break(group);
  if (c10d_group_rank(group) == 0) c10d_group_abort(broken, "enough");
  CHECK_CODE(C10D_REVOKED, c10d_barrier(broken, NULL, NULL));
  CHECK_ERROR("enough");
  CHECK(c10d_last_failure()->reason == C10D_REASON_ABORTED);
  CHECK_OK(c10d_barrier(group, NULL, NULL));
  c10d_group_free(broken);
}

void test_failures(const c10d_group* group) {
  if (c10d_group_size(group) == 1) return;
  test_mismatch(group);
  test_timeout(group);
  test_abort(group);
}
