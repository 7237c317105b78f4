// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/hosts/host_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "kernels/reduce.h"
#include "src/backends/native/links/stream.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

constexpr std::array<std::string_view, kHostAlgorithms> kHostAlgorithmNames = {
    "one_shot", "two_shot", "dissemination", "halving", "binomial", "chain"};

constexpr std::string_view kOverlap = "overlap", kNoOverlap = "no_overlap";
// A rank that is busy for longer has no time for stages meanwhile: docs/internals/hosts.md.
constexpr double kMostBusy = 0.45;

// What a rank gathers of a reduction, to reduce it by itself.
constexpr std::size_t kMostGathered = std::size_t{64} << 20;

// A round in which each host sends every other one so many bytes, by all its lanes together: until
// the network has sent the last of them, or the ranks have had the time to send and receive all.
double round_us(const HostTraffic& traffic, double bytes, const NetworkProfile& network) noexcept {
  const double others = traffic.hosts - 1, message = network.message_us;
  const double sent = bytes * network.us_per_byte;
  const double last = message + std::max(others * sent, (others - 1) * message + sent) +
                      network.latency_us + message;
  const double first = message + sent + network.latency_us;
  return std::max(last, std::max(others * message, first) + others * message);
}

// Rounds in which each lane sends one message and gets one: while one lane waits, others send.
class Rounds {
 public:
  Rounds(double lanes, const NetworkProfile& network) : lanes_(lanes), network_(network) {}

  // So many bytes by all lanes together, of which each then reads some to reduce.
  void pass(double bytes, double read) noexcept {
    const double sent = bytes * network_.us_per_byte, of_lane = sent / lanes_;
    const double message = network_.message_us;
    const double rest = network_.latency_us + message + read / lanes_ * network_.reduce_us_per_byte;
    const double first = std::max(first_ + message, free_);
    free_ = std::max(last_ + message, first + sent - of_lane) + of_lane;
    first_ = first + of_lane + rest;
    last_ = free_ + rest;
  }
  double us() const noexcept { return last_; }

 private:
  const double lanes_;
  const NetworkProfile& network_;
  double first_ = 0, last_ = 0;  // when the first lane and the last one are through
  double free_ = 0;              // when the way out of the host is
};

double dissemination_us(const HostTraffic& traffic, Rounds rounds) noexcept {
  const auto inputs = static_cast<double>(traffic.inputs);
  for (int hosts = 1; hosts < traffic.hosts; hosts *= 2)
    rounds.pass(std::min(hosts, traffic.hosts - hosts) * inputs, 0);
  return rounds.us();
}

double halving_us(const HostTraffic& traffic, Rounds rounds) noexcept {
  for (int hosts = 1; hosts < traffic.hosts; hosts *= 2) {
    const auto size = static_cast<double>(hosts == 1 ? traffic.inputs : traffic.sums);
    rounds.pass(size / (2 * hosts), size / hosts);
  }
  for (int hosts = traffic.hosts; hosts > 1; hosts /= 2)
    rounds.pass(static_cast<double>(traffic.results) / hosts, 0);
  return rounds.us();
}

// A broadcast goes in chunks of each lane: a host passes on what it has while more comes.
double binomial_us(const HostTraffic& traffic, const NetworkProfile& network) noexcept {
  const double rounds = std::bit_width(static_cast<unsigned>(traffic.hosts) - 1);
  return rounds * (static_cast<double>(traffic.inputs) * network.us_per_byte +
                   2 * network.message_us + network.latency_us);
}
double chain_us(const HostTraffic& traffic, const NetworkProfile& network) noexcept {
  const double bytes = static_cast<double>(traffic.inputs), between = traffic.hosts - 1;
  const double chunk =
      std::min(bytes, static_cast<double>(Stream::kChunkBytes) * traffic.busy_lanes());
  return (bytes + (between - 1) * chunk) * network.us_per_byte +
         between * (2 * network.message_us + network.latency_us);
}

// Whether it is an algorithm of the op.
bool is_of(HostAlgorithm algorithm, OpKind op) noexcept {
  const auto is_one = [op](auto... kinds) {
    return ((planned_index(op) == planned_index(kinds)) || ...);
  };
  switch (algorithm) {
    case HostAlgorithm::one_shot:
      return is_one(OpKind::all_reduce, OpKind::reduce_scatter, OpKind::all_gather, OpKind::reduce);
    case HostAlgorithm::two_shot:
      return is_one(OpKind::all_reduce);
    case HostAlgorithm::dissemination:
      return is_one(OpKind::all_reduce, OpKind::reduce_scatter, OpKind::all_gather);
    case HostAlgorithm::halving:
      return is_one(OpKind::all_reduce, OpKind::reduce_scatter);
    case HostAlgorithm::binomial:
    case HostAlgorithm::chain:
      break;
  }
  return is_one(OpKind::broadcast);
}

}  // namespace

HostTraffic reduction_traffic(const Placement& placement, const PartialSums::Values& sums,
                              OpKind op, DType dtype, ReduceOp::Kind kind,
                              std::size_t count) noexcept {
  const DType sum = partial_type(dtype, kind);
  return {.op = op,
          .hosts = placement.hosts(),
          .lanes = placement.lanes(),
          .inputs = count * size_of(sums.inputs ? dtype : sum) * sums.most,
          .sums = count * size_of(sum),
          .results = count * size_of(dtype),
          .values = sums.most,
          .halves = sums.halves};
}

std::string to_text(const NetworkProfile& network) {
  const double rate = 1e-3 / network.us_per_byte;
  return fmt::format("{:.0f} us and {:.{}f} GB/s", network.latency_us + 2 * network.message_us,
                     rate, rate < 0.1 ? 4 : 2);
}

std::string_view name_of(HostAlgorithm algorithm) noexcept {
  return kHostAlgorithmNames[static_cast<std::size_t>(algorithm)];
}

bool applies(HostAlgorithm algorithm, const HostTraffic& traffic) noexcept {
  if (!is_of(algorithm, traffic.op)) return false;
  const bool gathers = !is_reduction(traffic.op) ||
                       traffic.inputs <= kMostGathered / static_cast<std::size_t>(traffic.hosts);
  switch (algorithm) {
    case HostAlgorithm::one_shot:
      return gathers || planned_index(traffic.op) != planned_index(OpKind::all_reduce);
    case HostAlgorithm::dissemination:  // of two hosts it is one_shot
      return traffic.hosts > 2 && gathers &&
             (is_reduction(traffic.op) || traffic.busy_lanes() == 1);
    case HostAlgorithm::halving:  // of two hosts it is two_shot
      return traffic.hosts > 2 && traffic.halves;
    case HostAlgorithm::chain:  // of two hosts it is binomial
      return traffic.hosts > 2;
    case HostAlgorithm::two_shot:
    case HostAlgorithm::binomial:
      break;
  }
  return true;
}

double predicted_us(HostAlgorithm algorithm, const HostTraffic& traffic,
                    const NetworkProfile& network) noexcept {
  const double hosts = traffic.hosts;
  const auto inputs = static_cast<double>(traffic.inputs);
  const auto results = static_cast<double>(traffic.results);
  const bool by_parts = planned_index(traffic.op) == planned_index(OpKind::reduce_scatter);
  const double lanes = traffic.busy_lanes();
  double us = 0, read = 0;  // bytes
  switch (algorithm) {
    case HostAlgorithm::one_shot:
      us = round_us(traffic, by_parts ? inputs / hosts : inputs, network);
      read = by_parts ? inputs : hosts * inputs;
      break;
    case HostAlgorithm::two_shot:
      if (traffic.hosts == 2) return halving_us(traffic, {lanes, network});
      us = round_us(traffic, inputs / hosts, network) + round_us(traffic, results / hosts, network);
      read = inputs;
      break;
    case HostAlgorithm::dissemination:
      us = dissemination_us(traffic, {lanes, network});
      read = hosts * inputs;
      break;
    case HostAlgorithm::halving:
      return halving_us(traffic, {lanes, network});
    case HostAlgorithm::binomial:
      return binomial_us(traffic, network);
    case HostAlgorithm::chain:
      return chain_us(traffic, network);
  }
  if (!is_reduction(traffic.op)) read = 0;
  return us + read / lanes * network.reduce_us_per_byte;
}

HostAlgorithm choose(const HostTraffic& traffic, const NetworkProfile& network) noexcept {
  std::optional<HostAlgorithm> best;
  double least = 0;
  for (int i = 0; i < kHostAlgorithms; ++i) {
    const auto algorithm = static_cast<HostAlgorithm>(i);
    if (!applies(algorithm, traffic)) continue;
    const double us = predicted_us(algorithm, traffic, network);
    if (best && us >= least) continue;
    best = algorithm;
    least = us;
  }
  return best.value_or(HostAlgorithm::one_shot);
}

HostPlan::HostPlan(const NetworkProfile& network, std::string forced,
                   std::vector<std::string>& warnings)
    : network_(network), forced_(std::move(forced)), overlaps_(network.busy < kMostBusy) {
  const auto force = [&](std::string_view item, std::string_view op_name, std::string_view name) {
    if (op_name.empty() && (name == kOverlap || name == kNoOverlap)) {
      overlaps_ = name == kOverlap;
      return;
    }
    bool matches = false;
    std::string known;  // algorithms of this op
    for (std::size_t op = 0; op < kPlannedOps; ++op) {
      if (!op_name.empty() && op_name != to_string(planned_op(op))) continue;
      for (int i = 0; i < kHostAlgorithms; ++i) {
        const auto algorithm = static_cast<HostAlgorithm>(i);
        if (!is_of(algorithm, planned_op(op))) continue;
        if (!op_name.empty())
          known += fmt::format("{}{}", known.empty() ? "" : ", ", name_of(algorithm));
        if (name_of(algorithm) != name) continue;
        by_op_[op] = algorithm;
        matches = true;
      }
    }
    if (matches) return;
    const std::string why = !known.empty() ? fmt::format("{} has {}", op_name, known)
                            : !op_name.empty()
                                ? fmt::format("no op with several algorithms is called {}", op_name)
                                : fmt::format(
                                      "write [op=]algorithm, by commas, with one of {}, "
                                      "or {} or {}",
                                      fmt::join(kHostAlgorithmNames, ", "), kOverlap, kNoOverlap);
    warnings.push_back(fmt::format("C10D_NATIVE_HOSTS_PLAN: '{}' is ignored: {}", item, why));
  };
  for_each_forced(forced_, force);
}

PlanReport HostPlan::report(const HostTraffic& traffic) const {
  PlanReport report;
  for (int i = 0; i < kHostAlgorithms; ++i) {
    const auto algorithm = static_cast<HostAlgorithm>(i);
    if (applies(algorithm, traffic))
      report.options.push_back(
          {std::string(name_of(algorithm)), predicted_us(algorithm, traffic, network_), false});
  }
  const double others = traffic.hosts - 1;
  double sent = static_cast<double>(traffic.inputs) * others;  // out of each host, at least
  if (is_reduction(traffic.op)) sent /= traffic.hosts;
  if (planned_index(traffic.op) == planned_index(OpKind::broadcast))
    sent = static_cast<double>(traffic.inputs);
  if (planned_index(traffic.op) == planned_index(OpKind::all_reduce))
    sent += static_cast<double>(traffic.results) * others / traffic.hosts;
  report.bound_us = 2 * network_.message_us + network_.latency_us + sent * network_.us_per_byte;
  report.network = to_text(network_);
  if (is_reduction(traffic.op) && traffic.results != 0) {
    report.values = static_cast<int>(traffic.values);
    report.inputs = static_cast<double>(traffic.inputs) / static_cast<double>(traffic.results);
  }
  if (report.options.size() < 2) {  // no choice
    report.options.clear();
    return report;
  }
  report.forced = forced_on(traffic).has_value();
  const std::string_view taken = name_of(find(traffic));
  std::ranges::stable_sort(report.options, [&](const PlanOption& a, const PlanOption& b) {
    return (a.name == taken) != (b.name == taken) ? a.name == taken : a.us < b.us;
  });
  return report;
}

}}}  // namespace c10d::v0::native
