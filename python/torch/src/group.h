// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "c10d/c.h"
#include "python/torch/src/pytorch.h"
#include "python/torch/src/store.h"
#include "python/torch/src/tensors.h"
#include "python/torch/src/work.h"

namespace c10d_torch {

// c10d_torch.Options: pg_options of torch.distributed.
struct GroupOptions final : Base::Options {
  explicit GroupOptions(std::string below, Milliseconds timeout)
      : Base::Options("c10d", timeout), below(std::move(below)) {}
#if TORCH_VERSION_MAJOR >= 2 && defined(C10D_BACKEND_HAS_HOOKS)
  c10::intrusive_ptr<Base::Options> clone() const override {
    return c10::make_intrusive<GroupOptions>(*this);
  }
#endif

  std::string below;  // our backend: "native", "gloo", ...; "": C10D_BACKEND, else native
};

// A group of ours as a backend of torch.distributed. PyTorch's manual says what the calls do.
class Group final : public Base {
 public:
  // Brings the ranks of a store together.
  Group(StorePtr store, int rank, int size, c10::intrusive_ptr<GroupOptions> options,
        const std::string& name);
  ~Group() override;

  const std::string getBackendName() const override { return "c10d"; }

  WorkPtr broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const ::c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const ::c10d::ReduceOptions& opts) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const ::c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const ::c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const ::c10d::AllgatherOptions& opts) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const ::c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const ::c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const ::c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const ::c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& to,
                        std::vector<std::int64_t>& from,
                        const ::c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const ::c10d::AllToAllOptions& opts) override;
  WorkPtr barrier(const ::c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const ::c10d::BarrierOptions& opts, bool wait_all_ranks) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override;

#if TORCH_VERSION_MAJOR >= 2
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const ::c10d::AllgatherOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const ::c10d::ReduceScatterOptions& opts) override;
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;
#endif
#ifdef C10D_BACKEND_HAS_HOOKS  // of PyTorch: a version with all that follows
  c10::intrusive_ptr<Base::Options> getBackendOptions() override;
  void setTimeout(Milliseconds timeout) override;
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<Base> split(const c10::intrusive_ptr<::c10d::Store>& store,
                                 const std::vector<int>& ranks,
                                 const c10::intrusive_ptr<Base::Options>& opts) override;
  bool supportsShrinking() const override { return true; }
  c10::intrusive_ptr<Base> shrink(const std::vector<std::int64_t>& excluded, int flags,
                                  const c10::intrusive_ptr<Base::Options>& opts) override;
  void abort() override;
  void shutdown() override;
  ::c10d::ErrorType getError() override;
  void registerAbortHook(std::int64_t id, ::c10d::AbortHook hook) override;
  void registerCompletionHook(std::int64_t id, ::c10d::CompletionHook hook) override;
#endif
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  ::c10d::ReconfigureHandle get_reconfigure_handle() const override;
  WorkPtr reconfigure(const ::c10d::ReconfigureOptions& opts) override;
#endif
#ifdef C10D_BACKEND_HAS_WINDOW
  c10::intrusive_ptr<::c10d::Window> new_window(const std::optional<at::Tensor>& tensor) override;
#endif

  bool is_native() const noexcept { return is_native_; }
  // Leaves the group in good order; pending ops of this rank have that long.
  void leave(Milliseconds timeout);
  // Ends all groups of this process that are left, within about a second, and waits up to five for
  // what hangs on their futures.
  static void leave_all();

 private:
  // Starts an op: start(options, &work) is a call of c10d/c.h.
  template <class Start>
  WorkPtr submit(OpType type, std::shared_ptr<Op> op, Milliseconds timeout, Start start);
  // The same, of several.
  template <class Each>
  WorkPtr coalesced(OpType type, std::size_t count, Each each);
  WorkPtr receive(Tensors& tensors, OpType type, int from, int tag);
  WorkPtr allreduce_sparse_tensor(at::Tensor& tensor, const ::c10d::AllreduceOptions& opts);

  const StorePtr store_;
  c10d_group* group_ = nullptr;
  const c10::intrusive_ptr<GroupOptions> options_;
  bool is_native_ = false;
  std::mutex mutex_;  // one thread at a time may call the group
  c10d_batch* batch_ = nullptr;
  std::shared_ptr<Op> batched_;  // all ops of the batch
#ifdef C10D_BACKEND_HAS_HOOKS
  int shrinks_ = 0;
#endif
};

}  // namespace c10d_torch
