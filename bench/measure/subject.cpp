// SPDX-License-Identifier: BSD-3-Clause
#include "bench/measure/subject.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "bench/model/column_name.h"
#include "c10d/env.h"
#include "c10d/init.h"
#include "c10d/spi/backend.h"

namespace c10d::bench {
namespace {

// The store of the control group, for groups that live no longer.
std::shared_ptr<Store> borrow(Store& store) { return {std::shared_ptr<void>(), &store}; }

// C10D_NATIVE_PLAN while a group is made: only then, and only by rank 0, is it read.
class ForcedAlgorithm {
 public:
  explicit ForcedAlgorithm(const std::string& name) : before_(env(kName)), active_(!name.empty()) {
    if (active_) ::setenv(kName, name.c_str(), 1);
  }
  ~ForcedAlgorithm() {
    if (!active_) return;
    if (before_)
      ::setenv(kName, before_->c_str(), 1);
    else
      ::unsetenv(kName);
  }
  ForcedAlgorithm(const ForcedAlgorithm&) = delete;
  ForcedAlgorithm& operator=(const ForcedAlgorithm&) = delete;

 private:
  static constexpr const char* kName = "C10D_NATIVE_PLAN";
  std::optional<std::string> before_;
  bool active_;
};

// The way of every user: through the funnel of a ProcessGroup.
class GroupSubject final : public Subject {
 public:
  GroupSubject(const std::string& name, const SubjectContext& context) {
    seat_ = context.seat;
    if (seat_ != nullptr) options_.stream = seat_->stream;
    const ForcedAlgorithm forced(name == "native" ? context.algorithm : "");
    groups_.push_back(open_group(name, context));
    std::vector<int> all(static_cast<std::size_t>(first().size()));
    std::iota(all.begin(), all.end(), 0);
    for (int i = 1; i < context.groups; ++i)
      groups_.push_back(first().new_group(all, fmt::format("{}/{}", name, i)));
  }

  Support supports(const Query& query) const override { return groups_[0].supports(query); }
  std::string description() const override { return groups_[0].description(); }
  std::string algorithm(const Case& c, bool registered) const override {
    if (options_.stream != nullptr) return "";  // the plan is of ops on memory of the host
    const PlanReport report = groups_[0].plan({facts_of(c.op).kind, c.dtype, c.bytes, registered});
    return report.options.empty() ? "" : report.options.front().name;
  }
  void run(std::span<const Op> ops, Flight flight) override {
    if (flight == Flight::in_turn) {
      for (const Op& op : ops) first().submit(op, options_);
      return;
    }
    works_.clear();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      ProcessGroup& group = flight == Flight::one_per_group ? groups_.at(i) : first();
      works_.push_back(group.async().submit(ops[i]));
    }
    for (const Work& work : works_) work.wait();
  }
  void shutdown() override {
    for (auto group = groups_.rbegin(); group != groups_.rend(); ++group)
      group->shutdown(std::chrono::seconds(10));
  }
  std::unique_ptr<Arena> arena(std::size_t bytes) override {
    const Device device = seat_ == nullptr ? Device{} : seat_->device;
    return std::make_unique<Arena>(
        first().allocate<std::uint8_t>(std::max<std::size_t>(bytes, 1), device), seat_);
  }

 private:
  ProcessGroup& first() noexcept { return groups_.front(); }
  const GpuSeat* seat_ = nullptr;
  CallOptions options_;
  std::vector<ProcessGroup> groups_;  // the first, and subgroups of it with all of its ranks
  std::vector<Work> works_;
};

// A backend without the funnel: no argument checks, no sequence of the group, no signature, no
// recorder.
class RawSubject final : public Subject {
 public:
  RawSubject(const std::string& name, const SubjectContext& context)
      : backend_(make_backend(name, options(name, context))), seat_(context.seat) {
    if (seat_ == nullptr) return;
    device_ = seat_->device;
    stream_ = seat_->stream;
  }

  Support supports(const Query& query) const override { return backend_->supports(query); }
  std::string description() const override { return backend_->description(); }
  // The peers call their library's blocking functions, whatever the call says.
  bool overlaps() const noexcept override { return false; }
  void prepare(const Case&) override {
    deadline_ = std::chrono::steady_clock::now() + std::chrono::hours(1);
  }
  void run(std::span<const Op> ops, Flight) override {
    for (const Op& op : ops) {
      std::uint64_t& sequence = is_point_to_point(kind_of(op)) ? messages_ : collectives_;
      backend_->launch(Call{op, ++sequence, 0, deadline_, false, 0, device_, stream_}).wait();
    }
  }
  void shutdown() override {
    backend_->shutdown(std::chrono::steady_clock::now() + std::chrono::seconds(10));
  }
  std::unique_ptr<Arena> arena(std::size_t bytes) override {
    if (seat_ == nullptr) return nullptr;
    prepare({});
    return std::make_unique<Arena>(Buffer<std::uint8_t>(backend_->allocate(
                                       std::max<std::size_t>(bytes, 1), device_, deadline_)),
                                   seat_);
  }

 private:
  static BackendContext options(const std::string& name, const SubjectContext& context) {
    BackendContext backend;
    backend.rank = context.control->rank();
    backend.size = context.control->size();
    backend.group = name;
    backend.members = context.control->members();
    backend.store = make_prefix_store(name, borrow(context.control->store()));
    backend.token = context.token;
    backend.timeout = context.timeout;
    if (context.seat != nullptr) backend.device = context.seat->device;
    return backend;
  }
  std::unique_ptr<Backend> backend_;
  const GpuSeat* seat_;
  Device device_;
  CudaStream stream_ = nullptr;
  Deadline deadline_{};
  std::uint64_t collectives_ = 0;
  std::uint64_t messages_ = 0;
};

// Source and target, as often as no byte is in a cache.
std::uint64_t pairs_of(const Case& c) {
  constexpr std::uint64_t kCold = std::uint64_t{16} << 20;
  constexpr std::uint64_t kBeyondCaches = std::uint64_t{256} << 20;
  const bool cold = c.bytes > kCold || c.cache != Cache::hot;
  if (!cold || c.bytes == 0) return 1;
  return std::max<std::uint64_t>(2, std::max(kBeyondCaches, c.walk) / (2 * c.bytes));
}

class MemcpySubject final : public Subject {
 public:
  explicit MemcpySubject(int rank) : rank_(rank) {}

  Support supports(const Query& query) const override {
    if (query.op == OpKind::barrier) return {false, "a barrier copies nothing", ""};
    return {};
  }
  std::string description() const override { return "one core, std::memcpy; cold above 16 MiB"; }
  bool computes() const noexcept override { return false; }
  void prepare(const Case& c) override {
    if (rank_ != 0) return;
    bytes_ = c.bytes;
    copies_ = c.concurrent;
    pair_ = 0;
    pairs_ = pairs_of(c);
    if (!arena_ || arena_->bytes() < memcpy_bytes(c))
      arena_ = std::make_unique<Arena>(memcpy_bytes(c));
  }
  void run(std::span<const Op>, Flight) override {
    if (rank_ != 0) return;
    for (int i = 0; i < copies_; ++i) {
      auto* from = static_cast<std::byte*>(arena_->data()) + 2 * bytes_ * pair_;
      std::memcpy(from + bytes_, from, bytes_);
      asm volatile("" : : "r"(from) : "memory");
      pair_ = (pair_ + 1) % pairs_;
    }
  }

 private:
  int rank_;
  std::uint64_t bytes_ = 0;
  int copies_ = 1;
  std::uint64_t pairs_ = 1;
  std::uint64_t pair_ = 0;
  std::unique_ptr<Arena> arena_;
};

}  // namespace

std::uint64_t memcpy_bytes(const Case& c) { return 2 * c.bytes * pairs_of(c); }

std::unique_ptr<Subject> make_memcpy_subject(int rank) {
  return std::make_unique<MemcpySubject>(rank);
}

ProcessGroup open_group(const std::string& name, const SubjectContext& context) {
  InitOptions init;
  init.backend = name;
  init.store = make_prefix_store(context.prefix, borrow(context.control->store()));
  init.rank = context.control->rank();
  init.size = context.control->size();
  init.timeout = context.timeout;
  init.token = context.token;
  init.name = name;
  if (context.seat != nullptr) init.device = context.seat->device.index;
  return init_process_group(std::move(init));
}

std::unique_ptr<Subject> make_subject(const std::string& column, const SubjectContext& context) {
  const std::string name = backend_of(column);
  if (name == "memcpy") return make_memcpy_subject(context.control->rank());
  if (name.starts_with("raw:")) return std::make_unique<RawSubject>(name, context);
  return std::make_unique<GroupSubject>(name, context);
}

}  // namespace c10d::bench
