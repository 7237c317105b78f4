// SPDX-License-Identifier: BSD-3-Clause
#include "bench/analyse/op_table.h"

#include <fmt/format.h>

namespace c10d::bench {

std::string OpTable::title() const {
  std::string text = key.op;
  if (!key.dtype.empty()) text += ' ' + key.dtype;
  if (!key.redop.empty()) text += ' ' + key.redop;
  if (key.root >= 0) text += fmt::format(", root {}", key.root);
  if (key.place == "in") text += ", in place";
  if (key.concurrent > 1) text += fmt::format(", {} at once", key.concurrent);
  if (key.cache != "hot")
    text += fmt::format(", {} buffers", key.cache == "rotate" ? "rotating" : key.cache);
  return text;
}

}  // namespace c10d::bench
