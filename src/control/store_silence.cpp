// SPDX-License-Identifier: BSD-3-Clause
#include "src/control/store_silence.h"

#include <fmt/format.h>

#include <thread>

#include "src/base/members.h"
#include "src/recorder/flight_recorder.h"

namespace c10d { inline namespace v0 {

bool has_running_op(const RankBlock& block) {
  bool runs = false;
  visit_records(block, [&](const Recorded& op) { runs = runs || op.state == Record::running; });
  return runs;
}

void wait_for_others_to_poll(const std::function<std::vector<std::string>()>& beats) {
  constexpr std::chrono::milliseconds kTwoPolls{500}, kPause{20};
  const Deadline end = std::chrono::steady_clock::now() + kTwoPolls;
  const auto all_left = [&] {
    return std::ranges::all_of(beats(), [](const std::string& beat) { return beat == kLastBeat; });
  };
  while (!all_left() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(kPause);
}

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
