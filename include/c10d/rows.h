// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "c10d/process_group.h"

// Ops on strided rows, such as some columns of a matrix (MPI_Type_vector):
//
//     std::vector<float> matrix(8 * 16);                    // 8 rows of 16 elements
//     const auto left = c10d::View(matrix).rows(8, 4, 16);  // the first 4 of each row
//     c10d::broadcast(group, left, 0);
//
// The elements of the rows, one row after the other, are the buffer of the op. The library copies
// them to memory of its own before the op, and back after it: an op takes that time in addition,
// and as much memory as the rows have elements. Rows without gaps between them are not copied. Rows
// with gaps in memory of a GPU throw InvalidArgument, since the host cannot copy them.
// These calls block; there is no async form. They throw what the op of that name throws.
namespace c10d { inline namespace v0 {

// Rows that an op reads: those of ConstView::rows(). It does not own the memory.
struct ConstRows {
  ConstView memory{};      // begins with the first row
  std::size_t count = 0;   // number of rows
  std::size_t length = 0;  // elements of a row
  std::size_t stride = 0;  // elements from the start of a row to the start of the next
};
// Rows that an op writes: those of View::rows(). It does not own the memory.
//
// view.rows(count, length, stride) throws InvalidArgument if the rows overlap (length > stride) or
// do not fit into the view.
struct Rows {
  View memory{};           // begins with the first row
  std::size_t count = 0;   // number of rows
  std::size_t length = 0;  // elements of a row
  std::size_t stride = 0;  // elements from the start of a row to the start of the next

  // The same rows, to be read only.
  operator ConstRows() const noexcept { return {memory, count, length, stride}; }
};

// ProcessGroup::broadcast() in place.
C10D_API void broadcast(const ProcessGroup& group, const Rows& buffer, int root,
                        CallOptions options = {});
// ProcessGroup::all_gather() of rows into contiguous memory.
C10D_API void all_gather(const ProcessGroup& group, View output, const ConstRows& input,
                         CallOptions options = {});
// ProcessGroup::all_gather() of rows into rows. Never in place.
C10D_API void all_gather(const ProcessGroup& group, const Rows& output, const ConstRows& input,
                         CallOptions options = {});
// ProcessGroup::send(). The receiver may pass rows of another shape, or contiguous memory.
C10D_API void send(const ProcessGroup& group, const ConstRows& input, int peer,
                   std::uint32_t tag = 0, CallOptions options = {});
// ProcessGroup::recv(). A shorter message fills the first elements of the rows.
C10D_API Received recv(const ProcessGroup& group, const Rows& output, int peer,
                       std::uint32_t tag = 0, CallOptions options = {});

}}  // namespace c10d::v0
