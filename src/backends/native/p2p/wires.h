// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "src/backends/native/p2p/routes.h"
#include "src/backends/native/p2p/wire.h"
#include "src/net/fd.h"

namespace c10d { inline namespace v0 { namespace native {

// The wires of a rank to all ranks on other hosts, and what it sleeps on until one of them has
// something to do. For one thread at a time, except sleep().
class Wires {
 public:
  // Throws out_of_resources where there is no descriptor left.
  Wires(const BackendContext& context, std::vector<Mesh::Connection> connections);

  bool empty() const noexcept { return count_ == 0; }
  // Null: that rank is on this host.
  Wire* at(int rank) const noexcept { return lines_[static_cast<std::size_t>(rank)].wire.get(); }

  // Those that have something to do now, in one system call; some of them if they are many.
  const std::vector<int>& ready();
  // After each use of a wire: what it waits for may be different now.
  void update(int rank);
  // Returns when a wire has something to do, or after `longest`.
  void sleep(std::chrono::nanoseconds longest) const noexcept;

  // Whether a wire was lost, or is corrupt.
  bool any_ended() const noexcept { return ended_ != 0; }
  // Whether some of them shall take more as soon as they can.
  bool has_output() const noexcept { return outputs_ != 0; }
  // See Wire.
  bool is_acknowledged() const;
  // Every 20 ms, whatever else happens: answers ranks that have left a network.
  void look_after();

 private:
  struct Line {
    std::unique_ptr<Wire> wire;
    std::vector<pollfd> watched;
    bool has_output = false;
    bool ended = false;
  };
  void watch(int rank);
  void add_unacknowledged();
  void look_for_silence();

  Fd poll_;                  // an epoll
  std::vector<Line> lines_;  // by rank
  std::vector<int> ready_;   // scratch
  std::size_t count_ = 0, ended_ = 0, outputs_ = 0;
  bool has_several_ = false;  // networks
  Deadline next_look_{};      // for silence
  std::atomic<bool> awaits_acknowledgement_ = false;
};

}}}  // namespace c10d::v0::native
