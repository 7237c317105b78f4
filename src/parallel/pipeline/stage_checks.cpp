// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/pipeline/stage_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <new>
#include <utility>

#include "src/parallel/common/host_memory.h"
#include "src/parallel/common/throw_invalid.h"

namespace c10d { inline namespace v0 { namespace parallel {

Stage::~Stage() = default;

View Stage::tied_gradient(std::string_view name) {
  throw_invalid("this stage holds no tied weight {}", name);
}

std::optional<std::size_t> bytes_of(std::span<const std::int64_t> shape, DType dtype,
                                    std::size_t limit) {
  if (shape.size() > kMaxActivationDims) return {};
  // An extent of 0 makes the others harmless, wherever it stands.
  const bool empty = std::ranges::find(shape, 0) != shape.end();
  std::size_t bytes = size_of(dtype);
  for (const std::int64_t extent : shape) {
    if (extent < 0 || (!empty && static_cast<std::size_t>(extent) > limit / bytes)) return {};
    if (!empty) bytes *= static_cast<std::size_t>(extent);
  }
  return empty ? 0 : bytes;
}

Activation make_activation(std::vector<std::int64_t> shape, DType dtype) {
  constexpr std::align_val_t kAlignment{64};
  const auto bytes = bytes_of(shape, dtype, std::numeric_limits<std::ptrdiff_t>::max());
  if (!bytes)
    throw_invalid(
        "an activation cannot be {}: it has at most {} dimensions, none negative, and fits in "
        "memory",
        to_text(shape, dtype), kMaxActivationDims);
  std::shared_ptr<void> owner(::operator new(std::max<std::size_t>(*bytes, 1), kAlignment),
                              [](void* data) { ::operator delete(data, kAlignment); });
  void* const data = owner.get();
  return {std::move(shape), View(data, *bytes / size_of(dtype), dtype), std::move(owner)};
}

ActivationHeader header_of(const Activation& activation) {
  ActivationHeader header{static_cast<std::int64_t>(activation.data.dtype),
                          static_cast<std::int64_t>(activation.shape.size())};
  std::ranges::copy(activation.shape, header.begin() + 2);
  return header;
}

std::optional<Activation> make_activation(const ActivationHeader& header, std::size_t limit) {
  if (header[0] < 0 || header[0] >= kDTypeCount || header[1] < 0 ||
      header[1] > static_cast<std::int64_t>(kMaxActivationDims))
    return {};
  const auto dtype = static_cast<DType>(header[0]);
  std::vector<std::int64_t> shape(header.begin() + 2, header.begin() + 2 + header[1]);
  if (!bytes_of(shape, dtype, limit)) return {};
  return make_activation(std::move(shape), dtype);
}

std::string problem_of(const Activation& activation, std::size_t limit) {
  const View& data = activation.data;
  if (bytes_of(activation.shape, data.dtype, limit) != data.bytes())
    return fmt::format(
        "{} with {} elements: shape and elements must agree, within {} bytes "
        "(PipelineOptions::activation_limit)",
        to_text(activation.shape, data.dtype), data.count, limit);
  if (data.data == nullptr && data.count > 0)
    return fmt::format("an activation of {} elements without memory", data.count);
  return why_not_on_host(data);
}

void check_stages(const std::map<int, Stage*>& stages, std::span<const int> rank_of_stage,
                  int rank) {
  const int count = static_cast<int>(rank_of_stage.size());
  if (!stages.empty() && (stages.begin()->first < 0 || stages.rbegin()->first >= count))
    throw_invalid("pipeline: stages {} to {} were given, and the schedule has 0 to {}",
                  stages.begin()->first, stages.rbegin()->first, count - 1);
  for (int stage = 0; stage < count; ++stage) {
    const auto given = stages.find(stage);
    const bool there = given != stages.end() && given->second != nullptr;
    const int owner = rank_of_stage[static_cast<std::size_t>(stage)];
    if (there != (owner == rank))
      throw_invalid("pipeline: the schedule has stage {} on rank {}, but rank {} {}", stage, owner,
                    rank, there ? "was given it" : "was not given it");
  }
}

void check_tied(std::span<const TiedWeight> all, int stages) {
  for (const TiedWeight& tied : all) {
    const std::vector<int>& of = tied.stages;
    if (of.empty() || of.front() < 0 || of.back() >= stages ||
        std::ranges::adjacent_find(of, std::greater_equal<>()) != of.end())
      throw_invalid("pipeline: tied weight {} names stages [{}]; they must ascend and lie below {}",
                    tied.name, fmt::join(of, ", "), stages);
  }
}

void check_tied(const TiedWeight& tied, const View& first, int stage, const View& other) {
  if (other.count != first.count || other.dtype != first.dtype || other.data == first.data)
    throw_invalid(
        "the gradient of {} is {} x {} at {} in stage {} and {} x {} at {} in stage {}; it must be "
        "the same type and count in a place of its own",
        tied.name, to_string(first.dtype), first.count, first.data, tied.stages.front(),
        to_string(other.dtype), other.count, other.data, stage);
}

}}}  // namespace c10d::v0::parallel
