// SPDX-License-Identifier: BSD-3-Clause
// The nccl backend: memory of GPUs, on the streams of the caller.
#include "c10d/spi/backend.h"

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "c10d/cuda.h"
#include "src/backends/common/failures.h"
#include "src/backends/common/owned_call.h"
#include "src/backends/common/store_waits.h"
#include "src/backends/nccl/calls.h"
#include "src/backends/nccl/communicator.h"
#include "src/backends/nccl/composed.h"
#include "src/backends/nccl/library.h"
#include "src/backends/nccl/memory.h"
#include "src/backends/nccl/settings.h"
#include "src/backends/nccl/supports.h"
#include "src/backends/nccl/watcher.h"
#include "src/base/failure_text.h"
#include "src/base/log.h"
#include "src/base/mutex.h"
#include "src/device/gpu.h"
#include "src/sync/process_singleton.h"

namespace c10d { inline namespace v0 { namespace nccl { namespace {

const Member& own_of(const BackendContext& context) {
  return context.members[static_cast<std::size_t>(context.rank)];
}

class NcclBackend final : public Backend {
 public:
  explicit NcclBackend(BackendContext context)
      : context_(std::move(context)),
        own_(own_of(context_)),
        watcher_(of_this_process<Watcher>()),
        description_(fmt::format("NCCL {} ({}), {} on cuda:{}", version_text(api().version),
                                 api().path, cuda::device_info(context_.device.index).name,
                                 context_.device.index)),
        communicator_(context_, Buffer<float>(plain_memory(sizeof(float), context_.device)),
                      std::chrono::steady_clock::now() + context_.timeout),
        composer_(std::make_shared<Composer>(context_.device)),
        watched_(context_, communicator_),
        memory_(context_, communicator_) {}
  // What NCCL has not ended may use the memory of its ops, and to free it would wait for it.
  ~NcclBackend() override {
    if (!communicator_.end_now()) communicator_.keep(std::move(composer_));
  }
  // As the constructor; a failure that says of no rank is of this one.
  static std::unique_ptr<Backend> make(BackendContext context);

  Support supports(const Query& query) const override {
    return nccl::supports(query, context_.device);
  }
  Device device() const noexcept override { return context_.device; }
  Work launch(const Call& call) override;
  void begin_batch() override;
  void end_batch() noexcept override;
  std::unique_ptr<Backend> new_group(BackendContext context, const std::vector<int>&) override {
    return make(std::move(context));
  }
  Allocation allocate(std::size_t bytes, Device, Deadline deadline) override;
  void abort() noexcept override { communicator_.abort(); }
  void shutdown(Deadline deadline) override;
  std::string description() const override { return description_ + memory_.description(); }

 private:
  std::shared_ptr<const Failure> meet_before(const Call& call);
  Work launch_checked(const Call& call);
  void meet(Deadline deadline);
  // Of the call, before it is enqueued.
  PendingOp* take_op(const Call& call);
  // An op whose calls NCCL has taken. Throws what the driver says.
  static void record(PendingOp& op, CudaStream stream);
  // Ends an op that was not enqueued, and says why.
  Failure give_up(PendingOp& op, const std::exception& error);

  void enqueue(const Call& call, const Communicator::Use& use);

  struct Batched {
    PendingOp* op;
    CudaStream stream;
    // Of what cannot be in NCCL's group: it follows behind.
    std::unique_ptr<OwnedCall> later;
  };

  const BackendContext context_;
  const Member& own_;
  Watcher& watcher_;
  const std::string description_;
  Communicator communicator_;
  std::shared_ptr<Composer> composer_;
  Watched watched_;
  GroupMemory memory_;
  std::optional<Communicator::Use> in_batch_;
  std::optional<Communicator::Use::InGroup> group_of_batch_;
  std::vector<Batched> batch_;  // of ops whose calls are in NCCL's group
};

bool is_composed(const Op& op) {
  return std::visit(
      [&](const auto& o) {
        if constexpr (requires { o.op; })
          return !is_native_reduction(kind_of(op), o.op.kind, o.input.dtype);
        return false;
      },
      op);
}

// How a stream waits for an op.
std::function<void(CudaStream)> order_behind(PendingOp& op, int device) {
  MutexLock lock(op.order_mutex);
  return [op = op.shared_from_this(), generation = op.generation, device](CudaStream stream) {
    MutexLock held(op->order_mutex);
    if (op->generation != generation) return;  // it is over
    const OnGpu on_gpu(device);
    check_driver(driver_api().stream_wait_event(stream, op->event, 0), "cuStreamWaitEvent");
  };
}

// A failure that says of no rank is of this one.
Failure of_this_rank(const Member& own, const std::exception& error) {
  Failure failure = failure_from_exception(error, "nccl");
  return failure.rank < 0 ? caused_by(own, std::move(failure)) : failure;
}

std::unique_ptr<Backend> NcclBackend::make(BackendContext context) {
  const Member own = own_of(context);
  try {
    return std::make_unique<NcclBackend>(std::move(context));
  } catch (const DistError& error) {
    throw_failure(of_this_rank(own, error));
  }
}

Work NcclBackend::launch(const Call& call) {
  if (const auto failure = meet_before(call)) return Work::failed(*failure);
  try {
    return launch_checked(call);
  } catch (const std::exception& error) {
    return Work::failed(of_this_rank(own_, error));
  }
}

// With C10D_NCCL_CHECK=before. Else the ranks' calls are compared while the op runs.
std::shared_ptr<const Failure> NcclBackend::meet_before(const Call& call) {
  Control& control = *context_.control;
  if (!settings().checks_before || is_point_to_point(kind_of(call.op))) return nullptr;
  constexpr std::chrono::microseconds kLook{20};
  Control::Agreement agreement;
  while ((agreement = control.poll_enqueued(call.sequence)) == Control::Agreement::pending) {
    if (std::chrono::steady_clock::now() >= call.deadline)
      return control.fail(control.timed_out(call, "waiting for all ranks to enter the call"));
    std::this_thread::sleep_for(kLook);
  }
  return agreement == Control::Agreement::agreed ? nullptr : control.failure();
}

PendingOp* NcclBackend::take_op(const Call& call) {
  PendingOp* const op = watched_.take();
  op->kind = kind_of(call.op);
  op->sequence = call.sequence;
  op->record = call.record;
  op->deadline = call.deadline;
  op->is_captured = call.captured;
  op->received = {};
  if (const auto* recv = std::get_if<Recv>(&call.op))
    op->received = {.source = recv->peer, .count = recv->output.count};
  return op;
}

Work NcclBackend::launch_checked(const Call& call) {
  std::optional<Communicator::Use> alone;
  if (!in_batch_) alone.emplace(communicator_);
  const Communicator::Use& use = in_batch_ ? *in_batch_ : *alone;
  if (use.is_ending()) return Work::failed(*context_.control->failure());
  const OnGpu here(context_.device.index);
  PendingOp* const op = take_op(call);
  Work work = Work::received(op->received);
  std::shared_ptr<cuda::Event> joint;  // of a captured op: what waits for it joins the capture
  if (call.async) {
    WorkSource source;
    if (call.captured) {
      joint = std::make_shared<cuda::Event>(context_.device.index);
      source.set_order([joint](CudaStream stream) { joint->wait(stream); });
    } else {
      source.set_order(order_behind(*op, context_.device.index));
    }
    work = source.work();
    op->source = std::move(source);
  }
  watcher_.add(op);
  try {
    const bool later = in_batch_ && is_composed(call.op);
    if (!later) enqueue(call, use);
    if (joint && !in_batch_) joint->record(call.stream);  // no stream waits for a batch
    if (in_batch_)
      batch_.push_back({op, call.stream, later ? std::make_unique<OwnedCall>(call) : nullptr});
    else
      record(*op, call.stream);
    return work;
  } catch (const std::exception& error) {
    work.detach();
    return Work::failed(give_up(*op, error));
  }
}

void NcclBackend::enqueue(const Call& call, const Communicator::Use& use) {
  const Target target{.use = use,
                      .rank = context_.rank,
                      .size = context_.size,
                      .stream = call.stream,
                      .scratch = communicator_.scratch(),
                      .captured = call.captured};
  if (call.captured) communicator_.note_capture();
  is_composed(call.op) ? composer_->enqueue(target, call.op) : nccl::enqueue(target, call.op);
}

void NcclBackend::record(PendingOp& op, CudaStream stream) {
  if (!op.is_captured) check_driver(driver_api().event_record(op.event, stream), "cuEventRecord");
  op.stage.store(PendingOp::Stage::enqueued, std::memory_order_release);
}

Failure NcclBackend::give_up(PendingOp& op, const std::exception& error) {
  constexpr std::chrono::milliseconds kPatience{500};  // for evidence of a peer's death
  Control& control = *context_.control;
  Failure failure = of_this_rank(own_, error);
  failure.op = to_string(op.kind);
  failure.sequence = op.sequence;
  if (op.source) {
    MutexLock lock(op.order_mutex);
    ++op.generation;
  }
  op.source.reset();
  op.stage.store(PendingOp::Stage::given_up, std::memory_order_release);
  const auto known = control.failure();
  return known ? *known : *control.resolve_cause(std::move(failure), kPatience);
}

void NcclBackend::begin_batch() {
  in_batch_.emplace(communicator_);
  group_of_batch_.emplace(*in_batch_);
  const Result result = api().group_start();
  if (result == kSuccess) return;
  group_of_batch_.reset();
  in_batch_.reset();
  throw_failure(*context_.control->fail(failure_in(
      context_, Code::backend_error, "ncclGroupStart: " + describe(result), context_.rank)));
}

void NcclBackend::end_batch() noexcept {
  if (!in_batch_) return;
  const std::vector<Batched> batch = std::exchange(batch_, {});
  const Result result = end_group(*in_batch_);
  group_of_batch_.reset();
  in_batch_.reset();
  for (const auto& [op, stream, later] : batch) {
    try {
      check(result, "ncclGroupEnd");
      const OnGpu here(context_.device.index);
      if (later) {
        const Communicator::Use use(communicator_);
        if (use.is_ending()) throw_failure(*context_.control->failure());
        enqueue(later->call(), use);
      }
      record(*op, stream);
    } catch (const std::exception& error) {
      const WorkSource source = *op->source;
      source.fail(give_up(*op, error));
    }
  }
}

// A rank whose own part is done may leave before the others have theirs: they meet first. A store
// that is gone went with a rank that has met all.
void NcclBackend::meet(Deadline deadline) try {
  meet_at(context_, "nccl/end", deadline);
} catch (const DistError& error) {
  log(LogLevel::info, "group \"{}\": {}", context_.group, error.what());
}

// NCCL's memory is neither made nor freed beside its kernels.
Allocation NcclBackend::allocate(std::size_t bytes, Device device, Deadline deadline) {
  constexpr std::chrono::microseconds kLook{50};
  if (!settings().uses_windows) return plain_memory(bytes, device);
  Control& control = *context_.control;
  while (!watched_.is_idle() && !control.broken()) {
    if (std::chrono::steady_clock::now() >= deadline)
      throw_failure(*control.fail(
          failure_in(context_, Code::timed_out,
                     fmt::format("rank {} timed out in allocate(), waiting for its ops on the GPU",
                                 context_.rank),
                     context_.rank)));
    std::this_thread::sleep_for(kLook);
  }
  return memory_.allocate(bytes, deadline);
}

void NcclBackend::shutdown(Deadline deadline) {
  const Control& control = *context_.control;
  if (!control.broken() && context_.size > 1) meet(deadline);
  if (control.broken())
    communicator_.abort();
  else
    communicator_.destroy(control, deadline);
}

// Valid until the process ends.
const char* why_unavailable() {
  if (!library().why.empty()) return library().why.c_str();
  static Mutex mutex;
  static auto& all = *new std::set<std::string>;  // what settings were wrong
  const MutexLock lock(mutex);
  return all.insert(why_no_settings()).first->c_str();
}

}}}}  // namespace c10d::v0::nccl

extern "C" __attribute__((visibility("default"))) const c10d::BackendModule* c10d_backend_module() {
  using namespace c10d;  // NOLINT(google-build-using-namespace)
  static constexpr BackendModule module{
      .name = "nccl",
      .version = nccl::own_version,
      .supports = [](const Query& query) { return nccl::supports(query, cuda_device(0)); },
      .create = [](BackendContext context) -> std::unique_ptr<Backend> {
        return nccl::NcclBackend::make(std::move(context));
      },
      .cuda_only = true,
      .why_unavailable = nccl::why_unavailable};
  return &module;
}
