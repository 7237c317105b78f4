// SPDX-License-Identifier: BSD-3-Clause
#include "bench/rank/case_runner.h"

namespace c10d::bench {

void CaseRunner::run(const Case& c, std::size_t index) {
  const Measurement& how = launch_.options.measurement;
  const bool is_bound_by_copies = !launch_.control.meeting().is_between_hosts() || copier_;
  if (is_bound_by_copies && c.bytes > 0 && copied_.insert({c.bytes, c.cache == Cache::hot}).second)
    measure_copy(c);
  BuffersByMemory buffers;
  std::vector<Turn> turns = turns_of(c, index, buffers);
  for (Turn& turn : turns) turn.prepare();
  for (int block = 0; block < how.blocks; ++block) {
    const auto order =
        block_order(turns.size(), how.random_order, how.seed, launch_.number(), index, block);
    for (std::size_t place = 0; place < order.size(); ++place)
      turns[order[place]].run_block(block, static_cast<int>(place));
  }
}

Buffers& CaseRunner::buffers_of(Column& column, const Case& c, BuffersByMemory& buffers) {
  const CaseMemory& memory = column.own.input ? column.own : memory_;
  const ControlGroup& control = launch_.control;
  return buffers
      .try_emplace(&memory, c, control.rank(), control.size(), launch_.options.cases.window,
                   launch_.options.measurement.seed, *memory.input, *memory.output)
      .first->second;
}

std::vector<Turn> CaseRunner::turns_of(const Case& c, std::size_t index, BuffersByMemory& buffers) {
  const RunOptions& options = launch_.options;
  std::vector<Turn> turns;
  turns.reserve(columns_.size() + 1);
  for (Column& column : columns_) {
    std::string code = column.code, reason = column.reason;
    if (code.empty()) {
      Support support = support_of(c, column, buffers_of(column, c, buffers), options.backends);
      column.algo = support.composed;
      if (!support) code = "unsupported", reason = support.reason;
    }
    if (code.empty())
      turns.emplace_back(launch_, c, column, buffers_of(column, c, buffers), false);
    else
      launch_.sink(to_json(SkipRecord{key_of(c), column.name, code, reason}));
  }
  const bool is_control = options.compare && options.verdicts.control != Control::off &&
                          options.worker.solo.empty() && is_control_case(index);
  if (is_control && !turns.empty() && turns.front().is_of(columns_.front()))
    turns.emplace_back(launch_, c, columns_.front(), buffers_of(columns_.front(), c, buffers),
                       true);
  return turns;
}

// Of one core copying S bytes.
double CaseRunner::copy_on_cpu(const Case& c) {
  Case one = c;
  one.concurrent = 1;
  memcpy_->prepare(one);
  std::vector<double> samples;
  const std::int64_t until = Meeting::now() + 5'000'000;
  memcpy_->run({}, Flight::in_turn);
  while (samples.size() < 5 || (Meeting::now() < until && samples.size() < 2000)) {
    const std::int64_t start = Meeting::now();
    memcpy_->run({}, Flight::in_turn);
    samples.push_back(static_cast<double>(Meeting::now() - start) * 1e-3);
  }
  return median(std::move(samples));
}

// S bytes copied by one core or on one GPU, in the same process and minute as everything else: the
// measure of %ceil.
void CaseRunner::measure_copy(const Case& c) {
  const bool hot = c.cache == Cache::hot;
  Meeting& meeting = launch_.control.meeting();
  meeting.barrier();
  if (launch_.control.rank() == 0) {
    const double us = copier_ ? copier_->microseconds(c.bytes, !hot) : copy_on_cpu(c);
    launch_.sink(
        to_json(CeilRecord{copier_ ? "device_copy" : "memcpy", "", c.bytes, launch_.number(),
                           static_cast<double>(c.bytes) * 1e-3 / us, us, hot}));
  }
  meeting.barrier();
}

}  // namespace c10d::bench
