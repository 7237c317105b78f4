// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "c10d/buffer.h"
#include "src/backends/nccl/communicator.h"
#include "src/base/mutex.h"

namespace c10d { inline namespace v0 { namespace nccl {

// Memory of CUDA, zeroed. It is there when the call returns.
Allocation plain_memory(std::size_t bytes, Device device);

// The memory of a group that is in windows of NCCL: there its kernels read and write the memory of
// all ranks.
class GroupMemory {
 public:
  GroupMemory(const BackendContext& context, Communicator& communicator)
      : context_(context), communicator_(communicator) {}

  // Collective. Plain memory on all ranks where one of them has no window. No op may run. Throws
  // DistError, which breaks the group if other ranks may wait for this one.
  Allocation allocate(std::size_t bytes, Deadline deadline);
  // What came of the last: "; allocate(): symmetric windows". Empty if there was none.
  std::string description() const;

 private:
  struct Piece;
  // Whether all ranks say yes, once all have said something. `why`: this one does not.
  bool all_have(std::string_view what, const std::string& why, Deadline deadline);
  void note(std::string what);

  const BackendContext& context_;
  Communicator& communicator_;
  int made_ = 0;
  mutable Mutex mutex_;
  std::string what_ C10D_GUARDED_BY(mutex_);
};

}}}  // namespace c10d::v0::nccl
