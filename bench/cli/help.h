// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

namespace CLI {
class FormatterBase;
}

namespace c10d::bench {

// Help that fits into 80 columns: names of values, defaults in brackets, the words broken into
// lines.
std::shared_ptr<CLI::FormatterBase> help_format();

}  // namespace c10d::bench
