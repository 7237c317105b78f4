// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "c10d/spi/backend.h"
#include "src/backends/native/links/stream.h"
#include "src/net/mesh/mesh.h"
#include "src/sync/fiber.h"
#include "src/sync/wait.h"

namespace c10d { inline namespace v0 { namespace native {

// A connection to every rank on other hosts, for the collectives of a group. There is no thread:
// whoever waits here drives all of them. For one thread at a time.
class Links {
 public:
  // `connections` have said nothing yet.
  Links(const BackendContext& context, std::vector<Mesh::Connection> connections);

  // Posts a block to or from a rank on another host: see Stream.
  void send(int rank, const std::byte* from, std::size_t bytes, std::uint64_t sequence);
  void receive(int rank, std::byte* to, std::size_t bytes, std::uint64_t sequence);
  // Sends what the connections take at once.
  void push();
  Stream& stream(int rank) noexcept { return lines_[static_cast<std::size_t>(rank)]->stream; }
  // Whether all that was posted is through.
  bool idle() const noexcept { return active_.empty(); }

  enum class End { ready, broken, timed_out, lost };  // see WaitResult; lost: a connection
  // Moves bytes until `ready()`. Spins for a moment where ranks have CPUs of their own, then
  // sleeps, for a millisecond at most: the group may break. In a fiber it lets other fibers run
  // instead.
  template <class Ready>
  End await(const WaitPolicy& policy, const Control& control, Deadline deadline, Ready ready) {
    Waiting waiting{policy, control, deadline};
    for (;;) {
      const bool moved = progress();
      if (ready()) return End::ready;
      if (lost_) return End::lost;
      if (const End end = turn(waiting, moved); end != End::ready) return end;
    }
  }
  // How long to look for why a connection ended: a host is known to be silent after two seconds.
  static constexpr std::chrono::seconds kLossPatience{3};
  // After await() returned `lost`: what was lost, as a failure of the rank at the other end.
  Failure failure_of_loss(const BackendContext& context) const;
  // The ranks to or from which blocks are not through, ascending.
  std::vector<int> awaited() const;

  // "reno", as the kernel names the congestion control of the connections.
  std::string congestion_control() const;

 private:
  struct Line {
    int rank;
    RankSocket socket;
    Stream stream;
    bool is_active = false;
  };
  struct Loss {
    int rank;
    std::string why;
    bool corrupt;
  };
  struct Waiting {
    const WaitPolicy& policy;
    const Control& control;
    Deadline deadline;
    int turns = 0;
    std::chrono::steady_clock::time_point spins_since{};
  };
  static bool is_busy(const Line& line) noexcept {
    return line.stream.sends() || line.stream.awaits();
  }
  void activate(Line& line);  // if it is busy
  bool progress();
  bool write(Line& line);
  bool read(Line& line);
  void lose(Line& line, std::string why, bool corrupt);
  End turn(Waiting& waiting, bool moved);
  void sleep(Deadline deadline) const;

  std::vector<std::unique_ptr<Line>> lines_;  // by rank; null: on this host
  std::vector<Line*> active_;                 // with blocks that are not through
  std::optional<Loss> lost_;
};

}}}  // namespace c10d::v0::native
