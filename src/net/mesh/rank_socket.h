// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "src/net/fd.h"

namespace c10d { inline namespace v0 {

// A socket by which ranks hear of each other's end: a listening one, or a connection. A child that
// is forked does not have it, and it ends, at both ends, with this object.
class RankSocket {
 public:
  RankSocket() = default;
  explicit RankSocket(Fd fd);
  RankSocket(RankSocket&&) noexcept = default;
  RankSocket& operator=(RankSocket&&) = delete;
  ~RankSocket();

  int get() const noexcept { return fd_.get(); }

 private:
  Fd fd_;
};

}}  // namespace c10d::v0
