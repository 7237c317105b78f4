// SPDX-License-Identifier: BSD-3-Clause
#include "src/control/store_keys.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "c10d/error.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr std::chrono::milliseconds kSlice{100};  // how often a wait looks for a broken group
constexpr std::chrono::milliseconds kShortest{1};

}  // namespace

StoreKeys::StoreKeys(std::shared_ptr<Store> store, std::vector<std::string> keys, int rank,
                     Deadline deadline)
    : store_(std::move(store)), keys_(std::move(keys)), rank_(rank), deadline_(deadline) {}

bool StoreKeys::deadline_passed() const noexcept {
  return std::chrono::steady_clock::now() >= deadline_;
}

bool StoreKeys::arrive(std::string_view value) const {
  return store_->compare_set(keys_[static_cast<std::size_t>(rank_)], std::nullopt, value,
                             patience_until(deadline_)) == value;
}

bool StoreKeys::bar(int rank, Duration patience) const {
  return store_->compare_set(keys_[static_cast<std::size_t>(rank)], std::nullopt, kBarred,
                             patience) == kBarred;
}

bool StoreKeys::has_come(int rank) const {
  const auto value = store_->try_get(keys_[static_cast<std::size_t>(rank)], kStorePatience);
  return value && *value != kBarred;
}

std::vector<std::string> StoreKeys::values() const try {
  const Duration left = deadline_ - std::chrono::steady_clock::now();
  return store_->multi_get(keys_, std::clamp<Duration>(left, kShortest, kSlice));
} catch (const DistTimeoutError&) {
  return {};
}

}}  // namespace c10d::v0
