// SPDX-License-Identifier: BSD-3-Clause
// Ranks on the stand-in, each with a device of its own: threads of one process, or processes.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "src/backends/nccl/nccl.h"
#include "src/device/driver.h"

namespace cu = c10d::driver;
namespace nccl = c10d::nccl;

enum class As { threads, processes };

// What the ranks share.
struct Shared {
  std::atomic<int> arrived[32], has_id[8], pid[8];
  nccl::UniqueId id[8];
};

struct Me {
  int rank = 0, size = 1;
  Shared* shared = nullptr;
  cu::Api gpu;
  nccl::Api api;
  cu::Context context = nullptr;
  cu::Stream stream = nullptr;
  nccl::Comm comm = nullptr;
  std::vector<cu::Pointer> memory;
  int phase = 0;

  nccl::Config config(int blocking) const;
  // A communicator of `count` ranks. The state in which it ends, or is after `ms`.
  int make(int blocking, int id = 0, int count = -1, int as = -1, int ms = 20'000);
  int settle(nccl::Comm of, int ms = 20'000);
  int settle() { return settle(comm); }
  // The code of the stream; 600 if it is not done in time.
  int stream_end(int ms = 20'000);
  void meet();
  cu::Pointer bytes(std::size_t count);
  template <class T>
  cu::Pointer put(const std::vector<T>& values) {
    const cu::Pointer at = bytes(values.size() * sizeof(T) + 16);
    EXPECT_EQ(gpu.memcpy_h2d_async(at, values.data(), values.size() * sizeof(T), stream), 0);
    EXPECT_EQ(gpu.stream_synchronize(stream), 0);
    return at;
  }
  template <class T>
  std::vector<T> get(cu::Pointer at, std::size_t count) {
    std::vector<T> values(count);
    EXPECT_EQ(gpu.memcpy_d2h_async(values.data(), at, count * sizeof(T), stream), 0);
    EXPECT_EQ(gpu.stream_synchronize(stream), 0);
    return values;
  }
  // A sum of one float of each rank: the code of the call.
  int sum(nccl::Comm of, cu::Pointer at, cu::Stream on = nullptr) const;
  int sum(cu::Pointer at) const { return sum(comm, at); }
};

inline const void* in(cu::Pointer at) { return reinterpret_cast<const void*>(at); }
inline void* out(cu::Pointer at) { return reinterpret_cast<void*>(at); }

// A process that has ended.
struct Ended {
  int status = 0;
  std::string report, errors;

  bool is_clean() const;
  bool has(const std::string& text) const { return report.find(text) != std::string::npos; }
  // Of this kind and of no other.
  bool has_only(const std::string& kind) const;
};
std::ostream& operator<<(std::ostream& to, const Ended& ended);

constexpr auto F = nccl::kFloat32;

struct World {
  std::string version = "2.28.9", script;
  int size = 2;
  As as = As::processes;
  bool gives_back = true;  // stream, memory and context at the end
  std::map<std::string, std::string> environment;
};
// Threads: one; processes: one for each rank.
std::vector<Ended> run(const World& world, const std::function<void(Me&)>& body);
// All of them end well and without a violation.
void run_clean(const World& world, const std::function<void(Me&)>& body);
// Some end with a violation of that kind, and none with another.
void run_into(const World& world, const std::string& kind, const std::function<void(Me&)>& body);

bool soon(const std::function<bool()>& answer, int ms = 10'000);
inline double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}
