// SPDX-License-Identifier: BSD-3-Clause
#include "tests/conformance/collective.h"

#include <algorithm>
#include <cstring>

#include "c10d/error.h"

namespace c10d::conformance {
namespace {

std::uint64_t hash_of(const std::byte* data, std::size_t bytes) {
  std::uint64_t hash = mix(bytes);
  while (bytes != 0) {
    const std::size_t some = bytes < 8 ? bytes : 8;
    std::uint64_t word = 0;
    std::memcpy(&word, data, some);
    hash = (hash ^ word) * 0x100000001b3 + (hash >> 29);
    data += some;
    bytes -= some;
  }
  return hash | 1;
}

}  // namespace

Collective::Collective(const Case& c, int rank, int ranks, Buffers& buffers,
                       const Buffer<std::uint8_t>* allocated)
    : case_(c),
      rank_(rank),
      ranks_(ranks),
      shape_(shape_of(c, rank, ranks)),
      in_place_(c.in_place && shape_.may_be_in_place),
      buffers_(buffers) {
  const std::size_t element = size_of(c.numbers.dtype);
  const std::size_t larger = std::max(shape_.input, shape_.output);
  buffers.start(allocated, Buffers::needed((shape_.input + shape_.output) * element, 2));
  if (in_place_) {
    std::byte* whole = buffers.take(larger * element, c.shift * element);
    in_ = whole + (shape_.input < larger ? shape_.place * element : 0);
    out_ = whole + (shape_.output < larger ? shape_.place * element : 0);
  } else {
    in_ = buffers.take(shape_.input * element, c.shift * element);
    out_ = buffers.take(shape_.output * element, c.shift * element);
  }
  fill(c.numbers, rank, 0, in_, shape_.input);
}

// Through the member function of its name.
template <class Group>
auto Collective::call_method(const Group& group) const {
  const OpKind kind = case_.op;
  const DType dtype = case_.numbers.dtype;
  const int root = static_cast<int>(case_.root % static_cast<std::uint32_t>(ranks_));
  // What only the root gives or takes, the others leave out.
  const bool leaf = traits_of(kind).has_root && rank_ != root;
  const bool idle_in = leaf && shape_.input == 0 && shape_.output != 0;
  const bool idle_out = leaf && shape_.output == 0 && shape_.input != 0;
  const ConstView in = idle_in ? ConstView{} : buffers_.view(in_, shape_.input, dtype);
  const View out = idle_out ? View{} : buffers_.view(out_, shape_.output, dtype);
  const CallOptions options{.stream = buffers_.stream()};
  const ReduceOp op = case_.numbers.op;
  const auto& counts = shape_.counts;
  // clang-format off
  switch (kind) {
    case OpKind::all_reduce:
      if (case_.in_place) return group.all_reduce(out, op, options);
      return group.all_reduce(out, in, op, options);
    case OpKind::broadcast:
      if (case_.in_place) return group.broadcast(out, root, options);
      return group.broadcast(out, in, root, options);
    case OpKind::all_gather: return group.all_gather(out, in, options);
    case OpKind::all_gather_v: return group.all_gather_v(out, in, counts, options);
    case OpKind::reduce_scatter: return group.reduce_scatter(out, in, op, options);
    case OpKind::reduce_scatter_v: return group.reduce_scatter_v(out, in, counts, op, options);
    case OpKind::reduce: return group.reduce(out, in, root, op, options);
    case OpKind::scan:
      if (case_.in_place) return group.scan(out, op, options);
      return group.scan(out, in, op, options);
    case OpKind::exscan:
      if (case_.in_place) return group.exscan(out, op, options);
      return group.exscan(out, in, op, options);
    case OpKind::gather: return group.gather(out, in, root, options);
    case OpKind::gather_v: return group.gather_v(out, in, counts, root, options);
    case OpKind::scatter: return group.scatter(out, in, root, options);
    case OpKind::scatter_v: return group.scatter_v(out, in, counts, root, options);
    case OpKind::all_to_all: return group.all_to_all(out, in, options);
    case OpKind::all_to_all_v:
      return group.all_to_all_v(out, in, shape_.output_counts, counts, options);
    case OpKind::barrier: return group.barrier(options);
    case OpKind::send: case OpKind::recv: break;
  }
  // clang-format on
  throw InvalidArgument("not a collective");
}

Work Collective::call(const ProcessGroup& group, bool async) const {
  buffers_.upload();
  if (async) return call_method(group.async());
  call_method(group);
  return {};
}

std::vector<std::string> Collective::wrong() const {
  std::vector<std::string> all;
  const DType dtype = case_.numbers.dtype;
  const std::size_t element = size_of(dtype);
  std::vector<std::byte> expected(std::max(shape_.input, shape_.output) * element);
  std::byte* to = expected.data();
  for (const Piece& piece : shape_.expected) {
    if (piece.source == kEveryRank)
      fill_reduced(case_.numbers, piece.ranks != 0 ? piece.ranks : ranks_, piece.first, to,
                   piece.count);
    else if (piece.source == kNoRank && in_place_)
      fill(case_.numbers, rank_, piece.first, to, piece.count);
    else if (piece.source == kNoRank)
      std::fill_n(to, piece.count * element, Buffers::kPattern);
    else
      fill(case_.numbers, piece.source, piece.first, to, piece.count);
    to += piece.count * element;
  }
  std::string difference = conformance::difference(dtype, expected.data(), out_, shape_.output);
  if (!difference.empty()) all.push_back(std::move(difference));
  if (!in_place_) {
    fill(case_.numbers, rank_, 0, expected.data(), shape_.input);
    if (!std::equal(in_, in_ + shape_.input * element, expected.data()))
      all.push_back("the input changed");
  }
  if (!buffers_.intact()) all.push_back("wrote outside of the output");
  return all;
}

std::uint64_t Collective::result() const {
  return shape_.same_on_all_ranks ? hash_of(out_, output_bytes()) : 0;
}

}  // namespace c10d::conformance
