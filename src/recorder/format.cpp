// SPDX-License-Identifier: BSD-3-Clause
#include "src/recorder/format.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

#include "src/base/host.h"
#include "src/base/members.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr std::size_t kMostGroups = 32;
constexpr std::size_t kMostPlaces = 32;  // of one group
constexpr std::int64_t kSilentAfterNs = 2'000'000'000;

// Of any two numbers: what is read may be none that a clock gave.
std::int64_t ns_between(std::int64_t then, std::int64_t now) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(now) -
                                   static_cast<std::uint64_t>(then));
}

std::string text_of_call(const Recorded& op) {
  return fmt::format("{} #{}", describe(op.signature), op.sequence);
}

std::string_view name_of_state(Record::State state) {
  switch (state) {
    case Record::running:
      return "running";
    case Record::ok:
      return "ok";
    case Record::failed:
      return "failed";
    case Record::empty:
      break;
  }
  return "unknown";
}

// Where a rank is: what it has in common with others that are there too, and for how long.
struct RankPlace {
  bool waits = false;
  std::string text;
  std::int64_t ns = 0;
};

RankPlace place_of(const RankRecord& rank, std::uint64_t furthest, std::int64_t now) {
  if (rank.left) return {false, "left the group", 0};
  RankPlace place;
  const auto running = std::find_if(rank.ops.begin(), rank.ops.end(),
                                    [](const Recorded& op) { return op.state == Record::running; });
  if (running != rank.ops.end()) {
    place = {true, "in " + text_of_call(*running), ns_between(running->start_ns, now)};
  } else if (!rank.ops.empty()) {
    const Recorded& op = rank.ops.back();
    place = {false, (op.state == Record::failed ? "failed in " : "out of ") + text_of_call(op),
             ns_between(op.end_ns, now)};
  } else {
    place.text = "no op yet";
  }
  if (rank.submitted < furthest) place.text += fmt::format(", has not entered #{}", furthest);
  if (rank.heartbeat_ns != 0 && ns_between(rank.heartbeat_ns, now) > kSilentAfterNs)
    place.text += fmt::format(", no heartbeat for {:.0f} s (its process is stopped, or ended)",
                              in_seconds(ns_between(rank.heartbeat_ns, now)));
  return place;
}

std::span<const Recorded> last_of(const RankRecord& rank, std::size_t last) {
  return std::span(rank.ops).last(std::min(last, rank.ops.size()));
}

std::string places_in(const GroupRecord& group, std::int64_t now) {
  std::uint64_t furthest = 0;
  for (const RankRecord& rank : group.ranks) furthest = std::max(furthest, rank.submitted);
  struct Gathered {
    std::vector<int> ranks;
    std::int64_t ns = 0;
  };
  std::map<std::pair<bool, std::string>, Gathered> places;  // waiting ranks first
  for (const RankRecord& rank : group.ranks) {
    RankPlace place = place_of(rank, furthest, now);
    Gathered& gathered = places[{!place.waits, std::move(place.text)}];
    gathered.ranks.push_back(rank.rank);
    gathered.ns = std::max(gathered.ns, place.ns);
  }
  std::string text =
      fmt::format("group \"{}\", {} rank{}\n", group.group, group.size, group.size == 1 ? "" : "s");
  std::size_t shown = 0;
  for (const auto& entry : places) {
    if (++shown > kMostPlaces) {
      text += fmt::format("  and {} places more\n", places.size() - kMostPlaces);
      break;
    }
    const Gathered& at = entry.second;
    text += fmt::format("  rank{} {}: {}", at.ranks.size() == 1 ? "" : "s", ranges_of(at.ranks),
                        entry.first.second);
    text += at.ns > 0 ? fmt::format(", for {:.3f} s\n", in_seconds(at.ns)) : "\n";
  }
  if (group.failure)
    text += fmt::format("  it failed: {}: {}\n", to_string(group.failure->code),
                        group.failure->message);
  return text;
}

// What is read is printable ASCII.
std::string json_text(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

std::string json_of(const Recorded& op, std::int64_t now) {
  const Signature& signature = op.signature;
  const auto ago = [now](const std::optional<std::int64_t>& ns) {
    return ns ? fmt::format("{:.9f}", in_seconds(ns_between(*ns, now))) : "null";
  };
  return fmt::format(
      R"({{"sequence":{},"op":"{}","call":{},"dtype":"{}","reduce_op":{},"count":{},"root":{},)"
      R"("tag":{},"message":{},"signature":"{:016x}","state":"{}","ready_s_ago":{},)"
      R"("started_s_ago":{:.9f},"ended_s_ago":{}}})",
      op.sequence, to_string(signature.kind), json_text(describe(signature)),
      to_string(signature.dtype),
      is_reduction(signature.kind) ? json_text(to_string(signature.reduce_op)) : "null",
      signature.count + op.details.own_count, signature.root, signature.tag, op.details.message,
      hash_of(signature), name_of_state(op.state), ago(op.details.ready_ns),
      in_seconds(ns_between(op.start_ns, now)),
      ago(op.state == Record::running ? std::nullopt : std::optional(op.end_ns)));
}

std::string json_of(const RankRecord& rank, std::int64_t now, std::size_t last) {
  std::string ops;
  for (const Recorded& op : last_of(rank, last))
    ops += (ops.empty() ? "\n" : ",\n") + json_of(op, now);
  return fmt::format(R"({{"rank":{},"host":{},"pid":{},"left":{},"entered":{},"finished":{},)"
                     R"("heartbeat_s_ago":{},"ops":[{}]}})",
                     rank.rank, json_text(rank.host), rank.pid, rank.left, rank.submitted,
                     rank.finished,
                     rank.heartbeat_ns == 0
                         ? "null"
                         : fmt::format("{:.6f}", in_seconds(ns_between(rank.heartbeat_ns, now))),
                     ops);
}

std::string json_of(const GroupRecord& group, std::int64_t now, std::size_t last) {
  std::string ranks, failure = "null";
  for (const RankRecord& rank : group.ranks)
    ranks += (ranks.empty() ? "\n" : ",\n") + json_of(rank, now, last);
  if (group.failure)
    failure = fmt::format(
        R"({{"code":"{}","rank":{},"host":{},"op":{},"sequence":{},"message":{}}})",
        to_string(group.failure->code), group.failure->rank, json_text(group.failure->host),
        json_text(group.failure->op), group.failure->sequence, json_text(group.failure->message));
  return fmt::format(R"({{"group":{},"size":{},"failure":{},"ranks":[{}]}})",
                     json_text(group.group), group.size, failure, ranks);
}

}  // namespace

std::string places_of(std::span<const GroupRecord> groups, std::int64_t now_ns) {
  std::string text;
  for (const GroupRecord& group : groups.first(std::min(groups.size(), kMostGroups)))
    text += places_in(group, now_ns);
  if (groups.size() > kMostGroups)
    text += fmt::format("and {} groups more\n", groups.size() - kMostGroups);
  return text;
}

std::string text_of(std::span<const GroupRecord> groups, std::int64_t now_ns, std::size_t last) {
  std::string text;
  for (const GroupRecord& group : groups) {
    text += places_in(group, now_ns);
    for (const RankRecord& rank : group.ranks) {
      text += fmt::format("  rank {} (host {}, pid {}): entered {} collectives, finished {}\n",
                          rank.rank, rank.host, rank.pid, rank.submitted, rank.finished);
      for (const Recorded& op : last_of(rank, last)) {
        const bool running = op.state == Record::running;
        text += fmt::format("    {:<8} {}, {:.6f} s{}\n", name_of_state(op.state), text_of_call(op),
                            in_seconds(ns_between(op.start_ns, running ? now_ns : op.end_ns)),
                            running ? " so far"
                                    : fmt::format(", ended {:.3f} s ago",
                                                  in_seconds(ns_between(op.end_ns, now_ns))));
      }
    }
  }
  return text;
}

std::string json_of(std::span<const GroupRecord> groups, std::int64_t now_ns, std::size_t last) {
  std::string all;
  for (const GroupRecord& group : groups)
    all += (all.empty() ? "\n" : ",\n") + json_of(group, now_ns, last);
  return fmt::format(R"({{"c10d_record":1,"host":{},"pid":{},"clock_s":{:.9f},"groups":[{}]}})"
                     "\n",
                     json_text(host_name()), getpid(), in_seconds(now_ns), all);
}

}}  // namespace c10d::v0
