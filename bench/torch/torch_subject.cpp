// SPDX-License-Identifier: BSD-3-Clause
#include "bench/torch/torch_subject.h"

#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <compare>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <system_error>
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

// For the file by which the ranks of one host meet: no other user reads it.
class FolderForAll {
 public:
  FolderForAll() {
    if (::mkdtemp(path_.data()) == nullptr) throw std::system_error(errno, std::generic_category());
  }
  ~FolderForAll() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  FolderForAll(const FolderForAll&) = delete;
  FolderForAll& operator=(const FolderForAll&) = delete;
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_ = std::filesystem::temp_directory_path() / "c10d-bench-XXXXXX";
};

class TorchSubject final : public Subject {
 public:
  TorchSubject(const std::string& column, const SubjectContext& context)
      : control_(*context.control), python_(Interpreter::of(python_of(column))) {
    // "torch:gloo": a column of this process, so its name is one, too.
    const std::string backend = backend_of(column).substr(std::string("torch:").size());
    const std::chrono::duration<double> seconds = context.timeout;
    const Json about = python_.call("open_column", {{"backend", backend},
                                                    {"rank", context.control->rank()},
                                                    {"size", context.control->size()},
                                                    {"store", meet(context)},
                                                    {"seconds", seconds.count()}});
    column_ = about.at("column");
    description_ = about.at("description");
  }
  ~TorchSubject() override {
    try {
      shutdown();
    } catch (const std::exception&) {  // the column has failed already
    }
  }
  TorchSubject(const TorchSubject&) = delete;
  TorchSubject& operator=(const TorchSubject&) = delete;

  // Collective: all ranks try the op out, the first time, and take the same answer.
  Support supports(const Query& query) const override {
    const Json about = {{"column", column_},
                        {"op", to_string(query.op)},
                        {"dtype", to_string(query.dtype)},
                        {"reduce", to_string(query.reduce_op)}};
    const std::string key = about.dump();
    const auto found = reasons_.find(key);
    if (found != reasons_.end()) return {found->second.empty(), found->second, ""};
    std::string why = python_.call("why_unsupported", about);
    const std::array mine{why.empty() ? 0 : 1};
    std::array any{0};
    control_.all_reduce(any, mine, ReduceOp::max);
    if (any[0] != 0 && why.empty()) why = "another rank cannot";
    reasons_.emplace(key, why);
    return {why.empty(), why, ""};
  }
  std::string description() const override { return description_; }
  // A script that does not say async_op=True.
  bool overlaps() const noexcept override { return false; }
  void prepare(const Case& c) override {
    ops_.clear();
    in_place_ = c.place == Place::in;
  }
  void meet_ops(std::span<const Op> ops) override {
    for (const Op& op : ops) callable_of(op);
  }
  void run(std::span<const Op> ops, Flight) override {
    for (const Op& op : ops) callable_of(op)();
  }
  void shutdown() override {
    if (!std::exchange(is_open_, false)) return;
    ops_.clear();  // they hold the group
    python_.call("close_column", {{"column", column_}});
    try {
      control_.barrier();  // a group that ends writes to the store, whose file ends with rank 0
    } catch (const DistError&) {  // which a failed op has told
    }
  }

 private:
  // Where the store of PyTorch is: the file, or where the first rank listens.
  Json meet(const SubjectContext& context) {
    Store& store = context.control->store();
    constexpr const char* kKey = "bench/torch_store";
    const bool one_host = std::ranges::all_of(context.control->members(), &Member::same_host);
    const auto host = env("MASTER_ADDR");
    if (!one_host && !host) throw std::runtime_error("MASTER_ADDR is not set");
    if (context.control->rank() == 0 && !store.try_get(kKey)) {
      static const FolderForAll folder;  // to the end of this process, as Python
      const Json where =
          one_host ? Json{folder.path() + "/store"} : python_.call("listen", {{"host", *host}});
      store.set(kKey, where.dump());
    }
    return Json::parse(store.get(kKey));
  }
  // Made once for each op of a case, before it is timed: a script has its tensors, too.
  const PythonCallable& callable_of(const Op& op) {
    const OpKey key = key_of(op);
    const auto found = ops_.find(key);
    if (found != ops_.end()) return found->second;
    Json about = {{"column", column_},
                  {"op", to_string(key.kind)},
                  {"input", {key.input, key.input_count}},
                  {"output", {key.output, key.output_count}},
                  {"dtype", to_string(key.dtype)},
                  {"reduce", to_string(key.reduce)},
                  {"in_place", in_place_},
                  {"peer", key.peer},
                  {"tag", key.tag}};
    return ops_.emplace(key, python_.callable("make_op", about)).first->second;
  }

  ProcessGroup& control_;
  Interpreter& python_;
  bool is_open_ = true;
  bool in_place_ = false;
  int column_ = 0;
  std::string description_;
  mutable std::map<std::string, std::string> reasons_;  // why not, by question
  std::map<OpKey, PythonCallable> ops_;
};

}  // namespace

std::unique_ptr<Subject> make_torch_subject(const std::string& column,
                                            const SubjectContext& context) {
  return std::make_unique<TorchSubject>(column, context);
}

}  // namespace c10d::bench
