// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "c10d/export.h"
#include "c10d/parallel/checkpoint_info.h"
#include "c10d/parallel/parameters.h"
#include "c10d/process_group.h"

// Checkpoints: all ranks of a group write one, and any number of ranks can read it, with any split
// of the tensors. Each is a directory below the `directory` of the calls. docs/checkpoint.md has
// the format.
namespace c10d { inline namespace v0 { namespace parallel {

// The part of a tensor that this rank holds: the elements from `offset` on, flattened in row-major
// order.
struct TensorPart {
  ParamSpec spec{};        // of the whole tensor
  std::size_t offset = 0;  // first element of the part
  // The elements of the part, in memory of the host: save() reads them, load() writes them.
  std::span<std::byte> data{};
};

// All that a run needs to resume. Model, optimizer and random number generators are tensors; a
// prefix of their names ("model.", "adam.m.", "rng.") keeps them apart.
struct Snapshot {
  std::uint64_t step = 0;    // number of steps that are done
  std::uint64_t epoch = 0;   // the epoch that runs
  std::uint64_t cursor = 0;  // samples of this epoch that are done, over all ranks
  std::map<std::string, std::string> strings{};    // anything else; the same on all ranks
  std::map<std::string, std::int64_t> integers{};  // anything else; the same on all ranks
  // The parts that this rank holds, in any order. A tensor that is replicated is given whole by
  // every rank. The other fields are the same on all ranks.
  std::vector<TensorPart> parts{};
};

// Options of save() and AsyncSaver.
struct SaveOptions {
  std::size_t keep = 2;  // complete checkpoints that stay, with the new one; 0: all
  // AsyncSaver only: how long a rank waits for the others to write theirs.
  Duration timeout = std::chrono::hours(1);
};

// Options of load().
struct LoadOptions {
  std::string name{};  // directory of the checkpoint; empty: the latest
  bool strict = true;  // whether names that are missing or unexpected are an error
};

// What load() found.
struct LoadResult {
  std::string name;                     // directory of the checkpoint
  std::vector<std::string> missing;     // a rank asked for it, and the checkpoint lacks it
  std::vector<std::string> unexpected;  // the checkpoint has it, and no rank asked for it
};

// Writes a checkpoint and returns its name. Then it is on the disk on every rank, and it is the
// latest. Collective.
// Rank 0, and all ranks that write, see the same `directory`. It is created if it does not exist;
// its parent must exist. The lowest rank that holds an element writes it; a rank with nothing to
// write, other than rank 0, does not touch the disk. One job at a time may write to a directory.
// Throws CheckpointError, the same on every rank, also when an element is in no part.
C10D_API std::string save(const ProcessGroup& group, const std::string& directory,
                          const Snapshot& snapshot, SaveOptions options = {});

// Reads a checkpoint into the memory of snapshot.parts, whatever the split of the ranks that wrote
// it, and into the other fields of `snapshot`. Returns nothing when the directory holds no
// checkpoint. Collective. A tensor that is missing keeps what it has.
// Throws CheckpointError, the same on every rank: also for a dtype or shape that differs, whether
// strict or not. The memory of the parts may then hold anything.
C10D_API std::optional<LoadResult> load(const ProcessGroup& group, const std::string& directory,
                                        Snapshot& snapshot, LoadOptions options = {});

// Saves in the background: the caller waits for a copy in memory only, and a thread with a group of
// its own writes the checkpoint. The copy takes as much memory as this rank writes, and is kept for
// the next checkpoint. One thread at a time.
class C10D_API AsyncSaver {
 public:
  // Creates `directory` if it does not exist, and locks it against other jobs until this object is
  // destroyed. Collective. Throws CheckpointError, the same on every rank.
  AsyncSaver(const ProcessGroup& group, std::string directory, SaveOptions options = {});
  // Waits for the checkpoint that is being written, if any, and does not report its failure. Gives
  // it up when the group is broken.
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  // A copy in memory that is being made. Do not modify the tensors of the snapshot until wait()
  // returns.
  class C10D_API Copying {
   public:
    // Nothing to wait for.
    Copying() noexcept;
    // Takes over the copy.
    Copying(Copying&&) noexcept = default;
    // Waits for the copy.
    ~Copying();
    // Waits for the copy.
    void wait() const noexcept;

   private:
    friend class AsyncSaver;
    struct Copy;
    explicit Copying(std::shared_ptr<Copy> begun) noexcept;
    std::shared_ptr<Copy> copy_;
  };
  // Starts to save a snapshot; waits first until the previous checkpoint is written. Collective.
  // Destroying the result waits for the copy. Keep it to overlap the copy with computation, and do
  // not modify the tensors until its wait() returns.
  // If the previous checkpoint failed and neither wait() nor poll() has thrown that error, throws
  // it and starts nothing.
  Copying save(const Snapshot& snapshot);
  // Waits until the checkpoint that is being written, if any, is on the disk and is the latest.
  // Collective. Throws why it failed: a CheckpointError is the same on every rank; after any other
  // DistError (a rank died, SaveOptions::timeout passed) this object can save no more.
  void wait();
  // Whether the checkpoint is written, without waiting. True when every rank knows that it is, or
  // when there is none; throws as wait() when it failed. Collective: costs one small all_reduce.
  bool poll();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}}}  // namespace c10d::v0::parallel
