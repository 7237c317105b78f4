// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/hosts/small.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <variant>
#include <vector>

#include "kernels/crc32c.h"
#include "kernels/reduce.h"
#include "src/backends/common/failures.h"
#include "src/backends/common/prefix_reduction.h"
#include "src/backends/native/hosts/enter.h"
#include "src/base/members.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

using Inputs = std::vector<const std::byte*>;  // by rank

// Above, blocks between hosts are faster: two ranks on two hosts, measured.
constexpr std::size_t kMostBytes = std::size_t{32} << 10;  // of all ranks together

// Whether all ranks give as many bytes, whatever the arguments are; finish() knows each of them.
constexpr bool gives_alike(OpKind op) noexcept {
  switch (op) {
    case OpKind::all_reduce:
    case OpKind::broadcast:
    case OpKind::all_gather:
    case OpKind::reduce_scatter:
    case OpKind::reduce:
    case OpKind::scan:
    case OpKind::exscan:
    case OpKind::gather:
    case OpKind::scatter:
    case OpKind::all_to_all:
      return true;
    case OpKind::all_gather_v:
    case OpKind::reduce_scatter_v:
    case OpKind::gather_v:
    case OpKind::scatter_v:
    case OpKind::all_to_all_v:
    case OpKind::barrier:
    case OpKind::send:
    case OpKind::recv:
      break;
  }
  return false;
}
template <class T>
constexpr bool kGivesAlike = gives_alike(kKindOf<T>);

template <class T>
std::size_t bytes_given(const T& op, int size) noexcept {
  if constexpr (!kGivesAlike<T>)
    return 0;
  else if constexpr (std::is_same_v<T, Broadcast>)
    return op.output.bytes();
  else if constexpr (std::is_same_v<T, Scatter>)
    return op.output.bytes() * static_cast<std::size_t>(size);
  else
    return op.input.bytes();
}

template <class T>
bool gives(const T& op, int rank) noexcept {
  if constexpr (std::is_same_v<T, Broadcast> || std::is_same_v<T, Scatter>)
    return op.root == rank;
  else
    return true;
}

template <class T>
bool has_result(const T& op, int rank) noexcept {
  if constexpr (std::is_same_v<T, Gather> || std::is_same_v<T, Reduce>)
    return op.root == rank;
  else
    return true;
}

// The part of each input that the result of this rank is made of.
template <class T>
std::size_t first_byte(const T& op, int rank, int size) noexcept {
  const auto own = static_cast<std::size_t>(rank);
  if constexpr (std::is_same_v<T, Scatter> || std::is_same_v<T, ReduceScatter>)
    return own * op.output.bytes();
  else if constexpr (std::is_same_v<T, AllToAll>)
    return own * op.output.bytes() / static_cast<std::size_t>(size);
  else
    return 0;
}

// The result of this rank, from what all gave.
template <class T>
void finish(const T& op, int rank, Inputs& inputs) {
  if (!has_result(op, rank)) return;
  const std::size_t first = first_byte(op, rank, static_cast<int>(inputs.size()));
  for (const std::byte*& input : inputs) input += first;
  auto* const out = static_cast<std::byte*>(op.output.data);
  if constexpr (requires { op.op; }) {
    std::size_t reduced = inputs.size();
    if constexpr (std::is_same_v<T, Scan> || std::is_same_v<T, Exscan>)
      reduced = static_cast<std::size_t>(reduced_ranks<T>(rank));
    if (reduced != 0)
      reduce(op.output.dtype, op.op, out, std::span(inputs).first(reduced), op.output.count);
  } else if constexpr (requires { op.root; } && !std::is_same_v<T, Gather>) {
    std::memcpy(out, inputs[static_cast<std::size_t>(op.root)], op.output.bytes());
  } else {
    const std::size_t bytes = op.output.bytes() / inputs.size();
    for (std::size_t i = 0; i < inputs.size(); ++i) std::memcpy(out + i * bytes, inputs[i], bytes);
  }
}

// The input of this rank, sealed.
template <class T>
std::span<const std::byte> pack(const T& op, int rank, std::span<std::byte> to) {
  const std::size_t bytes = to.size() - kSealBytes;
  if (gives(op, rank))
    std::memcpy(to.data(), op.input.data, bytes);
  else
    std::memset(to.data(), 0, bytes);
  seal(to);
  return to;
}

// What all ranks gave, or a rank whose bytes came changed.
std::variant<Inputs, int> unpack(HostGroup& group) {
  Inputs inputs;
  for (int rank = 0; rank < group.context().size; ++rank) {
    const std::span<const std::byte> given = group.control().carried(rank);
    if (!is_sealed(given)) return rank;
    inputs.push_back(given.data());
  }
  return inputs;
}

template <class T>
std::shared_ptr<const Failure> execute_op(HostGroup& group, const Call& call, const T& op) {
  const BackendContext& context = group.context();
  const std::size_t bytes = bytes_given(op, context.size);
  const std::size_t sealed = bytes + kSealBytes;
  Call carrying = call;
  carrying.carried = pack(op, context.rank, {group.scratch().take(sealed), sealed});
  if (auto failure = enter(group.control(), carrying)) return failure;
  std::variant<Inputs, int> given = unpack(group);
  if (const int* const rank = std::get_if<int>(&given)) {
    const Member& member = context.members[static_cast<std::size_t>(*rank)];
    return group.control().fail(caused_by(
        member, failure_in(context, call, Code::corrupt,
                           fmt::format("{} bytes of {} came with a wrong checksum: the network, or "
                                       "a memory, changed them",
                                       bytes, name_of(member)))));
  }
  finish(op, context.rank, std::get<Inputs>(given));
  group.reset_scratch();
  return nullptr;
}

std::uint32_t checksum_of(std::span<const std::byte> block) noexcept {
  return crc32c(0, block.data(), block.size() - kSealBytes);
}

}  // namespace

void seal(std::span<std::byte> block) noexcept {
  const std::uint32_t sum = checksum_of(block);
  std::memcpy(block.last(kSealBytes).data(), &sum, kSealBytes);
}

bool is_sealed(std::span<const std::byte> block) noexcept {
  const std::uint32_t sum = checksum_of(block);
  return std::memcmp(block.last(kSealBytes).data(), &sum, kSealBytes) == 0;
}

bool is_small(const HostGroup& group, const Op& op) noexcept {
  const int size = group.context().size;
  return std::visit(
      [&](const auto& one) { return is_small(group, kind_of(op), bytes_given(one, size)); }, op);
}

bool is_small(const HostGroup& group, OpKind op, std::size_t bytes) noexcept {
  // Each rank of a host sends to other hosts.
  const std::size_t most = std::min(kMostBytes, group.control().most_carried()) /
                           static_cast<std::size_t>(group.placement().most_ranks());
  return bytes != 0 && !group.plan().forces(op) &&
         bytes + kSealBytes <= most / static_cast<std::size_t>(group.context().size);
}

std::shared_ptr<const Failure> execute_small(HostGroup& group, const Call& call) {
  return std::visit(
      [&](const auto& op) -> std::shared_ptr<const Failure> {
        if constexpr (kGivesAlike<std::remove_cvref_t<decltype(op)>>)
          return execute_op(group, call, op);
        else
          return nullptr;
      },
      call.op);
}

}}}  // namespace c10d::v0::native
