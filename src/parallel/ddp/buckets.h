// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "c10d/parallel/ddp.h"

namespace c10d { inline namespace v0 { namespace parallel {

// The limit of all buckets but the first.
C10D_API std::size_t bytes_per_bucket(std::span<const ParamSpec> params,
                                      const ReducerOptions& options);

// Where the gradients of a list of parameters lie: buckets one behind the other in an arena, and as
// many arenas of the same layout, or slots, as the rank with the most needs, in memory that the
// other ranks may reach. Slot 0 holds the result.
class Buckets {
 public:
  struct Place {
    std::size_t bucket = 0;
    std::size_t first = 0;  // byte in the arena
  };

  // Collective: allocates. `order`: the parameters as they are expected to become ready.
  Buckets(const ProcessGroup& group, std::span<const ParamSpec> params,
          std::vector<std::size_t> order, const ReducerOptions& options);
  // In the same memory. All gradients are zero then.
  void reorder(std::vector<std::size_t> order);

  const std::vector<std::size_t>& order() const noexcept { return order_; }
  std::size_t size() const noexcept { return buckets_.size(); }
  Bucket bucket(std::size_t index, double samples = 0) const;
  const Place& place(std::size_t param) const noexcept { return places_[param]; }

  std::span<std::byte> gradient(std::size_t param, int slot) const;
  // The whole bucket in one slot.
  View values(std::size_t index, int slot) const;
  const Buffer<std::uint8_t>& memory() const noexcept { return memory_; }

 private:
  struct Extent {
    std::size_t first = 0;  // byte in the arena
    std::size_t bytes = 0;
    DType dtype = DType::f32;
    std::vector<BucketParam> params;
  };
  void lay_out();
  void append(std::size_t param, std::size_t limit);
  std::byte* arena(int slot) const noexcept;

  std::span<const ParamSpec> params_;
  std::size_t first_limit_, limit_;  // bytes of a bucket
  std::vector<std::size_t> order_;
  std::vector<Extent> buckets_;
  std::vector<Place> places_;  // by parameter
  std::size_t bytes_ = 0;      // of one arena
  Buffer<std::uint8_t> memory_;
};

}}}  // namespace c10d::v0::parallel
