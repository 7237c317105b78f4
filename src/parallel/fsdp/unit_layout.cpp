// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/fsdp/unit_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "src/parallel/common/merge_plan.h"
#include "src/parallel/common/parameters.h"
#include "src/parallel/common/throw_invalid.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

std::size_t elements_of(const Unit& unit) {
  std::size_t count = 0;
  for (const ParamSpec& spec : unit.parameters) count += spec.count();
  return count;
}

}  // namespace

std::string layer_of(const ParamSpec& parameter) {
  return parameter.name.substr(0, parameter.name.rfind('.'));
}

std::vector<Unit> wrap(std::span<const ParamSpec> parameters, const WrapPolicy& policy) {
  std::vector<Unit> units;
  std::string current;
  for (const ParamSpec& spec : parameters) {
    std::string name = policy.unit_of(spec);
    if (units.empty() ||
        (name != current && elements_of(units.back()) * sizeof(float) >= policy.min_bytes))
      units.push_back({name, {}});
    units.back().parameters.push_back(spec);
    current = std::move(name);
  }
  return units;
}

UnitLayout::UnitLayout(const Unit& unit_, int size) : unit(unit_), begins{0} {
  std::vector<std::size_t> cuts;
  for (const ParamSpec& spec : unit.parameters) {
    for (std::size_t at = 0; at < spec.count(); at += kNormBlock)
      cuts.push_back(begins.back() + at);
    begins.push_back(begins.back() + spec.count());
  }
  cuts.push_back(count());
  // Each boundary is the cut that lies nearest to an even share.
  const auto ranks = static_cast<std::size_t>(size);
  for (std::size_t rank = 0; rank <= ranks; ++rank) {
    const std::size_t even = count() / ranks * rank + count() % ranks * rank / ranks;
    auto cut = std::lower_bound(cuts.begin(), cuts.end(), even);
    if (cut != cuts.begin() && even - *std::prev(cut) <= *cut - even) --cut;
    if (rank > 0) counts.push_back(*cut - firsts.back());
    firsts.push_back(*cut);
  }
}

std::string problem_of(std::span<const Unit> units, const FsdpOptions& options, int replicas) {
  if (units.empty()) return "no units";
  for (const Unit& unit : units) {
    for (const ParamSpec& spec : unit.parameters)
      if (spec.dtype != DType::f32)
        return fmt::format("parameter {} is {}: masters are f32", spec.name, to_text(spec));
    if (elements_of(unit) == 0) return fmt::format("unit {} has no elements", unit.name);
  }
  const Sharding& sharding = options.sharding;
  if (std::max({sharding.parameters, sharding.gradients, sharding.optimizer}) > Placement::sharded)
    return "sharding holds a value that does not exist; there are replicated and sharded";
  if (options.mode > ReduceMode::reproducible)
    return "this mode does not exist; there are fast and reproducible";
  if (sharding.parameters > sharding.gradients || sharding.gradients > sharding.optimizer)
    return "parameters are sharded without gradients, or gradients without the optimizer";
  if (options.compute != DType::f32 && options.compute != DType::bf16)
    return fmt::format("compute is {}, not f32 or bf16", to_string(options.compute));
  if (options.reduce != DType::f32 && options.reduce != DType::bf16)
    return fmt::format("reduce is {}, not f32 or bf16", to_string(options.reduce));
  if (options.gradient_buffers < 1) return "gradient_buffers must be 1 or more";
  if (options.mode == ReduceMode::fast) return {};
  if (options.reduce != DType::f32)
    return fmt::format("reduce is {}: sums are f32 in mode reproducible",
                       to_string(options.reduce));
  if (options.shards < 1 || options.shards > 65536) return "shards must be from 1 to 65536";
  if (!std::has_single_bit(static_cast<unsigned>(replicas)) || options.shards % replicas != 0)
    return fmt::format(
        "{} shards cannot be split over {} replicas in tree order: their number "
        "must be a power of two that divides the shards",
        options.shards, replicas);
  return {};
}

int shards_of_group(const FsdpOptions& options, int size, int replicas) noexcept {
  return options.mode == ReduceMode::fast ? size : options.shards / replicas;
}

std::size_t gathered_buffers(const FsdpOptions& options, std::size_t units,
                             std::size_t largest) noexcept {
  if (options.sharding.parameters == Placement::replicated) return 0;
  // No unit is gathered twice at a time.
  return std::min(units, 1 + options.prefetch_bytes / (largest * size_of(options.compute)));
}

FsdpMemory plan_memory(std::span<const Unit> units, const FsdpOptions& options, int rank, int size,
                       int replicas) {
  if (const std::string problem = problem_of(units, options, replicas); !problem.empty())
    throw InvalidArgument("plan_memory: " + problem);
  if (size < 1 || rank < 0 || rank >= size)
    throw_invalid("plan_memory: rank {} is out of [0, {})", rank, size);
  const int shards = shards_of_group(options, size, replicas);
  const auto slots =
      static_cast<std::size_t>(slots_of(merge_plan(shards, shards_of(shards, rank, size))));
  const auto is_sharded = [](Placement kept) { return kept == Placement::sharded; };
  const std::size_t width = size_of(options.compute);
  FsdpMemory memory;
  std::size_t largest = 0;
  for (const Unit& unit : units) {
    const UnitLayout layout(unit, size);
    const std::size_t count = layout.count();
    const std::size_t own = is_sharded(options.sharding.optimizer)
                                ? layout.counts[static_cast<std::size_t>(rank)]
                                : count;
    largest = std::max(largest, count);
    const bool has_arena = !is_sharded(options.sharding.parameters);
    memory.parameters += has_arena ? count * width : 0;
    if (!has_arena || options.compute != DType::f32) memory.parameters += own * sizeof(float);
    if (!is_sharded(options.sharding.gradients))
      memory.gradients += slots * count * sizeof(float);
    else if (&unit - units.data() >= options.gradient_buffers)
      memory.gradients += own * sizeof(float);
  }
  memory.gathered = gathered_buffers(options, units.size(), largest) * largest * width;
  if (is_sharded(options.sharding.gradients))
    memory.gradient_buffers =
        static_cast<std::size_t>(options.gradient_buffers) * slots * largest * sizeof(float);
  return memory;
}

std::string options_text(std::span<const Unit> units, const FsdpOptions& options) {
  std::string text = fmt::format(
      "sharding {}{}{}, mode {}, shards {}, compute {}, reduce {}, prefetch_bytes {}, "
      "gradient_buffers {}, units",
      int(options.sharding.parameters), int(options.sharding.gradients),
      int(options.sharding.optimizer), int(options.mode), options.shards,
      to_string(options.compute), to_string(options.reduce), options.prefetch_bytes,
      options.gradient_buffers);
  for (const Unit& unit : units) text += fmt::format(" {}:{}", unit.name, unit.parameters.size());
  return text;
}

std::vector<TensorPart> parts_of(const UnitLayout& layout, std::string_view prefix,
                                 std::span<float> shard, std::size_t first) {
  std::vector<TensorPart> parts;
  const std::size_t last = first + shard.size();
  for (std::size_t i = 0; i < layout.unit.parameters.size(); ++i) {
    const std::size_t begin = std::max(layout.begins[i], first);
    const std::size_t end = std::min(layout.begins[i + 1], last);
    if (begin > end || (begin == end && layout.unit.parameters[i].count() > 0)) continue;
    ParamSpec spec = layout.unit.parameters[i];
    spec.name = std::string(prefix) + spec.name;
    parts.push_back({std::move(spec), begin - layout.begins[i],
                     std::as_writable_bytes(shard.subspan(begin - first, end - begin))});
  }
  return parts;
}

}}}  // namespace c10d::v0::parallel
