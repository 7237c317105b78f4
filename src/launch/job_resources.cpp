// SPDX-License-Identifier: BSD-3-Clause
#include "src/launch/job_resources.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <tuple>

#include "c10d/error.h"
#include "src/base/cpu_topology.h"
#include "src/launch/line_output.h"
#include "src/net/address.h"
#include "src/net/reserve_port.h"
#include "src/net/token.h"

namespace c10d { inline namespace v0 {
namespace {

[[noreturn]] void throw_resource(std::string_view what) {
  throw_failure(
      {.code = Code::out_of_resources, .message = fmt::format("{}: {}", what, error_text(errno))});
}

// The job's secret in memory that ranks inherit: not in their arguments, not in their environment,
// and sealed.
Fd make_token_memory(const std::string& token) {
  Fd made(memfd_create("c10d-token", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!made) throw_resource("cannot make memory for the job's token");
  Fd fd(fcntl(made.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  const auto size = static_cast<ssize_t>(token.size());
  if (!fd || pwrite(fd.get(), token.data(), token.size(), 0) != size ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0)
    throw_resource("cannot fill the memory of the job's token");
  return fd;
}

}  // namespace

JobResources::JobResources(const LaunchOptions& options)
    : options_(options),
      alone_(options.hosts.count == 1),
      launch_id_("c10d-" + to_hex(random_bytes(8))),
      id_(alone_ ? launch_id_ : options.hosts.job),
      token_(alone_ ? random_bytes(32) : options.hosts.token),
      guardian_(marker()),
      token_fd_(make_token_memory(token_)),
      null_input_(open("/dev/null", O_RDONLY | O_CLOEXEC)),
      cpus_(options.cpu_binding == CpuBinding::none
                ? std::vector<std::vector<int>>()
                : bind_cpus(cpu_places(), options.cpu_binding, options.ranks,
                            options.overload_cpus)) {
  if (!null_input_) throw_resource("cannot open /dev/null");
  const MultiHostOptions& hosts = options_.hosts;
  const auto ranks = static_cast<std::size_t>(options_.ranks);
  // Of several hosts only the number is known yet, with a launcher on each.
  descriptors_.make_room(ranks, alone_ ? ranks : static_cast<std::size_t>(hosts.count));
  if (alone_) {
    store_ = make_tcp_store({.server = true,
                             .job = id_,
                             .token = token_,
                             .limits = {.clients = StoreLimits().clients + ranks}});
    std::tie(master_port_holder_, master_port_) = hold_port();
    return;
  }
  // With an address that is not this host's, the rendezvous has more to say.
  if (hosts.number == 0) try {
      std::tie(master_port_holder_, master_port_) = hold_port(hosts.address);
    } catch (const DistError&) {
    }
}

std::string JobResources::marker() const { return "C10D_LAUNCH_ID=" + launch_id_; }

void JobResources::make_room(const World& world) {
  if (alone_) return;
  const int clients = options_.hosts.number == 0 ? world.size + options_.hosts.count : 1;
  descriptors_.make_room(static_cast<std::size_t>(options_.ranks),
                         static_cast<std::size_t>(clients));
}

JobFacts JobResources::facts(const World& world) const {
  JobFacts facts;
  facts.id = id_;
  facts.launch_id = launch_id_;
  facts.token_fd = token_fd_.get();
  facts.master_port = world.master_port;
  facts.first_rank = world.first_rank;
  facts.size = world.size;
  facts.cpus = cpus_;
  facts.status_columns = options_.status_line ? terminal_columns() : 0;
  if (alone_) {
    facts.store_host = facts.master_host = store_->host();
    facts.store_port = store_->port();
  } else {
    const MultiHostOptions& hosts = options_.hosts;
    facts.store_host = facts.master_host = without_brackets(hosts.address);
    facts.store_port = hosts.port;
    facts.local_address = hosts.local_address.empty()
                              ? address_towards(hosts.address)
                              : resolve(hosts.local_address, 0).front().host();
  }
  return facts;
}

SpawnOptions JobResources::spawn_options() const {
  return {.path = find_program(options_.command.front()),
          .directory = options_.directory,
          .command = options_.command,
          .environment = {},
          .cpus = {},
          .stdin_fd = null_input_.get(),
          .kept_fd = token_fd_.get(),
          .registration_fd = guardian_.registration_fd(),
          .descriptors = descriptors_.callers()};
}

}}  // namespace c10d::v0
