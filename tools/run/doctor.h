// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace c10d { inline namespace v0 {

struct DoctorOptions {
  std::vector<std::string> hosts;
  std::vector<std::string> agent;  // words with %h and %c
  std::string port;                // of the first host, where the launchers would meet
  std::string directory;           // where ranks would start
};

// c10d-run doctor -H: whether a job would start on these hosts. Starts a peer on each of them by
// the agent, has each of them listen and every other one connect to it, and prints what it found
// and what to mend. Returns the exit code: 1 when there is something to mend. Throws
// InvalidArgument when the agent cannot be started.
int check_hosts(const DoctorOptions& options);

// The peer: answers each line of stdin by one on stdout, until stdin ends.
inline constexpr const char* kDoctorPeer = "doctor-peer";
inline constexpr const char* kAnswerMark = "= ";  // a shell on the way may say something itself
int run_doctor_peer();

}}  // namespace c10d::v0
