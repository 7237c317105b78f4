// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "c10d/process_group.h"
#include "tests/conformance/buffers.h"
#include "tests/conformance/cases.h"
#include "tests/conformance/shape.h"

namespace c10d::conformance {

// One collective on one rank: its memory, filled, the call, and what must be there afterwards.
class Collective {
 public:
  // Takes the group's memory if it is there and large enough. `buffers` must live as long.
  Collective(const Case& c, int rank, int ranks, Buffers& buffers,
             const Buffer<std::uint8_t>* allocated);
  // Blocking: the Work is ok.
  Work call(const ProcessGroup& group, bool async) const;
  // After the op: what is not as it must be.
  std::vector<std::string> wrong() const;
  // A hash of the result where every rank must have the same bits, else 0.
  std::uint64_t result() const;
  std::byte* output() const { return out_; }
  std::size_t output_bytes() const { return shape_.output * size_of(case_.numbers.dtype); }

 private:
  template <class Group>
  auto call_method(const Group& group) const;

  const Case case_;
  const int rank_, ranks_;
  const Shape shape_;
  const bool in_place_;
  const Buffers& buffers_;
  std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
};

}  // namespace c10d::conformance
