// SPDX-License-Identifier: BSD-3-Clause
#include <string.h>
#include <unistd.h>

#include "tests/c/check.h"

static void test_facts(const c10d_group* group) {
  const int32_t n = c10d_group_size(group), rank = c10d_group_rank(group);
  CHECK(n >= 1 && rank >= 0 && rank < n);
  CHECK(strlen(c10d_group_id(group)) > 0);
  CHECK(strlen(c10d_group_backend(group)) > 0);
  c10d_bytes text = {NULL, 0};
  CHECK_OK(c10d_group_description(group, &text));
  CHECK(text.size > 0 && strlen(text.data) == text.size);
  c10d_bytes_free(&text);
  CHECK(text.data == NULL && text.size == 0);
  for (int32_t r = 0; r < n; ++r) {
    c10d_member member = C10D_MEMBER_INIT;
    CHECK_OK(c10d_group_member(group, r, &member));
    CHECK(member.same_host == 1 && strlen(member.host) > 0);
    CHECK((r == rank) == (member.pid == getpid()));
  }
  c10d_member member = C10D_MEMBER_INIT;
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_group_member(group, n, &member));
  CHECK_ERROR("is not in [0, ");
  member.struct_size = sizeof(size_t) + sizeof(int32_t);  // of an older header
  member.pid = -1;
  CHECK_OK(c10d_group_member(group, 0, &member));
  CHECK(member.same_host == 1 && member.pid == -1);
  member.struct_size = 0;
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_group_member(group, 0, &member));

  CHECK(c10d_group_timeout(group) == LONG_NS);
  CHECK_OK(c10d_group_set_timeout(group, LONG_NS + 1));
  CHECK(c10d_group_timeout(group) == LONG_NS + 1);
  CHECK_OK(c10d_group_set_timeout(group, LONG_NS));
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_group_set_timeout(group, 0));
}

// The even ranks, and all ranks in the opposite order.
static void test_subgroups(const c10d_group* group) {
  const int32_t n = c10d_group_size(group), rank = c10d_group_rank(group);
  c10d_group* part = NULL;
  CHECK_OK(c10d_split(group, rank % 2 == 0 ? 0 : C10D_NO_COLOR, 0, &part));
  CHECK((part == NULL) == (rank % 2 == 1));
  if (part != NULL)
    CHECK(c10d_group_rank(part) == rank / 2 && c10d_group_size(part) == (n + 1) / 2);
  c10d_group_free(part);

  CHECK_OK(c10d_split(group, 5, -rank, &part));
  CHECK(c10d_group_rank(part) == n - 1 - rank);
  c10d_group_free(part);
  CHECK_OK(c10d_split_by_host(group, &part));
  CHECK(c10d_group_rank(part) == rank && c10d_group_size(part) == n);
  c10d_group_free(part);

  const int32_t ranks[] = {n - 1, 0};
  if (n > 1 && (rank == 0 || rank == n - 1)) {
    CHECK_OK(c10d_new_group(group, ranks, 2, "both ends", &part));
    CHECK(c10d_group_rank(part) == (rank == 0));
    int32_t sum = 0;
    CHECK_OK(c10d_all_reduce(part, &sum, &rank, 1, C10D_I32, C10D_SUM, NULL, NULL));
    CHECK(sum == n - 1);
    c10d_group_free(part);
  }
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_new_group(group, NULL, 1, NULL, &part));
  CHECK(part == NULL);
  CHECK_OK(c10d_barrier(group, NULL, NULL));
}

static void test_memory(const c10d_group* group) {
  const int32_t n = c10d_group_size(group), rank = c10d_group_rank(group);
  c10d_memory* memory = NULL;
  CHECK_OK(c10d_allocate(group, 1000, C10D_CPU, &memory));
  CHECK(c10d_memory_bytes(memory) == 1000);
  unsigned char* data = (unsigned char*)c10d_memory_data(memory);
  for (int i = 0; i < 1000; ++i) CHECK(data[i] == 0);
  data[999] = (unsigned char)(rank + 1);
  CHECK_OK(c10d_barrier(group, NULL, NULL));
  CHECK(c10d_memory_peer_data(memory, -1) == NULL && c10d_memory_peer_data(memory, n) == NULL);
  const int is_shared = c10d_memory_peer_data(memory, 0) != NULL;
  CHECK(is_shared || strcmp(c10d_group_backend(group), "native") != 0);
  for (int32_t r = 0; is_shared && r < n; ++r)
    CHECK(((unsigned char*)c10d_memory_peer_data(memory, r))[999] == r + 1);
  CHECK_OK(c10d_barrier(group, NULL, NULL));
  c10d_memory_free(memory);
  CHECK_CODE(C10D_INVALID_ARGUMENT, c10d_allocate(group, 1, 2, &memory));
  CHECK_ERROR("device type is 2");
  CHECK(memory == NULL);
}

void test_groups(const c10d_group* group) {
  test_facts(group);
  test_subgroups(group);
  test_memory(group);
}
