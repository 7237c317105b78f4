// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "c10d/export.h"

struct CUstream_st;  // of CUDA

// What calls of a group take beside their buffers, and what a recv returns.
namespace c10d { inline namespace v0 {

// A length of time.
using Duration = std::chrono::nanoseconds;
// A point in time, on the steady clock.
using Deadline = std::chrono::steady_clock::time_point;

// A CUDA stream: the type that CUDA calls cudaStream_t and CUstream.
using CudaStream = CUstream_st*;

// Options of one call.
struct CallOptions {
  // Deadline of this call, instead of the timeout of the group. Must be positive. It counts from
  // the call on, also where the op waits on a stream.
  std::optional<Duration> timeout{};
  // The stream that orders an op on CUDA memory, of the GPU where the memory lies; null: the legacy
  // default stream. With it barrier() is an op on that stream, and returns at once. With CPU memory
  // the call throws InvalidArgument. It may be captured into a CUDA graph: see ProcessGroup.
  CudaStream stream = nullptr;
  // When the data of the call was ready, if the program delayed the call, as a trainer does that
  // sends one bucket after the other. Only the flight record has it, for c10d-bench replay.
  std::optional<Deadline> ready_at{};
};

// What a recv got.
struct Received {
  int source = -1;        // the rank that sent the message
  std::size_t count = 0;  // number of elements in the message
};

// A number of elements for each rank of the group, as argument of a call: {1, 2, 3}, or any range
// of integers. A range of std::size_t is not copied; what is used of it ends with the call.
class Counts {
 public:
  // A list: {1, 2, 3}.
  Counts(std::initializer_list<std::size_t> counts) : owned_(counts), view_(owned_) {}
  // The numbers of a range. Throws InvalidArgument for a negative one.
  template <class R>
  requires std::integral<std::remove_cvref_t<decltype(*std::begin(std::declval<const R&>()))>>
  Counts(const R& range) {
    using Number = std::remove_cvref_t<decltype(*std::begin(range))>;
    if constexpr (std::is_same_v<Number, std::size_t> && requires { std::data(range); }) {
      view_ = {std::data(range), std::size(range)};
    } else {
      for (const auto number : range) {
        if constexpr (std::is_signed_v<Number>)
          if (number < 0) refuse_negative(number);
        owned_.push_back(static_cast<std::size_t>(number));
      }
      view_ = owned_;
    }
  }
  Counts(const Counts&) = delete;
  Counts& operator=(const Counts&) = delete;
  // The numbers.
  operator std::span<const std::size_t>() const noexcept { return view_; }

 private:
  [[noreturn]] C10D_API static void refuse_negative(long long number);

  std::vector<std::size_t> owned_;
  std::span<const std::size_t> view_;
};

}}  // namespace c10d::v0
