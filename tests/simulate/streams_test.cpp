// SPDX-License-Identifier: BSD-3-Clause
// What ranks of several hosts send each other in collectives, over a simulated network: one thread,
// a seed, which decides which bytes move next and what goes wrong. Whatever happens, an op ends
// with the right data, or its ranks know better: a connection that is lost or corrupt, or a rank
// that they wait for in vain.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/crc32c.h"
#include "src/backends/native/hosts/schedule.h"
#include "src/backends/native/links/stream.h"
#include "src/base/hash.h"
#include "tests/simulate/seeds.h"

namespace c10d { namespace {

using native::HostAlgorithm;
using native::HostMessage;
using native::HostSchedule;
using native::Stream;

constexpr std::size_t kInFlight = std::size_t{300} << 10;  // that a connection holds, each way

enum class Mishap {
  none,
  cut,      // one way of a connection carries nothing any more, and nobody is told
  lost,     // a connection ends, with some of what was under way
  flipped,  // a bit of what is under way changes
  twice,    // some bytes come twice
  missing,  // some bytes do not come
  dies      // a rank
};
constexpr int kMishaps = 7;

enum class Tamper {
  none,
  // The data of a chunk is that of the one before, with a header and checksums that fit: as if
  // nobody compared which chunk comes.
  old_chunks
};

// One way of a connection.
struct Way {
  std::string bytes;  // under way
  bool cut = false, ended = false;
};

// The block of a host in an op: like no other one, and not like itself at another place.
std::vector<std::byte> block_of(std::uint64_t op, int host, std::size_t bytes) {
  std::vector<std::byte> block(bytes);
  std::uint64_t word = mix(op, static_cast<std::uint64_t>(host));
  for (std::byte& byte : block) byte = static_cast<std::byte>((word = mix(word, 1)) >> 32);
  return block;
}

struct Operation {
  HostAlgorithm algorithm;
  OpKind kind;
  int root;
  std::size_t bytes;                           // of a host
  std::vector<std::vector<std::byte>> blocks;  // by host
};

class World {
 public:
  explicit World(std::uint64_t seed, Tamper tamper = Tamper::none)
      : random_(seed),
        tamper_(tamper),
        mishap_(tamper == Tamper::none ? static_cast<Mishap>(pick(kMishaps)) : Mishap::none),
        size_(2 + pick(4)),
        ranks_(static_cast<std::size_t>(size_)) {
    for (int rank = 0; rank < size_; ++rank) of(rank).streams.resize(ranks_.size());
    for (std::uint64_t op = 0; op < 3; ++op) {
      operations_.push_back(pick_operation());
      for (int host = 0; host < size_; ++host)
        operations_.back().blocks.push_back(block_of(op, host, operations_.back().bytes));
    }
    culprit_ = pick(size_);
    other_ = (culprit_ + 1 + pick(size_ - 1)) % size_;
    happens_at_ = pick(200);
  }

  // What went wrong, or nothing.
  std::string run() {
    for (int rank = 0; rank < size_; ++rank) begin(rank);
    for (int step = 0; problem_.empty(); ++step) {
      if (step > 2'000'000) return "it does not end";
      if (step >= happens_at_ && !happened_) happened_ = happen();
      const std::vector<Move> moves = possible();
      if (moves.empty()) break;
      const Move& move = moves[static_cast<std::size_t>(pick(static_cast<int>(moves.size())))];
      const int moved = (move.rank * size_ + move.peer) * 2 + (move.reads ? 1 : 0);
      trace_ = mix(trace_, static_cast<std::uint64_t>(moved));
      move.reads ? read(move) : write(move);
      advance(move.rank);
    }
    if (problem_.empty()) judge();
    return problem_;
  }

  std::uint64_t trace() const { return trace_; }

 private:
  struct Rank {
    std::vector<Stream> streams;  // by peer
    std::vector<std::byte> data;  // of the op: the blocks of all
    std::size_t op = 0;           // that it is in
    int round = 0;
    bool over = false;  // with all ops
    bool dead = false;
    std::set<int> lost, corrupt;  // peers
  };
  struct Move {
    int rank, peer;
    bool reads;
  };

  int pick(int choices) {
    return static_cast<int>(random_() % static_cast<std::uint64_t>(choices));
  }
  Operation pick_operation() {
    constexpr std::size_t kChunk = Stream::kChunkBytes;
    const std::size_t sizes[] = {0, 1, 8, 1000, kChunk, kChunk + 1};
    Operation operation{
        HostAlgorithm::one_shot, OpKind::all_gather, pick(size_), sizes[pick(6)], {}};
    const int choice = pick(4);
    if (choice == 1) operation.algorithm = HostAlgorithm::dissemination;
    if (choice >= 2) {
      operation.algorithm = choice == 2 ? HostAlgorithm::binomial : HostAlgorithm::chain;
      operation.kind = OpKind::broadcast;
    }
    return operation;
  }

  Rank& of(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  Stream& stream(int rank, int peer) { return of(rank).streams[static_cast<std::size_t>(peer)]; }
  Way& way(int from, int to) { return ways_[{from, to}]; }
  bool is_of_use(int rank, int peer) {
    return stream(rank, peer).problem().empty() && of(rank).lost.count(peer) == 0;
  }
  // A rank that knows of a failure goes on with nothing.
  bool runs(int rank) {
    return !of(rank).dead && of(rank).lost.empty() && of(rank).corrupt.empty();
  }

  void begin(int rank) {
    Rank& self = of(rank);
    const Operation& operation = operations_[self.op];
    self.data.assign(operation.bytes * ranks_.size(), std::byte{0});
    std::ranges::copy(operation.blocks[static_cast<std::size_t>(rank)],
                      self.data.begin() + rank * static_cast<std::ptrdiff_t>(operation.bytes));
    self.round = 0;
    post(rank);
    advance(rank);
  }

  // As the collectives do: round by round.
  void post(int rank) {
    Rank& self = of(rank);
    const Operation& operation = operations_[self.op];
    HostSchedule(operation.algorithm, operation.kind, size_, operation.root)
        .for_each(rank, self.round, [&](const HostMessage& message) {
          for_each_piece(message.hosts, size_, [&](int first, int count) {
            std::byte* const from =
                self.data.data() + static_cast<std::size_t>(first) * operation.bytes;
            const std::size_t bytes = static_cast<std::size_t>(count) * operation.bytes;
            Stream& link = stream(rank, message.peer);
            message.sent ? link.send(from, bytes, self.op) : link.receive(from, bytes, self.op);
          });
        });
  }

  void advance(int rank) {
    Rank& self = of(rank);
    if (self.over || !runs(rank)) return;
    if (std::ranges::any_of(self.streams,
                            [](const Stream& link) { return link.sends() || link.awaits(); }))
      return;
    const Operation& operation = operations_[self.op];
    const HostSchedule schedule(operation.algorithm, operation.kind, size_, operation.root);
    if (++self.round < schedule.rounds()) {
      post(rank);
      return advance(rank);
    }
    compare(rank);
    self.over = ++self.op == operations_.size();
    if (!self.over) begin(rank);
  }

  void compare(int rank) {
    const Rank& self = of(rank);
    const Operation& operation = operations_[self.op];
    for (int host = 0; host < size_; ++host) {
      if (operation.kind == OpKind::broadcast && host != operation.root) continue;
      const auto block = std::span(self.data).subspan(
          static_cast<std::size_t>(host) * operation.bytes, operation.bytes);
      if (!std::ranges::equal(block, operation.blocks[static_cast<std::size_t>(host)]))
        return found("ended with wrong data", rank);
    }
  }

  std::vector<Move> possible() {
    std::vector<Move> moves;
    for (int rank = 0; rank < size_; ++rank) {
      if (!runs(rank)) continue;
      for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank || !is_of_use(rank, peer)) continue;
        const Way& out = way(rank, peer);
        if (!out.ended && out.bytes.size() < kInFlight && !stream(rank, peer).output().empty())
          moves.push_back({rank, peer, false});
        const Way& in = way(peer, rank);
        const bool has_come = tamper_ == Tamper::old_chunks ? looked_at_[{peer, rank}] != 0
                                                            : !in.bytes.empty() || in.ended;
        if (!in.cut && has_come && !stream(rank, peer).input().empty())
          moves.push_back({rank, peer, true});
      }
    }
    return moves;
  }

  // As much as the network takes just now: often all, sometimes a byte.
  std::size_t some_of(std::size_t bytes) {
    constexpr int kMost = 1 << 20;
    return std::min<std::size_t>(bytes, pick(4) == 0 ? 1 + pick(100) : 1 + pick(kMost));
  }

  void write(const Move& move) {
    Stream& link = stream(move.rank, move.peer);
    Way& out = way(move.rank, move.peer);
    std::size_t room = some_of(kInFlight - out.bytes.size());
    for (auto pieces = link.output(); !pieces.empty() && room != 0; pieces = link.output()) {
      const std::size_t count = std::min(pieces[0].iov_len, room);
      out.bytes.append(static_cast<const char*>(pieces[0].iov_base), count);
      link.wrote(count);
      room -= count;
    }
    if (tamper_ == Tamper::old_chunks) repeat_chunk(move.rank, move.peer);
  }

  void read(const Move& move) {
    Stream& link = stream(move.rank, move.peer);
    Way& in = way(move.peer, move.rank);
    if (in.bytes.empty()) {
      of(move.rank).lost.insert(move.peer);
      return;
    }
    std::size_t& looked_at = looked_at_[{move.peer, move.rank}];
    std::size_t left = some_of(tamper_ == Tamper::none ? in.bytes.size() : looked_at), used = 0;
    for (auto pieces = link.input(); !pieces.empty() && left != 0; pieces = link.input()) {
      const std::size_t count = std::min(pieces[0].iov_len, left);
      std::memcpy(pieces[0].iov_base, in.bytes.data() + used, count);
      link.read(count);
      used += count;
      left -= count;
    }
    in.bytes.erase(0, used);
    looked_at -= std::min(looked_at, used);
    if (!link.problem().empty()) of(move.rank).corrupt.insert(move.peer);
  }

  // Whether it could.
  bool happen() {
    Way& out = way(culprit_, other_);
    switch (mishap_) {
      case Mishap::none:
        break;
      case Mishap::cut:
        out.cut = true;
        break;
      case Mishap::lost:
        for (Way* const each : {&out, &way(other_, culprit_)}) {
          each->bytes.resize(each->bytes.empty() ? 0 : random_() % each->bytes.size());
          each->ended = true;
        }
        break;
      case Mishap::flipped:
        if (out.bytes.empty()) return false;
        out.bytes[random_() % out.bytes.size()] ^= static_cast<char>(1 << pick(8));
        break;
      case Mishap::twice:
        if (out.bytes.empty()) return false;
        out.bytes.insert(0, out.bytes.substr(0, some_of(out.bytes.size())));
        break;
      case Mishap::missing:
        if (out.bytes.empty()) return false;
        out.bytes.erase(random_() % out.bytes.size(), some_of(out.bytes.size()));
        break;
      case Mishap::dies:
        of(culprit_).dead = true;
        for (int peer = 0; peer < size_; ++peer)
          if (peer != culprit_) way(culprit_, peer).ended = way(peer, culprit_).ended = true;
        break;
    }
    return true;
  }

  // Of whole chunks that are under way: the second of two that are as long gets the data of the
  // first. The layout is that of docs/wire-format.md.
  void repeat_chunk(int from, int to) {
    std::string& bytes = way(from, to).bytes;
    std::string& before = last_chunk_[{from, to}];
    std::size_t& at = looked_at_[{from, to}];
    while (at + Stream::kHeaderBytes <= bytes.size()) {
      std::uint32_t length = 0;
      std::memcpy(&length, bytes.data() + at + 4, sizeof length);
      if (at + Stream::kHeaderBytes + length > bytes.size()) return;
      char* const header = bytes.data() + at;
      char* const data = header + Stream::kHeaderBytes;
      if (before.size() == length) {
        std::memcpy(data, before.data(), length);
        const std::uint32_t data_sum = crc32c(0, data, length);
        std::memcpy(header + 24, &data_sum, sizeof data_sum);
        const std::uint32_t sum = crc32c(0, header, 28);
        std::memcpy(header + 28, &sum, sizeof sum);
      }
      before.assign(data, length);
      at += Stream::kHeaderBytes + length;
    }
  }

  void judge() {
    const bool damages =
        mishap_ == Mishap::flipped || mishap_ == Mishap::twice || mishap_ == Mishap::missing;
    for (int rank = 0; rank < size_; ++rank) {
      Rank& self = of(rank);
      if (self.dead) continue;
      if (mishap_ == Mishap::none && !self.over) return found("did not end", rank);
      for (const int peer : self.corrupt)
        if (!damages || rank != other_ || peer != culprit_)
          return found("found a good connection corrupt", rank);
      for (const int peer : self.lost)
        if (!way(peer, rank).ended) return found("lost a connection that stands", rank);
      if (self.over || !runs(rank)) continue;
      // It waits: for one that ended, or waits itself.
      bool has_reason = false;
      for (int peer = 0; peer < size_; ++peer) {
        const Stream& link = stream(rank, peer);
        if (peer == rank || (!link.sends() && !link.awaits())) continue;
        has_reason = has_reason || of(peer).dead || !of(peer).over;
        const bool loses = mishap_ == Mishap::cut || mishap_ == Mishap::missing;
        has_reason = has_reason || (loses && peer == culprit_ && rank == other_);
      }
      if (!has_reason) return found("waits for nobody", rank);
    }
    if (mishap_ == Mishap::flipped && happened_ && of(other_).over &&
        way(culprit_, other_).bytes.empty())
      found("did not notice a bit that was flipped", other_);
  }

  void found(const char* what, int rank) {
    problem_ = "rank " + std::to_string(rank) + " of " + std::to_string(size_) + " " + what +
               ", mishap " + std::to_string(static_cast<int>(mishap_)) + " at " +
               std::to_string(happens_at_);
  }

  std::mt19937_64 random_;
  const Tamper tamper_;
  const Mishap mishap_;
  const int size_;  // one rank on each host
  std::vector<Rank> ranks_;
  std::vector<Operation> operations_;
  int culprit_ = 0, other_ = 0, happens_at_ = 0;
  bool happened_ = false;
  std::map<std::pair<int, int>, Way> ways_;  // from, to
  std::map<std::pair<int, int>, std::string> last_chunk_;
  std::map<std::pair<int, int>, std::size_t> looked_at_;  // bytes of whole chunks
  std::uint64_t trace_ = 0;
  std::string problem_;
};

TEST(Streams, AnOpEndsRightOrIsKnownToHaveFailed) { simulate::expect_no_problem<World>(); }

TEST(Streams, ASeedHasOneCourse) { simulate::expect_one_course<World>(); }

// Else the runs above would prove nothing: as if no rank compared sequences and offsets.
TEST(Streams, OldChunksWouldBeFound) {
  std::string problem;
  for (std::uint64_t seed = 0; seed < 200 && problem.empty(); ++seed)
    problem = World(seed, Tamper::old_chunks).run();
  EXPECT_NE(problem.find("wrong data"), std::string::npos) << problem;
}

}}  // namespace c10d

// simulate_streams [--seeds=N]
int main(int argc, char** argv) { return c10d::simulate::run_tests(argc, argv); }
