// SPDX-License-Identifier: BSD-3-Clause
// What Fsdp refuses, and that every rank learns why.
#include "c10d/parallel/fsdp.h"
#include "tests/contract/ranks.h"
#include "tests/parallel/even_units.h"

namespace c10d::parallel { namespace {

using ShardedFailure = contract::OnBackend;

// Rank 1 makes a mistake; the other finds its text in the next call that needs rank 1.
void expect_misuse(const contract::OnBackend& on, Sharding sharding, const std::string& text,
                   const std::function<void(Fsdp&)>& mistake) {
  on.run(2, [&](ProcessGroup& group) {
    Fsdp fsdp(group, even_units({2, 2}), {.sharding = sharding});
    try {
      for (const std::size_t unit : {0, 1}) pass_through(fsdp, unit);
      fsdp.end_step();
      if (group.rank() == 1) mistake(fsdp);
      for (const std::size_t unit : {0, 1}) pass_through(fsdp, unit);
      fsdp.end_step();
      ADD_FAILURE() << "accepted: " << text;
    } catch (const std::exception& error) {
      EXPECT_EQ(dynamic_cast<const InvalidArgument*>(&error) != nullptr, group.rank() == 1);
      EXPECT_NE(std::string(error.what()).find("Fsdp on rank 1: " + text), std::string::npos)
          << error.what();
    }
  });
}

TEST_P(ShardedFailure, AMistakeIsNamedOnEveryRank) {
  for (const Sharding& sharding : {kZero1, kZero3}) {
    const auto expect = [&](const std::string& text, const std::function<void(Fsdp&)>& mistake) {
      expect_misuse(*this, sharding, text, mistake);
    };
    expect("reshard of layer1, which is not gathered", [](Fsdp& f) { f.reshard(1); });
    expect("unshard of layer1 as call 1 of the step, where the first step had unshard of layer0",
           [](Fsdp& f) { f.unshard(1); });
    expect("end_step, but the gradient of layer0 is not reduced", [](Fsdp& f) {
      f.next_gradient(0);
      f.gradient_done(0);
      f.end_step();
    });
    expect("reduce of layer0 after 0 of 1 virtual shards", [](Fsdp& f) { f.reduce(0); });
    expect("unshard of unit 2, but there are 2", [](Fsdp& f) { f.unshard(2); });
  }
}

TEST_P(ShardedFailure, AFirstStepInAnotherOrderIsAMismatchOnEveryRank) {
  run(2, [](ProcessGroup& group) {
    Fsdp fsdp(group, even_units({2, 2}));
    for (std::size_t i = 0; i < 2; ++i) {
      pass_through(fsdp, group.rank() == 0 ? i : 1 - i);
    }
    EXPECT_EQ(contract::code_of([&] { fsdp.end_step(); }), Code::mismatch);
  });
}

TEST_P(ShardedFailure, RanksAgreeOnUnitsAndOptionsWhenItIsMade) {
  struct Case {
    std::function<void(std::vector<Unit>&, FsdpOptions&)> change;
    std::string text;
  };
  const std::vector<Case> cases = {
      {[](auto& u, auto&) {
         u[1].parameters[0].shape = {4, 4096};
       },
       "layer1.w f32 [4, 4096]"},
      {[](auto& u, auto&) { u[0].parameters[0].name = "x"; }, "x f32 [2, 4096]"},
      {[](auto& u, auto&) { u.pop_back(); }, "layer1"},
      {[](auto&, auto& o) { o.sharding = kZero2; }, "sharding"},
  };
  for (const Case& one : cases) {
    run(3, [&](ProcessGroup& group) {
      auto units = even_units({2, 2});
      FsdpOptions options;
      if (group.rank() == 2) one.change(units, options);
      const Failure failure = contract::failure_of([&] { Fsdp(group, units, options); });
      EXPECT_EQ(failure.code, Code::mismatch);
      EXPECT_NE(failure.message.find(one.text), std::string::npos) << failure.message;
    });
  }
  run(2, [](ProcessGroup& group) {
    const Sharding wrong{Placement::sharded, Placement::replicated, Placement::sharded};
    EXPECT_THROW(Fsdp(group, even_units({1}), {.sharding = wrong}), InvalidArgument);
    EXPECT_THROW(Fsdp(group, {{"u", {{"w", {3}, DType::f64}}}}), InvalidArgument);
    EXPECT_THROW(Fsdp(group, {{"u", {{"w", {0}, DType::f32}}}}), InvalidArgument);
    EXPECT_THROW(Fsdp(group, {}), InvalidArgument);
    EXPECT_THROW(Fsdp(group, even_units({1}), {.reduce = DType::f16}), InvalidArgument);
    EXPECT_THROW(
        Fsdp(group, even_units({1}), {.mode = ReduceMode::reproducible, .reduce = DType::bf16}),
        InvalidArgument);
    contract::expect_usable(group);
  });
}

TEST_P(ShardedFailure, GroupsThatMakeNoGridAreRefused) {
  run(4, [](ProcessGroup& world) {
    ProcessGroup group = world.split(world.rank() / 2);
    ProcessGroup replicas = world.split(world.rank() == 0 || world.rank() == 3 ? 0 : 1);
    EXPECT_THROW(Fsdp(group, even_units({1}), {}, replicas), DistError);
    world.barrier();
  });
}

void step(Fsdp& fsdp) {
  for (const std::size_t unit : {0, 1}) pass_through(fsdp, unit);
  fsdp.end_step();
  fsdp.sync_parameters();
}

// Rank 1 fails and lives on with its group; rank 0 does not hear of it by a deadline.
void one_fails(const contract::OnBackend& on, Sharding sharding,
               const std::function<void(Fsdp&)>& fail) {
  contract::Latch ready(2), heard(2);  // an abort may end any call that is under way
  on.run(2, [&](ProcessGroup& group) {
    {
      Fsdp fsdp(group, even_units({2, 2}), {.sharding = sharding});
      step(fsdp);
      ready.arrive_and_wait();
      if (group.rank() == 1)
        fail(fsdp);
      else
        EXPECT_NE(contract::code_of([&] {
                    for (int i = 0; i < 2; ++i) step(fsdp);
                  }),
                  Code::timed_out);
    }
    heard.arrive_and_wait();
  });
}

TEST_P(ShardedFailure, AnObserverThatThrowsEndsTheStepsOfEveryRank) {
  for (const Sharding& sharding : {kZero1, kZero3}) {
    const auto expect = [&]<class Error>(const Error& error) {
      one_fails(*this, sharding, [&](Fsdp& fsdp) {
        fsdp.on_reduced([&](std::size_t unit) {
          if (unit == 1) throw error;
        });
        EXPECT_THROW(step(fsdp), Error);
      });
    };
    expect(std::runtime_error("seen enough"));
    expect(42);
  }
}

TEST_P(ShardedFailure, DestroyedInTheMiddleOfAStep) {
  for (const Sharding& sharding : {kZero1, kZero3}) {
    one_fails(*this, sharding, [](Fsdp& fsdp) { fsdp.unshard(0); });
    one_fails(*this, sharding, [](Fsdp& fsdp) {
      fsdp.unshard(0);
      fsdp.next_gradient(0);
      fsdp.gradient_done(0);
      fsdp.reduce(0);
    });
  }
}

C10D_ON_EACH_BACKEND(ShardedFailure);

}}  // namespace c10d::parallel
