// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "bench/measure/gpu.h"
#include "bench/rank/column.h"
#include "bench/rank/turn.h"

namespace c10d::bench {

// Measures cases: each column in its turn, block by block, and one core, or the GPU of rank 0, that
// copies as much.
class CaseRunner {
 public:
  CaseRunner(LaunchState& launch, std::vector<Column>& columns, CaseMemory& memory)
      : launch_(launch),
        columns_(columns),
        memory_(memory),
        memcpy_(make_memcpy_subject(launch.control.rank())) {
    if (launch.seat != nullptr) copier_.emplace(*launch.seat);
  }
  // Collective. `index` is the case's in the list of all.
  void run(const Case& c, std::size_t index);

 private:
  // Those of one case. Columns that share memory share the buffers.
  using BuffersByMemory = std::map<const CaseMemory*, Buffers>;
  Buffers& buffers_of(Column& column, const Case& c, BuffersByMemory& buffers);
  std::vector<Turn> turns_of(const Case& c, std::size_t index, BuffersByMemory& buffers);
  void measure_copy(const Case& c);
  double copy_on_cpu(const Case& c);

  LaunchState& launch_;
  std::vector<Column>& columns_;
  CaseMemory& memory_;
  std::unique_ptr<Subject> memcpy_;
  std::optional<GpuCopier> copier_;
  std::set<std::pair<std::uint64_t, bool>> copied_;  // sizes whose memcpy is known: hot or not
};

}  // namespace c10d::bench
