// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/by_device.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

namespace c10d { inline namespace v0 {
namespace {

class BackendByDevice final : public Backend {
 public:
  BackendByDevice(std::unique_ptr<Backend> host, std::unique_ptr<Backend> cuda)
      : host_(std::move(host)), cuda_(std::move(cuda)) {}

  Support supports(const Query& query) const override { return of(query.device).supports(query); }
  Device device() const noexcept override { return cuda_->device(); }
  // Of calls on host memory: others are never announced ahead.
  bool agrees_first() const noexcept override { return host_->agrees_first(); }
  bool reduces_along_rank_tree() const noexcept override {
    return host_->reduces_along_rank_tree() && cuda_->reduces_along_rank_tree();
  }
  Work launch(const Call& call) override { return of(call.device.type).launch(call); }
  void begin_batch() override {
    cuda_->begin_batch();  // which may throw
    host_->begin_batch();
  }
  void end_batch() noexcept override {
    cuda_->end_batch();
    host_->end_batch();
  }
  std::optional<Received> probe(int peer, std::uint32_t tag) override {
    return host_->probe(peer, tag);
  }
  Allocation allocate(std::size_t bytes, Device device, Deadline deadline) override {
    return of(device.type).allocate(bytes, device, deadline);
  }
  std::unique_ptr<Backend> new_group(BackendContext context,
                                     const std::vector<int>& parent_ranks) override {
    auto host = host_->new_group(context, parent_ranks);
    auto cuda = cuda_->new_group(std::move(context), parent_ranks);
    if (!host || !cuda) return nullptr;
    return make_backend_by_device(std::move(host), std::move(cuda));
  }
  void look_after() override {
    host_->look_after();
    cuda_->look_after();
  }
  void abort() noexcept override {
    host_->abort();
    cuda_->abort();
  }
  void shutdown(Deadline deadline) override {
    std::exception_ptr problem;
    try {
      cuda_->shutdown(deadline);
    } catch (...) {
      problem = std::current_exception();
    }
    host_->shutdown(deadline);
    if (problem) std::rethrow_exception(problem);
  }
  std::string description() const override {
    return fmt::format("cuda: {}; cpu: {}", cuda_->description(), host_->description());
  }
  PlanReport plan(const PlanQuery& query) const override { return host_->plan(query); }

 private:
  Backend& of(DeviceType type) const noexcept { return type == DeviceType::cpu ? *host_ : *cuda_; }

  const std::unique_ptr<Backend> host_;
  const std::unique_ptr<Backend> cuda_;
};

}  // namespace

std::unique_ptr<Backend> make_backend_by_device(std::unique_ptr<Backend> host,
                                                std::unique_ptr<Backend> cuda) {
  return std::make_unique<BackendByDevice>(std::move(host), std::move(cuda));
}

}}  // namespace c10d::v0
