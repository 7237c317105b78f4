// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <limits>
#include <utility>

#include "c10d/error.h"
#include "src/parallel/pipeline_state.h"

namespace c10d::inline v0::parallel {

Stage::~Stage() = default;

Tensor Stage::tied_gradient(std::string_view name) {
  throw InvalidArgument(fmt::format("this stage holds no tied weight {}", name));
}

namespace {

std::vector<Action> own_pipeline_actions(const ProcessGroup& group,
                                         const PipelineOptions& options) {
  const std::size_t rows = options.schedule.ranks.size();
  if (rows != static_cast<std::size_t>(group.size()))
    throw InvalidArgument(fmt::format("pipeline: the schedule is for {} ranks, the group has {}",
                                      rows, group.size()));
  return lower(options.schedule, options.skips).ranks[static_cast<std::size_t>(group.rank())];
}

}  // namespace

Pipeline::State::State(ProcessGroup& group_, std::map<int, Stage*> stages_,
                       PipelineOptions options_)
    : group(group_),
      stages(std::move(stages_)),
      options(std::move(options_)),
      facts(validate(options.schedule, options.skips)),
      graph(static_cast<int>(facts.rank_of_stage.size()), options.skips),
      actions(own_pipeline_actions(group, options)) {
  check_stages();
  check_tied();
  check_tags();
}

void Pipeline::State::check_stages() const {
  const int count = static_cast<int>(facts.rank_of_stage.size());
  if (!stages.empty() && (stages.begin()->first < 0 || stages.rbegin()->first >= count))
    throw InvalidArgument(fmt::format("pipeline: of stages {} to {} the schedule has 0 to {}",
                                      stages.begin()->first, stages.rbegin()->first, count - 1));
  for (int stage = 0; stage < count; ++stage) {
    const auto given = stages.find(stage);
    const bool there = given != stages.end() && given->second != nullptr;
    if (there != (rank_of(stage) == group.rank()))
      throw InvalidArgument(
          fmt::format("pipeline: the schedule has stage {} on rank {}, but rank {} {}", stage,
                      rank_of(stage), group.rank(), there ? "was given it" : "lacks it"));
  }
}

void Pipeline::State::check_tied() const {
  const int count = static_cast<int>(facts.rank_of_stage.size());
  for (const TiedWeight& tied : options.tied) {
    const std::vector<int>& of = tied.stages;
    if (of.empty() || of.front() < 0 || of.back() >= count ||
        std::ranges::adjacent_find(of, std::greater_equal<>()) != of.end())
      throw InvalidArgument(fmt::format(
          "pipeline: tied weight {} names stages [{}]; they must ascend and lie below {}",
          tied.name, fmt::join(of, ", "), count));
  }
}

void Pipeline::State::check_tags() const {
  constexpr std::size_t kLimit = std::numeric_limits<std::int32_t>::max();
  const std::size_t edges = graph.edges().size();
  if (edges >= kLimit / kTagsPerMessage / static_cast<std::size_t>(facts.micro_batches))
    throw InvalidArgument(fmt::format(
        "pipeline: {} edges between stages and {} micro-batches need more tags than there are",
        edges, facts.micro_batches));
}

std::uint64_t Pipeline::State::digest() const {
  std::string text = to_csv(lower(options.schedule, options.skips));
  for (const Skip& edge : graph.edges()) text += fmt::format("{} {};", edge.from, edge.to);
  for (const TiedWeight& tied : options.tied)
    text += fmt::format("{} {};", tied.name, fmt::join(tied.stages, " "));
  text += std::to_string(options.activation_limit);
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

namespace {

struct PipelineVerdict {
  std::uint64_t digest = 0;
  std::array<char, 504> why{};  // empty: nothing is wrong
};
static_assert(sizeof(PipelineVerdict) == 512);

// Collective. Throws when another rank refused, or holds something else than rank 0.
void agree_on_pipeline(ProcessGroup& group, const PipelineVerdict& own) {
  std::vector<PipelineVerdict> all(static_cast<std::size_t>(group.size()));
  group.all_gather(Tensor(all.data(), all.size() * sizeof(PipelineVerdict), DType::u8),
                   ConstTensor(&own, sizeof(PipelineVerdict), DType::u8));
  if (own.why[0] != '\0') return;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::string text;
    if (all[rank].why[0] != '\0')
      text = fmt::format("rank {} cannot make the pipeline: {}", rank, all[rank].why.data());
    else if (all[rank].digest != all[0].digest)
      text = fmt::format(
          "rank {} has another schedule, other skips, tied weights or another "
          "activation limit than rank 0",
          rank);
    if (!text.empty())
      throw_failure({.code = Code::mismatch,
                     .message = text,
                     .rank = static_cast<int>(rank),
                     .group = group.id(),
                     .op = "pipeline"});
  }
}

}  // namespace

Pipeline::Pipeline(ProcessGroup& group, std::map<int, Stage*> stages, PipelineOptions options) {
  PipelineVerdict own;
  std::exception_ptr refusal;
  try {
    state_ = std::make_unique<State>(group, std::move(stages), std::move(options));
    own.digest = state_->digest();
  } catch (const std::exception& error) {
    refusal = std::current_exception();
    const std::string_view what = error.what();
    std::ranges::copy(what.substr(0, own.why.size() - 1), own.why.begin());
  }
  agree_on_pipeline(group, own);
  if (refusal) std::rethrow_exception(refusal);
}

Pipeline::~Pipeline() = default;

}  // namespace c10d::inline v0::parallel
