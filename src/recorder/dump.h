// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace c10d { inline namespace v0 {

// What the environment asks to be done with the record of this process. C10D_RECORD_DIR: a file
// when a group breaks. C10D_RECORD_SIGNAL: a handler for that signal, which asks for a dump.

// Once per process: installs the handler if the environment names a signal. Throws InvalidArgument.
void install_dump_signal();
// Whether the signal came since the last call.
bool take_record_request() noexcept;

using Images = std::vector<std::span<const std::byte>>;
// Into a file of C10D_RECORD_DIR, else, as text, onto stderr.
void dump_record(const Images& images) noexcept;
// Into a file, where C10D_RECORD_DIR names a folder.
void keep_record(std::span<const std::byte> image) noexcept;

}}  // namespace c10d::v0
