// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "c10d/error.h"
#include "c10d/store.h"
#include "src/c/arguments.h"
#include "src/c/failures.h"
#include "src/c/handles.h"

struct c10d_store_answer {
  std::optional<std::string> text{};
};

namespace c10d { inline namespace v0 { namespace c {
namespace {

using std::chrono::steady_clock;

// Between two looks for a key, which the functions cannot wait for.
constexpr std::chrono::milliseconds kFirstPause{1}, kLongestPause{20};

class CustomStore final : public Store {
 public:
  explicit CustomStore(const c10d_custom_store_functions& functions) : functions_(functions) {
    set_timeout(timeout_of_field(functions.timeout_ns).value_or(kDefaultStoreTimeout));
  }
  ~CustomStore() override {
    if (functions_.free != nullptr) functions_.free(functions_.user);
  }

  void set(std::string_view key, std::string_view value, std::optional<Duration>) override {
    ask("set", key, [&](const char* name, c10d_store_answer* answer) {
      check_value(key, value);
      return functions_.set(functions_.user, name, value.data(), value.size(), answer);
    });
  }
  std::string get(std::string_view key, std::optional<Duration> timeout) override {
    const std::string one(key);
    return multi_get(std::span(&one, 1), timeout).front();
  }
  std::optional<std::string> try_get(std::string_view key, std::optional<Duration>) override {
    return ask("get", key, [&](const char* name, c10d_store_answer* answer) {
      return functions_.try_get(functions_.user, name, answer);
    });
  }
  std::int64_t add(std::string_view key, std::int64_t amount, std::optional<Duration>) override {
    std::int64_t sum = 0;
    ask("add", key, [&](const char* name, c10d_store_answer* answer) {
      return functions_.add(functions_.user, name, amount, &sum, answer);
    });
    return sum;
  }
  std::optional<std::string> compare_set(std::string_view key,
                                         std::optional<std::string_view> expected,
                                         std::string_view desired,
                                         std::optional<Duration>) override {
    return ask("compare_set", key, [&](const char* name, c10d_store_answer* answer) {
      check_value(key, desired);
      // An empty value is not NULL, which stands for none.
      const char* const known = !expected ? nullptr : expected->empty() ? "" : expected->data();
      return functions_.compare_set(functions_.user, name, known, expected ? expected->size() : 0,
                                    desired.data(), desired.size(), answer);
    });
  }
  void wait(std::span<const std::string> keys, std::optional<Duration> timeout) override {
    multi_get(keys, timeout);
  }
  bool check(std::span<const std::string> keys, std::optional<Duration>) override {
    return std::all_of(keys.begin(), keys.end(),
                       [&](const std::string& key) { return try_get(key, {}).has_value(); });
  }
  std::vector<std::string> multi_get(std::span<const std::string> keys,
                                     std::optional<Duration> timeout) override {
    const Duration patience = std::clamp(timeout.value_or(this->timeout()), Duration(0), kLongest);
    const auto deadline = steady_clock::now() + patience;
    Duration pause = kFirstPause;
    std::vector<std::string> values;
    for (;;) {
      while (values.size() < keys.size()) {
        auto value = try_get(keys[values.size()], {});
        if (!value) break;
        values.push_back(*std::move(value));
      }
      if (values.size() == keys.size()) return values;
      const Duration left = deadline - steady_clock::now();
      if (left <= Duration(0)) throw_timed_out(keys.subspan(values.size()));
      std::this_thread::sleep_for(std::min(pause, left));
      pause = std::min<Duration>(2 * pause, kLongestPause);
    }
  }
  bool delete_key(std::string_view key, std::optional<Duration>) override {
    std::int32_t existed = 0;
    ask("delete_key", key, [&](const char* name, c10d_store_answer* answer) {
      return functions_.delete_key(functions_.user, name, &existed, answer);
    });
    return existed != 0;
  }

  std::size_t append(std::string_view, std::string_view, std::optional<Duration>) override {
    lacks("append");
  }
  void multi_set(std::span<const std::string>, std::span<const std::string>,
                 std::optional<Duration>) override {
    lacks("multi_set");
  }
  std::size_t num_keys(std::optional<Duration>) override { lacks("num_keys"); }
  void push(std::string_view, std::string_view, std::optional<Duration>) override { lacks("push"); }
  std::string pop(std::string_view, std::optional<Duration>) override { lacks("pop"); }
  void barrier(std::string_view, int, std::optional<Duration>) override { lacks("barrier"); }

  Duration timeout() const noexcept override { return Duration(timeout_.load()); }
  void set_timeout(Duration timeout) override { timeout_ = timeout.count(); }

 private:
  static constexpr Duration kLongest = std::chrono::hours(24 * 365);

  [[noreturn]] static void lacks(std::string_view call) {
    throw_failure({.code = Code::unsupported,
                   .message = fmt::format("a custom store has no {}", call),
                   .op = fmt::format("store {}", call)});
  }
  static void check_value(std::string_view key, std::string_view value) {
    if (value.size() > StoreLimits{}.value_bytes)
      throw_failure({.code = Code::store_limit,
                     .message = fmt::format("the value of {} has {} bytes, more than {} "
                                            "(StoreLimits::value_bytes)",
                                            key, value.size(), StoreLimits{}.value_bytes)});
  }
  [[noreturn]] void throw_timed_out(std::span<const std::string> keys) {
    constexpr std::size_t kShown = 8;
    std::string missing;
    std::size_t count = 0;
    for (const std::string& key : keys)
      if (!try_get(key, {}) && ++count <= kShown) missing += fmt::format(" {}", key);
    throw_failure(
        {.code = Code::timed_out,
         .message = fmt::format("missing keys:{}{}", missing, count > kShown ? " ..." : ""),
         .op = "store wait"});
  }

  // Calls one of the functions; the value that it gave, if any.
  template <class F>
  std::optional<std::string> ask(std::string_view call, std::string_view key, F function) {
    const std::string name(key);
    if (name.size() > StoreLimits{}.key_bytes || name.find('\0') != name.npos)
      throw_failure({.code = Code::store_limit,
                     .message = fmt::format("a key has {} bytes, or holds a zero: {} are allowed "
                                            "(StoreLimits::key_bytes), and no zero",
                                            name.size(), StoreLimits{}.key_bytes)});
    c10d_store_answer answer;
    const c10d_code code = function(name.c_str(), &answer);
    if (code == C10D_OK) {
      if (answer.text) check_value(key, *answer.text);
      return std::move(answer.text);
    }
    const bool known = code > C10D_OK && code <= C10D_TIMED_OUT;
    throw_failure({.code = known ? static_cast<Code>(code - 1) : Code::store_error,
                   .message = fmt::format("custom store, key {}: {}", key,
                                          answer.text.value_or("it gives no reason")),
                   .op = fmt::format("store {}", call)});
  }

  const c10d_custom_store_functions functions_;
  std::atomic<Duration::rep> timeout_{0};
};

}  // namespace

extern "C" {

C10D_C_API c10d_code c10d_custom_store(const c10d_custom_store_functions* functions,
                                       c10d_store** store) {
  return call([&] {
    c10d_store*& handle = handle_of(store, "store");
    required(functions, "functions");
    const auto given = taken(functions, "functions");
    const auto is_there = [](auto* function, const char* name) {
      if (function == nullptr) refuse_null(name);
    };
    is_there(given.set, "set");
    is_there(given.try_get, "try_get");
    is_there(given.add, "add");
    is_there(given.compare_set, "compare_set");
    is_there(given.delete_key, "delete_key");
    hand_out(handle, std::make_shared<CustomStore>(given));
  });
}

C10D_C_API c10d_code c10d_store_answer_give(c10d_store_answer* answer, const void* data,
                                            size_t size) {
  return call([&] { required(answer, "answer").text = data_of(data, size, "data"); });
}

}  // extern "C"

}}}  // namespace c10d::v0::c
