// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <poll.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "c10d/call.h"
#include "src/net/mesh/rank_socket.h"

struct tcp_info;

namespace c10d { inline namespace v0 {

// The bytes between two ranks of different hosts, both ways, in order. They go over one TCP
// connection; or there is one on each of several networks, and one at a time is used. When that
// network is cut, both ranks go on over the next one, and no byte is lost or comes twice: until the
// other host has acknowledged what was sent it is kept here, as much as the kernel takes.
//
// There is no thread: bytes move, and are sent again, while a rank calls. So a rank shall call
// until the other host has what it sent. For one thread at a time.
class Rails {
 public:
  // Of a network that does not answer, while something is on its way there. Longer than the kernel
  // takes to give up a connection that is watched (tune_tcp).
  static constexpr std::chrono::milliseconds kSilence{2200};

  // `keeps`: others will be added.
  explicit Rails(RankSocket first, bool keeps = false);
  // A connection on another network, which both ranks add in the same order. What it carried before
  // does not count.
  void add(RankSocket next);
  // The only one, for another Rails to add.
  RankSocket release() { return std::move(rails_.front().socket); }

  // As sendmsg and recvmsg that do not wait; -1 sets errno. Of several networks only the end of
  // the last one is told.
  ssize_t send(std::span<const iovec> pieces);
  ssize_t receive(std::span<const iovec> pieces);
  // Where several are used: has the kernel acknowledge at once what was received.
  void acknowledge() const noexcept;
  // How many bytes were sent ever, and how many of them the other host has. Over one connection
  // nobody waits for that: all of them.
  std::uint64_t sent() const noexcept { return written_; }
  std::uint64_t acknowledged();
  // Whether the kernel of the other host has all that was sent, or never will.
  bool is_acknowledged();

  bool has_several() const noexcept { return rails_.size() > 1; }
  // Answers the other end if it has left a network, and sends what it lacks. To be called now and
  // then while nothing is awaited.
  void answer();
  // Where several are used, while something is awaited: leaves the network that has been silent for
  // kSilence. False: it was the last one. To be called every 100 ms.
  bool look(Deadline now);

  template <class Visit>
  void for_each_fd(Visit visit) const {
    for (const Rail& rail : rails_) visit(rail.socket.get());
  }
  int first_fd() const noexcept { return rails_.front().socket.get(); }
  // Of the network that is used.
  int fd() const noexcept { return rails_[at_].socket.get(); }
  // What to poll for: bytes that come, if `in`, and if `out` room for those to be sent.
  void add_polled(std::vector<pollfd>& entries, bool in, bool out) const;
  void shutdown() noexcept;

 private:
  // Says on a network that the one before it is left: how many bytes this rank has, and how many
  // of its own the other host had acknowledged by then. The other rank sends from there on.
  struct Handover {
    std::uint32_t magic, rail;
    std::uint64_t received, acknowledged;
    std::uint64_t sum;  // of all that comes before
  };
  using HandoverBytes = std::array<std::byte, sizeof(Handover)>;
  struct Rail {
    explicit Rail(RankSocket made) : socket(std::move(made)) {}
    RankSocket socket;
    std::string name;           // of several: "10.77.0.1 to 10.77.0.2"
    HandoverBytes out{}, in{};  // what goes first; nothing on the first network
    std::size_t out_left = 0, in_left = sizeof(Handover);
    bool is_dead = false;         // nothing comes any more, or nothing that counts
    int error = 0;                // why; 0: the other end closed it
    std::uint64_t first_out = 0;  // the first byte of this rank that goes over it
    std::uint64_t first_in = 0;   // and of the other one
    std::uint64_t received = 0;   // once it was left: how many bytes were here then
    bool is_open() const noexcept { return in_left == 0; }
  };

  bool leave(std::string_view why);
  void go_on_at(std::size_t next, std::string_view why);
  std::optional<std::size_t> next_rail() const;
  bool has_ended(const tcp_info& info) const;
  std::uint64_t bytes_here() const;
  std::uint64_t received_on(std::size_t number) const;
  void say_handover();
  bool is_flushed() const noexcept;
  void push();
  void search(bool at_once);
  void take_handover(std::size_t number);
  void obey(std::size_t number);
  void resume(std::uint64_t from);
  std::size_t next_open(std::size_t number) const noexcept;
  std::uint64_t end_of_left() const noexcept;
  std::optional<ssize_t> receive_left(std::span<const iovec> pieces);
  ssize_t receive_until(std::uint64_t end, std::span<const iovec> pieces);
  static std::string why_ended(const Rail& rail);
  ssize_t end_of(const Rail& rail) const noexcept;
  bool leave_dead(int error);
  static ssize_t no_room_at(const Rail& dead) noexcept;
  void note_acknowledged();
  void keep(std::span<const iovec> pieces, std::size_t bytes);
  void make_room(std::span<const iovec> pieces);
  iovec kept(std::uint64_t from, std::size_t bytes) noexcept;

  bool keeps_;  // what is sent
  std::vector<Rail> rails_;
  std::size_t at_ = 0;         // the one that is used
  std::size_t reading_ = 0;    // from which bytes come: an earlier one, until it is read to its end
  std::uint64_t read_ = 0;     // bytes ever, as all that follow
  std::uint64_t written_ = 0;  // taken to be sent
  std::uint64_t sent_ = 0;     // of them, what the kernel has; less after a handover
  std::uint64_t confirmed_ = 0;  // of them, what the other host has, as far as known
  bool resumed_ = true;          // it is known from where on to send
  std::vector<std::byte> kept_;  // a ring of 2^n bytes: of written_, from first_kept_ on
  std::uint64_t first_kept_ = 0;
  std::size_t left_ = 0;  // the last one that was
  std::string why_left_;
  Deadline heard_{}, last_look_{}, next_search_{};
};

}}  // namespace c10d::v0
