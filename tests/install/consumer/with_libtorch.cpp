// SPDX-License-Identifier: BSD-3-Clause
// What a user of LibTorch writes: a tensor as a buffer.
#include <ATen/ATen.h>

#include <cstdio>

#include "c10d/init.h"
#include "c10d/torch/tensor.h"

int main() {
  const auto group = c10d::init_process_group({.backend = "native"});
  const at::Tensor tensor = at::full({3}, 2.5);
  group.all_reduce(c10d::as_tensor(tensor));
  const bool ok = tensor.equal(at::full({3}, 2.5));
  std::printf("LibTorch: %s\n", ok ? "ok" : "wrong");
  return ok ? 0 : 1;
}
