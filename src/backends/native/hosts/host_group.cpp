// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/hosts/host_group.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include "c10d/env.h"
#include "c10d/store.h"
#include "src/backends/common/failures.h"
#include "src/backends/common/store_waits.h"
#include "src/backends/native/links/measure_network.h"
#include "src/base/host.h"
#include "src/base/log.h"
#include "src/base/members.h"
#include "src/net/bytes.h"
#include "src/net/network.h"
#include "src/store/own_address.h"
#include "src/store/secret.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

using std::chrono::steady_clock;

// What a rank says of itself in the store.
struct Introduction {
  std::string host;         // identity
  std::string collectives;  // addresses: on each network of the first stream, of the second, ...
  std::string messages;     // and on each network
  std::string forced;       // C10D_NATIVE_HOSTS_PLAN
};
constexpr std::array kIntroduced = {&Introduction::host, &Introduction::collectives,
                                    &Introduction::messages, &Introduction::forced};

std::string to_bytes(const Introduction& own) {
  std::string bytes;
  for (const auto text : kIntroduced) put_string(bytes, own.*text);
  return bytes;
}

Introduction read_introduction(const BackendContext& context, int rank, std::string_view bytes) {
  ByteReader reader(bytes);
  Introduction theirs;
  for (const auto text : kIntroduced) theirs.*text = reader.take_string();
  if (!reader.finished())
    throw_failure(failure_in(context, Code::corrupt,
                             fmt::format("what rank {} says of itself in the store is damaged; "
                                         "start all ranks with the same libc10d",
                                         rank),
                             rank));
  return theirs;
}

std::vector<Introduction> introductions(const BackendContext& context, Deadline deadline) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < context.size; ++rank) keys.push_back(fmt::format("native/{}", rank));
  const auto all = read_keys(context, keys, deadline);
  if (!all)
    throw_failure(failure_in(context, Code::timed_out,
                             "not all ranks said in time where they listen, though all have come"));
  std::vector<Introduction> read;
  for (int rank = 0; rank < context.size; ++rank)
    read.push_back(read_introduction(context, rank, (*all)[static_cast<std::size_t>(rank)]));
  return read;
}

// On the networks of C10D_NET_INTERFACE, or the one towards the others.
std::vector<std::string> addresses_between_hosts(const BackendContext& context) {
  std::vector<std::string> addresses;
  for (const Network& network : chosen_networks()) addresses.push_back(network.address);
  if (addresses.empty()) addresses.push_back(own_address(*context.store, context.members));
  return addresses;
}

std::size_t streams_of(const std::vector<std::string>& addresses) {
  constexpr std::int64_t kMost = 16;
  const auto chosen = env_integer("C10D_NET_STREAMS", 1, kMost);
  return chosen ? static_cast<std::size_t>(*chosen) : addresses.size();
}

// Among the ranks of this host: they begin with different networks.
std::size_t place_of(const BackendContext& context) {
  return static_cast<std::size_t>(std::ranges::count_if(context.members, [&](const Member& member) {
    return member.same_host && member.rank < context.rank;
  }));
}

// Every rank sees what all others have, and so all find the same difference.
void check_streams(const BackendContext& context, const std::vector<Introduction>& all) {
  const auto text_of = [](const Introduction& one) {
    const std::size_t networks = std::max<std::size_t>(words_of(one.messages).size(), 1);
    return fmt::format("{} streams over {} networks", words_of(one.collectives).size() / networks,
                       networks);
  };
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (text_of(all[rank]) == text_of(all.front())) continue;
    const Member& member = context.members[rank];
    throw_failure(caused_by(
        member,
        failure_in(context, Code::mismatch,
                   fmt::format("{} has {} to other hosts, and rank 0 has {}: "
                               "C10D_NET_INTERFACE must name as many networks on every "
                               "host, and C10D_NET_STREAMS be the same (c10d-run -H: -x NAME)",
                               name_of(member), text_of(all[rank]), text_of(all.front())))));
  }
}

// Before the first of them, so that the error says how many it takes.
void check_descriptors(const BackendContext& context, std::size_t far, std::size_t each) {
  constexpr rlim_t kOthers = 64;  // what else a process has open
  rlimit limit{};
  const rlim_t wanted = each * far + kOthers;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  throw_failure(
      failure_in(context, Code::out_of_resources,
                 fmt::format("rank {} on host {} takes {} descriptors for each of {} ranks "
                             "on other hosts; raise its ulimit -n from {} to {} at least",
                             context.rank, host_name(), each, far, limit.rlim_cur, wanted),
                 context.rank));
}

BackendContext context_of_host(const BackendContext& context, const Placement& placement) {
  BackendContext own = context;
  own.rank = placement.place();
  own.size = placement.ranks_on(placement.host());
  own.store = make_prefix_store(fmt::format("host{}", placement.host()), context.store);
  return own;
}

HostPlan make_plan(const BackendContext& context, const NetworkProfile& network,
                   std::string forced) {
  std::vector<std::string> warnings;
  HostPlan plan(network, std::move(forced), warnings);
  if (context.rank == 0)
    for (const std::string& warning : warnings) log(LogLevel::warn, "native: {}", warning);
  return plan;
}

// Each of them is sent: the placement of the ranks costs bandwidth.
void warn_of_values(const BackendContext& context, std::size_t values) {
  constexpr std::size_t kFew = 2;
  if (context.rank == 0 && values > kFew)
    log(LogLevel::warn,
        "native: group \"{}\": a host sends up to {} values for each sum of floats. One is enough "
        "where all hosts have 2^k ranks each, which follow each other (mpirun --map-by slot)",
        context.group, values);
}

}  // namespace

HostGroup::Connections HostGroup::connect(const BackendContext& context, Deadline deadline) {
  Connections made{.hosts = {},
                   .addresses = addresses_between_hosts(context),
                   .forced = {},
                   .collectives = {},
                   .messages = {}};
  const std::size_t streams = streams_of(made.addresses);
  std::vector<int> far;
  for (const Member& member : context.members)
    if (!member.same_host) far.push_back(member.rank);
  const std::size_t networks = made.addresses.size();
  check_descriptors(context, far.size(), (streams + 1) * networks);
  const std::string secret = secret_of(*context.store, context.token, deadline);
  const auto options = [&](std::string role, std::size_t network) -> Mesh::Options {
    return {.rank = context.rank,
            .neighbours = far,
            .role = std::move(role),
            .group = context.group,
            .token = secret,
            .address = made.addresses[network % networks],
            .has_more_networks = networks > 1};
  };
  const std::size_t place = place_of(context);
  std::deque<Mesh> collectives, messages;
  for (std::size_t stream = 0; stream < streams; ++stream)
    for (std::size_t i = 0; i < networks; ++i)
      collectives.emplace_back(options(fmt::format("native-{}-{}", stream, i), place + stream + i));
  for (std::size_t i = 0; i < networks; ++i)
    messages.emplace_back(options(fmt::format("native-messages-{}", i), i));
  context.store->set(fmt::format("native/{}", context.rank),
                     to_bytes({host_identity(), addresses_of(collectives), addresses_of(messages),
                               env("C10D_NATIVE_HOSTS_PLAN").value_or("")}));
  const std::vector<Introduction> all = introductions(context, deadline);
  for (const Introduction& one : all) made.hosts.push_back(one.host);
  made.forced = all.front().forced;
  const auto look = [&] {
    if (const auto failure = context.control->failure()) throw_failure(*failure);
  };
  // To all ranks on other hosts, on all networks.
  const auto link = [&](std::deque<Mesh>& meshes, std::string Introduction::*addresses,
                        std::size_t first) {
    std::vector<Mesh::Connection> joined;
    for (std::size_t i = first; i < first + networks; ++i) {
      meshes[i].connect(
          [&](int rank) { return words_of(all[static_cast<std::size_t>(rank)].*addresses)[i]; },
          look, deadline);
      std::vector<Mesh::Connection> connections = meshes[i].take_connections();
      for (const Mesh::Connection& one : connections) choose_congestion_control(one.rails.fd());
      if (i == first)
        joined = std::move(connections);
      else
        for (std::size_t k = 0; k < joined.size(); ++k)
          joined[k].rails.add(connections[k].rails.release());
    }
    return joined;
  };
  check_streams(context, all);
  for (std::size_t stream = 0; stream < streams; ++stream)
    made.collectives.push_back(link(collectives, &Introduction::collectives, stream * networks));
  made.messages = link(messages, &Introduction::messages, 0);
  return made;
}

HostGroup::HostGroup(const BackendContext& context, int neighbours)
    : HostGroup(context, neighbours, steady_clock::now() + context.timeout) {}

HostGroup::HostGroup(const BackendContext& context, int neighbours, Deadline deadline)
    : context_(context),
      connections_(connect(context, deadline)),
      placement_(context.rank, connections_.hosts),
      partial_sums_(placement_),
      team_(std::make_shared<Team>(context_of_host(context, placement_), neighbours,
                                   placement_.neighbours(), deadline)),
      links_(context, std::move(connections_.collectives)),
      plan_(make_plan(context,
                      measure_network(context, placement_.ranks_of(1).front(), links_,
                                      team_->policy(), deadline),
                      std::move(connections_.forced))) {
  warn_of_values(context, partial_sums_.ordered().most);
}

Routes HostGroup::take_routes() {
  Routes routes{.context = context_, .places = {}, .connections = std::move(connections_.messages)};
  for (int rank = 0; rank < context_.size; ++rank)
    routes.places.push_back(
        placement_.host_of(rank) == placement_.host() ? placement_.place_of(rank) : -1);
  return routes;
}

std::string describe(const HostGroup& group) {
  const Placement& placement = group.placement();
  const PartialSums::Values& values = group.partial_sums().ordered();
  const int streams = group.links().streams();
  std::string text = fmt::format(
      "{} hosts, {} lane{} over TCP from {} ({}{})", placement.hosts(), placement.lanes(),
      placement.lanes() == 1 ? "" : "s", fmt::join(group.addresses(), " and "),
      streams == 1 ? "" : fmt::format("{} streams, ", streams), group.links().congestion_control());
  text += fmt::format(", {} to the next host{}", to_text(group.plan().network()),
                      group.overlaps() ? ", stages overlap" : "");
  if (values.most > 1)
    text += fmt::format(", sums of floats travel as up to {} values of a host", values.most);
  if (!group.plan().forced().empty()) text += fmt::format(", forced to {}", group.plan().forced());
  return text;
}

}}}  // namespace c10d::v0::native
