// SPDX-License-Identifier: BSD-3-Clause
#include "tests/conformance/cases.h"

#include <sstream>

namespace c10d::conformance {
namespace {

struct Size {
  std::size_t elements;
  unsigned one_in;
};
constexpr Size kSizes[] = {
    {0, 1}, {1, 1}, {17, 1}, {4 << 10, 3}, {(64 << 10) + 1, 8}, {(1 << 20) + 3, 40}};

constexpr int kExchangeKinds = 5;

// Draws independent choices out of one hash.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}
  std::uint64_t below(std::uint64_t n) { return (state_ = mix(state_)) % n; }
  bool flip() { return below(2) == 1; }

 private:
  std::uint64_t state_;
};

class Selector {
 public:
  explicit Selector(const Selection& selection) : selection_(selection) {}

  void add(Exchange exchange, OpKind op, DType dtype, ReduceOp reduce_op) {
    for (const Size& size : kSizes) {
      const std::uint64_t id = ++id_;
      Draw draw(mix(id * 1024 + static_cast<std::uint64_t>(selection_.ranks)));
      if (draw.below(size.one_in * selection_.thin) != 0) continue;
      Case c{.id = id, .exchange = exchange, .op = op, .size = size.elements};
      choose_numbers(c, dtype, reduce_op, draw);
      c.members = static_cast<Members>(draw.below(3));
      if (c.members == Members::subgroup && selection_.ranks < 3) c.members = Members::world;
      c.memory = static_cast<Memory>(draw.below(3));
      c.root = static_cast<std::uint32_t>(draw.below(1 << 20));
      c.shift = draw.flip() ? 0 : draw.below(5);
      c.in_place = draw.flip();
      c.async = draw.flip();
      cases_.push_back(c);
    }
  }

  std::vector<Case> take() { return std::move(cases_); }

 private:
  void choose_numbers(Case& c, DType dtype, ReduceOp op, Draw& draw) const {
    const bool order_matters = (is_floating(dtype) || is_complex(dtype)) && is_reduction(c.op) &&
                               op.kind != ReduceOp::min && op.kind != ReduceOp::max;
    c.numbers = {.dtype = dtype, .op = op, .values = Values::exact, .seed = mix(id_)};
    if (draw.flip() && (!order_matters || selection_.fixed_order)) c.numbers.values = Values::hard;
    const bool hard = c.numbers.values == Values::hard;
    if (op.kind == ReduceOp::premul_sum)
      c.numbers.op = ReduceOp::premul(hard ? kPremulFactor : kExactPremulFactor);
  }

  const Selection selection_;
  std::uint64_t id_ = 0;
  std::vector<Case> cases_;
};

}  // namespace

std::vector<Case> select_cases(const Selection& selection) {
  Selector selector(selection);
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    for (const OpTraits& op : kOpTraits) {
      if (op.is_point_to_point || (op.required == OpBuffer::neither && d != 0)) continue;
      const int reduce_ops = op.has_reduce_op ? kReduceOpCount : 1;
      for (int r = 0; r < reduce_ops; ++r)
        selector.add(Exchange::collective, op.kind, dtype, static_cast<ReduceOp::Kind>(r));
    }
    for (int e = 1; e <= kExchangeKinds; ++e) {
      const auto exchange = static_cast<Exchange>(e);
      selector.add(exchange, exchange == Exchange::overlapped ? OpKind::all_reduce : OpKind::send,
                   dtype, ReduceOp::sum);
    }
  }
  return selector.take();
}

std::string describe(const Case& c) {
  constexpr const char* kExchanges[] = {"",
                                        "send and recv",
                                        "isend and irecv with tags",
                                        "recv from any source",
                                        "batch of send and recv",
                                        "overlapped all_reduce"};
  constexpr const char* kMembers[] = {"world", "subgroup", "dealt group"};
  constexpr const char* kMemories[] = {"plain", "allocated", "mixed"};
  std::ostringstream out;
  out << "case " << c.id << ": ";
  if (c.exchange == Exchange::collective)
    out << to_string(c.op);
  else
    out << kExchanges[static_cast<int>(c.exchange)];
  out << ' ' << to_string(c.numbers.dtype);
  if (is_reduction(c.op)) out << ' ' << to_string(c.numbers.op.kind);
  out << " x " << c.size << (c.numbers.values == Values::hard ? ", hard numbers" : "") << ", "
      << kMembers[static_cast<int>(c.members)] << ", root " << c.root << ", "
      << kMemories[static_cast<int>(c.memory)] << " memory, shift " << c.shift
      << (c.in_place ? ", in place" : "") << (c.async ? ", async" : "");
  return out.str();
}

}  // namespace c10d::conformance
