// SPDX-License-Identifier: BSD-3-Clause
// One rank of a test of the C interface: every function, with results in closed form.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/c/check.h"

static int rank = -1;

void check(int holds, const char* condition, const char* file, int line) {
  if (holds) return;
  fprintf(stderr, "%s:%d: rank %d: not so: %s; the last error: %s\n", file, line, (int)rank,
          condition, c10d_last_error());
  exit(1);
}

void check_code(c10d_code expected, c10d_code code, const char* call, const char* file, int line) {
  if (code == expected) return;
  fprintf(stderr, "%s:%d: rank %d: %s, and not %s, from %s; the last error: %s\n", file, line,
          (int)rank, c10d_code_name(code), c10d_code_name(expected), call, c10d_last_error());
  exit(1);
}

void check_error(const char* text, const char* file, int line) {
  if (strstr(c10d_last_error(), text) != NULL) return;
  fprintf(stderr, "%s:%d: rank %d: no \"%s\" in the last error: %s\n", file, line, (int)rank, text,
          c10d_last_error());
  exit(1);
}

c10d_group* group_to_break(const c10d_group* group) {
  c10d_group* other = NULL;
  CHECK_OK(c10d_split(group, 0, c10d_group_rank(group), &other));
  return other;
}

int main(void) {
  CHECK(strcmp(c10d_last_error(), "") == 0);
  CHECK(c10d_last_failure()->code == C10D_OK);
  c10d_init_options options = C10D_INIT_OPTIONS_INIT;
  options.timeout_ns = LONG_NS;
  c10d_group* group = NULL;
  CHECK_OK(c10d_init_process_group(&options, &group));
  rank = c10d_group_rank(group);
  test_arguments(group);
  test_collectives(group);
  test_messages(group);
  test_work(group);
  test_groups(group);
  test_stores(group);
  test_queries(group);
  test_failures(group);
  CHECK_OK(c10d_group_failure(group));
  CHECK_OK(c10d_group_shutdown(group, C10D_DEFAULT_TIMEOUT));
  CHECK_CODE(C10D_DESTROYED, c10d_barrier(group, NULL, NULL));
  c10d_group_free(group);
  return 0;
}
