// SPDX-License-Identifier: BSD-3-Clause
#include "bench/rank/column.h"

#include <fmt/format.h>

#include "bench/measure/native_algorithms.h"
#include "bench/model/column_name.h"
#include "bench/torch/torch_subject.h"

namespace c10d::bench {

std::vector<Column> open_columns(const std::vector<std::string>& names, SubjectContext context,
                                 ControlGroup& control) {
  context.control = &control.group();
  context.token = control.token();
  std::vector<Column> columns;
  for (const std::string& name : names) {
    Column& column = columns.emplace_back();
    column.name = name;
    try {
      column.subject =
          is_torch(name) ? make_torch_subject(name, context) : make_subject(name, context);
    } catch (const std::exception& error) {
      column.reason = error.what();
    }
    if (!control.any(!column.subject)) continue;
    column.subject.reset();
    column.code = "unavailable";
    if (column.reason.empty()) column.reason = "not available on another rank";
  }
  return columns;
}

CaseMemory allocate(Footprint bytes, bool heap, std::vector<Column>& columns, const GpuSeat* seat) {
  for (Column& column : columns) {
    if (!heap || !column.subject) continue;
    CaseMemory own{column.subject->arena(bytes.input), column.subject->arena(bytes.output)};
    if (!own.input) continue;
    column.registered = true;
    if (seat == nullptr) return own;
    column.own = std::move(own);
  }
  if (heap && seat != nullptr) return {};
  const auto plain = [&](std::uint64_t size) {
    return seat != nullptr ? std::make_unique<Arena>(size, *seat) : std::make_unique<Arena>(size);
  };
  CaseMemory memory;
  memory.input = plain(bytes.input);
  memory.output = plain(bytes.output);
  return memory;
}

Support support_of(const Case& c, const Column& column, const Buffers& buffers,
                   const BackendOptions& options) {
  const Subject& subject = *column.subject;
  const OpFacts& op = facts_of(c.op);
  const bool cuda = buffers.seat() != nullptr;
  const DeviceType device = cuda ? DeviceType::cuda : DeviceType::cpu;
  if (cuda && buffers.flight() != Flight::in_turn)
    return {false, "on a GPU the ops of a rank are on one stream, one behind the other", ""};
  Support support = subject.supports({op.kind, c.dtype, c.redop, device});
  if (!support) return support;
  if (buffers.flight() == Flight::together && !subject.overlaps())
    return {false, "this column has one message at a time; take send", ""};
  if (buffers.flight() == Flight::one_per_group && !subject.overlaps())
    return {false, "this column has one op at a time", ""};
  const std::string algorithm = subject.algorithm(c, column.registered);
  if (column.name == "native" && !options.algo.empty() &&
      !is_as_asked(op.name, algorithm, options.algo))
    return {false, fmt::format("--algo {}: not for {} in such memory", options.algo, op.name), ""};
  if (!algorithm.empty()) support.composed = algorithm;
  return support;
}

}  // namespace c10d::bench
