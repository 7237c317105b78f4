// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fake_gpu/driver/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "tests/fake_gpu/driver/judge.h"
#include "tests/fake_gpu/driver/script.h"

namespace fake_gpu {
namespace {

constexpr std::size_t kPage = 4096, kLarge = std::size_t{2} << 20;
constexpr std::size_t kMostPoisoned = std::size_t{64} << 20;
constexpr std::size_t kRemembered = 64;
constexpr int kAllocated = 0xCB, kFreed = 0xDB;

// The memory of one device: a sparse file. Behind the memory it has a word for each page, with the
// token of the allocation that begins there: another process that opens it sees whether it is still
// that one.
struct Card {
  int descriptor = -1;
  std::uint64_t used = 0;
  std::map<std::uint64_t, std::uint64_t> gaps;  // offset, bytes
};

struct Memory {
  std::recursive_mutex mutex;  // the last owner of a block may go under it
  std::map<cu::Pointer, std::shared_ptr<Block>> blocks;
  std::deque<std::shared_ptr<Block>> freed;
  std::map<int, Card> cards;
  std::uint64_t tokens = 0;
};
Memory& memory() {
  static Memory& only = *new Memory;
  return only;
}

std::size_t rounded(std::size_t bytes) {
  const std::size_t unit = bytes >= kLarge ? kLarge : kPage;
  return (bytes + unit - 1) / unit * unit;
}

std::uint64_t word_of(std::uint64_t offset) {
  return script().memory + kLarge + offset / kPage * sizeof(std::uint64_t);
}

Card& card_of(Memory& all, int device) {
  Card& card = all.cards[device];
  if (card.descriptor < 0) {
    card.descriptor = memfd_create("fake_gpu", MFD_CLOEXEC);
    const std::uint64_t bytes = script().memory + kLarge;
    if (card.descriptor < 0 || ftruncate(card.descriptor, off_t(word_of(bytes))) != 0) {
      std::perror("fake_gpu: memory of a device");
      _exit(2);
    }
    card.gaps[0] = bytes;
  }
  return card;
}

void write_token(const Card& card, std::uint64_t offset, std::uint64_t token) {
  if (pwrite(card.descriptor, &token, sizeof token, off_t(word_of(offset))) < 0) {
    std::perror("fake_gpu: memory of a device");
  }
}

// First fit. The offset of large ones is a multiple of large pages, so that little is wasted.
std::optional<std::uint64_t> take(Card& card, std::size_t bytes) {
  const std::uint64_t unit = bytes >= kLarge ? kLarge : kPage;
  for (auto gap = card.gaps.begin(); gap != card.gaps.end(); ++gap) {
    const std::uint64_t from = gap->first, end = from + gap->second;
    const std::uint64_t at = (from + unit - 1) / unit * unit;
    if (at + bytes > end) continue;
    card.gaps.erase(gap);
    if (at > from) card.gaps[from] = at - from;
    if (at + bytes < end) card.gaps[at + bytes] = end - at - bytes;
    return at;
  }
  return std::nullopt;
}

void give_back(Card& card, std::uint64_t offset, std::uint64_t bytes) {
  auto next = card.gaps.upper_bound(offset);
  if (next != card.gaps.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = card.gaps.erase(next);
  }
  if (next != card.gaps.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  card.gaps[offset] = bytes;
}

// Addresses that nobody may touch, aligned as the driver's are.
void* reserve(std::size_t bytes) {
  const std::size_t slack = bytes >= kLarge ? kLarge : 0;
  void* const found =
      mmap(nullptr, bytes + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED || slack == 0) return found;
  auto* const from = static_cast<std::byte*>(found);
  const std::size_t skip = (kLarge - reinterpret_cast<std::uintptr_t>(from) % kLarge) % kLarge;
  if (skip > 0) munmap(from, skip);
  if (slack > skip) munmap(from + skip + bytes, slack - skip);
  return from + skip;
}

void poison(Block& block, int value) {
  if (block.mapped <= kMostPoisoned) {
    std::memset(block.shadow, value, block.mapped);
  } else {
    std::memset(block.shadow, value, kLarge);
    std::memset(block.shadow + block.mapped - kLarge, value, kLarge);
  }
}

// Its addresses and its shadow, from `descriptor` at its offset.
bool map_block(Block& block, int descriptor) {
  void* const seen = reserve(block.mapped);
  if (seen == MAP_FAILED) return false;
  void* const shadow = mmap(nullptr, block.mapped, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor,
                            off_t(block.offset));
  if (shadow == MAP_FAILED) {
    munmap(seen, block.mapped);
    return false;
  }
  block.at = reinterpret_cast<cu::Pointer>(seen);
  block.shadow = static_cast<std::byte*>(shadow);
  return true;
}

const char* name_of(Kind kind) {
  return kind == Kind::pinned ? "pinned memory" : kind == Kind::opened ? "opened memory" : "memory";
}

void remember(Memory& all, const std::shared_ptr<Block>& block) {
  all.blocks[block->at] = block;
  holds(name_of(block->kind), 1);
}

void forget_locked(Memory& all, const std::shared_ptr<Block>& block) {
  all.blocks.erase(block->at);
  block->is_freed = true;
  holds(name_of(block->kind), -1);
  if (block->kind == Kind::device || block->kind == Kind::created) {
    Card& card = card_of(all, block->device);
    write_token(card, block->offset, 0);
    card.used -= block->mapped;
    // Who has opened it may still read it.
    if (block->uses == 0 && !block->is_shared) poison(*block, kFreed);
  }
  if (block->kind == Kind::pinned) return;
  all.freed.push_back(block);
  if (all.freed.size() > kRemembered) all.freed.pop_front();
}

int open_shared(const Shared& shared) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", shared.pid, shared.descriptor);
  const int descriptor = open(path, O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return -1;
  std::uint64_t token = 0;
  const bool is_it =
      pread(descriptor, &token, sizeof token, off_t(word_of(shared.offset))) == sizeof token &&
      token == shared.token && token != 0;
  if (is_it) return descriptor;
  close(descriptor);
  return -1;
}

}  // namespace

Block::~Block() {
  if (!shadow) return;
  munmap(shadow, mapped);
  if (kind == Kind::pinned) return;
  munmap(reinterpret_cast<void*>(at), mapped);
  if (kind == Kind::opened) return;
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  Card& card = card_of(all, device);
  fallocate(card.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(offset),
            off_t(mapped));
  give_back(card, offset, mapped);
}

std::shared_ptr<Block> block_at(cu::Pointer at) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  auto found = all.blocks.upper_bound(at);
  if (found == all.blocks.begin()) return nullptr;
  --found;
  return at - found->first < found->second->bytes ? found->second : nullptr;
}

std::shared_ptr<Block> find_block(cu::Pointer at, std::size_t bytes) {
  std::shared_ptr<Block> block = block_at(at);
  return block && bytes <= block->bytes - (at - block->at) ? block : nullptr;
}

bool was_freed(cu::Pointer at) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  for (const auto& block : all.freed) {
    if (at >= block->at && at - block->at < block->mapped) return true;
  }
  return false;
}

int free_memory_of(int device) {
  Memory& all = memory();
  std::vector<std::shared_ptr<Block>> gone;
  {
    const std::lock_guard lock(all.mutex);
    for (const auto& [at, block] : all.blocks) {
      if (block->device == device) gone.push_back(block);
    }
    for (const auto& block : gone) forget_locked(all, block);
  }
  return static_cast<int>(gone.size());
}

std::optional<std::vector<Use>> use(const std::string& function, const std::vector<Range>& ranges) {
  std::vector<Use> uses;
  for (const Range& range : ranges) {
    if (range.bytes == 0) continue;
    std::shared_ptr<Block> block = find_block(range.at, range.bytes);
    if (!block) {
      const std::shared_ptr<Block> begins = block_at(range.at);
      violation(
          was_freed(range.at) ? "used after free" : "out of bounds",
          function + " of " + std::to_string(range.bytes) + " bytes" +
              (begins ? ", of which " + std::to_string(begins->bytes - (range.at - begins->at)) +
                            " are in the allocation"
                      : ", at no memory of the GPU"));
      return std::nullopt;
    }
    uses.emplace_back(std::move(block));
  }
  return uses;
}

std::byte* view(cu::Pointer at, std::size_t bytes) {
  const std::shared_ptr<Block> block = find_block(at, bytes);
  return block ? block->shadow + (at - block->at) : nullptr;
}
std::byte* view(const void* at, std::size_t bytes) {
  return view(reinterpret_cast<cu::Pointer>(at), bytes);
}

bool share(cu::Pointer at, Shared& shared) {
  const std::shared_ptr<Block> block = block_at(at);
  if (!block || block->kind != Kind::device) return false;
  block->is_shared = true;
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  shared = {getpid(), card_of(all, block->device).descriptor, block->offset, block->bytes,
            block->token};
  return true;
}

std::shared_ptr<std::byte> map(const Shared& shared) {
  const int descriptor = open_shared(shared);
  if (descriptor < 0) return nullptr;
  const std::size_t mapped = rounded(shared.bytes);
  void* const at =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, off_t(shared.offset));
  close(descriptor);
  if (at == MAP_FAILED) return nullptr;
  return {static_cast<std::byte*>(at), [mapped](std::byte* bytes) { munmap(bytes, mapped); }};
}

std::uint64_t used_memory(int device) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  return card_of(all, device).used;
}

std::shared_ptr<Block> allocate(int device, std::size_t bytes, Kind kind) {
  if (bytes > script().memory) return nullptr;
  const auto block = std::make_shared<Block>();
  block->kind = kind;
  block->device = device;
  block->bytes = bytes;
  block->mapped = rounded(bytes);
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  Card& card = card_of(all, device);
  if (card.used + block->mapped > script().memory) return nullptr;
  std::optional<std::uint64_t> offset = take(card, block->mapped);
  if (!offset) {
    all.freed.clear();  // what is only remembered makes place
    offset = take(card, block->mapped);
  }
  if (!offset) return nullptr;
  block->offset = *offset;
  if (!map_block(*block, card.descriptor)) {
    give_back(card, *offset, block->mapped);
    return nullptr;
  }
  block->token = ++all.tokens;
  write_token(card, block->offset, block->token);
  card.used += block->mapped;
  poison(*block, kAllocated);
  remember(all, block);
  return block;
}

std::shared_ptr<Block> allocate_pinned(int device, std::size_t bytes) {
  const std::size_t mapped = rounded(bytes);
  void* const at = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  const auto block = std::make_shared<Block>();
  block->kind = Kind::pinned;
  block->device = device;
  block->bytes = bytes;
  block->mapped = mapped;
  block->at = reinterpret_cast<cu::Pointer>(at);
  block->shadow = static_cast<std::byte*>(at);
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  remember(all, block);
  return block;
}

std::shared_ptr<Block> open_block(int device, const Shared& shared, cu::Result& why) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  for (const auto& [at, block] : all.blocks) {
    if (block->kind == Kind::opened && std::memcmp(&block->origin, &shared, sizeof shared) == 0) {
      ++block->opens;
      return block;
    }
  }
  why = cu::kInvalidValue;
  if (shared.bytes == 0) return nullptr;
  const int descriptor = open_shared(shared);
  if (descriptor < 0 && kill(shared.pid, 0) != 0) why = cu::kInvalidHandle;
  if (descriptor < 0) return nullptr;
  const auto block = std::make_shared<Block>();
  block->kind = Kind::opened;
  block->device = device;
  block->bytes = shared.bytes;
  block->mapped = rounded(shared.bytes);
  block->offset = shared.offset;
  block->origin = shared;
  block->opens = 1;
  const bool is_mapped = map_block(*block, descriptor);
  close(descriptor);
  why = cu::kOutOfMemory;
  if (!is_mapped) return nullptr;
  remember(all, block);
  return block;
}

void check_uses(const Block& block, const char* function) {
  if (block.uses > 0) {
    violation("freed in use", std::string(function) + " while an op that uses it was not done");
  }
}

void forget(const std::shared_ptr<Block>& block) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  if (--block->opens <= 0 && !block->is_freed) forget_locked(all, block);
}

}  // namespace fake_gpu
