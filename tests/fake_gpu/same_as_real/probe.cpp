// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fake_gpu/same_as_real/probe.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "src/device/shared_library.h"
#include "tests/fake_gpu/same_as_real/kernels.h"

namespace same_as_real {

void Reading::line(std::string_view kind, std::string_view key, std::string_view value) const {
  std::string text(kind);
  text += '\t';
  text += prefix_;
  text += key;
  text += '\t';
  for (const char c : value.substr(0, 400)) text += c == '\n' || c == '\t' ? ' ' : c;
  text += '\n';
  if (write(descriptor_, text.data(), text.size()) < 0) _exit(3);
}

void Reading::note(std::string_view key, double value) const {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", value);
  note(key, std::string_view(text));
}

std::vector<Behaviour>& behaviours() {
  static std::vector<Behaviour> all;
  return all;
}

Options& options() {
  static Options all;
  return all;
}

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}
void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

bool wait_for(const std::function<bool()>& answer, int ms) {
  const auto start = Clock::now();
  while (!answer()) {
    if (ms_since(start) > ms * options().patience) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

std::string in_child(const std::function<int()>& body, int ms) {
  const pid_t child = fork();
  if (child < 0) return "no fork";
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(body());
  }
  int status = 0;
  const bool ended = wait_for([&] { return waitpid(child, &status, WNOHANG) == child; }, ms);
  if (!ended) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return "hangs";
  }
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return std::to_string(WEXITSTATUS(status));
}

void must(int result, const char* what) {
  if (result == 0) return;
  std::fprintf(stderr, "%s gave %d\n", what, result);
  std::exit(4);
}

Gpu open_driver() {
  Gpu gpu;
  gpu.api = cu::open_api(options().cuda);
  if (!gpu.api) {
    std::fprintf(stderr, "%s\n", gpu.api.why.c_str());
    std::exit(5);
  }
  const c10d::SharedLibrary library = c10d::open_library(options().cuda);
#define C10D_RESOLVE(name, symbol, ...) \
  gpu.more.name = reinterpret_cast<cu::Result (*)(__VA_ARGS__)>(library.find(#symbol));
  C10D_MORE_FUNCTIONS(C10D_RESOLVE)
#undef C10D_RESOLVE
  return gpu;
}

Gpu open_gpu() {
  Gpu gpu = open_driver();
  MUST(gpu.api.init(0));
  MUST(gpu.api.device_get(&gpu.device, 0));
  MUST(gpu.api.primary_retain(&gpu.context, gpu.device));
  MUST(gpu.api.ctx_push(gpu.context));
  return gpu;
}

cu::Function Gpu::kernel(const char* name) {
  if (!module) MUST(api.module_load_data(&module, kKernels));
  cu::Function function = nullptr;
  MUST(api.module_get_function(&function, module, name));
  return function;
}
cu::Pointer Gpu::bytes(std::size_t count) {
  cu::Pointer pointer = 0;
  MUST(api.mem_alloc(&pointer, count));
  return pointer;
}
cu::Stream Gpu::stream(unsigned flags) {
  cu::Stream stream = nullptr;
  MUST(api.stream_create(&stream, flags, 0));
  return stream;
}
cu::Event Gpu::event(unsigned flags) {
  cu::Event event = nullptr;
  MUST(api.event_create(&event, flags));
  return event;
}
cu::Result Gpu::launch(cu::Function function, cu::Stream stream, std::vector<void*> parameters,
                       unsigned blocks, unsigned threads, unsigned shared) {
  return api.launch_kernel(function, blocks, 1, 1, threads, 1, 1, shared, stream, parameters.data(),
                           nullptr);
}

void Gate::close(Gpu& gpu, cu::Stream stream) {
  open_ = false;
  reached_ = false;
  MUST(gpu.api.launch_host_function(stream, hold, this));
}
void Gate::hold(void* gate) {
  auto& self = *static_cast<Gate*>(gate);
  self.reached_ = true;
  while (!self.open_) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

Spinner::Spinner(Gpu& gpu) : gpu_(gpu) {
  void* word = nullptr;
  MUST(gpu.api.mem_host_alloc(&word, 64, cu::kHostAllocDeviceMap));
  MUST(gpu.more.mem_host_get_device_pointer(&at_, word, 0));
  word_ = static_cast<unsigned*>(word);
  gpu.kernel("spin");
}
void Spinner::start(cu::Stream stream) {
  std::atomic_ref(*word_).store(0, std::memory_order_release);
  MUST(gpu_.launch(gpu_.kernel("spin"), stream, {&at_, &limit_ns_}));
}
void Spinner::stop() { std::atomic_ref(*word_).store(1, std::memory_order_release); }

std::string blocks_until(Gpu& gpu, const std::function<int()>& call,
                         const std::function<void()>& release, int ms) {
  std::atomic<bool> done{false};
  int result = -1;
  std::thread caller([&] {
    gpu.api.ctx_push(gpu.context);
    result = call();
    done = true;
    cu::Context popped = nullptr;
    gpu.api.ctx_pop(&popped);
  });
  const bool returned = wait_for([&] { return done.load(); }, ms);
  release();
  caller.join();
  return (returned ? "" : "blocks ") + std::to_string(result);
}

}  // namespace same_as_real
