// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "c10d/export.h"
#include "c10d/parallel/parameters.h"
#include "c10d/process_group.h"

// Checkpoints: a directory per checkpoint below `directory`, written by all ranks of a group and
// readable at any number of ranks and with any split. docs/checkpoint.md has the format.
namespace c10d::inline v0::parallel {

struct CheckpointFailure {
  std::string message;
  int rank = -1;             // where it happened
  std::string file;          // empty when it is about no file
  std::uint64_t offset = 0;  // byte in the file
};

// What every function here throws, DistError of the group itself aside. When one rank fails, all
// ranks throw the same failure, and checkpoints that were complete before stay as they are.
class C10D_API CheckpointError : public std::runtime_error {
 public:
  explicit CheckpointError(CheckpointFailure failure);
  CheckpointError(const CheckpointError&) noexcept;
  ~CheckpointError() override;
  const CheckpointFailure& failure() const noexcept { return *failure_; }

 private:
  std::shared_ptr<const CheckpointFailure> failure_;
};

// Elements [offset, offset + data.size() / size of the dtype) of a tensor, flattened in row-major
// order, as this rank holds them. `spec` describes the whole tensor.
struct TensorPart {
  ParamSpec spec{};
  std::size_t offset = 0;
  std::span<std::byte> data{};
};

// All that a run needs to go on. Model, optimizer and RNG are tensors; a prefix in their names
// ("model.", "adam.m.", "rng.") keeps them apart. A rank lists the parts that it holds, in any
// order; a tensor that every rank holds is given whole by every rank. The other fields are the same
// on all ranks.
struct Snapshot {
  std::uint64_t step = 0;  // steps that are done: the next one to run
  std::uint64_t epoch = 0;
  std::uint64_t cursor = 0;  // samples of this epoch that are done, over all ranks
  std::map<std::string, std::string> strings{};
  std::map<std::string, std::int64_t> integers{};
  std::vector<TensorPart> parts{};
};

struct SaveOptions {
  std::size_t keep = 2;  // complete checkpoints that stay, the new one among them; 0: all
  // Of AsyncSaver: how long a rank waits for the others to have written theirs.
  Duration timeout = std::chrono::hours(1);
};

struct LoadOptions {
  std::string name{};  // of the checkpoint, as a directory; empty: what `latest` names
  bool strict = true;  // names missing from the checkpoint, or left over in it, are an error
};

struct LoadResult {
  std::string name;
  std::vector<std::string> missing;     // asked for by a rank, not in the checkpoint: left alone
  std::vector<std::string> unexpected;  // in the checkpoint, asked for by no rank
};

// Collective. Writes a checkpoint and returns its name when it is on the disk on every rank and
// `latest` names it. `directory` is one that rank 0 and all ranks that write see; it is made, its
// parent must exist. What several ranks hold is written by the lowest of them, and a rank without
// anything to write, other than rank 0, leaves the disk alone. A gap between the parts is an error.
// Buffers are read during the call only. One job at a time may write to a directory.
C10D_API std::string save(ProcessGroup& group, const std::string& directory,
                          const Snapshot& snapshot, SaveOptions options = {});

// Collective. Fills snapshot.parts, as split here and now, and the other fields. Nothing, when the
// directory holds no checkpoint. A dtype or shape that differs is always an error. After an error
// the memory of the parts may hold anything.
C10D_API std::optional<LoadResult> load(ProcessGroup& group, const std::string& directory,
                                        Snapshot& snapshot, LoadOptions options = {});

// As save(), but the caller waits for a copy in memory only, kept for the next one; a thread does
// all, on a group of its own. save() waits for the checkpoint before. One thread at a time.
class C10D_API AsyncSaver {
 public:
  // Collective. Makes the directory and keeps other jobs out of it. `group` outlives this object.
  AsyncSaver(ProcessGroup& group, std::string directory, SaveOptions options = {});
  // Waits for the checkpoint under way, and is silent about its failure; gives it up when the group
  // has failed.
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  // The parts' memory is read until wait() returns. The destructor waits.
  struct C10D_API Copying {
    struct Copy;
    Copying(std::shared_ptr<Copy> begun = {}) noexcept;
    Copying(Copying&&) noexcept = default;
    ~Copying();
    void wait() const noexcept;
    std::shared_ptr<Copy> copy;
  };
  // Collective. Throws what befell the checkpoint before, if neither wait() nor poll() did, and
  // begins none. Who drops the result has waited for the copy; who keeps it computes meanwhile, and
  // changes nothing that the parts name before wait().
  Copying save(const Snapshot& snapshot);
  // Collective. Returns when the checkpoint under way, if any, is on the disk and the latest; else
  // throws why not: a CheckpointError is the same on every rank; after any other DistError (a rank
  // died, SaveOptions::timeout passed) this object saves no more.
  void wait();
  // Collective, one small all_reduce. As wait() when every rank knows how the checkpoint ended;
  // else false, at once. True when nothing is under way.
  bool poll();

 private:
  class State;
  std::unique_ptr<State> state_;
};

// Local. `path` is a checkpoint, or a directory of them (then what `latest` names).
struct CheckpointInfo {
  std::string path;
  std::uint64_t step = 0, epoch = 0, cursor = 0, bytes = 0;
  int world_size = 0;  // that wrote it
  std::map<std::string, std::string> strings;
  std::map<std::string, std::int64_t> integers;
  std::vector<std::string> files;
  std::vector<ParamSpec> tensors;  // in the order of their names
};
C10D_API CheckpointInfo inspect_checkpoint(const std::string& path);
// Reads every byte and checks it. Throws CheckpointError that names file and offset.
C10D_API void verify_checkpoint(const std::string& path);
// Writes all tensors, whole, to one new safetensors file. Checks as it reads. The file is there
// when it is complete; a process that is killed leaves OUTPUT.partial-*.
C10D_API void consolidate_checkpoint(const std::string& path, const std::string& output);

}  // namespace c10d::inline v0::parallel
