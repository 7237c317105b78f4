// SPDX-License-Identifier: BSD-3-Clause
#include "src/recorder/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace c10d { inline namespace v0 {
namespace {

constexpr auto kUnordered = std::memory_order_relaxed;

std::uint64_t packed(const Signature& signature, Record::State state) noexcept {
  return static_cast<std::uint64_t>(state) | static_cast<std::uint64_t>(signature.kind) << 8 |
         static_cast<std::uint64_t>(signature.dtype) << 16 |
         static_cast<std::uint64_t>(signature.reduce_op) << 24 |
         static_cast<std::uint64_t>(signature.device) << 31;
}

// Into the upper half of `what`.
std::uint64_t packed(const std::optional<std::int64_t>& ready_ns, std::int64_t now_ns) noexcept {
  if (!ready_ns) return 0;
  const std::int64_t held = *ready_ns < now_ns ? (now_ns - *ready_ns) / 1000 : 0;
  return static_cast<std::uint64_t>(std::min<std::int64_t>(held, UINT32_MAX - 1) + 1) << 32;
}

// The words may be another process's.
Recorded read(const Record& record) noexcept {
  const auto& word = record.words;
  // First: the rest is at least as new.
  const std::uint64_t what = word[Record::what].load(std::memory_order_acquire);
  const auto byte = [what](int i, std::size_t limit) { return (what >> 8 * i & 0xff) % limit; };
  const std::uint64_t root_tag = word[Record::root_tag].load(kUnordered);
  Recorded read;
  read.state = static_cast<Record::State>(byte(0, Record::failed + 1));
  read.sequence = word[Record::sequence].load(kUnordered);
  read.signature.kind = static_cast<OpKind>(byte(1, kOpCount));
  read.signature.dtype = static_cast<DType>(byte(2, kDTypeCount));
  read.signature.reduce_op =
      static_cast<ReduceOp::Kind>((what >> 24 & 0x7f) % std::size_t{kReduceOpCount});
  read.signature.device = static_cast<DeviceType>(what >> 31 & 1);
  read.signature.root = static_cast<std::int32_t>(root_tag >> 32);
  read.signature.tag = static_cast<std::uint32_t>(root_tag);
  read.signature.count = word[Record::count].load(kUnordered);
  read.signature.counts = word[Record::counts].load(kUnordered);
  read.signature.factor = std::bit_cast<double>(word[Record::factor].load(kUnordered));
  read.start_ns = static_cast<std::int64_t>(word[Record::start_ns].load(kUnordered));
  read.end_ns = static_cast<std::int64_t>(word[Record::end_ns].load(kUnordered));
  if (traits_of(read.signature.kind).has_counts)
    read.details.own_count = std::exchange(read.signature.count, 0);
  if (is_point_to_point(read.signature.kind))
    read.details.message = std::exchange(read.signature.counts, 0);
  if (const std::uint64_t held = what >> 32; held != 0)
    read.details.ready_ns =
        static_cast<std::int64_t>(static_cast<std::uint64_t>(read.start_ns) - (held - 1) * 1000);
  return read;
}

}  // namespace

CallDetails details_of(const Op& op, int rank, const std::optional<Deadline>& ready_at) noexcept {
  CallDetails details;
  std::visit(
      [&](const auto& o) {
        if constexpr (requires { o.counts; })
          details.own_count = o.counts[static_cast<std::size_t>(rank)];
      },
      op);
  if (ready_at) details.ready_ns = std::chrono::nanoseconds(ready_at->time_since_epoch()).count();
  return details;
}

std::uint64_t start_record(RankBlock& block, std::uint64_t sequence, const Signature& signature,
                           std::int64_t now_ns, std::int64_t deadline_ns,
                           const CallDetails& details) noexcept {
  const std::uint64_t number = block.next_record.load(kUnordered);
  auto& word = block.records[number % kRecords].words;
  word[Record::what].store(Record::empty, kUnordered);  // until the others are written
  std::atomic_thread_fence(std::memory_order_release);
  word[Record::sequence].store(sequence, kUnordered);
  word[Record::count].store(signature.count + details.own_count, kUnordered);  // one of them is 0
  word[Record::root_tag].store(
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(signature.root)) << 32 | signature.tag,
      kUnordered);
  word[Record::counts].store(signature.counts + details.message, kUnordered);
  word[Record::factor].store(std::bit_cast<std::uint64_t>(signature.factor), kUnordered);
  word[Record::start_ns].store(static_cast<std::uint64_t>(now_ns), kUnordered);
  word[Record::end_ns].store(static_cast<std::uint64_t>(deadline_ns), kUnordered);
  word[Record::what].store(packed(signature, Record::running) | packed(details.ready_ns, now_ns),
                           std::memory_order_release);
  block.next_record.store(number + 1, std::memory_order_release);
  return number;
}

void finish_record(RankBlock& block, std::uint64_t record, bool ok, std::int64_t now_ns) noexcept {
  if (block.next_record.load(kUnordered) - record >= kRecords) return;  // overwritten since
  auto& word = block.records[record % kRecords].words;
  word[Record::end_ns].store(static_cast<std::uint64_t>(now_ns), kUnordered);
  const std::uint64_t of_op = word[Record::what].load(kUnordered) & ~std::uint64_t{0xff};
  word[Record::what].store(of_op | (ok ? Record::ok : Record::failed), std::memory_order_release);
}

// A blocking op has none after it.
bool is_busy(const RankBlock& block) noexcept {
  const std::uint64_t next = block.next_record.load(std::memory_order_acquire);
  return block.pending.load(kUnordered) != 0 ||
         (next != 0 && read(block.records[(next - 1) % kRecords]).state == Record::running);
}

void visit_records(const RankBlock& block, const std::function<void(const Recorded&)>& visit) {
  const std::uint64_t next = block.next_record.load(std::memory_order_acquire);
  for (std::uint64_t i = next > kRecords ? next - kRecords : 0; i < next; ++i) {
    const Recorded record = read(block.records[i % kRecords]);
    if (record.state != Record::empty) visit(record);  // else its owner is writing it
  }
}

std::string last_op(const RankBlock& block, std::int64_t now_ns) {
  const GroupCallKind call = block.group_call.load(std::memory_order_acquire);
  if (call != GroupCallKind::none) return fmt::format("in {}()", to_string(call));
  const std::uint64_t next = block.next_record.load(std::memory_order_acquire);
  if (next == 0) return "nothing yet";
  const Recorded last = read(block.records[(next - 1) % kRecords]);
  const bool running = last.state == Record::running;
  return fmt::format("{} #{}, {} {:.3f} s{}", to_string(last.signature.kind), last.sequence,
                     running ? "running for" : "ended",
                     in_seconds(now_ns - (running ? last.start_ns : last.end_ns)),
                     running ? "" : " ago");
}

}}  // namespace c10d::v0
