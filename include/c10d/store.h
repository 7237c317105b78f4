// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "c10d/export.h"

namespace c10d { inline namespace v0 {

using Duration = std::chrono::nanoseconds;
using Deadline = std::chrono::steady_clock::time_point;

inline constexpr Duration kDefaultStoreTimeout = std::chrono::seconds(300);

// The limits of every store; docs/limits.md has the reasons. Exceeding one is Code::store_limit.
struct StoreLimits {
  std::size_t key_bytes = 1024;
  std::size_t value_bytes = std::size_t{8} << 20;
  std::size_t total_bytes = std::size_t{256} << 20;  // keys and values together
  std::size_t keys = std::size_t{1} << 20;
  std::size_t clients = 4096;
  std::size_t output_queue_bytes = std::size_t{16} << 20;  // per client; a slower reader is dropped
};

// A small key-value service that brings ranks together. Values are bytes. Every call has a
// deadline: `timeout` from now, by default the store's own; with zero or less it does not wait for
// a key. Thread-safe: a blocked wait in one thread delays no other thread. Throws DistStoreError,
// DistTimeoutError (naming the keys still missing), DistNetworkError, InvalidArgument; what goes
// through a file or a server belongs to its process: DistBackendError (forked_child) in a child.
class C10D_API Store {
 public:
  virtual ~Store();

  // Writes or overwrites; returns once the store has it.
  virtual void set(std::string_view key, std::string_view value,
                   std::optional<Duration> timeout = {}) = 0;
  // Waits until the key exists, then returns its value.
  virtual std::string get(std::string_view key, std::optional<Duration> timeout = {}) = 0;
  // The value, or nothing when the key does not exist. Does not wait.
  virtual std::optional<std::string> try_get(std::string_view key,
                                             std::optional<Duration> timeout = {}) = 0;
  // Adds to the decimal number at `key` (absent = 0) and returns the sum. A value that is no
  // number, or a sum that overflows, is store_error and leaves the value as it was.
  virtual std::int64_t add(std::string_view key, std::int64_t amount,
                           std::optional<Duration> timeout = {}) = 0;
  // Sets `desired` if the value equals `expected` (nothing = the key must be absent). Returns the
  // value now stored (nothing = absent).
  virtual std::optional<std::string> compare_set(std::string_view key,
                                                 std::optional<std::string_view> expected,
                                                 std::string_view desired,
                                                 std::optional<Duration> timeout = {}) = 0;
  // Blocks until all keys exist.
  virtual void wait(std::span<const std::string> keys, std::optional<Duration> timeout = {}) = 0;
  // Whether all keys exist now.
  virtual bool check(std::span<const std::string> keys, std::optional<Duration> timeout = {}) = 0;
  // Appends to the value (absent = empty); returns the new length in bytes.
  virtual std::size_t append(std::string_view key, std::string_view value,
                             std::optional<Duration> timeout = {}) = 0;
  // As get on each key, atomically once all exist.
  virtual std::vector<std::string> multi_get(std::span<const std::string> keys,
                                             std::optional<Duration> timeout = {}) = 0;
  // As set on each pair, the last where a key comes twice; all or nothing. Throws InvalidArgument
  // unless there are as many values as keys.
  virtual void multi_set(std::span<const std::string> keys, std::span<const std::string> values,
                         std::optional<Duration> timeout = {}) = 0;
  // True when the key existed.
  virtual bool delete_key(std::string_view key, std::optional<Duration> timeout = {}) = 0;
  virtual std::size_t num_keys(std::optional<Duration> timeout = {}) = 0;
  // A FIFO queue per key, apart from plain values: pop waits for an element. A queue counts as a
  // key while it holds elements. Plain ops on a queue's key, and queue ops on a plain key, are
  // store_error.
  virtual void push(std::string_view key, std::string_view value,
                    std::optional<Duration> timeout = {}) = 0;
  virtual std::string pop(std::string_view key, std::optional<Duration> timeout = {}) = 0;
  // Returns when `size` callers have arrived at `key`; reusable, round after round. On timeout the
  // caller's arrival is withdrawn. Barriers are no keys. Throws InvalidArgument unless size > 0; a
  // size other than that of those who wait is store_error.
  virtual void barrier(std::string_view key, int size, std::optional<Duration> timeout = {}) = 0;

  virtual Duration timeout() const noexcept = 0;
  virtual void set_timeout(Duration timeout) = 0;
};

// In this process only: ranks as threads, and tests.
C10D_API std::shared_ptr<Store> make_hash_store(Duration timeout = kDefaultStoreTimeout,
                                                StoreLimits limits = {});

// Through one file that all ranks can open (a local or a coherent shared file system). The file is
// created if absent and removed when the last of `size` users is gone (size 0: never removed).
C10D_API std::shared_ptr<Store> make_file_store(std::string path, int size,
                                                Duration timeout = kDefaultStoreTimeout);

struct TcpStoreOptions {
  std::string host = "127.0.0.1";  // name or address; the server binds exactly this
  std::uint16_t port = 0;          // server: 0 picks a free port
  bool server = false;             // run the server in this process too
  int listen_fd = -1;              // server: a bound, listening socket to take over instead
  std::string job{};               // job id; a client of another job gets wrong_job
  // 32 secret bytes (16 to 1024) that both sides prove to know; empty only on loopback.
  std::string token{};
  bool allow_wildcard = false;  // permit 0.0.0.0 or [::], with a token only
  Duration timeout = kDefaultStoreTimeout;
  StoreLimits limits{};
  // What the server sets, where the key is absent, once this client is gone: it was destroyed, its
  // process ended without a word (known within about three seconds), or it was cut off for ten. A
  // connection that was reset on its way looks like an end, and the client notices only in its next
  // call: make one every second.
  std::vector<std::pair<std::string, std::string>> will{};
};
class C10D_API TcpStore : public Store {
 public:
  virtual std::uint16_t port() const noexcept = 0;
  virtual const std::string& host() const noexcept = 0;
};
C10D_API std::shared_ptr<TcpStore> make_tcp_store(const TcpStoreOptions& options);

// Every key with `prefix` and a slash before it. num_keys counts the whole underlying store.
C10D_API std::shared_ptr<Store> make_prefix_store(std::string prefix, std::shared_ptr<Store> store);

}}  // namespace c10d::v0
