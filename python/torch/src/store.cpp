// SPDX-License-Identifier: BSD-3-Clause
#include "python/torch/src/store.h"

#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "python/torch/src/failures.h"

// PyTorch's compareSet() takes an empty value for none. So our values have a byte before them;
// numbers of add(), which have none, begin with a digit or a sign.
namespace c10d_torch {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Store = c10::intrusive_ptr<::c10d::Store>;
constexpr char kMark = '=';

::c10d::Store& store_of(void* user) { return **static_cast<Store*>(user); }

Bytes marked(const void* value, std::size_t size) {
  Bytes bytes(size + 1);
  bytes[0] = kMark;
  if (size != 0) std::memcpy(bytes.data() + 1, value, size);
  return bytes;
}

c10d_code give(c10d_store_answer* answer, const Bytes& bytes) {
  const std::size_t skipped = !bytes.empty() && bytes[0] == kMark ? 1 : 0;
  return c10d_store_answer_give(answer, bytes.data() + skipped, bytes.size() - skipped);
}

// Runs a call of PyTorch's store.
template <class F>
c10d_code answered(c10d_store_answer* answer, F call) noexcept {
  const auto fail = [&](const char* message) {
    c10d_store_answer_give(answer, message, std::strlen(message));
    return C10D_STORE_LOST;
  };
  try {
    return call();
  } catch (const c10::Error& error) {
    return fail(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return fail(error.what());
  } catch (...) {
    return fail("an exception of another language");
  }
}

c10d_code set(void* user, const char* key, const void* value, std::size_t size,
              c10d_store_answer* answer) {
  return answered(answer, [&]() -> c10d_code {
    store_of(user).set(key, marked(value, size));
    return C10D_OK;
  });
}

c10d_code try_get(void* user, const char* key, c10d_store_answer* answer) {
  return answered(answer, [&]() -> c10d_code {
    ::c10d::Store& store = store_of(user);
    if (!store.check({key})) return C10D_OK;
    return give(answer, store.get(key));
  });
}

c10d_code add(void* user, const char* key, std::int64_t amount, std::int64_t* sum,
              c10d_store_answer* answer) {
  return answered(answer, [&]() -> c10d_code {
    *sum = store_of(user).add(key, amount);
    return C10D_OK;
  });
}

c10d_code compare_set(void* user, const char* key, const void* expected, std::size_t expected_size,
                      const void* desired, std::size_t desired_size, c10d_store_answer* answer) {
  return answered(answer, [&]() -> c10d_code {
    ::c10d::Store& store = store_of(user);
    const Bytes known = expected == nullptr ? Bytes() : marked(expected, expected_size);
    const Bytes wanted = marked(desired, desired_size);
    const Bytes now = store.compareSet(key, known, wanted);
    // Where the key does not exist, PyTorch gives back what was expected.
    if (now == known && now != wanted && !store.check({key})) return C10D_OK;
    return give(answer, now);
  });
}

c10d_code delete_key(void* user, const char* key, std::int32_t* existed,
                     c10d_store_answer* answer) {
  return answered(answer, [&]() -> c10d_code {
    *existed = store_of(user).deleteKey(key) ? 1 : 0;
    return C10D_OK;
  });
}

void free_store(void* user) { delete static_cast<Store*>(user); }

}  // namespace

StorePtr store_over(c10::intrusive_ptr<::c10d::Store> store) {
  if (!store) throw Invalid("the store is None");
  c10d_custom_store_functions functions = C10D_CUSTOM_STORE_FUNCTIONS_INIT;
  auto user = std::make_unique<Store>(std::move(store));
  functions.user = user.get();
  functions.set = set;
  functions.try_get = try_get;
  functions.add = add;
  functions.compare_set = compare_set;
  functions.delete_key = delete_key;
  functions.free = free_store;
  functions.timeout_ns = std::chrono::nanoseconds((*user)->getTimeout()).count();
  c10d_store* made = nullptr;
  check(c10d_custom_store(&functions, &made));
  static_cast<void>(user.release());
  return {made, c10d_store_free};
}

StorePtr store_below(const std::string& prefix, const StorePtr& store) {
  c10d_store* made = nullptr;
  check(c10d_prefix_store(prefix.c_str(), store.get(), &made));
  return {made, c10d_store_free};
}

}  // namespace c10d_torch
