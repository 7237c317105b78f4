// SPDX-License-Identifier: BSD-3-Clause
#include "python/src/documented.h"

#include <string_view>

namespace c10d { namespace python {
namespace {

struct Row {
  std::string_view name;
  const char* text;
};
constexpr Row kRows[] = {
#include <c10d_docs.inc>  // by python/docs.py
};

}  // namespace

const char* doc_of(const std::string& name) {
  for (const Row& row : kRows)
    if (row.name == name) return row.text;
  return "";
}

}}  // namespace c10d::python
