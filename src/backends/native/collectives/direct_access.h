// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "src/backends/native/collectives/collective.h"
#include "src/backends/native/memory/shared_copy.h"

namespace c10d { inline namespace v0 { namespace native {

enum class Side : std::uint8_t { input, output };

// The memory of peers, for a direct algorithm: mapped where all of it lies in the heap, else read
// and written through the kernel (cross-memory attach). Made after the ranks have entered; a call
// has one at a time at most. Functions that return bool are as those of Collective.
class DirectAccess {
 public:
  explicit DirectAccess(Collective& collective) noexcept : collective_(collective) {}
  ~DirectAccess();
  DirectAccess(const DirectAccess&) = delete;
  DirectAccess& operator=(const DirectAccess&) = delete;

  // Copies a part of a peer's buffer to `to`.
  bool fetch(int peer, Side side, std::size_t offset, std::byte* to, std::size_t bytes,
             StorePolicy policy);
  // Where that part can be read: in place, or copied into `scratch`. Null: the group broke.
  const std::byte* view(int peer, Side side, std::size_t offset, std::size_t bytes,
                        std::byte* scratch);
  // A peer's buffer as mapped here; null if it is not. Never null for Algorithm::push.
  std::byte* mapped(int peer, Side side) const;
  // Where one rank fetches and the other would wait, both copy if the kernel must: the one that
  // fetches calls invite() before fetch() of the same block of the peer's input, the other help().
  void invite(int peer, std::byte* to, std::size_t bytes);
  bool help(int peer, const std::byte* from, std::size_t bytes);
  // Writes into a peer's output, for Algorithm::push. Once the group is broken the peer may have
  // its memory back: no block is begun then.
  bool write_to_peer(int peer, std::size_t offset, const std::byte* from, std::size_t bytes,
                     StorePolicy policy);

 private:
  bool read(int peer, Side side, std::size_t offset, std::byte* to, std::size_t bytes);
  bool read_failed(int peer, int error);
  bool fetch_shared(int peer, Side side, std::size_t offset, std::byte* to);
  bool can_share(std::size_t bytes) const noexcept;

  Collective& collective_;
  std::optional<CopyReceiver> receiver_;  // of a block on its way to this rank
};

}}}  // namespace c10d::v0::native
