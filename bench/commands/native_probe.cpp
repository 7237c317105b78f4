// SPDX-License-Identifier: BSD-3-Clause
#include "bench/commands/native_probe.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/measure/block_runner.h"
#include "bench/measure/machine.h"
#include "bench/text/format.h"
#include "c10d/env.h"
#include "c10d/init.h"

namespace c10d::bench {
namespace {

constexpr std::chrono::seconds kProbeTimeout{30};  // of one operation

ProcessGroup make_control() {
  InitOptions init;
  init.backend = "native";
  init.name = "tune";
  init.timeout = kProbeTimeout;
  return init_process_group(std::move(init));
}

// Of one of the two buffers. An in-place case keeps its input beside its output.
constexpr std::uint64_t bytes_of_buffer(std::uint64_t bytes) { return 2 * bytes + 4096; }

}  // namespace

int ranks_to_probe(int asked) {
  const LaunchInfo info = detect_launch();
  if (info.launcher != "none") return info.size;
  return asked != 0 ? asked : 2;
}

void refuse_beyond_memory(int ranks, std::uint64_t bytes) {
  const std::uint64_t each = 2 * bytes_of_buffer(bytes);
  refuse_beyond_memory(each * static_cast<std::uint64_t>(ranks),
                       fmt::format("{} ranks x {} of buffers", ranks, bytes_text(each)),
                       "take a smaller size or fewer ranks");
}

Probe::Probe()
    : control_(make_control()),
      page_(control_.store(), control_.rank(), control_.size(), kProbeTimeout) {
  watchdog_.expect("tuning", 600);
}

Probe::~Probe() { close(); }

void Probe::close() {
  input_.reset();
  output_.reset();
  if (subject_) subject_->shutdown();
  subject_.reset();
}

void Probe::open(const std::string& forced, bool registered, std::uint64_t bytes) {
  close();
  SubjectContext context;
  context.control = &control_;
  context.timeout = kProbeTimeout;
  context.algorithm = forced;
  context.prefix = fmt::format("tune/{}", opened_++);
  subject_ = make_subject("native", context);
  const std::size_t most = bytes_of_buffer(bytes);
  input_ = registered ? subject_->arena(most) : std::make_unique<Arena>(most);
  output_ = registered ? subject_->arena(most) : std::make_unique<Arena>(most);
}

double Probe::measure(BenchOp op, DType dtype, std::uint64_t bytes, double seconds) {
  Sweep sweep;
  sweep.ops = {op};
  sweep.dtypes = {dtype};
  sweep.redops = {ReduceOp::sum};
  sweep.roots = {0};
  sweep.places = {Place::out};
  sweep.sizes = {bytes};
  const Case c = expand(sweep, control_.size()).at(0);
  Buffers buffers(c, control_.rank(), control_.size(), 1, /*seed*/ 1, *input_, *output_);
  BlockRunner::Settings settings;
  settings.sync = Sync::window;
  settings.longest_burst = 0.1 * seconds;
  BlockRunner runner(page_, *subject_, buffers, settings);
  const double each = runner.warm_up(seconds / 4, -1);
  const auto asked =
      std::clamp(seconds / std::max(each, 1e-9), 3.0, static_cast<double>(Meeting::kMaxIterations));
  const auto iterations =
      static_cast<std::uint64_t>(page_.from_root(static_cast<std::int64_t>(asked)));
  CellRecord cell = runner.measure(iterations, 2 * seconds);
  if (runner.failed_anywhere())
    throw_failure({.code = Code::backend_error,
                   .message = "native failed while it was measured: " + runner.failure()});
  double us = 0;
  if (!cell.samples.empty()) {
    // Of a loaded machine the median tells the load, not the algorithm.
    const auto tenth = cell.samples.begin() + static_cast<std::ptrdiff_t>(cell.samples.size() / 10);
    std::nth_element(cell.samples.begin(), tenth, cell.samples.end());
    us = *tenth;
  }
  return static_cast<double>(page_.from_root(static_cast<std::int64_t>(us * 1e3))) * 1e-3;
}

}  // namespace c10d::bench
