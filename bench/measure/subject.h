// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "bench/measure/arena.h"
#include "bench/measure/gpu.h"
#include "bench/model/cases.h"
#include "c10d/collective.h"
#include "c10d/process_group.h"

namespace c10d::bench {

// How the ops of one iteration run: each when the last is done; all started, then all waited for;
// or so, with the i-th on the i-th of several groups.
enum class Flight : std::uint8_t { in_turn, together, one_per_group };

// What is measured: one column of the table.
class Subject {
 public:
  virtual ~Subject() = default;

  virtual Support supports(const Query& query) const = 0;
  virtual std::string description() const = 0;
  // Whether its results follow the oracle; a plain memcpy has none.
  virtual bool computes() const noexcept { return true; }
  // Whether several ops can be in flight at once.
  virtual bool overlaps() const noexcept { return true; }
  // Before the blocks of a case.
  virtual void prepare(const Case&) {}
  // Before any op of a case is timed, outside of a graph: all of them, one buffer set after the
  // other.
  virtual void meet_ops(std::span<const Op>) {}
  // Throws what failed.
  virtual void run(std::span<const Op> ops, Flight flight) = 0;
  // What it will run for the case, in buffers that are registered with it or not; empty: unknown.
  virtual std::string algorithm(const Case&, bool /*registered*/) const { return ""; }
  virtual void shutdown() {}
  // Collective: memory that the backend can reach best; null where it has none such.
  virtual std::unique_ptr<Arena> arena(std::size_t /*bytes*/) { return nullptr; }
};

struct SubjectContext {
  ProcessGroup* control = nullptr;  // gives the store, the members and the ranks
  Duration timeout{};
  std::string token;              // the job's secret; empty: from the environment
  std::string prefix = "group";   // of its keys: a new one for each group of that name
  std::string algorithm = {};     // native: as C10D_NATIVE_PLAN takes it; empty: as it chooses
  int groups = 1;                 // for ops in flight at once
  const GpuSeat* seat = nullptr;  // where ops and buffers are; null: the CPU. Outlives the subject
};
// Collective. Throws DistBackendError (unsupported) with the reason when its backend is not
// available here. open_group() makes a group as any user has it, and does not look at `algorithm`
// and `groups`.
ProcessGroup open_group(const std::string& backend, const SubjectContext& context);
std::unique_ptr<Subject> make_subject(const std::string& column, const SubjectContext& context);

// One core that copies S bytes: what any collective is held against. Above 16 MiB no byte is in a
// cache.
std::unique_ptr<Subject> make_memcpy_subject(int rank);
// What it allocates for the case, on rank 0 alone.
std::uint64_t memcpy_bytes(const Case& c);

}  // namespace c10d::bench
