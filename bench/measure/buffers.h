// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bench/measure/arena.h"
#include "bench/measure/oracle.h"
#include "bench/measure/subject.h"
#include "bench/model/cases.h"
#include "c10d/collective.h"

namespace c10d::bench {

// The memory of one case on one rank, the same for every backend, and the ops that this rank calls
// on it. A case has one set of buffers, or, where they rotate, as many as memory_of() has room for;
// a set has buffers for each of the ops that are in flight at once.
class Buffers {
 public:
  Buffers(const Case& c, int rank, int size, int window, std::uint64_t seed, Arena& input,
          Arena& output);

  // Of the set whose turn it is.
  std::span<const Op> ops() const noexcept { return ops_; }
  // The sets have their turns in an order of their own, the first one again after the last.
  std::uint64_t sets() const noexcept { return sets_; }
  void turn_to(std::uint64_t turn) { take(sets_ > 1 ? turn % sets_ * step_ % sets_ : 0); }
  Flight flight() const noexcept;
  const Case& of() const noexcept { return case_; }
  // Where they are; null: in memory of the host.
  const GpuSeat* seat() const noexcept { return output_arena_.seat(); }
  // What one op's time is of one iteration's.
  double share() const noexcept;

  // Outside the timed region, before each iteration. What the op must read is made whole where it
  // is in place; with `dirty` there is also a write to every cache line of the input, as a
  // computation before the op would leave it. Buffers that rotate get both after their turn, and
  // the turn passes on; those of a cold case are flushed.
  // On a GPU the turn passes on, and that is all.
  void refresh(bool dirty) noexcept;
  // Overwrites the output, so that what is found there afterwards was written by the op.
  void poison_output();
  std::uint64_t wrong() const;
  std::uint64_t hash() const;
  // Whether every rank has the same output.
  bool same_everywhere() const noexcept;
  // Whether what the last of several ops left is the result of one. Not on a GPU in place: there
  // the next op begins with it.
  bool keeps_inputs() const noexcept { return !(on_gpu() && in_place()); }

 private:
  struct Slot {
    View input;  // what the op reads: of its own, or a part of the output when in place
    View output;
  };
  Slot slot_at(std::uint64_t index) const;
  void lay_out_in_place(Slot& slot, std::uint64_t offset) const;
  void take(std::uint64_t set);
  void count_elements();
  void add_ops(const Slot& slot);
  void add_messages(const Slot& slot);
  void fill_inputs();
  void fill_inputs_on_gpu();
  void restore(const Slot& slot, bool dirty) const;
  // Copies all of `from`. What follows on the stream finds it there.
  void move(const View& to, const ConstView& from) const;
  // Room on the host for as many elements.
  View host_of(const View& view) const;
  // The same elements in memory of the host: the view itself, or a copy.
  View on_host(const View& view) const;
  bool on_gpu() const noexcept { return seat() != nullptr; }
  View view(const Arena& arena, std::uint64_t offset, std::uint64_t count) const;
  bool is_root() const noexcept { return rank_ == case_.root; }
  bool in_place() const noexcept { return case_.place == Place::in; }

  Case case_;
  int rank_;
  int size_;
  int window_;
  Oracle oracle_;
  Arena& input_arena_;
  Arena& output_arena_;
  Footprint stride_;
  std::uint64_t sets_;
  std::uint64_t step_ = 1;  // from set to set, so that no prefetcher follows
  std::uint64_t set_ = 0;
  std::uint64_t in_count_ = 0, out_count_ = 0;  // elements of one op
  std::vector<std::size_t> counts_;             // of the shards that this rank gives or takes
  View pristine_;                               // the input as the oracle made it
  mutable std::vector<std::byte> host_;         // on a GPU: room for one input or output
  std::vector<Slot> slots_;                     // of the set whose turn it is
  std::vector<Op> ops_;
};

// Whether cold cases can be measured on this CPU.
bool can_flush() noexcept;

}  // namespace c10d::bench
