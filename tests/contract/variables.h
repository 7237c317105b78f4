// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "c10d/env.h"

namespace c10d::contract {

using Environment = std::map<std::string, std::string>;

// Environment variables while it lives, as a launcher would set them.
class Variables {
 public:
  explicit Variables(Environment variables) : variables_(std::move(variables)) {
    for (auto& [name, value] : variables_) {
      const std::string mine = std::exchange(value, env(name).value_or(""));
      setenv(name.c_str(), mine.c_str(), 1);
    }
  }
  ~Variables() {
    for (const auto& [name, before] : variables_)
      before.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), before.c_str(), 1);
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

 private:
  Environment variables_;  // with the values of before
};

}  // namespace c10d::contract
