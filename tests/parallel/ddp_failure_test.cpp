// SPDX-License-Identifier: BSD-3-Clause
// Mistakes and failures of one rank: what every rank hears of them.
#include <gmock/gmock.h>

#include "c10d/parallel/ddp.h"
#include "tests/contract/ranks.h"

namespace c10d::parallel { namespace {

using contract::OnBackend;
using testing::AllOf;
using testing::HasSubstr;
using DdpFailureOn = OnBackend;

constexpr int kSize = 3;
constexpr int kCulprit = 1;

std::vector<ParamSpec> params() {
  return {{.name = "a", .shape = {4}}, {.name = "b", .shape = {2, 3}}};
}

// One bucket per parameter: "b" leaves first.
constexpr ReducerOptions kOptions{.first_bucket_bytes = 1, .bucket_bytes = 1};

struct Heard {
  bool own_mistake = false;  // InvalidArgument
  bool from_group = false;   // DistError
  std::string text;
};

Heard heard_from(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return {.own_mistake = true, .text = error.what()};
  } catch (const DistError& error) {
    return {.from_group = true, .text = error.what()};
  } catch (const std::exception& error) {
    return {.text = error.what()};
  }
  return {.text = "nothing was thrown"};
}

void right_step(Reducer& reducer) {
  reducer.begin_step({.samples = 1});
  reducer.mark_unused(1);
  reducer.mark_unused(0);
  reducer.finish();
}

// One good step; then the culprit makes its mistake while the others take a right step. All stay
// until all have heard. What comes before the mistake is over on all ranks: a failure may end any
// call that is under way.
void one_is_wrong(const OnBackend& on, const std::function<void(Reducer&)>& mistake,
                  const testing::Matcher<std::string>& text) {
  contract::Latch ready(kSize), heard(kSize);
  on.run(kSize, [&](ProcessGroup& group) {
    Reducer reducer(group, params(), kOptions);
    right_step(reducer);
    ready.arrive_and_wait();
    const bool culprit = group.rank() == kCulprit;
    const Heard first = heard_from([&] { culprit ? mistake(reducer) : right_step(reducer); });
    EXPECT_EQ(first.own_mistake, culprit) << first.text;
    EXPECT_EQ(first.from_group, !culprit) << first.text;
    EXPECT_THAT(first.text, text);
    EXPECT_EQ(heard_from([&] { reducer.begin_step({.samples = 1}); }).text, first.text);
    heard.arrive_and_wait();
    EXPECT_THAT(heard_from([&] { group.barrier(); }).text, text);
  });
}

TEST_P(DdpFailureOn, ReadyTwice) {
  const auto mistake = [](Reducer& reducer) {
    reducer.begin_step({.samples = 1});
    reducer.mark_ready(1);
    reducer.mark_ready(1);
    reducer.mark_ready(0);
    reducer.finish();
  };
  one_is_wrong(*this, mistake,
               AllOf(HasSubstr("parameter 1 (b) was marked ready too often on rank 1 in step 2"),
                     HasSubstr("2 parameters")));
}

TEST_P(DdpFailureOn, ReadyOfAnUnknownParameter) {
  const auto mistake = [](Reducer& reducer) {
    reducer.begin_step({.samples = 1});
    reducer.mark_ready(7);
    reducer.finish();
  };
  one_is_wrong(*this, mistake, HasSubstr("parameter 7 (?) does not exist on rank 1"));
}

TEST_P(DdpFailureOn, ReadyMissing) {
  const auto mistake = [](Reducer& reducer) {
    reducer.begin_step({.samples = 1});
    reducer.mark_ready(1);
    reducer.finish();
  };
  one_is_wrong(*this, mistake,
               HasSubstr("parameters without a gradient on rank 1 in step 2: a; each needs"));
}

TEST_P(DdpFailureOn, ReadyOutsideOfAStep) {
  const auto mistake = [](Reducer& reducer) {
    reducer.mark_ready(0);
    right_step(reducer);
  };
  one_is_wrong(*this, mistake,
               HasSubstr("parameter 0 (a) was marked ready outside of begin_step()"));
}

TEST_P(DdpFailureOn, BeginTwice) {
  const auto mistake = [](Reducer& reducer) {
    reducer.begin_step({.samples = 1});
    reducer.begin_step({.samples = 1});
  };
  one_is_wrong(*this, mistake, HasSubstr("begin_step() on rank 1 in step 2, before finish()"));
}

TEST_P(DdpFailureOn, FinishWithoutBegin) {
  const auto mistake = [](Reducer& reducer) { reducer.finish(); };
  one_is_wrong(*this, mistake, HasSubstr("finish() without begin_step() on rank 1"));
}

TEST_P(DdpFailureOn, NegativeSamples) {
  const auto mistake = [](Reducer& reducer) { reducer.begin_step({.samples = -4}); };
  one_is_wrong(*this, mistake, HasSubstr("begin_step() with -4 samples on rank 1"));
}

// Each rank hears of its own mistake first.
TEST_P(DdpFailureOn, MissingOnAllRanks) {
  contract::Latch ready(kSize);
  run(kSize, [&](ProcessGroup& group) {
    Reducer reducer(group, params(), kOptions);
    ready.arrive_and_wait();
    reducer.begin_step({.samples = 1});
    reducer.mark_ready(0);
    const Heard heard = heard_from([&] { reducer.finish(); });
    EXPECT_TRUE(heard.own_mistake);
    EXPECT_THAT(heard.text,
                HasSubstr("on rank " + std::to_string(group.rank()) + " in step 1: b; each needs"));
  });
}

TEST_P(DdpFailureOn, HookThrows) {
  contract::Latch done(kSize);
  run(kSize, [&](ProcessGroup& group) {
    Reducer reducer(group, params(), kOptions);
    reducer.set_hook([](ProcessGroup& own, const Bucket& bucket) {
      if (own.rank() == kCulprit) throw std::runtime_error("the hook has no memory left");
      own.all_reduce(bucket.gradient);
    });
    const Heard heard = heard_from([&] { right_step(reducer); });
    EXPECT_FALSE(heard.own_mistake);
    EXPECT_EQ(heard.from_group, group.rank() != kCulprit);
    EXPECT_THAT(heard.text, HasSubstr("the hook has no memory left"));
    done.arrive_and_wait();
    EXPECT_THAT(heard_from([&] { group.barrier(); }).text, HasSubstr("no memory left"));
  });
}

// The last bucket's callback: all others may have finished the step, and hear in the next one.
TEST_P(DdpFailureOn, CallbackThrows) {
  contract::Latch done(kSize);
  run(kSize, [&](ProcessGroup& group) {
    Reducer reducer(group, params(), kOptions);
    reducer.on_bucket_done([&](const Bucket& bucket) {
      if (group.rank() == kCulprit && bucket.index == 1)
        throw std::runtime_error("the optimizer has no state");
    });
    const Heard heard = heard_from([&] {
      right_step(reducer);
      right_step(reducer);
    });
    EXPECT_THAT(heard.text, HasSubstr("the optimizer has no state"));
    done.arrive_and_wait();
  });
}

// The first bucket's use: the others may be through with it, and hear in the second one or in the
// next step. The culprit uses no more.
TEST_P(DdpFailureOn, UseThrows) {
  contract::Latch done(kSize);
  run(kSize, [&](ProcessGroup& group) {
    Reducer reducer(group, params(), kOptions);
    int used = 0;
    const auto step = [&] {
      reducer.begin_step({.samples = 1});
      reducer.mark_unused(1);
      reducer.mark_unused(0);
      reducer.finish([&](const Bucket&) {
        ++used;
        if (group.rank() == kCulprit) throw std::runtime_error("the optimizer has no state");
      });
    };
    const Heard heard = heard_from([&] {
      step();
      step();
    });
    EXPECT_EQ(heard.from_group, group.rank() != kCulprit);
    EXPECT_THAT(heard.text, HasSubstr("the optimizer has no state"));
    if (group.rank() == kCulprit) {
      EXPECT_EQ(used, 1);
    }
    done.arrive_and_wait();
    EXPECT_THAT(heard_from([&] { group.barrier(); }).text, HasSubstr("has no state"));
  });
}

TEST_P(DdpFailureOn, DestroyedInTheMiddleOfAStep) {
  contract::Latch ready(kSize), done(kSize);
  run(kSize, [&](ProcessGroup& group) {
    {
      Reducer reducer(group, params(), kOptions);
      ready.arrive_and_wait();
      reducer.begin_step({.samples = 1});
      if (group.rank() != kCulprit) {
        reducer.mark_unused(0);
        reducer.mark_unused(1);
        const Heard heard = heard_from([&] { reducer.finish(); });
        EXPECT_TRUE(heard.from_group);
        EXPECT_THAT(heard.text, HasSubstr("rank 1 in step 1 was destroyed before finish()"));
      }
    }
    done.arrive_and_wait();
    contract::expect_usable(group);  // the caller's group is none of the reducer's
  });
}

// Rank 0, whose order of buckets the next begin_step() takes, has left: that call fails on the
// others, and so do all calls after it, finish() too. That is no mistake of theirs: the caller's
// group goes on.
TEST_P(DdpFailureOn, BeginThatFailsIsTheCauseOfAllThatFollows) {
  contract::Latch stepped(kSize), done(kSize);
  run(kSize, [&](ProcessGroup& group) {
    {
      Reducer reducer(group, params(), kOptions);
      right_step(reducer);
      stepped.arrive_and_wait();
      if (group.rank() != 0) {
        const Heard first = heard_from([&] { reducer.begin_step({.samples = 1}); });
        EXPECT_TRUE(first.from_group) << first.text;
        for (int i = 0; i < 2; ++i) {
          EXPECT_EQ(heard_from([&] { reducer.finish(); }).text, first.text);
          EXPECT_EQ(heard_from([&] { reducer.begin_step({.samples = 1}); }).text, first.text);
        }
      }
    }
    done.arrive_and_wait();
    contract::expect_usable(group);
  });
}

// All ranks hear the same, and the group goes on.
void disagree(const OnBackend& on, std::vector<ParamSpec> other, const std::string& text,
              ReducerOptions options = kOptions, bool culprit_knows = false) {
  on.run(kSize, [&](ProcessGroup& group) {
    const bool culprit = group.rank() == kCulprit;
    const Heard heard = heard_from([&] {
      if (culprit)
        Reducer(group, other, options);
      else
        Reducer(group, params(), kOptions);
    });
    EXPECT_EQ(heard.own_mistake, culprit && culprit_knows);
    EXPECT_THAT(heard.text, HasSubstr(text));
    contract::expect_usable(group);
  });
}

TEST_P(DdpFailureOn, ConstructionNamesTheFirstDifference) {
  auto other = params();
  other[1].shape = {3, 2};
  disagree(*this, other, "parameter 1 is b f32 [2, 3] on rank 0, and b f32 [3, 2] on rank 1");
  other = params();
  other[0].name = "c";
  disagree(*this, other, "parameter 0 is a f32 [4] on rank 0, and c f32 [4] on rank 1");
  other = params();
  other[0].dtype = DType::f64;
  disagree(*this, other, "and a f64 [4] on rank 1");
  other = params();
  other.pop_back();
  disagree(*this, other, "rank 1 lacks parameter 1, which is b f32 [2, 3] on rank 0");
  other = params();
  other.push_back({.name = "c", .shape = {}});
  disagree(*this, other, "rank 1 has one parameter more than rank 0: 2 is c f32 []");
  disagree(*this, params(), "rank 0 has the options fast, buckets of 1 and 1 bytes, rank 1 has",
           {.first_bucket_bytes = 2, .bucket_bytes = 1});
}

TEST_P(DdpFailureOn, ConstructionRefusesWhatMakesNoSenseOnAllRanks) {
  auto other = params();
  other[1].name = "a";
  disagree(*this, other, "two parameters are named a", kOptions, true);
  other = params();
  other[0].dtype = DType::i32;
  disagree(*this, other, "the gradient of a is i32", kOptions, true);
  disagree(*this, params(), "a bucket of 0 bytes", {.bucket_bytes = 0}, true);
  disagree(*this, params(), "-1 shards", {.mode = ReduceMode::reproducible, .shards = -1}, true);
  other[0].dtype = DType::bf16;
  disagree(*this, other, "the gradient of a is bf16; reproducible sums are f32 or f64",
           {.mode = ReduceMode::reproducible}, true);
}

// A step under no_sync() on one rank: its next step would be summed with an earlier one of others.
TEST_P(DdpFailureOn, RanksInDifferentSteps) {
  contract::Latch heard(kSize);
  run(kSize, [&](ProcessGroup& group) {
    Reducer reducer(group, params(), kOptions);
    if (group.rank() == kCulprit) {
      const auto reduces_nothing = reducer.no_sync();
      right_step(reducer);
    }
    EXPECT_THAT(heard_from([&] { right_step(reducer); }).text,
                AllOf(HasSubstr("ranks reduce different steps"), HasSubstr("no_sync()")));
    heard.arrive_and_wait();
  });
}

TEST_P(DdpFailureOn, ReproducibleModeRefusesWhatEndsItsPromise) {
  run(1, [](ProcessGroup& group) {
    Reducer reducer(group, params(), {.mode = ReduceMode::reproducible});
    EXPECT_THROW(reducer.set_hook([](ProcessGroup&, const Bucket&) {}), InvalidArgument);
    EXPECT_THROW(static_cast<void>(reducer.no_sync()), InvalidArgument);
    EXPECT_THROW(reducer.grad_view(2), InvalidArgument);
    EXPECT_EQ(reducer.grad<float>(0).size_bytes(), reducer.grad_view(0).size());
    EXPECT_THROW(reducer.grad<float>(2), InvalidArgument);
    EXPECT_THROW(reducer.grad<double>(0), InvalidArgument);
    EXPECT_THROW(reducer.grad<std::int32_t>(0), InvalidArgument);
  });
}

C10D_ON_EACH_BACKEND(DdpFailureOn);

}}  // namespace c10d::parallel
