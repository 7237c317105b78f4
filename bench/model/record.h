// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/model/cases.h"
#include "bench/model/stats.h"

namespace c10d::bench {

// The lines of schema 1 (bench/schema/c10d-bench-1.schema.json) as values. Times are microseconds,
// bandwidths 1e9 bytes per second.

struct RoundTrip {
  double before = 0;
  double after = 0;
  std::string bucket;  // near, far, mixed; empty: not measured
};

// Where the ranks are. On GPUs: a single rank; each on one of its own; or several on one, where
// what they exchange crosses no link.
inline constexpr const char* kOneHost = "one_host";
inline constexpr const char* kSeveralHosts = "several_hosts";
inline constexpr const char* kOneGpu = "one_gpu";
inline constexpr const char* kGpuPerRank = "gpu_per_rank";
inline constexpr const char* kColocated = "1gpu-colocated";

// One block: op x backend x bytes x dtype x place x launch x block.
struct CellRecord {
  CellKey key;
  std::string backend;
  std::string algo;                  // empty: unknown
  std::string device = "cpu";        // where the buffers are: cpu, cuda
  std::string placement = kOneHost;  // of the ranks
  std::uint64_t elems = 0;
  int window = 1;
  int burst = 1;      // ops, or windows, that one iteration times together
  int graph_ops = 0;  // of one CUDA graph; 0: they are called one by one
  int launch = 0;
  int block = 0;
  int order = 0;
  std::uint64_t iters = 0;
  Quantiles us;
  // On a GPU: how long one call keeps the thread. Between hosts: CPU time of one op, of all threads
  // of the rank that takes most.
  std::optional<double> cpu_us;
  std::optional<double> alg, bus, mem, net;
  std::string sync = "loop";                // how its ops started, as --sync has it
  std::optional<double> skew_in, skew_out;  // empty: between hosts, without starts by clock
  std::optional<double> clock_us;  // of such starts: how well the clocks of the hosts were known
  std::optional<RoundTrip> rtt;
  std::uint64_t wrong = 0;
  std::string hash;
  std::array<std::int64_t, 2> switches{};  // voluntary, involuntary; all ranks together
  std::vector<double>
      samples;  // us, slowest rank per iteration; in memory, and in files with --raw
};

// A cell that could not be measured.
struct SkipRecord {
  CellKey key;
  std::string backend;
  std::string code;  // unsupported, unavailable, failed
  std::string reason;
};

// Of the kind and the level of a CeilRecord.
inline constexpr const char* kLink = "link";
inline constexpr const char* kBothWays = "both ways";

struct CeilRecord {
  std::string kind;   // memcpy, shm, tcp; device_copy: on a GPU; link: between two hosts
  std::string level;  // of copies: L1, L2, L3, DRAM; empty: beside the cells of that size. Of a
                      // link: round trip, one way, both ways (then GB/s in each direction)
  std::uint64_t bytes = 0;
  int launch = 0;
  std::optional<double> gbps;
  double us = 0;
  bool hot = true;  // else of memory that no cache holds
  int streams = 0;  // of a link: connections at once

  bool is_beside_cells() const {
    return (kind == "memcpy" || kind == "device_copy") && level.empty();
  }
};

// Verdict on one cell: other against base.
struct CompareRecord {
  CellKey key;
  std::string base;
  std::string other;
  Estimate ratio;
  Verdict verdict = Verdict::none;
};

// What the run says about itself: the base against itself (aa), a backend in this company against
// the same one in processes of its own (solo).
struct ControlRecord {
  std::string kind;
  std::string backend;
  Estimate ratio;
  Trust trust = Trust::ok;
};

struct WarnRecord {
  std::string code;
  std::string text;
  std::string only = {};  // the cell, as --only takes it; empty: the whole run
};

// Time against size as a start-up and a pace, over the sizes where that holds; and where another
// backend overtakes.
struct FitRecord {
  CellKey key;  // bytes = 0
  std::string backend;
  std::optional<LineFit> line;                // of bytes to us; nothing: no line fits
  std::uint64_t from = 0, to = 0;             // sizes
  std::string other;                          // the base; empty: this is the base
  std::optional<std::uint64_t> overtakes_at;  // bytes where the faster of the two changes
};

using Json = nlohmann::ordered_json;
// Takes records as they come.
using Sink = std::function<void(const Json&)>;

Json to_json(const CellRecord& cell, bool with_samples);
Json to_json(const SkipRecord& skip);
Json to_json(const CeilRecord& ceil);
Json to_json(const CompareRecord& compare);
Json to_json(const ControlRecord& control);
Json to_json(const WarnRecord& warn);
Json to_json(const FitRecord& fit);
// One line of a file. What is no UTF-8, as a variable's value may be, is replaced.
std::string line_text(const Json& line);
// {"v":1,"t":"sample",...}: one iteration is one entry of "us".
Json sample_json(const CellRecord& cell);

// Everything that one run measured, in one file or in several parts.
struct Results {
  Json run;  // the first run record
  std::vector<Json> environments;
  std::vector<CellRecord> cells;
  std::vector<SkipRecord> skips;
  std::vector<CeilRecord> ceilings;
  std::vector<ControlRecord> controls;
  std::vector<WarnRecord> warnings;
  bool complete = true;

  // Takes one line. Unknown kinds and fields are ignored. Throws nlohmann::json::exception on a
  // line that lacks what its kind must have, InvalidArgument on one of another run.
  void add(const Json& line);
  // Launches of a further file are numbered after those already here.
  int launch_offset = 0;
};

// Reads one JSON Lines file into `results`; a cut last line is ignored. Throws InvalidArgument with
// the line number on anything else that is no record.
void read_results(const std::string& path, Results& results);

}  // namespace c10d::bench
