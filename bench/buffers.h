// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bench/arena.h"
#include "bench/oracle.h"
#include "bench/plan.h"
#include "c10d/collective.h"

namespace c10d::bench {

// The memory of one case on one rank, the same for every backend, and the ops that this rank calls
// on it.
class Buffers {
 public:
  Buffers(const Case& c, int rank, int size, int window, std::uint64_t seed, Arena& input,
          Arena& output);

  std::span<const Op> ops() const noexcept { return ops_; }
  // Whether the ops of one iteration are in flight together.
  bool together() const noexcept { return case_.op == BenchOp::isend; }
  const Case& of() const noexcept { return case_; }
  // What one op's time is of one iteration's.
  double share() const noexcept;

  // Outside the timed region: a copy of what the op must read, where it is in place; with `dirty`
  // also a write to every cache line of the input, as a computation before the op would leave it.
  void refresh(bool dirty) noexcept;
  // Overwrites the output, so that what is found there afterwards was written by the op.
  void poison_output();
  std::uint64_t wrong() const { return oracle_.wrong(output_, rank_); }
  std::uint64_t hash() const { return hash_bytes(output_.data, output_.bytes()); }
  // Whether every rank has the same output.
  bool same_everywhere() const noexcept;

 private:
  void lay_out_out_of_place();
  void lay_out_in_place();
  void make_ops();
  Tensor view(Arena& arena, std::uint64_t count) const;
  bool is_root() const noexcept { return rank_ == case_.root; }

  Case case_;
  int rank_;
  int size_;
  int window_;
  Oracle oracle_;
  Arena& input_arena_;
  Arena& output_arena_;
  Tensor pristine_;  // the input as the oracle made it
  Tensor input_;     // what the op reads: pristine_, or a part of the output when in place
  Tensor output_;
  std::vector<Op> ops_;
};

}  // namespace c10d::bench
