// SPDX-License-Identifier: BSD-3-Clause
// Messages between two ranks of different hosts, whose connection a seed moves piece by piece, and
// damages. Each message arrives once, whole and in its order, or the wire is known to have ended.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <deque>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "src/backends/native/p2p/wire.h"
#include "tests/simulate/seeds.h"

namespace c10d { namespace {

using native::Frame;
using native::Transfer;
using native::Wire;

enum class Mishap { none, lost, flipped, twice, missing };
constexpr int kMishaps = 5;

enum class Tamper {
  none,
  leaks_credit  // a receiver that forgets to give it back for some messages
};

// One end: it sends messages, and receives those of the other end, each a while after it came, or
// before.
struct End {
  std::unique_ptr<Wire> wire;
  Fd far;             // the other end of its socket, where the network is
  std::string bytes;  // taken from there, on their way
  std::list<Transfer> sends, recvs;
  std::list<std::vector<std::byte>> memory;
  std::vector<std::vector<std::byte>> given, got;  // messages, as they are sent, and as received
  struct Arrived {
    Frame frame;
    std::vector<std::byte> data;
  };
  std::deque<Arrived> arrived;    // no recv has taken them yet
  std::deque<Transfer*> posted;   // recvs that wait for a message
  std::size_t wanted = 0;         // recvs that were posted, ever
  std::size_t next_of_recvs = 0;  // done in order, to compare
};

class World {
 public:
  explicit World(std::uint64_t seed, Tamper tamper = Tamper::none)
      : random_(seed),
        tamper_(tamper),
        mishap_(tamper == Tamper::none ? static_cast<Mishap>(pick(kMishaps)) : Mishap::none) {
    for (End& end : ends_) {
      std::array<int, 2> fds{-1, -1};
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()) != 0)
        problem_ = "no sockets";
      end.wire = std::make_unique<Wire>(Rails(RankSocket(Fd(fds[0]))));
      end.far = Fd(fds[1]);
      const int most = tamper == Tamper::none ? 12 : 400;
      messages_.push_back(1 + static_cast<std::size_t>(pick(most)));
    }
    happens_at_ = pick(100);
  }

  // What went wrong, or nothing.
  std::string run() {
    for (int step = 0, idle = 0; problem_.empty() && idle < 200; ++step) {
      if (step >= happens_at_ && !happened_) happened_ = happen();
      const int which = pick(2);
      const bool moved = act(which, pick(5));
      idle = moved ? 0 : idle + 1;  // 200 in vain: nothing is left to do
    }
    if (problem_.empty()) judge();
    // Sends and recvs that are not done must not outlive their wires' memory.
    for (End& end : ends_) {
      for (Transfer& send : end.sends) end.wire->withdraw(send);
      for (Transfer& recv : end.recvs) end.wire->withdraw(recv);
    }
    return problem_;
  }

 private:
  int pick(int choices) {
    return static_cast<int>(random_() % static_cast<std::uint64_t>(choices));
  }
  End& of(int which) { return ends_[static_cast<std::size_t>(which)]; }

  bool act(int which, int what) {
    End& end = of(which);
    switch (what) {
      case 0:
        return post_send(which);
      case 1:
        return post_recv(which);
      case 2:
        return end.wire->state() == Wire::State::alive && end.wire->write();
      case 3:
        return take_from(end);
      default:
        return give_to(which);
    }
  }

  std::size_t pick_length() {
    const std::size_t lengths[] = {
        0, 1, 100, Wire::kWholeBytes, Wire::kWholeBytes + 1, Wire::kPieceBytes + 7};
    return tamper_ == Tamper::none ? lengths[pick(6)] : Wire::kWholeBytes;
  }

  bool post_send(int which) {
    End& end = of(which);
    if (end.given.size() == messages_[static_cast<std::size_t>(which)] ||
        end.wire->state() != Wire::State::alive)
      return false;
    std::vector<std::byte>& data = end.memory.emplace_back(pick_length());
    for (std::byte& byte : data) byte = static_cast<std::byte>(random_());
    end.given.push_back(data);
    Transfer& send = end.sends.emplace_back();
    send.is_send = true;
    send.data = data.data();
    send.bytes = data.size();
    end.wire->post(send);
    return true;
  }

  // A recv of any length: it takes the message that comes next.
  bool post_recv(int which) {
    End& end = of(which);
    if (end.wanted == messages_[static_cast<std::size_t>(1 - which)]) return false;
    ++end.wanted;
    Transfer& recv = end.recvs.emplace_back();
    end.posted.push_back(&recv);
    match(end);
    return true;
  }

  void match(End& end) {
    while (!end.posted.empty() && !end.arrived.empty()) {
      Transfer& recv = *end.posted.front();
      End::Arrived message = std::move(end.arrived.front());
      end.posted.pop_front();
      end.arrived.pop_front();
      std::vector<std::byte>& data = end.memory.emplace_back(message.frame.total);
      recv.data = data.data();
      recv.bytes = data.size();
      recv.id = message.frame.id;
      const bool forgets = tamper_ == Tamper::leaks_credit && pick(2) == 0;
      if (!forgets) end.wire->give_back(message.frame);
      if (message.frame.length == message.frame.total) {
        data = std::move(message.data);
        recv.data = data.data();
        recv.finish();
      } else {
        end.wire->ask_for(recv);
      }
    }
  }

  // The network takes some bytes of an end.
  bool take_from(End& end) {
    std::string bytes(pick(4) == 0 ? 1 + static_cast<std::size_t>(pick(60)) : 100'000, '\0');
    const ssize_t count = ::recv(end.far.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count <= 0) return false;
    end.bytes.append(bytes, 0, static_cast<std::size_t>(count));
    return true;
  }

  // It gives some of them to the other one, which reads.
  bool give_to(int which) {
    End& end = of(which);
    std::string& bytes = of(1 - which).bytes;
    const std::size_t some =
        std::min<std::size_t>(bytes.size(), pick(4) == 0 ? 1 + pick(60) : 1 + pick(100'000));
    const ssize_t count = ::send(end.far.get(), bytes.data(), some, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count > 0) bytes.erase(0, static_cast<std::size_t>(count));
    const bool read = end.wire->read([&](const Frame& frame, const std::byte* data) {
      End::Arrived& message = end.arrived.emplace_back(End::Arrived{frame, {}});
      message.data.assign(data, data + frame.length);
      match(end);
    });
    compare(end, of(1 - which));
    return read || count > 0;
  }

  void compare(End& end, const End& other) {
    for (auto recv = std::next(end.recvs.begin(), static_cast<std::ptrdiff_t>(end.next_of_recvs));
         recv != end.recvs.end() && recv->done; ++recv) {
      const std::vector<std::byte>& sent = other.given[end.next_of_recvs++];
      if (!std::equal(sent.begin(), sent.end(), recv->data, recv->data + recv->bytes))
        problem_ =
            "a message arrived as another one, mishap " + std::to_string(static_cast<int>(mishap_));
    }
  }

  // Whether it could.
  bool happen() {
    std::string& bytes = ends_[0].bytes;
    if (mishap_ == Mishap::none) return true;
    if (mishap_ == Mishap::lost) {
      for (End& end : ends_) end.far = Fd();
      return true;
    }
    if (bytes.empty()) return false;
    const std::size_t at = random_() % bytes.size();
    if (mishap_ == Mishap::flipped) bytes[at] = static_cast<char>(bytes[at] ^ 1 << pick(8));
    if (mishap_ == Mishap::twice) bytes.insert(0, bytes.substr(0, at + 1));
    if (mishap_ == Mishap::missing) bytes.erase(at, 1 + static_cast<std::size_t>(pick(100)));
    return true;
  }

  void judge() {
    for (int which = 0; which < 2; ++which) {
      End& end = of(which);
      if (mishap_ == Mishap::none) {
        if (end.wire->state() != Wire::State::alive) problem_ = "ended: " + end.wire->why();
        if (end.next_of_recvs != messages_[static_cast<std::size_t>(1 - which)])
          problem_ = "a message never arrived";
      }
      if (mishap_ == Mishap::lost && happened_ && end.wire->state() == Wire::State::alive)
        problem_ = "the end of the connection was not noticed";
      if (which == 0 && end.wire->state() == Wire::State::corrupt)
        problem_ = "a good connection was found corrupt: " + end.wire->why();
    }
    if (mishap_ == Mishap::flipped && happened_ && ends_[0].bytes.empty() &&
        ends_[1].wire->state() == Wire::State::alive && ends_[1].next_of_recvs == messages_[0])
      problem_ = "a bit that was flipped was not noticed";
  }

  std::mt19937_64 random_;
  const Tamper tamper_;
  const Mishap mishap_;
  std::array<End, 2> ends_;
  std::vector<std::size_t> messages_;  // that each end sends
  int happens_at_ = 0;
  bool happened_ = false;
  std::string problem_;
};

TEST(Wires, AMessageArrivesOrTheWireIsKnownToHaveEnded) { simulate::expect_no_problem<World>(); }

// Else the runs above would prove nothing.
TEST(Wires, LeakedCreditWouldBeFound) {
  std::string problem;
  for (std::uint64_t seed = 0; seed < 20 && problem.empty(); ++seed)
    problem = World(seed, Tamper::leaks_credit).run();
  EXPECT_EQ(problem, "a message never arrived");
}

}}  // namespace c10d

// simulate_wires [--seeds=N]
int main(int argc, char** argv) { return c10d::simulate::run_tests(argc, argv); }
