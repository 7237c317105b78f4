// SPDX-License-Identifier: BSD-3-Clause
// A backend of the program's own, which knows two ops and moves data through the store.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <vector>

#include "c10d/init.h"
#include "c10d/spi/backend.h"

using namespace c10d;
class StoreBackend : public Backend {
 public:
  explicit StoreBackend(const BackendContext& context) : context_(context) {}
  Support supports(const Query& query) const override {
    const bool known = query.op == OpKind::all_gather || query.op == OpKind::barrier;
    return {.ok = known, .reason = known ? "" : "it knows all_gather and barrier only"};
  }
  Work launch(const Call& call) override {  // to its end; an exception breaks the group
    const auto failure = context_.control->agree(call, Control::Waiting::sleep);
    if (failure) return Work::failed(*failure);  // null: all ranks are in this call
    if (const auto* op = std::get_if<AllGather>(&call.op)) all_gather(*op, call);
    return {};
  }
  std::unique_ptr<Backend> new_group(BackendContext context, const std::vector<int>&) override {
    return std::make_unique<StoreBackend>(context);
  }
  void abort() noexcept override {}  // a deadline ends a wait for the store
  void shutdown(Deadline) override {}
  std::string description() const override { return "all_gather over a store"; }

 private:
  void all_gather(const AllGather& op, const Call& call) {
    std::vector<std::string> keys;  // they stay in the store: good enough for an example
    for (int rank = 0; rank < context_.size; ++rank)
      keys.push_back(std::to_string(call.sequence) + "/" + std::to_string(rank));
    const std::string_view mine(static_cast<const char*>(op.input.data), op.input.bytes());
    context_.store->set(keys[static_cast<std::size_t>(context_.rank)], mine);
    char* output = static_cast<char*>(op.output.data);
    const auto left = call.deadline - std::chrono::steady_clock::now();
    for (const std::string& part : context_.store->multi_get(keys, left))
      output = std::copy(part.begin(), part.end(), output);
  }
  BackendContext context_;
};
int main() try {
  register_backend("store", [](auto context) { return std::make_unique<StoreBackend>(context); });
  auto group = init_process_group({.backend = "store"});
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  const int mine = group.rank();
  group.all_gather(ranks, std::span(&mine, 1));
  std::printf("rank %d: %s, the last rank is %d\n", mine, group.description().c_str(),
              ranks.back());
  return ranks.back() == group.size() - 1 && !group.supports({.op = OpKind::all_reduce}) ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
