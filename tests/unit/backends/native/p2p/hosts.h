// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/net/mesh/mesh.h"
#include "tests/unit/backends/native/ranks.h"

namespace c10d { inline namespace v0 {

// One rank of a test group over several hosts: a host is threads that share memory, and others are
// reached by TCP only.
class HostRank {
 public:
  HostRank(int rank, int size, native::Routes routes, std::shared_ptr<native::Team> team)
      : rank_(rank), size_(size), control_(routes.context.control) {
    for (const Mesh::Connection& one : routes.connections)
      sockets_.emplace_back(one.neighbour, one.rails.fd());
    messages_ = std::make_shared<native::Messages>(std::move(team), std::move(routes));
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  Control& control() { return *control_; }
  native::Messages& messages() { return *messages_; }
  // The socket of the connection to a rank on another host.
  int socket_to(int rank) const {
    return std::ranges::find(sockets_, rank, &std::pair<int, int>::first)->second;
  }

  Work start(const Op& op, bool async, Duration timeout = std::chrono::seconds(60)) {
    const Call call{.op = op,
                    .sequence = ++calls_,
                    .signature = 0,
                    .deadline = std::chrono::steady_clock::now() + timeout,
                    .async = async,
                    .record = 0};
    if (const auto failure = control_->failure()) return Work::failed(*failure);  // as the funnel
    return messages_->launch(call);
  }
  Work start_async(const Op& op) { return start(op, true); }
  // Blocking; an error is a failure of the test.
  Received run(const Op& op) {
    const Work work = start(op, false);
    if (work.failure() != nullptr) ADD_FAILURE() << rank_ << ": " << work.failure()->message;
    return work.received();
  }

 private:
  const int rank_, size_;
  const std::shared_ptr<Control> control_;
  std::vector<std::pair<int, int>> sockets_;
  std::shared_ptr<native::Messages> messages_;
  std::uint64_t calls_ = 0;
};

// Runs `body` as every rank of a new group, each in a thread; rank r is on host hosts[r]. They
// leave in good order, each as soon as it is done, unless the group is broken.
inline void as_hosts(const std::vector<int>& hosts, const std::function<void(HostRank&)>& body) {
  const auto size = static_cast<int>(hosts.size());
  const auto host_of = [&](int rank) { return hosts[static_cast<std::size_t>(rank)]; };
  const auto fate = std::make_shared<GroupFate>();
  std::vector<std::unique_ptr<Mesh>> meshes;
  std::vector<std::shared_ptr<SharedMapping>> segments;  // by host
  for (int rank = 0; rank < size; ++rank) {
    Mesh::Options options{.rank = rank,
                          .neighbours = {},
                          .role = "native-messages",
                          .group = "test",
                          .token = std::string(32, 't'),
                          .address = "127.0.0.1"};
    for (int other = 0; other < size; ++other)
      if (host_of(other) != host_of(rank)) options.neighbours.push_back(other);
    meshes.push_back(std::make_unique<Mesh>(options));
    const auto on_it = static_cast<int>(std::ranges::count(hosts, rank));
    segments.push_back(on_it == 0 ? nullptr
                                  : make_shared_memory("test", native::Layout(on_it).bytes()));
  }
  std::latch connected(size);
  const auto run = [&](int rank) {
    Mesh& mesh = *meshes[static_cast<std::size_t>(rank)];
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    mesh.connect([&](int other) { return meshes[static_cast<std::size_t>(other)]->address(); },
                 [] {}, deadline);
    const BackendContext context{.rank = rank,
                                 .size = size,
                                 .group = "test",
                                 .control = std::make_shared<TestControl>(rank, size, fate),
                                 .timeout = std::chrono::seconds(30)};
    native::Routes routes{.context = context, .places = {}, .connections = {}};
    int place = 0;
    for (int other = 0; other < size; ++other)
      routes.places.push_back(host_of(other) == host_of(rank) ? place++ : -1);
    routes.connections = mesh.take_connections();
    BackendContext on_host = context;
    on_host.rank = routes.places[static_cast<std::size_t>(rank)];
    on_host.size = place;
    auto team = std::make_shared<native::Team>(on_host, place,
                                               segments[static_cast<std::size_t>(host_of(rank))]);
    connected.arrive_and_wait();
    HostRank self(rank, size, std::move(routes), std::move(team));
    body(self);
    if (!self.control().broken()) {
      EXPECT_TRUE(
          self.messages().drain(std::chrono::steady_clock::now() + std::chrono::seconds(30)))
          << rank;
      self.messages().warn_of_unreceived();
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
  for (auto& thread : threads) thread.join();
}

}}  // namespace c10d::v0
