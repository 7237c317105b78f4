// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/gloo/context.h"

#include <fmt/format.h>
#include <gloo/transport/tcp/device.h>
#include <net/if.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "c10d/env.h"
#include "src/backends/common/failures.h"
#include "src/backends/common/store_waits.h"
#include "src/backends/gloo/no_destroy.h"
#include "src/base/mutex.h"
#include "src/base/sigpipe_guard.h"
#include "src/base/timeouts.h"
#include "src/net/address.h"
#include "src/net/socket.h"
#include "src/store/own_address.h"
#include "src/sync/thread.h"

namespace c10d { inline namespace v0 {
namespace {

using std::chrono::milliseconds;

// How often a wait for a peer checks whether the group broke.
constexpr milliseconds kLook{20};

std::string address_key(int rank) { return fmt::format("gloo/{}", rank); }

[[noreturn]] void throw_late(const BackendContext& context, int peer) {
  const Member& member = context.members[static_cast<std::size_t>(peer)];
  throw_failure(caused_by(
      member, failure_in(context, Code::timed_out,
                         fmt::format("rank {} timed out waiting for a Gloo connection to rank {} "
                                     "(host {}, pid {})",
                                     context.rank, peer, member.host, member.pid))));
}

// The addresses that a rank has published in the store: one for each other rank, by rank.
std::string read_addresses(const BackendContext& context, int rank, Deadline deadline) {
  if (auto addresses = read_key(context, address_key(rank), deadline)) return *std::move(addresses);
  throw_late(context, rank);
}

// Ends the wait for a connection when the group breaks, or at the deadline: Gloo itself continues
// to wait for a peer that may have died. It closes only the connection that this rank waits for,
// and only if two checks in a row found the same wait. Gloo closes with a reset, and that ends the
// process of a peer that has not accepted the connection yet: getpeername() fails in Gloo's own
// thread, which throws there.
class BrokenWatch {
 public:
  static constexpr int kNobody = -1;

  BrokenWatch(Control& control, gloo::transport::Context& connections, Deadline deadline)
      : control_(control),
        connections_(connections),
        deadline_(deadline),
        thread_(start_thread([this] { run(); })) {}
  ~BrokenWatch() {
    {
      MutexLock lock(mutex_);
      over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  BrokenWatch(const BrokenWatch&) = delete;
  BrokenWatch& operator=(const BrokenWatch&) = delete;

  // The rank that this rank waits for.
  void set_peer(int peer) {
    MutexLock lock(mutex_);
    peer_ = peer;
  }

 private:
  void run() {
    MutexLock lock(mutex_);
    for (int before = kNobody; !over_; changed_.wait_for(mutex_, kLook)) {
      if (!control_.broken() && std::chrono::steady_clock::now() < deadline_) continue;
      if (peer_ != kNobody && peer_ == before) close(peer_);
      before = peer_;
    }
  }

  void close(int peer) noexcept try {
    connections_.getPair(peer)->close();
  } catch (const std::exception&) {  // it was not open
  }

  Control& control_;
  gloo::transport::Context& connections_;
  const Deadline deadline_;
  Mutex mutex_;
  CondVar changed_;
  int peer_ C10D_GUARDED_BY(mutex_) = kNobody;
  bool over_ C10D_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

[[noreturn]] void throw_unreachable(const BackendContext& context, std::string message) {
  throw_failure(failure_in(context, Code::unreachable, std::move(message)));
}

gloo::transport::tcp::attr choose_interface(const BackendContext& context) {
  gloo::transport::tcp::attr attr;
  if (const auto named = env("C10D_GLOO_INTERFACE")) {
    (if_nametoindex(named->c_str()) != 0 ? attr.iface : attr.hostname) = without_brackets(*named);
  } else if (context.all_local()) {
    attr.hostname = "127.0.0.1";
  } else {
    attr.hostname = own_address(*context.store, context.members);
  }
  return attr;
}

}  // namespace

std::shared_ptr<gloo::transport::Device> make_gloo_device(const BackendContext& context) {
  const WriteSignalsBlock block;
  const gloo::transport::tcp::attr attr = choose_interface(context);
  std::string problem;
  try {
    // Gloo reads what the resolver did not write when a name has no address.
    if (!attr.iface.empty() || !try_to_resolve(attr.hostname, 0, problem).empty())
      return gloo::transport::tcp::CreateDevice(attr);
  } catch (const std::exception& error) {
    problem = error.what();
  }
  const auto named = env("C10D_GLOO_INTERFACE");
  const std::string& chosen = attr.iface.empty() ? attr.hostname : attr.iface;
  throw_unreachable(
      context,
      fmt::format("gloo cannot listen on {}: {}; set C10D_GLOO_INTERFACE to an interface ({}) or "
                  "an address of this host",
                  named ? "C10D_GLOO_INTERFACE=" + *named : chosen, problem, interface_names()));
}

namespace {

void connect_all(const BackendContext& context, gloo::transport::Context& connections,
                 Deadline deadline) {
  std::string own;
  std::size_t bytes = 0;  // of an address: all have as many
  for (int peer = 0; peer < context.size; ++peer) {
    if (peer == context.rank) continue;
    const std::vector<char> address = connections.createPair(peer)->address().bytes();
    own.append(address.begin(), address.end());
    bytes = address.size();
  }
  context.store->set(address_key(context.rank), own, patience_until(deadline));
  BrokenWatch watch(*context.control, connections, deadline);
  for (int peer = 0; peer < context.size; ++peer) {
    if (peer == context.rank) continue;
    const std::string theirs = read_addresses(context, peer, deadline);
    if (theirs.size() != own.size())
      throw_failure(failure_in(context, Code::version_mismatch,
                               fmt::format("gloo: rank {} published {} bytes of addresses and "
                                           "this rank {}; use the same Gloo on all ranks",
                                           peer, theirs.size(), own.size()),
                               peer));
    // A rank publishes no address for itself: those of higher ranks stand one place earlier.
    const auto place =
        static_cast<std::size_t>(context.rank < peer ? context.rank : context.rank - 1);
    const auto first = theirs.begin() + static_cast<std::ptrdiff_t>(place * bytes);
    watch.set_peer(peer);
    connections.getPair(peer)->connect({first, first + static_cast<std::ptrdiff_t>(bytes)});
    watch.set_peer(BrokenWatch::kNobody);
    // connect() also returns when the connection was closed.
    if (const auto failure = context.control->failure()) throw_failure(*failure);
    if (std::chrono::steady_clock::now() >= deadline) throw_late(context, peer);
  }
}

// Until this process ends: to close a connection that the peer has not accepted yet would kill its
// process, see BrokenWatch.
void keep_open(std::shared_ptr<gloo::transport::Device> device,
               std::shared_ptr<gloo::transport::Context> connections) {
  never_destroy(std::move(device));
  never_destroy(std::move(connections));
}

}  // namespace

std::shared_ptr<RevocableContext> connect_ranks(const BackendContext& context,
                                                std::shared_ptr<gloo::transport::Device> device,
                                                Deadline deadline) {
  const WriteSignalsBlock block;
  auto result = std::make_shared<RevocableContext>(context.rank, context.size);
  const auto connections = device->createContext(context.rank, context.size);
  // A connection waits for five times the timeout that it was made with. So BrokenWatch ends the
  // wait for a rank that does not arrive, and that rank is known.
  const milliseconds fifth = time_until(deadline) / 5 + 2 * kLook;
  result->setTimeout(fifth);
  connections->setTimeout(fifth);
  try {
    connect_all(context, *connections, deadline);
  } catch (const DistError&) {
    keep_open(std::move(device), connections);
    throw;
  } catch (const std::exception& error) {
    const std::string where = device->str();
    keep_open(std::move(device), connections);
    throw_unreachable(
        context, fmt::format("gloo: rank {} cannot connect to its peers over {}: {}; "
                             "set C10D_GLOO_INTERFACE to an interface that all ranks can reach",
                             context.rank, where, error.what()));
  }
  result->adopt(std::move(device), connections);
  return result;
}

}}  // namespace c10d::v0
