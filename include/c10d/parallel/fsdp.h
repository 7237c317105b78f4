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

// Fully sharded data parallelism: ZeRO-1, ZeRO-2 and ZeRO-3 in one engine.
namespace c10d { inline namespace v0 { namespace parallel {

// Where something lives between its uses.
enum class Placement : std::uint8_t {
  replicated,  // whole, on every rank
  sharded      // one part on each rank
};

// What is sharded. Parameters can be sharded only if gradients are, and gradients only if the
// optimizer is.
struct Sharding {
  Placement parameters = Placement::sharded;  // the f32 masters
  Placement gradients = Placement::sharded;   // the sums
  Placement optimizer = Placement::sharded;   // the optimizer's state
};
// ZeRO-1: the optimizer is sharded.
inline constexpr Sharding kZero1{Placement::replicated, Placement::replicated, Placement::sharded};
// ZeRO-2: gradients, too.
inline constexpr Sharding kZero2{Placement::replicated, Placement::sharded, Placement::sharded};
// ZeRO-3: parameters, too.
inline constexpr Sharding kZero3{};
// Nothing is sharded: as DDP.
inline constexpr Sharding kReplicated{Placement::replicated, Placement::replicated,
                                      Placement::replicated};

// Options of Fsdp.
struct FsdpOptions {
  Sharding sharding = kZero3;          // what is sharded
  ReduceMode mode = ReduceMode::fast;  // how gradients are summed
  int shards = 16;                     // of the global batch; mode reproducible only
  DType compute = DType::f32;          // of gathered parameters: f32, or bf16; the masters stay f32
  // Of gradients while they are reduced: f32, or in mode fast bf16. Each gradient is rounded when
  // it leaves its rank, and at most once more on each rank that adds it.
  DType reduce = DType::f32;
  std::size_t prefetch_bytes = 0;  // of units gathered ahead; needs sharded parameters
  // Number of units whose gradients are written or reduced at a time. With 2, reducing one unit
  // overlaps with writing the next.
  int gradient_buffers = 1;
};

// Bytes of memory that Fsdp holds on a rank. A reproducible sum needs up to gradient_buffers bytes
// more on a backend that does not reduce in tree order. Gradients that are sharded are allocated in
// the first step; the units that are reduced last need none, as theirs stay in the buffers.
// plan_memory() takes these to be the first units.
struct FsdpMemory {
  std::size_t parameters = 0;        // f32 masters: this rank's shards, or all when replicated
  std::size_t gradients = 0;         // the same for gradients
  std::size_t gathered = 0;          // gathered units: the current one and those gathered ahead
  std::size_t gradient_buffers = 0;  // gradients of whole units, before they are reduced
  // Sum of all.
  std::size_t total() const noexcept {
    return parameters + gradients + gathered + gradient_buffers;
  }
  bool operator==(const FsdpMemory&) const = default;  // compares all fields
};
// The memory that Fsdp will hold on `rank` of a group of `size` ranks. Local. Throws
// InvalidArgument for units or options that make no sense.
C10D_API FsdpMemory plan_memory(std::span<const Unit> units, const FsdpOptions& options, int rank,
                                int size, int replicas = 1);

// Trains units of parameters that are sharded over the ranks of a group. One step:
// - forward, per unit: unshard(), compute, reshard();
// - backward, per unit: unshard(); for each virtual shard of this rank, write next_gradient(), then
//   gradient_done(); reduce(), reshard();
// - optimizer: end_step(); per unit, update shard() from gradient(); sync_parameters().
//
// The first step records the order of unshard(). Later steps must keep to it, and units are
// gathered ahead in that order. A pass without reduce(), ended by end_step(), may take only the
// beginning of the order.
//
// Threads. One at a time. All ranks make all calls but the const ones in the same order. Gradients
// are reduced in a thread of this object, with a group of its own.
//
// Errors come out of the call that needs the result, at the latest out of end_step(). A call that
// is out of order throws InvalidArgument and aborts the groups, so that the other ranks fail with
// its text. The groups are aborted, too, when reducing fails, when on_reduced() throws, or when the
// object is destroyed while a unit is gathered or has gradients that end_step() has not reduced.
class C10D_API Fsdp {
 public:
  // Shards `units` over the ranks of `group`. Collective.
  // With `replicas` (hybrid sharding), the whole set of shards is repeated: rank i of every `group`
  // is in the same `replicas`, sub() of two dimensions of a Mesh for example. In mode reproducible
  // the size of `replicas` is a power of two that divides FsdpOptions::shards.
  // Throws InvalidArgument for options that make no sense, and mismatch on
  // every rank, which names the first difference, when ranks give different units or options.
  Fsdp(const ProcessGroup& group, std::vector<Unit> units, FsdpOptions options = {},
       const ProcessGroup& replicas = {});
  ~Fsdp();
  Fsdp(const Fsdp&) = delete;
  Fsdp& operator=(const Fsdp&) = delete;

  // The units, as they were given. A unit is named by its index below; an index out of range is
  // InvalidArgument.
  const std::vector<Unit>& units() const noexcept;
  // Number of elements of a whole unit. Its parameters lie one behind the other in one array.
  std::size_t elements(std::size_t unit) const;
  // Element of the whole unit at which a parameter begins.
  std::size_t offset(std::size_t unit, std::size_t parameter) const;
  // Element of the whole unit at which this rank's shard begins.
  std::size_t shard_offset(std::size_t unit) const;
  // Number of elements of this rank's shard: also of each array of the optimizer's state, which the
  // caller owns.
  std::size_t shard_elements(std::size_t unit) const;
  // The virtual shards of the global batch that this rank computes.
  ShardRange owned() const noexcept;
  // Bytes of memory that this object holds now.
  FsdpMemory memory() const noexcept;

  // Sets the first values of a whole unit. Every rank gives the same. Local.
  void assign(std::size_t unit, std::span<const float> arena);

  // Gathers a whole unit, in dtype FsdpOptions::compute. Valid until reshard(); do not write to it.
  View unshard(std::size_t unit);
  // Frees the gathered unit.
  void reshard(std::size_t unit);

  // Where to write the gradient of the whole unit for this rank's next virtual shard: the SUM over
  // its samples. The memory is not initialised.
  std::span<float> next_gradient(std::size_t unit);
  // Says that next_gradient() is written.
  void gradient_done(std::size_t unit);
  // Starts to reduce the gradients of a unit over all ranks; they are divided by `divisor`. All
  // virtual shards of this rank must be done.
  void reduce(std::size_t unit, double divisor = 1);
  // Ends a step: waits until all gradients are reduced. Every unit must have been reduced, or none.
  void end_step();
  // Sets what the reducing thread calls when a unit is reduced: for a trace. Call it between steps.
  void on_reduced(std::function<void(std::size_t unit)> callback);

  // This rank's shard of the parameters (f32 masters). It may be written between steps.
  std::span<float> shard(std::size_t unit);
  // This rank's shard of the gradients, from end_step() to the next next_gradient(). It may be
  // written; its address changes with every step.
  std::span<float> gradient(std::size_t unit);
  // The 2-norm of all gradients, after end_step(). Collective. Its bits do not depend on the number
  // of ranks or the units.
  double global_norm();
  // After the optimizer or load() has written shard(): brings replicated parameters up to date on
  // all ranks. Collective.
  void sync_parameters();

  // The parts of a Snapshot that `shard` holds, an array of shard_elements(unit): shard(unit)
  // itself or state of the optimizer. `prefix` is put before the names of the parameters. Throws
  // InvalidArgument for an array of another length.
  std::vector<TensorPart> parts(std::size_t unit, std::string_view prefix,
                                std::span<float> shard) const;

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}}}  // namespace c10d::v0::parallel
