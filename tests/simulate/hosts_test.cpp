// SPDX-License-Identifier: BSD-3-Clause
// The algorithms between hosts, as production runs them, on a network in simulated time: what each
// host has at the end, how long it takes, and whether the choice is right.
#include <gtest/gtest.h>

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <deque>
#include <map>
#include <queue>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/backends/native/hosts/host_plan.h"
#include "src/backends/native/hosts/schedule.h"

namespace c10d {

static bool thorough = false;

namespace {

using native::HostAlgorithm;
using native::HostArc;
using native::HostMessage;
using native::HostSchedule;
using native::HostTraffic;
using native::NetworkProfile;
using Content = HostMessage::Content;

bool is_power_of_2(int number) { return (number & (number - 1)) == 0; }

// ---- What arrives -----------------------------------------------------------------------------

constexpr int kMostHosts = 128;
using Set = std::bitset<kMostHosts>;  // of hosts

Set set_of(HostArc arc, int hosts) {
  Set set;
  for (int i = 0; i < arc.count; ++i) set.set(static_cast<std::size_t>((arc.first + i) % hosts));
  return set;
}

// Runs a schedule on all hosts, and keeps whose inputs each has of each part.
class Delivery {
 public:
  Delivery(HostAlgorithm algorithm, OpKind op, int hosts, int root)
      : algorithm_(algorithm),
        op_(op),
        hosts_(hosts),
        root_(root),
        schedule_(algorithm, op, hosts, root),
        has_(static_cast<std::size_t>(hosts), std::vector<Set>(static_cast<std::size_t>(hosts))) {
    for (int host = 0; host < hosts; ++host)
      for (int part = 0; part < hosts; ++part)
        if (op != OpKind::broadcast || host == root) of(host, part).set(index(host));
  }

  // What is wrong, or nothing.
  std::string run() {
    for (int round = 0; round < schedule_.rounds() && problem_.empty(); ++round) run_round(round);
    for (int host = 0; host < hosts_; ++host)
      for (int part = 0; part < hosts_; ++part)
        if (wants(host, part) && of(host, part) != whole()) found("does not have all", host, -1);
    return problem_;
  }

 private:
  static std::size_t index(int host) { return static_cast<std::size_t>(host); }
  Set& of(int host, int part) { return has_[index(host)][index(part)]; }
  Set whole() const {
    return op_ == OpKind::broadcast ? set_of({root_, 1}, hosts_) : set_of({0, hosts_}, hosts_);
  }
  bool wants(int host, int part) const {
    if (op_ == OpKind::reduce) return host == root_;
    return op_ != OpKind::reduce_scatter || algorithm_ != HostAlgorithm::one_shot || host == part;
  }
  void found(const std::string& what, int host, int peer) {
    if (problem_.empty())
      problem_ = what + ": host " + std::to_string(host) + " of " + std::to_string(hosts_) +
                 ", peer " + std::to_string(peer);
  }

  void run_round(int round) {
    std::map<std::pair<int, int>, std::deque<HostMessage>> sent, received;  // by both hosts
    for (int host = 0; host < hosts_; ++host)
      schedule_.for_each(host, round, [&](HostMessage message) {
        if (message.peer == host || message.peer < 0 || message.peer >= hosts_)
          return found("no such peer", host, message.peer);
        const int peer = std::exchange(message.peer, 0);
        const bool out = std::exchange(message.sent, false);
        (out ? sent[{host, peer}] : received[{peer, host}]).push_back(message);
      });
    if (sent != received)
      return found("the two ends differ in round " + std::to_string(round), -1, -1);
    const auto before = has_;
    for (const auto& [ends, messages] : sent)
      for (const HostMessage& message : messages) arrive(before, ends.first, ends.second, message);
  }

  void arrive(const std::vector<std::vector<Set>>& before, int from, int to,
              const HostMessage& message) {
    const Set content = set_of(message.hosts, hosts_);
    for (int i = 0; i < message.parts.count; ++i) {
      const int part = (message.parts.first + i) % hosts_;
      const Set given = before[index(from)][index(part)];
      Set& got = of(to, part);
      if (message.content == Content::results) {
        if (given != whole()) found("sends results that it does not have", from, to);
        if (got == whole()) found("gets results twice", to, from);
      } else {
        if ((given & content) != content) found("sends what it does not have", from, to);
        if ((got & content).any()) found("gets an input twice", to, from);
        if (message.content == Content::sums && (given != content || !is_node(got | content)))
          found("sends no node of the tree, or what the other one makes none of", from, to);
      }
      got |= message.content == Content::results ? whole() : content;
    }
  }
  // Of the tree over 2^k hosts.
  static bool is_node(const Set& set) {
    std::size_t first = 0;
    while (!set[first]) ++first;
    const std::size_t count = set.count();
    if (!is_power_of_2(static_cast<int>(count)) || first % count != 0) return false;
    for (std::size_t i = 0; i < count; ++i)
      if (!set[first + i]) return false;
    return true;
  }

  const HostAlgorithm algorithm_;
  const OpKind op_;
  const int hosts_, root_;
  const HostSchedule schedule_;
  std::vector<std::vector<Set>> has_;  // by host, by part
  std::string problem_;
};

TEST(Hosts, EveryScheduleDelivers) {
  std::vector<int> counts;
  for (int hosts = 2; hosts <= 24; ++hosts) counts.push_back(hosts);
  for (const int hosts : {31, 32, 33, 47, 63, 64, 65, 127, 128}) counts.push_back(hosts);
  for (const int hosts : counts)
    for (const OpKind op : {OpKind::all_reduce, OpKind::reduce_scatter, OpKind::all_gather,
                            OpKind::reduce, OpKind::broadcast})
      for (int i = 0; i < native::kHostAlgorithms; ++i) {
        const auto algorithm = static_cast<HostAlgorithm>(i);
        if (!native::applies(algorithm, {.op = op, .hosts = hosts, .halves = is_power_of_2(hosts)}))
          continue;
        const bool rooted = op == OpKind::reduce || op == OpKind::broadcast;
        for (const int root : rooted ? std::vector{0, hosts / 2, hosts - 1} : std::vector{0})
          ASSERT_EQ(Delivery(algorithm, op, hosts, root).run(), "")
              << native::name_of(algorithm) << " " << to_string(op) << ", root " << root;
      }
}

// ---- How long it takes ------------------------------------------------------------------------

// A message is sent in message_us of its rank's time, waits for the way out of its host, is on the
// way for latency_us, waits for the way into the other host, and takes its rank message_us to
// receive. A rank sends all of a round before it receives.
class Network {
 public:
  // `all`: every host is simulated. Else one, which gets what it sends: all that are alike send and
  // receive the same at the same times.
  Network(HostAlgorithm algorithm, const HostTraffic& traffic, const NetworkProfile& profile,
          bool all)
      : schedule_(algorithm, traffic.op, traffic.hosts),
        traffic_(traffic),
        profile_(profile),
        all_(all),
        lanes_(traffic.busy_lanes()),
        hosts_(all ? static_cast<std::size_t>(traffic.hosts) : 1) {
    for (Host& host : hosts_) host.lanes.resize(static_cast<std::size_t>(lanes_));
  }

  double us() {
    for (int host = 0; host < static_cast<int>(hosts_.size()); ++host)
      for (int lane = 0; lane < lanes_; ++lane)
        push({.kind = Event::begins, .when = 0, .host = host, .lane = lane, .round = 0});
    double last = 0;
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      happen(event);
    }
    for (const Host& host : hosts_)
      for (const Lane& lane : host.lanes) {
        EXPECT_EQ(lane.round, schedule_.rounds());
        last = std::max(last, lane.free);
      }
    return last;
  }

 private:
  struct Event {
    enum Kind { begins, leaves, reaches, arrives } kind;
    double when;
    std::uint64_t number = 0;
    int host, lane, round;
    int peer = 0;  // of a message that leaves
    double bytes = 0;
    bool sums = false;
    bool operator<(const Event& other) const {
      return std::pair(when, number) > std::pair(other.when, other.number);
    }
  };
  struct Lane {
    double free = 0;  // its rank
    int round = -1, awaited = 0;
    double read = 0;  // bytes of a reduction at the end of the round
    std::vector<Event> early{};
  };
  struct Host {
    double out = 0, in = 0;  // when the ways are free
    std::vector<Lane> lanes{};
  };

  void push(Event event) {
    event.number = number_++;
    events_.push(event);
  }
  double bytes_of(const HostMessage& message) const {
    const double of_parts = message.parts.count / static_cast<double>(traffic_.hosts) / lanes_;
    const bool is_input = message.content == Content::inputs || message.hosts.count == 1;
    if (message.content == Content::results)
      return of_parts * static_cast<double>(traffic_.results);
    return of_parts * (is_input ? message.hosts.count * static_cast<double>(traffic_.inputs)
                                : static_cast<double>(traffic_.sums));
  }

  void happen(Event event) {
    Host& host = hosts_[static_cast<std::size_t>(event.host)];
    const double took = event.bytes * profile_.us_per_byte;
    switch (event.kind) {
      case Event::begins:
        return begin(event);
      case Event::leaves: {
        const double start = std::max(host.out, event.when);
        host.out = start + took;
        event.kind = Event::reaches;
        event.when = start + profile_.latency_us;
        event.host = all_ ? event.peer : 0;
        return push(event);
      }
      case Event::reaches:
        host.in = std::max(host.in, event.when) + took;
        event.kind = Event::arrives;
        event.when = host.in;
        return push(event);
      case Event::arrives: {
        Lane& lane = host.lanes[static_cast<std::size_t>(event.lane)];
        if (lane.round != event.round) return lane.early.push_back(event);
        return take(lane, event);
      }
    }
  }

  void begin(const Event& event) {
    Lane& lane =
        hosts_[static_cast<std::size_t>(event.host)].lanes[static_cast<std::size_t>(event.lane)];
    lane.round = event.round;
    lane.read = 0;
    lane.free = event.when;
    if (event.round == schedule_.rounds()) return;
    schedule_.for_each(event.host, event.round, [&](const HostMessage& message) {
      if (!message.sent) {
        ++lane.awaited;
        return;
      }
      lane.free += profile_.message_us;
      push({.kind = Event::leaves,
            .when = lane.free,
            .host = event.host,
            .lane = event.lane,
            .round = event.round,
            .peer = message.peer,
            .bytes = bytes_of(message),
            .sums = message.content == Content::sums});
    });
    for (const Event& early : std::exchange(lane.early, {}))
      if (early.round == event.round)
        take(lane, early);
      else
        lane.early.push_back(early);
    if (lane.awaited == 0) end(lane, event.host, event.lane);
  }

  void take(Lane& lane, const Event& event) {
    lane.free = std::max(lane.free, event.when) + profile_.message_us;
    if (event.sums) lane.free += 2 * event.bytes * profile_.reduce_us_per_byte;
    if (--lane.awaited == 0) end(lane, event.host, event.lane);
  }

  void end(Lane& lane, int host, int number) {
    lane.free += reduced_after(lane.round) * profile_.reduce_us_per_byte;
    push({.kind = Event::begins,
          .when = lane.free,
          .host = host,
          .lane = number,
          .round = lane.round + 1});
  }
  // Bytes that a lane reads to reduce what came as inputs.
  double reduced_after(int round) const {
    if (!is_reduction(traffic_.op)) return 0;
    bool inputs = false;
    double got = 0, parts = 0;
    const int last = schedule_.rounds() - 1;
    schedule_.for_each(0, round, [&](const HostMessage& message) {
      inputs |= message.content == Content::inputs;
      parts = message.sent ? parts : message.parts.count;
      got += message.sent ? 0 : bytes_of(message);
    });
    if (!inputs) return 0;
    const bool is_gathered = parts == traffic_.hosts;
    if (is_gathered && round != last) return 0;
    return static_cast<double>(traffic_.inputs) / lanes_ * (is_gathered ? traffic_.hosts : 1);
  }

  const HostSchedule schedule_;
  const HostTraffic traffic_;
  const NetworkProfile profile_;
  const bool all_;
  const int lanes_;
  std::vector<Host> hosts_;
  std::priority_queue<Event> events_;
  std::uint64_t number_ = 0;
};

double simulated_us(HostAlgorithm algorithm, const HostTraffic& traffic,
                    const NetworkProfile& profile, bool all = false) {
  return Network(algorithm, traffic, profile, all).us();
}

std::string text_of(const HostTraffic& traffic, const NetworkProfile& profile) {
  return std::string(to_string(traffic.op)) + " of " + std::to_string(traffic.inputs) +
         " B of each of " + std::to_string(traffic.hosts) + " hosts, " +
         std::to_string(traffic.lanes) + " lanes, " + std::to_string(profile.latency_us) + " us, " +
         std::to_string(8e-3 / profile.us_per_byte) + " Gb/s";
}

// use(traffic, profile): sums of values of a host, of which halving takes one.
template <class Use>
void for_each_case(const std::vector<int>& hosts_counts, std::size_t factor, int one_in, Use use) {
  int number = 0;
  for (const int hosts : hosts_counts)
    for (const OpKind op : {OpKind::all_reduce, OpKind::reduce_scatter, OpKind::all_gather})
      for (const int lanes : {1, 8})
        for (std::size_t bytes = 8; bytes <= std::size_t{1} << 30; bytes *= factor)
          for (const double gigabits : {1, 10, 100})
            for (const double latency : {5, 50, 500}) {
              if (++number % one_in != 0) continue;
              const std::size_t values = number % 3 == 0 ? 2 : 1;
              use(HostTraffic{.op = op,
                              .hosts = hosts,
                              .lanes = lanes,
                              .inputs = values * bytes,
                              .sums = bytes,
                              .results = bytes,
                              .halves = values == 1 && is_power_of_2(hosts)},
                  NetworkProfile{.latency_us = latency, .us_per_byte = 8e-3 / gigabits});
            }
}

// So that one of many hosts can stand for all.
TEST(Hosts, AllAreLikeOne) {
  for_each_case({2, 3, 4, 5, 8, 13, 16, 31, 32, 64}, 32, thorough ? 1 : 29,
                [](const HostTraffic& traffic, const NetworkProfile& profile) {
                  for (int i = 0; i < native::kHostAlgorithms; ++i) {
                    const auto algorithm = static_cast<HostAlgorithm>(i);
                    if (!native::applies(algorithm, traffic)) continue;
                    const double one = simulated_us(algorithm, traffic, profile);
                    EXPECT_NEAR(simulated_us(algorithm, traffic, profile, true), one, 0.01 * one)
                        << native::name_of(algorithm) << " " << text_of(traffic, profile);
                  }
                });
}

// The prediction is within 20 % of the simulation, and what is chosen takes at most 10 % more than
// the best.
void check_choice(const HostTraffic& traffic, const NetworkProfile& profile) {
  const HostAlgorithm chosen = native::choose(traffic, profile);
  double best = 0, taken = 0;
  HostAlgorithm fastest{};
  for (int i = 0; i < native::kHostAlgorithms; ++i) {
    const auto algorithm = static_cast<HostAlgorithm>(i);
    if (!native::applies(algorithm, traffic)) continue;
    const double us = simulated_us(algorithm, traffic, profile);
    EXPECT_NEAR(native::predicted_us(algorithm, traffic, profile), us, 0.2 * us)
        << native::name_of(algorithm) << " " << text_of(traffic, profile);
    if (algorithm == chosen) taken = us;
    if (best != 0 && us >= best) continue;
    best = us;
    fastest = algorithm;
  }
  EXPECT_LE(taken, 1.1 * best) << native::name_of(chosen) << ", not " << native::name_of(fastest)
                               << ": " << text_of(traffic, profile);
}

TEST(Hosts, TheChoiceIsRight) {
  for_each_case({2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 100, 256}, 4, thorough ? 1 : 11, check_choice);
}

TEST(Hosts, TheChoiceIsRightForThousands) {
  for_each_case({1000, 1024, 4096}, 32, thorough ? 1 : 17, check_choice);
}

TEST(Hosts, FewBytesTakeFewRounds) {
  for (const int hosts : {1000, 1024}) {
    const HostTraffic traffic{.hosts = hosts, .inputs = 8, .sums = 8, .results = 8};
    const HostAlgorithm chosen = native::choose(traffic, {});
    EXPECT_LE(HostSchedule(chosen, traffic.op, hosts).rounds(), 11);
  }
}

}  // namespace
}  // namespace c10d

// simulate_hosts [--thorough]: every case, not some of them.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  c10d::thorough = argc == 2 && std::string_view(argv[1]) == "--thorough";
  return RUN_ALL_TESTS();
}
