// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/plan/algorithm_plan.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "src/base/hash.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

constexpr auto kPlannedKinds =
    std::array{OpKind::all_reduce, OpKind::broadcast, OpKind::all_gather, OpKind::reduce_scatter,
               OpKind::reduce,     OpKind::gather,    OpKind::scatter,    OpKind::all_to_all};
static_assert(kPlannedKinds.size() == kPlannedOps);

struct Stores {
  StorePolicy store, results;
};
constexpr Stores kTemporal{StorePolicy::temporal, StorePolicy::temporal};
constexpr Stores kMixed{StorePolicy::temporal, StorePolicy::streaming};
constexpr Stores kStreaming{StorePolicy::streaming, StorePolicy::streaming};
constexpr std::size_t kStaged = 2 * 3 * std::size(kChunks);

constexpr auto all_choices() {
  std::array<AlgorithmChoice, kStaged + 2 * 2> all{};
  std::size_t next = 0;
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot})
    for (const Stores& stores : {kTemporal, kMixed, kStreaming})
      for (const std::uint32_t chunk : kChunks)
        all[next++] = {algorithm, stores.store, stores.results, chunk};
  for (const Algorithm algorithm : {Algorithm::pull, Algorithm::push})
    for (const Stores& stores : {kTemporal, kStreaming})
      all[next++] = {algorithm, stores.store, stores.results, 0};
  return all;
}
constexpr auto kChoices = all_choices();

std::string_view name_of(Algorithm algorithm) {
  constexpr std::array<std::string_view, 4> kNames = {"one_shot", "two_shot", "pull", "push"};
  return kNames[static_cast<std::size_t>(algorithm)];
}

// "two_shot", "two_shot/streaming" and "two_shot/streaming/32768" all name that choice.
bool is_named(const AlgorithmChoice& choice, std::string_view text) {
  const std::string full = name_of(choice);
  return full.starts_with(text) && (full.size() == text.size() || full[text.size()] == '/');
}

}  // namespace

std::span<const AlgorithmChoice> choices() noexcept { return kChoices; }
OpKind planned_op(std::size_t index) noexcept { return kPlannedKinds[index]; }

std::string name_of(const AlgorithmChoice& choice) {
  const char* const store = choice.store == StorePolicy::streaming     ? "streaming"
                            : choice.results == StorePolicy::streaming ? "mixed"
                                                                       : "temporal";
  std::string name = fmt::format("{}/{}", name_of(choice.algorithm), store);
  if (choice.chunk != 0) name += fmt::format("/{}", choice.chunk);
  return name;
}

bool applies(const AlgorithmChoice& choice, const PlanKey& key, const TeamProfile& host) noexcept {
  switch (choice.algorithm) {
    case Algorithm::one_shot:
      return true;
    case Algorithm::two_shot:
      return key.op == OpKind::all_reduce || key.op == OpKind::reduce;
    case Algorithm::pull:
      return key.registered || host.cma;
    case Algorithm::push:
      return key.registered && key.op != OpKind::reduce_scatter;
  }
  return false;
}

std::size_t CostModel::place(std::size_t op, bool half, bool registered,
                             std::size_t choice) noexcept {
  return ((op * 2 + (half ? 1 : 0)) * 2 + (registered ? 1 : 0)) * kChoices.size() + choice;
}

CostModel::CostModel(const TeamProfile& host, std::vector<Curve> curves)
    : host_(host), curves_(std::move(curves)) {
  if (curves_.empty()) return;
  index_.resize(kPlannedOps * 4 * kChoices.size());
  for (std::size_t i = 0; i < curves_.size(); ++i) {
    const Curve& curve = curves_[i];
    index_[place(curve.op, curve.half, curve.registered, curve.choice)] =
        static_cast<std::uint32_t>(i + 1);
  }
}

const Curve* CostModel::curve(std::size_t choice, const PlanKey& key) const noexcept {
  if (index_.empty()) return nullptr;
  const std::uint32_t found =
      index_[place(planned_index(key.op), key.half, key.registered, choice)];
  return found == 0 ? nullptr : &curves_[found - 1];
}

bool CostModel::is_measured(std::size_t choice, const PlanKey& key) const noexcept {
  return curve(choice, key) != nullptr;
}

double CostModel::us(std::size_t choice, const PlanKey& key) const noexcept {
  if (!applies(kChoices[choice], key, host_)) return std::numeric_limits<double>::infinity();
  const Curve* const measured = curve(choice, key);
  if (measured == nullptr) return modelled_us(kChoices[choice], key, host_);
  const std::vector<double>& x = measured->bytes;
  const std::vector<double>& y = measured->us;
  const auto bytes = static_cast<double>(std::max<std::uint64_t>(key.bytes, 1));
  if (bytes <= x.front()) return y.front();
  if (bytes >= x.back()) return y.back() * bytes / x.back();
  const auto above =
      static_cast<std::size_t>(std::upper_bound(x.begin(), x.end(), bytes) - x.begin());
  const double part = std::log(bytes / x[above - 1]) / std::log(x[above] / x[above - 1]);
  return y[above - 1] * std::pow(y[above] / y[above - 1], part);
}

Plan::Plan(const CostModel& costs, std::string_view forced, std::vector<std::string>& warnings) {
  const auto winner = [&](const PlanKey& key) {
    std::size_t best = 0;
    double least = costs.us(0, key);
    for (std::size_t i = 1; i < kChoices.size(); ++i)
      if (const double us = costs.us(i, key); us < least) {
        best = i;
        least = us;
      }
    return static_cast<std::uint8_t>(best);
  };
  for (std::size_t op = 0; op < kPlannedOps; ++op) {
    auto& rows = winners_[op];
    for (const bool half : {false, true}) {
      if (half && !is_reduction(kPlannedKinds[op])) continue;  // see plan_key()
      for (const bool registered : {false, true})
        for (std::size_t cell = 0; cell < kCells; ++cell)
          rows[half][registered][cell] =
              winner({kPlannedKinds[op], bytes_of_cell(cell), half, registered});
    }
  }
  for_each_forced(forced, [&](std::string_view item, std::string_view op_name,
                              std::string_view name) {
    bool known = false;
    for (std::size_t op = 0; op < kPlannedOps; ++op) {
      if (!op_name.empty() && op_name != to_string(kPlannedKinds[op])) continue;
      for (const bool registered : {false, true})
        for (std::size_t i = kChoices.size(); i-- > 0;) {  // the first match wins
          if (!is_named(kChoices[i], name)) continue;
          known = true;
          if (!applies(kChoices[i], {kPlannedKinds[op], 0, false, registered}, costs.host()))
            continue;
          for (auto& by_class : winners_[op])
            by_class[registered].fill(static_cast<std::uint8_t>(i));
        }
    }
    if (!known)
      warnings.push_back(fmt::format(
          "C10D_NATIVE_PLAN: '{}' names no algorithm; write [op=]algorithm[/store[/chunk]], as {}",
          item, native::name_of(kChoices.front())));
  });
  id_ = hash();
}

bool Plan::valid() const noexcept {
  for (const auto& op : winners_)
    for (const auto& dtype : op)
      for (const Row& row : dtype)
        for (const std::uint8_t winner : row)
          if (winner >= kChoices.size()) return false;
  return id_ == hash();
}

std::uint64_t Plan::hash() const noexcept {
  std::uint64_t hash = kFnvStart;
  for (const auto& op : winners_)
    for (const auto& dtype : op)
      for (const Row& row : dtype)
        hash = fnv1a({reinterpret_cast<const char*>(row.data()), row.size()}, hash);
  return hash;
}

}}}  // namespace c10d::v0::native
