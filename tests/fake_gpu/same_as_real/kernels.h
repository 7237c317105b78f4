// SPDX-License-Identifier: BSD-3-Clause
// Kernels for the readings, as text that the driver compiles.
#pragma once

namespace same_as_real {

constexpr const char* kKernels = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry empty() { ret; }
// Until the word is not 0, or the time is over.
.visible .entry spin(.param .u64 word, .param .u64 limit_ns)
{
  .reg .pred %p<3>; .reg .b32 %v; .reg .b64 %a, %l, %b, %t;
  ld.param.u64 %a, [word];
  ld.param.u64 %l, [limit_ns];
  mov.u64 %b, %globaltimer;
AGAIN:
  ld.volatile.global.u32 %v, [%a];
  setp.ne.u32 %p1, %v, 0;
  @%p1 bra DONE;
  mov.u64 %t, %globaltimer;
  sub.u64 %t, %t, %b;
  setp.lt.u64 %p2, %t, %l;
  @%p2 bra AGAIN;
DONE:
  ret;
}
.visible .entry poke(.param .u64 to, .param .u32 value)
{
  .reg .b64 %a; .reg .b32 %v;
  ld.param.u64 %a, [to];
  ld.param.u32 %v, [value];
  st.global.u32 [%a], %v;
  ret;
}
.visible .entry add_one(.param .u64 to)
{
  .reg .b64 %a; .reg .b32 %v;
  ld.param.u64 %a, [to];
  atom.global.add.u32 %v, [%a], 1;
  ret;
}
.visible .entry stop() { trap; }
.extern .shared .align 16 .b8 dynamic[];
.visible .entry use_shared(.param .u64 to)
{
  .reg .b64 %a; .reg .b32 %v;
  ld.param.u64 %a, [to];
  ld.shared.u32 %v, [dynamic];
  st.global.u32 [%a], %v;
  ret;
}
)";

}  // namespace same_as_real
