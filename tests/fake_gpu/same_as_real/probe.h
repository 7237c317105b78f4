// SPDX-License-Identifier: BSD-3-Clause
// What a behaviour is written with. Each is read in a process of its own, which may crash or hang:
// what was read until then counts.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "src/backends/nccl/nccl.h"
#include "src/device/driver.h"
#include "tests/fake_gpu/same_as_real/more_functions.h"

namespace same_as_real {

namespace cu = c10d::driver;
namespace nccl = c10d::nccl;

// The answers of one behaviour. Written at once, one line each.
class Reading {
 public:
  explicit Reading(int descriptor, std::string prefix = {})
      : descriptor_(descriptor), prefix_(std::move(prefix)) {}

  // What is the same on each machine that the library calls the same, and is compared.
  void fact(std::string_view key, std::string_view value) const { line("fact", key, value); }
  void fact(std::string_view key, const char* value) const { line("fact", key, value); }
  void fact(std::string_view key, bool value) const { line("fact", key, value ? "yes" : "no"); }
  template <class T>
  requires(std::is_integral_v<T> || std::is_enum_v<T>) void fact(std::string_view key,
                                                                 T value) const {
    line("fact", key, std::to_string(static_cast<long long>(value)));
  }
  // What is only kept: times, addresses, names.
  void note(std::string_view key, std::string_view value) const { line("note", key, value); }
  void note(std::string_view key, double value) const;

  Reading of_rank(int rank) const { return Reading(descriptor_, "r" + std::to_string(rank) + "."); }
  int descriptor() const { return descriptor_; }

 private:
  void line(std::string_view kind, std::string_view key, std::string_view value) const;

  int descriptor_;
  std::string prefix_;
};

enum class Needs { nothing, gpu, nccl };

struct Behaviour {
  const char* name;
  Needs needs;
  int seconds;  // until it is ended, times the patience
  void (*read)(const Reading&);
};
std::vector<Behaviour>& behaviours();
struct Register {
  explicit Register(Behaviour behaviour) { behaviours().push_back(behaviour); }
};
#define BEHAVIOUR(identifier, name, needs, seconds)               \
  void identifier(const ::same_as_real::Reading& r);              \
  const ::same_as_real::Register identifier##_registered{         \
      {name, ::same_as_real::Needs::needs, seconds, identifier}}; \
  void identifier(const ::same_as_real::Reading& r)

struct Options {
  std::string cuda = cu::kLibrary;
  std::string nccl = c10d::nccl::kLibrary;
  int patience = 1;  // waits are so many times as long
};
Options& options();

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start);
void sleep_ms(int ms);
// Asks until the answer is yes, for at most `ms` times the patience; whether it was.
bool wait_for(const std::function<bool()>& answer, int ms);
// Runs `body` in a forked process. "0" is its exit status; "signal 11"; "hangs" after `ms`.
std::string in_child(const std::function<int()>& body, int ms = 8000);

// The driver, opened and initialised, with the primary context of device 0 current.
struct Gpu {
  cu::Api api;
  More more;
  cu::Device device = 0;
  cu::Context context = nullptr;
  cu::Module module = nullptr;  // the kernels of kernels.h

  cu::Function kernel(const char* name);
  cu::Pointer bytes(std::size_t count);
  cu::Stream stream(unsigned flags = cu::kStreamNonBlocking);
  cu::Event event(unsigned flags = cu::kEventDisableTiming);
  // An empty kernel, or one with the given parameters.
  cu::Result launch(cu::Function function, cu::Stream stream, std::vector<void*> parameters = {},
                    unsigned blocks = 1, unsigned threads = 1, unsigned shared = 0);
};
Gpu open_driver();  // no cuInit
Gpu open_gpu();
// Ends the behaviour if `result` is no success: what follows would mean nothing.
void must(int result, const char* what);
#define MUST(call) ::same_as_real::must(static_cast<int>(call), #call)

// A host function that holds its stream until it is opened.
class Gate {
 public:
  void close(Gpu& gpu, cu::Stream stream);
  void open() { open_ = true; }
  bool is_reached() const { return reached_; }

 private:
  static void hold(void* gate);
  std::atomic<bool> open_{false}, reached_{false};
};

// A kernel that runs until it is stopped, or for four seconds.
class Spinner {
 public:
  explicit Spinner(Gpu& gpu);
  void start(cu::Stream stream);
  void stop();

 private:
  Gpu& gpu_;
  unsigned* word_ = nullptr;
  unsigned long long at_ = 0, limit_ns_ = 4'000'000'000;
};

// Runs `call` on another thread that has the context. "0" if it returned `0` within `ms`; "blocks
// 0" if it did so after `release`.
std::string blocks_until(Gpu& gpu, const std::function<int()>& call,
                         const std::function<void()>& release, int ms = 250);

}  // namespace same_as_real
