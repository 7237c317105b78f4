// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "c10d/spi/backend.h"
#include "src/backends/native/links/stream.h"
#include "src/net/mesh/mesh.h"
#include "src/sync/fiber.h"
#include "src/sync/wait.h"

namespace c10d { inline namespace v0 { namespace native {

// Connections to every rank on other hosts, for the collectives of a group: one for each stream.
// Each block is divided among the streams, in whole chunks, the same way on both ranks. There is no
// thread: whoever waits here drives all of them. For one thread at a time.
class Links {
 public:
  // `connections`: of each stream, that have said nothing yet. Where they have several networks,
  // one may be cut while ranks hear of each other over another: then they go on over the next, and
  // are lost when the other host answers on none. There an op is settled once the other
  // host has its blocks: until then they may have to be sent again.
  Links(const BackendContext& context, std::vector<std::vector<Mesh::Connection>> connections);

  // Posts a block to or from a rank on another host: see Stream.
  void send(int rank, const std::byte* from, std::size_t bytes, std::uint64_t sequence);
  void receive(int rank, std::byte* to, std::size_t bytes, std::uint64_t sequence);
  // Sends what the connections take at once.
  void push();
  // How many blocks were posted to and from a rank, and how many of the first of them are through.
  std::size_t posted_sends(int rank) const noexcept;
  std::size_t posted_receives(int rank) const noexcept;
  std::size_t sent(int rank) const noexcept;
  std::size_t received(int rank) const noexcept;
  // Whether all that was posted is through.
  bool idle() const noexcept { return std::ranges::none_of(active_, has_blocks); }
  // Whether the other hosts have it, too, where there are several networks.
  bool settled() const noexcept { return active_.empty(); }

  // Held while a thread is in here, so that another one can look_after() the networks meanwhile.
  class Use {
   public:
    explicit Use(Links& links) noexcept : links_(links) { take(); }
    ~Use() { give(); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    // While the thread waits elsewhere.
    template <class Wait>
    auto without(Wait wait) {
      give();
      struct Taken {
        Use& use;
        ~Taken() { use.take(); }
      } const taken{*this};
      return wait();
    }

   private:
    void take() noexcept {
      while (links_.in_use_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
    }
    void give() noexcept { links_.in_use_.store(false, std::memory_order_release); }
    Links& links_;
  };
  // Answers ranks that have left a network, unless a thread is in here. From any thread.
  void look_after();

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
  // What to sleep() on, until so much time is over or a connection has something, where a thread
  // waits for other things, too.
  std::vector<pollfd>& polled();
  static void sleep(std::span<pollfd> polled, Duration longest);
  // How long to look for why a connection ended. A host is known to be silent after two seconds, or
  // four where it has several networks.
  static constexpr std::chrono::seconds kLossPatience{5};
  // After await() returned `lost`: what was lost, as a failure of the rank at the other end, and
  // whether that is the reason, or the end of the rank or its host may be.
  Failure failure_of_loss(const BackendContext& context) const;
  bool loss_is_reason() const noexcept { return lost_->is_reason; }
  // The ranks to or from which blocks are not through, ascending.
  std::vector<int> awaited() const;

  int streams() const noexcept { return static_cast<int>(streams_); }
  // "reno", as the kernel names the congestion control of the connections.
  std::string congestion_control() const;

 private:
  struct Line {
    int rank;
    Rails rails;
    Stream stream;
    bool is_active = false;
  };
  struct Loss {
    int rank;
    std::string why;
    Code code;
    bool is_reason;
  };
  struct Waiting {
    const WaitPolicy& policy;
    const Control& control;
    Deadline deadline;
    Deadline next_look = std::chrono::steady_clock::now();  // for silence
    int turns = 0;
    Deadline spins_since{};
  };
  static bool has_blocks(const Line* line) noexcept {
    return line->stream.sends() || line->stream.awaits();
  }
  static bool is_busy(Line& line) {
    return has_blocks(&line) || (line.rails.has_several() && !line.rails.is_acknowledged());
  }
  Line& line(int rank, std::size_t stream) const noexcept {
    return *lines_[static_cast<std::size_t>(rank) * streams_ + stream];
  }
  struct Part {
    std::size_t first, bytes;
  };
  // Of a block, what a stream carries; `turn`: of the blocks before it, so that those of one chunk
  // go by turns.
  Part part_of(std::size_t bytes, std::size_t stream, std::size_t turn) const noexcept;
  template <class Post>
  void post(int rank, std::size_t bytes, std::size_t turn, Post&& post);
  template <std::size_t (Stream::*Count)() const noexcept>
  std::size_t least_of(int rank) const noexcept;
  void activate(Line& line);  // where a block was posted
  bool progress();
  bool write(Line& line);
  bool read(Line& line);
  void lose(Line& line, std::string why, Code code, bool is_reason);
  void look_for_silence(Waiting& waiting, Deadline now);
  End turn(Waiting& waiting, bool moved);

  const std::size_t streams_;
  std::vector<std::unique_ptr<Line>> lines_;  // by rank, then stream; null: on this host
  std::vector<Line*> active_;                 // with blocks that are not through
  std::vector<pollfd> polled_;                // has room for all
  std::optional<Loss> lost_;
  std::atomic<bool> in_use_ = false;
};

}}}  // namespace c10d::v0::native
