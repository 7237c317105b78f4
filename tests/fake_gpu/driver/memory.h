// SPDX-License-Identifier: BSD-3-Clause
// Memory of the devices, and pinned memory of the host.
#pragma once

#include <atomic>
#include <optional>

#include "tests/fake_gpu/gpu.h"

namespace fake_gpu {

enum class Kind { device, created, pinned, opened };

// One allocation. Its pages go with the last owner: ops hold it while they use it.
struct Block {
  Kind kind = Kind::device;
  int device = 0;
  cu::Pointer at = 0;  // as users see it
  std::size_t bytes = 0, mapped = 0;
  std::byte* shadow = nullptr;  // of pinned memory: the memory itself
  std::uint64_t offset = 0;     // in the file of the device
  std::uint64_t token = 0;
  Shared origin{};           // of what another process shares
  int opens = 0;             // by ipc
  std::atomic<int> uses{0};  // by ops that are enqueued
  std::atomic<bool> is_freed{false}, is_shared{false};

  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block();
};

// The block that holds all of it; null if none does.
std::shared_ptr<Block> find_block(cu::Pointer at, std::size_t bytes);
// The one that `at` is in.
std::shared_ptr<Block> block_at(cu::Pointer at);
// Null if there is no place.
std::shared_ptr<Block> allocate(int device, std::size_t bytes, Kind kind = Kind::device);
std::shared_ptr<Block> allocate_pinned(int device, std::size_t bytes);
std::uint64_t used_memory(int device);
// Of another process; the same for each time it is opened. Null, and the code in `why`, if not.
std::shared_ptr<Block> open_block(int device, const Shared& shared, cu::Result& why);
// A violation if an op that is not done uses it.
void check_uses(const Block& block, const char* function);
// The block is found no longer, or is open once less; ops that use it may still reach its bytes.
void forget(const std::shared_ptr<Block>& block);
// Whether `at` is in memory that was freed not long ago.
bool was_freed(cu::Pointer at);
// Frees what is left; how many allocations.
int free_memory_of(int device);

// Counts as a use of the block while it lives.
class Use {
 public:
  explicit Use(std::shared_ptr<Block> block) : block_(std::move(block)) { ++block_->uses; }
  Use(Use&& other) noexcept = default;
  Use& operator=(Use&&) = delete;
  Use(const Use&) = delete;
  ~Use() {
    if (block_) --block_->uses;
  }

 private:
  std::shared_ptr<Block> block_;
};
// One for each range; nothing, after a violation, if a range is no memory that can be used.
std::optional<std::vector<Use>> use(const std::string& function, const std::vector<Range>& ranges);

}  // namespace fake_gpu
