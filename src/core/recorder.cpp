// SPDX-License-Identifier: BSD-3-Clause
#include "src/core/recorder.h"

#include <fmt/format.h>

#include <chrono>

namespace c10d::inline v0 {
namespace {

Recorded read(const Record& record) noexcept {
  const auto& word = record.words;
  // First: the rest is at least as new as the state.
  const auto state =
      static_cast<Record::State>(word[Record::state].load(std::memory_order_acquire));
  const std::uint64_t root_tag = word[Record::root_tag].load(std::memory_order_relaxed);
  return {
      .sequence = word[Record::sequence].load(std::memory_order_relaxed),
      .kind = static_cast<OpKind>(word[Record::kind].load(std::memory_order_relaxed) % kOpCount),
      .state = state,
      .root = static_cast<std::int32_t>(root_tag >> 32),
      .tag = static_cast<std::uint32_t>(root_tag),
      .count = word[Record::count].load(std::memory_order_relaxed),
      .start_ns = static_cast<std::int64_t>(word[Record::start_ns].load(std::memory_order_relaxed)),
      .end_ns = static_cast<std::int64_t>(word[Record::end_ns].load(std::memory_order_relaxed))};
}

}  // namespace

std::int64_t steady_ns() noexcept {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

std::uint64_t start_record(RankBlock& block, std::uint64_t sequence, const Signature& signature,
                           std::uint64_t hash, std::int64_t now_ns) noexcept {
  const std::uint64_t number = block.next_record.load(std::memory_order_relaxed);
  auto& word = block.records[number % kRecords].words;
  word[Record::sequence].store(sequence, std::memory_order_relaxed);
  word[Record::kind].store(static_cast<std::uint64_t>(signature.kind), std::memory_order_relaxed);
  word[Record::count].store(signature.count, std::memory_order_relaxed);
  word[Record::root_tag].store(
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(signature.root)) << 32 | signature.tag,
      std::memory_order_relaxed);
  word[Record::signature].store(hash, std::memory_order_relaxed);
  word[Record::start_ns].store(static_cast<std::uint64_t>(now_ns), std::memory_order_relaxed);
  word[Record::end_ns].store(0, std::memory_order_relaxed);
  word[Record::state].store(Record::running, std::memory_order_release);
  block.next_record.store(number + 1, std::memory_order_release);
  return number;
}

void finish_record(RankBlock& block, std::uint64_t record, bool ok, std::int64_t now_ns) noexcept {
  block.ended.fetch_add(1, std::memory_order_relaxed);
  if (block.next_record.load(std::memory_order_relaxed) - record > kRecords)
    return;  // overwritten since
  auto& word = block.records[record % kRecords].words;
  word[Record::end_ns].store(static_cast<std::uint64_t>(now_ns), std::memory_order_relaxed);
  word[Record::state].store(ok ? Record::ok : Record::failed, std::memory_order_release);
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
  return fmt::format("{} #{}, {} {:.3f} s{}", to_string(last.kind), last.sequence,
                     running ? "running for" : "ended",
                     static_cast<double>(now_ns - (running ? last.start_ns : last.end_ns)) / 1e9,
                     running ? "" : " ago");
}

}  // namespace c10d::inline v0
