// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "c10d/export.h"
#include "c10d/parallel/parameters.h"

// Inspects, verifies and consolidates checkpoints without a group; the errors of all checkpoint
// functions. checkpoint.h saves and loads.
namespace c10d { inline namespace v0 { namespace parallel {

// Why a checkpoint could not be written or read.
struct CheckpointFailure {
  std::string message;       // what, and what to do
  int rank = -1;             // the rank where it happened
  std::string file;          // the file that it is about; empty: none
  std::uint64_t offset = 0;  // byte in that file
};

// What every function that reads or writes checkpoints throws. When one rank of a group fails, all
// ranks throw the same failure. Checkpoints that were complete before stay as they are.
class C10D_API CheckpointError : public std::runtime_error {
 public:
  // An exception with that failure.
  explicit CheckpointError(CheckpointFailure failure);
  // A copy that shares the failure.
  CheckpointError(const CheckpointError& other) noexcept;
  ~CheckpointError() override;
  // All that is known. Valid as long as this exception.
  const CheckpointFailure& failure() const noexcept { return *failure_; }

 private:
  std::shared_ptr<const CheckpointFailure> failure_;
};

// What a checkpoint holds.
struct CheckpointInfo {
  std::string path;                              // its directory
  std::uint64_t step = 0;                        // Snapshot::step
  std::uint64_t epoch = 0;                       // Snapshot::epoch
  std::uint64_t cursor = 0;                      // Snapshot::cursor
  std::uint64_t bytes = 0;                       // of all its files
  int world_size = 0;                            // number of ranks that wrote it
  std::map<std::string, std::string> strings;    // Snapshot::strings
  std::map<std::string, std::int64_t> integers;  // Snapshot::integers
  std::vector<std::string> files;                // names of its files
  std::vector<ParamSpec> tensors;                // ordered by name
};
// Reads what a checkpoint holds, without its tensors. `path` is a checkpoint or a directory of
// checkpoints: then the latest. Local. Throws CheckpointError.
C10D_API CheckpointInfo inspect_checkpoint(const std::string& path);
// Reads and checks every byte of a checkpoint. `path` as above. Local. Throws CheckpointError that
// names file and offset of the first damage.
C10D_API void verify_checkpoint(const std::string& path);
// Writes all tensors, whole, to one new safetensors file, and checks them. `path` as above. Local.
// `output` appears when it is complete; a process that is killed may leave OUTPUT.partial-*. Throws
// CheckpointError.
C10D_API void consolidate_checkpoint(const std::string& path, const std::string& output);

}}}  // namespace c10d::v0::parallel
