// SPDX-License-Identifier: BSD-3-Clause
#include "bench/model/replay_ends.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace c10d::bench {
namespace {

// Both ends of a message, in the order of their send's record.
struct Pair {
  const RecordedOp* send = nullptr;
  const RecordedOp* recv = nullptr;
};
using Pairs = std::map<std::tuple<int, int, std::uint64_t>, Pair>;  // from, to, number

// Why they cannot be replayed, or empty.
std::string why_not(const RecordedGroup& group, int rank, const RecordedOp& op) {
  if (op.message == 0) return "a recv is from any rank, whose message the record does not name";
  if (op.root < 0 || op.root >= group.size || op.root == rank)
    return "a rank has none as its peer, or itself";
  return "";
}
std::string why_not(const Pair& pair) {
  if (pair.send->tag != pair.recv->tag)
    return "messages between two ranks are received in another order than they are sent in, by "
           "their tags";
  return pair.send->dtype == pair.recv->dtype && pair.send->count <= pair.recv->count
             ? ""
             : "a recv does not fit its message";
}

Pairs pairs_of(const RecordedGroup& group, std::string& why) {
  Pairs pairs;
  for (const RecordedRank& rank : group.ranks)
    for (const auto& [sequence, op] : finished_of(rank, true)) {
      if (why = why_not(group, rank.rank, *op); !why.empty()) return {};
      if (op->kind == OpKind::send)
        pairs[{rank.rank, op->root, op->message}].send = op;
      else
        pairs[{op->root, rank.rank, op->message}].recv = op;
    }
  std::erase_if(pairs, [](const auto& entry) {
    const Pair& pair = entry.second;
    return pair.send == nullptr || pair.recv == nullptr || pair.send->count == 0;
  });
  for (const auto& [key, pair] : pairs)
    if (why = why_not(pair); !why.empty()) return {};
  return pairs;
}

ReplayOp end_of(const Pair& pair, const MessageEnd& end, int ranks) {
  const RecordedOp& call = end.sends ? *pair.send : *pair.recv;
  ReplayOp op;
  op.call = call;
  op.as_case.op = BenchOp::send;
  op.as_case.dtype = call.dtype;
  op.as_case.shard = pair.send->count;
  op.as_case.bytes = pair.send->count * size_of(call.dtype);
  op.as_case.end = end;
  op.spans.assign(static_cast<std::size_t>(ranks), kAbsent);
  op.ready.resize(static_cast<std::size_t>(ranks));
  op.ready[static_cast<std::size_t>(end.rank())] = call.ready;
  Span& sent = op.spans[static_cast<std::size_t>(end.from)];
  sent = {pair.send->start, pair.send->end};
  // A send may end before its message is received, on one backend and not on another: what began
  // before that may be what the receiver waits for.
  if (end.sends)
    sent.end = std::max(sent.end, pair.recv->start + 2 * kClockError);
  else
    op.spans[static_cast<std::size_t>(end.to)] = {pair.recv->start, pair.recv->end};
  return op;
}

class Order {
 public:
  Order(std::vector<ReplayOp> ops, int ranks)
      : ops_(std::move(ops)), queues_(static_cast<std::size_t>(ranks)), taken_(ops_.size()) {
    for (std::size_t rank = 0; rank < queues_.size(); ++rank) {
      for (std::size_t i = 0; i < ops_.size(); ++i)
        if (takes_part(ops_[i], rank)) queues_[rank].push_back(i);
      std::stable_sort(queues_[rank].begin(), queues_[rank].end(),
                       [&](std::size_t a, std::size_t b) {
                         return ops_[a].spans[rank].start < ops_[b].spans[rank].start;
                       });
    }
    heads_.resize(queues_.size());
  }
  std::vector<ReplayOp> take_all() {
    std::vector<ReplayOp> all;
    while (const std::optional<std::size_t> next = next_op()) {
      taken_[*next] = true;
      if (ops_[*next].as_case.end && ops_[*next].as_case.end->sends)
        sent_.insert(ops_[*next].message);
      all.push_back(std::move(ops_[*next]));
    }
    return all;
  }

 private:
  std::optional<std::size_t> next_op() {
    std::optional<std::size_t> best;
    int best_class = 0;
    for (std::size_t rank = 0; rank < queues_.size(); ++rank) {
      const std::vector<std::size_t>& queue = queues_[rank];
      std::size_t& head = heads_[rank];
      while (head < queue.size() && taken_[queue[head]]) ++head;
      if (head == queue.size()) continue;
      const std::size_t i = queue[head];
      const int its = class_of(ops_[i]);
      if (best && (its > best_class || (its == best_class && !comes_before(i, *best)))) continue;
      best = i;
      best_class = its;
    }
    return best;
  }
  int class_of(const ReplayOp& op) const {
    if (!op.as_case.end) return 3;
    if (op.as_case.end->sends) return 1;
    return sent_.contains(op.message) ? 0 : 2;
  }
  // Collectives by their times; messages stay in the order of the ranks.
  bool comes_before(std::size_t a, std::size_t b) const {
    return !ops_[a].as_case.end &&
           common_span(ops_[a].spans).start < common_span(ops_[b].spans).start;
  }

  std::vector<ReplayOp> ops_;
  std::vector<std::vector<std::size_t>> queues_;  // by rank, of indices
  std::vector<std::size_t> heads_;                // of the queues
  std::vector<bool> taken_;
  std::set<std::uint64_t> sent_;
};

}  // namespace

BySequence finished_of(const RecordedRank& rank, bool messages) {
  BySequence ops;
  const RecordedOp* before = nullptr;
  for (const RecordedOp& op : rank.ops) {
    if (is_point_to_point(op.kind) != messages) continue;
    if (before != nullptr &&
        (op.sequence <= before->sequence || op.start < before->start - kClockError))
      ops.clear();
    before = &op;
    if (op.ok) ops[op.sequence] = &op;
  }
  return ops;
}

std::vector<ReplayOp> messages_of(const RecordedGroup& group, std::uint64_t& number,
                                  std::string& why) {
  std::vector<ReplayOp> all;
  for (const auto& [key, pair] : pairs_of(group, why)) {
    MessageEnd end{std::get<0>(key), std::get<1>(key), pair.send->tag, true};
    ++number;
    for (const bool sends : {true, false}) {
      end.sends = sends;
      all.push_back(end_of(pair, end, group.size));
      all.back().message = number;
    }
  }
  return all;
}

std::vector<ReplayOp> in_one_order(std::vector<ReplayOp> ops, int ranks) {
  return Order(std::move(ops), ranks).take_all();
}

}  // namespace c10d::bench
