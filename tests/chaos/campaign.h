// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/chaos/crew.h"

namespace c10d::chaos {

struct CampaignOptions {
  std::vector<Stage> stages;
  std::uint64_t seed = 1;
  std::uint64_t cases = 0;  // of each stage; 0: as many as the time allows
  double seconds = 60;      // 0: as long as there are cases
  int jobs = 2;
  bool keep_going = false;
  bool verbose = false;
  Plant plant = Plant::none;
  std::string until = {};  // with keep_going: ends at the first finding of this kind
  Bounds bounds;
};

struct Count {
  std::uint64_t cases = 0, deviated = 0, told = 0, recovered = 0, findings = 0;
};

// One finding of the campaign, with what repeats it.
struct Found {
  std::string stage, deviation, kind, text;
  std::uint64_t seed = 0;
  Plant plant = Plant::none;
};

struct Outcome {
  std::map<std::string, std::map<std::string, Count>> counts;  // by stage and deviation
  std::vector<Found> findings;
  double seconds = 0;
  bool interrupted = false;
};

// Runs the cases in processes that end with this one, and prints what they find.
Outcome run_campaign(const CampaignOptions& options);
std::string repeat_command(const Found& found);

}  // namespace c10d::chaos
