// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/store.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/c/arguments.h"
#include "src/c/failures.h"
#include "src/c/handles.h"

namespace c10d { inline namespace v0 { namespace c {
namespace {

Store& store_of(const c10d_store* handle) { return *required(handle, "store").store; }

std::vector<std::string> keys_of(const char* const* keys, std::size_t count) {
  std::vector<std::string> all;
  for (const char* key : array_of(keys, count, "keys")) all.emplace_back(text_of(key, "a key"));
  return all;
}

Duration timeout_of_store(std::int64_t argument_ns) {
  return timeout_of(argument_ns).value_or(kDefaultStoreTimeout);
}

// Makes a store and hands it out.
template <class F>
c10d_code make(c10d_store** store, F make_store) noexcept {
  return call([&] {
    c10d_store*& handle = handle_of(store, "store");
    hand_out(handle, make_store());
  });
}

}  // namespace

extern "C" {

C10D_C_API c10d_code c10d_hash_store(int64_t timeout_ns, c10d_store** store) {
  return make(store, [&] { return make_hash_store(timeout_of_store(timeout_ns)); });
}

C10D_C_API c10d_code c10d_file_store(const char* path, int32_t size, int64_t timeout_ns,
                                     c10d_store** store) {
  return make(store, [&] {
    return make_file_store(std::string(text_of(path, "path")), size, timeout_of_store(timeout_ns));
  });
}

C10D_C_API c10d_code c10d_prefix_store(const char* prefix, const c10d_store* store,
                                       c10d_store** prefixed) {
  return make(prefixed, [&] {
    return make_prefix_store(std::string(text_of(prefix, "prefix")),
                             required(store, "store").store);
  });
}

C10D_C_API c10d_code c10d_tcp_store(const c10d_tcp_store_options* options, c10d_store** store) {
  return make(store, [&] {
    const auto given = taken(options, "options");
    TcpStoreOptions wanted;
    wanted.host = text_or(given.host, wanted.host);
    wanted.port = given.port;
    wanted.server = given.server != 0;
    if (given.listen_fd != 0) wanted.listen_fd = given.listen_fd;
    wanted.job = text_or(given.job, "");
    wanted.token = data_of(given.token, given.token_bytes, "token");
    wanted.timeout = timeout_of_field(given.timeout_ns).value_or(wanted.timeout);
    return make_tcp_store(wanted);
  });
}

C10D_C_API uint16_t c10d_store_port(const c10d_store* store) {
  if (store == nullptr) return 0;
  const auto* const tcp = dynamic_cast<const TcpStore*>(store->store.get());
  return tcp == nullptr ? 0 : tcp->port();
}

C10D_C_API void c10d_store_free(c10d_store* store) { delete store; }

C10D_C_API c10d_code c10d_store_set(const c10d_store* store, const char* key, const void* value,
                                    size_t size, int64_t timeout_ns) {
  return call([&] {
    store_of(store).set(text_of(key, "key"), data_of(value, size, "value"), timeout_of(timeout_ns));
  });
}

C10D_C_API c10d_code c10d_store_get(const c10d_store* store, const char* key, int64_t timeout_ns,
                                    c10d_bytes* value) {
  return call([&] {
    c10d_bytes& got = bytes_of(value, "value");
    give(got, store_of(store).get(text_of(key, "key"), timeout_of(timeout_ns)));
  });
}

C10D_C_API c10d_code c10d_store_try_get(const c10d_store* store, const char* key,
                                        int64_t timeout_ns, c10d_bytes* value) {
  return call([&] {
    c10d_bytes& got = bytes_of(value, "value");
    give(got, store_of(store).try_get(text_of(key, "key"), timeout_of(timeout_ns)));
  });
}

C10D_C_API c10d_code c10d_store_add(const c10d_store* store, const char* key, int64_t amount,
                                    int64_t timeout_ns, int64_t* sum) {
  return call([&] {
    int64_t& result = required(sum, "sum");
    result = store_of(store).add(text_of(key, "key"), amount, timeout_of(timeout_ns));
  });
}

C10D_C_API c10d_code c10d_store_compare_set(const c10d_store* store, const char* key,
                                            const void* expected, size_t expected_size,
                                            const void* desired, size_t desired_size,
                                            int64_t timeout_ns, c10d_bytes* value) {
  return call([&] {
    c10d_bytes& got = bytes_of(value, "value");
    const std::string_view known = data_of(expected, expected_size, "expected");
    give(got, store_of(store).compare_set(
                  text_of(key, "key"), expected == nullptr ? std::nullopt : std::optional(known),
                  data_of(desired, desired_size, "desired"), timeout_of(timeout_ns)));
  });
}

C10D_C_API c10d_code c10d_store_append(const c10d_store* store, const char* key, const void* value,
                                       size_t size, int64_t timeout_ns, size_t* length) {
  return call([&] {
    const std::size_t result = store_of(store).append(
        text_of(key, "key"), data_of(value, size, "value"), timeout_of(timeout_ns));
    if (length != nullptr) *length = result;
  });
}

C10D_C_API c10d_code c10d_store_wait(const c10d_store* store, const char* const* keys, size_t count,
                                     int64_t timeout_ns) {
  return call([&] { store_of(store).wait(keys_of(keys, count), timeout_of(timeout_ns)); });
}

C10D_C_API c10d_code c10d_store_check(const c10d_store* store, const char* const* keys,
                                      size_t count, int64_t timeout_ns, int32_t* exist) {
  return call([&] {
    int32_t& result = required(exist, "exist");
    result = store_of(store).check(keys_of(keys, count), timeout_of(timeout_ns));
  });
}

C10D_C_API c10d_code c10d_store_multi_get(const c10d_store* store, const char* const* keys,
                                          size_t count, int64_t timeout_ns, c10d_bytes* values) {
  const c10d_code code = call([&] {
    const auto to = array_of(values, count, "values");
    std::fill(to.begin(), to.end(), c10d_bytes{nullptr, 0});
    const auto all = store_of(store).multi_get(keys_of(keys, count), timeout_of(timeout_ns));
    for (std::size_t i = 0; i < count; ++i) give(to[i], all[i]);
  });
  for (std::size_t i = 0; code != C10D_OK && values != nullptr && i < count; ++i)
    c10d_bytes_free(&values[i]);
  return code;
}

C10D_C_API c10d_code c10d_store_multi_set(const c10d_store* store, const char* const* keys,
                                          const void* const* values, const size_t* sizes,
                                          size_t count, int64_t timeout_ns) {
  return call([&] {
    const auto from = array_of(values, count, "values");
    const auto lengths = array_of(sizes, count, "sizes");
    std::vector<std::string> all;
    for (std::size_t i = 0; i < count; ++i)
      all.emplace_back(data_of(from[i], lengths[i], "a value"));
    store_of(store).multi_set(keys_of(keys, count), all, timeout_of(timeout_ns));
  });
}

C10D_C_API c10d_code c10d_store_delete_key(const c10d_store* store, const char* key,
                                           int64_t timeout_ns, int32_t* existed) {
  return call([&] {
    const bool result = store_of(store).delete_key(text_of(key, "key"), timeout_of(timeout_ns));
    if (existed != nullptr) *existed = result;
  });
}

C10D_C_API c10d_code c10d_store_num_keys(const c10d_store* store, int64_t timeout_ns,
                                         size_t* count) {
  return call([&] {
    size_t& result = required(count, "count");
    result = store_of(store).num_keys(timeout_of(timeout_ns));
  });
}

C10D_C_API c10d_code c10d_store_push(const c10d_store* store, const char* key, const void* value,
                                     size_t size, int64_t timeout_ns) {
  return call([&] {
    store_of(store).push(text_of(key, "key"), data_of(value, size, "value"),
                         timeout_of(timeout_ns));
  });
}

C10D_C_API c10d_code c10d_store_pop(const c10d_store* store, const char* key, int64_t timeout_ns,
                                    c10d_bytes* value) {
  return call([&] {
    c10d_bytes& got = bytes_of(value, "value");
    give(got, store_of(store).pop(text_of(key, "key"), timeout_of(timeout_ns)));
  });
}

C10D_C_API c10d_code c10d_store_barrier(const c10d_store* store, const char* key, int32_t size,
                                        int64_t timeout_ns) {
  return call([&] { store_of(store).barrier(text_of(key, "key"), size, timeout_of(timeout_ns)); });
}

}  // extern "C"

}}}  // namespace c10d::v0::c
