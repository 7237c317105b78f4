// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <exception>
#include <string>

namespace c10d::fault {

// Of every op of a rank, unless the test gives another.
inline constexpr std::chrono::seconds kRankTimeout{20};

// A line to the supervisor, in one write. From any thread.
void say(const std::string& line);
// "error <code> <rank> <pid> <what>".
void say_error(const std::exception& error);
// Says into a file from now on, where the log may go too.
void redirect(const std::string& path, bool log_too = false);

}  // namespace c10d::fault
