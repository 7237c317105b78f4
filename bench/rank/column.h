// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/measure/buffers.h"
#include "bench/measure/subject.h"
#include "bench/model/options.h"
#include "bench/rank/control_group.h"

namespace c10d::bench {

// The memory that every case has its buffers in.
struct CaseMemory {
  std::unique_ptr<Arena> input, output;
};

// A column of the table in this launch: a backend, and whether it can still be measured.
struct Column {
  std::string name;
  CaseMemory own;  // on a GPU with --memory heap; before the subject, which uses it
  std::unique_ptr<Subject> subject;  // null: not available here
  std::string code;                  // why it is not measured: unavailable, failed; empty: it is
  std::string reason;
  std::string algo;         // of the case in work, where the backend says so
  bool registered = false;  // the buffers are its own memory
};

// Collective: opens the backends. One that a rank cannot open is a column with the reason.
std::vector<Column> open_columns(const std::vector<std::string>& names, SubjectContext context,
                                 ControlGroup& control);

// Collective. On the GPU of the seat, if there is one. With `heap`, registered with the first
// backend that has such memory; the others use it as any other. On a GPU each column gets memory of
// its own then, for NCCL's windows belong to one communicator, and nothing is returned.
CaseMemory allocate(Footprint bytes, bool heap, std::vector<Column>& columns, const GpuSeat* seat);

// Whether the column can run the case in these buffers, and with which algorithm. All ranks get the
// same answer.
Support support_of(const Case& c, const Column& column, const Buffers& buffers,
                   const BackendOptions& options);

}  // namespace c10d::bench
