// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "c10d/capability.h"

namespace c10d {

// Those of native and gloo that are there: the backends whose ranks need no launcher.
inline std::vector<std::string> backends_without_launcher() {
  std::vector<std::string> names;
  for (const BackendInfo& info : list_backends())
    if (info.available && (info.name == "native" || info.name == "gloo"))
      names.push_back(info.name);
  return names;
}

inline std::string backend_of(const testing::TestParamInfo<std::string>& info) {
  return info.param;
}

}  // namespace c10d

// For a fixture whose parameter is the backend.
#define C10D_ON_EACH_BACKEND(Suite)                                                           \
  INSTANTIATE_TEST_SUITE_P(Each, Suite, testing::ValuesIn(c10d::backends_without_launcher()), \
                           c10d::backend_of)
