// SPDX-License-Identifier: BSD-3-Clause
#include "src/control/store_silence.h"

#include <fmt/format.h>

#include "src/base/members.h"

namespace c10d { inline namespace v0 {

Failure store_is_silent(const std::string& group, const std::vector<Member>& members,
                        std::string_view why) {
  std::vector<int> elsewhere;
  for (const Member& member : members)
    if (!member.same_host) elsewhere.push_back(member.rank);
  return {.code = Code::store_lost,
          .message = fmt::format("no contact with rank{} {} on other hosts: they died, "
                                 "or this host is cut off ({})",
                                 elsewhere.size() == 1 ? "" : "s", ranges_of(elsewhere), why),
          .group = group};
}

}}  // namespace c10d::v0
