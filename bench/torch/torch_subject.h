// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>

#include "bench/measure/subject.h"

namespace c10d::bench {

// torch.distributed in this process, as a script calls it: "torch:gloo" or "torch:c10d", and behind
// an @ the Python that has PyTorch, else python3. Throws std::runtime_error with the reason when
// that is not there.
std::unique_ptr<Subject> make_torch_subject(const std::string& column,
                                            const SubjectContext& context);

}  // namespace c10d::bench
