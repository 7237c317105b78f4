// SPDX-License-Identifier: BSD-3-Clause
#include <string.h>

#include "tests/c/check.h"

enum { MOST_RANKS = 4, K = 5, ROOT = 0 };

// The element i of what rank r gives.
static int32_t value_of(int32_t r, size_t i) { return 100 * (r + 1) + (int32_t)i; }
// Its sum over the first `ranks` ranks.
static int32_t sum_of(int32_t ranks, size_t i) {
  return 100 * ranks * (ranks + 1) / 2 + ranks * (int32_t)i;
}

static void fill(int32_t* data, int32_t rank, size_t count) {
  for (size_t i = 0; i < count; ++i) data[i] = value_of(rank, i);
}

static void test_reductions(const c10d_group* group) {
  const int32_t n = c10d_group_size(group), rank = c10d_group_rank(group);
  int32_t in[MOST_RANKS * K], out[K];
  fill(in, rank, MOST_RANKS * K);
  CHECK_OK(c10d_all_reduce(group, out, in, K, C10D_I32, C10D_SUM, NULL, NULL));
  for (size_t i = 0; i < K; ++i) CHECK(out[i] == sum_of(n, i));
  memcpy(out, in, sizeof(out));
  CHECK_OK(c10d_all_reduce(group, out, out, K, C10D_I32, C10D_SUM, NULL, NULL));
  for (size_t i = 0; i < K; ++i) CHECK(out[i] == sum_of(n, i));

  CHECK_OK(c10d_reduce_scatter(group, out, in, K, C10D_I32, C10D_SUM, NULL, NULL));
  for (size_t i = 0; i < K; ++i) CHECK(out[i] == sum_of(n, (size_t)rank * K + i));
  CHECK_OK(
      c10d_reduce(group, rank == ROOT ? out : NULL, in, K, C10D_I32, C10D_SUM, ROOT, NULL, NULL));
  for (size_t i = 0; rank == ROOT && i < K; ++i) CHECK(out[i] == sum_of(n, i));
  CHECK_OK(c10d_scan(group, out, in, K, C10D_I32, C10D_SUM, NULL, NULL));
  for (size_t i = 0; i < K; ++i) CHECK(out[i] == sum_of(rank + 1, i));
  for (size_t i = 0; i < K; ++i) out[i] = -1;
  CHECK_OK(c10d_exscan(group, out, in, K, C10D_I32, C10D_SUM, NULL, NULL));
  for (size_t i = 0; i < K; ++i) CHECK(out[i] == (rank == 0 ? -1 : sum_of(rank, i)));

  // Rank r gets r + 1 elements.
  const size_t counts[MOST_RANKS] = {1, 2, 3, 4};
  const size_t first = (size_t)rank * ((size_t)rank + 1) / 2;
  CHECK_OK(c10d_reduce_scatter_v(group, out, in, counts, C10D_I32, C10D_SUM, NULL, NULL));
  for (size_t i = 0; i < counts[rank]; ++i) CHECK(out[i] == sum_of(n, first + i));
}

static void test_kinds_of_reductions(const c10d_group* group) {
  const int64_t n = c10d_group_size(group), rank = c10d_group_rank(group);
  int64_t product = 1, any = 0, other = 0;
  for (int64_t r = 0; r < n; ++r) {
    product *= r + 1;
    any |= 1 << r;
    other ^= 3 << r;
  }
  const struct {
    c10d_reduce_op op;
    int64_t mine, expected;
  } cases[] = {
      {C10D_SUM, rank + 1, n * (n + 1) / 2},
      {C10D_PROD, rank + 1, product},
      {C10D_MIN, rank + 7, 7},
      {C10D_MAX, rank + 7, n + 6},
      {C10D_BAND, 8 | 1 << rank, n == 1 ? 9 : 8},
      {C10D_BOR, 1 << rank, any},
      {C10D_BXOR, 3 << rank, other},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    int64_t result = -1;
    CHECK_OK(c10d_all_reduce(group, &result, &cases[i].mine, 1, C10D_I64, cases[i].op, NULL, NULL));
    CHECK(result == cases[i].expected);
  }
  double mine = (double)rank + 1, result = 0;
  CHECK_OK(c10d_all_reduce(group, &result, &mine, 1, C10D_F64, C10D_AVG, NULL, NULL));
  CHECK(result == ((double)n + 1) / 2);
  c10d_call_options options = C10D_CALL_OPTIONS_INIT;
  options.premul_factor = 0.5;
  CHECK_OK(c10d_all_reduce(group, &result, &mine, 1, C10D_F64, C10D_PREMUL_SUM, &options, NULL));
  CHECK(result == (double)(n * (n + 1)) / 4);
}

static void test_movements(const c10d_group* group) {
  const int32_t n = c10d_group_size(group), rank = c10d_group_rank(group);
  int32_t in[MOST_RANKS * K], out[MOST_RANKS * K];
  fill(in, rank, MOST_RANKS * K);
  CHECK_OK(c10d_broadcast(group, out, rank == n - 1 ? in : NULL, K, C10D_I32, n - 1, NULL, NULL));
  for (size_t i = 0; i < K; ++i) CHECK(out[i] == value_of(n - 1, i));

  CHECK_OK(c10d_all_gather(group, out, in, K, C10D_I32, NULL, NULL));
  for (int32_t r = 0; r < n; ++r)
    for (size_t i = 0; i < K; ++i) CHECK(out[(size_t)r * K + i] == value_of(r, i));
  memset(out, 0, sizeof(out));
  CHECK_OK(c10d_gather(group, rank == ROOT ? out : NULL, in, K, C10D_I32, ROOT, NULL, NULL));
  for (int32_t r = 0; rank == ROOT && r < n; ++r)
    for (size_t i = 0; i < K; ++i) CHECK(out[(size_t)r * K + i] == value_of(r, i));
  CHECK_OK(c10d_scatter(group, out, rank == ROOT ? in : NULL, K, C10D_I32, ROOT, NULL, NULL));
  for (size_t i = 0; i < K; ++i) CHECK(out[i] == value_of(ROOT, (size_t)rank * K + i));
  CHECK_OK(c10d_all_to_all(group, out, in, K, C10D_I32, NULL, NULL));
  for (int32_t s = 0; s < n; ++s)
    for (size_t i = 0; i < K; ++i)
      CHECK(out[(size_t)s * K + i] == value_of(s, (size_t)rank * K + i));
}

// Rank r has r + 1 elements, of which the first is the element r (r + 1) / 2 of all.
static void test_movements_with_counts(const c10d_group* group) {
  const int32_t n = c10d_group_size(group), rank = c10d_group_rank(group);
  const size_t counts[MOST_RANKS] = {1, 2, 3, 4};
  int32_t in[MOST_RANKS * K], out[MOST_RANKS * K];
  fill(in, rank, MOST_RANKS * K);
  memset(out, 0, sizeof(out));
  CHECK_OK(c10d_all_gather_v(group, out, in, counts, C10D_I32, NULL, NULL));
  const int32_t* next = out;
  for (int32_t r = 0; r < n; ++r)
    for (size_t i = 0; i < counts[r]; ++i) CHECK(*next++ == value_of(r, i));
  memset(out, 0, sizeof(out));
  CHECK_OK(c10d_gather_v(group, rank == ROOT ? out : NULL, in, counts, C10D_I32, ROOT, NULL, NULL));
  next = out;
  for (int32_t r = 0; rank == ROOT && r < n; ++r)
    for (size_t i = 0; i < counts[r]; ++i) CHECK(*next++ == value_of(r, i));
  CHECK_OK(
      c10d_scatter_v(group, out, rank == ROOT ? in : NULL, counts, C10D_I32, ROOT, NULL, NULL));
  const size_t first = (size_t)rank * ((size_t)rank + 1) / 2;
  for (size_t i = 0; i < counts[rank]; ++i) CHECK(out[i] == value_of(ROOT, first + i));

  // To rank r go r + 1 elements, so that rank + 1 come from each.
  size_t from_each[MOST_RANKS];
  for (int32_t r = 0; r < n; ++r) from_each[r] = (size_t)rank + 1;
  CHECK_OK(c10d_all_to_all_v(group, out, in, from_each, counts, C10D_I32, NULL, NULL));
  next = out;
  for (int32_t s = 0; s < n; ++s)
    for (size_t i = 0; i <= (size_t)rank; ++i) CHECK(*next++ == value_of(s, first + i));
}

// The dtype decides how many bytes an element has; the byte behind the last one stays.
static void test_dtypes(const c10d_group* group) {
  static const size_t kBytes[] = {8, 4, 2, 2, 8, 4, 2, 1, 8, 4, 2, 1, 1, 8, 16, 1, 1};
  const int32_t rank = c10d_group_rank(group);
  for (c10d_dtype dtype = C10D_F64; dtype <= C10D_F8E5M2; ++dtype) {
    const size_t bytes = 3 * kBytes[dtype];
    char in[49], out[49];
    memset(in, rank == ROOT, sizeof(in));
    memset(out, 2, sizeof(out));
    CHECK_OK(c10d_broadcast(group, out, in, 3, dtype, ROOT, NULL, NULL));
    for (size_t i = 0; i < sizeof(out); ++i) CHECK(out[i] == (i < bytes ? 1 : 2));
  }
}

void test_collectives(const c10d_group* group) {
  CHECK(c10d_group_size(group) <= MOST_RANKS);
  test_reductions(group);
  test_kinds_of_reductions(group);
  test_movements(group);
  test_movements_with_counts(group);
  test_dtypes(group);
  const uint64_t before = c10d_group_sequence(group);
  CHECK_OK(c10d_barrier(group, NULL, NULL));
  CHECK(c10d_group_sequence(group) == before + 1);
  CHECK_OK(c10d_monitored_barrier(group, C10D_DEFAULT_TIMEOUT));
}
