// SPDX-License-Identifier: BSD-3-Clause
#include "examples/training/trainer/agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>
#include <stdexcept>
#include <vector>

#include "c10d/parallel/ddp.h"

namespace nn {
namespace {

using namespace c10d::parallel;

struct Setting {
  const char* name;
  std::string value;
};

// Files may have other names on other hosts, so only whether they are asked for.
std::vector<Setting> settings_of(const Task& task) {
  const Options& options = task.options;
  const auto whether = [](const std::string& path) { return path.empty() ? "no" : "yes"; };
  const auto samples = [](const DataSet& set) {
    return fmt::format("{} of [{}]", set.size, fmt::join(set.sample, ", "));
  };
  return {{"--model", options.model},
          {"training samples of --data", samples(task.data.train)},
          {"test samples of --data", samples(task.data.test)},
          {"global batch", std::to_string(task.batch_size)},
          {"--epochs", std::to_string(options.epochs)},
          {"--steps (0: all)", std::to_string(options.steps)},
          {"--lr", fmt::format("{}", options.rate)},
          {"--schedule", options.schedule},
          {"--optimizer", options.optimizer},
          {"--seed", std::to_string(options.seed)},
          {"--shift", std::to_string(options.shift)},
          {"--mode", options.reproducible ? "reproducible" : "fast"},
          {"shards", std::to_string(task.shards)},
          {"--checkpoint", whether(options.checkpoint)},
          {"--save-every (0: epochs)", std::to_string(options.save_every)},
          {"--trace", whether(options.trace)},
          {"compute library and instruction set", compute_identity()}};
}

}  // namespace

void give_up(c10d::ProcessGroup& group, const std::string& why) {
  group.abort(why);
  throw std::runtime_error(why);
}

void throw_first(c10d::ProcessGroup& group, const std::string& problem) {
  for (const std::string& text : gather_texts(group, problem))
    if (!text.empty()) give_up(group, text);
}

void check_task(c10d::ProcessGroup& group, const Task& task) {
  const std::vector<Setting> settings = settings_of(task);
  std::string own;
  for (const Setting& setting : settings) own += setting.value + "\n";
  std::vector<std::istringstream> ranks;
  for (const std::string& text : gather_texts(group, own)) ranks.emplace_back(text);
  // All ranks compare all, setting by setting: they find the same difference.
  for (const Setting& setting : settings) {
    std::string first, other;
    std::getline(ranks[0], first);
    for (std::size_t rank = 1; rank < ranks.size(); ++rank)
      if (std::getline(ranks[rank], other); other != first)
        give_up(
            group,
            fmt::format("the ranks disagree on {}: rank 0 has {}, rank {} has {}; start all with "
                        "the same options on the same data",
                        setting.name, first, rank, other));
  }
  for (const DataSet* set : {&task.data.train, &task.data.test}) {
    const std::string of = set == &task.data.train ? "training" : "test";
    check_same(group, of + " samples of --data", std::as_bytes(std::span(set->values)));
    check_same(group, of + " labels of --data", std::as_bytes(std::span(set->labels)));
  }
}

}  // namespace nn
