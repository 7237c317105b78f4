// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "c10d/parallel/checkpoint.h"
#include "src/parallel/checkpoint_manifest.h"
#include "src/parallel/file_system.h"

namespace c10d::inline v0::parallel {

// One checkpoint on its way to the disk: begin() and finish() are collective, what lies between is
// this rank's own and keeps its failure for finish().
class SaveJob {
 public:
  SaveJob(ProcessGroup& group, std::string directory, SaveOptions options, FileSystem& disk)
      : group_(group), directory_(std::move(directory)), options_(options), disk_(disk) {}

  void begin(const Snapshot& snapshot);  // the parts' memory is read until copy() or write()
  void copy() noexcept;
  void write() noexcept;
  // Publishes when every rank has written. Returns the name.
  std::string finish();

 private:
  struct Item {
    std::size_t tensor;
    std::uint64_t offset;
    ParamSpec spec;  // as in the shard
    std::span<const std::byte> data;
  };
  struct Written {  // as ManifestPiece, with the tensor's index
    std::size_t tensor;
    ManifestPiece piece;
  };

  void write_shard();
  void add_file(int rank, const std::vector<std::uint64_t>& words);
  std::vector<std::uint64_t> written_words() const;
  std::string publish();
  void retain(const std::string& newest);

  ProcessGroup& group_;
  const std::string directory_;
  const SaveOptions options_;
  FileSystem& disk_;
  std::string temporary_;
  Manifest manifest_;  // tensors without pieces until publish()
  std::vector<Item> items_;
  std::vector<std::vector<std::byte>> copies_;
  ManifestFile file_;  // bytes 0: nothing written
  std::vector<Written> written_;
  std::exception_ptr error_;
};

// As the public one, on this file system.
C10D_API std::string save(ProcessGroup& group, const std::string& directory,
                          const Snapshot& snapshot, SaveOptions options, FileSystem& disk);

}  // namespace c10d::inline v0::parallel
