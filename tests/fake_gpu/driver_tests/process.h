// SPDX-License-Identifier: BSD-3-Clause
// A process with the stand-in, its script and its report.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "src/device/driver.h"

namespace cu = c10d::driver;

// The variable that names a driver to test instead of the stand-in.
constexpr const char* kDriver = "FAKE_GPU_DRIVER";

// The driver with the context of device 0 current, opened anew in a child process.
struct Gpu {
  cu::Api api;
  cu::Context context = nullptr;

  cu::Pointer bytes(std::size_t count);
  cu::Stream stream(unsigned flags = cu::kStreamNonBlocking);
  cu::Event event(unsigned flags = cu::kEventDisableTiming);
  cu::Module module();  // kernels: empty, spin, poke, add_one, stop, use_shared
  cu::Function kernel(const char* name);
  cu::Result launch(cu::Function function, cu::Stream stream, std::vector<void*> parameters = {});
  // The bytes of the GPU, after all that is on the stream.
  std::string read(cu::Pointer from, std::size_t count, cu::Stream stream);
  void give_back(cu::Stream stream) { EXPECT_EQ(api.stream_destroy(stream), 0); }
  void give_back(cu::Event event) { EXPECT_EQ(api.event_destroy(event), 0); }
  void give_back(cu::Pointer memory) { EXPECT_EQ(api.mem_free(memory), 0); }

 private:
  cu::Module module_ = nullptr;
};

struct Ended {
  bool ok = false;  // exit status 0: no expectation failed
  int signal = 0, status = 0;
  std::string report;  // empty if there is none
  std::string errors;  // what it wrote to stderr

  bool has(const std::string& text) const { return report.find(text) != std::string::npos; }
  // Of a violation of that kind, and nothing else.
  ::testing::AssertionResult only(const std::string& kind) const;
  ::testing::AssertionResult clean() const;
};

// Runs the body in a process with that script. It exits as programs do, or by _exit.
Ended with_script(const std::string& script, const std::function<void(Gpu&)>& body);
Ended without_context(const std::string& script, const std::function<void(cu::Api&)>& body);
inline Ended with_gpu(const std::function<void(Gpu&)>& body) { return with_script("", body); }

// What the judge has written of the calling process.
std::string report_of_this_process();

// Whether the answer is yes within that time. Longer than a busy machine takes, shorter than a
// process may last.
bool soon(const std::function<bool()>& answer, int ms = 20'000);
double seconds_of(const std::function<void()>& body);

// A host function that holds its stream until it is opened.
class Gate {
 public:
  Gate(Gpu& gpu, cu::Stream stream) {
    EXPECT_EQ(gpu.api.launch_host_function(stream, hold, this), 0);
  }
  void open() { open_ = true; }
  bool is_reached() const { return reached_; }

 private:
  static void hold(void* gate) {
    static_cast<Gate*>(gate)->reached_ = true;
    while (!static_cast<Gate*>(gate)->open_)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  std::atomic<bool> open_{false}, reached_{false};
};
