// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>

#include "c10d/cuda.h"
#include "src/device/gpu.h"

namespace c10d::nccl_test {

// What is captured on a stream, to be replayed.
class Graph {
 public:
  Graph(CudaStream stream, const std::function<void()>& ops,
        driver::CaptureMode mode = driver::kCaptureThreadLocal) {
    const driver::Api& api = driver_api();
    check_driver(api.stream_begin_capture(stream, mode), "begin");
    try {
      ops();
    } catch (...) {
      api.stream_end_capture(stream, &graph_);
      destroy();
      throw;
    }
    check_driver(api.stream_end_capture(stream, &graph_), "end");
    check_driver(api.graph_instantiate(&exec_, graph_, 0), "instantiate");
  }
  ~Graph() { destroy(); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch(CudaStream stream) const {
    check_driver(driver_api().graph_launch(exec_, stream), "launch");
  }

 private:
  void destroy() const {
    if (exec_) check_driver(driver_api().graph_exec_destroy(exec_), "the end of a graph");
    if (graph_) check_driver(driver_api().graph_destroy(graph_), "the end of a graph");
  }

  driver::Graph graph_ = nullptr;
  driver::GraphExec exec_ = nullptr;
};

}  // namespace c10d::nccl_test
