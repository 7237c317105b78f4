// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstdint>

#include "c10d/collective.h"

// Which messages an op sends between hosts, as data: a function of the algorithm, the op and the
// number of hosts, without memory and without IO. The collectives run it, and a simulation of the
// network runs it for thousands of hosts (tests/simulate/hosts_test.cpp).
//
// At first each host has its own input, of all parts of a vector that is cut into as many parts as
// there are hosts. A message has some parts of the inputs of some hosts. An op goes in rounds: a
// host sends what it has before the round, and begins the next one when all messages of this one
// have come. Lanes run the same schedule, each over what it carries.
namespace c10d { inline namespace v0 { namespace native {

enum class HostAlgorithm : std::uint8_t {
  // One round: each host sends every other one all that it needs. It fits few hosts.
  one_shot,
  // all_reduce in two such rounds: each host ends a part for all, then sends all its result.
  two_shot,
  // log2(hosts) rounds, each with twice the inputs of the one before: host h sends what it has to
  // host h - 2^k, which so gets the inputs of neighbours (Bruck). It fits much latency, few bytes.
  dissemination,
  // all_reduce of 2^k hosts, in 2 k rounds: hosts at distance 1, 2, 4, ... each take one half of
  // what they both have, and reduce it. That of hosts h and h + 1 comes first, so that each sum is
  // a node of the tree over the hosts. Then the results go the same way back.
  halving,
  // broadcast in log2(hosts) rounds, in each of which as many hosts get it as have it.
  binomial,
  // broadcast from each host to the next: each sends it once. It fits many bytes, in chunks.
  chain
};
inline constexpr int kHostAlgorithms = 6;

// Neighbouring hosts, or parts of the vector: [first, first + count). After the last comes 0.
struct HostArc {
  int first = 0;
  int count = 0;
  bool operator==(const HostArc&) const = default;
};

// use(first, count) for an arc of `hosts` in one or two pieces in which nothing comes after the
// last.
template <class Use>
void for_each_piece(HostArc arc, int hosts, Use use) {
  const int before_end = arc.first + arc.count <= hosts ? arc.count : hosts - arc.first;
  use(arc.first, before_end);
  if (before_end < arc.count) use(0, arc.count - before_end);
}

// One message, as one of its two hosts sees it.
struct HostMessage {
  enum class Content : std::uint8_t {
    inputs,  // of each host for itself
    sums,    // of the inputs of all these hosts; whoever gets it adds its own
    results
  };
  bool sent = false;  // else received
  int peer = 0;
  Content content = Content::inputs;
  HostArc hosts;
  HostArc parts;
  bool operator==(const HostMessage&) const = default;
};

class HostSchedule {
 public:
  // `root`: the host of the root, in broadcast and reduce. `hosts` is 2^k for halving.
  constexpr HostSchedule(HostAlgorithm algorithm, OpKind op, int hosts, int root = 0) noexcept
      : algorithm_(algorithm), op_(op), hosts_(hosts), root_(root) {}

  constexpr int rounds() const noexcept {
    switch (algorithm_) {
      case HostAlgorithm::one_shot:
        return 1;
      case HostAlgorithm::two_shot:
        return 2;
      case HostAlgorithm::halving:
        return 2 * doublings();
      case HostAlgorithm::chain:
        return hosts_ - 1;
      case HostAlgorithm::dissemination:
      case HostAlgorithm::binomial:
        break;
    }
    return doublings();
  }

  // use(HostMessage) for what a host sends and receives in a round. Those between two hosts come in
  // one order on both. Hosts start at different peers.
  template <class Use>
  void for_each(int host, int round, Use use) const {
    switch (algorithm_) {
      case HostAlgorithm::one_shot:
      case HostAlgorithm::two_shot:
        return exchange(host, round, use);
      case HostAlgorithm::dissemination:
        return disseminate(host, round, use);
      case HostAlgorithm::halving:
        return halve(host, round, use);
      case HostAlgorithm::binomial:
        return pass_down(host, round, use);
      case HostAlgorithm::chain:
        return pass_on(host, round, use);
    }
  }

 private:
  using Content = HostMessage::Content;

  constexpr int doublings() const noexcept {
    return std::bit_width(static_cast<unsigned>(hosts_) - 1);
  }
  constexpr HostArc all() const noexcept { return {0, hosts_}; }
  constexpr int past(int host, int distance) const noexcept { return (host + distance) % hosts_; }

  // What `from` sends `to` at once.
  constexpr HostMessage at_once(int from, int to, int round) const noexcept {
    if (round == 1) return {.content = Content::results, .hosts = all(), .parts = {from, 1}};
    const bool by_parts = algorithm_ == HostAlgorithm::two_shot || op_ == OpKind::reduce_scatter ||
                          op_ == OpKind::reduce_scatter_v;
    return {.hosts = {from, 1}, .parts = by_parts ? HostArc{to, 1} : all()};
  }
  template <class Use>
  void exchange(int host, int round, Use use) const {
    for (int i = 1; i < hosts_; ++i) {
      const int peer = past(host, i);
      HostMessage out = at_once(host, peer, round), in = at_once(peer, host, round);
      out.sent = true;
      out.peer = in.peer = peer;
      if (op_ != OpKind::reduce || peer == root_) use(out);
      if (op_ != OpKind::reduce || host == root_) use(in);
    }
  }

  template <class Use>
  void disseminate(int host, int round, Use use) const {
    const int distance = 1 << round;
    const int count = 2 * distance <= hosts_ ? distance : hosts_ - distance;
    const int behind = past(host, distance);
    use(HostMessage{.sent = true,
                    .peer = past(host, hosts_ - distance),
                    .hosts = {host, count},
                    .parts = all()});
    use(HostMessage{.peer = behind, .hosts = {behind, count}, .parts = all()});
  }

  // The parts that a host keeps when it has halved with hosts up to this distance.
  constexpr HostArc kept(int host, int distance) const noexcept {
    HostArc parts = all();
    for (int step = 1; step <= distance; step *= 2) {
      parts.count /= 2;
      if ((host & step) != 0) parts.first += parts.count;
    }
    return parts;
  }
  template <class Use>
  void halve(int host, int round, Use use) const {
    const bool back = round >= doublings();
    const int distance = back ? hosts_ >> (round - doublings() + 1) : 1 << round;
    const int peer = host ^ distance;
    const auto message = [&](int from, int to) {
      const int node = from & ~(distance - 1);
      return back ? HostMessage{.peer = peer,
                                .content = Content::results,
                                .hosts = all(),
                                .parts = kept(from, distance)}
                  : HostMessage{.peer = peer,
                                .content = Content::sums,
                                .hosts = {node, distance},
                                .parts = kept(to, distance)};
    };
    HostMessage out = message(host, peer);
    out.sent = true;
    use(out);
    use(message(peer, host));
  }

  template <class Use>
  void pass_down(int host, int round, Use use) const {
    const int step = 1 << doublings() >> (round + 1);
    const int place = past(host, hosts_ - root_), behind = place & (2 * step - 1);
    HostMessage message{.content = Content::results, .hosts = {root_, 1}, .parts = all()};
    message.sent = behind == 0;
    message.peer = past(host, message.sent ? step : hosts_ - step);
    if (behind == step || (behind == 0 && place + step < hosts_)) use(message);
  }

  template <class Use>
  void pass_on(int host, int round, Use use) const {
    const int place = past(host, hosts_ - root_);
    HostMessage message{.content = Content::results, .hosts = {root_, 1}, .parts = all()};
    message.sent = place == round;
    message.peer = past(host, message.sent ? 1 : hosts_ - 1);
    if (message.sent || place == round + 1) use(message);
  }

  HostAlgorithm algorithm_;
  OpKind op_;
  int hosts_, root_;
};

}}}  // namespace c10d::v0::native
