// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/spi/backend.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

namespace c10d { inline namespace v0 {

Backend::~Backend() = default;

std::optional<Received> Backend::probe(int /*peer*/, std::uint32_t /*tag*/) {
  throw_failure({.code = Code::unsupported,
                 .message = "this backend cannot look for a message without receiving it: recv() "
                            "returns the sender and the number of elements"});
}

PlanReport Backend::plan(const PlanQuery& /*query*/) const { return {}; }

Allocation Backend::allocate(std::size_t bytes, Device device, Deadline /*deadline*/) {
  if (device.type != DeviceType::cpu)
    throw_failure({.code = Code::unsupported,
                   .message = "allocate: this backend has no memory of GPUs to give"});
  constexpr std::size_t kAlignment = 4096;
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* const data = rounded >= bytes ? std::aligned_alloc(kAlignment, rounded) : nullptr;
  if (data == nullptr && rounded != 0)
    throw_failure({.code = Code::out_of_resources,
                   .message = fmt::format("allocate: no memory for {} bytes", bytes)});
  if (data != nullptr) std::memset(data, 0, rounded);
  return {.data = data, .bytes = bytes, .owner = std::shared_ptr<void>(data, std::free)};
}

}}  // namespace c10d::v0
