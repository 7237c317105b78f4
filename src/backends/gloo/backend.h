// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gloo/context.h>
#include <gloo/transport/device.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "c10d/spi/backend.h"
#include "src/backends/common/owned_call.h"
#include "src/backends/gloo/collectives.h"
#include "src/backends/gloo/revocable_context.h"
#include "src/sync/thread_pool.h"

namespace c10d { inline namespace v0 {

Support gloo_supports(const Query& query);

// TCP connections between all ranks of a group. Gloo can only block: a blocking call runs in the
// caller, async collectives run one after the other in a thread of the group, and each async send
// or recv runs in a thread of its own.
class GlooBackend : public Backend {
 public:
  // `device` is shared by a group and its subgroups; null makes one.
  GlooBackend(BackendContext context, std::shared_ptr<gloo::transport::Device> device);
  ~GlooBackend() override;

  Support supports(const Query& query) const override { return gloo_supports(query); }
  bool agrees_first() const noexcept override { return true; }
  Work launch(const Call& call) override;
  std::unique_ptr<Backend> new_group(BackendContext context,
                                     const std::vector<int>& parent_ranks) override;
  void abort() noexcept override;
  void shutdown(Deadline deadline) override;
  std::string description() const override;

 private:
  using FailurePtr = std::shared_ptr<const Failure>;

  Work launch_collective(const Call& call);
  Work launch_send(const Call& call, const Send& op);
  Work launch_recv(const Call& call, const Recv& op);
  // Runs body(call, source), which returns the failure, in a thread.
  template <class F>
  Work start(ThreadPool& threads, std::size_t limit, const Call& call, F body);
  // Null is success. They never throw.
  FailurePtr run_collective(const Call& call);
  template <class F>
  FailurePtr guarded(const Call& call, F&& body);
  Failure lost_connection(const Call& call, const char* what) const;
  FailurePtr fail_late(const Call& call, std::string_view phase);
  void close_connections() noexcept;

  BackendContext context_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<RevocableContext> gloo_;  // null in a group of one
  std::vector<std::uint32_t> sent_;         // messages by receiver
  Scratch scratch_;
  std::atomic<bool> closed_ = false;
  std::thread closer_;
  std::unique_ptr<ThreadPool> collectives_;
  std::unique_ptr<ThreadPool> messages_;
};

}}  // namespace c10d::v0
