// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/gloo/mesh.h"

#include <fmt/format.h>
#include <net/if.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "c10d/env.h"
#include "src/backends/gloo/library.h"
#include "src/core/sigpipe.h"
#include "src/net/address.h"

namespace c10d::inline v0 {
namespace {

using std::chrono::milliseconds;

milliseconds left(Deadline deadline) {
  return std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(
                                       deadline - std::chrono::steady_clock::now()));
}

// The group's store as Gloo wants one. Every wait ends at the deadline, whatever Gloo asks for.
class MeshStore : public gloo::rendezvous::Store {
 public:
  MeshStore(std::shared_ptr<c10d::Store> store, Deadline deadline)
      : store_(std::move(store)), deadline_(deadline) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_->set(name(key), std::string_view(data.data(), data.size()));
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = store_->get(name(key), left(deadline_));
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    std::vector<std::string> names;
    for (const std::string& key : keys) names.push_back(name(key));
    store_->wait(names, left(deadline_));
  }
  void wait(const std::vector<std::string>& keys, const milliseconds&) override { wait(keys); }

 private:
  static std::string name(const std::string& key) { return "gloo/" + key; }
  std::shared_ptr<c10d::Store> store_;
  Deadline deadline_;
};

[[noreturn]] void throw_unreachable(const BackendContext& context, std::string message) {
  throw_failure(
      Failure{.code = Code::unreachable, .message = std::move(message), .group = context.group});
}

gloo::transport::tcp::attr choose_interface(const BackendContext& context) {
  gloo::transport::tcp::attr attr;
  if (const auto named = env("C10D_GLOO_INTERFACE")) {
    (if_nametoindex(named->c_str()) != 0 ? attr.iface : attr.hostname) = *named;
  } else if (context.all_local()) {
    attr.hostname = "127.0.0.1";
  } else {
    const auto remote = std::find_if(context.members.begin(), context.members.end(),
                                     [](const Member& member) { return !member.same_host; });
    attr.hostname = address_towards(remote->host);
    if (attr.hostname.empty()) attr.hostname = context.members[context.rank].host;
  }
  return attr;
}

}  // namespace

std::shared_ptr<gloo::transport::Device> make_gloo_device(const BackendContext& context) {
  const SigpipeBlock block;
  const gloo::transport::tcp::attr attr = choose_interface(context);
  try {
    return gloo::transport::tcp::CreateDevice(attr);
  } catch (const std::exception& error) {
    throw_unreachable(context,
                      fmt::format("gloo cannot listen on '{}': {}; set C10D_GLOO_INTERFACE to an "
                                  "interface or an address of this host",
                                  attr.iface.empty() ? attr.hostname : attr.iface, error.what()));
  }
}

std::shared_ptr<RevocableMesh> connect_mesh(const BackendContext& context,
                                            std::shared_ptr<gloo::transport::Device> device,
                                            Deadline deadline) {
  const SigpipeBlock block;
  auto mesh = std::make_shared<RevocableMesh>(context.rank, context.size);
  // A connection waits for five times the timeout that it was made with.
  mesh->setTimeout(std::max(milliseconds(1), left(deadline) / 5));
  try {
    connect_full_mesh(*mesh, std::make_shared<MeshStore>(context.store, deadline), device);
  } catch (const DistError&) {
    throw;
  } catch (const std::exception& error) {
    throw_unreachable(
        context, fmt::format("gloo: rank {} cannot connect to its peers over {}: {}; "
                             "set C10D_GLOO_INTERFACE to an interface that all ranks can reach",
                             context.rank, device->str(), error.what()));
  }
  mesh->watch();
  return mesh;
}

}  // namespace c10d::inline v0
