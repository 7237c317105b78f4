// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>

#include "bench/measure/subject.h"
#include "bench/measure/watchdog.h"
#include "bench/meeting/shared_page.h"
#include "bench/model/cases.h"

namespace c10d::bench {

// The number of ranks: of the launcher that started this one, else as asked for, else (0) two.
int ranks_to_probe(int asked);
// Throws InvalidArgument where the buffers of `ranks` ranks for cases of up to `bytes` are more
// than there is memory.
void refuse_beyond_memory(int ranks, std::uint64_t bytes);

// One rank of those that tune and explain: measures native with algorithms of the caller's choice.
// Every member but `control` is collective.
class Probe {
 public:
  Probe();
  ~Probe();
  ProcessGroup& control() noexcept { return control_; }
  bool is_root() const { return control_.rank() == 0; }

  // A new group, with C10D_NATIVE_PLAN set to `forced` where it is not empty, and buffers for cases
  // of up to `bytes`.
  void open(const std::string& forced, bool registered, std::uint64_t bytes);
  // What the slowest rank takes, in microseconds: the fastest tenth of about `seconds`.
  double measure(BenchOp op, DType dtype, std::uint64_t bytes, double seconds);

 private:
  void close();
  Watchdog watchdog_;
  ProcessGroup control_;
  SharedPage page_;
  std::unique_ptr<Subject> subject_;
  std::unique_ptr<Arena> input_, output_;
  int opened_ = 0;
};

}  // namespace c10d::bench
