// SPDX-License-Identifier: BSD-3-Clause
#include "src/store/secret.h"

#include <optional>

#include "src/base/timeouts.h"
#include "src/net/token.h"

namespace c10d { inline namespace v0 {

std::string secret_of(Store& store, const std::string& token, Deadline deadline) {
  if (!token.empty()) return token;
  const std::string own = random_bytes(kNonceBytes);
  return store.compare_set("secret", std::nullopt, own, patience_until(deadline)).value_or(own);
}

}}  // namespace c10d::v0
