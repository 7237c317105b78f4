// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "c10d/parallel/ddp.h"

// Hooks that send fewer bytes: for Reducer::set_hook(). They compress f32 buckets; those of another
// dtype go as they are. Every rank gets the same bits.
namespace c10d { inline namespace v0 { namespace parallel {

// Half the bytes. Divides by the samples before it rounds, so that f16 does not overflow sooner
// than the mean does.
C10D_API void reduce_as_bf16(ProcessGroup& group, const Bucket& bucket);
C10D_API void reduce_as_f16(ProcessGroup& group, const Bucket& bucket);

struct PowerSgdOptions {
  int rank = 2;            // of the approximation; more is closer and sends more
  std::uint64_t seed = 0;  // the same on every rank
};

// PowerSGD (Vogels et al., 2019): a gradient of shape [n, ...], read as a matrix of n rows and m
// columns, goes as two matrices of rank (n + m) elements; what that loses is added to the next
// gradient (error feedback) if it is finite. Gradients that would not shrink go as they are.
//
//   PowerSgd power({.rank = 4});          // one per reducer; must outlive it
//   reducer.set_hook(std::ref(power));
class C10D_API PowerSgd {
 public:
  // Throws InvalidArgument unless 0 < rank <= 64.
  explicit PowerSgd(PowerSgdOptions options = {});
  ~PowerSgd();
  PowerSgd(const PowerSgd&) = delete;
  PowerSgd& operator=(const PowerSgd&) = delete;

  void operator()(ProcessGroup& group, const Bucket& bucket);

  // What this rank has yet to send of a parameter, as a part of the mean; empty when it was never
  // compressed. Over all steps: sent + the errors of all ranks = the exact means, but for rounding.
  std::span<const float> error(std::size_t param) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}}}  // namespace c10d::v0::parallel
