// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "c10d/parallel/ddp.h"

// Communication hooks for Reducer::set_hook() that send fewer bytes. They compress f32 buckets;
// buckets of another dtype are reduced as they are. Every rank gets the same bits. They throw
// InvalidArgument for a bucket in memory of a GPU.
namespace c10d { inline namespace v0 { namespace parallel {

// Reduces a bucket as bf16: half the bytes. Throws what all_reduce() throws.
C10D_API void reduce_as_bf16(const ProcessGroup& group, const Bucket& bucket);
// Reduces a bucket as f16: half the bytes. It divides by the samples before it rounds, so that f16
// does not overflow sooner than the mean does. Throws what all_reduce() throws.
C10D_API void reduce_as_f16(const ProcessGroup& group, const Bucket& bucket);

// Options of PowerSgd.
struct PowerSgdOptions {
  int rank = 2;            // of the approximation; more is closer and sends more
  std::uint64_t seed = 0;  // the same on every rank
};

// PowerSGD (Vogels et al., 2019). A gradient of shape [n, ...] is read as a matrix of n rows and m
// columns and sent as two factors of rank (n + m) elements together. What that loses is added to
// the next gradient (error feedback) if it is finite. Gradients that would not shrink are reduced
// as they are. One object per reducer, which it must outlive:
//
//     PowerSgd power({.rank = 4});
//     reducer.set_hook(std::ref(power));
class C10D_API PowerSgd {
 public:
  // Throws InvalidArgument unless the rank is from 1 to 64.
  explicit PowerSgd(PowerSgdOptions options = {});
  ~PowerSgd();
  PowerSgd(const PowerSgd&) = delete;
  PowerSgd& operator=(const PowerSgd&) = delete;

  // The hook. Throws what all_reduce() throws.
  void operator()(const ProcessGroup& group, const Bucket& bucket);

  // What this rank has yet to send of a parameter, as a part of the mean. Empty when the parameter
  // was never compressed. Over all steps, what was sent and the errors of all ranks add up to the
  // exact means, except for rounding.
  std::span<const float> error(std::size_t param) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}}}  // namespace c10d::v0::parallel
