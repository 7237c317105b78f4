// SPDX-License-Identifier: BSD-3-Clause
// A plain loop around gloo::allreduce, in two processes of which it starts the second itself.
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/config.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <memory>
#include <string>

#include "bench/peers/plain_loop.h"

namespace {

constexpr int kRanks = 2;

using Function = void (*)(void*, const void*, const void*, std::size_t);

std::shared_ptr<gloo::Context> connect(int rank, const std::string& folder) {
  gloo::transport::tcp::attr attr;
  attr.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(attr);
  auto mesh = std::make_shared<gloo::rendezvous::Context>(rank, kRanks);
#ifdef GLOO_STORE_HAS_STORE_V2
  mesh->connectFullMesh(std::make_shared<gloo::rendezvous::FileStore>(folder), device);
#else
  gloo::rendezvous::FileStore store(folder);
  mesh->connectFullMesh(store, device);
#endif
  return mesh;
}

void run(int argc, char** argv, int rank, const std::string& folder) {
  const std::shared_ptr<gloo::Context> mesh = connect(rank, folder);
  std::uint32_t tag = 0;
  plain::loop_over_sizes(
      argc, argv, rank,
      [&](const float* input, float* output, std::size_t count) {
        gloo::AllreduceOptions options(mesh);
        options.setInput(const_cast<float*>(input), count);
        options.setOutput(output, count);
        options.setReduceFunction(static_cast<Function>(gloo::sum<float>));
        options.setTag(++tag);
        gloo::allreduce(options);
      },
      [&](double* values, std::size_t count) {
        gloo::AllreduceOptions options(mesh);
        options.setOutput(values, count);
        options.setReduceFunction(static_cast<Function>(gloo::max<double>));
        options.setTag(++tag);
        gloo::allreduce(options);
      },
      [&] {
        gloo::BarrierOptions options(mesh);
        options.setTag(++tag);
        gloo::barrier(options);
      });
}

int run_rank(int argc, char** argv, int rank, const std::string& folder) {
  try {
    run(argc, argv, rank, folder);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plain_gloo: %s\n", error.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  std::string folder = std::filesystem::temp_directory_path() / "plain_gloo-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    std::perror("plain_gloo: no folder for the two to meet in");
    return 1;
  }
  const pid_t parent = getpid();
  const pid_t other = fork();
  if (other == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(getppid() == parent ? run_rank(argc, argv, 1, folder) : 1);
  }
  const int code = other < 0 ? 1 : run_rank(argc, argv, 0, folder);
  if (code != 0 && other > 0) kill(other, SIGKILL);
  int status = 0;
  if (other > 0) waitpid(other, &status, 0);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return code != 0 ? code : status == 0 ? 0 : 1;
}
