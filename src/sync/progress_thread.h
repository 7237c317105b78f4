// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>

#include "c10d/export.h"

namespace c10d { inline namespace v0 {

enum class Poll { idle, busy, done };

// When the progress thread looks at a new step: `when_awake` costs the caller no wake-up while the
// thread still looks at steps now and then, half a millisecond apart at most.
enum class Start { at_once, when_awake };

// Hands `step` to the process's one progress thread, which calls it until it returns `done`. A step
// must not block or throw; `idle` means that it found nothing to do. Steps run one after the other
// in the order in which they were added, round after round; while all are idle the thread backs
// off. The thread starts with the first step.
C10D_API void add_progress(std::function<Poll()> step, Start start = Start::at_once);

}}  // namespace c10d::v0
