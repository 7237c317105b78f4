// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

// How ranks tell each other through memory that something is there, written once over the memory:
// production works on std::atomic, tests/model on words that know every order in which ranks may
// run. A change to an order of operations here changes what the model checks.
namespace c10d { inline namespace v0 {

// The memory that ranks share, as the kernel and the CPU give it.
struct HostMemory {
  template <class T>
  using Atomic = std::atomic<T>;
  template <class T>
  using Plain = T;
  // Sleeps while `word` is `value`, a millisecond at most.
  static void wait(Atomic<std::uint32_t>& word, std::uint32_t value) noexcept;
  static void wake(Atomic<std::uint32_t>& word) noexcept;
  // All stores before it are seen before anything behind it is looked at.
  static void fence() noexcept { std::atomic_thread_fence(std::memory_order_seq_cst); }
};

// Where waiters sleep until flags change. Lies in zeroed memory that ranks share, beside the flags.
template <class Memory>
struct BasicDoorbell {
  typename Memory::template Atomic<std::uint32_t> sleepers;
  typename Memory::template Atomic<std::uint32_t> rings;

  // By the one thread that stored a flag, after the store. Its read-modify-write on `sleepers` and
  // that of a sleeper have an order: either we see the sleeper, or the sleeper sees the flag. So no
  // wake-up is lost, and the call may come long after the store, as long as it comes.
  void ring() noexcept {
    if (sleepers.fetch_add(0, std::memory_order_acq_rel) != 0) wake();
  }
  // The same for a doorbell that many ranks ring, whose line they would take from each other. A
  // flag that is stored and fenced comes sooner than one that is exchanged
  // (docs/internals/flags.md).
  void ring_shared() noexcept {
    Memory::fence();
    if (sleepers.load(std::memory_order_relaxed) != 0) wake();
  }
  // One sleep until a ring, if neither `ready()` nor `broken()`. Returns ready().
  template <class Ready, class Broken>
  bool sleep(Ready&& ready, Broken&& broken) {
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    Memory::fence();
    const std::uint32_t seen = rings.load(std::memory_order_acquire);
    const bool now = ready();
    if (!now && !broken()) Memory::wait(rings, seen);
    sleepers.fetch_sub(1, std::memory_order_acq_rel);
    return now || ready();
  }

 private:
  void wake() noexcept {
    rings.fetch_add(1, std::memory_order_acq_rel);
    Memory::wake(rings);
  }
};

// The flag of one rank's entry into one collective. What lies beside it, and what is staged before
// it, is there for a rank that sees the epoch.
template <class Memory>
struct BasicEntry {
  typename Memory::template Atomic<std::uint32_t> epoch;
  typename Memory::template Plain<std::uint32_t> registered;
  typename Memory::template Plain<std::uint64_t> signature;

  void announce(std::uint32_t at, std::uint32_t is_registered, std::uint64_t call) noexcept {
    registered = is_registered;
    signature = call;
    epoch.store(at, std::memory_order_release);
  }
  bool announced(std::uint32_t at) const noexcept {
    return epoch.load(std::memory_order_acquire) == at;
  }
};
// Entries and staging are used by turns, so that nobody waits for readers at the end of an op.
constexpr unsigned parity_of(std::uint32_t epoch) noexcept { return epoch & 1; }

// One word of how far a rank is: steps [0, steps) of a kind are over in the collective of an epoch.
// Later epochs are larger as signed differences.
template <class Memory>
struct BasicSteps {
  typename Memory::template Atomic<std::uint64_t> word;

  static constexpr std::uint64_t value(std::uint32_t epoch, std::size_t steps) noexcept {
    return std::uint64_t{epoch} << 32 | static_cast<std::uint32_t>(steps);
  }
  void publish(std::uint32_t epoch, std::size_t steps) noexcept {
    word.store(value(epoch, steps), std::memory_order_release);
  }
  bool passed(std::uint32_t epoch, std::size_t steps) const noexcept {
    const std::uint64_t now = word.load(std::memory_order_acquire);
    return static_cast<std::int64_t>(now - value(epoch, steps)) >= 0;
  }
};
// The steps that readers must have consumed before the slot of `step` may be filled again.
constexpr std::size_t steps_before_reuse(std::size_t step, std::size_t slots) noexcept {
  return step < slots ? 0 : step - slots + 1;
}

// A ring carries frames from one rank to another. `Place` knows where it lies for one of the two:
// size() and line() in bytes, flag(position), the word at the start of the line at a position,
// tail(), a word of the receiver's, and doorbell(), that of the other rank. Positions count the
// bytes ever put in, so that none comes twice.
//
// A frame is a number of lines. It is there once its first word is not zero, which is stored last.
// What an earlier turn of the ring left in the line behind a frame must not pass for one: that line
// is cleared first, and so there is always a free one.
template <class Place>
class RingSender {
 public:
  explicit RingSender(Place place) : place_(place) {}
  const Place& place() const noexcept { return place_; }

  // Whether there is room for a frame of so many bytes now.
  bool has_room(std::uint64_t bytes) noexcept {
    const std::uint64_t needed = bytes + place_.line();
    if (place_.size() - (head_ - tail_) >= needed) return true;
    tail_ = place_.tail().load(std::memory_order_acquire);
    return place_.size() - (head_ - tail_) >= needed;
  }
  // Puts a frame for which there is room: `fill(position)` writes all of it but its first word.
  template <class Fill>
  void put(std::uint64_t bytes, std::uint64_t flag, Fill&& fill) {
    place_.flag(head_ + bytes).store(0, std::memory_order_relaxed);
    fill(head_);
    place_.flag(head_).store(flag, std::memory_order_release);
    head_ += bytes;
    place_.doorbell().ring_shared();
  }

 private:
  Place place_;
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;  // as the receiver said last
};

template <class Place>
class RingReceiver {
 public:
  explicit RingReceiver(Place place) : place_(place) {}
  const Place& place() const noexcept { return place_; }
  // Where the frame at the front lies, or will.
  std::uint64_t position() const noexcept { return tail_; }
  // Its first word; zero: none is there.
  std::uint64_t peek() const noexcept { return place_.flag(tail_).load(std::memory_order_acquire); }
  // The frame at the front, of so many bytes, has been read. The sender does not learn of each: for
  // less than an eighth of the ring it would be rung too often, and every frame has room beside it.
  void take(std::uint64_t bytes) noexcept {
    tail_ += bytes;
    if (tail_ - told_ < place_.size() / 8) return;
    told_ = tail_;
    place_.tail().store(tail_, std::memory_order_release);
    place_.doorbell().ring_shared();
  }

 private:
  Place place_;
  std::uint64_t tail_ = 0;
  std::uint64_t told_ = 0;  // of it, what the sender knows
};

// Answers of one rank to another, which has no more than `limit` questions open at a time: so there
// is always room.
template <class Memory, std::size_t limit>
struct BasicAnswers {
  typename Memory::template Atomic<std::uint64_t> given;
  typename Memory::template Plain<std::uint32_t> words[limit];

  // `before` answers were given before this one.
  void give(std::uint64_t before, std::uint32_t word, BasicDoorbell<Memory>& doorbell) noexcept {
    words[before % limit] = word;
    given.store(before + 1, std::memory_order_release);
    doorbell.ring_shared();
  }
  // Whether there is one more than those `taken` before.
  bool has_more(std::uint64_t taken) const noexcept {
    return given.load(std::memory_order_acquire) != taken;
  }
  std::uint32_t at(std::uint64_t taken) const noexcept { return words[taken % limit]; }
};

// Which of two ranks copies which of the chunks [0, count) of a block: the receiver copies from the
// front, the sender from the back. `key` tells one block from all others. Lies in memory that
// starts as zeroes; no key is zero.
template <class Memory>
struct BasicShare {
  static constexpr std::size_t kNone = 0xff;  // more than any count

  typename Memory::template Atomic<std::uint64_t> open_chunks;  // key, first, last: [first, last)
  typename Memory::template Atomic<std::uint64_t> given;  // key and the last chunk that was copied

  std::uint64_t key() const noexcept { return open_chunks.load(std::memory_order_acquire) >> 16; }
  // By the receiver.
  void open(std::uint64_t key, std::size_t count) noexcept {
    open_chunks.store(word(key, 0, count), std::memory_order_release);
  }
  // By the receiver: the next chunk that it copies, or kNone.
  std::size_t take_first() noexcept {
    for (std::uint64_t now = open_chunks.load(std::memory_order_relaxed);;) {
      if (first_of(now) == last_of(now)) return kNone;
      if (open_chunks.compare_exchange_strong(now, now + (1 << 8), std::memory_order_acq_rel))
        return first_of(now);
    }
  }
  // By the sender: the next chunk that it copies, or kNone. It gives or refuses it before it takes
  // another.
  std::size_t take_last(std::uint64_t key) noexcept {
    for (std::uint64_t now = open_chunks.load(std::memory_order_acquire);;) {
      if (now >> 16 != key || first_of(now) == last_of(now)) return kNone;
      if (open_chunks.compare_exchange_strong(now, now - 1, std::memory_order_acq_rel))
        return last_of(now) - 1;
    }
  }
  // By the sender; with kNone it says that it did not copy what it took, and takes no more.
  void give(std::uint64_t key, std::size_t chunk) noexcept {
    given.store(word(key, 0, chunk), std::memory_order_release);
  }
  // By the receiver: the sender takes no more.
  void close() noexcept {
    while (take_first() != kNone) {
    }
  }
  // By the receiver, when no chunk is open: the first that the sender took, or `count`.
  std::size_t taken() const noexcept {
    return last_of(open_chunks.load(std::memory_order_relaxed));
  }
  // By the receiver, when no chunk is open: whether the sender copies no more; and then, whether it
  // copied all that it took.
  bool sender_done(std::uint64_t key, std::size_t count) const noexcept {
    const std::uint64_t now = given.load(std::memory_order_acquire);
    return taken() == count || now == word(key, 0, taken()) || now == word(key, 0, kNone);
  }
  bool refused(std::uint64_t key, std::size_t count) const noexcept {
    return taken() != count && given.load(std::memory_order_relaxed) == word(key, 0, kNone);
  }

 private:
  static constexpr std::uint64_t word(std::uint64_t key, std::size_t first,
                                      std::size_t last) noexcept {
    return key << 16 | first << 8 | last;
  }
  static constexpr std::size_t first_of(std::uint64_t word) noexcept { return word >> 8 & 0xff; }
  static constexpr std::size_t last_of(std::uint64_t word) noexcept { return word & 0xff; }
};

}}  // namespace c10d::v0
