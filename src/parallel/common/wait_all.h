// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <exception>
#include <span>

#include "c10d/work.h"

namespace c10d { inline namespace v0 { namespace parallel {

// Also after a failure, which it throws at the end: the memory is the ops' until all are done.
inline void wait_all(std::span<const Work> works) {
  std::exception_ptr error;
  for (const Work& work : works) try {
      work.wait();
    } catch (const DistError&) {
      if (!error) error = std::current_exception();
    }
  if (error) std::rethrow_exception(error);
}

}}}  // namespace c10d::v0::parallel
