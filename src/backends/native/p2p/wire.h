// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "src/backends/native/p2p/ring.h"
#include "src/backends/native/p2p/transfer.h"
#include "src/net/mesh/rails.h"

namespace c10d { inline namespace v0 { namespace native {

// The messages between this rank and one on another host, over a connection of their own. For one
// thread at a time; no call blocks.
//
// What is sent goes in frames, in the order of posting: a short message whole, a longer one as an
// offer. The receiver that has its recv asks for it, and it follows in pieces, between which other
// frames go. A send is done once the kernel has its last byte. Data is sent from, and pieces are
// received into, the memory of the calls. Over several networks (Rails) a send is done once the
// other host has it, for a rank that is in no op sends nothing again. Every frame has a header
// with a checksum (CRC-32C) of itself and its number, and one of its data. Numbers are in the byte
// order of the host: of another order already the first header is wrong.
//
// Whoever reads must be able to read on, for the frames behind may be what it waits for. So a
// message is sent only while the receiver is sure to hold it: a sender spends credit for each, and
// has it back once a recv has taken the message.
class Wire {
 public:
  static constexpr std::size_t kWholeBytes = std::size_t{32} << 10;   // the longest short message
  static constexpr std::size_t kPieceBytes = std::size_t{256} << 10;  // while it is in the L2 cache
  // The bytes that a receiver may have to hold. A message costs some more than it is long, so that
  // their number is bounded, too: MatchingQueues holds them all.
  static constexpr std::size_t kCredit = std::size_t{4} << 20;
  static constexpr std::size_t kMessageCost = std::size_t{1} << 10;

  explicit Wire(Rails rails);

  const Rails& rails() const noexcept { return rails_; }
  // A send, which stays until it is done or withdrawn. What may go at once does.
  void post(Transfer& send);
  // Asks for the message that was offered, for its recv, which stays until it is done or withdrawn.
  void ask_for(Transfer& recv);
  // A recv has taken this message, which was whole or an offer.
  void give_back(const Frame& message) noexcept;
  // Only for a broken group: a message that was begun does not end, nor does any behind it.
  void withdraw(Transfer& transfer) noexcept;

  // One turn of sending; true: something moved.
  bool write();
  // One turn of receiving. `deliver(frame, data)` gets each message that is whole or an offer; its
  // data is borrowed until it returns.
  template <class Deliver>
  bool read(Deliver&& deliver) {
    bool moved = false;
    for (std::size_t budget = kTurnBytes; fill(budget); moved = true) {
      Frame frame;
      while (const std::byte* const data = next(frame)) deliver(frame, data);
    }
    return moved;
  }
  // Whether the socket shall take more as soon as it can.
  bool has_output() const noexcept { return has_output_; }
  // Whether the other host has all that was sent, or will never.
  bool is_acknowledged();
  // Whether a send is done but for that.
  bool awaits_acknowledgement() const noexcept { return !unacknowledged_.empty(); }
  // See Rails.
  void answer() { rails_.answer(); }
  // Every 100 ms: leaves a network that does not answer, or is lost without another one.
  void look_for_silence(Deadline now);

  enum class State : std::uint8_t { alive, lost, corrupt };
  State state() const noexcept { return state_; }
  const std::string& why() const noexcept { return why_; }  // it is not alive

 private:
  // The most that one turn moves, so that other wires get their turns.
  static constexpr std::size_t kTurnBytes = std::size_t{1} << 20;
  static constexpr std::size_t kHeaderBytes = 48;
  static constexpr std::size_t kBufferBytes = 2 * (kWholeBytes + kHeaderBytes);
  enum class Kind : std::uint32_t { whole = 1, offer, piece, ask, credit };
  struct Header;
  // A frame on its way out.
  struct Outgoing {
    std::array<std::byte, kHeaderBytes> header;
    const std::byte* data;
    std::size_t length;
    std::size_t written;  // of both; all of them: there is no frame
    Transfer* send;       // whose it is; null: nobody's
    Kind kind;
    std::size_t left() const noexcept { return kHeaderBytes + length - written; }
  };

  static std::size_t cost(std::size_t length) noexcept { return length + kMessageCost; }
  bool begin_frame();
  bool begin_message();
  void begin(Kind kind, Transfer* send, std::uint32_t id, const std::byte* data,
             std::size_t length);
  void end_frame();
  bool finish_acknowledged();
  std::size_t write_some();
  bool fill(std::size_t& budget);
  const std::byte* next(Frame& frame);
  bool take_header(const Header& header);
  bool belongs(const Header& header) const;
  const std::byte* take_message(const Header& header, Frame& frame);
  void took_of_piece(std::size_t length);
  void end_piece();
  bool check_data(std::uint32_t sum, std::uint32_t expected);
  void end(State state, std::string why);

  Rails rails_;
  State state_ = State::alive;
  std::string why_;

  std::deque<Transfer*> queued_;     // not offered yet
  std::vector<Transfer*> offered_;   // not asked for yet
  std::deque<Transfer*> streaming_;  // asked for
  struct Sent {
    Transfer* send;
    std::uint64_t end;  // of its bytes, among all that were sent
  };
  std::deque<Sent> unacknowledged_;
  std::deque<std::uint32_t> asks_;  // ids of offers of the other end
  std::uint32_t next_id_ = 0;
  std::uint32_t frames_out_ = 0, frames_in_ = 0;  // ever; they may wrap
  std::uint64_t spent_ = 0;                       // credit, ever
  std::uint64_t back_ = 0;                        // of it, what has come back
  Outgoing out_{{}, nullptr, 0, kHeaderBytes, nullptr, Kind::credit};
  bool has_output_ = false;
  int error_ = 0;  // of what was sent

  std::unique_ptr<std::byte[]> buffer_;  // kBufferBytes, from the first byte on
  std::size_t first_ = 0, last_ = 0;     // of them, those that wait
  std::vector<Transfer*> receiving_;     // recvs that asked
  Transfer* piece_ = nullptr;            // of them, whose piece arrives
  std::size_t piece_left_ = 0;
  std::uint32_t piece_sum_ = 0, sum_so_far_ = 0;
  std::uint64_t their_spent_ = 0;
  std::uint64_t given_back_ = 0;
  std::uint64_t told_ = 0;  // of it, what the other end knows
};

}}}  // namespace c10d::v0::native
