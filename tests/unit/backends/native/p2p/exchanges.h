// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/unit/backends/native/ranks.h"

// What two ranks may rely on, on one host and on two: `Rank` is TestRank or HostRank.
namespace c10d { inline namespace v0 { namespace {

using Values = std::vector<std::int32_t>;

template <class Rank>
void match_by_tag_in_any_order(Rank& self, std::span<const std::size_t> counts) {
  const auto message = [&](std::size_t tag) {
    return contribution<std::int32_t>(static_cast<int>(tag), counts[tag]);
  };
  if (self.rank() == 0) {
    std::vector<Values> data;
    std::vector<Work> works;
    for (std::size_t tag = 0; tag < counts.size(); ++tag) data.push_back(message(tag));
    for (std::size_t tag = 0; tag < counts.size(); ++tag)
      works.push_back(self.start_async(Send{data[tag], 1, static_cast<std::uint32_t>(tag)}));
    for (const Work& work : works) work.wait();
  } else {
    for (std::size_t tag = counts.size(); tag-- > 0;) {
      Values got(counts[tag], -1);
      self.run(Recv{got, 0, static_cast<std::uint32_t>(tag)});
      EXPECT_EQ(got, message(tag));
    }
  }
}

template <class Rank>
void arrive_in_order_of_sending(Rank& self) {
  constexpr int kMessages = 300;
  const auto length = [](int i) { return i % 7 == 0 ? 40000u : 3u; };
  if (self.rank() == 0) {
    for (int i = 0; i < kMessages; ++i) {
      const Values out(length(i), i);
      self.run(Send{out, 1, 5});
    }
  } else {
    std::vector<Values> got;
    std::vector<Work> works;
    for (int i = 0; i < kMessages; ++i) got.emplace_back(length(i), -1);
    for (Values& one : got) works.push_back(self.start_async(Recv{one, 0, 5}));
    for (const Work& work : works) work.wait();
    for (int i = 0; i < kMessages; ++i)
      EXPECT_EQ(got[static_cast<std::size_t>(i)], Values(length(i), i));
  }
}

}}}  // namespace c10d::v0
