// SPDX-License-Identifier: BSD-3-Clause
#include "src/recorder/signature.h"

#include <fmt/format.h>

#include <bit>

#include "src/base/hash.h"

namespace c10d { inline namespace v0 {
namespace {

std::uint64_t hash_of(std::span<const std::size_t> counts) noexcept {
  std::uint64_t hash = counts.size();
  for (const std::size_t count : counts) hash = mix(hash, count);
  return hash | 1;
}

std::uint64_t agreed_count(AgreedCount agreed, const ConstView& buffer, int size) noexcept {
  switch (agreed) {
    case AgreedCount::none:
      break;
    case AgreedCount::whole:
      return buffer.count;
    case AgreedCount::per_rank:
      return buffer.count / static_cast<std::uint64_t>(size);
  }
  return 0;
}

}  // namespace

Signature signature_of(const Op& op, int size) noexcept {
  Signature signature;
  signature.kind = kind_of(op);
  const OpTraits& traits = traits_of(signature.kind);
  // Of the buffer that every rank passes: the other one may be none, with no dtype to trust.
  const auto agree_on = [&](const ConstView& buffer) {
    signature.dtype = buffer.dtype;
    signature.device = buffer.device.type;
    signature.count = agreed_count(traits.agreed, buffer, size);
  };
  std::visit(
      [&](const auto& o) {
        if constexpr (requires { o.input; })
          if (traits.required == OpBuffer::input) agree_on(o.input);
        if constexpr (requires { o.output; })
          if (traits.required == OpBuffer::output) agree_on(o.output);
        if constexpr (requires { o.op; }) {
          signature.reduce_op = o.op.kind;
          if (o.op.kind == ReduceOp::premul_sum) signature.factor = o.op.factor;
        }
        if constexpr (requires { o.root; }) signature.root = o.root;
        if constexpr (requires { o.counts; }) signature.counts = hash_of(o.counts);
        if constexpr (requires { o.tag; }) {
          signature.root = o.peer;
          signature.tag = o.tag;
        }
      },
      op);
  return signature;
}

std::uint64_t hash_of(const Signature& signature) noexcept {
  std::uint64_t hash = mix(0, static_cast<std::uint64_t>(signature.kind) |
                                  static_cast<std::uint64_t>(signature.dtype) << 8 |
                                  static_cast<std::uint64_t>(signature.reduce_op) << 16 |
                                  static_cast<std::uint64_t>(signature.device) << 24 |
                                  static_cast<std::uint64_t>(signature.root) << 32);
  hash = mix(hash, signature.count);
  if (signature.counts != 0) hash = mix(hash, signature.counts);
  if (signature.factor != 1) hash = mix(hash, std::bit_cast<std::uint64_t>(signature.factor));
  return hash ^ hash >> 32;
}

std::string describe(const Signature& signature) {
  const OpTraits& traits = traits_of(signature.kind);
  std::string text = fmt::format("{}(", traits.name);
  if (traits.has_reduce_op) {
    text += fmt::format("{}, ", to_string(signature.reduce_op));
    if (signature.reduce_op == ReduceOp::premul_sum)
      text += fmt::format("factor {}, ", signature.factor);
  }
  const bool on_cpu = signature.device == DeviceType::cpu;
  if (traits.required == OpBuffer::neither)
    return text + (on_cpu ? "" : std::string(to_string(signature.device))) + ")";
  text += std::string(to_string(signature.dtype));
  if (!traits.has_counts)
    text += fmt::format(" x {}", signature.count);
  else
    text += fmt::format(", counts #{:08x}", static_cast<std::uint32_t>(signature.counts));
  if (signature.kind == OpKind::recv && signature.root == kAnySource)
    text += fmt::format(", from any rank, tag {}", signature.tag);
  else if (traits.is_point_to_point)
    text += fmt::format(", {} {}, tag {}", signature.kind == OpKind::send ? "to" : "from",
                        signature.root, signature.tag);
  else if (signature.root >= 0)
    text += fmt::format(", root {}", signature.root);
  if (!on_cpu) text += fmt::format(", {}", to_string(signature.device));
  return text + ")";
}

std::string first_difference(const Signature& mine, const Signature& theirs) {
  if (mine.kind != theirs.kind)
    return fmt::format("op {} against {}", to_string(mine.kind), to_string(theirs.kind));
  if (mine.dtype != theirs.dtype)
    return fmt::format("dtype {} against {}", to_string(mine.dtype), to_string(theirs.dtype));
  if (mine.device != theirs.device)
    return fmt::format("memory of {} against {}", to_string(mine.device), to_string(theirs.device));
  if (mine.reduce_op != theirs.reduce_op)
    return fmt::format("reduce op {} against {}", to_string(mine.reduce_op),
                       to_string(theirs.reduce_op));
  if (mine.root != theirs.root) return fmt::format("root {} against {}", mine.root, theirs.root);
  if (mine.count != theirs.count)
    return fmt::format("count {} against {}", mine.count, theirs.count);
  if (mine.counts != theirs.counts) return "the counts per rank";
  if (mine.factor != theirs.factor)
    return fmt::format("factor {} against {}", mine.factor, theirs.factor);
  return {};
}

}}  // namespace c10d::v0
