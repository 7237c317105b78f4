// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>

#include "c10d/parallel/fsdp.h"

namespace tutorial {

// The weights of a sharded model for forward_backward() and evaluate(): weights[l] gathers layer l,
// and frees it when the code that uses it is done. torch does that in hooks of each layer.
class Gathered {
 public:
  explicit Gathered(c10d::parallel::Fsdp& fsdp) : fsdp_(fsdp) {}

  class Whole {
   public:
    Whole(c10d::parallel::Fsdp& fsdp, std::size_t layer)
        : fsdp_(fsdp), layer_(layer), view_(fsdp.unshard(layer)) {}
    Whole(const Whole&) = delete;
    Whole& operator=(const Whole&) = delete;
    ~Whole() { fsdp_.reshard(layer_); }
    operator std::span<const float>() const {
      return {static_cast<const float*>(view_.data), view_.count};
    }

   private:
    c10d::parallel::Fsdp& fsdp_;
    std::size_t layer_;
    c10d::View view_;
  };
  Whole operator[](std::size_t layer) const { return {fsdp_, layer}; }

 private:
  c10d::parallel::Fsdp& fsdp_;
};

}  // namespace tutorial
