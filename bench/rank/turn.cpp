// SPDX-License-Identifier: BSD-3-Clause
#include "bench/rank/turn.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/model/bandwidth.h"
#include "bench/text/format.h"

namespace c10d::bench {
namespace {

constexpr double kNoLimit = 3600;  // seconds, where iterations are counted

BlockRunner::Settings settings_of(const LaunchState& launch) {
  const Measurement& how = launch.options.measurement;
  // With a fixed number of iterations, or a start skew in each, an iteration is one op: no bursts.
  // On a GPU it is then a batch of a fixed size.
  const bool by_time = how.iters == 0 && how.warmup < 0 && how.start_skew <= 0;
  return {how.dirty,
          how.sync,
          static_cast<std::int64_t>(how.start_skew * 1e9),
          how.seed,
          by_time ? 0.1 * launch.block_seconds() : 0,
          how.iters > 0 ? kNoLimit : 0.25 * launch.block_seconds(),
          static_cast<std::uint64_t>(how.graph_ops)};
}

}  // namespace

Turn::Turn(LaunchState& launch, const Case& c, Column& column, Buffers& buffers, bool is_control)
    : launch_(launch),
      how_(launch.options.measurement),
      case_(c),
      column_(column),
      runner_(launch.control.meeting(), *column.subject, buffers, settings_of(launch)),
      is_control_(is_control) {}

std::string Turn::what() const {
  return fmt::format("{} {}", column_.name, facts_of(case_.op).name);
}

void Turn::expect(double seconds) {
  launch_.watchdog.expect(what() + " " + bytes_text(case_.bytes), seconds + how_.timeout * 3 + 20);
}

bool Turn::checks() const { return !is_control_ && how_.check != Check::off; }

void Turn::prepare() {
  if (!is_alive()) return;
  expect(how_.warmup >= 0 ? kNoLimit : how_.seconds);
  column_.subject->prepare(case_);
  runner_.introduce();
  if (drop_if_failed()) return;
  if (how_.graph_ops > 0) {
    runner_.capture();
    if (drop_if_failed()) return;
  }
  if (checks()) check(false);
  const double each = runner_.warm_up(std::min(launch_.block_seconds() / 4, 0.02), how_.warmup);
  if (drop_if_failed()) return;
  std::uint64_t iterations = how_.iters;
  if (iterations == 0)
    iterations =
        static_cast<std::uint64_t>(std::clamp(launch_.block_seconds() / std::max(each, 1e-9), 3.0,
                                              static_cast<double>(Meeting::kMaxIterations)));
  iterations_ = static_cast<std::uint64_t>(
      launch_.control.meeting().from_root(static_cast<std::int64_t>(iterations)));
}

void Turn::check(bool timed_before) {
  const BlockRunner::CheckResult result = runner_.check(timed_before);
  wrong_ += result.wrong;
  hash_ = result.hash;
  launch_.wrong = launch_.wrong || result.wrong > 0 || !result.ranks_agree;
  if (!result.ranks_agree)
    launch_.warn("W003", fmt::format("{} {}: results differ between ranks", what(), case_.bytes));
}

bool Turn::drop_if_failed() {
  if (!runner_.failed_anywhere()) return false;
  const std::string key = fmt::format("failure/{}", launch_.failures++);
  ControlGroup& control = launch_.control;
  if (!runner_.failure().empty())
    control.store().append(key, fmt::format("[rank {}: {}] ", control.rank(), runner_.failure()));
  control.meeting().barrier();
  column_.code = "failed";
  column_.reason = control.store().try_get(key).value_or("");
  launch_.sink(to_json(SkipRecord{key_of(case_), column_.name, column_.code, column_.reason}));
  launch_.warn("W004", fmt::format("{} failed in {}: {}", column_.name, facts_of(case_.op).name,
                                   column_.reason));
  return true;
}

void Turn::run_block(int block, int order) {
  if (!is_alive()) return;
  const bool counted = how_.iters > 0;
  expect(counted ? kNoLimit : 2 * how_.seconds);
  CellRecord cell = runner_.measure(iterations_, counted ? kNoLimit : 2 * launch_.block_seconds());
  if (drop_if_failed()) return;
  if (checks() && (block + 1 == how_.blocks || how_.check == Check::all)) check(true);
  if (drop_if_failed() || launch_.control.rank() != 0) return;
  const std::string& solo = launch_.options.worker.solo;
  cell.key = key_of(case_);
  cell.backend = column_.name + (is_control_ ? kControlSuffix : solo.empty() ? "" : kSoloSuffix);
  cell.algo = column_.algo;
  if (launch_.seat != nullptr) cell.device = "cuda";
  cell.placement = launch_.placement;
  cell.graph_ops = how_.graph_ops;
  cell.elems = case_.op == BenchOp::barrier ? 0 : case_.bytes / size_of(case_.dtype);
  cell.window = case_.op == BenchOp::isend ? window_of(case_, launch_.options.cases.window) : 1;
  cell.launch = launch_.number();
  cell.block = block;
  cell.order = order;
  cell.wrong = std::exchange(wrong_, 0);
  if (checks() && column_.subject->computes())
    cell.hash = fmt::format("{:08x}", static_cast<std::uint32_t>(hash_ ^ hash_ >> 32));
  put_bandwidth(case_, static_cast<int>(launch_.control.hosts().size()), launch_.control.size(),
                cell);
  launch_.sink(to_json(cell, true));
}

}  // namespace c10d::bench
