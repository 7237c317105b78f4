// SPDX-License-Identifier: BSD-3-Clause
// The flags of messages between two ranks: rings, and messages that are read where they lie.
#include "tests/model/protocol.h"

namespace c10d::model { namespace {

template <class Ready>
bool await_mail(BasicDoorbell<Memory>& mailbox, Ready ready) {
  return sleep_until(mailbox, ready, [] {});
}

// Lines of one byte, so to speak: a flag and the data beside it.
struct RingMemory {
  explicit RingMemory(std::size_t lines) : flags(lines), data(lines) {}
  std::vector<Word<std::uint64_t>> flags;
  std::vector<Cell<std::uint64_t>> data;
  Word<std::uint64_t> tail;
  BasicDoorbell<Memory> mailboxes[2];
  BasicDoorbell<Memory> nobody;
};

struct ModelFlag {
  Word<std::uint64_t>& word;
  bool no_clearing;
  std::uint64_t load(std::memory_order order) const { return word.load(order); }
  void store(std::uint64_t value, std::memory_order order) {
    if (value != 0 || !no_clearing) word.store(value, order);
  }
};

// native::RingPlace in the model.
class ModelPlace {
 public:
  ModelPlace(RingMemory& memory, int rank, const Fault& fault)
      : memory_(&memory), rank_(rank), fault_(fault) {}
  std::size_t line() const { return fault_.no_free_line ? 0 : 1; }
  std::size_t size() const { return memory_->flags.size() * (rarely() ? 8 : 1); }
  BasicDoorbell<Memory>& doorbell() const {
    return fault_.no_ring ? memory_->nobody : memory_->mailboxes[1 - rank_];
  }
  Word<std::uint64_t>& tail() const { return memory_->tail; }
  ModelFlag flag(std::uint64_t position) const {
    return {memory_->flags[position % memory_->flags.size()], fault_.no_clearing};
  }
  Cell<std::uint64_t>& data(std::uint64_t position) const {
    return memory_->data[position % memory_->data.size()];
  }

 private:
  bool rarely() const { return fault_.tells_rarely && rank_ == 1; }
  RingMemory* memory_;
  int rank_;
  Fault fault_;
};

// Frames of one line and of two by turns, each with what tells it from all others.
constexpr std::uint64_t lines_of(std::uint64_t frame) { return 1 + frame % 2; }
constexpr std::uint64_t flag_of(std::uint64_t frame) { return 100 + frame; }
constexpr std::uint64_t ring_datum(std::uint64_t frame, std::uint64_t line) {
  return 10 * frame + line + 1;
}

bool send(RingMemory& memory, const Fault& fault, std::uint64_t frames) {
  RingSender<ModelPlace> ring(ModelPlace(memory, 0, fault));
  for (std::uint64_t i = 0; i < frames; ++i) {
    while (!ring.has_room(lines_of(i))) {
      // What happens while it waits is forgotten, so it happens to a copy.
      auto copy = ring;
      if (!await_mail(memory.mailboxes[0], [&] { return copy.has_room(lines_of(i)); }))
        return false;
    }
    ring.put(lines_of(i), flag_of(i), [&](std::uint64_t position) {
      ring.place().data(position) = ring_datum(i, 0);
      // Where the next turn of the ring may have a flag.
      if (lines_of(i) == 2) {
        ring.place().flag(position + 1).store(ring_datum(i, 1), std::memory_order_relaxed);
        ring.place().data(position + 1) = ring_datum(i, 1);
      }
    });
    if (stopped()) return false;
  }
  return true;
}

bool receive(RingMemory& memory, const Fault& fault, std::uint64_t frames) {
  RingReceiver<ModelPlace> ring(ModelPlace(memory, 1, fault));
  for (std::uint64_t i = 0; i < frames; ++i) {
    if (!await_mail(memory.mailboxes[1], [&] { return ring.peek() != 0; })) return false;
    if (ring.peek() != flag_of(i) && !stopped()) problem("took for a frame what is none");
    if (stopped()) return false;
    for (std::uint64_t line = 0; line < lines_of(i); ++line) {
      const std::uint64_t value = ring.place().data(ring.position() + line);
      if (value != ring_datum(i, line) && !stopped()) problem("took another frame's data");
    }
    ring.take(lines_of(i));
    if (stopped()) return false;
  }
  return true;
}

Verdict run_ring(const Settings& settings, const Fault& fault, std::size_t lines,
                 std::uint64_t frames) {
  RingMemory memory(lines);
  return explore(settings, [&](int rank) {
    return rank == 0 ? send(memory, fault, frames) : receive(memory, fault, frames);
  });
}

// One is small enough to be full all the time; in the other the receiver does not tell of every
// frame.
constexpr std::size_t kSmall = 4, kLarge = 16;
constexpr std::uint64_t kTwiceRoundSmall = 6, kOnceRoundLarge = 14;

TEST(Ring, FramesComeWholeAndInOrder) {
  for (const int deaths : {0, 1}) {
    const Settings sleepless{.deaths = deaths, .sleeps = false};
    for (const Verdict& verdict : {run_ring(sleepless, {}, kSmall, kTwiceRoundSmall),
                                   run_ring(sleepless, {}, kLarge, kOnceRoundLarge),
                                   run_ring({.deaths = deaths}, {}, kSmall, deaths == 0 ? 4 : 3)}) {
      EXPECT_EQ(verdict.problem, "");
      EXPECT_GT(verdict.states, 5000u);
    }
  }
}

TEST(Ring, MutantsAreFound) {
  const Settings sleepless{.sleeps = false};
  expect_found(run_ring({.mutant = {.drops_release = true}}, {}, kSmall, 1), "may write it");
  const char* const kNoFrame = "took for a frame what is none";
  expect_found(run_ring(sleepless, {.no_free_line = true}, kSmall, kTwiceRoundSmall), kNoFrame);
  expect_found(run_ring(sleepless, {.no_clearing = true}, kSmall, kTwiceRoundSmall), kNoFrame);
  const char* const kForEver = "for ever";
  expect_found(run_ring(sleepless, {.tells_rarely = true}, kLarge, kOnceRoundLarge), kForEver);
  expect_found(run_ring({}, {.no_ring = true}, kSmall, 1), kForEver);
  expect_found(run_ring({.mutant = {.drops_wake = true}}, {}, kSmall, 1), kForEver);
  expect_found(run_ring({.mutant = {.weak_fence = true}}, {}, kSmall, 1), kForEver);
}

// A message that is read where it lies: the sender may not return before it has its answer, unless
// it breaks the group first, and the reader looks for that before it believes what it read.
struct Exchange {
  Word<std::uint64_t> offered;
  BasicAnswers<Memory, 1> answers;
  BasicDoorbell<Memory> mailbox[2];
  Cell<std::uint64_t> data;
};

Verdict run_mail(const Settings& settings, const Fault& fault, bool gives_up) {
  Exchange mail;
  return explore(settings, [&](int rank) {
    for (std::uint32_t i = 1; i <= 3; ++i) {
      if (rank == 0) {
        mail.data = i;
        mail.offered.store(i, std::memory_order_release);
        mail.mailbox[1].ring_shared();
        if (gives_up) {
          give_up();
          if (!stopped()) mail.data = 77;
          return true;
        }
        if (fault.no_exit_sync) continue;
        if (!await_mail(mail.mailbox[0], [&] { return mail.answers.has_more(i - 1); }))
          return false;
        if (mail.answers.at(i - 1) != 10 + i && !stopped()) problem("another message's answer");
      } else {
        if (!await_mail(mail.mailbox[1],
                        [&] { return mail.offered.load(std::memory_order_acquire) >= i; }))
          return false;
        const bool torn = read_was_torn(mail.data.index(), i);
        if (!fault.no_failure_check && broken()) return false;
        if (torn && !stopped()) problem("took a message that its sender had taken back");
        mail.answers.give(i - 1, 10 + i, mail.mailbox[0]);
        if (gives_up) return true;
      }
    }
    return true;
  });
}

TEST(MessageExchange, AMessageReadWhereItLiesIsFreeAfterTheAnswer) {
  for (const int deaths : {0, 1}) EXPECT_EQ(run_mail({.deaths = deaths}, {}, false).problem, "");
  EXPECT_EQ(run_mail({.deaths = 1}, {}, true).problem, "");
}

TEST(MessageExchange, MutantsAreFound) {
  expect_found(run_mail({}, {.no_exit_sync = true}, false), "took a message");
  expect_found(run_mail({.mutant = {.drops_release = true}}, {}, false), "took a message");
  expect_found(run_mail({.mutant = {.weak_fence = true}}, {}, false), "for ever");
  expect_found(run_mail({.deaths = 1}, {.no_failure_check = true}, true), "took a message");
}

// A block that both ranks copy: see BasicShare. What the kernel does in one call is one look at
// `targets` and one write.
struct SharedBlock {
  static constexpr std::size_t kChunks = 2;
  BasicShare<Memory> share;
  Word<std::uint64_t> targets[kChunks];
  Cell<std::uint64_t> output[kChunks];
  Word<std::uint64_t> taken;
  BasicDoorbell<Memory> mailbox[2];
};
constexpr std::size_t kNoChunk = BasicShare<Memory>::kNone;

// Whether to go on.
bool give_block(SharedBlock& block, std::uint64_t key, bool refuses) {
  if (!await_mail(block.mailbox[0], [&] { return block.share.key() >= key; })) return false;
  for (std::size_t chunk = 0; !broken() && !stopped();) {
    chunk = block.share.take_last(key);
    if (chunk == kNoChunk || stopped()) break;
    const bool copies = !refuses && block.targets[chunk].load(std::memory_order_seq_cst) == key;
    if (copies) block.output[chunk] = 10 * key + chunk;
    block.share.give(key, copies ? chunk : kNoChunk);
    block.mailbox[1].ring_shared();
    if (!copies) break;
  }
  return await_mail(block.mailbox[0],
                    [&] { return block.taken.load(std::memory_order_acquire) >= key; });
}

bool take_block(SharedBlock& block, std::uint64_t key, const Fault& fault, bool gives_up) {
  for (auto& target : block.targets) target.store(key, std::memory_order_relaxed);
  block.share.open(key, block.kChunks);
  block.mailbox[0].ring_shared();
  if (gives_up) {
    give_up();
    for (auto& target : block.targets) target.store(0, std::memory_order_seq_cst);
    block.share.close();
    const auto sender_done = [&] { return block.share.sender_done(key, block.kChunks); };
    if (!fault.no_exit_sync && !spin_until(sender_done)) return false;
    for (auto& cell : block.output)
      if (!stopped()) cell = 77;
    return true;
  }
  for (std::size_t chunk; !stopped() && (chunk = block.share.take_first()) != kNoChunk;)
    if (!stopped()) block.output[chunk] = 10 * key + chunk;
  const auto sender_done = [&] { return block.share.sender_done(key, block.kChunks); };
  if (!fault.no_exit_sync && !await_mail(block.mailbox[1], sender_done)) return false;
  if (block.share.refused(key, block.kChunks))
    for (std::size_t chunk = block.share.taken(); chunk < block.kChunks && !stopped(); ++chunk)
      block.output[chunk] = 10 * key + chunk;
  for (std::size_t chunk = 0; chunk < block.kChunks && !stopped(); ++chunk) {
    const std::uint64_t value = block.output[chunk];
    if (value != 10 * key + chunk && !stopped()) problem("a chunk that nobody copied");
  }
  block.taken.store(key, std::memory_order_release);
  block.mailbox[0].ring_shared();
  return true;
}

Verdict run_share(const Settings& settings, const Fault& fault, bool refuses) {
  SharedBlock block;
  const std::uint64_t blocks = settings.gives_up || refuses || settings.deaths != 0 ? 1 : 2;
  return explore(settings, [&](int rank) {
    for (std::uint64_t key = 1; key <= blocks; ++key) {
      const bool whole = rank == 0 ? give_block(block, key, refuses)
                                   : take_block(block, key, fault, settings.gives_up);
      if (!whole) return false;
    }
    return true;
  });
}

TEST(Share, EveryChunkIsCopiedOnceAndNobodyWritesLate) {
  for (const bool refuses : {false, true})
    for (const int deaths : {0, 1}) {
      const Verdict verdict = run_share({.deaths = deaths, .sleeps = false}, {}, refuses);
      EXPECT_EQ(verdict.problem, "");
      EXPECT_GT(verdict.states, 100u);
    }
  EXPECT_EQ(run_share({}, {}, true).problem, "");
  EXPECT_EQ(run_share({.gives_up = true, .sleeps = false}, {}, false).problem, "");
}

TEST(Share, MutantsAreFound) {
  const Fault fault{.no_exit_sync = true};
  const Settings given_up{.gives_up = true, .sleeps = false};
  expect_found(run_share({.sleeps = false}, fault, false), "chunk that nobody copied");
  expect_found(run_share(given_up, fault, false), "while another may");
  expect_found(run_share({.sleeps = false, .mutant = {.drops_release = true}}, {}, false), "cell");
}

}}  // namespace c10d::model
