// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <set>
#include <string>

#include "c10d/parallel/checkpoint.h"

namespace c10d::parallel {

// The text of the CheckpointError that every rank gets from every call, the same one.
class Refusals {
 public:
  void expect(const std::function<void()>& call) {
    try {
      call();
      ADD_FAILURE() << "accepted";
    } catch (const CheckpointError& error) {
      const std::lock_guard lock(mutex_);
      texts_.insert(error.what());
    }
  }
  void expect_all_say(const std::string& part) const {
    ASSERT_EQ(texts_.size(), 1u);
    EXPECT_NE(texts_.begin()->find(part), std::string::npos) << *texts_.begin();
  }

 private:
  std::mutex mutex_;
  std::set<std::string> texts_;
};

}  // namespace c10d::parallel
