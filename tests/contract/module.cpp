// SPDX-License-Identifier: BSD-3-Clause
// A module of backend.h whose ops do nothing. Built several times: see CMakeLists.txt.
#include <utility>

#include "c10d/spi/backend.h"

namespace {

class Idle final : public c10d::Backend {
 public:
  explicit Idle(c10d::BackendContext context) : context_(std::move(context)) {}
  c10d::Support supports(const c10d::Query& query) const override {
    if (query.op == c10d::OpKind::gather) return {.ok = false, .reason = "it does nothing"};
    return {};
  }
  c10d::Work launch(const c10d::Call&) override { return {}; }
  std::unique_ptr<c10d::Backend> new_group(c10d::BackendContext context,
                                           const std::vector<int>&) override {
    return std::make_unique<Idle>(std::move(context));
  }
  void abort() noexcept override {}
  void shutdown(c10d::Deadline) override {}
  std::string description() const override { return "idle as " + context_.group; }

 private:
  const c10d::BackendContext context_;
};

}  // namespace

extern "C" C10D_API const c10d::BackendModule* C10D_TEST_SYMBOL() {
  static const c10d::BackendModule module{
      .abi_version = C10D_TEST_ABI,
      .struct_size = C10D_TEST_BYTES,
      .name = "idle",
      .version = [] { return "7.7"; },
      .supports = [](const c10d::Query& query) { return Idle({}).supports(query); },
      .create = [](c10d::BackendContext context) -> std::unique_ptr<c10d::Backend> {
        return std::make_unique<Idle>(std::move(context));
      },
      .needs_launcher = true};
  return &module;
}
