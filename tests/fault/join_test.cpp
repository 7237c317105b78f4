// SPDX-License-Identifier: BSD-3-Clause
// A rank that dies or fails while the others wait for it in the making of a group, or of memory
// that they share: they end with an error that names it, and not at their deadline.
#include "tests/fault/job.h"

namespace c10d::fault {
namespace {

constexpr int kRanks = 3;

class Join : public Clean {
 public:
  // Where a rank can come to grief, as the key of the store that it touches there.
  static std::vector<std::string> places() {
    if (GetParam() == "gloo") return {"/control:1", "/gloo/:1", "/gloo/:2"};
    return {"/control:1", "/native:1", "/heap/0:1"};
  }
  // All ranks on their way into a group, or already there and allocating. Who was served before the
  // victim came to grief has its memory, and learns of it in the next call.
  static void go(Job& job, const std::string& place, int victim) {
    if (place.find("/heap/") == place.npos) return;
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(job[rank].hear(), "ready");
    job.tell_all_but(-1, "allocate 1000");
    job.tell_all_but(victim, "all_reduce 10");
  }
};

TEST_P(Join, ARankThatDiesIsNamedByTheOthers) {
  for (const std::string& place : places()) {
    if (place.starts_with("/gloo/")) continue;  // what ends there is Gloo's to say
    for (const int victim : {0, kRanks - 1}) {
      Job job(GetParam(), kRanks, {.rank = victim, .how = "die:" + place});
      go(job, place, victim);
      for (const Heard& error : job.errors_of_all_but(victim)) {
        EXPECT_EQ(error.code, "PeerDied") << place << " " << victim << error.what;
        EXPECT_EQ(error.rank, victim) << place << error.what;
        EXPECT_EQ(error.pid, job[victim].pid()) << place << error.what;
      }
      if (HasFailure()) return;  // each takes long to fail
    }
  }
}

TEST_P(Join, ARankThatFailsTellsTheOthersWhy) {
  for (const std::string& place : places()) {
    for (const int victim : {0, kRanks - 1}) {
      Job job(GetParam(), kRanks, {.rank = victim, .how = "throw:" + place});
      go(job, place, victim);
      for (const Heard& error : job.errors_of_all_but(-1)) {
        EXPECT_EQ(error.code, "StoreError") << place << " " << victim << error.what;
        EXPECT_NE(error.what.find("the trap was sprung"), std::string::npos) << error.what;
      }
      if (HasFailure()) return;
    }
  }
}

C10D_ON_EACH_BACKEND(Join);

}  // namespace
}  // namespace c10d::fault
