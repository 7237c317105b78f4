// SPDX-License-Identifier: BSD-3-Clause
// Links between ranks that are threads of this process.
#include "src/net/mesh/mesh.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "c10d/error.h"
#include "src/net/mesh/rank_grid.h"
#include "src/net/socket.h"
#include "src/net/url.h"

namespace c10d { namespace {

using namespace std::chrono_literals;

Deadline after(Duration patience) { return std::chrono::steady_clock::now() + patience; }

Mesh::Options options_of(int rank, int size) {
  return {.rank = rank,
          .neighbours = RankGrid(size).neighbours_of(rank),
          .role = "mesh",
          .group = "g",
          .token = std::string(32, 't'),
          .address = "127.0.0.1"};
}

class Ranks {
 public:
  explicit Ranks(int size) {
    for (int rank = 0; rank < size; ++rank)
      meshes_.push_back(std::make_unique<Mesh>(options_of(rank, size)));
  }
  int size() const { return static_cast<int>(meshes_.size()); }
  Mesh& operator[](int rank) { return *meshes_[static_cast<std::size_t>(rank)]; }
  void end(int rank) { meshes_[static_cast<std::size_t>(rank)].reset(); }
  std::string address_of(int rank) { return (*this)[rank].address(); }

  // On all ranks but one, at the same time; what is thrown, by rank.
  std::vector<Failure> connect(int except = -1, Duration patience = 30s) {
    std::vector<Failure> failures(meshes_.size());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) {
      if (rank == except) continue;
      threads.emplace_back([this, rank, patience, &failures] {
        try {
          (*this)[rank].connect([this](int other) { return address_of(other); }, [] {},
                                after(patience));
        } catch (const DistError& error) {
          failures[static_cast<std::size_t>(rank)] = error.failure();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return failures;
  }

  // What one rank hears until `enough(news)`, or for 30 s.
  Mesh::News hear(int rank, const std::function<bool(const Mesh::News&)>& enough) {
    Mesh::News all;
    for (const Deadline end = after(30s); !enough(all) && std::chrono::steady_clock::now() < end;) {
      (*this)[rank].wait(after(10ms));
      Mesh::News news = (*this)[rank].drive();
      std::ranges::move(news.messages, std::back_inserter(all.messages));
      std::ranges::move(news.losses, std::back_inserter(all.losses));
    }
    return all;
  }

 private:
  std::vector<std::unique_ptr<Mesh>> meshes_;
};

TEST(Mesh, CarriesMessagesToNeighboursInTheirOrder) {
  Ranks ranks(5);
  for (const Failure& failure : ranks.connect()) EXPECT_EQ(failure.message, "");
  for (int i = 0; i < 100; ++i) ranks[0].send(1, 7, std::to_string(i));
  ranks[0].send(3, 7, "not for rank 1");
  ranks[2].send_to_all(8, "all");
  const Mesh::News news =
      ranks.hear(1, [](const Mesh::News& heard) { return heard.messages.size() == 101; });
  int next = 0;
  for (const Mesh::Message& message : news.messages) {
    if (message.from == 2) {
      EXPECT_EQ(message.body, "all");
      continue;
    }
    EXPECT_EQ(message.from, 0);
    EXPECT_EQ(message.type, 7);
    EXPECT_EQ(message.body, std::to_string(next++));
  }
  EXPECT_EQ(next, 100);
}

TEST(Mesh, ShowsTheEndOfANeighbourBehindItsLastWords) {
  Ranks ranks(3);
  ranks.connect();
  ranks[2].send_to_all(1, "bye");
  ranks.end(2);
  for (const int rank : {0, 1}) {
    const Mesh::News news =
        ranks.hear(rank, [](const Mesh::News& heard) { return !heard.losses.empty(); });
    ASSERT_EQ(news.messages.size(), 1u);
    EXPECT_EQ(news.messages[0].body, "bye");
    ASSERT_EQ(news.losses.size(), 1u);
    EXPECT_EQ(news.losses[0].neighbour, 2);
    EXPECT_EQ(news.losses[0].kind, Mesh::Loss::Kind::ended);
    ranks[rank].send(2, 1, "nobody is there");
    EXPECT_TRUE(ranks[rank].drive().losses.empty()) << "told once";
  }
}

// Which lives on without the links of its parent.
TEST(Mesh, AForkedChildDoesNotHideTheEndOfItsParent) {
  Ranks ranks(2);
  ranks.connect();
  std::array<int, 2> ends;
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[1]);
    char byte = 0;
    _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);  // until its parent has seen enough
  }
  close(ends[0]);
  ranks.end(1);
  const Mesh::News news =
      ranks.hear(0, [](const Mesh::News& heard) { return !heard.losses.empty(); });
  EXPECT_EQ(news.losses.size(), 1u);
  close(ends[1]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Mesh, NeighboursThatDoNotComeAreNamed) {
  Ranks ranks(4);
  const auto failures = ranks.connect(3, 300ms);
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(failures[static_cast<std::size_t>(rank)].code, Code::timed_out);
    EXPECT_EQ(failures[static_cast<std::size_t>(rank)].rank, 3);
  }
}

TEST(Mesh, AnAddressThatNobodyReachesIsNamed) {
  Mesh mesh(options_of(0, 2));
  std::string gone;
  {
    const Mesh other(options_of(1, 2));
    gone = other.address();
  }
  try {
    mesh.connect([&](int) { return gone; }, [] {}, after(30s));
    ADD_FAILURE() << "it connected";
  } catch (const DistNetworkError& error) {
    EXPECT_EQ(error.code(), Code::unreachable);
    EXPECT_EQ(error.failure().rank, 1);
    EXPECT_NE(error.failure().message.find("C10D_NET_INTERFACE"), std::string::npos);
  }
}

// A rank that died refuses calls, or ends them, before others know that it did.
TEST(Mesh, TheDeathOfANeighbourIsToldInsteadOfALostLink) {
  const Fd listener = listen_tcp(resolve("127.0.0.1", 0).front());
  const std::string ends = "tcp://" + local_address(listener.get()).text();
  std::string gone;
  {
    const Mesh other(options_of(1, 2));
    gone = other.address();
  }
  std::thread dying([&] {
    EXPECT_TRUE(wait_for(listener.get(), POLLIN, after(30s)));
    const Fd called(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  });
  for (const std::string& address : {ends, gone}) {
    int looks = 0;
    try {
      Mesh(options_of(0, 2))
          .connect([&](int) { return address; },
                   [&] {
                     if (++looks == 10) throw_failure({.code = Code::peer_died, .rank = 1});
                   },
                   after(30s));
      ADD_FAILURE() << "it connected";
    } catch (const DistError& error) {
      EXPECT_EQ(error.code(), Code::peer_died) << error.what();
    }
  }
  dying.join();
}

// A listener whose queue is full drops what comes, as a firewall does.
TEST(Mesh, WhyAnAddressDoesNotAnswerIsToldWhileItIsTried) {
  const Fd full = listen_tcp(resolve("127.0.0.1", 0).front());
  const Address swallows = local_address(full.get());
  ASSERT_EQ(::listen(full.get(), 0), 0);
  const Fd visitor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(visitor.get(), swallows.get(), swallows.length), 0);
  ASSERT_TRUE(wait_for(full.get(), POLLIN, after(30s)));
  int looks = 0;
  try {
    Mesh(options_of(0, 2))
        .connect([&](int) { return "tcp://" + swallows.text(); },
                 [&] {
                   if (++looks == 3) throw_failure({.code = Code::peer_died, .rank = 1});
                 },
                 after(30s));
    ADD_FAILURE() << "it connected";
  } catch (const DistError& error) {
    EXPECT_EQ(error.code(), Code::peer_died) << error.what();
  }
}

TEST(Mesh, ListensNowhereElse) {
  Mesh::Options options = options_of(0, 2);
  options.address = "192.0.2.1";  // of documentation: no host has it
  try {
    const Mesh mesh(options);
    ADD_FAILURE() << "it listens";
  } catch (const DistNetworkError& error) {
    EXPECT_EQ(error.code(), Code::unreachable);
  }
}

Fd call(const std::string& address) {
  const Url url = parse_url(address);
  std::string problem;
  return connect_tcp(resolve(url.host, static_cast<std::uint16_t>(url.port)), after(30s), problem);
}

// One in ten says something.
std::vector<Fd> strangers_at(const std::string& address, std::size_t count) {
  std::vector<Fd> strangers;
  while (strangers.size() < count) {
    strangers.push_back(call(address));
    EXPECT_TRUE(strangers.back());
    if (strangers.size() % 10 == 0)
      send_all(strangers.back().get(), "GET / HTTP/1.1\r\n\r\n", after(30s));
  }
  return strangers;
}

// Who calls meanwhile without the token, or says nothing, holds nobody up; nor do many.
void expect_strangers_aside(std::size_t count) {
  Ranks ranks(2);
  const std::vector<Fd> strangers = strangers_at(ranks.address_of(1), count);
  for (const Failure& failure : ranks.connect()) EXPECT_EQ(failure.message, "");
  ranks[0].send(1, 1, "here");
  const Mesh::News news =
      ranks.hear(1, [](const Mesh::News& heard) { return !heard.messages.empty(); });
  EXPECT_EQ(news.messages[0].from, 0);
  EXPECT_FALSE(call(ranks.address_of(1))) << "nothing listens any more";
}

TEST(Mesh, StrangersAreLeftAside) {
  for (const std::size_t count : {2u, 600u}) expect_strangers_aside(count);
}

TEST(Mesh, StrangersThatTakeTheLastDescriptorsAreLetGo) {
  Mesh called(options_of(1, 2));
  const std::vector<Fd> strangers = strangers_at(called.address(), 90);
  const pid_t child = fork();  // descriptors of its own
  if (child == 0) {
    Mesh mesh(options_of(0, 2));
    mesh.connect([&](int) { return called.address(); }, [] {}, after(30s));
    _exit(0);
  }
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit few = limit;
  few.rlim_cur = static_cast<rlim_t>(strangers.back().get()) + 20;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_NO_THROW(called.connect([](int) { return "not asked for"; }, [] {}, after(30s)));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Mesh, ARankWithAnotherTokenIsNamed) {
  Mesh::Options other = options_of(0, 2);
  other.token = std::string(32, 'u');
  Mesh wrong(other), right(options_of(1, 2));
  std::thread called([&] {
    EXPECT_THROW(right.connect([&](int) { return wrong.address(); }, [] {}, after(500ms)),
                 DistTimeoutError);
  });
  try {
    wrong.connect([&](int) { return right.address(); }, [] {}, after(30s));
    ADD_FAILURE() << "it connected";
  } catch (const DistError& error) {
    EXPECT_EQ(error.code(), Code::not_authenticated);
    EXPECT_EQ(error.failure().rank, 1);
  }
  called.join();
}

TEST(Mesh, TwoProcessesThatClaimOneRankAreToldApart) {
  Mesh first(options_of(0, 3)), twin(options_of(0, 3)), called(options_of(1, 3)),
      third(options_of(2, 3));
  std::vector<std::string> said;
  std::mutex mutex;
  const auto connect = [&](Mesh& mesh) {
    try {
      mesh.connect([&](int rank) { return (rank == 1 ? called : third).address(); }, [] {},
                   after(10s));
    } catch (const DistError& error) {
      const std::lock_guard lock(mutex);
      said.emplace_back(error.failure().message);
    }
  };
  std::vector<std::thread> threads;
  for (Mesh* const mesh : {&first, &twin, &called, &third})
    threads.emplace_back([&connect, mesh] { connect(*mesh); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(said.empty());
}

}}  // namespace c10d
