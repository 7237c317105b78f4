// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/arena.h"
#include "bench/plan.h"
#include "c10d/collective.h"
#include "c10d/process_group.h"

namespace c10d::bench {

// What is measured: one column of the table.
class Contender {
 public:
  explicit Contender(std::string name) : name_(std::move(name)) {}
  virtual ~Contender() = default;
  const std::string& name() const noexcept { return name_; }

  virtual Support supports(const Query& query) const = 0;
  virtual std::string description() const = 0;
  // Whether its results follow the oracle; a plain memcpy has none.
  virtual bool computes() const noexcept { return true; }
  // Whether several ops can be in flight at once.
  virtual bool overlaps() const noexcept { return true; }
  // Before the blocks of a case.
  virtual void prepare(const Case&) {}
  // Runs the ops one after the other, or starts all and then waits for all. Throws what failed.
  virtual void run(std::span<const Op> ops, bool together) = 0;
  virtual void shutdown() {}
  // Collective: memory that the backend can reach best; plain memory where it has none such.
  virtual std::unique_ptr<Arena> arena(std::size_t bytes) { return std::make_unique<Arena>(bytes); }

 private:
  std::string name_;
};

struct ContenderContext {
  ProcessGroup* control = nullptr;  // gives the store, the members and the ranks
  Duration timeout{};
  std::string token;             // the job's secret; empty: from the environment
  std::string prefix = "group";  // of its keys: a new one for each group of that name
};
// Collective. Throws DistBackendError (unsupported) with the reason when the name is not available
// here.
std::unique_ptr<Contender> make_contender(const std::string& name, const ContenderContext& context);

// One core that copies S bytes: what any collective is held against. Above 16 MiB no byte is in a
// cache.
std::unique_ptr<Contender> make_memcpy_contender(int rank);

}  // namespace c10d::bench
