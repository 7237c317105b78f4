// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "c10d/process_group.h"
#include "tests/conformance/buffers.h"
#include "tests/conformance/cases.h"

namespace c10d::conformance {

// What one rank found.
struct Report {
  std::size_t checked = 0;
  std::map<std::string, std::size_t> skipped;  // by the backend's reason
  std::vector<std::string> failures;           // the first few, and how many more
  std::size_t failed = 0;
  // Per case: a hash of the result where every rank must have the same bits, else 0.
  std::vector<std::uint64_t> results;

  void fail(std::string what);
};

// One rank of a world that runs cases in step with the others.
class Rank {
 public:
  explicit Rank(ProcessGroup world);
  // Ends at the first case that throws: it breaks the group.
  Report run(const std::vector<Case>& cases);

 private:
  struct Group {
    ProcessGroup group;
    Buffer<std::uint8_t> memory;
  };
  static Group with_memory(ProcessGroup group);
  const Buffer<std::uint8_t>* memory_for(const Case& c, const Group& g) const;

  void run_case(const Case& c);
  void refuses(const Case& c, ProcessGroup& group, const Support& support);
  void refused_message(const Case& c, ProcessGroup& group) const;
  void run_collective(const Case& c, Group& g);
  void check(const Case& c, const std::string& difference);
  // In exchanges.cpp.
  void run_exchange(const Case& c, Group& g);
  void ring_blocking(const Case& c, ProcessGroup& group);
  void ring_tags(const Case& c, ProcessGroup& group);
  void any_source(const Case& c, ProcessGroup& group);
  void ring_batch(const Case& c, ProcessGroup& group);
  void overlapped(const Case& c, ProcessGroup& group);
  CallOptions options() const { return {.stream = buffers_.stream()}; }
  struct Message;
  Message message(const Case& c, int from, std::size_t number);
  void check_message(const Case& c, const Message& m);

  Group world_, subgroup_, dealt_;
  Buffers buffers_;
  std::vector<std::byte> expected_;
  std::uint64_t result_ = 0;
  Report report_;
};

}  // namespace c10d::conformance
