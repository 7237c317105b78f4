// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include "c10d/export.h"
#include "c10d/store.h"

namespace c10d { inline namespace v0 {

// Where the server of a TCP store says whom it refused.
inline constexpr std::string_view kRefusalsKey = "c10d/refusals";

// Of a TCP store, also behind prefixes, for the end of a message: "; 2 connections from 10.0.0.2
// were refused: another token". Empty where nobody was, or the store does not say.
C10D_API std::string refusals_of(Store& store) noexcept;

}}  // namespace c10d::v0
