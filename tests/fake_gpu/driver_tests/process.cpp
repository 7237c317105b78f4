// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fake_gpu/driver_tests/process.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tests/fake_gpu/same_as_real/kernels.h"

namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

Ended without_context(const std::string& script, const std::function<void(cu::Api&)>& body) {
  std::string folder = ::testing::TempDir() + "fake_gpu_XXXXXX";
  if (!mkdtemp(folder.data())) throw std::runtime_error("no folder for the reports");
  const std::string errors = folder + "/errors";
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("no process for the test");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(60);
    setenv("FAKE_GPU", script.c_str(), 1);
    setenv("FAKE_GPU_REPORTS", folder.c_str(), 1);
    if (!std::freopen(errors.c_str(), "w", stderr)) _exit(70);
    const char* const driver = std::getenv(kDriver);
    cu::Api api = cu::open_api(driver ? driver : FAKE_CUDA);
    EXPECT_TRUE(api) << api.why;
    if (api) body(api);
    std::fflush(nullptr);
    std::exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  Ended ended;
  waitpid(child, &ended.status, 0);
  ended.ok = ended.status == 0;
  if (WIFSIGNALED(ended.status)) ended.signal = WTERMSIG(ended.status);
  ended.report = text_of(folder + "/" + std::to_string(child) + ".json");
  ended.errors = text_of(errors);
  std::filesystem::remove_all(folder);
  return ended;
}

Ended with_script(const std::string& script, const std::function<void(Gpu&)>& body) {
  return without_context(script, [&](cu::Api& api) {
    Gpu gpu;
    gpu.api = api;
    ASSERT_EQ(api.init(0), 0);
    ASSERT_EQ(api.primary_retain(&gpu.context, 0), 0);
    ASSERT_EQ(api.ctx_push(gpu.context), 0);
    body(gpu);
    cu::Context popped = nullptr;
    if (api.ctx_get_current(&popped) == 0 && popped) {
      EXPECT_EQ(api.ctx_pop(&popped), 0);
    }
    EXPECT_EQ(api.primary_release(0), 0);
  });
}

::testing::AssertionResult Ended::clean() const {
  if (ok && has("\"end\":\"exit\",\"violations\":[],\"left\":{}"))
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "status " << status << ", " << report << errors;
}

::testing::AssertionResult Ended::only(const std::string& kind) const {
  std::size_t kinds = 0;
  for (std::size_t at = report.find("\"kind\""); at != std::string::npos;
       at = report.find("\"kind\"", at + 1)) {
    ++kinds;
  }
  if (ok && kinds == 1 && has("\"end\":\"exit\"") && has("\"kind\":\"" + kind + "\""))
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "status " << status << ", " << report << errors;
}

cu::Pointer Gpu::bytes(std::size_t count) {
  cu::Pointer pointer = 0;
  EXPECT_EQ(api.mem_alloc(&pointer, count), 0);
  return pointer;
}
cu::Stream Gpu::stream(unsigned flags) {
  cu::Stream made = nullptr;
  EXPECT_EQ(api.stream_create(&made, flags, 0), 0);
  return made;
}
cu::Event Gpu::event(unsigned flags) {
  cu::Event made = nullptr;
  EXPECT_EQ(api.event_create(&made, flags), 0);
  return made;
}
cu::Module Gpu::module() {
  if (!module_) {
    EXPECT_EQ(api.module_load_data(&module_, same_as_real::kKernels), 0);
  }
  return module_;
}
cu::Function Gpu::kernel(const char* name) {
  cu::Function function = nullptr;
  EXPECT_EQ(api.module_get_function(&function, module(), name), 0) << name;
  return function;
}
cu::Result Gpu::launch(cu::Function function, cu::Stream stream, std::vector<void*> parameters) {
  return api.launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters.data(), nullptr);
}
std::string Gpu::read(cu::Pointer from, std::size_t count, cu::Stream stream) {
  std::string text(count, '?');
  EXPECT_EQ(api.memcpy_d2h_async(text.data(), from, count, stream), 0);
  EXPECT_EQ(api.stream_synchronize(stream), 0);
  return text;
}

std::string report_of_this_process() {
  const char* const folder = std::getenv("FAKE_GPU_REPORTS");
  return folder ? text_of(folder + ("/" + std::to_string(getpid())) + ".json") : "";
}

bool soon(const std::function<bool()>& answer, int ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  while (!answer()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}
