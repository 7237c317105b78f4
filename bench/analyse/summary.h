// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/analyse/op_table.h"
#include "bench/model/record.h"

namespace c10d::bench {

struct Summary {
  std::vector<std::string> backends;
  // What each of them is compared with, by its place above: the first one, or, of two builds, the
  // same backend of the first build. A base is its own.
  std::vector<std::size_t> bases;
  bool is_base(std::size_t backend) const { return bases[backend] == backend; }
  std::string base_name() const;  // for a sentence about all of them
  // What %ceil is of.
  const char* copy_name() const { return cuda ? "GPU copy" : several_hosts ? "link" : "memcpy"; }
  std::vector<OpTable> tables;
  std::vector<CompareRecord> compares;
  std::vector<ControlRecord> controls;
  std::vector<WarnRecord> warnings;
  int launches = 0;
  int blocks = 0;
  int ranks = 0;
  bool cuda = false;           // buffers were on GPUs
  bool several_hosts = false;  // the ranks were
  int graph_ops = 0;           // of one CUDA graph; 0: there was none
  std::uint64_t measured = 0;  // cells: op x backend x size
  std::uint64_t skipped = 0;
  std::uint64_t wrong = 0;  // elements
};

// `equiv` is the ratio around 1 that counts as the same, `min_effect` what controls must be able to
// tell. With compare = false nothing is compared.
Summary summarise(const Results& results, bool compare, double equiv, double min_effect = 0.05);

// Distinct reasons for skips: "mpi: not started by mpirun (12 cells)".
std::vector<std::string> skip_notes(const Summary& summary);

}  // namespace c10d::bench
