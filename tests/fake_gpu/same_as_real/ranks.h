// SPDX-License-Identifier: BSD-3-Clause
// Behaviours of NCCL: one rank, or several processes on one GPU, which NCCL takes for hosts.
#pragma once

#include <map>

#include "tests/fake_gpu/same_as_real/probe.h"

namespace same_as_real {

// What the ranks of a behaviour share.
struct World {
  nccl::UniqueId id[8];
  std::atomic<int> arrived[64];
  std::atomic<int> pids[8];
  std::atomic<int> word[8];
};

// One rank: a GPU, NCCL, a stream, some memory.
struct Rank {
  Reading r;
  int rank, size;
  World* world;
  Gpu gpu;
  nccl::Api api;
  nccl::Comm comm = nullptr;
  cu::Stream stream = nullptr;
  int phase = 0;
  int blocking = 0;

  // All ranks come here.
  void meet(int ms = 30'000);
  // A nonblocking communicator of `count` ranks, from id number `id`. The state it ends in.
  int make(int id = 0, int count = -1, int as = -1, int ms = 30'000);
  // Asks until it is no longer in progress.
  int settle(nccl::Comm of, int ms = 20'000, int* polls = nullptr);
  int settle() { return settle(comm); }
  // The same without a pause between the questions.
  int settle_at_once();
  // Settles, then waits for the stream: its code, or "hangs", or "in progress".
  std::string finish(int ms = 10'000);
  // The stream alone.
  std::string stream_end(int ms = 10'000);
  int abort();
  template <class T>
  cu::Pointer put(const std::vector<T>& values) {
    const cu::Pointer at = gpu.bytes(values.size() * sizeof(T) + 256);
    MUST(gpu.more.memcpy_h2d(at, values.data(), values.size() * sizeof(T)));
    return at;
  }
  template <class T>
  std::vector<T> get(cu::Pointer at, std::size_t count) {
    std::vector<T> values(count);
    MUST(gpu.more.memcpy_d2h(values.data(), at, count * sizeof(T)));
    return values;
  }
};

inline const void* in(cu::Pointer at) { return reinterpret_cast<const void*>(at); }
inline void* out(cu::Pointer at) { return reinterpret_cast<void*>(at); }

using Environment = std::map<std::string, std::string>;
// Runs `body` in `size` processes. With hosts: each says it is a host of its own.
void run_ranks(const Reading& r, int size, void (*body)(Rank&), bool hosts = true,
               const Environment& environment = {}, int blocking = 0);

nccl::Api open_nccl();
nccl::Config config_of(const nccl::Api& api, int blocking);
std::string text_of(const std::vector<double>& values);
// Without addresses and numbers that differ each time.
std::string text(const char* value);

#define ONE_RANK(identifier, name, seconds)                                          \
  void identifier##_body(Rank& me);                                                  \
  BEHAVIOUR(identifier, name, nccl, seconds) { run_ranks(r, 1, identifier##_body); } \
  void identifier##_body(Rank& me)

#define RANKS(identifier, name, size, seconds)                                          \
  void identifier##_body(Rank& me);                                                     \
  BEHAVIOUR(identifier, name, nccl, seconds) { run_ranks(r, size, identifier##_body); } \
  void identifier##_body(Rank& me)

}  // namespace same_as_real
