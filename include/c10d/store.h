// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "c10d/call.h"
#include "c10d/export.h"

namespace c10d { inline namespace v0 {

// Timeout of a store that is made without one.
inline constexpr Duration kDefaultStoreTimeout = std::chrono::seconds(300);

// Limits of a store. A call that would exceed one throws DistStoreError (store_limit) and changes
// nothing. docs/limits.md has the reasons.
struct StoreLimits {
  std::size_t key_bytes = 1024;                            // of one key
  std::size_t value_bytes = std::size_t{8} << 20;          // of one value
  std::size_t total_bytes = std::size_t{256} << 20;        // of all keys and values together
  std::size_t keys = std::size_t{1} << 20;                 // number of keys
  std::size_t clients = 4096;                              // connected to one server
  std::size_t output_queue_bytes = std::size_t{16} << 20;  // per client; a slower reader is dropped
};

// A small key-value store that brings ranks together (torch.distributed.Store). Keys and values are
// bytes. Ranks that share a store see each other's keys.
//
// Every call has a deadline: `timeout` from now, by default timeout(). With zero or less a call
// does what it can without waiting for a key. Every member may be called from any thread: a call
// that waits delays no other thread.
//
// Errors of every call:
// - DistStoreError: store_lost (the server is gone), store_limit, store_error (see each call);
// - DistTimeoutError: the message names the keys that are missing;
// - DistNetworkError: the connection failed;
// - InvalidArgument: own arguments make no sense;
// - DistBackendError (forked_child): a file or TCP store belongs to the process that made it, and a
//   forked child cannot use it.
class C10D_API Store {
 public:
  virtual ~Store();

  // Sets the value of a key, whether or not it exists. Returns once the store has it.
  virtual void set(std::string_view key, std::string_view value,
                   std::optional<Duration> timeout = {}) = 0;
  // Waits until the key exists and returns its value.
  virtual std::string get(std::string_view key, std::optional<Duration> timeout = {}) = 0;
  // Returns the value, or nothing when the key does not exist. Does not wait for the key.
  virtual std::optional<std::string> try_get(std::string_view key,
                                             std::optional<Duration> timeout = {}) = 0;
  // Adds `amount` to the number at `key`, atomically, and returns the sum. A key that does not
  // exist counts as 0. The value is decimal text, as set() would write it. Throws store_error, and
  // changes nothing, when the value is no number or the sum overflows.
  virtual std::int64_t add(std::string_view key, std::int64_t amount,
                           std::optional<Duration> timeout = {}) = 0;
  // Sets the value to `desired` if it equals `expected`, atomically; nothing as `expected` means
  // that the key must not exist. Returns the value that is stored now, or nothing when the key does
  // not exist.
  virtual std::optional<std::string> compare_set(std::string_view key,
                                                 std::optional<std::string_view> expected,
                                                 std::string_view desired,
                                                 std::optional<Duration> timeout = {}) = 0;
  // Waits until all keys exist.
  virtual void wait(std::span<const std::string> keys, std::optional<Duration> timeout = {}) = 0;
  // Whether all keys exist now.
  virtual bool check(std::span<const std::string> keys, std::optional<Duration> timeout = {}) = 0;
  // Appends to the value, atomically, and returns its new length in bytes. A key that does not
  // exist counts as empty.
  virtual std::size_t append(std::string_view key, std::string_view value,
                             std::optional<Duration> timeout = {}) = 0;
  // Waits until all keys exist and returns their values, all read at the same moment.
  virtual std::vector<std::string> multi_get(std::span<const std::string> keys,
                                             std::optional<Duration> timeout = {}) = 0;
  // Sets all pairs at the same moment, or none when it throws. The last value counts for a key that
  // is given twice. Throws InvalidArgument unless there are as many values as keys.
  virtual void multi_set(std::span<const std::string> keys, std::span<const std::string> values,
                         std::optional<Duration> timeout = {}) = 0;
  // Removes a key. Returns whether it existed.
  virtual bool delete_key(std::string_view key, std::optional<Duration> timeout = {}) = 0;
  // Number of keys.
  virtual std::size_t num_keys(std::optional<Duration> timeout = {}) = 0;
  // Appends an element to the queue at `key`. A key holds a value or a queue: calls for one on the
  // other throw store_error. A queue counts as a key while it holds elements.
  virtual void push(std::string_view key, std::string_view value,
                    std::optional<Duration> timeout = {}) = 0;
  // Waits until the queue at `key` has an element, removes the oldest one and returns it.
  virtual std::string pop(std::string_view key, std::optional<Duration> timeout = {}) = 0;
  // Waits until `size` callers have arrived at the barrier `key`, which may be used again at once.
  // A caller that times out does not count as arrived. Barriers are no keys. Throws InvalidArgument
  // unless size > 0, and store_error when callers that wait gave another size.
  virtual void barrier(std::string_view key, int size, std::optional<Duration> timeout = {}) = 0;

  // wait() for a list: store.wait({"a", "b"}).
  void wait(std::initializer_list<std::string> keys, std::optional<Duration> timeout = {}) {
    wait(std::span(keys.begin(), keys.size()), timeout);
  }
  // check() of a list.
  bool check(std::initializer_list<std::string> keys, std::optional<Duration> timeout = {}) {
    return check(std::span(keys.begin(), keys.size()), timeout);
  }
  // multi_get() of a list.
  std::vector<std::string> multi_get(std::initializer_list<std::string> keys,
                                     std::optional<Duration> timeout = {}) {
    return multi_get(std::span(keys.begin(), keys.size()), timeout);
  }

  // Timeout of calls that give none.
  virtual Duration timeout() const noexcept = 0;
  // Sets the timeout of later calls.
  virtual void set_timeout(Duration timeout) = 0;
};

// A store in the memory of this process: for ranks that are threads, and for tests.
C10D_API std::shared_ptr<Store> make_hash_store(Duration timeout = kDefaultStoreTimeout,
                                                StoreLimits limits = {});

// A store in one file that all ranks can open, on a local or a coherent shared file system. The
// file is created if it does not exist. It is removed when the last of `size` users is gone; with
// size 0 it is never removed. Throws DistStoreError.
C10D_API std::shared_ptr<Store> make_file_store(std::string path, int size,
                                                Duration timeout = kDefaultStoreTimeout);

// Options of make_tcp_store().
struct TcpStoreOptions {
  std::string host = "127.0.0.1";  // name or address; the server binds exactly this
  std::uint16_t port = 0;          // of the server; 0: the server picks a free one
  bool server = false;             // run the server in this process, too
  int listen_fd = -1;              // server: use this bound, listening socket instead
  std::string job{};               // id of the job; a client of another job gets wrong_job
  // Secret that client and server prove to know: 16 to 1024 bytes, 32 are usual. It may be empty on
  // loopback only.
  std::string token{};
  bool allow_wildcard = false;              // let the server bind 0.0.0.0 or [::]; needs a token
  Duration timeout = kDefaultStoreTimeout;  // of connecting, and of calls that give none
  StoreLimits limits{};                     // of the server; clients take them over
  // Last will: the server sets these keys, if absent, when the client is destroyed, its process
  // ends (noticed within about 3 s) or it is unreachable for 10 s. A TCP reset looks like an end of
  // the process; call the store at least once a second so that the client can notice and reconnect.
  std::vector<std::pair<std::string, std::string>> last_will{};
};
// A client of a store that a server holds in its memory, and the server itself when
// TcpStoreOptions::server is set: then the store lives as long as this object. A connection that
// breaks is made again, for 1.5 seconds; then calls throw store_lost.
class C10D_API TcpStore : public Store {
 public:
  // Port of the server.
  virtual std::uint16_t port() const noexcept = 0;
  // Address of the server, as it was given.
  virtual const std::string& host() const noexcept = 0;
  // Whether a call has found that the server was shut down in good order, or that another one is
  // in its place. Calls throw store_lost from then on; a new client may find the next server.
  virtual bool was_shut_down() const noexcept = 0;
};
// Connects to a server, and starts it first when TcpStoreOptions::server is set. Waits for a server
// that does not listen yet, until the timeout. Throws InvalidArgument, DistNetworkError
// (unreachable, wrong_job, version_mismatch, not_authenticated, address_in_use), DistStoreError
// (store_limit: the server has too many clients).
C10D_API std::shared_ptr<TcpStore> make_tcp_store(const TcpStoreOptions& options);

// A view of another store: puts `prefix` and a slash before every key. num_keys() counts the keys
// of the whole store.
C10D_API std::shared_ptr<Store> make_prefix_store(std::string prefix, std::shared_ptr<Store> store);

}}  // namespace c10d::v0
