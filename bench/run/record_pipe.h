// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "bench/model/record.h"

namespace c10d::bench {

// The records of another process, as they come: a pipe that it opens by its path in /proc, also
// as the child of a launcher. `take` is called in a thread of the pipe, and `report` for a line
// that is no record.
class RecordPipe {
 public:
  RecordPipe(Sink take, std::function<void(const std::string& text)> report);
  // Ends once every writer is gone, which the end of the launch brings about; then every record has
  // been taken.
  ~RecordPipe();
  RecordPipe(const RecordPipe&) = delete;
  RecordPipe& operator=(const RecordPipe&) = delete;
  std::string path() const;

 private:
  void read_all();
  void read_line(const std::string& text);

  Sink take_;
  std::function<void(const std::string& text)> report_;
  int ends_[2] = {-1, -1};
  std::thread reader_;
};

}  // namespace c10d::bench
