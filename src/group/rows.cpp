// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "c10d/error.h"
#include "src/device/gpu.h"

namespace c10d { inline namespace v0 {
namespace {

template <class R, class V>
R rows_of(const V& view, std::size_t count, std::size_t length, std::size_t stride) {
  if (count > 1 && length > stride)
    throw InvalidArgument(
        fmt::format("rows: rows of {} elements overlap at a stride of {}", length, stride));
  if (view.device.type != DeviceType::cpu && count > 1 && length != stride)
    throw InvalidArgument(
        fmt::format("rows: rows with gaps are packed by the host, which cannot read memory of {}: "
                    "copy them (cuda::copy), or pass rows without gaps",
                    name_of(view.device)));
  // (count - 1) * stride + length <= view.count, without overflow; stride is not 0 where it counts.
  const bool fits =
      count == 0 || length == 0 ||
      (length <= view.count && (count == 1 || (view.count - length) / stride >= count - 1));
  if (!fits)
    throw InvalidArgument(
        fmt::format("rows: {} rows of {} elements at a stride of {} do not fit into a view of {} "
                    "elements",
                    count, length, stride, view.count));
  return {view, count, length, stride};
}

// The elements of rows as one buffer: a copy, or the rows themselves if they have no gaps.
class Packed {
 public:
  // Rows that were not made by rows() are checked here.
  explicit Packed(const ConstRows& rows)
      : rows_(rows_of<ConstRows>(rows.memory, rows.count, rows.length, rows.stride)),
        view_(whole(rows)) {
    if (rows.count < 2 || rows.length == rows.stride) return;
    copy_ = std::make_unique_for_overwrite<std::byte[]>(view_.bytes());
    view_.data = copy_.get();
  }

  View view() const noexcept { return view_; }
  void pack() const noexcept {
    for_each_row(view_.count, [](void* memory, std::byte* packed, std::size_t bytes) {
      std::memcpy(packed, memory, bytes);
    });
  }
  // The first `elements` of them, to rows that may be written.
  void unpack(std::size_t elements) const noexcept {
    for_each_row(elements, [](void* memory, std::byte* packed, std::size_t bytes) {
      std::memcpy(memory, packed, bytes);
    });
  }

 private:
  static View whole(const ConstRows& rows) noexcept {
    return {const_cast<void*>(rows.memory.data), rows.count * rows.length, rows.memory.dtype,
            rows.memory.device};
  }
  template <class Copy>
  void for_each_row(std::size_t elements, const Copy& copy) const noexcept {
    const std::size_t size = size_of(rows_.memory.dtype);
    auto* const memory = static_cast<std::byte*>(const_cast<void*>(rows_.memory.data));
    for (std::size_t row = 0; copy_ && row * rows_.length < elements; ++row)
      copy(memory + row * rows_.stride * size, copy_.get() + row * rows_.length * size,
           std::min(rows_.length, elements - row * rows_.length) * size);
  }

  const ConstRows rows_;
  View view_;
  std::unique_ptr<std::byte[]> copy_;
};

}  // namespace

ConstRows ConstView::rows(std::size_t rows, std::size_t length, std::size_t stride) const {
  return rows_of<ConstRows>(*this, rows, length, stride);
}
Rows View::rows(std::size_t rows, std::size_t length, std::size_t stride) const {
  return rows_of<Rows>(*this, rows, length, stride);
}

void broadcast(const ProcessGroup& group, const Rows& buffer, int root, CallOptions options) {
  const Packed packed(buffer);
  if (group.rank() == root) packed.pack();
  group.broadcast(packed.view(), root, options);
  if (group.rank() != root) packed.unpack(packed.view().count);
}

void all_gather(const ProcessGroup& group, View output, const ConstRows& input,
                CallOptions options) {
  const Packed packed(input);
  packed.pack();
  group.all_gather(output, packed.view(), options);
}

void all_gather(const ProcessGroup& group, const Rows& output, const ConstRows& input,
                CallOptions options) {
  const Packed all(output);
  all_gather(group, all.view(), input, options);
  all.unpack(all.view().count);
}

void send(const ProcessGroup& group, const ConstRows& input, int peer, std::uint32_t tag,
          CallOptions options) {
  const Packed packed(input);
  packed.pack();
  group.send(packed.view(), peer, tag, options);
}

Received recv(const ProcessGroup& group, const Rows& output, int peer, std::uint32_t tag,
              CallOptions options) {
  const Packed packed(output);
  const Received received = group.recv(packed.view(), peer, tag, options);
  packed.unpack(received.count);
  return received;
}

}}  // namespace c10d::v0
