// SPDX-License-Identifier: BSD-3-Clause
// Every rank brings numbers, every rank leaves with their sums, in C.   c10d-run -n 4 20_from_c
#include <stdio.h>

#include "c10d/c.h"

enum { COUNT = 1000 };

int main(void) {
  c10d_group* group = NULL;
  float values[COUNT];
  c10d_code code = c10d_init_process_group(NULL, &group);
  if (code == C10D_OK) {
    for (int i = 0; i < COUNT; ++i) values[i] = (float)c10d_group_rank(group) + 1;
    code = c10d_all_reduce(group, values, values, COUNT, C10D_F32, C10D_SUM, NULL, NULL);
  }
  if (code != C10D_OK) {
    fprintf(stderr, "%s\n", c10d_last_error());
    return 1;
  }
  const int size = c10d_group_size(group);
  printf("rank %d of %d on %s: the sum is %g\n", (int)c10d_group_rank(group), size,
         c10d_group_backend(group), (double)values[0]);
  c10d_group_free(group);
  return values[0] == (float)(size * (size + 1) / 2) ? 0 : 1;
}
