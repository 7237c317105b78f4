// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/parallel/checkpoint.h"
#include "src/parallel/checkpoint/file_system.h"
#include "src/parallel/checkpoint/folder_lock.h"
#include "src/parallel/checkpoint/manifest.h"
#include "src/parallel/checkpoint/plan.h"

namespace c10d { inline namespace v0 { namespace parallel {

// One checkpoint after the other on its way to the disk: begin() and finish() are collective, what
// lies between is this rank's own and keeps its failure for finish(). One thread at a time.
class SaveJob {
 public:
  SaveJob(const ProcessGroup& group, std::string directory, SaveOptions options, FileSystem& disk,
          std::uint64_t manifest_limit = kMaxManifestBytes)
      : group_(group),
        directory_(std::move(directory)),
        options_(options),
        disk_(disk),
        manifest_limit_(manifest_limit) {}

  // Collective, on its own: for a job that another one keeps out of the folder to know it at once,
  // not after hours of training. Else write() does this.
  void lock();
  void begin(const Snapshot& snapshot);  // the parts' memory is read until copy() or write()
  // Into memory that is kept for the next one: fresh pages cost more than the copy.
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

  void enter_folder();
  void plan(std::string_view phase, std::vector<DescribedPart> parts);
  void lay_out(const Snapshot& snapshot);
  void write_shard();
  void add_file(int rank, const std::vector<std::uint64_t>& words);
  std::vector<std::uint64_t> written_words() const;
  std::string publish();
  void retain(const std::string& newest);

  const ProcessGroup group_;
  const std::string directory_;
  const SaveOptions options_;
  FileSystem& disk_;
  const std::uint64_t manifest_limit_;
  std::optional<SavePlan> plan_;
  std::vector<DescribedPart> parts_;  // of this rank, which plan_ is for
  std::unique_ptr<std::byte[]> copy_;
  std::size_t copy_bytes_ = 0;
  std::shared_ptr<FolderLock> lock_;  // of rank 0, from lock() or its first checkpoint on
  // Of the checkpoint under way.
  std::string temporary_;
  Manifest manifest_;  // tensors without pieces until publish()
  std::vector<Item> items_;
  ManifestFile file_;  // bytes 0: nothing written
  std::vector<Written> written_;
  std::exception_ptr error_;
};

// As the public one, on this file system and with this limit.
C10D_API std::string save(const ProcessGroup& group, const std::string& directory,
                          const Snapshot& snapshot, SaveOptions options, FileSystem& disk,
                          std::uint64_t manifest_limit = kMaxManifestBytes);

}}}  // namespace c10d::v0::parallel
