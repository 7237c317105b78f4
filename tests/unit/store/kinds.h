// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <utility>

#include "c10d/error.h"
#include "c10d/store.h"
#include "tests/temporary_directory.h"

namespace c10d::test {

inline const std::string kToken(32, 't');

// Users of one store: every call opens another one.
using OpenStore = std::function<std::shared_ptr<Store>()>;

struct StoreKind {
  const char* name;
  OpenStore (*make)();
  int rounds;  // how often a test that counts repeats; polling a file is slower
};

inline void PrintTo(const StoreKind& kind, std::ostream* out) { *out << kind.name; }

inline OpenStore hash_store() {
  return [store = make_hash_store(std::chrono::seconds(30))] { return store; };
}

// A place for a file store.
class TemporaryFile {
 public:
  std::string path() const { return folder_ / "store"; }

 private:
  TemporaryDirectory folder_;
};

// The lock that a user of a file store holds while it changes the file.
class HeldLock {
 public:
  explicit HeldLock(const std::string& path) : fd_(::open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    if (fd_ < 0 || ::flock(fd_, LOCK_EX) != 0) throw std::runtime_error("flock " + path);
  }
  ~HeldLock() { ::close(fd_); }
  HeldLock(const HeldLock&) = delete;
  HeldLock& operator=(const HeldLock&) = delete;

 private:
  int fd_;
};

inline OpenStore file_store() {
  return [file = std::make_shared<TemporaryFile>()] {
    return make_file_store(file->path(), 0, std::chrono::seconds(30));
  };
}

inline std::shared_ptr<TcpStore> tcp_server(StoreLimits limits = {}, std::string token = kToken) {
  return make_tcp_store({.server = true,
                         .job = "job",
                         .token = std::move(token),
                         .timeout = std::chrono::seconds(30),
                         .limits = limits});
}

inline TcpStoreOptions client_of(const TcpStore& server) {
  return {.host = server.host(),
          .port = server.port(),
          .job = "job",
          .token = kToken,
          .timeout = std::chrono::seconds(30)};
}

inline OpenStore tcp_store() {
  return [server = tcp_server()] { return make_tcp_store(client_of(*server)); };
}

inline OpenStore prefix_store() {
  return [server = tcp_server()] {
    return make_prefix_store("a/b", make_tcp_store(client_of(*server)));
  };
}

inline const StoreKind kKinds[] = {{"hash", hash_store, 1000},
                                   {"file", file_store, 50},
                                   {"tcp", tcp_store, 1000},
                                   {"prefix", prefix_store, 1000}};

// What `call` threw, as a Failure; fails the calling test by throwing when nothing came.
template <class Call>
Failure failure_of(Call&& call) {
  try {
    call();
  } catch (const DistError& error) {
    return error.failure();
  }
  throw std::runtime_error("no DistError was thrown");
}

}  // namespace c10d::test
