// SPDX-License-Identifier: BSD-3-Clause
#include "src/core/recorder.h"

#include <fmt/format.h>

#include <bit>
#include <chrono>

namespace c10d::inline v0 {
namespace {

constexpr auto kRecordOrder = std::memory_order_relaxed;

std::uint64_t packed(const Signature& signature, Record::State state) noexcept {
  return static_cast<std::uint64_t>(state) | static_cast<std::uint64_t>(signature.kind) << 8 |
         static_cast<std::uint64_t>(signature.dtype) << 16 |
         static_cast<std::uint64_t>(signature.reduce_op) << 24;
}

// The words may be another process's.
Recorded read(const Record& record) noexcept {
  const auto& word = record.words;
  // First: the rest is at least as new.
  const std::uint64_t what = word[Record::what].load(std::memory_order_acquire);
  const auto byte = [what](int i, std::size_t limit) { return (what >> 8 * i & 0xff) % limit; };
  const std::uint64_t root_tag = word[Record::root_tag].load(kRecordOrder);
  Recorded read;
  read.state = static_cast<Record::State>(byte(0, Record::failed + 1));
  read.sequence = word[Record::sequence].load(kRecordOrder);
  read.signature.kind = static_cast<OpKind>(byte(1, kOpCount));
  read.signature.dtype = static_cast<DType>(byte(2, kDTypeCount));
  read.signature.reduce_op = static_cast<ReduceOp::Kind>(byte(3, kReduceOpCount));
  read.signature.root = static_cast<std::int32_t>(root_tag >> 32);
  read.signature.tag = static_cast<std::uint32_t>(root_tag);
  read.signature.count = word[Record::count].load(kRecordOrder);
  read.signature.counts = word[Record::counts].load(kRecordOrder);
  read.signature.factor = std::bit_cast<double>(word[Record::factor].load(kRecordOrder));
  read.start_ns = static_cast<std::int64_t>(word[Record::start_ns].load(kRecordOrder));
  read.end_ns = static_cast<std::int64_t>(word[Record::end_ns].load(kRecordOrder));
  return read;
}

}  // namespace

std::int64_t steady_ns() noexcept {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

std::uint64_t start_record(RankBlock& block, std::uint64_t sequence, const Signature& signature,
                           std::int64_t now_ns) noexcept {
  const std::uint64_t number = block.next_record.load(kRecordOrder);
  auto& word = block.records[number % kRecords].words;
  word[Record::sequence].store(sequence, kRecordOrder);
  word[Record::count].store(signature.count, kRecordOrder);
  word[Record::root_tag].store(
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(signature.root)) << 32 | signature.tag,
      kRecordOrder);
  word[Record::counts].store(signature.counts, kRecordOrder);
  word[Record::factor].store(std::bit_cast<std::uint64_t>(signature.factor), kRecordOrder);
  word[Record::start_ns].store(static_cast<std::uint64_t>(now_ns), kRecordOrder);
  word[Record::end_ns].store(0, kRecordOrder);
  word[Record::what].store(packed(signature, Record::running), std::memory_order_release);
  block.next_record.store(number + 1, std::memory_order_release);
  return number;
}

void finish_record(RankBlock& block, std::uint64_t record, bool ok, std::int64_t now_ns) noexcept {
  block.ended.fetch_add(1, kRecordOrder);
  if (block.next_record.load(kRecordOrder) - record > kRecords) return;  // overwritten since
  auto& word = block.records[record % kRecords].words;
  word[Record::end_ns].store(static_cast<std::uint64_t>(now_ns), kRecordOrder);
  const std::uint64_t of_op = word[Record::what].load(kRecordOrder) & ~std::uint64_t{0xff};
  word[Record::what].store(of_op | (ok ? Record::ok : Record::failed), std::memory_order_release);
}

void visit_records(const RankBlock& block, const std::function<void(const Recorded&)>& visit) {
  const std::uint64_t next = block.next_record.load(std::memory_order_acquire);
  for (std::uint64_t i = next > kRecords ? next - kRecords : 0; i < next; ++i)
    visit(read(block.records[i % kRecords]));
}

std::string last_op(const RankBlock& block, std::int64_t now_ns) {
  const std::uint64_t next = block.next_record.load(std::memory_order_acquire);
  if (next == 0) return "nothing yet";
  const Recorded last = read(block.records[(next - 1) % kRecords]);
  const bool running = last.state == Record::running;
  return fmt::format("{} #{}, {} {:.3f} s{}", to_string(last.signature.kind), last.sequence,
                     running ? "running for" : "ended",
                     static_cast<double>(now_ns - (running ? last.start_ns : last.end_ns)) / 1e9,
                     running ? "" : " ago");
}

}  // namespace c10d::inline v0
