// SPDX-License-Identifier: BSD-3-Clause
#include "bench/commands/list.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "bench/measure/native_algorithms.h"
#include "bench/model/cases.h"
#include "bench/model/record.h"
#include "bench/report/table.h"
#include "bench/torch/interpreter.h"
#include "c10d/capability.h"
#include "c10d/collective.h"
#include "c10d/error.h"

namespace c10d::bench {
namespace {

using Lines = std::vector<std::pair<std::string, std::string>>;

std::string about_pytorch() {
  try {
    return fmt::format("torch.distributed, called by {}; torch:gloo@PYTHON: by another one",
                       find_pytorch("python3").program);
  } catch (const std::runtime_error& error) {
    return fmt::format("not available: {}", error.what());
  }
}

Lines lines_of(const std::string& topic) {
  Lines lines;
  if (topic == "ops") {
    for (const OpFacts& facts : op_facts()) lines.emplace_back(facts.name, facts.help);
  } else if (topic == "backends") {
    for (const BackendInfo& info : list_backends())
      lines.emplace_back(info.name,
                         info.available ? info.version : "not available: " + info.reason);
    const std::string pytorch = about_pytorch();
    for (const char* column : {"torch:gloo", "torch:c10d"}) lines.emplace_back(column, pytorch);
    lines.emplace_back("memcpy", "one core copying S bytes, as a column like any other");
  } else if (topic == "dtypes") {
    for (int i = 0; i < kDTypeCount; ++i) {
      const auto dtype = static_cast<DType>(i);
      lines.emplace_back(to_string(dtype), fmt::format("{} bytes", size_of(dtype)));
    }
  } else if (topic == "redops") {
    for (int i = 0; i < kReduceOpCount; ++i)
      lines.emplace_back(to_string(static_cast<ReduceOp::Kind>(i)), "");
  } else if (topic == "algos") {
    for (const OpAlgorithms& op : native_algorithms(2))
      lines.emplace_back(op.op, op.names.empty() ? "one way only" : folded(op.names));
  } else if (topic == "checks") {
    lines.emplace_back("first", "before the first block and after the last one (default)");
    lines.emplace_back("all", "before the first block and after every block");
    lines.emplace_back("off", "never: numbers without a proof that the data was right");
  } else if (topic == "columns") {
    for (const ColumnFacts& facts : column_facts()) lines.emplace_back(facts.name, facts.help);
  } else {
    throw InvalidArgument(fmt::format(
        "list {}: one of ops, backends, dtypes, redops, algos, checks, columns", topic));
  }
  return lines;
}

}  // namespace

int print_list(const std::string& topic, bool as_json) {
  const Lines lines = lines_of(topic);
  if (as_json) {
    Json names = Json::object();
    for (const auto& [name, help] : lines) names[name] = help;
    fmt::print("{}\n", Json{{topic, names}}.dump(2));
    return 0;
  }
  for (const auto& [name, help] : lines)
    fmt::print("{}\n", help.empty() ? name : fmt::format("{:<18}{}", name, help));
  return 0;
}

}  // namespace c10d::bench
