// SPDX-License-Identifier: BSD-3-Clause
// backend.h: backends of a program's own, and what the funnel does for any backend: one that
// throws, fails, or lies is a failure of the group, never the end of the process.
#include "c10d/spi/backend.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <latch>
#include <thread>

#include "tests/contract/ranks.h"

namespace c10d::contract { namespace {

// A backend of nothing: each op does what the test says.
struct Behaviour {
  std::function<Work(const Call&, Control&)> launch = [](const Call&, Control&) { return Work(); };
  std::atomic<int> launches{0}, shutdowns{0}, aborts{0}, asked{0};
};

class Fake final : public Backend {
 public:
  Fake(BackendContext context, std::shared_ptr<Behaviour> behaviour)
      : context_(std::move(context)), behaviour_(std::move(behaviour)) {}
  Support supports(const Query& query) const override {
    ++behaviour_->asked;
    if (query.op == OpKind::gather) return {.ok = false, .reason = "it never learnt to gather"};
    return {};
  }
  Work launch(const Call& call) override {
    ++behaviour_->launches;
    return behaviour_->launch(call, *context_.control);
  }
  std::unique_ptr<Backend> new_group(BackendContext context, const std::vector<int>&) override {
    return std::make_unique<Fake>(std::move(context), behaviour_);
  }
  void abort() noexcept override { ++behaviour_->aborts; }
  void shutdown(Deadline) override { ++behaviour_->shutdowns; }
  std::string description() const override { return "a fake of " + context_.group; }

 private:
  const BackendContext context_;
  const std::shared_ptr<Behaviour> behaviour_;
};

// Registers a name of its own for each test; names are never given back.
std::string register_fake(const std::shared_ptr<Behaviour>& behaviour) {
  static int number = 0;
  std::string name = "fake" + std::to_string(number++);
  register_backend(name, [behaviour](BackendContext context) {
    return std::make_unique<Fake>(std::move(context), behaviour);
  });
  return name;
}

std::array<float, 2> g_data{};
Op an_all_reduce() { return AllReduce{g_data, g_data, {}}; }

TEST(Registered, ABackendServesGroupsAndSubgroups) {
  const auto behaviour = std::make_shared<Behaviour>();
  run_ranks(register_fake(behaviour), 2, [](ProcessGroup& group) {
    EXPECT_EQ(group.description(), "a fake of world");
    group.submit(an_all_reduce());
    ProcessGroup sub = group.new_group({0, 1});
    sub.submit(an_all_reduce());
    EXPECT_EQ(sub.backend(), group.backend());
  });
  EXPECT_EQ(behaviour->launches, 4);
  EXPECT_EQ(behaviour->shutdowns, 4);
}

TEST(Registered, ANameIsTakenOnce) {
  const auto behaviour = std::make_shared<Behaviour>();
  const std::string name = register_fake(behaviour);
  const BackendFactory factory = [](const BackendContext&) { return nullptr; };
  for (const std::string& taken : {name, std::string("native"), std::string("gloo")})
    EXPECT_THROW(register_backend(taken, factory), InvalidArgument) << taken;
  EXPECT_THROW(register_backend("", factory), InvalidArgument);
  EXPECT_THROW(register_backend("none", nullptr), InvalidArgument);
  EXPECT_EQ(code_of([&] { backend_supports(name, {.op = OpKind::barrier}); }), Code::unsupported);
  EXPECT_NE(make_backend(name, {}), nullptr);
}

TEST(Registered, AnUnknownBackendIsUnsupportedAndKnownNamesAreListed) {
  const Failure failure = failure_of([] {
    init_process_group(
        {.backend = "natve", .store = make_hash_store(kTimeout), .rank = 0, .size = 1});
  });
  EXPECT_EQ(failure.code, Code::unsupported);
  EXPECT_NE(failure.message.find("natve"), std::string::npos) << failure.message;
  EXPECT_NE(failure.message.find("native"), std::string::npos) << failure.message;
}

TEST(Registered, EveryBackendIsThereOrSaysWhyNot) {
  for (const BackendInfo& info : list_backends()) {
    EXPECT_NE(info.available, !info.reason.empty()) << info.name << ": " << info.reason;
    if (info.available) continue;
    EXPECT_EQ(code_of([&] { backend_supports(info.name, {.op = OpKind::barrier}); }),
              Code::unsupported);
  }
}

TEST(Funnel, CallsLaunchOnlyForWhatIsRight) {
  const auto behaviour = std::make_shared<Behaviour>();
  run_ranks(register_fake(behaviour), 1, [&](ProcessGroup& group) {
    std::array<float, 1> one{};
    EXPECT_THROW(group.broadcast(one, 4), InvalidArgument);
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(code_of([&] { group.gather(one, one, 0); }), Code::unsupported);
    EXPECT_EQ(behaviour->launches, 0);
    const int asked = behaviour->asked;
    for (int i = 0; i < 10; ++i) group.submit(an_all_reduce());
    EXPECT_LE(behaviour->asked, asked + 1) << "a yes is asked for once";
    EXPECT_EQ(group.sequence(), 10u);
  });
}

TEST(Funnel, GivesEachCallItsSequenceSignatureAndDeadline) {
  const auto behaviour = std::make_shared<Behaviour>();
  std::vector<std::uint64_t> sequences, signatures;
  Duration left{};
  behaviour->launch = [&](const Call& call, Control&) {
    sequences.push_back(call.sequence);
    signatures.push_back(call.signature);
    left = call.deadline - std::chrono::steady_clock::now();
    return Work();
  };
  run_ranks(register_fake(behaviour), 1, [&](ProcessGroup& group) {
    std::array<float, 2> other{};
    group.submit(an_all_reduce());
    group.submit(AllReduce{other, other, {}}, {.timeout = 10 * kTimeout});
    EXPECT_LE(left, 10 * kTimeout);
    EXPECT_GT(left, kTimeout);
    group.send(other, 0);
    group.submit(AllReduce{other, other, ReduceOp::max});
  });
  EXPECT_EQ(sequences, (std::vector<std::uint64_t>{1, 2, 1, 3}));
  EXPECT_EQ(signatures[0], signatures[1]) << "where memory lies is no part of it";
  EXPECT_NE(signatures[1], signatures[3]);
}

TEST(Funnel, AnExceptionOutOfABackendBreaksTheGroupOnEveryRank) {
  const auto behaviour = std::make_shared<Behaviour>();
  behaviour->launch = [](const Call&, Control&) -> Work { throw std::runtime_error("a bug"); };
  std::latch thrown(1);
  run_ranks(register_fake(behaviour), 2, [&](ProcessGroup& group) {
    if (group.rank() == 0) {
      const Failure failure = failure_of([&] { group.barrier(); });
      EXPECT_EQ(failure.code, Code::backend_error);
      EXPECT_NE(failure.message.find("a bug"), std::string::npos) << failure.message;
      EXPECT_EQ(failure.op, "barrier");
      EXPECT_EQ(failure.sequence, 1u);
      thrown.count_down();
    }
    thrown.wait();
    const Failure failure = failure_of([&] { group.barrier(); });
    EXPECT_NE(failure.message.find("a bug"), std::string::npos) << failure.message;
  });
  EXPECT_EQ(behaviour->launches, 1);
}

// "Two codes leave the group intact", also where only the backend finds that out.
TEST(Funnel, WhatABackendCannotDoAfterAllLeavesTheGroupIntact) {
  const auto behaviour = std::make_shared<Behaviour>();
  behaviour->launch = [](const Call& call, Control&) {
    if (call.sequence == 3) return Work();
    return Work::failed({.code = Code::unsupported, .message = "not with this memory"});
  };
  run_ranks(register_fake(behaviour), 1, [](ProcessGroup& group) {
    const Failure failure = failure_of([&] { group.submit(an_all_reduce()); });
    EXPECT_EQ(failure.code, Code::unsupported);
    EXPECT_EQ(failure.message, "not with this memory");
    EXPECT_EQ(failure.group, "world");
    EXPECT_EQ(failure.op, "all_reduce");
    EXPECT_EQ(failure.sequence, 1u);
    const Work work = group.async().submit(an_all_reduce());
    EXPECT_EQ(code_of([&] { work.wait(); }), Code::unsupported);
    EXPECT_EQ(group.failure(), nullptr);
    group.submit(an_all_reduce());
  });
}

TEST(Funnel, TheFirstOfTwoFailuresIsTheCause) {
  const auto behaviour = std::make_shared<Behaviour>();
  behaviour->launch = [](const Call&, Control& control) {
    control.fail({.code = Code::link_lost, .message = "the cable", .rank = 1});
    return Work::failed({.code = Code::backend_error, .message = "what followed from it"});
  };
  run_ranks(register_fake(behaviour), 1, [](ProcessGroup& group) {
    const Failure failure = failure_of([&] { group.barrier(); });
    EXPECT_EQ(failure.code, Code::link_lost);
    EXPECT_EQ(failure.message, "the cable");
    EXPECT_THROW(group.barrier(), DistNetworkError);
  });
}

TEST(Funnel, AnAsyncOpToo) {
  const auto behaviour = std::make_shared<Behaviour>();
  const WorkSource later;
  behaviour->launch = [&](const Call& call, Control& control) {
    if (call.sequence == 1) return later.work();
    control.fail({.code = Code::link_lost, .message = "the cable", .rank = 1});
    const WorkSource now;
    now.fail({.code = Code::timed_out, .message = "what followed from it"});
    return now.work();
  };
  run_ranks(register_fake(behaviour), 1, [&](ProcessGroup& group) {
    const Work first = group.async().submit(an_all_reduce());
    const Work second = group.async().submit(an_all_reduce());
    EXPECT_TRUE(later.fail({.code = Code::timed_out, .message = "what followed from it"}));
    for (const Work* work : {&first, &second}) {
      EXPECT_EQ(failure_of([&] { work->wait(); }).message, "the cable");
      EXPECT_EQ(work->state(), WorkState::failed);
    }
  });
}

TEST(Funnel, AnOpThatNeverEndsIsEndedByShutdown) {
  const auto behaviour = std::make_shared<Behaviour>();
  std::vector<WorkSource> sources;
  behaviour->launch = [&](const Call&, Control&) { return sources.emplace_back().work(); };
  run_ranks(register_fake(behaviour), 1, [&](ProcessGroup& group) {
    group.async().submit(an_all_reduce()).detach();
    const auto start = std::chrono::steady_clock::now();
    group.shutdown(std::chrono::milliseconds(50));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
    EXPECT_GE(behaviour->aborts, 1);
    EXPECT_EQ(code_of([&] { group.barrier(); }), Code::destroyed);
  });
  for (const WorkSource& source : sources) source.complete();  // late, and harmless
}

// As when a group goes out of scope. Nothing else ends this op: not even its own deadline.
TEST(Funnel, AnOpThatNeverEndsIsEndedByTheDestructor) {
  const auto behaviour = std::make_shared<Behaviour>();
  std::vector<WorkSource> sources;
  behaviour->launch = [&](const Call&, Control&) { return sources.emplace_back().work(); };
  run_ranks(register_fake(behaviour), 1, [&](ProcessGroup& group) {
    group.async().submit(an_all_reduce()).detach();
    const auto start = std::chrono::steady_clock::now();
    group = ProcessGroup();
    EXPECT_LT(std::chrono::steady_clock::now() - start, kTimeout)
        << "it waited as long as ops may take";
    EXPECT_GE(behaviour->aborts, 1);
  });
  for (const WorkSource& source : sources) source.complete();
}

// The allocator is likely to give back what was dirtied before.
TEST(Funnel, PlainMemoryIsZeroed) {
  const auto behaviour = std::make_shared<Behaviour>();
  run_ranks(register_fake(behaviour), 1, [](ProcessGroup& group) {
    for (int round = 0; round < 8; ++round) {
      const Buffer<unsigned char> memory = group.allocate<unsigned char>(4096 * 2 - 5);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 4096, 0u);
      EXPECT_EQ(std::count(memory.begin(), memory.end(), 0), 4096 * 2 - 5);
      std::fill(memory.begin(), memory.end(), 0xff);
      EXPECT_EQ(memory.peer_data(0), nullptr);
    }
  });
}

// Two ranks both fail for rank 1.
void expect_no_group(const std::string& backend, Code code, const std::string& part) {
  const auto store = make_hash_store(kTimeout);
  run_threads(2, [&](int rank) {
    const Failure failure = failure_of([&] {
      init_process_group(
          {.backend = backend, .store = store, .rank = rank, .size = 2, .timeout = kTimeout});
    });
    EXPECT_EQ(failure.code, code);
    EXPECT_EQ(failure.rank, 1);
    EXPECT_NE(failure.message.find(part), std::string::npos) << failure.message;
  });
}

TEST(Funnel, ABackendThatCannotBeMadeIsTheSameFailureOnEveryRank) {
  const std::string name = "fake that fails on one rank";
  register_backend(name, [](BackendContext context) -> std::unique_ptr<Backend> {
    if (context.rank == 1)
      throw_failure({.code = Code::out_of_resources, .message = "no room here", .rank = 1});
    return std::make_unique<Fake>(std::move(context), std::make_shared<Behaviour>());
  });
  expect_no_group(name, Code::out_of_resources, "no room here");
}

TEST(Gloo, AnInterfaceThatDoesNotExistIsNamedOnEveryRank) {
  const auto backends = backends_without_launcher();
  if (std::find(backends.begin(), backends.end(), "gloo") == backends.end()) GTEST_SKIP();
  setenv("C10D_GLOO_INTERFACE", "no such name", 1);
  const auto store = make_hash_store(kTimeout);
  run_threads(2, [&](int rank) {
    const Failure failure = failure_of([&] {
      init_process_group(
          {.backend = "gloo", .store = store, .rank = rank, .size = 2, .timeout = kTimeout});
    });
    EXPECT_EQ(failure.code, Code::unreachable);
    for (const char* part : {"C10D_GLOO_INTERFACE=no such name", "an interface (", "lo"})
      EXPECT_NE(failure.message.find(part), std::string::npos) << failure.message;
  });
  unsetenv("C10D_GLOO_INTERFACE");
}

// A backend may take as long as an op: the ranks that are done must not blame those that are not.
TEST(Funnel, AShortConnectTimeoutDoesNotBlameARankWhoseBackendStillStarts) {
  const std::string name = "fake that starts late on one rank";
  static constexpr std::chrono::seconds kConnect{2};
  register_backend(name, [](BackendContext context) -> std::unique_ptr<Backend> {
    if (context.rank == 1) std::this_thread::sleep_for(kConnect * 3 / 2);
    return std::make_unique<Fake>(std::move(context), std::make_shared<Behaviour>());
  });
  const auto store = make_hash_store(kTimeout);
  run_threads(2, [&](int rank) {
    EXPECT_NO_THROW(init_process_group({.backend = name,
                                        .store = store,
                                        .rank = rank,
                                        .size = 2,
                                        .timeout = kTimeout,
                                        .connect_timeout = kConnect}));
  });
}

TEST(Funnel, AFactoryThatReturnsNothingIsNamed) {
  const std::string name = "fake that is nothing on one rank";
  register_backend(name, [](BackendContext context) -> std::unique_ptr<Backend> {
    if (context.rank == 1) return nullptr;
    return std::make_unique<Fake>(std::move(context), std::make_shared<Behaviour>());
  });
  expect_no_group(name, Code::backend_error, name);
}

}}  // namespace c10d::contract
