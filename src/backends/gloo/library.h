// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gloo/config.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <memory>

// What differs between the releases of Gloo: all of it is here.
// GLOO_STORE_HAS_STORE_V2 tells the newer interface from that of Debian 12.
namespace c10d::inline v0 {

#define C10D_GLOO_TEXT(x) #x
#define C10D_GLOO_VERSION(a, b, c) C10D_GLOO_TEXT(a) "." C10D_GLOO_TEXT(b) "." C10D_GLOO_TEXT(c)
inline constexpr const char* kGlooVersion =
    C10D_GLOO_VERSION(GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
#undef C10D_GLOO_VERSION
#undef C10D_GLOO_TEXT

inline void connect_full_mesh(gloo::rendezvous::Context& context,
                              const std::shared_ptr<gloo::rendezvous::Store>& store,
                              std::shared_ptr<gloo::transport::Device>& device) {
#ifdef GLOO_STORE_HAS_STORE_V2
  context.connectFullMesh(store, device);
#else
  context.connectFullMesh(*store, device);
#endif
}

}  // namespace c10d::inline v0
