// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "c10d/capability.h"

namespace c10d {

// Every backend that this build knows or finds on C10D_BACKEND_PATH. One with a colon in its name
// is a wrapped library as c10d-bench calls it, which does not promise what a backend does.
inline std::vector<BackendInfo> known_backends() {
  std::vector<BackendInfo> infos = list_backends();
  std::erase_if(infos,
                [](const BackendInfo& info) { return info.name.find(':') != std::string::npos; });
  return infos;
}

// Why a test that makes ranks itself cannot take the backend, or empty.
inline std::string why_left_out(const BackendInfo& info) {
  if (!info.available) return info.reason;
  return info.needs_launcher ? "its ranks are started by a launcher" : "";
}

// The backends that are there and whose ranks need no launcher.
inline std::vector<std::string> backends_without_launcher() {
  std::vector<std::string> names;
  for (const BackendInfo& info : known_backends())
    if (why_left_out(info).empty()) names.push_back(info.name);
  return names;
}

// The other ones.
inline std::vector<std::string> left_out_backends() {
  std::vector<std::string> names;
  for (const BackendInfo& info : known_backends())
    if (!why_left_out(info).empty()) names.push_back(info.name);
  return names;
}
class OtherBackends : public testing::TestWithParam<std::string> {};

inline std::string backend_of(const testing::TestParamInfo<std::string>& info) {
  return info.param;
}

}  // namespace c10d

// For a fixture whose parameter is the backend.
#define C10D_ON_EACH_BACKEND(Suite)                                                           \
  INSTANTIATE_TEST_SUITE_P(Each, Suite, testing::ValuesIn(c10d::backends_without_launcher()), \
                           c10d::backend_of)

// In one source of a program: each of the other backends is a skipped test with the reason.
#define C10D_SKIP_OTHER_BACKENDS()                                                          \
  GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OtherBackends);                             \
  TEST_P(OtherBackends, AreLeftOut) {                                                       \
    for (const BackendInfo& info : known_backends())                                        \
      if (info.name == GetParam()) GTEST_SKIP() << info.name << ": " << why_left_out(info); \
  }                                                                                         \
  INSTANTIATE_TEST_SUITE_P(Each, OtherBackends, testing::ValuesIn(left_out_backends()), backend_of)
