// SPDX-License-Identifier: BSD-3-Clause
#include "bench/model/cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <utility>
#include <variant>

#include "bench/cli/option_table.h"
#include "bench/cli/options.h"
#include "bench/cli/other_spellings.h"
#include "bench/measure/case_list.h"
#include "bench/measure/cpu_binding.h"
#include "bench/measure/native_algorithms.h"
#include "bench/model/bandwidth.h"
#include "c10d/error.h"

namespace c10d::bench { namespace {

Sweep sweep_of(std::vector<BenchOp> ops, std::vector<std::uint64_t> sizes) {
  return {std::move(ops), {DType::f32}, {ReduceOp::sum}, {0}, {Place::out}, std::move(sizes)};
}

TEST(Cases, OpsAreOneWordAndNamedWhenMisspelt) {
  EXPECT_EQ(bench_op_from_string("all_reduce"), BenchOp::all_reduce);
  EXPECT_EQ(bench_op_from_string("recv"), BenchOp::send);
  try {
    bench_op_from_string("allreduce");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean all_reduce?"), std::string::npos)
        << error.what();
  }
  try {
    bench_op_from_string("zzz");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("one of all_reduce "), std::string::npos);
    EXPECT_EQ(std::string(error.what()).find("or all"), std::string::npos) << "explain takes one";
  }
}

TEST(Cases, SizesGrowByFactorOrStep) {
  EXPECT_EQ(size_range(8, 16 << 20, 32, 0),
            (std::vector<std::uint64_t>{8, 256, 8192, 262144, 8388608}));
  EXPECT_EQ(size_range(1, 3, 1.1, 0), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(size_range(0, 20, 2, 10), (std::vector<std::uint64_t>{0, 10, 20}));
}

TEST(Cases, SizesEndBeforeSumsOfThemWrap) {
  constexpr std::uint64_t kEnd = ~std::uint64_t{0};
  EXPECT_EQ(size_range(8, 1024, 1e30, 0), (std::vector<std::uint64_t>{8}));
  EXPECT_EQ(size_range(1, kLargestSize, 2, 0).size(), 43U) << "2^0 to 2^42";
  EXPECT_THROW(size_range(kEnd, kEnd, 2, 0), InvalidArgument);
  EXPECT_THROW(size_range(kEnd / 2 + 1, kEnd, 2, kEnd / 2 + 1), InvalidArgument);
  Case c;
  c.bytes = kLargestSize;
  c.shard = kLargestSize / size_of(c.dtype);
  c.concurrent = 64;
  EXPECT_EQ(memory_of(c, 1024, 1).sum(), 2 * 64 * kLargestSize);
  EXPECT_LT(memory_of(c, 1024, 1).sum(), kEnd / 1024) << "of the most ranks on a host";
}

TEST(Cases, SizesAreWholeShards) {
  const std::vector<Case> cases = expand(sweep_of({BenchOp::all_gather}, {1, 8, 12, 30}), 3);
  std::vector<std::uint64_t> bytes;
  for (const Case& c : cases) {
    bytes.push_back(c.bytes);
    EXPECT_EQ(c.bytes, c.shard * 3 * 4);
  }
  EXPECT_EQ(bytes, (std::vector<std::uint64_t>{12, 24}))
      << "rounded down, one element per shard at least, no twins";
}

TEST(Cases, LeavesOutWhatMakesNoSense) {
  Sweep sweep = sweep_of({BenchOp::all_reduce, BenchOp::barrier, BenchOp::broadcast}, {64, 128});
  sweep.redops = {ReduceOp::sum, ReduceOp::avg};
  sweep.dtypes = {DType::f32, DType::i32};
  sweep.roots = {0, 1};
  const std::vector<Case> cases = expand(sweep, 2);
  const auto count = [&](BenchOp op) {
    return std::count_if(cases.begin(), cases.end(), [&](const Case& c) { return c.op == op; });
  };
  EXPECT_EQ(count(BenchOp::all_reduce), 2 * 3) << "avg of i32 is no number";
  EXPECT_EQ(count(BenchOp::barrier), 1);
  EXPECT_EQ(count(BenchOp::broadcast), 2 * 2 * 2)
      << "sizes x dtypes x roots, once and not per reduce op";
  std::set<CellKey> keys;
  for (const Case& c : cases) EXPECT_TRUE(keys.insert(key_of(c)).second) << "a cell twice";
}

TEST(Cases, OrderIsAPermutationThatFollowsFromTheSeed) {
  std::set<std::vector<std::size_t>> orders;
  for (int block = 0; block < 20; ++block) {
    auto order = block_order(4, true, 42, 1, 2, block);
    EXPECT_EQ(order, block_order(4, true, 42, 1, 2, block));
    orders.insert(order);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3}));
  }
  EXPECT_GT(orders.size(), 5U);
  EXPECT_EQ(block_order(3, false, 42, 0, 0, 1), (std::vector<std::size_t>{2, 1, 0}));
}

TEST(Cases, WindowIsBounded) {
  Case c;
  c.op = BenchOp::isend;
  c.bytes = 8 << 20;
  EXPECT_EQ(window_of(c, 16), 8);
  c.bytes = 1 << 10;
  EXPECT_EQ(window_of(c, 16), 16);
  c.bytes = std::uint64_t{1} << 30;
  EXPECT_EQ(window_of(c, 16), 1);
}

TEST(Cases, BurstsAreOfSmallOps) {
  const auto burst = [](std::uint64_t bytes, Cache cache) {
    Case c;
    c.bytes = bytes;
    c.cache = cache;
    return burst_of(c);
  };
  EXPECT_EQ(burst(0, Cache::hot), 64);
  EXPECT_EQ(burst(8, Cache::hot), 64);
  EXPECT_EQ(burst(64 << 10, Cache::rotate), 64);
  EXPECT_EQ(burst(1 << 20, Cache::hot), 4);
  EXPECT_EQ(burst(16 << 20, Cache::hot), 1);
  EXPECT_EQ(burst(8, Cache::cold), 1);
}

TEST(Bandwidth, FollowsFromTheMedian) {
  CellRecord cell;
  cell.us.p50 = 100;
  put_bandwidth({BenchOp::all_reduce, DType::f32, ReduceOp::sum, 0, Place::out, 1'000'000, 250'000},
                1, 2, cell);
  EXPECT_DOUBLE_EQ(*cell.alg, 10);
  EXPECT_DOUBLE_EQ(*cell.mem, 40);
  EXPECT_FALSE(cell.bus) << "no backend with connections";
}

// Of 8 ranks on 2 hosts: each host must send S of an all_reduce, whatever its 4 ranks do.
TEST(Bandwidth, OfTheNetworkIsThatOfEachHost) {
  const auto cell_of = [](BenchOp op, const char* backend) {
    CellRecord cell;
    cell.backend = backend;
    cell.placement = kSeveralHosts;
    cell.us.p50 = 100;
    put_bandwidth({op, DType::f32, ReduceOp::sum, 0, Place::out, 1'000'000, 250'000}, 2, 8, cell);
    return cell;
  };
  const CellRecord reduced = cell_of(BenchOp::all_reduce, "gloo");
  EXPECT_DOUBLE_EQ(*reduced.net, 10);
  EXPECT_DOUBLE_EQ(*reduced.bus, 17.5);
  EXPECT_FALSE(reduced.mem);
  EXPECT_DOUBLE_EQ(*cell_of(BenchOp::all_to_all, "mpi").net, 20);
  EXPECT_FALSE(cell_of(BenchOp::send, "mpi").net) << "inside a host";
  EXPECT_FALSE(cell_of(BenchOp::all_reduce, "memcpy").net);
}

TEST(Bandwidth, OfTheBusIsThatOfConnections) {
  const auto bus = [](BenchOp op, const char* backend) {
    CellRecord cell;
    cell.backend = backend;
    cell.us.p50 = 100;
    put_bandwidth({op, DType::f32, ReduceOp::sum, 0, Place::out, 1'000'000, 250'000}, 1, 4, cell);
    return cell.bus.value_or(0);
  };
  EXPECT_DOUBLE_EQ(bus(BenchOp::all_reduce, "gloo"), 15);
  EXPECT_DOUBLE_EQ(bus(BenchOp::all_gather, "raw:gloo"), 7.5);
  EXPECT_DOUBLE_EQ(bus(BenchOp::all_reduce, "raw:tcp"), 15);
  EXPECT_DOUBLE_EQ(bus(BenchOp::broadcast, "gloo"), 10);
  EXPECT_EQ(bus(BenchOp::scan, "gloo"), 0) << "nccl-tests has no scan";
  EXPECT_EQ(bus(BenchOp::all_reduce, "native"), 0);
  EXPECT_EQ(bus(BenchOp::all_reduce, "raw:mpi"), 0) << "shared memory inside a host";
}

Parsed parse(std::vector<const char*> words) {
  words.insert(words.begin(), "c10d-bench");
  return parse_options(static_cast<int>(words.size()), words.data());
}

TEST(Options, ReadTheCommandOfTheReadme) {
  const Parsed parsed =
      parse({"compare", "-n",    "2",      "-B", "native,gloo,mpi", "all", "-b",       "8",
             "-e",      "16M",   "-f",     "32", "--launches",      "2",   "--blocks", "3",
             "--time",  "0.05s", "--json", "f",  "--dry_run"});
  ASSERT_FALSE(parsed.exit_code);
  const RunOptions& options = parsed.options.run;
  EXPECT_TRUE(options.compare);
  EXPECT_EQ(options.placement.ranks, 2);
  EXPECT_EQ(options.backends.names, (std::vector<std::string>{"native", "gloo", "mpi"}));
  EXPECT_EQ(options.cases.sweep.ops.size(), op_facts().size());
  EXPECT_EQ(options.cases.sweep.sizes.size(), 5U);
  EXPECT_DOUBLE_EQ(options.measurement.seconds, 0.05);
  EXPECT_TRUE(options.dry_run);
}

TEST(Options, MistakesAreExitCodeTwo) {
  EXPECT_EQ(parse({"compare", "allreduce"}).exit_code, 2);
  EXPECT_EQ(parse({"compare", "-b", "2K", "-e", "1K"}).exit_code, 2);
  EXPECT_EQ(parse({"run", "-d", "f33"}).exit_code, 2);
  EXPECT_EQ(parse({"run", "--no-such-option"}).exit_code, 2);
  EXPECT_EQ(parse({}).exit_code, 2);
  EXPECT_EQ(parse({"--help"}).exit_code, 0);
}

const RunOptions& options_of(const Parsed& parsed) {
  EXPECT_FALSE(parsed.exit_code);
  return parsed.options.run;
}

// One value that each option takes, and both spellings of each name.
TEST(Options, AreTakenWithDashesAndUnderscores) {
  const std::map<std::string, std::string> values = {
      {"--ranks", "2"},      {"--bind", "core"},     {"--device", "cuda"},
      {"--backends", "mpi"}, {"--against", "self"},  {"--env", "B:NAME=1"},
      {"--min", "8"},        {"--max", "1G"},        {"--factor", "4"},
      {"--step", "1G"},      {"--sizes", "8"},       {"--dtype", "bf16"},
      {"--redop", "max"},    {"--root", "all"},      {"--place", "both"},
      {"--algo", "pull"},    {"--window", "4"},      {"--concurrent", "2"},
      {"--time", "1s"},      {"--iters", "3"},       {"--warmup", "2"},
      {"--blocks", "2"},     {"--launches", "2"},    {"--order", "alternate"},
      {"--seed", "7"},       {"--cache", "auto"},    {"--dirty", "off"},
      {"--memory", "heap"},  {"--sync", "barrier"},  {"--start-skew", "50us"},
      {"--busy", "2"},       {"--check", "all"},     {"--control", "solo"},
      {"--equiv", "3%"},     {"--min-effect", "9%"}, {"--timeout", "9s"},
      {"--json", "-"},       {"--csv", "f"},         {"--md", "f"},
      {"--report", "f"},     {"--svg", "d"},         {"--columns", "p50,algo"},
      {"--color", "never"},  {"--progress", "off"},  {"--graph-ops", "4"},
      {"--only", "mpi:8"},   {"--replay", ""}};
  RawOptions raw;
  RunOptions run;
  for (const OptionFacts& facts : option_facts(raw, run)) {
    std::stringstream names(facts.names);
    for (std::string name; std::getline(names, name, ',');) {
      if (!name.starts_with("--") || name == "--replay") continue;
      const bool flag = facts.is_flag();
      ASSERT_TRUE(flag || values.count(name) == 1) << name << " needs a value in this test";
      for (const bool underscores : {false, true}) {
        std::string word = name;
        if (underscores) std::replace(word.begin() + 2, word.end(), '-', '_');
        std::vector<const char*> words = {"compare", word.c_str()};
        if (!flag) words.push_back(values.at(name).c_str());
        if (name == "--graph-ops") words.insert(words.end(), {"--device", "cuda"});
        EXPECT_FALSE(parse(words).exit_code) << word;
      }
    }
  }
}

TEST(Options, AreAllInTheDocumentation) {
  std::ifstream file(C10D_SOURCE_DIR "/docs/benchmarking.md");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  RawOptions raw;
  RunOptions run;
  for (const OptionFacts& facts : option_facts(raw, run)) {
    std::stringstream names(facts.names);
    for (std::string name; std::getline(names, name, ',');)
      if (name.starts_with("--")) {
        EXPECT_NE(text.find(name), std::string::npos) << name;
      }
  }
}

TEST(Options, ThoseOfOtherBenchmarksAreTaken) {
  const RunOptions nccl = options_of(
      parse({"run", "--minbytes", "8", "--maxbytes=64", "--stepfactor", "8", "--warmup_iters", "5",
             "--datatype", "bfloat16", "--op", "mulsum", "-c", "0", "-J", "f", "--iters", "7"}));
  EXPECT_EQ(nccl.cases.sweep.sizes, (std::vector<std::uint64_t>{8, 64}));
  EXPECT_EQ(nccl.measurement.warmup, 5);
  EXPECT_EQ(nccl.cases.sweep.dtypes, std::vector<DType>{DType::bf16});
  EXPECT_EQ(nccl.cases.sweep.redops, std::vector<ReduceOp::Kind>{ReduceOp::premul_sum});
  EXPECT_EQ(nccl.measurement.check, Check::off);
  EXPECT_EQ(nccl.output.json, "f");
  EXPECT_EQ(nccl.argv[2], "--min") << "ranks and records get this program's spelling";
  const RunOptions osu =
      options_of(parse({"run", "-m", "4:16", "-x5", "-i", "9", "-W", "4", "-c", "1"}));
  EXPECT_EQ(osu.cases.sweep.sizes, (std::vector<std::uint64_t>{4, 8, 16}));
  EXPECT_EQ(osu.measurement.warmup, 5);
  EXPECT_EQ(osu.measurement.iters, 9U);
  EXPECT_EQ(osu.cases.window, 4);
  EXPECT_EQ(osu.measurement.check, Check::first);
  EXPECT_EQ(options_of(parse({"run", "--message-size=4:4"})).cases.sweep.sizes.size(), 1U);
  EXPECT_EQ(parse({"run", "-m", "8:64:2"}).exit_code, 2);
  EXPECT_EQ(options_of(parse({"run", "--json", "-g"})).output.json, "-g") << "a value is none";
}

TEST(Options, ThoseOfOtherBenchmarksAreNoneOfOurs) {
  RawOptions raw;
  RunOptions run;
  std::set<std::string> ours;
  for (const OptionFacts& facts : option_facts(raw, run)) {
    std::stringstream names(facts.names);
    for (std::string name; std::getline(names, name, ',');) ours.insert(name);
  }
  std::set<std::string> theirs;
  for (const OtherSpelling& other : other_spellings()) {
    EXPECT_EQ(ours.count(std::string(other.theirs)), 0U) << other.theirs;
    EXPECT_TRUE(theirs.emplace(other.theirs).second) << other.theirs;
    EXPECT_NE(other.ours.empty(), other.instead.empty()) << other.theirs;
    if (!other.ours.empty()) {
      EXPECT_EQ(ours.count(std::string(other.ours)), 1U) << other.ours;
    } else {
      EXPECT_EQ(parse({"run", std::string(other.theirs).c_str(), "1"}).exit_code, 2);
    }
  }
}

TEST(Options, DtypesHaveTheNamesOfOthersToo) {
  const auto dtypes = [](const char* text) {
    return options_of(parse({"run", "-d", text})).cases.sweep.dtypes;
  };
  EXPECT_EQ(dtypes("double,float,half,bfloat16"), dtypes("f64,f32,f16,bf16"));
  EXPECT_EQ(dtypes("int8,uint8,int32,uint32,int64,uint64"), dtypes("i8,u8,i32,u32,i64,u64"));
  EXPECT_EQ(dtypes("float8_e4m3fn,float8_e5m2"), dtypes("f8e4m3,f8e5m2"));
  EXPECT_EQ(parse({"run", "-d", "fp8_e4m3"}).exit_code, 2);
}

TEST(Options, SizesThatAreRoundedAreNamed) {
  const auto note = [](std::vector<const char*> words, int ranks) {
    words.insert(words.begin(), "run");
    return rounding_note(options_of(parse(std::move(words))).cases, ranks);
  };
  EXPECT_EQ(note({"-s", "4,8"}, 2), "");
  EXPECT_EQ(note({"-s", "3,8"}, 2),
            "S is whole elements on each rank: 3 B of all_reduce f32 is 4 B");
  EXPECT_EQ(note({"all_gather", "barrier", "-s", "8", "-d", "f64"}, 3),
            "S is whole elements on each rank: 8 B of all_gather f64 is 24 B");
  EXPECT_NE(note({"-s", "1,2,3,5,6"}, 2).find("3 B of all_reduce f32 is 4 B, and 2 more"),
            std::string::npos);
}

TEST(Options, CachesAreLinesOfTheSweep) {
  const RunOptions options =
      options_of(parse({"run", "all_reduce", "barrier", "-s", "8,16G", "--cache", "auto"}));
  std::vector<std::string> lines;
  for (const Case& c : cases_of(options.cases, 2)) {
    lines.push_back(key_of(c).op + " " + std::string(to_string(c.cache)) + " " +
                    std::to_string(c.bytes >> 30));
    EXPECT_EQ(c.walk > 0, c.cache == Cache::rotate);
  }
  EXPECT_EQ(lines, (std::vector<std::string>{"all_reduce hot 0", "all_reduce hot 16",
                                             "all_reduce rotate 0", "barrier hot 0"}))
      << "what no cache holds is not rotated";
}

TEST(Options, OnlyKeepsCellsAndTheBase) {
  const RunOptions options =
      options_of(parse({"compare", "-B", "native,raw:mpi,gloo", "all_reduce", "broadcast", "-s",
                        "8,1K,64K", "--only", "raw:mpi:1K,broadcast:raw:mpi:64K"}));
  EXPECT_EQ(options.backends.names, (std::vector<std::string>{"native", "raw:mpi"}));
  std::vector<std::string> kept;
  for (const Case& c : cases_of(options.cases, 2))
    kept.push_back(key_of(c).op + ":" + std::to_string(c.bytes));
  EXPECT_EQ(kept,
            (std::vector<std::string>{"all_reduce:1024", "broadcast:1024", "broadcast:65536"}));
  EXPECT_EQ(parse({"compare", "-B", "native,gloo", "--only", "mpi:8"}).exit_code, 2);
  EXPECT_EQ(parse({"compare", "-B", "native,gloo", "--only", "gloo"}).exit_code, 2);
  const RunOptions none =
      options_of(parse({"compare", "-B", "native,gloo", "-s", "8", "--only", "gloo:16"}));
  EXPECT_THROW(cases_of(none.cases, 2), InvalidArgument);
  const RunOptions torch = options_of(
      parse({"compare", "-B", "native,torch:gloo@/a/python,torch:c10d", "all_reduce", "-s", "8,1K",
             "--only", "torch:gloo@/a/python:1K,all_reduce:torch:gloo@/a/python:8"}));
  EXPECT_EQ(torch.backends.names, (std::vector<std::string>{"native", "torch:gloo@/a/python"}));
}

TEST(Options, PointToPointIsNeverConcurrent) {
  const RunOptions options =
      options_of(parse({"run", "all_reduce", "isend", "-s", "8", "--concurrent", "3"}));
  const std::vector<Case> cases = cases_of(options.cases, 2);
  ASSERT_EQ(cases.size(), 2U);
  EXPECT_EQ(cases[0].concurrent, 3);
  EXPECT_EQ(cases[1].concurrent, 1);
}

TEST(Options, WhatMakesNoSenseIsRefused) {
  EXPECT_EQ(parse({"run", "--graph", "3"}).exit_code, 2) << "no graph without a GPU";
  EXPECT_EQ(parse({"run", "--start-skew", "2s"}).exit_code, 2);
  EXPECT_EQ(parse({"run", "--cache", "warm"}).exit_code, 2);
  EXPECT_EQ(parse({"run", "--bind", "numa"}).exit_code, 2);
  EXPECT_EQ(parse({"run", "\xff"}).exit_code, 2) << "not UTF-8";
  EXPECT_EQ(parse({"explain", "all_reduce", "3", "-d", "f64"}).exit_code, 2);
  EXPECT_EQ(parse({"run", "--replay", "/no/such/file"}).exit_code, 2);
  EXPECT_EQ(parse({"run", "-s", "8,0"}).exit_code, 2) << "not 4 bytes instead";
  EXPECT_EQ(parse({"run", "-b", "0"}).exit_code, 2);
  EXPECT_EQ(parse({"run", "-s", "8,4097G"}).exit_code, 2) << "sums over ranks would wrap";
  EXPECT_EQ(parse({"run", "-e", "5T", "--step", "1T"}).exit_code, 2);
  EXPECT_EQ(parse({"explain", "all_reduce", "5T"}).exit_code, 2);
  EXPECT_EQ(parse({"run", "--step", "0"}).exit_code, 2);
  EXPECT_EQ(parse({"run", "--factor", "nan"}).exit_code, 2);
  EXPECT_EQ(parse({"compare", "--equiv", "200"}).exit_code, 2) << "not 20000 %";
  EXPECT_EQ(parse({"run", "-B", ""}).exit_code, 2) << "not the default instead";
}

TEST(Binding, SharesAreNeighboursThatKeepACoreTogether) {
  // Two packages of two cores of two threads each, numbered as Linux does.
  std::vector<Cpu> cpus;
  for (int cpu = 0; cpu < 8; ++cpu) cpus.push_back({cpu, cpu / 2 % 2, cpu % 2});
  EXPECT_EQ(cpus_of_rank(cpus, 0, 2, Bind::set), (std::vector<int>{0, 4, 1, 5}));
  EXPECT_EQ(cpus_of_rank(cpus, 1, 2, Bind::automatic), (std::vector<int>{2, 6, 3, 7}));
  EXPECT_EQ(cpus_of_rank(cpus, 1, 2, Bind::core), (std::vector<int>{2}));
  EXPECT_EQ(cpus_of_rank(cpus, 2, 4, Bind::set), (std::vector<int>{2, 6}));
  EXPECT_TRUE(cpus_of_rank(cpus, 0, 5, Bind::set).empty()) << "no room for progress threads";
  EXPECT_EQ(cpus_of_rank(cpus, 9, 16, Bind::core).size(), 1U);
  EXPECT_TRUE(cpus_of_rank(cpus, 0, 2, Bind::none).empty());
  EXPECT_EQ(cpus_text({3, 1, 2, 7}), "1-3,7");
}

TEST(Algorithms, AreMatchedByTheirFirstWords) {
  EXPECT_TRUE(is_as_asked("all_reduce", "two_shot/streaming/32768", "two_shot"));
  EXPECT_TRUE(is_as_asked("all_reduce", "two_shot/streaming/32768", "two_shot/streaming"));
  EXPECT_FALSE(is_as_asked("all_reduce", "two_shot/streaming/32768", "two_shot/temporal"));
  EXPECT_FALSE(is_as_asked("all_reduce", "two_shot/streaming/32768", "two"));
  EXPECT_TRUE(is_as_asked("broadcast", "pull", "all_reduce=two_shot")) << "not asked of this op";
  EXPECT_TRUE(is_as_asked("broadcast", "pull", "all_reduce=two_shot,pull"));
  EXPECT_EQ(folded({"a/x/2", "a/y/2", "a/x/10", "b"}), "a/{x,y}/{2,10} b");
  EXPECT_NO_THROW(refuse_unknown_algorithm("all_reduce=two_shot,pull", 2));
  EXPECT_THROW(refuse_unknown_algorithm("two_shit", 2), InvalidArgument);
  EXPECT_THROW(refuse_unknown_algorithm("barrier=two_shot", 2), InvalidArgument);
}

TEST(Options, ARootThatIsNoRankIsRefused) {
  const Parsed parsed = parse({"run", "broadcast", "--root", "2"});
  ASSERT_FALSE(parsed.exit_code);
  EXPECT_THROW(cases_of(parsed.options.run.cases, 2), InvalidArgument);
}

}}  // namespace c10d::bench
