// SPDX-License-Identifier: BSD-3-Clause
#include "src/launch/job.h"

#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <utility>

#include "c10d/error.h"
#include "src/base/log.h"
#include "src/base/timeouts.h"
#include "src/recorder/format.h"

namespace c10d { inline namespace v0 {
namespace {

using std::chrono::steady_clock;

constexpr int kBrokenCode = 1;  // of a launcher that cannot continue
// What killed processes have written is there by then.
constexpr Duration kDrainTimeout = std::chrono::milliseconds(500);

}  // namespace

Job::Job(const LaunchOptions& options)
    : options_(options),
      signals_(options.signals),
      resources_(options),
      rendezvous_(options.hosts.count == 1
                      ? nullptr
                      : std::make_unique<Rendezvous>(options.hosts, options.ranks,
                                                     resources_.master_port())),
      ranks_(options, resources_),
      outcome_(options),
      phase_(rendezvous_ ? Phase::rendezvous : Phase::running) {}

Job::~Job() {
  if (phase_ < Phase::draining) ranks_.kill_all();
}

LaunchResult Job::run() try {
  if (!rendezvous_)
    start({.first_rank = 0, .size = options_.ranks, .master_port = resources_.master_port()});
  if (options_.timeout > Duration::zero()) {
    deadline_ = steady_clock::now() + clamp_timeout(options_.timeout);
    signals_.end_by(*deadline_);
  }
  while (phase_ != Phase::done) {
    poll_once();
    take_signals();
    if (rendezvous_) take_news();
    advance();
  }
  return outcome_.result(ranks_.results());
} catch (const std::exception& error) {
  if (rendezvous_) rendezvous_->fail(kBrokenCode, error.what());
  throw;
}

void Job::start(const World& world) {
  resources_.make_room(world);
  phase_ = Phase::running;
  ranks_.start(world);
}

void Job::poll_once() {
  std::vector<int> others{signals_.fd()};
  if (rendezvous_ && !outcome_.verdict()) others.push_back(rendezvous_->fd());
  for (const RankResult* ended : ranks_.poll(others, deadline_))
    if (ended->exit_code != 0) note_failure(*ended);
}

void Job::note_failure(const RankResult& result) {
  if (outcome_.is_decided()) return;
  if (outcome_.is_next_fatal() && phase_ == Phase::running) stop(SIGTERM);
  const bool is_first = outcome_.note_failure(result, phase_ == Phase::killed);
  if (!is_first || !rendezvous_) return;
  if (outcome_.is_told(result)) {
    fail_by_signal(result.signal);
    return;
  }
  rendezvous_->fail(
      result.exit_code,
      fmt::format("rank {} (pid {}) failed first: {}; its last lines are in the output there",
                  result.rank, result.pid,
                  result.signal != 0 ? fmt::format("killed by signal {}", result.signal)
                                     : fmt::format("exit code {}", result.exit_code)));
}

void Job::fail_by_signal(int signal) {
  rendezvous_->fail(128 + signal, fmt::format("its launcher got signal {}", signal));
}

void Job::take_news() {
  if (const auto world = rendezvous_->take_world(); world && phase_ == Phase::rendezvous)
    start(*world);
  if (auto verdict = rendezvous_->take_verdict()) outcome_.note_verdict(*std::move(verdict));
  const auto& verdict = outcome_.verdict();
  if (verdict && phase_ == Phase::rendezvous)
    throw_failure({.code = verdict->code, .message = verdict->text});
  if (verdict && phase_ == Phase::running) stop(SIGTERM);
}

void Job::take_signals() {
  while (const std::optional<int> signal = signals_.take()) {
    log(LogLevel::info, "forwarding signal {} to {} ranks", *signal, ranks_.running());
    outcome_.note_signal(*signal);
    // With no rank left, or none yet, to end by it.
    if (phase_ == Phase::rendezvous || phase_ == Phase::waiting) fail_by_signal(*signal);
    if (phase_ == Phase::rendezvous || phase_ == Phase::running) {
      stop(*signal);
    } else if (phase_ == Phase::stopping) {
      ranks_.signal(*signal);
    }
  }
}

void Job::stop(int signal) {
  try {
    outcome_.note_positions(places_of(attach(ranks_.running_pids()), steady_ns()));
  } catch (const std::exception& error) {  // what matters is the signal
    log(LogLevel::warn, "where the ranks were could not be read: {}", error.what());
  }
  ranks_.signal(signal);
  enter(Phase::stopping, clamp_timeout(options_.grace));
}

void Job::advance() {
  const bool late = deadline_ && steady_clock::now() >= *deadline_;
  const int running = ranks_.running();
  if ((phase_ == Phase::rendezvous || (phase_ == Phase::running && running > 0)) && late) {
    stop_late();
  } else if (phase_ == Phase::stopping && late) {
    ranks_.kill_all();
    enter(Phase::killed, kKillTimeout);
  } else if (phase_ > Phase::rendezvous && phase_ < Phase::draining && (running == 0 || late)) {
    ranks_.kill_all();
    enter(Phase::draining, kDrainTimeout);
  }
  // Nothing more may come that would wake the loop.
  if (phase_ == Phase::draining && (!ranks_.streams_open() || steady_clock::now() >= *deadline_))
    finish();
  if (phase_ == Phase::waiting && outcome_.verdict()) phase_ = Phase::done;
}

void Job::enter(Phase phase, Duration timeout) {
  phase_ = phase;
  deadline_ = steady_clock::now() + timeout;
}

void Job::stop_late() {
  outcome_.note_timeout();
  if (rendezvous_) rendezvous_->fail(kTimedOutExitCode, "the time limit of the job has passed");
  stop(SIGTERM);
}

// This host's ranks are gone. The others' may still run, and need the store that host 0 serves.
void Job::finish() {
  phase_ = rendezvous_ && !outcome_.verdict() ? Phase::waiting : Phase::done;
  deadline_.reset();
  if (phase_ == Phase::waiting && ranks_.all_started() && outcome_.is_success())
    rendezvous_->ended();
}

}}  // namespace c10d::v0
