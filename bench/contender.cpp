// SPDX-License-Identifier: BSD-3-Clause
#include "bench/contender.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "c10d/backend.h"
#include "c10d/init.h"

namespace c10d::bench {
namespace {

// The store of the control group, for groups that live no longer.
std::shared_ptr<Store> borrow(Store& store) { return {std::shared_ptr<void>(), &store}; }

// The way of every user: through the funnel of a ProcessGroup.
class GroupContender final : public Contender {
 public:
  GroupContender(const std::string& name, const ContenderContext& context)
      : Contender(name), group_(init_process_group(options(name, context))) {}

  Support supports(const Query& query) const override { return group_.supports(query); }
  std::string description() const override { return group_.description(); }
  void run(std::span<const Op> ops, bool together) override {
    if (!together) {
      for (const Op& op : ops) group_.submit(op);
      return;
    }
    works_.clear();
    for (const Op& op : ops) works_.push_back(group_.submit(op, {.async = true}));
    for (const Work& work : works_) work.wait();
  }
  void shutdown() override { group_.shutdown(std::chrono::seconds(10)); }
  std::unique_ptr<Arena> arena(std::size_t bytes) override {
    return std::make_unique<Arena>(group_.allocate<std::uint8_t>(std::max<std::size_t>(bytes, 1)));
  }

 private:
  static InitOptions options(const std::string& name, const ContenderContext& context) {
    InitOptions init;
    init.backend = name;
    init.store = make_prefix_store(context.prefix, borrow(context.control->store()));
    init.rank = context.control->rank();
    init.size = context.control->size();
    init.timeout = context.timeout;
    init.token = context.token;
    init.name = name;
    return init;
  }
  ProcessGroup group_;
  std::vector<Work> works_;
};

// A backend without the funnel: no argument checks, no sequence of the group, no signature, no
// recorder.
class RawContender final : public Contender {
 public:
  RawContender(const std::string& name, const ContenderContext& context)
      : Contender(name), backend_(make_backend(name, options(name, context))) {}

  Support supports(const Query& query) const override { return backend_->supports(query); }
  std::string description() const override { return backend_->description(); }
  // The peers call their library's blocking functions, whatever the call says.
  bool overlaps() const noexcept override { return false; }
  void prepare(const Case&) override {
    deadline_ = std::chrono::steady_clock::now() + std::chrono::hours(1);
  }
  void run(std::span<const Op> ops, bool) override {
    for (const Op& op : ops) {
      std::uint64_t& sequence = is_point_to_point(kind_of(op)) ? messages_ : collectives_;
      backend_->launch(Call{op, ++sequence, 0, deadline_, false, 0}).wait();
    }
  }
  void shutdown() override {
    backend_->shutdown(std::chrono::steady_clock::now() + std::chrono::seconds(10));
  }

 private:
  static BackendContext options(const std::string& name, const ContenderContext& context) {
    BackendContext backend;
    backend.rank = context.control->rank();
    backend.size = context.control->size();
    backend.group = name;
    backend.members = context.control->members();
    backend.store = make_prefix_store(name, borrow(context.control->store()));
    backend.token = context.token;
    backend.timeout = context.timeout;
    return backend;
  }
  std::unique_ptr<Backend> backend_;
  Deadline deadline_{};
  std::uint64_t collectives_ = 0;
  std::uint64_t messages_ = 0;
};

class MemcpyContender final : public Contender {
 public:
  explicit MemcpyContender(int rank) : Contender("memcpy"), rank_(rank) {}

  Support supports(const Query& query) const override {
    if (query.op == OpKind::barrier) return {false, "a barrier copies nothing", ""};
    return {};
  }
  std::string description() const override {
    return "one core, std::memcpy, DRAM-cold above 16 MiB";
  }
  bool computes() const noexcept override { return false; }
  void prepare(const Case& c) override {
    if (rank_ != 0) return;
    constexpr std::uint64_t kCold = std::uint64_t{16} << 20;
    constexpr std::uint64_t kBeyondCaches = std::uint64_t{256} << 20;
    bytes_ = c.bytes;
    pair_ = 0;
    pairs_ = bytes_ > kCold ? std::max<std::uint64_t>(2, kBeyondCaches / (2 * bytes_)) : 1;
    if (!arena_ || arena_->bytes() < 2 * bytes_ * pairs_)
      arena_ = std::make_unique<Arena>(2 * bytes_ * pairs_);
  }
  void run(std::span<const Op>, bool) override {
    if (rank_ != 0) return;
    auto* from = static_cast<std::byte*>(arena_->data()) + 2 * bytes_ * pair_;
    std::memcpy(from + bytes_, from, bytes_);
    asm volatile("" : : "r"(from) : "memory");
    pair_ = (pair_ + 1) % pairs_;
  }

 private:
  int rank_;
  std::uint64_t bytes_ = 0;
  std::uint64_t pairs_ = 1;
  std::uint64_t pair_ = 0;
  std::unique_ptr<Arena> arena_;
};

}  // namespace

std::unique_ptr<Contender> make_memcpy_contender(int rank) {
  return std::make_unique<MemcpyContender>(rank);
}

std::unique_ptr<Contender> make_contender(const std::string& name,
                                          const ContenderContext& context) {
  if (name == "memcpy") return make_memcpy_contender(context.control->rank());
  if (name.starts_with("raw:")) return std::make_unique<RawContender>(name, context);
  return std::make_unique<GroupContender>(name, context);
}

}  // namespace c10d::bench
