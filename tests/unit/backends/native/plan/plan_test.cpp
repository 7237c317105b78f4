// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include <fstream>
#include <set>

#include "src/backends/native/plan/tuning_file.h"
#include "tests/temporary_directory.h"
#include "tests/unit/backends/native/ranks.h"

namespace c10d { inline namespace v0 { namespace native { namespace {

using Warnings = std::vector<std::string>;

constexpr std::uint64_t kMiB = 1 << 20;

std::size_t choice_named(std::string_view name) {
  for (std::size_t i = 0; i < choices().size(); ++i)
    if (name_of(choices()[i]) == name) return i;
  ADD_FAILURE() << name;
  return 0;
}

Plan plan_of(const CostModel& costs, std::string_view forced = "") {
  Warnings warnings;
  const Plan plan(costs, forced, warnings);
  EXPECT_TRUE(warnings.empty());
  return plan;
}

TEST(NativePlan, EveryCellHoldsAChoiceThatApplies) {
  for (const bool cma : {false, true})
    for (const bool oversubscribed : {false, true})
      for (const int ranks : {2, 3, 8, 64}) {
        const TeamProfile host{.ranks = ranks, .oversubscribed = oversubscribed, .cma = cma};
        const Plan plan = plan_of(CostModel(host));
        EXPECT_TRUE(plan.valid());
        for (std::size_t op = 0; op < kPlannedOps; ++op)
          for (const bool registered : {false, true})
            for (std::uint64_t bytes = 1; bytes < std::uint64_t{1} << 40;
                 bytes = bytes * 5 / 2 + 1) {
              const PlanKey key{planned_op(op), bytes, false, registered};
              EXPECT_TRUE(applies(plan.find(key), key, host));
              EXPECT_EQ(planned_index(planned_op(op)), op);
              EXPECT_GT(bound_us(key, host), 0);
            }
      }
}

TEST(NativePlan, MeasuredTimesDecideAndAreInterpolated) {
  const std::size_t cheap_small = choice_named("one_shot/temporal/32768");
  const std::size_t cheap_large = choice_named("two_shot/streaming/131072");
  const CostModel costs({.ranks = 2},
                        {{.choice = cheap_small, .bytes = {1024, 1048576}, .us = {1e-6, 1.0}},
                         {.choice = cheap_large, .bytes = {1024, 1048576}, .us = {1e-5, 1e-5}}});
  const auto us = [&](std::size_t choice, std::uint64_t bytes) {
    return costs.us(choice, {OpKind::all_reduce, bytes, false, false});
  };
  EXPECT_DOUBLE_EQ(us(cheap_small, 1024), 1e-6);
  EXPECT_DOUBLE_EQ(us(cheap_small, 1048576), 1.0);
  EXPECT_NEAR(us(cheap_small, 32768), 1e-3, 1e-9);  // half way in both logarithms
  EXPECT_DOUBLE_EQ(us(cheap_small, 2097152), 2.0);  // beyond: by the byte
  EXPECT_DOUBLE_EQ(us(cheap_small, 8), 1e-6);       // below: as the smallest
  const Plan plan = plan_of(costs);
  const auto found = [&](std::uint64_t bytes) {
    return name_of(plan.find({OpKind::all_reduce, bytes, false, false}));
  };
  EXPECT_EQ(found(1024), "one_shot/temporal/32768");
  EXPECT_EQ(found(65536), "two_shot/streaming/131072");
  EXPECT_EQ(found(1048576), "two_shot/streaming/131072");
}

TEST(NativePlan, LargeResultsGoPastTheCachesWhereThatIsFaster) {
  const auto taken = [](double temporal, double streaming, std::uint64_t bytes) {
    const TeamProfile host{.cma = false, .copy_us = {temporal, streaming}};
    const Plan plan = plan_of(CostModel(host));
    return result_policy(plan.find({OpKind::all_reduce, bytes, false, false}), bytes);
  };
  for (const std::uint64_t bytes : {4 * kMiB, 64 * kMiB}) {
    EXPECT_EQ(taken(90, 45, bytes), StorePolicy::streaming);
    EXPECT_EQ(taken(20, 60, bytes), StorePolicy::temporal);
  }
  EXPECT_EQ(taken(90, 45, kMiB / 2), StorePolicy::temporal);
}

TEST(NativePlan, RanksThatShareCachesStreamWhatTheyAllWrite) {
  for (const int ranks : {4, 8}) {
    const Plan plan = plan_of(CostModel({.ranks = ranks, .oversubscribed = true, .cma = true}));
    const auto found = [&](OpKind op, std::uint64_t bytes) {
      return plan.find({op, bytes, false, false});
    };
    EXPECT_EQ(name_of(found(OpKind::all_reduce, kMiB)), "two_shot/mixed/131072");
    EXPECT_EQ(found(OpKind::reduce, kMiB).results, StorePolicy::temporal);
    EXPECT_EQ(result_policy(found(OpKind::all_reduce, kMiB / 2), kMiB / 2), StorePolicy::temporal);
  }
}

TEST(NativePlan, ARootWritesThroughItsCacheWhatFitsThere) {
  const TeamProfile host{.far = true, .cma = true, .stage_us = {200, 400}, .copy_us = {73, 52}};
  const Plan plan = plan_of(CostModel(host));
  const auto results = [&](std::uint64_t bytes) {
    return result_policy(plan.find({OpKind::reduce, bytes, false, false}), bytes);
  };
  EXPECT_EQ(results(kMiB), StorePolicy::temporal);
  EXPECT_EQ(results(64 * kMiB), StorePolicy::streaming);
}

// All in one loop, where memory is waited for: see exchanges().
TEST(NativePlan, TwoRanksExchangeBlocksThatNoCacheHolds) {
  const TeamProfile host{
      .far = true, .cma = true, .stage_us = {200, 400}, .cma_us = 91, .copy_us = {73, 52}};
  const Plan plan = plan_of(CostModel(host));
  const auto found = [&](OpKind op, std::uint64_t bytes) {
    return plan.find({op, bytes, false, false});
  };
  for (const OpKind op : {OpKind::all_gather, OpKind::all_to_all}) {
    EXPECT_FALSE(exchanges(found(op, kMiB), 2, kMiB / 2));
    for (const std::uint64_t bytes : {16 * kMiB, 64 * kMiB}) {
      EXPECT_EQ(found(op, bytes).algorithm, Algorithm::one_shot);
      EXPECT_TRUE(exchanges(found(op, bytes), 2, bytes / 2))
          << to_string(op) << ' ' << bytes << ' ' << name_of(found(op, bytes));
    }
  }
}

TEST(NativePlan, OneWayChunksAreAQuarterWithinLimits) {
  EXPECT_EQ(one_way_chunk_bytes(32 << 10, 1 << 10), 8192u);
  EXPECT_EQ(one_way_chunk_bytes(32 << 10, 64 << 10), 16u << 10);
  EXPECT_EQ(one_way_chunk_bytes(32 << 10, std::uint64_t{1} << 40), 32u << 10);
  EXPECT_EQ(one_way_chunk_bytes(128u << 10, 65537), 16385u);  // up: a fifth chunk would hold a byte
}

TEST(NativePlan, TheEnvironmentForcesWhatApplies) {
  const CostModel costs({.ranks = 2, .cma = true});
  Warnings warnings;
  const Plan plan(costs, "two_shot/streaming,gather=pull,nonsense,push", warnings);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("'nonsense'"), std::string::npos) << warnings[0];
  const auto found = [&](OpKind op, bool registered) {
    return name_of(plan.find({op, kMiB, false, registered}));
  };
  EXPECT_EQ(found(OpKind::all_reduce, false), "two_shot/streaming/32768");
  EXPECT_EQ(found(OpKind::all_reduce, true), "push/temporal");
  EXPECT_EQ(found(OpKind::gather_v, false), "pull/temporal");
  EXPECT_EQ(found(OpKind::gather, true), "push/temporal");
  // What two_shot, pull and push do not apply to goes as the cost model says.
  EXPECT_EQ(found(OpKind::all_to_all, false),
            name_of(plan_of(costs).find({OpKind::all_to_all, kMiB, false, false})));
}

TEST(NativePlan, DamageIsSeen) {
  Plan plan = plan_of(CostModel({.ranks = 2}));
  EXPECT_TRUE(plan.valid());
  auto* const bytes = reinterpret_cast<unsigned char*>(&plan);
  bytes[sizeof(Plan) / 2] ^= 1;
  EXPECT_FALSE(plan.valid());
  EXPECT_FALSE(Plan().valid());
}

TEST(NativePlan, AllRanksFollowRankZero) {
  std::atomic<std::uint64_t> id{0};
  as_ranks(4, [&](TestRank& self) {
    EXPECT_TRUE(self.team().plan().valid());
    if (self.rank() == 0) id = self.team().plan().id();
    self.run(Barrier{});
    EXPECT_EQ(self.team().plan().id(), id);
    EXPECT_EQ(self.team().cost_model().host().ranks, 4);
  });
}

std::string file_with(std::string_view curve, std::string_view fingerprint = "here") {
  return "{\"fingerprint\":\"" + std::string(fingerprint) + "\",\"curves\":[" + std::string(curve) +
         "]}";
}
const std::string kCurve =
    R"({"op":"reduce","choice":"push/streaming","half":true,"registered":true,)"
    R"("bytes":[8,1024],"us":[0.5,2]})";

TEST(NativeTuning, ReadsWhatTuneWrites) {
  Warnings warnings;
  const auto curves = parse_tuning(file_with(kCurve), "here", warnings);
  EXPECT_TRUE(warnings.empty());
  ASSERT_EQ(curves.size(), 1u);
  EXPECT_EQ(planned_op(curves[0].op), OpKind::reduce);
  EXPECT_EQ(name_of(choices()[curves[0].choice]), "push/streaming");
  EXPECT_TRUE(curves[0].half);
  EXPECT_TRUE(curves[0].registered);
  EXPECT_EQ(curves[0].bytes, (std::vector<double>{8, 1024}));
  EXPECT_EQ(curves[0].us, (std::vector<double>{0.5, 2}));
}

std::string with(std::string text, std::string_view from, std::string_view to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(NativeTuning, AHostileOrStaleFileIsAWarningAndNoCurve) {
  const std::string files[] = {
      "",
      "no JSON",
      "[]",
      "{}",
      std::string(2 << 20, ' '),
      std::string(100000, '['),
      file_with(kCurve, "elsewhere"),
      with(file_with(kCurve), "[{", "{") + "}",
      file_with("7"),
      file_with(with(kCurve, "reduce", "divide")),
      file_with(with(kCurve, "push/streaming", "push/faster")),
      file_with(with(kCurve, "true", "1")),
      file_with(with(kCurve, "[8,1024]", "[8]")),
      file_with(with(kCurve, "[8,1024]", "[1024,8]")),
      file_with(with(kCurve, "[8,1024]", "[8,8]")),
      file_with(with(kCurve, "[8,1024]", "[8,1e999]")),
      file_with(with(kCurve, "0.5", "-0.5")),
      file_with(with(kCurve, "0.5", "0")),
      file_with(with(kCurve, "0.5", "null")),
      file_with(kCurve + "," + with(kCurve, "[0.5,2]", "[]")),
  };
  for (const std::string& file : files) {
    Warnings warnings;
    EXPECT_TRUE(parse_tuning(file, "here", warnings).empty()) << file.substr(0, 200);
    EXPECT_EQ(warnings.size(), 1u) << file.substr(0, 200);
  }
  Warnings warnings;
  EXPECT_TRUE(load_tuning("/nowhere/at/all.json", "here", warnings).empty());
  EXPECT_TRUE(warnings.empty());
}

// A folder for tunings, for the groups that are made while it lives.
class TuningFolder {
 public:
  TuningFolder() { ::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1); }
  ~TuningFolder() { ::unsetenv("XDG_CACHE_HOME"); }
  TuningFolder(const TuningFolder&) = delete;
  TuningFolder& operator=(const TuningFolder&) = delete;
  // For whichever pairs are near and far: two groups may measure differently.
  static void write(TeamProfile host, const std::string& curve) {
    const int pairs = host.ranks * (host.ranks - 1) / 2;
    for (int far_pairs = 0; far_pairs < 1 << pairs; ++far_pairs) {
      RoundTrips trips{host.ranks, {}};
      int pair = 0;
      for (int a = 0; a < host.ranks; ++a)
        for (int b = 0; b < host.ranks; ++b)
          trips.ns.push_back(a < b && (far_pairs >> pair++ & 1) != 0 ? 400 : 100);
      write_for(fingerprint(host, trips), curve);
    }
  }

 private:
  static void write_for(const std::string& group, const std::string& curve) {
    const std::filesystem::path path = tuning_path(group);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << file_with(curve, group);
  }
  TemporaryDirectory folder_;
};

TEST(NativeTuning, IsOfRanksThatAreAsNear) {
  const TeamProfile host{.ranks = 3, .cpus = 4, .cma = true};
  const auto of = [&](std::uint32_t ab, std::uint32_t ac, std::uint32_t bc) {
    return fingerprint(host, {3, {0, ab, ac, ab, 0, bc, ac, bc, 0}});
  };
  EXPECT_EQ(of(100, 120, 90), of(70, 130, 110));
  EXPECT_EQ(of(100, 120, 90), fingerprint(host, {}));
  std::set<std::string> all;
  for (const std::uint32_t ab : {100, 400})
    for (const std::uint32_t ac : {100, 400})
      for (const std::uint32_t bc : {100, 400}) all.insert(of(ab, ac, bc));
  EXPECT_EQ(all.size(), 8u);
  EXPECT_NE(of(100, 400, 400).find(" | nf f | "), std::string::npos) << of(100, 400, 400);
  EXPECT_EQ(of(100, 28000, 90), of(100, 100, 90)) << "of ranks that shared a CPU";
}

// By what a group reports c10d-bench tune names its file, and the next group must look there.
TEST(NativeTuning, TheNextGroupLooksWhereThisOneSays) {
  const TuningFolder folder;
  const auto reports = [](int size, TeamProfile& host) {
    std::vector<PlanReport> all(static_cast<std::size_t>(size));
    as_ranks(size, [&](TestRank& self) {
      all[static_cast<std::size_t>(self.rank())] = report_plan(
          self.team().plan(), self.team().cost_model(), self.team().round_trips(), {.bytes = kMiB});
      EXPECT_EQ(all[static_cast<std::size_t>(self.rank())].fingerprint,
                fingerprint(self.team().cost_model().host(), self.team().round_trips()));
      if (self.rank() == 0) host = self.team().cost_model().host();
    });
    return all;
  };
  for (const int size : {2, 3}) {
    TeamProfile host;
    for (const PlanReport& report : reports(size, host))
      EXPECT_FALSE(report.options.front().measured);
    TuningFolder::write(host,
                        R"({"op":"all_reduce","choice":"one_shot/streaming/32768","half":false,)"
                        R"("registered":false,"bytes":[8,1048576],"us":[1e-6,1e-6]})");
    const PlanReport tuned = reports(size, host).front();
    EXPECT_TRUE(tuned.options.front().measured) << size;
    EXPECT_EQ(tuned.options.front().name, "one_shot/streaming/32768") << size;
  }
}

}}}}  // namespace c10d::v0::native
