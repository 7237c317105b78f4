// SPDX-License-Identifier: BSD-3-Clause
// PyTorch's C++ interface beside ours, in one source and one process: a tensor as a buffer.
#include <torch/torch.h>

#include <cstdio>

#include "c10d/init.h"
#include "c10d/process_group.h"

int main() {
  const c10d::ProcessGroup group = c10d::init_process_group();
  torch::Tensor tensor = torch::full({3}, group.rank() + 1.0F);
  group.all_reduce(c10d::View(tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())));
  const auto n = static_cast<float>(group.size());
  if (!tensor.equal(torch::full({3}, n * (n + 1) / 2))) {
    std::fprintf(stderr, "all_reduce of a tensor of PyTorch is wrong\n");
    return 1;
  }
  return 0;
}
