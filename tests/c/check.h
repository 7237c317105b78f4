// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "c10d/c.h"

// Ends this rank with a message unless the condition holds.
#define CHECK(condition) check((condition) != 0, #condition, __FILE__, __LINE__)
// Ends this rank with a message unless the call returns that code.
#define CHECK_CODE(code, call) check_code(code, call, #call, __FILE__, __LINE__)
#define CHECK_OK(call) CHECK_CODE(C10D_OK, call)
// Ends this rank with a message unless the message of the last failure has that text.
#define CHECK_ERROR(text) check_error(text, __FILE__, __LINE__)

void check(int holds, const char* condition, const char* file, int line);
void check_code(c10d_code expected, c10d_code code, const char* call, const char* file, int line);
void check_error(const char* text, const char* file, int line);

// Bounds what should take no time.
#define LONG_NS ((int64_t)60 * 1000 * 1000 * 1000)

// A group of all ranks of `group`, to break it.
c10d_group* group_to_break(const c10d_group* group);

// The parts of the test; each rank runs all.
void test_arguments(const c10d_group* group);
void test_collectives(const c10d_group* group);
void test_failures(const c10d_group* group);
void test_groups(const c10d_group* group);
void test_messages(const c10d_group* group);
void test_queries(const c10d_group* group);
void test_stores(const c10d_group* group);
void test_work(const c10d_group* group);
