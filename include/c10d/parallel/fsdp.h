// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/export.h"
#include "c10d/parallel/checkpoint.h"
#include "c10d/parallel/ddp.h"
#include "c10d/parallel/reproducible.h"
#include "c10d/parallel/units.h"
#include "c10d/process_group.h"

// Sharded training: ZeRO-1, 2 and 3 as one engine.
namespace c10d { inline namespace v0 { namespace parallel {

enum class Kept : std::uint8_t { replicated, sharded };

// What of each unit every rank keeps between its uses. Parameters can be sharded only if gradients
// are, and gradients only if the optimizer is.
struct Keep {
  Kept parameters = Kept::sharded, gradients = Kept::sharded, optimizer = Kept::sharded;
};
inline constexpr Keep kZero1{Kept::replicated, Kept::replicated, Kept::sharded};
inline constexpr Keep kZero2{Kept::replicated, Kept::sharded, Kept::sharded};
inline constexpr Keep kZero3{};
inline constexpr Keep kReplicated{Kept::replicated, Kept::replicated, Kept::replicated};

struct FsdpOptions {
  Keep keep = kZero3;
  ReduceMode mode = ReduceMode::fast;
  int shards = 16;             // of the global batch; reproducible only
  DType compute = DType::f32;  // or bf16: what is gathered and computed with; masters stay f32
  DType reduce = DType::f32;   // or bf16, mode fast only: gradients on their way; each is rounded
                               // when it leaves its rank and at most once per rank that adds it
  std::size_t prefetch_bytes = 0;  // of units gathered ahead; needs keep.parameters = sharded
  int gradient_buffers = 1;        // units whose gradients are written or summed at a time; with 2
                                   // the sum of one overlaps the writing of the next
};

// Bytes that the engine holds on a rank. The exchange buffers of a reproducible sum on a backend
// that cannot add in tree order come on top: up to as much as gradient_buffers. The first step
// takes the shards of gradients, none for the units that are reduced last: theirs stay in the
// buffers. A plan takes these to be the first units.
struct FsdpMemory {
  std::size_t parameters = 0;        // shards, or all where they are replicated; f32 masters
  std::size_t gradients = 0;         // the same of gradients
  std::size_t gathered = 0;          // buffers for gathered units: 1 + those of prefetch_bytes
  std::size_t gradient_buffers = 0;  // of whole units, before the sum
  std::size_t total() const noexcept {
    return parameters + gradients + gathered + gradient_buffers;
  }
  bool operator==(const FsdpMemory&) const = default;
};
// What Fsdp will hold on that rank of a group of `size`. InvalidArgument for units and options that
// cannot be.
C10D_API FsdpMemory plan_memory(std::span<const Unit> units, const FsdpOptions& options, int rank,
                                int size, int replicas = 1);

// One step:
//   forward    per unit: unshard(), compute, reshard()
//   backward   per unit: unshard(); per virtual shard of this rank: write next_gradient(), then
//              gradient_done(); reduce(); reshard()
//   optimizer  end_step(); per unit: from gradient() to shard(); publish()
// The first step records the order of unshard(); later steps are held to it, and units are gathered
// ahead by it. Passes without reduce(), ended by end_step(), may take the beginning of the order.
//
// Every call but the const ones is made in the same order on all ranks. One thread at a time. A
// call that is out of order is InvalidArgument and aborts the groups: other ranks fail with that
// text. So do a sum that failed, what on_reduced() threw, and the destructor while a unit is
// gathered or has gradients that end_step() has not seen. Sums run in a thread of this object, on a
// group of its own. Errors come out of the call that needs the result, end_step() at the latest.
class C10D_API Fsdp {
 public:
  // Collective. Every rank of `group` holds a part. With `replicas`, the group across which whole
  // sets of parts are repeated (hybrid sharding): rank i of every `group` is in the same
  // `replicas`; in mode reproducible their number is a power of two that divides `shards`. Both
  // groups, sub() of two dimensions of a Mesh for example, must outlive this object. Throws a
  // mismatch on every rank that names the first difference.
  Fsdp(ProcessGroup& group, std::vector<Unit> units, FsdpOptions options = {},
       ProcessGroup* replicas = nullptr);
  ~Fsdp();
  Fsdp(const Fsdp&) = delete;
  Fsdp& operator=(const Fsdp&) = delete;

  const std::vector<Unit>& units() const noexcept;
  std::size_t elements(std::size_t unit) const;  // of the whole arena
  // Where a parameter begins in the arena.
  std::size_t offset(std::size_t unit, std::size_t parameter) const;
  std::size_t shard_offset(std::size_t unit) const;  // of this rank's part in the arena
  // Of this rank's part: the length of the optimizer's state, which the caller owns.
  std::size_t shard_elements(std::size_t unit) const;
  // Virtual shards that this rank computes.
  ShardRange owned() const noexcept;
  FsdpMemory memory() const noexcept;

  // Local: the arena's first values, the same on all ranks.
  void assign(std::size_t unit, std::span<const float> arena);

  // The gathered arena, of the compute dtype, until reshard(). Not to be written.
  Tensor unshard(std::size_t unit);
  void reshard(std::size_t unit);

  // Where the gradient of this rank's next virtual shard goes: a whole arena of f32, to be
  // overwritten.
  std::span<float> next_gradient(std::size_t unit);
  void gradient_done(std::size_t unit);
  // All own shards are done: their sum over all ranks, divided by `divisor`, is begun.
  void reduce(std::size_t unit, double divisor = 1);
  // Waits for all sums. Every unit must have been reduced, or none.
  void end_step();
  // Between steps. Called on the thread of the sums when that of a unit is there: for a trace.
  void on_reduced(std::function<void(std::size_t unit)> callback);

  // This rank's parameters, and their gradients from end_step() to the next next_gradient(): in
  // another place after every step. Both may be written.
  std::span<float> shard(std::size_t unit);
  std::span<float> gradient(std::size_t unit);
  // The 2-norm of all gradients, after end_step(): bits do not depend on ranks or units.
  double global_norm();
  // After shard() was written by the optimizer or by load(): brings replicated parameters up to
  // date on all ranks.
  void publish();

  // For a Snapshot: what `shard`, of shard_elements(unit), holds of each parameter, with `prefix`
  // before the name. shard(unit) itself, or state of the optimizer.
  std::vector<TensorPart> parts(std::size_t unit, std::string_view prefix,
                                std::span<float> shard) const;

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}}}  // namespace c10d::v0::parallel
