// SPDX-License-Identifier: BSD-3-Clause
#include <utility>

#include "c10d/parallel/checkpoint.h"

namespace c10d { inline namespace v0 { namespace parallel {

CheckpointError::CheckpointError(CheckpointFailure failure)
    : std::runtime_error(failure.message),
      failure_(std::make_shared<const CheckpointFailure>(std::move(failure))) {}
CheckpointError::CheckpointError(const CheckpointError&) noexcept = default;
CheckpointError::~CheckpointError() = default;

}}}  // namespace c10d::v0::parallel
