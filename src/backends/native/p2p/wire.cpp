// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/p2p/wire.h"

#include <fmt/format.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "kernels/crc32c.h"
#include "src/net/socket.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

constexpr std::uint32_t kMagic = 0x6d303163;  // "c10m" as bytes

template <class Transfers>
auto find(Transfers& transfers, std::uint32_t id) {
  return std::find_if(transfers.begin(), transfers.end(),
                      [id](const Transfer* transfer) { return transfer->id == id; });
}

}  // namespace

// Precedes the data of a frame.
struct Wire::Header {
  std::uint32_t magic;
  Kind kind;
  std::uint32_t tag;
  std::uint32_t id;  // of an offer, and of what it leads to, among this sender's
  std::uint32_t dtype;
  std::uint32_t length;    // bytes of data behind the header
  std::uint64_t total;     // bytes of the message
  std::uint64_t back;      // credit that the other end has back, ever
  std::uint32_t data_sum;  // CRC-32C
  std::uint32_t own_sum;   // of the frame's number and of all that comes before

  // Frames count from 0 on: one that is missing, or comes twice, is noticed at the next header.
  std::uint32_t sum(std::uint32_t number) const noexcept {
    return crc32c(number, this, offsetof(Header, own_sum));
  }
};

Wire::Wire(Rails rails) : rails_(std::move(rails)) {}

void Wire::post(Transfer& send) {
  queued_.push_back(&send);
  write();
}

void Wire::ask_for(Transfer& recv) {
  receiving_.push_back(&recv);
  asks_.push_back(recv.id);
}

void Wire::give_back(const Frame& message) noexcept { given_back_ += cost(message.length); }

void Wire::withdraw(Transfer& transfer) noexcept {
  if (out_.send == &transfer || piece_ == &transfer) end(State::lost, "the group is broken");
  std::erase(queued_, &transfer);
  std::erase(offered_, &transfer);
  std::erase(streaming_, &transfer);
  std::erase(receiving_, &transfer);
  std::erase_if(unacknowledged_, [&](const Sent& sent) { return sent.send == &transfer; });
}

void Wire::end(State state, std::string why) {
  if (state_ != State::alive) return;
  state_ = state;
  why_ = std::move(why);
  has_output_ = false;
}

bool Wire::is_acknowledged() {
  if (state_ != State::alive || error_ != 0) return true;
  return !has_output_ && rails_.is_acknowledged();
}

void Wire::look_for_silence(Deadline now) {
  if (state_ != State::alive || rails_.look(now)) return;
  finish_acknowledged();  // its rank may have received all, and left
  end(State::lost, "every network to it ended, or gave no answer");
}

bool Wire::finish_acknowledged() {
  if (unacknowledged_.empty()) return false;
  const std::uint64_t acknowledged = rails_.acknowledged();
  bool any = false;
  for (; !unacknowledged_.empty() && unacknowledged_.front().end <= acknowledged; any = true) {
    Transfer* const send = unacknowledged_.front().send;
    unacknowledged_.pop_front();
    send->finish();
  }
  return any;
}

void Wire::begin(Kind kind, Transfer* send, std::uint32_t id, const std::byte* data,
                 std::size_t length) {
  Header header{.magic = kMagic,
                .kind = kind,
                .tag = send == nullptr ? 0 : send->tag,
                .id = id,
                .dtype = send == nullptr ? 0 : static_cast<std::uint32_t>(send->dtype),
                .length = static_cast<std::uint32_t>(length),
                .total = send == nullptr ? 0 : send->bytes,
                .back = given_back_,
                .data_sum = crc32c(0, data, length),
                .own_sum = 0};
  header.own_sum = header.sum(frames_out_++);
  told_ = given_back_;
  out_.data = data;
  out_.length = length;
  out_.written = 0;
  out_.send = send;
  out_.kind = kind;
  static_assert(sizeof header == kHeaderBytes);
  std::memcpy(out_.header.data(), &header, sizeof header);
}

// The next frame; false: there is none. What others wait for comes first.
bool Wire::begin_frame() {
  if (!asks_.empty()) {
    begin(Kind::ask, nullptr, asks_.front(), nullptr, 0);
    asks_.pop_front();
  } else if (given_back_ - told_ >= kCredit / 16) {
    begin(Kind::credit, nullptr, 0, nullptr, 0);
  } else if (!begin_message()) {
    if (streaming_.empty()) return false;
    Transfer& send = *streaming_.front();
    begin(Kind::piece, &send, send.id, send.data + send.moved,
          std::min(send.bytes - send.moved, kPieceBytes));
  }
  return true;
}

bool Wire::begin_message() {
  if (queued_.empty()) return false;
  Transfer& send = *queued_.front();
  const bool whole = send.bytes <= kWholeBytes;
  const std::size_t length = whole ? send.bytes : 0;
  if (spent_ - back_ + cost(length) > kCredit) return false;
  spent_ += cost(length);
  if (!whole) send.id = next_id_++;
  begin(whole ? Kind::whole : Kind::offer, &send, send.id, send.data, length);
  return true;
}

void Wire::end_frame() {
  Transfer* const send = std::exchange(out_.send, nullptr);
  if (send == nullptr) return;
  if (out_.kind == Kind::piece) {
    send->moved += out_.length;
    if (send->moved != send->bytes) return;
    streaming_.pop_front();
  } else {
    queued_.pop_front();
    if (out_.kind == Kind::offer) return offered_.push_back(send);
  }
  if (rails_.has_several()) return unacknowledged_.push_back({send, rails_.sent()});
  send->finish();
}

// How many bytes of the frame the socket took now.
std::size_t Wire::write_some() {
  const std::size_t of_header = std::min(out_.written, kHeaderBytes);
  const std::size_t of_data = out_.written - of_header;
  const std::array<iovec, 2> parts{
      {{out_.header.data() + of_header, kHeaderBytes - of_header},
       {const_cast<std::byte*>(out_.data) + of_data, out_.length - of_data}}};
  const ssize_t count = rails_.send(std::span(parts).first(out_.length == 0 ? 1 : 2));
  // What the other end said before it ended can still be read: the end shows there.
  if (count < 0 && errno != EAGAIN) error_ = errno;
  return count < 0 ? 0 : static_cast<std::size_t>(count);
}

bool Wire::write() {
  std::size_t budget = kTurnBytes;
  bool moved = finish_acknowledged();
  has_output_ = false;
  while (state_ == State::alive && error_ == 0) {
    if (out_.left() == 0) {
      has_output_ = budget == 0;
      if (has_output_ || !begin_frame()) break;
    }
    const std::size_t count = write_some();
    moved |= count != 0;
    budget -= std::min(budget, count);
    out_.written += count;
    if (out_.left() != 0) {
      has_output_ = error_ == 0;
      break;
    }
    end_frame();
  }
  return moved;
}

// Takes from the socket what `budget` allows, at least a part of it; false: nothing came. There is
// always room: next() leaves no more than the first part of a frame.
bool Wire::fill(std::size_t& budget) {
  if (state_ != State::alive || budget == 0) return false;
  if (!buffer_) buffer_ = std::make_unique_for_overwrite<std::byte[]>(kBufferBytes);
  if (first_ == last_) {
    first_ = last_ = 0;
  } else if (kBufferBytes - first_ < kHeaderBytes + kWholeBytes) {
    std::memmove(buffer_.get(), buffer_.get() + first_, last_ - first_);
    last_ -= std::exchange(first_, 0);
  }
  const bool in_piece = piece_ != nullptr;
  const std::array<iovec, 2> parts{
      {{in_piece ? piece_->data + piece_->moved : nullptr, piece_left_},
       {buffer_.get() + last_, kBufferBytes - last_}}};
  const ssize_t result = rails_.receive(std::span(parts).subspan(in_piece ? 0 : 1));
  if (result <= 0) {
    const int error = error_ != 0 ? error_ : result < 0 ? errno : 0;  // the first says more
    if (result == 0 || errno != EAGAIN)
      end(State::lost, error == 0 ? "the other end closed it" : error_text(error));
    return false;
  }
  const auto count = static_cast<std::size_t>(result);
  const bool is_all = count < piece_left_ + kBufferBytes - last_;
  budget = is_all ? 0 : budget - std::min(budget, count);
  if (is_all) rails_.acknowledge();
  const std::size_t of_piece = std::min(count, piece_left_);
  if (of_piece != 0) took_of_piece(of_piece);
  last_ += count - of_piece;
  return true;
}

// The next message that is whole or an offer, and its data; null: it is not there yet. Uses the
// frames before it.
const std::byte* Wire::next(Frame& frame) {
  while (state_ == State::alive) {
    if (piece_ != nullptr) {
      const std::size_t length = std::min(piece_left_, last_ - first_);
      if (length != 0) std::memcpy(piece_->data + piece_->moved, buffer_.get() + first_, length);
      first_ += length;
      took_of_piece(length);
      if (piece_left_ != 0) return nullptr;
      end_piece();
      continue;
    }
    if (last_ - first_ < kHeaderBytes) return nullptr;
    Header header;
    std::memcpy(&header, buffer_.get() + first_, sizeof header);
    if (!take_header(header)) return nullptr;
    if (header.kind == Kind::whole || header.kind == Kind::offer) {
      if (last_ - first_ - kHeaderBytes < header.length) return nullptr;
      return take_message(header, frame);
    }
    first_ += kHeaderBytes;
    ++frames_in_;
    if (header.kind == Kind::ask) {
      const auto offer = find(offered_, header.id);
      streaming_.push_back(*offer);
      offered_.erase(offer);
    } else if (header.kind == Kind::piece) {
      piece_ = *find(receiving_, header.id);
      piece_left_ = header.length;
      piece_sum_ = header.data_sum;
      sum_so_far_ = 0;
    }
  }
  return nullptr;
}

// Whether a frame belongs here; else the wire ends. The same header may come again, as long as its
// data is not there.
bool Wire::take_header(const Header& header) {
  if (header.magic != kMagic || header.own_sum != header.sum(frames_in_)) {
    end(State::corrupt,
        "what came is not the next frame: its checksum is wrong, or it is of another build of "
        "libc10d");
    return false;
  }
  if (header.dtype >= kDTypeCount || header.back < back_ || header.back > spent_ ||
      !belongs(header)) {
    end(State::corrupt, fmt::format("an unexpected frame came: kind {}, id {}, {} of {} bytes",
                                    static_cast<std::uint32_t>(header.kind), header.id,
                                    header.length, header.total));
    return false;
  }
  back_ = header.back;
  return true;
}

bool Wire::belongs(const Header& header) const {
  const bool is_whole_number = header.total % size_of(static_cast<DType>(header.dtype)) == 0;
  const bool has_credit = their_spent_ + cost(header.length) - given_back_ <= kCredit;
  switch (header.kind) {
    case Kind::whole:
      return header.length == header.total && header.length <= kWholeBytes && is_whole_number &&
             has_credit;
    case Kind::offer:
      return header.length == 0 && header.total > kWholeBytes && is_whole_number && has_credit;
    case Kind::piece: {
      const auto recv = find(receiving_, header.id);
      return header.length != 0 && header.length <= kPieceBytes && recv != receiving_.end() &&
             header.length <= (*recv)->bytes - (*recv)->moved;
    }
    case Kind::ask:
      return header.length == 0 && find(offered_, header.id) != offered_.end();
    case Kind::credit:
      return header.length == 0;
  }
  return false;
}

const std::byte* Wire::take_message(const Header& header, Frame& frame) {
  const std::byte* const data = buffer_.get() + first_ + kHeaderBytes;
  if (!check_data(crc32c(0, data, header.length), header.data_sum)) return nullptr;
  frame = {header.kind == Kind::whole ? FrameKind::whole : FrameKind::offer,
           header.tag,
           header.id,
           header.dtype,
           header.total,
           header.length};
  first_ += kHeaderBytes + header.length;
  ++frames_in_;
  their_spent_ += cost(header.length);
  return data;
}

void Wire::took_of_piece(std::size_t length) {
  sum_so_far_ = crc32c(sum_so_far_, piece_->data + piece_->moved, length);
  piece_->moved += length;
  piece_left_ -= length;
}

void Wire::end_piece() {
  if (!check_data(sum_so_far_, piece_sum_)) return;
  Transfer* const recv = std::exchange(piece_, nullptr);
  if (recv->moved != recv->bytes) return;
  std::erase(receiving_, recv);
  recv->finish();
}

bool Wire::check_data(std::uint32_t sum, std::uint32_t expected) {
  if (sum == expected) return true;
  end(State::corrupt,
      "data came with a wrong checksum: the network changed it, or the sender did so during send");
  return false;
}

}}}  // namespace c10d::v0::native
