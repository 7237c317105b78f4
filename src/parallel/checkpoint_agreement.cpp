// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/checkpoint_agreement.h"

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "c10d/parallel/checkpoint.h"

namespace c10d::inline v0::parallel {
namespace {

constexpr std::uint64_t kMaxAgreedBytes = std::uint64_t{1} << 30;

std::string outcome_of(std::string_view phase, const std::function<nlohmann::json()>& local) {
  nlohmann::json outcome = {{"phase", phase}};
  try {
    return nlohmann::json{{"phase", phase}, {"value", local()}}.dump();
  } catch (const CheckpointError& error) {
    const CheckpointFailure& failure = error.failure();
    outcome["error"] = failure.message;
    outcome["file"] = failure.file;
    outcome["offset"] = failure.offset;
  } catch (const std::exception& error) {
    outcome["error"] = error.what();
  }
  // What went wrong need not be UTF-8.
  return outcome.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& text) {
  const auto size = static_cast<std::size_t>(group.size());
  std::vector<std::uint64_t> lengths(size);
  const std::uint64_t length = text.size();
  group.all_gather(lengths, std::span(&length, 1));
  std::uint64_t total = 0;
  for (const std::uint64_t other : lengths) {
    if (other > kMaxAgreedBytes - total)
      throw CheckpointError(
          {.message =
               fmt::format("the ranks' lists take more than {} bytes: fewer or larger tensors",
                           kMaxAgreedBytes)});
    total += other;
  }
  const std::vector<std::size_t> counts(lengths.begin(), lengths.end());
  std::string all(total, '\0');
  group.all_gather_v({all.data(), all.size(), DType::u8}, {text.data(), text.size(), DType::u8},
                     counts);
  std::vector<std::string> texts;
  for (std::size_t rank = 0, at = 0; rank < size; at += counts[rank++])
    texts.push_back(all.substr(at, counts[rank]));
  return texts;
}

}  // namespace

std::vector<nlohmann::json> agree(ProcessGroup& group, std::string_view phase,
                                  const std::function<nlohmann::json()>& local) {
  std::vector<nlohmann::json> values;
  std::optional<CheckpointFailure> first;
  int rank = 0;
  std::string first_phase;
  for (const std::string& text : gather_texts(group, outcome_of(phase, local))) {
    nlohmann::json outcome = nlohmann::json::parse(text);
    const std::string its_phase = outcome.at("phase");
    if (rank == 0) first_phase = its_phase;
    if (!first && its_phase != first_phase)
      first = {
          .message = fmt::format("rank {} calls {}, rank 0 calls {}", rank, its_phase, first_phase),
          .rank = rank};
    if (!first && outcome.contains("error"))
      first = {.message = fmt::format("rank {}: {}", rank,
                                      outcome.at("error").get_ref<const std::string&>()),
               .rank = rank,
               .file = outcome.value("file", ""),
               .offset = outcome.value("offset", std::uint64_t{0})};
    values.push_back(std::move(outcome["value"]));
    ++rank;
  }
  if (first) throw CheckpointError(*std::move(first));
  return values;
}

}  // namespace c10d::inline v0::parallel
