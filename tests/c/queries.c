// SPDX-License-Identifier: BSD-3-Clause
#include <string.h>

#include "tests/c/check.h"

static void test_launch(const c10d_group* group) {
  c10d_launch_info info = C10D_LAUNCH_INFO_INIT;
  CHECK_OK(c10d_detect_launch(&info));
  CHECK(info.rank == c10d_group_rank(group) && info.size == c10d_group_size(group));
  CHECK(info.local_rank == info.rank && info.local_size == info.size);
  CHECK(strlen(info.launcher) > 0 && strcmp(info.launcher, "none") != 0);
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_detect_launch(NULL));
  CHECK(strlen(c10d_version()) > 0 && c10d_version() == c10d_version());
}

static void test_backends(const c10d_group* group) {
  c10d_backends* backends = NULL;
  CHECK_OK(c10d_list_backends(&backends));
  int found = 0;
  for (size_t i = 0; i < backends->count; ++i) {
    const c10d_backend_info* info = backends->infos[i];
    CHECK(info->available || strlen(info->reason) > 0);
    if (strcmp(info->name, c10d_group_backend(group)) == 0) found += info->available;
    if (strcmp(info->name, "native") == 0)
      CHECK(info->available && !info->needs_launcher && !info->cuda_only && info->path[0] == '\0');
  }
  CHECK(found == 1);
  c10d_backends_free(backends);
}

static void test_supports(const c10d_group* group) {
  c10d_query query = C10D_QUERY_INIT;
  query.op = "all_reduce";
  CHECK_OK(c10d_supports(group, &query));
  CHECK_OK(c10d_backend_supports("native", &query));
  query.reduce_op = C10D_BXOR;
  CHECK_CODE(C10D_UNSUPPORTED, c10d_supports(group, &query));
  CHECK(strlen(c10d_last_error()) > 0);
  CHECK(c10d_last_failure()->reason == C10D_REASON_UNSUPPORTED);
  CHECK_CODE(C10D_UNSUPPORTED, c10d_backend_supports("native", &query));
  query.op = "all_redoce";
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_supports(group, &query));
  CHECK_ERROR("all_reduce");
  query.op = NULL;
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_supports(group, &query));
  CHECK_ERROR("op is NULL");
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_supports(group, NULL));
}

static void test_plan(const c10d_group* group) {
  c10d_plan_query query = C10D_PLAN_QUERY_INIT;
  query.op = "all_reduce";
  query.bytes = 1 << 20;
  c10d_plan* plan = NULL;
  CHECK_OK(c10d_group_plan(group, &query, &plan));
  CHECK((plan->count > 0) == (strcmp(c10d_group_backend(group), "native") == 0));
  for (size_t i = 0; i < plan->count; ++i)
    CHECK(strlen(plan->options[i]->name) > 0 && plan->options[i]->us > 0);
  CHECK(plan->bound_us >= 0);
  c10d_plan_free(plan);
  query.dtype = C10D_F8E5M2 + 1;
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_group_plan(group, &query, &plan));
  CHECK(plan == NULL);
}

void test_queries(const c10d_group* group) {
  test_launch(group);
  test_backends(group);
  test_supports(group);
  test_plan(group);
}
