// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gloo/config.h>
#include <gloo/transport/tcp/device.h>

// What differs between the releases of Gloo: all of it is here. Meshes are connected through its
// transports, which are the same in all of them, unlike its rendezvous.
namespace c10d::inline v0 {

#define C10D_GLOO_TEXT(x) #x
#define C10D_GLOO_VERSION(a, b, c) C10D_GLOO_TEXT(a) "." C10D_GLOO_TEXT(b) "." C10D_GLOO_TEXT(c)
inline constexpr const char* kGlooVersion =
    C10D_GLOO_VERSION(GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
#undef C10D_GLOO_VERSION
#undef C10D_GLOO_TEXT

}  // namespace c10d::inline v0
