// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "c10d/spi/control.h"

namespace c10d { inline namespace v0 { namespace native {

// Control::agree(), which in a fiber lets others of its thread run.
std::shared_ptr<const Failure> enter(Control& control, const Call& call);

}}}  // namespace c10d::v0::native
