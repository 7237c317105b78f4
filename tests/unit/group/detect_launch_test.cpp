// SPDX-License-Identifier: BSD-3-Clause
#include "src/group/detect_launch.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "c10d/error.h"

namespace c10d { inline namespace v0 { namespace {

using Variables = std::map<std::string, std::string>;

LaunchInfo detect(const Variables& variables) {
  return detect_launch([&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    if (found == variables.end() || found->second.empty()) return std::nullopt;
    return found->second;
  });
}

std::string error_of(const Variables& variables) {
  try {
    detect(variables);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

Variables operator+(Variables a, const Variables& b) {
  a.insert(b.begin(), b.end());
  return a;
}

// What each launcher sets for rank `rank` of `size` on one host.
struct Family {
  std::string launcher;
  bool compared;  // with the others: a disagreement is an error
  Variables (*set)(int rank, int size);
};

std::string text(int number) { return std::to_string(number); }

const std::vector<Family> kFamilies = {
    {"c10d", true,
     [](int rank, int size) {
       return Variables{{"C10D_RANK", text(rank)},
                        {"C10D_WORLD_SIZE", text(size)},
                        {"C10D_LOCAL_RANK", text(rank)},
                        {"C10D_LOCAL_WORLD_SIZE", text(size)}};
     }},
    {"torchrun", true,
     [](int rank, int size) {
       return Variables{{"RANK", text(rank)},
                        {"WORLD_SIZE", text(size)},
                        {"LOCAL_RANK", text(rank)},
                        {"LOCAL_WORLD_SIZE", text(size)}};
     }},
    {"openmpi", true,
     [](int rank, int size) {
       return Variables{{"OMPI_COMM_WORLD_RANK", text(rank)},
                        {"OMPI_COMM_WORLD_SIZE", text(size)},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", text(rank)},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", text(size)}};
     }},
    {"pmi", true,
     [](int rank, int size) {
       return Variables{{"PMI_RANK", text(rank)},
                        {"PMI_SIZE", text(size)},
                        {"MPI_LOCALRANKID", text(rank)},
                        {"MPI_LOCALNRANKS", text(size)}};
     }},
    {"slurm", false,
     [](int rank, int size) {
       return Variables{{"SLURM_PROCID", text(rank)}, {"SLURM_NTASKS", text(size)},
                        {"SLURM_STEP_ID", "0"},       {"SLURM_LOCALID", text(rank)},
                        {"SLURM_NODEID", "0"},        {"SLURM_STEP_TASKS_PER_NODE", text(size)}};
     }},
    {"k8s", false,
     [](int rank, int size) {
       return Variables{{"JOB_COMPLETION_INDEX", text(rank)}, {"WORLD_SIZE", text(size)}};
     }},
};

TEST(DetectLaunch, OneProcessNeedsNothing) {
  const LaunchInfo info = detect({});
  EXPECT_EQ(info.launcher, "none");
  EXPECT_EQ(info.rank, 0);
  EXPECT_EQ(info.size, 1);
  EXPECT_EQ(info.local_rank, 0);
  EXPECT_EQ(info.local_size, 1);
}

TEST(DetectLaunch, EachFamilyAlone) {
  for (const Family& family : kFamilies) {
    const LaunchInfo info = detect(family.set(2, 4));
    EXPECT_EQ(info.launcher, family.launcher);
    EXPECT_EQ(info.rank, 2) << family.launcher;
    EXPECT_EQ(info.size, 4) << family.launcher;
    EXPECT_EQ(info.local_rank, family.launcher == "k8s" ? 0 : 2) << family.launcher;
    EXPECT_EQ(info.local_size, family.launcher == "k8s" ? 1 : 4) << family.launcher;
    EXPECT_GE(info.evidence.size(), 2u) << family.launcher;
  }
}

TEST(DetectLaunch, OfTwoThatAgreeTheEarlierWins) {
  for (std::size_t i = 0; i < kFamilies.size(); ++i)
    for (std::size_t j = i + 1; j < kFamilies.size(); ++j) {
      const LaunchInfo info = detect(kFamilies[i].set(1, 2) + kFamilies[j].set(1, 2));
      EXPECT_EQ(info.launcher, kFamilies[i].launcher) << kFamilies[j].launcher;
      EXPECT_EQ(info.rank, 1);
    }
}

TEST(DetectLaunch, SlurmKnowsWhoIsOnAHostWherePmiDoesNot) {
  const auto under_srun = [](int slurms_rank) {
    return detect({{"PMI_RANK", "3"},
                   {"PMI_SIZE", "4"},
                   {"SLURM_STEP_ID", "0"},
                   {"SLURM_PROCID", text(slurms_rank)},
                   {"SLURM_NTASKS", "4"},
                   {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                   {"SLURM_LOCALID", "1"},
                   {"SLURM_NODEID", "1"}});
  };
  const LaunchInfo info = under_srun(3);
  EXPECT_EQ(info.launcher, "slurm");
  EXPECT_EQ(info.rank, 3);
  EXPECT_EQ(info.local_rank, 1);
  EXPECT_EQ(info.local_size, 2);
  // Slurm's step is that of an mpirun here, which numbers its ranks itself.
  EXPECT_EQ(under_srun(0).launcher, "pmi");
  EXPECT_EQ(under_srun(0).local_size, 4);
}

TEST(DetectLaunch, WhatSlurmSaysIsNotReadBelowALauncherThatKnowsItsHosts) {
  const Variables step = {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "x"}, {"SLURM_NTASKS", "4"}};
  EXPECT_EQ(detect(kFamilies[0].set(1, 2) + step).launcher, "c10d");
  EXPECT_EQ(detect(kFamilies[1].set(1, 2) + step).launcher, "torchrun");
}

TEST(DetectLaunch, TwoThatDisagreeAreAnErrorThatNamesBoth) {
  for (std::size_t i = 0; i < kFamilies.size(); ++i)
    for (std::size_t j = i + 1; j < kFamilies.size(); ++j) {
      const Family &above = kFamilies[i], &below = kFamilies[j];
      // Kubernetes' size is torchrun's own variable.
      const Variables both = above.set(1, 2) + below.set(0, 4);
      if (!above.compared || !below.compared) {
        EXPECT_EQ(detect(both).launcher, above.launcher) << below.launcher;
        continue;
      }
      const std::string error = error_of(both);
      EXPECT_NE(error.find(above.launcher + " says"), std::string::npos) << error;
      EXPECT_NE(error.find(below.launcher + " says"), std::string::npos) << error;
      for (const Family* chosen : {&above, &below})
        EXPECT_EQ(detect(both + Variables{{"C10D_LAUNCHER", chosen->launcher}}).launcher,
                  chosen->launcher);
    }
}

TEST(DetectLaunch, AnIncompleteFamilyIsPassedOver) {
  for (const Family& family : kFamilies) {
    if (family.set(1, 2).count("WORLD_SIZE") != 0) continue;  // with it torchrun's is complete
    EXPECT_EQ(detect(Variables{{"RANK", "3"}} + family.set(1, 2)).launcher, family.launcher);
  }
  EXPECT_EQ(detect({{"OMPI_COMM_WORLD_RANK", "1"}}).launcher, "none");
  EXPECT_EQ(detect({{"PMIX_RANK", "1"}}).launcher, "none");
}

TEST(DetectLaunch, HalfOfOursIsAnError) {
  EXPECT_NE(error_of({{"C10D_RANK", "1"}}).find("C10D_WORLD_SIZE is not"), std::string::npos);
  EXPECT_NE(error_of({{"C10D_WORLD_SIZE", "2"}}).find("C10D_RANK is not"), std::string::npos);
  EXPECT_EQ(detect({{"C10D_WORLD_SIZE", "2"}, {"JOB_COMPLETION_INDEX", "1"}}).launcher, "k8s");
}

TEST(DetectLaunch, HalfOfTorchrunsIsAnErrorBesideAPlaceToMeet) {
  const Variables place = {{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29400"}};
  EXPECT_NE(error_of(place + Variables{{"RANK", "0"}}).find("WORLD_SIZE is not"),
            std::string::npos);
  EXPECT_NE(error_of(place + Variables{{"WORLD_SIZE", "2"}}).find("RANK is not"),
            std::string::npos);
  EXPECT_EQ(detect({{"RANK", "0"}}).launcher, "none");
  EXPECT_EQ(detect({{"WORLD_SIZE", "2"}}).launcher, "none");
  for (const Family& family : kFamilies)
    EXPECT_EQ(detect(place + family.set(1, 2)).launcher, family.launcher);
}

TEST(DetectLaunch, AgentsOfMpirunMayDifferFromTheirRanks) {
  const Variables ranks = kFamilies[1].set(3, 4), agents = kFamilies[2].set(1, 2);
  const Variables nesting = {{"GROUP_RANK", "1"}, {"GROUP_WORLD_SIZE", "2"}};
  EXPECT_EQ(detect(ranks + agents + nesting).launcher, "torchrun");
  EXPECT_NE(error_of(ranks + agents), "");
  const Variables other = {{"GROUP_RANK", "0"}, {"GROUP_WORLD_SIZE", "2"}};
  EXPECT_NE(error_of(ranks + agents + other), "");
}

TEST(DetectLaunch, SlurmCountsOnlyInsideAStep) {
  Variables step = kFamilies[4].set(0, 4);
  step.erase("SLURM_STEP_ID");
  EXPECT_EQ(detect(step).launcher, "none");
  for (const char* reserved : {"4294967290", "4294967291", "4294967292", "4294967293", "batch"}) {
    step["SLURM_STEP_ID"] = reserved;
    EXPECT_EQ(detect(step).launcher, "none") << reserved;
  }
  EXPECT_EQ(detect(kFamilies[4].set(0, 1)).launcher, "none");
}

TEST(DetectLaunch, SlurmCountsTheTasksOfEachHost) {
  const auto local_size = [](const std::string& tasks, int node) {
    Variables step = kFamilies[4].set(0, 11);
    step["SLURM_STEP_TASKS_PER_NODE"] = tasks;
    step["SLURM_NODEID"] = text(node);
    return detect(step).local_size;
  };
  EXPECT_EQ(local_size("4(x2),3", 0), 4);
  EXPECT_EQ(local_size("4(x2),3", 1), 4);
  EXPECT_EQ(local_size("4(x2),3", 2), 3);
  EXPECT_EQ(local_size("5,6", 1), 6);
  EXPECT_EQ(local_size("5,6", 2), 11) << "not told: everything on one host";
}

TEST(DetectLaunch, KinOfPmi) {
  EXPECT_EQ(detect({{"MV2_COMM_WORLD_RANK", "1"}, {"MV2_COMM_WORLD_SIZE", "2"}}).rank, 1);
  EXPECT_EQ(detect({{"FLUX_TASK_RANK", "1"}, {"FLUX_JOB_SIZE", "2"}}).launcher, "pmi");
  EXPECT_EQ(detect({{"JSM_NAMESPACE_RANK", "1"}, {"JSM_NAMESPACE_SIZE", "2"}}).size, 2);
  EXPECT_EQ(detect({{"PALS_RANKID", "1"}, {"PMI_SIZE", "2"}}).rank, 1);
  EXPECT_EQ(detect({{"PMIX_RANK", "1"}, {"PMI_SIZE", "2"}}).rank, 1);
}

TEST(DetectLaunch, AMalformedNumberIsAnErrorAndNeverZero) {
  for (const Family& family : kFamilies)
    for (const auto& [name, value] : family.set(1, 2)) {
      if (name == "SLURM_STEP_ID") continue;  // its words mean "no step"
      for (const char* bad : {"x", "1x", " 1", "-1", "1.0", "99999999999"}) {
        Variables variables = family.set(1, 2);
        variables[name] = bad;
        const std::string error = error_of(variables);
        EXPECT_NE(error.find(name + "=" + bad), std::string::npos)
            << name << "=" << bad << ": " << error;
      }
    }
}

TEST(DetectLaunch, ARankMustBeLessThanTheSize) {
  for (const Family& family : kFamilies) {
    EXPECT_NE(error_of(family.set(2, 2)), "") << family.launcher;
    EXPECT_EQ(error_of(family.set(0, 0)).empty(), family.launcher == "slurm") << family.launcher;
  }
  Variables local = kFamilies[0].set(1, 4);
  local["C10D_LOCAL_RANK"] = "2";
  local["C10D_LOCAL_WORLD_SIZE"] = "2";
  EXPECT_NE(error_of(local).find("local rank 2 of 2"), std::string::npos) << error_of(local);
}

TEST(DetectLaunch, TheUserSettlesWhoCounts) {
  const Variables both = kFamilies[1].set(1, 2) + kFamilies[4].set(5, 8);
  EXPECT_EQ(detect(both + Variables{{"C10D_LAUNCHER", "slurm"}}).rank, 5);
  EXPECT_EQ(detect(both + Variables{{"C10D_LAUNCHER", "none"}}).size, 1);
  EXPECT_NE(error_of(both + Variables{{"C10D_LAUNCHER", "openmpi"}}).find("not both"),
            std::string::npos);
  EXPECT_NE(error_of(both + Variables{{"C10D_LAUNCHER", "mpirun"}}).find("known are c10d"),
            std::string::npos);
}

}}}  // namespace c10d::v0
