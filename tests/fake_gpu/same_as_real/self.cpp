// SPDX-License-Identifier: BSD-3-Clause
// Of the program itself: what it does with behaviours that crash, hang or say strange things.
#include <cstdlib>

#include "tests/fake_gpu/same_as_real/probe.h"

namespace same_as_real { namespace {

BEHAVIOUR(facts, "self.facts", nothing, 10) {
  r.fact("number", 42);
  r.fact("word", "a \"word\"\twith\na break");
  r.fact("yes", true);
  r.note("time", 1.5);
  r.note("patience", options().patience);
}
BEHAVIOUR(crash, "self.crash", nothing, 10) {
  r.fact("before", 1);
  std::abort();
}
BEHAVIOUR(hang, "self.hang", nothing, 1) {
  r.fact("before", 1);
  for (;;) sleep_ms(1000);
}
BEHAVIOUR(fail, "self.fail", nothing, 10) {
  must(700, "a call that must succeed");
  r.fact("after", 1);
}
BEHAVIOUR(child, "self.child", nothing, 10) {
  r.fact("exit", in_child([] { return 7; }));
  r.fact("crash", in_child([]() -> int { std::abort(); }));
  r.fact("hang", in_child(
                     [] {
                       sleep_ms(60'000);
                       return 0;
                     },
                     200));
}

}}  // namespace same_as_real
