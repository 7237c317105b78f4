// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <utility>

#include "c10d/c.h"
#include "c10d/process_group.h"
#include "src/c/arguments.h"

// What is behind the handles of the C interface.

struct c10d_store {
  std::shared_ptr<c10d::Store> store;
};

struct c10d_group {
  c10d::ProcessGroup group;
};

struct c10d_work {
  c10d::Work work;
};

struct c10d_batch {
  c10d::ProcessGroup group;
  c10d::Batch batch;
};

struct c10d_memory {
  c10d::Buffer<unsigned char> buffer;
  int ranks;
};

namespace c10d { inline namespace v0 { namespace c {

inline c10d_received to_c_received(const Received& received) {
  return {received.source, received.count};
}

// The group behind a handle. Throws InvalidArgument where it is NULL.
inline const ProcessGroup& group_of(const c10d_group* group) {
  return required(group, "group").group;
}

// Gives a handle that holds `what` to a caller.
template <class Handle, class... What>
void hand_out(Handle*& handle, What&&... what) {
  handle = new Handle{std::forward<What>(what)...};
}

// Gives the handle of an op that `submit` starts. Nothing starts without memory for the handle.
template <class F>
void start(c10d_work*& work, F submit) {
  auto handle = std::make_unique<c10d_work>();
  handle->work = submit();
  work = handle.release();
}

}}}  // namespace c10d::v0::c
