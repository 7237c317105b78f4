// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "c10d/error.h"
#include "src/launch/environment.h"
#include "src/launch/job.h"
#include "src/net/token.h"

namespace c10d { inline namespace v0 {

namespace {

constexpr int kMaxHosts = 1024;
constexpr std::chrono::seconds kLeastSilence{3};

void check_hosts(const MultiHostOptions& hosts) {
  if (hosts.count < 1 || hosts.count > kMaxHosts)
    throw InvalidArgument(
        fmt::format("launch: {} hosts; from 1 to {} are possible", hosts.count, kMaxHosts));
  if (hosts.number < 0 || hosts.number >= hosts.count)
    throw InvalidArgument(fmt::format("launch: host {} of {}; the first is 0, the last {}",
                                      hosts.number, hosts.count, hosts.count - 1));
  if (hosts.address.empty() || hosts.port == 0)
    throw InvalidArgument("launch: several hosts need address and port of host 0");
  if (hosts.token.size() < kLeastTokenBytes || hosts.token.size() > kMostTokenBytes)
    throw InvalidArgument(
        fmt::format("launch: several hosts need a common secret of at least {} bytes and at most "
                    "{}, not {}",
                    kLeastTokenBytes, kMostTokenBytes, hosts.token.size()));
  if (hosts.timeout <= Duration::zero())
    throw InvalidArgument("launch: the timeout until all hosts are there must be positive");
  if (hosts.silence < kLeastSilence)
    throw InvalidArgument(fmt::format(
        "launch: hosts send a heartbeat every second; a silence of less than {} s says nothing",
        kLeastSilence.count()));
}

// Of these a handler makes sense that hands them on; the others report a fault of this process,
// cannot be handled, or are in use.
void check_signals(const std::vector<int>& signals) {
  constexpr int kPossible[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGUSR1, SIGUSR2,
                               SIGALRM, SIGTERM, SIGCONT, SIGXCPU, SIGPWR};
  for (const int signal : signals)
    if (std::find(std::begin(kPossible), std::end(kPossible), signal) == std::end(kPossible))
      throw InvalidArgument(fmt::format(
          "launch: signal {} cannot be forwarded; INT, TERM, HUP, QUIT, USR1, USR2, ALRM, CONT, "
          "XCPU and PWR can",
          signal));
}

void check_directory(const std::string& directory) {
  std::error_code error;
  const auto status = std::filesystem::status(directory, error);
  if (std::filesystem::is_directory(status)) return;
  throw InvalidArgument(fmt::format(
      "launch: the directory {} for the ranks: {}", directory,
      error ? error.message()
            : std::string(std::filesystem::exists(status) ? "Not a directory"
                                                          : "No such file or directory")));
}

}  // namespace

LaunchResult launch(const LaunchOptions& options) {
  if (options.ranks < 1 || options.ranks > kMaxLocalRanks) {
    throw InvalidArgument(fmt::format("launch: {} ranks on one host; from 1 to {} are possible",
                                      options.ranks, kMaxLocalRanks));
  }
  if (options.command.empty()) throw InvalidArgument("launch: the command is empty");
  if (options.grace < Duration::zero()) throw InvalidArgument("launch: grace is negative");
  if (options.timeout < Duration::zero()) throw InvalidArgument("launch: the timeout is negative");
  if (options.max_failures < 0) throw InvalidArgument("launch: max_failures is negative");
  if (options.max_failures > 0 && options.hosts.count != 1)
    throw InvalidArgument("launch: max_failures is for one host only");
  if (options.hosts.count != 1) check_hosts(options.hosts);
  if (!options.directory.empty()) check_directory(options.directory);
  check_signals(options.signals);
  if (options.virtual_local_rank) check_devices(options);
  Job job(options);
  return job.run();
}

}}  // namespace c10d::v0
