// SPDX-License-Identifier: BSD-3-Clause
#include "src/net/mesh/rails.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <set>

#include "src/base/hash.h"
#include "src/base/log.h"
#include "src/base/mutex.h"
#include "src/net/address.h"
#include "src/net/socket.h"

namespace c10d { inline namespace v0 {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::uint32_t kMagic = 0x72303163;  // "c10r" as bytes
constexpr std::size_t kLeastKept = std::size_t{256} << 10;
constexpr std::size_t kMostKept = std::size_t{64} << 20;  // more than kernels have under way
// Looks that are further apart say nothing of the time between: this process may have been stopped.
constexpr milliseconds kAway{1000};
constexpr milliseconds kSearch{1};  // between looks for a handover of the other rank
// Of a network that is not used: two in a row, for one may be lost.
constexpr unsigned kUnansweredProbes = 2, kUnansweredMs = 2000;

template <class Call>
ssize_t uninterrupted(Call call) {
  for (;;)
    if (const ssize_t count = call(); count >= 0 || errno != EINTR) return count;
}

msghdr message_of(std::span<const iovec> pieces) noexcept {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  return message;
}

ssize_t send_at(int fd, std::span<const iovec> pieces) {
  const msghdr message = message_of(pieces);
  return uninterrupted([&] { return ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT); });
}

ssize_t receive_at(int fd, std::span<const iovec> pieces) {
  msghdr message = message_of(pieces);
  return uninterrupted([&] { return ::recvmsg(fd, &message, MSG_DONTWAIT); });
}

ssize_t would_block() noexcept {
  errno = EAGAIN;
  return -1;
}

// How long the kernel waits for an answer before it gives the connection up, in ms; 0: for ever.
unsigned patience_of(int fd) noexcept {
  unsigned patience = 0;
  socklen_t length = sizeof patience;
  ::getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, &length);
  return patience;
}

// Has the kernel ask the other host every second, which answers for a rank that does not read, too,
// while nothing is on its way. It never gives up.
void probe_for_ever(int fd) noexcept {
  constexpr int kOn = 1, kSecond = 1, kMostProbes = 127, kNone = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &kOn, sizeof kOn);
  for (const int option : {TCP_KEEPIDLE, TCP_KEEPINTVL})
    ::setsockopt(fd, IPPROTO_TCP, option, &kSecond, sizeof kSecond);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kMostProbes, sizeof kMostProbes);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kNone, sizeof kNone);
}

tcp_info info_of(int fd) noexcept {
  tcp_info info{};
  socklen_t length = sizeof info;
  ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length);
  return info;
}

// Once for all connections of this process.
void tell_once(const std::string& left, const std::string& why, const std::string& used) {
  static Mutex mutex;
  static auto& told = *new std::set<std::string>();
  {
    MutexLock lock(mutex);
    if (!told.insert(left).second) return;
  }
  log(LogLevel::warn, "the network from {} is left ({}); what went over it goes from {}", left, why,
      used);
}

}  // namespace

Rails::Rails(RankSocket first, bool keeps) : keeps_(keeps) {
  rails_.emplace_back(std::move(first)).in_left = 0;
}

void Rails::add(RankSocket next) {
  const auto name = [](Rail& rail) {
    const int end = rail.socket.get();
    rail.name = fmt::format("{} to {}", local_address(end).host(), peer_host(end));
  };
  if (!has_several()) {
    name(rails_.front());
    if (patience_of(fd()) == 0) probe_for_ever(fd());
  }
  probe_for_ever(next.get());
  name(rails_.emplace_back(std::move(next)));
}

ssize_t Rails::send(std::span<const iovec> pieces) {
  if (!keeps_) {
    const ssize_t count = send_at(fd(), pieces);
    if (count > 0) written_ += static_cast<std::size_t>(count);
    return count;
  }
  push();
  if (!is_flushed()) search(false);
  if (rails_[at_].is_dead && !leave(why_ended(rails_[at_]))) return no_room_at(rails_[at_]);
  if (!is_flushed()) return would_block();
  make_room(pieces);
  if (written_ - first_kept_ >= kMostKept) return would_block();
  const ssize_t count = send_at(fd(), pieces);
  if (count > 0) {
    keep(pieces, static_cast<std::size_t>(count));
    sent_ = written_;
  } else if (count < 0 && errno == EAGAIN) {
    search(false);
    return would_block();
  } else if (count < 0) {
    return leave_dead(errno) ? would_block() : no_room_at(rails_[at_]);
  }
  return count;
}

ssize_t Rails::no_room_at(const Rail& dead) noexcept {
  errno = dead.error != 0 ? dead.error : EPIPE;
  return -1;
}

// The kernel has ended the connection that is used; 0: the other end did.
bool Rails::leave_dead(int error) {
  Rail& rail = rails_[at_];
  rail.is_dead = true;
  if (rail.error == 0) rail.error = error;
  return leave(why_ended(rail));
}

// The handover and what was kept.
bool Rails::is_flushed() const noexcept {
  return rails_[at_].out_left == 0 && resumed_ && sent_ == written_;
}

void Rails::push() {
  while (!is_flushed()) {
    Rail& rail = rails_[at_];
    const bool is_handover = rail.out_left != 0;
    if (!is_handover && !resumed_) return;
    iovec next{rail.out.data() + rail.out.size() - rail.out_left, rail.out_left};
    if (!is_handover) next = kept(sent_, static_cast<std::size_t>(written_ - sent_));
    const ssize_t count = send_at(rail.socket.get(), {&next, 1});
    if (count < 0 && (errno == EAGAIN || !leave_dead(errno))) return;
    if (count <= 0) continue;
    if (is_handover)
      rail.out_left -= static_cast<std::size_t>(count);
    else
      sent_ += static_cast<std::size_t>(count);
  }
}

ssize_t Rails::receive(std::span<const iovec> pieces) {
  for (;;) {
    if (const auto count = receive_left(pieces)) return *count;
    const ssize_t count = receive_at(fd(), pieces);
    if (count > 0) read_ += static_cast<std::size_t>(count);
    if (count > 0 || !has_several()) return count;
    if (count < 0 && errno == EAGAIN) {
      push();
      search(false);
      if (reading_ == at_) return would_block();
      continue;
    }
    if (!leave_dead(count == 0 ? 0 : errno)) return end_of(rails_[at_]);
  }
}

// What belongs to a network that was left; nothing: all of it is read.
std::optional<ssize_t> Rails::receive_left(std::span<const iovec> pieces) {
  while (reading_ < at_) {
    push();
    search(true);
    if (read_ < end_of_left()) return receive_until(end_of_left(), pieces);
    if (const std::size_t next = next_open(reading_); next != reading_)
      reading_ = next;
    else if (!rails_[at_].is_dead)
      return would_block();
    else if (!leave(why_ended(rails_[at_])))
      return end_of(rails_[at_]);
  }
  return std::nullopt;
}

ssize_t Rails::receive_until(std::uint64_t end, std::span<const iovec> pieces) {
  std::vector<iovec> part;
  auto left = static_cast<std::size_t>(end - read_);
  for (const iovec& piece : pieces) {
    if (left == 0) break;
    part.push_back({piece.iov_base, std::min(left, piece.iov_len)});
    left -= part.back().iov_len;
  }
  const ssize_t count = receive_at(rails_[reading_].socket.get(), part);
  if (count > 0) read_ += static_cast<std::size_t>(count);
  if (count == 0) errno = ECONNRESET;  // it lacks what must be there
  return count == 0 ? -1 : count;
}

std::string Rails::why_ended(const Rail& rail) {
  return rail.error == 0 ? "the other end closed it" : error_text(rail.error);
}

ssize_t Rails::end_of(const Rail& rail) const noexcept {
  errno = rail.error;
  return rail.error == 0 ? 0 : -1;
}

// The next network on which the other rank went on; the same one: none is known.
std::size_t Rails::next_open(std::size_t number) const noexcept {
  for (std::size_t i = number + 1; i <= at_; ++i)
    if (rails_[i].is_open()) return i;
  return number;
}

// How many bytes come up to the end of the network that is read, which was left.
std::uint64_t Rails::end_of_left() const noexcept {
  const std::size_t next = next_open(reading_);
  return next != reading_ ? rails_[next].first_in : rails_[reading_].received;
}

// Of the network that is used, in the kernel, too; what comes after this does not count.
std::uint64_t Rails::bytes_here() const {
  std::size_t last = at_;
  while (!rails_[last].is_open()) --last;
  return last != at_ ? rails_[last].received : received_on(at_);
}

std::uint64_t Rails::received_on(std::size_t number) const {
  int unread = 0;
  ::ioctl(rails_[number].socket.get(), SIOCINQ, &unread);
  return (reading_ == number ? read_ : rails_[number].first_in) + static_cast<unsigned>(unread);
}

std::optional<std::size_t> Rails::next_rail() const {
  for (std::size_t i = at_ + 1; i < rails_.size(); ++i) {
    if (rails_[i].is_dead) continue;
    const tcp_info info = info_of(rails_[i].socket.get());
    if (info.tcpi_probes < kUnansweredProbes || info.tcpi_last_ack_recv < kUnansweredMs) return i;
  }
  return std::nullopt;
}

// Goes on over the next network; false: there is none, and nothing has changed.
bool Rails::leave(std::string_view why) {
  if (!has_several()) return false;
  const std::size_t before = at_;
  search(true);
  if (at_ != before) return true;  // the other end has left it
  const auto next = next_rail();
  if (!next) return false;
  go_on_at(*next, why);
  push();
  return true;
}

void Rails::go_on_at(std::size_t next, std::string_view why) {
  std::string reason(why);
  note_acknowledged();
  rails_[at_].received = bytes_here();
  if (const unsigned patience = patience_of(fd()); patience != 0)
    ::setsockopt(rails_[next].socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &patience,
                 sizeof patience);
  if (resumed_) left_ = at_;
  at_ = next;
  resumed_ = false;
  why_left_.swap(reason);
  heard_ = last_look_ = {};
  say_handover();
}

void Rails::say_handover() {
  Handover handover{.magic = kMagic,
                    .rail = static_cast<std::uint32_t>(at_),
                    .received = bytes_here(),
                    .acknowledged = confirmed_,
                    .sum = 0};
  handover.sum = fnv1a({reinterpret_cast<const char*>(&handover), offsetof(Handover, sum)});
  std::memcpy(rails_[at_].out.data(), &handover, sizeof handover);
  rails_[at_].out_left = sizeof handover;
}

// Whether the other rank has left the network, at most once in kSearch unless it must be known.
void Rails::search(bool at_once) {
  if (!at_once) {
    const Deadline time = steady_clock::now();
    if (time < next_search_) return;
    next_search_ = time + kSearch;
  }
  for (std::size_t i = 1; i < rails_.size(); ++i) take_handover(i);
}

void Rails::take_handover(std::size_t number) {
  Rail& rail = rails_[number];
  while (!rail.is_open() && !rail.is_dead) {
    const iovec rest{rail.in.data() + rail.in.size() - rail.in_left, rail.in_left};
    const ssize_t count = receive_at(rail.socket.get(), {&rest, 1});
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      rail.is_dead = true;
      rail.error = count == 0 ? 0 : errno;
      return;
    }
    rail.in_left -= static_cast<std::size_t>(count);
    if (rail.is_open()) obey(number);
  }
}

// The other rank is on this network now.
void Rails::obey(std::size_t number) {
  Rail& rail = rails_[number];
  Handover handover;
  std::memcpy(&handover, rail.in.data(), sizeof handover);
  const bool is_whole =
      handover.magic == kMagic && handover.rail == number && handover.received <= written_ &&
      handover.sum == fnv1a({reinterpret_cast<const char*>(&handover), offsetof(Handover, sum)});
  std::size_t last = number - 1;
  while (!rails_[last].is_open()) --last;
  if (is_whole && at_ < number) {
    rail.in_left = rail.in.size();  // not open while those before it are left
    go_on_at(number, "the other host has left it");
    rail.in_left = 0;
  }
  // What the kernel has acknowledged is here.
  const std::uint64_t first = std::max(rails_[last].received, handover.acknowledged);
  if (!is_whole || first > received_on(last)) {
    rail.in_left = rail.in.size();
    rail.is_dead = true;
    rail.error = EPROTO;
    ::shutdown(rail.socket.get(), SHUT_RDWR);  // the other end shall know
    return;
  }
  while (++last < number) rails_[last].is_dead = true;
  rail.first_in = rail.received = first;
  if (number != at_) return;
  resume(handover.received);
  push();
}

void Rails::resume(std::uint64_t from) {
  confirmed_ = std::max(confirmed_, from);
  first_kept_ = std::max(first_kept_, confirmed_);
  sent_ = rails_[at_].first_out = confirmed_;
  resumed_ = true;
  tell_once(rails_[left_].name, why_left_, rails_[at_].name);
}

void Rails::acknowledge() const noexcept {
  constexpr int kOn = 1;
  if (has_several())
    ::setsockopt(rails_[reading_].socket.get(), IPPROTO_TCP, TCP_QUICKACK, &kOn, sizeof kOn);
}

// Of several: what was sent before them is among it.
void Rails::note_acknowledged() {
  int waiting = 0;
  if (!resumed_ || ::ioctl(fd(), SIOCOUTQ, &waiting) != 0) return;
  const std::uint64_t under_way =
      std::min<std::uint64_t>(static_cast<unsigned>(waiting), sent_ - rails_[at_].first_out);
  confirmed_ = std::max(confirmed_, sent_ - under_way);
  first_kept_ = std::max(first_kept_, confirmed_);
}

std::uint64_t Rails::acknowledged() {
  if (!has_several()) return written_;
  if (confirmed_ == written_) return written_;
  push();
  note_acknowledged();
  if (confirmed_ != written_) search(false);
  return confirmed_;
}

bool Rails::is_acknowledged() {
  if (has_several()) return acknowledged() == written_;
  int waiting = 0;
  return ::ioctl(fd(), SIOCOUTQ, &waiting) != 0 || waiting == 0;
}

// Also for who does not read: the kernel has given it up, or the other end, and all is read.
bool Rails::has_ended(const tcp_info& info) const {
  if (rails_[at_].is_dead || info.tcpi_state == TCP_CLOSE) return true;
  int unread = 0;
  return info.tcpi_state == TCP_CLOSE_WAIT && reading_ == at_ &&
         ::ioctl(fd(), SIOCINQ, &unread) == 0 && unread == 0;
}

void Rails::answer() {
  if (!has_several()) return;
  push();
  search(true);
}

bool Rails::look(Deadline now) {
  if (!has_several()) return true;
  answer();
  const bool was_away = now > last_look_ + kAway;
  last_look_ = now;
  const tcp_info info = info_of(fd());
  if (has_ended(info)) {
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error, &length);
    return leave_dead(error);
  }
  const bool is_quiet = info.tcpi_unacked == 0 && info.tcpi_probes == 0;
  heard_ =
      std::max(heard_, is_quiet || was_away ? now : now - milliseconds(info.tcpi_last_ack_recv));
  return now - heard_ <= kSilence || leave(fmt::format("no answer for {} ms", kSilence.count()));
}

// The first of so many bytes, as they lie together.
iovec Rails::kept(std::uint64_t from, std::size_t bytes) noexcept {
  const std::size_t begin = static_cast<std::size_t>(from) & (kept_.size() - 1);
  return {kept_.data() + begin, std::min(bytes, kept_.size() - begin)};
}

// Before the kernel takes them: memory may be short.
void Rails::make_room(std::span<const iovec> pieces) {
  std::size_t bytes = 0;
  for (const iovec& piece : pieces) bytes += piece.iov_len;
  const auto used = [this] { return static_cast<std::size_t>(written_ - first_kept_); };
  if (used() + bytes <= kept_.size()) return;
  note_acknowledged();
  if (used() + bytes <= kept_.size() || used() >= kMostKept) return;
  std::vector<std::byte> old(std::bit_ceil(std::max(kLeastKept, used() + bytes)));
  kept_.swap(old);
  for (std::uint64_t at = first_kept_; at != written_;) {
    const std::size_t begin = static_cast<std::size_t>(at) & (old.size() - 1);
    const iovec to =
        kept(at, std::min(static_cast<std::size_t>(written_ - at), old.size() - begin));
    std::memcpy(to.iov_base, old.data() + begin, to.iov_len);
    at += to.iov_len;
  }
}

// The first of `pieces`, which the kernel has taken.
void Rails::keep(std::span<const iovec> pieces, std::size_t bytes) {
  for (const iovec& piece : pieces) {
    const auto* from = static_cast<const std::byte*>(piece.iov_base);
    for (std::size_t left = std::min(bytes, piece.iov_len); left != 0;) {
      const iovec to = kept(written_, left);
      std::memcpy(to.iov_base, from, to.iov_len);
      from += to.iov_len;
      left -= to.iov_len;
      bytes -= to.iov_len;
      written_ += to.iov_len;
    }
  }
}

void Rails::add_polled(std::vector<pollfd>& entries, bool in, bool out) const {
  const auto add = [&](std::size_t number, int events) {
    entries.push_back({rails_[number].socket.get(), static_cast<short>(events), 0});
  };
  const int input = in ? POLLIN : 0;
  if (!has_several()) return add(0, input | (out ? POLLOUT : 0));
  if (reading_ < at_ && read_ < end_of_left()) add(reading_, input);
  const bool waits = rails_[at_].out_left != 0 || (resumed_ && (out || sent_ != written_));
  if (!rails_[at_].is_dead)
    add(at_, (rails_[at_].is_open() ? input : POLLIN) | (waits ? POLLOUT : 0));
  for (std::size_t i = at_ + 1; i < rails_.size(); ++i)
    if (!rails_[i].is_dead) add(i, POLLIN);
}

void Rails::shutdown() noexcept {
  for (const Rail& rail : rails_) ::shutdown(rail.socket.get(), SHUT_RDWR);
}

}}  // namespace c10d::v0
