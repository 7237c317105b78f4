// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <utility>

#include "c10d/spi/backend.h"

namespace c10d::bench {

// A library called as its own users call it: no agreement, no checks, no deadline, no other thread.
// It is here to be measured against, so launch() is to be called directly, not through a
// ProcessGroup.
class RawPeer : public Backend {
 public:
  RawPeer(BackendContext context, std::string library)
      : context_(std::move(context)), library_(std::move(library)) {}

  std::unique_ptr<Backend> new_group(BackendContext, const std::vector<int>&) override {
    throw_failure({.code = Code::unsupported, .message = "raw peers have no subgroups"});
  }
  void abort() noexcept override {}
  void shutdown(Deadline) override {}
  std::string description() const override { return library_ + ", called directly"; }

 protected:
  Work failed(std::string what) const {
    return Work::failed({.code = Code::backend_error,
                         .message = library_ + ": " + std::move(what),
                         .rank = context_.rank});
  }
  Work unsupported(const Call& call) const {
    return Work::failed(
        {.code = Code::unsupported,
         .message = library_ + " has no " + std::string(to_string(kind_of(call.op))) + " for this",
         .rank = context_.rank});
  }

  BackendContext context_;

 private:
  std::string library_;
};

inline Support no(std::string reason) {
  return {.ok = false, .reason = std::move(reason), .composed = {}};
}

}  // namespace c10d::bench
