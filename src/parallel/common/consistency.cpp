// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/common/consistency.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "c10d/parallel/ddp.h"
#include "src/base/hash.h"
#include "src/parallel/common/parameters.h"

namespace c10d { inline namespace v0 { namespace parallel {

ProcessGroup duplicate_group(const ProcessGroup& group, std::string_view name) {
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return group.new_group(ranks, name);
}

void check_same(const ProcessGroup& group, std::string_view what,
                std::span<const std::byte> bytes) {
  const std::vector<std::uint64_t> own{hash_bytes(bytes)};
  std::vector<std::uint64_t> all(static_cast<std::size_t>(group.size()));
  group.all_gather(all, own);
  std::vector<std::size_t> others;
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0]) others.push_back(rank);
  if (others.empty()) return;
  throw_failure({.code = Code::mismatch,
                 .message = fmt::format("{} differ: ranks {} do not have the bits of rank 0 "
                                        "({:016x} instead of {:016x})",
                                        what, fmt::join(others, ", "), all[others[0]], all[0]),
                 .rank = static_cast<int>(others[0]),
                 .group = group.id()});
}

namespace {

// What one rank says of itself: lines. The first is its problem, the second its options, the others
// are parameters.
std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string without_newlines(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// How `rank`'s lines differ from those of rank 0; empty when they do not.
std::string difference(std::span<const std::string> first, std::span<const std::string> theirs,
                       int rank) {
  if (theirs[1] != first[1])
    return fmt::format("rank 0 has the options {}, rank {} has {}", first[1], rank, theirs[1]);
  const std::size_t common = std::min(first.size(), theirs.size());
  for (std::size_t i = 2; i < common; ++i)
    if (theirs[i] != first[i])
      return fmt::format("parameter {} is {} on rank 0, and {} on rank {}", i - 2, first[i],
                         theirs[i], rank);
  if (first.size() > common)
    return fmt::format("rank {} lacks parameter {}, which is {} on rank 0", rank, common - 2,
                       first[common]);
  if (theirs.size() > common)
    return fmt::format("rank {} has one parameter more than rank 0: {} is {}", rank, common - 2,
                       theirs[common]);
  return {};
}

}  // namespace

std::vector<std::string> gather_texts(const ProcessGroup& group, const std::string& own) {
  const auto size = static_cast<std::size_t>(group.size());
  const std::vector<std::uint64_t> length{own.size()};
  std::vector<std::uint64_t> lengths(size);
  group.all_gather(lengths, length);
  const std::vector<std::size_t> counts(lengths.begin(), lengths.end());
  std::vector<std::uint8_t> all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  if (all.empty()) return std::vector<std::string>(size);
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(own.data());
  group.all_gather_v(all, std::span(bytes, own.size()), counts);
  std::vector<std::string> texts;
  auto at = all.begin();
  for (const std::size_t count : counts) {
    texts.emplace_back(at, at + static_cast<std::ptrdiff_t>(count));
    at += static_cast<std::ptrdiff_t>(count);
  }
  return texts;
}

void agree_on_parameters(const ProcessGroup& group, std::string_view who,
                         std::span<const ParamSpec> list, std::string_view options,
                         std::string problem) {
  try {
    check_list(who, list);
  } catch (const InvalidArgument& error) {
    problem = error.what();
  }
  std::string own = fmt::format("{}\n{}\n", without_newlines(problem), options);
  for (const ParamSpec& spec : list)
    own += fmt::format("{} {}\n", without_newlines(spec.name), to_text(spec));
  // Two numbers first: the texts of large models are not worth sending when they are the same.
  const std::uint64_t hash = hash_bytes(std::as_bytes(std::span(own)));
  const std::vector<std::uint64_t> mine{hash, problem.empty() ? 0u : 1u};
  std::vector<std::uint64_t> all(2 * static_cast<std::size_t>(group.size()));
  group.all_gather(all, mine);
  bool same = mine[1] == 0;
  for (std::size_t i = 0; i < all.size(); i += 2) same = same && all[i] == hash && all[i + 1] == 0;
  if (same) return;

  const std::vector<std::string> texts = gather_texts(group, own);
  if (!problem.empty()) throw InvalidArgument(problem);
  Failure failure{.code = Code::mismatch, .group = group.id()};
  const auto first = lines_of(texts[0]);
  for (std::size_t rank = 0; rank < texts.size() && failure.message.empty(); ++rank) {
    const auto theirs = lines_of(texts[rank]);
    failure.rank = static_cast<int>(rank);
    if (!theirs[0].empty()) failure.message = fmt::format("rank {}: {}", rank, theirs[0]);
  }
  for (std::size_t rank = 1; rank < texts.size() && failure.message.empty(); ++rank) {
    failure.rank = static_cast<int>(rank);
    const std::string text = difference(first, lines_of(texts[rank]), failure.rank);
    if (!text.empty())
      failure.message = fmt::format(
          "{}: the ranks disagree: {}; give every rank the same list "
          "of parameters and the same options",
          who, text);
  }
  throw_failure(failure);
}

}}}  // namespace c10d::v0::parallel
