// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/store.h"
#include "src/base/timeouts.h"

namespace c10d { inline namespace v0 {

// The keys, one per rank, of what all ranks enter together or not at all: see agreement.h.
class StoreKeys {
 public:
  static constexpr std::string_view kBarred = "barred";  // for a rank that is not waited for

  StoreKeys(std::shared_ptr<Store> store, std::vector<std::string> keys, int rank,
            Deadline deadline);

  const std::vector<std::string>& keys() const noexcept { return keys_; }
  bool deadline_passed() const noexcept;
  // Writes the own key; false when it is barred.
  bool arrive(std::string_view value) const;
  // Whether the rank's key is barred now.
  bool bar(int rank, Duration patience = kStorePatience) const;
  // Whether the rank has written its key.
  bool has_come(int rank) const;
  // What all keys say; empty when not all are there after a while.
  std::vector<std::string> values() const;

 private:
  const std::shared_ptr<Store> store_;
  const std::vector<std::string> keys_;
  const int rank_;
  const Deadline deadline_;
};

}}  // namespace c10d::v0
