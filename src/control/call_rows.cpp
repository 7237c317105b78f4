// SPDX-License-Identifier: BSD-3-Clause
#include "src/control/call_rows.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <map>
#include <utility>

#include "c10d/error.h"
#include "src/sync/thread.h"

namespace c10d { inline namespace v0 {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// All ranks ask one store: the more they are, the rarer each does.
constexpr microseconds kPausePerRank{100};
constexpr microseconds kLongestLookPause{50'000};
constexpr milliseconds kCauseEvery{40};
constexpr milliseconds kPauseAfterError{100};
constexpr std::string_view kCompared = "calls/compared";

// One end of a message, in a row of those: the last kMessages to and from each rank.
struct Message {
  std::uint64_t number;  // between the two
  Signature signature;
};
static_assert(std::is_trivially_copyable_v<Message> && sizeof(Message) == 48);
constexpr std::size_t kMessages = 64;

std::string messages_of(const RankBlock& own) {
  // The thread that launches may be overwriting the oldest.
  constexpr std::uint64_t kInDoubt = 8;
  std::uint64_t doubted =
      own.next_record.load(std::memory_order_acquire) < kRecords - kInDoubt ? 0 : kInDoubt;
  std::vector<Message> all;
  std::map<std::pair<OpKind, int>, std::uint64_t> last;  // number
  visit_records(own, [&](const Recorded& record) {
    if (doubted != 0) {
      --doubted;
      return;
    }
    const Signature& signature = record.signature;
    if (!is_point_to_point(signature.kind) || signature.device != DeviceType::cuda) return;
    last[{signature.kind, signature.root}] = record.details.message;
    all.push_back({record.details.message, signature});
  });
  std::string row;
  for (const Message& message : all) {
    const Signature& signature = message.signature;
    if (message.number + kMessages <= last[{signature.kind, signature.root}]) continue;
    row.append(reinterpret_cast<const char*>(&message), sizeof message);
  }
  return row;
}

std::string key_of_messages(int rank) { return fmt::format("messages/{}", rank); }

// One call of a row. Before them stands the number of the last.
struct RowEntry {
  std::uint64_t hash;
  Signature signature;
  std::uint64_t sends, expects;
};
static_assert(std::is_trivially_copyable_v<RowEntry> && sizeof(RowEntry) == 64);
using Last = std::uint64_t;

Last last_of(std::string_view row) {
  Last last = 0;
  if (row.size() >= sizeof last) std::memcpy(&last, row.data(), sizeof last);
  return last;
}

std::vector<std::string> keys_of_rows(int size) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < size; ++rank) keys.push_back(fmt::format("calls/{}", rank));
  return keys;
}

}  // namespace

CallRows::CallRows(Options options)
    : options_(std::move(options)),
      keys_(keys_of_rows(options_.size)),
      slots_(options_.rank == 0 ? kAnnounced * static_cast<std::size_t>(options_.size) : 0),
      wanted_messages_(static_cast<std::size_t>(options_.size)),
      messages_(static_cast<std::size_t>(options_.size)) {}

void CallRows::start() {
  if (started_) return;
  MutexLock lock(thread_mutex_);
  if (started_ || stopped_) return;
  thread_ = start_thread([this] { run(); });
  started_ = true;
}

void CallRows::announced(std::uint64_t sequence) noexcept {
  last_.store(sequence, std::memory_order_release);
  want();
}

void CallRows::want() noexcept {
  if (options_.own.compared.load(std::memory_order_relaxed) >=
      last_.load(std::memory_order_relaxed))
    return;
  wake();
}

void CallRows::wake() noexcept {
  if (wanted_.exchange(1, std::memory_order_release) == 0) wanted_.notify_one();
}

void CallRows::want_messages(int peer) noexcept try {
  wanted_messages_[static_cast<std::size_t>(peer)].store(true, std::memory_order_relaxed);
  start();
  wake();
} catch (const std::exception&) {  // no room for a thread: whoever asks again may find some
}

void CallRows::stop() noexcept {
  MutexLock lock(thread_mutex_);
  stopped_ = true;
  if (!thread_.joinable()) return;
  wake();
  thread_.join();
}

void CallRows::run() noexcept {
  pthread_setname_np(pthread_self(), "c10d-calls");
  const microseconds pause = std::min(options_.size * kPausePerRank, kLongestLookPause);
  while (true) {
    wanted_.wait(0, std::memory_order_acquire);
    wanted_.exchange(0, std::memory_order_acq_rel);  // before: what is stored later is seen later
    if (stopped_) return;
    microseconds until_next = pause;
    try {
      if (!options_.broken()) look();
    } catch (const DistError& error) {  // of the store; the monitor counts how long it is silent
      if (error.code() == Code::corrupt) options_.fail(error.failure());
      until_next = kPauseAfterError;
    } catch (const std::exception&) {  // no memory: the next look may have some
      until_next = kPauseAfterError;
    }
    std::this_thread::sleep_for(until_next);
  }
}

void CallRows::look() {
  RankBlock& own = options_.own;
  write_row(kStorePatience);
  const std::uint64_t before = own.compared.load(std::memory_order_relaxed);
  std::uint64_t compared = before;
  if (options_.rank == 0) {
    read_rows();
    compared = options_.last_equal(before).value_or(before);
  } else if (const auto text = options_.store->try_get(kCompared, kStorePatience)) {
    std::from_chars(text->data(), text->data() + text->size(), compared);
  }
  // A call may be in its slot and not yet announced().
  compared = std::min(compared, last_.load(std::memory_order_acquire));
  // In the store first: once its own calls are over this rank may leave.
  if (options_.rank == 0 && compared != before)
    options_.store->set(kCompared, std::to_string(compared), kStorePatience);
  own.compared.store(compared, std::memory_order_release);
  look_at_messages();
  const auto now = steady_clock::now();
  if (now < next_cause_) return;
  next_cause_ = now + kCauseEvery;
  options_.look_for_cause();
}

void CallRows::write_row(Duration patience) {
  MutexLock lock(row_mutex_);
  const Last last = last_.load(std::memory_order_acquire);
  if (last == written_) return;
  std::string row(reinterpret_cast<const char*>(&last), sizeof last);
  const std::uint64_t compared = options_.own.compared.load(std::memory_order_acquire);
  for (std::uint64_t sequence = compared + 1; sequence <= last; ++sequence) {
    const AnnouncedSlot& call = options_.own.announced[sequence % kAnnounced];
    const RowEntry entry{call.hash, call.signature, call.sends, call.expects};
    row.append(reinterpret_cast<const char*>(&entry), sizeof entry);
  }
  options_.store->set(keys_[static_cast<std::size_t>(options_.rank)], row, patience);
  written_ = last;
}

void CallRows::read_rows() {
  if (!all_have_rows_ && !options_.store->check(keys_, kStorePatience)) return;
  all_have_rows_ = true;
  const std::vector<std::string> rows = options_.store->multi_get(keys_, kStorePatience);
  for (int rank = 1; rank < options_.size; ++rank)
    read_row(rank, rows[static_cast<std::size_t>(rank)]);
}

void CallRows::read_row(int rank, std::string_view bytes) {
  const Last last = last_of(bytes);
  const std::size_t count =
      bytes.size() < sizeof last ? 0 : (bytes.size() - sizeof last) / sizeof(RowEntry);
  const std::uint64_t compared = options_.own.compared.load(std::memory_order_relaxed);
  if (bytes.size() != sizeof last + count * sizeof(RowEntry) ||
      count > std::min(last, kAnnounced) || last > compared + kAnnounced)
    throw_failure(
        {.code = Code::corrupt,
         .message = fmt::format("the store holds a row of calls of rank {} that it cannot "
                                "have written: {} bytes, up to call {}",
                                rank, bytes.size(), last),
         .rank = rank});
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t sequence = last - count + 1 + i;
    if (sequence <= compared) continue;
    RowEntry entry;
    std::memcpy(&entry, bytes.data() + sizeof last + i * sizeof entry, sizeof entry);
    AnnouncedSlot& call = slots_[static_cast<std::size_t>(rank) * kAnnounced +
                                 static_cast<std::size_t>(sequence % kAnnounced)];
    call.hash = entry.hash;
    call.signature = entry.signature;
    call.sends = entry.sends;
    call.expects = entry.expects;
    call.sequence.store(sequence, std::memory_order_relaxed);
  }
}

void CallRows::write_messages(Duration patience) {
  MutexLock lock(row_mutex_);
  std::string own = messages_of(options_.own);
  if (own == own_messages_) return;
  options_.store->set(key_of_messages(options_.rank), own, patience);
  own_messages_ = std::move(own);
}

// Its own row first: once a rank has read the other end it may leave. After an error whoever still
// waits for the end of a peer asks again.
void CallRows::look_at_messages() {
  std::vector<int> peers;
  for (int peer = 0; peer < options_.size; ++peer)
    if (wanted_messages_[static_cast<std::size_t>(peer)].exchange(false)) peers.push_back(peer);
  if (peers.empty()) return;
  try {
    write_messages(kStorePatience);
  } catch (...) {
    want_messages(options_.rank);
    throw;
  }
  for (const int peer : peers) {
    if (peer == options_.rank) continue;
    const auto row = options_.store->try_get(key_of_messages(peer), kStorePatience);
    if (!row) continue;
    if (row->size() % sizeof(Message) != 0)
      throw_failure({.code = Code::corrupt,
                     .message = fmt::format("the store holds messages of rank {} that it cannot "
                                            "have written: {} bytes",
                                            peer, row->size()),
                     .rank = peer});
    MutexLock lock(messages_mutex_);
    messages_[static_cast<std::size_t>(peer)] = *row;
  }
}

void CallRows::visit_messages(int peer, const std::function<void(const Recorded&)>& visit) const {
  MutexLock lock(messages_mutex_);
  std::string_view row = messages_[static_cast<std::size_t>(peer)];
  for (Message message; !row.empty(); row.remove_prefix(sizeof message)) {
    std::memcpy(&message, row.data(), sizeof message);
    Recorded record{};
    record.signature = message.signature;
    record.details.message = message.number;
    visit(record);
  }
}

bool CallRows::is_behind(int rank, std::uint64_t sequence) const {
  const auto row = options_.store->try_get(keys_[static_cast<std::size_t>(rank)], kStorePatience);
  return !row || last_of(*row) < sequence;
}

std::vector<int> CallRows::behind(std::uint64_t sequence) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < options_.size; ++rank)
    if (rank != options_.rank && is_behind(rank, sequence)) ranks.push_back(rank);
  return ranks;
}

const AnnouncedSlot& CallRows::slot(int rank, std::uint64_t sequence) const noexcept {
  const auto place = static_cast<std::size_t>(sequence % kAnnounced);
  return rank == options_.rank ? options_.own.announced[place]
                               : slots_[static_cast<std::size_t>(rank) * kAnnounced + place];
}

}}  // namespace c10d::v0
