// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/stage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "c10d/error.h"
#include "c10d/parallel/pipeline.h"

namespace c10d::inline v0::parallel {

Stage::~Stage() = default;

Tensor Stage::tied_gradient(std::string_view name) {
  throw InvalidArgument(fmt::format("this stage holds no tied weight {}", name));
}

std::string to_text(std::span<const std::int64_t> shape, DType dtype) {
  return fmt::format("{} [{}]", to_string(dtype), fmt::join(shape, ", "));
}

std::optional<std::size_t> bytes_of(std::span<const std::int64_t> shape, DType dtype,
                                    std::size_t limit) {
  if (shape.size() > kMaxActivationDims) return {};
  // An extent of 0 makes the others harmless, wherever it stands.
  const bool empty = std::ranges::find(shape, 0) != shape.end();
  std::size_t bytes = size_of(dtype);
  for (const std::int64_t extent : shape) {
    if (extent < 0 || (!empty && static_cast<std::size_t>(extent) > limit / bytes)) return {};
    if (!empty) bytes *= static_cast<std::size_t>(extent);
  }
  return empty ? 0 : bytes;
}

Activation make_activation(std::vector<std::int64_t> shape, DType dtype) {
  constexpr std::align_val_t kAlignment{64};
  const auto bytes = bytes_of(shape, dtype, std::numeric_limits<std::ptrdiff_t>::max());
  if (!bytes)
    throw InvalidArgument(
        fmt::format("no activation can be {}: at most {} dimensions, none negative, in memory",
                    to_text(shape, dtype), kMaxActivationDims));
  std::shared_ptr<void> owner(::operator new(std::max<std::size_t>(*bytes, 1), kAlignment),
                              [](void* data) { ::operator delete(data, kAlignment); });
  void* const data = owner.get();
  return {std::move(shape), Tensor(data, *bytes / size_of(dtype), dtype), std::move(owner)};
}

}  // namespace c10d::inline v0::parallel
