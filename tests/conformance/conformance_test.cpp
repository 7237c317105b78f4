// SPDX-License-Identifier: BSD-3-Clause
// Every backend against one oracle. Threads: the ranks are threads of this process. Processes: this
// process is one rank, started with others by a launcher:
//   mpirun -n 3 conformance --gtest_filter='Processes.*' --backend=mpi
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "c10d/cuda.h"
#include "c10d/env.h"
#include "c10d/init.h"
#include "tests/conformance/cases.h"
#include "tests/conformance/rank.h"
#include "tests/on_each_backend.h"

namespace c10d::conformance { namespace {

constexpr Duration kTimeout = std::chrono::seconds(60);  // of one op

struct Flags {
  std::string backend;  // of Processes
  unsigned thin = 1;    // runs one case in this many of those that run by default
  std::string only;     // runs cases whose description has this in it
} flags;

// Why the backend cannot be tested here, or empty.
std::string why_unavailable(std::string_view backend) {
  for (const BackendInfo& known : list_backends())
    if (known.name == backend) return known.available ? "" : known.reason;
  return "this build does not know it";
}

// One case in so many runs by default: every case where the ranks have a core each, fewer where
// ranks that wait for each other's threads take milliseconds an op. --thin=N thins further.
unsigned thinned(std::string_view backend, int ranks) {
  const auto index = static_cast<std::size_t>(std::clamp(ranks, 1, 8) - 1);
  if (backend == "native") return std::array{1u, 1u, 1u, 2u, 2u, 2u, 4u, 4u}[index];
  if (backend == "gloo") return std::array{1u, 1u, 8u, 8u, 16u, 16u, 50u, 50u}[index];
  if (backend == "nccl") return std::array{1u, 1u, 1u, 1u, 2u, 2u, 4u, 4u}[index];
  return std::array{1u, 1u, 4u, 4u, 32u, 32u, 32u, 32u}[index];
}

// The memory that it is tested with.
DeviceType device_of(std::string_view backend) {
  for (const BackendInfo& known : list_backends())
    if (known.name == backend && known.cuda_only) return DeviceType::cuda;
  return DeviceType::cpu;
}

// Whether the backend promises the documented tree; asked of a group of these options.
bool has_fixed_order(const InitOptions& options) {
  ProcessGroup group = init_process_group(options);
  const bool fixed = group.reduces_along_rank_tree();
  group.shutdown();
  return fixed;
}

std::vector<Case> cases_for(std::string_view backend, int ranks, bool fixed_order) {
  std::vector<Case> cases = select_cases(
      {.ranks = ranks, .fixed_order = fixed_order, .thin = flags.thin * thinned(backend, ranks)});
  for (Case& c : cases)
    c.numbers.rounds_often = backend_supports(backend, {.op = c.op,
                                                        .dtype = c.numbers.dtype,
                                                        .reduce_op = c.numbers.op.kind,
                                                        .device = device_of(backend)})
                                 .rounds == Rounding::every_step;
  std::erase_if(cases,
                [](const Case& c) { return describe(c).find(flags.only) == std::string::npos; });
  return cases;
}

// Whether NCCL reduces numbers of 8 bits here: from 2.24 and compute capability 9.0 on.
bool nccl_reduces_float8(std::string_view version) {
  int major = 0, minor = 0;
  const bool is_version = std::sscanf(std::string(version).c_str(), "%d.%d", &major, &minor) == 2;
  EXPECT_TRUE(is_version) << version;
  return std::pair(major, minor) >= std::pair(2, 24) &&
         cuda::device_info(0).compute_capability >= 90;
}

// Numbers of 8 bits are moved by every backend, and added and multiplied by nccl.
void expect_float8(const BackendInfo& backend) {
  const bool is_nccl = backend.name == "nccl";
  const bool reduces = is_nccl && nccl_reduces_float8(backend.version);
  for (const DType dtype : {DType::f8e4m3, DType::f8e5m2})
    for (const OpTraits& op : kOpTraits)
      for (int r = 0; r < (op.has_reduce_op ? kReduceOpCount : 1); ++r) {
        const auto kind = static_cast<ReduceOp::Kind>(r);
        const bool scans = op.kind == OpKind::scan || op.kind == OpKind::exscan;
        const bool is_granted =
            !op.has_reduce_op ||
            (reduces && !scans && (kind == ReduceOp::sum || kind == ReduceOp::prod));
        const Support support = backend_supports(
            backend.name,
            {.op = op.kind, .dtype = dtype, .reduce_op = kind, .device = device_of(backend.name)});
        EXPECT_EQ(support.ok, is_granted) << op.name << ' ' << to_string(kind) << " of "
                                          << to_string(dtype) << ": " << support.reason;
        if (op.has_reduce_op && support) {
          EXPECT_EQ(support.rounds, Rounding::every_step) << op.name;
        }
      }
}

Report run_rank(InitOptions options, const std::vector<Case>& cases) {
  try {
    options.timeout = kTimeout;
    return Rank(init_process_group(std::move(options))).run(cases);
  } catch (const std::exception& error) {
    Report report;
    report.fail(std::string("outside of a case: ") + error.what());
    return report;
  }
}

void publish(const Report& report, const std::string& backend, int ranks) {
  // In one piece: a launcher mixes what its ranks write.
  std::ostringstream text;
  text << backend << ", " << ranks << (ranks == 1 ? " rank" : " ranks")
       << ": cases: " << report.checked << ", one in " << flags.thin * thinned(backend, ranks)
       << " of all\n";
  std::size_t skipped = 0;
  for (const auto& [reason, count] : report.skipped) {
    text << "  skipped: " << count << ": " << reason << '\n';
    skipped += count;
  }
  const std::string whole = text.str();
  std::fflush(stdout);
  std::fwrite(whole.data(), 1, whole.size(), stdout);
  std::fflush(stdout);
  testing::Test::RecordProperty("cases", std::to_string(report.checked));
  testing::Test::RecordProperty("skipped", std::to_string(skipped));
}

void expect_clean(const Report& report, int rank) {
  for (const std::string& failure : report.failures)
    ADD_FAILURE() << "rank " << rank << ": " << failure;
  if (report.failed > report.failures.size())
    ADD_FAILURE() << "rank " << rank << ": " << report.failed << " failures in all";
}

struct World {
  std::string backend;
  int ranks;
  friend void PrintTo(const World& world, std::ostream* out) {
    *out << world.backend << " x " << world.ranks;
  }
};

class Threads : public testing::TestWithParam<World> {};

TEST_P(Threads, ResultsAreRight) {
  const std::string& backend = GetParam().backend;
  const int ranks = GetParam().ranks;
  if (const std::string why = why_unavailable(backend); !why.empty()) GTEST_SKIP() << why;
  for (const BackendInfo& known : known_backends())
    if (known.name == backend) expect_float8(known);
  const bool fixed_order = has_fixed_order(
      {.backend = backend, .store = make_hash_store(kTimeout), .rank = 0, .size = 1});
  const std::vector<Case> cases = cases_for(backend, ranks, fixed_order);
  const std::shared_ptr<Store> store = make_hash_store(kTimeout);
  std::vector<Report> reports(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        reports[static_cast<std::size_t>(rank)] =
            run_rank({.backend = backend, .store = store, .rank = rank, .size = ranks}, cases);
      });
  }
  for (int rank = 0; rank < ranks; ++rank)
    expect_clean(reports[static_cast<std::size_t>(rank)], rank);
  publish(reports[0], backend, ranks);
  if (!fixed_order || HasFailure()) return;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    std::uint64_t result = 0;  // of the first rank that took part
    for (const Report& report : reports) {
      if (result == 0) result = report.results[i];
      EXPECT_TRUE(report.results[i] == 0 || report.results[i] == result)
          << describe(cases[i]) << ": ranks have different bits";
    }
  }
}

std::vector<World> worlds() {
  std::vector<World> all;
  for (const BackendInfo& backend : known_backends())
    if (!backend.needs_launcher)
      for (const int ranks : {1, 2, 3, 4, 7, 8}) all.push_back({backend.name, ranks});
  return all;
}

std::string world_name(const testing::TestParamInfo<World>& world) {
  return world.param.backend + "_" + std::to_string(world.param.ranks);
}

INSTANTIATE_TEST_SUITE_P(Backends, Threads, testing::ValuesIn(worlds()), world_name);

TEST(Processes, ResultsAreRight) {
  if (flags.backend.empty()) GTEST_SKIP() << "not started by a launcher with --backend";
  if (const std::string why = why_unavailable(flags.backend); !why.empty()) GTEST_SKIP() << why;
  const LaunchInfo launch = detect_launch();
  const bool fixed_order = has_fixed_order({.backend = flags.backend, .timeout = kTimeout});
  const Report report =
      run_rank({.backend = flags.backend}, cases_for(flags.backend, launch.size, fixed_order));
  expect_clean(report, launch.rank);
  if (launch.rank == 0) publish(report, flags.backend, launch.size);
}

std::size_t open_files() {
  const auto files = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

// The world can be left and made again, and nothing is kept of it.
TEST(Processes, MeetAgainAndAgain) {
  if (flags.backend.empty()) GTEST_SKIP() << "not started by a launcher with --backend";
  if (const std::string why = why_unavailable(flags.backend); !why.empty()) GTEST_SKIP() << why;
  constexpr int kWarm = 5, kCycles = 25;
  std::size_t files = 0;
  for (int cycle = 0; cycle < kCycles; ++cycle) {
    if (cycle == kWarm) files = open_files();
    ProcessGroup group = init_process_group({.backend = flags.backend, .timeout = kTimeout});
    int sum = 1;
    group.all_reduce(std::span(&sum, 1));
    ASSERT_EQ(sum, group.size());
    group.shutdown();
  }
  EXPECT_LT(open_files(), files + kCycles - kWarm) << "a descriptor is left of each cycle";
}

// The thread of async collectives sets counts of its own while this one sends.
TEST(Processes, MessagesGoBesideCollectivesWithCounts) {
  if (flags.backend.empty()) GTEST_SKIP() << "not started by a launcher with --backend";
  if (const std::string why = why_unavailable(flags.backend); !why.empty()) GTEST_SKIP() << why;
  ProcessGroup group = init_process_group({.backend = flags.backend, .timeout = kTimeout});
  const int rank = group.rank(), size = group.size();
  const int rounds = size > 1 ? 200 : 0;  // one rank has nobody to send to
  const std::vector<std::size_t> counts(static_cast<std::size_t>(size), 1);
  for (int round = 0; round < rounds; ++round) {
    std::vector<int> all(counts.size()), received(1);
    const std::vector<int> own{100 * round + rank};
    const Work gathered = group.async().all_gather_v(all, own, counts);
    const Work taken = group.irecv(received, (rank + size - 1) % size);
    group.isend(own, (rank + 1) % size).wait();
    taken.wait();
    gathered.wait();
    ASSERT_EQ(received[0], 100 * round + (rank + size - 1) % size);
    for (int other = 0; other < size; ++other)
      ASSERT_EQ(all[static_cast<std::size_t>(other)], 100 * round + other);
  }
  group.shutdown();
}

// The value of `--name=value`, if `argument` is that.
std::optional<std::string> value_of(std::string_view argument, std::string_view name) {
  if (!argument.starts_with(name) || argument.substr(name.size(), 1) != "=") return {};
  return std::string(argument.substr(name.size() + 1));
}

int run(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (const auto backend = value_of(argument, "--backend")) {
      flags.backend = *backend;
    } else if (const auto thin = value_of(argument, "--thin")) {
      flags.thin = std::max(1u, static_cast<unsigned>(std::stoul(*thin)));
    } else if (const auto only = value_of(argument, "--only")) {
      flags.only = *only;
    } else {
      std::cerr << argument << " is not one of --backend=, --thin=, --only=\n";
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}

}}  // namespace c10d::conformance

int main(int argc, char** argv) { return c10d::conformance::run(argc, argv); }
