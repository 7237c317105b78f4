// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/checkpoint/agreement.h"

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "c10d/parallel/checkpoint.h"
#include "src/parallel/common/consistency.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

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

}  // namespace

std::vector<nlohmann::json> agree(const ProcessGroup& group, std::string_view phase,
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

}}}  // namespace c10d::v0::parallel
