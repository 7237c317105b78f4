// SPDX-License-Identifier: BSD-3-Clause
// The header alone, and every initialiser of it, in whatever language includes this.
#pragma once

#include "c10d/c.h"

int use_initialisers(void);
int use_initialisers(void) {
  const c10d_call_options call = C10D_CALL_OPTIONS_INIT;
  const c10d_init_options init = C10D_INIT_OPTIONS_INIT;
  const c10d_launch_info launch = C10D_LAUNCH_INFO_INIT;
  const c10d_member member = C10D_MEMBER_INIT;
  const c10d_plan_query plan = C10D_PLAN_QUERY_INIT;
  const c10d_query query = C10D_QUERY_INIT;
  const c10d_tcp_store_options tcp = C10D_TCP_STORE_OPTIONS_INIT;
  return call.timeout_ns == 0 && init.size == 0 && launch.launcher[0] == '\0' && member.pid == 0 &&
         plan.bytes == 0 && query.dtype == C10D_F32 && tcp.port == 0;
}
