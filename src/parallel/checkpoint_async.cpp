// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <optional>
#include <thread>

#include "src/parallel/checkpoint_save.h"

namespace c10d::inline v0::parallel {

class AsyncSaver::State {
 public:
  State(ProcessGroup& group, std::string directory, SaveOptions options)
      : group_(group), directory_(std::move(directory)), options_(options) {}
  ~State() {
    if (writer_.joinable()) writer_.join();
  }

  void save(const Snapshot& snapshot) {
    finish();
    job_.emplace(group_, directory_, options_, real_file_system());
    try {
      job_->begin(snapshot);
    } catch (...) {
      job_.reset();
      throw;
    }
    job_->copy();
    is_written_ = false;
    try {
      writer_ = std::thread([this] {
        job_->write();
        is_written_ = true;
      });
    } catch (const std::system_error&) {  // no thread to be had: here, then
      job_->write();
      is_written_ = true;
    }
  }

  void finish() {
    if (!job_) return;
    if (writer_.joinable()) writer_.join();
    // Whatever finish() throws, this checkpoint is over.
    SaveJob job = std::move(*job_);
    job_.reset();
    job.finish();
  }

  bool poll() {
    if (!job_) return true;
    std::int32_t is_written = is_written_ ? 1 : 0;
    group_.all_reduce(std::span(&is_written, 1), ReduceOp::min);
    if (is_written == 0) return false;
    finish();
    return true;
  }

 private:
  ProcessGroup& group_;
  const std::string directory_;
  const SaveOptions options_;
  std::optional<SaveJob> job_;  // begun, not finished
  std::thread writer_;
  std::atomic<bool> is_written_ = false;
};

AsyncSaver::AsyncSaver(ProcessGroup& group, std::string directory, SaveOptions options)
    : state_(std::make_unique<State>(group, std::move(directory), options)) {}
AsyncSaver::~AsyncSaver() = default;
void AsyncSaver::save(const Snapshot& snapshot) { state_->save(snapshot); }
void AsyncSaver::wait() { state_->finish(); }
bool AsyncSaver::poll() { return state_->poll(); }

}  // namespace c10d::inline v0::parallel
