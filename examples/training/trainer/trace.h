// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "c10d/process_group.h"

namespace nn {

// What ran when, on this rank; written as one Chrome trace for all ranks. Costs nothing when it was
// not asked for. Thread-safe.
class Trace {
 public:
  using Clock = std::chrono::steady_clock;  // ranks of one host share it
  enum class Track : int { compute, communication };
  // Replicas compute at the same time, so each has a track of its own.
  static Track replica(int index) { return static_cast<Track>(2 + index); }

  explicit Trace(bool enabled) : enabled_(enabled) {}
  bool enabled() const noexcept { return enabled_; }
  void add(Track track, std::string name, Clock::time_point begin, Clock::time_point end);
  // Collective: rank 0 writes the file. Throws std::runtime_error when it cannot.
  void write(c10d::ProcessGroup& group, const std::string& path);

 private:
  struct Span {
    Track track;
    std::string name;
    Clock::time_point begin, end;
  };
  bool enabled_;
  std::mutex mutex_;
  std::vector<Span> spans_;
};

// A span from here to the end of the scope.
class Traced {
 public:
  Traced(Trace& trace, std::string name, Trace::Track track = Trace::Track::compute)
      : trace_(trace), name_(std::move(name)), track_(track), begin_(Trace::Clock::now()) {}
  ~Traced() {
    const Trace::Clock::time_point end = Trace::Clock::now();
    if (sum_ != nullptr) *sum_ += end - begin_;
    if (trace_.enabled()) trace_.add(track_, std::move(name_), begin_, end);
  }
  // Adds the length of the span to `sum` as well.
  void add_to(std::chrono::duration<double>& sum) { sum_ = &sum; }
  Traced(const Traced&) = delete;
  Traced& operator=(const Traced&) = delete;

 private:
  Trace& trace_;
  std::string name_;
  Trace::Track track_;
  Trace::Clock::time_point begin_;
  std::chrono::duration<double>* sum_ = nullptr;
};

}  // namespace nn
