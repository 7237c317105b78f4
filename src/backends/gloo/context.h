// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gloo/transport/device.h>

#include <memory>

#include "c10d/spi/backend.h"
#include "src/backends/gloo/revocable_context.h"

namespace c10d { inline namespace v0 {

// A TCP device on C10D_GLOO_INTERFACE; without it on loopback when all ranks are on this host, else
// on the interface that routes to the first rank of another host. Throws DistError.
std::shared_ptr<gloo::transport::Device> make_gloo_device(const BackendContext& context);

// Collective: one connection to every other rank, made through the group's store. Throws DistError
// that names the device.
std::shared_ptr<RevocableContext> connect_ranks(const BackendContext& context,
                                                std::shared_ptr<gloo::transport::Device> device,
                                                Deadline deadline);

}}  // namespace c10d::v0
