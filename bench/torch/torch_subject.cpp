// SPDX-License-Identifier: BSD-3-Clause
#include "bench/torch/torch_subject.h"

#include <fmt/format.h>

#include <chrono>
#include <compare>
#include <map>
#include <type_traits>
#include <utility>
#include <variant>

#include "bench/model/column_name.h"
#include "bench/torch/interpreter.h"
#include "c10d/env.h"
#include "c10d/op_traits.h"

namespace c10d::bench {
namespace {

std::uint64_t address_of(const void* data) noexcept {
  return reinterpret_cast<std::uintptr_t>(data);
}

// What tells the ops of a case from each other.
struct OpKey {
  OpKind kind{};
  std::uint64_t input = 0, output = 0;
  std::uint64_t input_count = 0, output_count = 0;
  DType dtype{};
  ReduceOp::Kind reduce{};
  int peer = 0;  // or root
  std::uint32_t tag = 0;

  auto operator<=>(const OpKey&) const = default;
};

OpKey key_of(const Op& op) {
  OpKey key{.kind = kind_of(op)};
  std::visit(
      [&](const auto& one) {
        if constexpr (requires { one.input; }) {
          key.input = address_of(one.input.data);
          key.input_count = one.input.count;
          if (one.input.count != 0) key.dtype = one.input.dtype;
        }
        if constexpr (requires { one.output; }) {
          key.output = address_of(one.output.data);
          key.output_count = one.output.count;
          if (one.output.count != 0) key.dtype = one.output.dtype;
        }
        if constexpr (requires { one.op; }) key.reduce = one.op.kind;
        if constexpr (requires { one.root; }) key.peer = one.root;
        if constexpr (requires { one.peer; }) key.peer = one.peer;
        if constexpr (requires { one.tag; }) key.tag = one.tag;
      },
      op);
  return key;
}

class TorchSubject final : public Subject {
 public:
  TorchSubject(const std::string& column, const SubjectContext& context)
      : python_(Interpreter::of(which_of(column).empty() ? "python3" : which_of(column))) {
    // "torch:gloo": a column of this process, so its name is one, too.
    const std::string backend = backend_of(column).substr(std::string("torch:").size());
    const std::chrono::duration<double> seconds = context.timeout;
    const Json about = python_.call("open_column", {{"backend", backend},
                                                    {"rank", context.control->rank()},
                                                    {"size", context.control->size()},
                                                    {"address", meet(context)},
                                                    {"seconds", seconds.count()}});
    column_ = about.at("column");
    description_ = about.at("description");
  }

  Support supports(const Query& query) const override {
    const std::string why =
        python_.call("why_unsupported", {{"column", column_},
                                         {"op", to_string(query.op)},
                                         {"dtype", to_string(query.dtype)},
                                         {"reduce", to_string(query.reduce_op)}});
    return {why.empty(), why, ""};
  }
  std::string description() const override { return description_; }
  // A script that does not say async_op=True.
  bool overlaps() const noexcept override { return false; }
  void prepare(const Case&) override { ops_.clear(); }
  void run(std::span<const Op> ops, Flight) override {
    for (const Op& op : ops) callable_of(op)();
  }
  void shutdown() override { python_.call("close_column", {{"column", column_}}); }

 private:
  // Where the first rank's store of PyTorch listens.
  Json meet(const SubjectContext& context) {
    Store& store = context.control->store();
    constexpr const char* kKey = "bench/torch_store";
    if (context.control->rank() == 0 && !store.try_get(kKey)) {
      const std::string host = env("MASTER_ADDR").value_or("127.0.0.1");
      store.set(kKey, python_.call("listen", {{"host", host}}).dump());
    }
    return Json::parse(store.get(kKey));
  }
  // Made once for each op of a case: a script has its tensors, too, before it begins.
  const PythonCallable& callable_of(const Op& op) {
    constexpr std::size_t kMost = 65536;
    const OpKey key = key_of(op);
    const auto found = ops_.find(key);
    if (found != ops_.end()) return found->second;
    if (ops_.size() == kMost) ops_.clear();
    Json about = {{"column", column_},
                  {"op", to_string(key.kind)},
                  {"input", {key.input, key.input_count}},
                  {"output", {key.output, key.output_count}},
                  {"dtype", to_string(key.dtype)},
                  {"reduce", to_string(key.reduce)},
                  {"peer", key.peer},
                  {"tag", key.tag}};
    return ops_.emplace(key, python_.callable("make_op", about)).first->second;
  }

  Interpreter& python_;
  int column_ = 0;
  std::string description_;
  std::map<OpKey, PythonCallable> ops_;
};

}  // namespace

std::unique_ptr<Subject> make_torch_subject(const std::string& column,
                                            const SubjectContext& context) {
  return std::make_unique<TorchSubject>(column, context);
}

}  // namespace c10d::bench
