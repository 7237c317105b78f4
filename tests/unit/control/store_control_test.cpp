// SPDX-License-Identifier: BSD-3-Clause
// The control plane of a group on several hosts: what a rank learns of one that left, and with a
// store that no longer answers.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "c10d/init.h"
#include "src/control/group_formation.h"
#include "src/control/make_control_plane.h"
#include "src/control/store_silence.h"
#include "src/group/group_state.h"
#include "src/recorder/flight_recorder.h"
#include "src/store/pending_requests.h"
#include "src/store/request_store.h"
#include "tests/unit/store/kinds.h"

namespace c10d::test { namespace {

using namespace std::chrono_literals;
using Plane = std::shared_ptr<ControlPlane>;

Deadline after(Duration patience) { return std::chrono::steady_clock::now() + patience; }

enum class Hosts { one, several };

Plane make(int rank, const std::shared_ptr<Store>& store, Hosts hosts, Duration patience) {
  std::vector<Member> members;
  for (int peer = 0; peer < 2; ++peer)
    members.push_back(
        {.rank = peer, .host = "somewhere", .pid = getpid(), .same_host = hosts == Hosts::one});
  return make_control_plane({.rank = rank,
                             .size = 2,
                             .group = "g",
                             .members = members,
                             .store = make_prefix_store("g", store),
                             .token = {},
                             .deadline = after(patience)});
}

std::array<Plane, 2> make_both(const std::shared_ptr<Store>& store, Hosts hosts = Hosts::several,
                               Duration patience = 1h) {
  std::array<Plane, 2> planes;
  std::thread other([&] { planes[1] = make(1, store, hosts, patience); });
  planes[0] = make(0, store, hosts, patience);
  other.join();
  return planes;
}

// Whether the group breaks soon: the monitor looks by itself.
bool breaks(const Plane& plane) {
  const Deadline end = after(30s);
  while (!plane->broken() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(10ms);
  return plane->broken();
}

// Whether rank 0's group breaks when rank 1 leaves while rank 0 waits in a recv from it.
bool breaks_when_the_sender_leaves(const std::array<Plane, 2>& planes) {
  const Op op = Recv{{}, 1, 0};
  const auto start = after(-1h).time_since_epoch() / 1ns;
  const auto record = start_record(planes[0]->own_block(), 1, signature_of(op, 2), start);
  planes[1]->leave();
  const bool broke = breaks(planes[0]);
  finish_record(planes[0]->own_block(), record, false, steady_ns());
  return broke;
}

// A call on a GPU, as the funnel makes it before the backend enqueues the op.
class OnGpu {
 public:
  explicit OnGpu(const Plane& plane) : plane_(plane) {
    const Signature signature = signature_of(op_, 2);
    const Call call{op_, 1, hash_of(signature), after(1h), false, 0};
    plane->own_block().submitted = 1;
    record_ = start_record(plane->own_block(), 1, signature, steady_ns());
    EXPECT_EQ(plane->announce_in_order(call, signature), nullptr);
  }
  ~OnGpu() { finish_record(plane_->own_block(), record_, false, steady_ns()); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

 private:
  const View memory_{nullptr, 0, DType::f32, Device{DeviceType::cuda, 0}};
  const Op op_ = AllReduce{memory_, memory_, {}};
  const Plane& plane_;
  std::uint64_t record_ = 0;
};

TEST(CallsOnGpusOfSeveralHosts, ARankThatLeftBeforeTheCallIsNamed) {
  const auto planes = make_both(make_hash_store(1h));
  const OnGpu call(planes[0]);
  planes[1]->leave();
  ASSERT_TRUE(breaks(planes[0]));
  EXPECT_EQ(planes[0]->failure()->code, Code::peer_left);
  EXPECT_EQ(planes[0]->failure()->rank, 1);
  for (const Plane& plane : planes) unwatch(*plane);
}

// It has made the call, so nothing is wrong.
TEST(CallsOnGpusOfSeveralHosts, ARankMayLeaveAfterItsLastCall) {
  const auto planes = make_both(make_hash_store(1h));
  const OnGpu call(planes[0]);
  {
    const OnGpu last(planes[1]);
    planes[1]->leave();
    unwatch(*planes[1]);
  }
  const Deadline end = after(30s);
  while (planes[0]->poll_enqueued(1) == Control::Agreement::pending &&
         std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
  EXPECT_EQ(planes[0]->poll_enqueued(1), Control::Agreement::agreed);
  unwatch(*planes[0]);
}

TEST(CallsOnGpusOfSeveralHosts, ARowThatNoRankCanHaveWrittenIsNamed) {
  const std::string too_far(8, '\x7f'), short_one = "abc";
  std::string half(8 + 63, '\0');
  half[0] = 1;
  for (const std::string& row : {too_far, short_one, half}) {
    const auto store = make_hash_store(1h);
    const auto planes = make_both(store);
    store->set("g/calls/1", row);
    const OnGpu call(planes[0]);
    ASSERT_TRUE(breaks(planes[0]));
    EXPECT_EQ(planes[0]->failure()->code, Code::corrupt);
    EXPECT_EQ(planes[0]->failure()->rank, 1);
    for (const Plane& plane : planes) unwatch(*plane);
  }
}

// Rank 0 has no room for a thread; rank 1 learns why rank 0 does not arrive.
TEST(GroupFormation, AThreadThatCannotStartIsANamedErrorOnEveryRank) {
  const auto store = make_hash_store(1h);
  const auto options_of = [&](int rank) {
    return ControlOptions{.rank = rank, .size = 2, .group = "g", .members = {}, .store = store};
  };
  const ControlOptions first = options_of(0), second = options_of(1);
  GroupFormation formation(first);
  const auto thrown =
      formation.attempt([] { throw std::system_error(EAGAIN, std::generic_category()); });
  ASSERT_NE(thrown, nullptr);
  const Failure mine = *formation.fail(*thrown);
  const auto theirs = GroupFormation(second).failure();
  ASSERT_NE(theirs, nullptr);
  for (const Failure& failure : {mine, *theirs}) {
    EXPECT_EQ(failure.code, Code::out_of_resources);
    EXPECT_EQ(failure.rank, 0);
    EXPECT_NE(failure.message.find("raise ulimit -u"), std::string::npos) << failure.message;
  }
}

// Its ranks have other numbers there: one that is no member has none here.
TEST(GroupFormation, AFailureOfTheParentEndsItInTheGroupsOwnWords) {
  for (const int culprit : {0, 1}) {
    const auto planes = make_both(make_hash_store(1h));
    const ControlOptions options{.rank = 0,
                                 .size = 1,
                                 .group = "part",
                                 .members = {},
                                 .store = make_hash_store(1h),
                                 .parent = planes[1].get(),
                                 .parent_ranks = {1}};
    GroupFormation formation(options);
    EXPECT_EQ(formation.failure(), nullptr);
    planes[1]->fail({.code = Code::revoked, .message = "enough", .rank = culprit});
    const auto failure = formation.failure();
    ASSERT_NE(failure, nullptr);
    EXPECT_EQ(failure->code, Code::revoked);
    EXPECT_EQ(failure->rank, culprit == 1 ? 0 : -1);
    EXPECT_EQ(failure->group, "part");
    EXPECT_NE(failure->message.find("enough"), std::string::npos) << failure->message;
    for (const Plane& plane : planes) unwatch(*plane);
  }
}

TEST(StoreControl, ARankThatLeftIsNotWaitedFor) {
  const auto planes = make_both(make_hash_store(1h));
  EXPECT_TRUE(planes[0]->ranks_that_left().empty());
  planes[1]->leave();
  EXPECT_EQ(planes[0]->ranks_that_left(), std::vector{1});
  const auto failure = planes[0]->barrier(after(1h));
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->code, Code::peer_left);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_NE(failure->message.find("left the group"), std::string::npos) << failure->message;
  for (const Plane& plane : planes) unwatch(*plane);
}

TEST(StoreControl, WhatARankDidBeforeItLeftCounts) {
  const auto planes = make_both(make_hash_store(1h));
  std::thread other([&] {
    EXPECT_EQ(planes[1]->barrier(after(1h)), nullptr);
    planes[1]->leave();
  });
  EXPECT_EQ(planes[0]->barrier(after(1h)), nullptr);
  other.join();
  EXPECT_FALSE(planes[0]->broken());
  for (const Plane& plane : planes) unwatch(*plane);
}

// A group of this process, of a child that only waits, and of a rank on another host.
class GroupWithChild {
 public:
  GroupWithChild() {
    if (child_ == 0) {
      pause();
      _exit(0);
    }
    for (const char* const beat : {"beat/1", "beat/2"}) store_->set(beat, "0");
    plane_ = make_control_plane(
        {.rank = 0,
         .size = 3,
         .group = "g",
         .members = {{.rank = 0, .host = "here", .pid = getpid(), .same_host = true},
                     {.rank = 1, .host = "here", .pid = child_, .same_host = true},
                     {.rank = 2, .host = "elsewhere", .pid = getpid(), .same_host = false}},
         .store = store_,
         .token = {},
         .deadline = after(1h)});
  }
  ~GroupWithChild() {
    unwatch(*plane_);
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  GroupWithChild(const GroupWithChild&) = delete;
  GroupWithChild& operator=(const GroupWithChild&) = delete;

  const Plane& plane() const { return plane_; }
  Store& store() { return *store_; }
  // Returns once the child has ended.
  void kill_child() {
    kill(child_, SIGKILL);
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOWAIT);
  }

 private:
  const std::shared_ptr<Store> store_ = make_prefix_store("g", make_hash_store(1h));
  const pid_t child_ = fork();
  Plane plane_;
};

void expect_child_died(const Plane& plane) {
  const auto failure = plane->failure();
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->code, Code::peer_died);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_NE(failure->message.find("ended without leaving"), std::string::npos) << failure->message;
}

// Long before its heartbeats are missed.
TEST(StoreControl, ARankOfThisHostThatDiedIsNamed) {
  GroupWithChild group;
  EXPECT_FALSE(group.plane()->broken());
  group.kill_child();
  EXPECT_TRUE(breaks(group.plane()));
  expect_child_died(group.plane());
}

// Another group may have told its program of the death: the others then wait here for both.
TEST(StoreControl, ARankThatLeavesNamesTheDeadRankOfItsHostFirst) {
  GroupWithChild group;
  group.kill_child();
  group.plane()->leave();
  EXPECT_TRUE(group.store().try_get("cause", 1h));
  expect_child_died(group.plane());
}

TEST(StoreControl, ARankThatLeftSendsNothingMore) {
  const auto planes = make_both(make_hash_store(1h));
  EXPECT_TRUE(breaks_when_the_sender_leaves(planes));
  const auto failure = planes[0]->failure();
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->code, Code::peer_left);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_NE(failure->message.find("recv #1"), std::string::npos) << failure->message;
  for (const Plane& plane : planes) unwatch(*plane);
}

// Else the one monitor thread of the process, and an abort, would wait as long as the store may.
TEST(StoreControl, AStoreThatDoesNotAnswerDelaysNoFailure) {
  const TemporaryFile file;
  const auto planes = make_both(make_file_store(file.path(), 0, 1h));
  const HeldLock lock(file.path());
  const auto failure = planes[0]->fail({.code = Code::revoked, .message = "enough"});
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->code, Code::revoked);
  for (const Plane& plane : planes) unwatch(*plane);
}

// In memory; while it is silent it answers nothing, whatever the deadline.
class StoreWithPauses final : public RequestStore<Store> {
 public:
  StoreWithPauses() : RequestStore(1h), engine_({}) {}

  void be_silent(bool silent) {
    const std::lock_guard lock(mutex_);
    silent_ = silent;
    changed_.notify_all();
  }
  // Returns once so many calls wait for an answer.
  bool await_calls(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 30s, [&] { return waiting_ >= count; });
  }
  // What this thread has asked for, in order.
  std::vector<StoreOp> asked_here() {
    const std::lock_guard lock(mutex_);
    return asked_[std::this_thread::get_id()];
  }
  // The most time that a call had.
  Duration longest() {
    const std::lock_guard lock(mutex_);
    return longest_;
  }

 private:
  Reply perform(const Request& request, Deadline deadline) override {
    std::unique_lock lock(mutex_);
    longest_ = std::max<Duration>(longest_, deadline - std::chrono::steady_clock::now());
    asked_[std::this_thread::get_id()].push_back(request.op);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !silent_; });
    --waiting_;
    std::optional<Reply> answer;
    engine_.submit(request, deadline, [&](Reply reply) {
      answer = std::move(reply);
      changed_.notify_all();
    });
    while (!answer) {
      changed_.wait_for(lock, 1ms);
      engine_.expire(std::chrono::steady_clock::now());
    }
    return *std::move(answer);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool silent_ = false;
  int waiting_ = 0;
  std::map<std::thread::id, std::vector<StoreOp>> asked_;
  Duration longest_{};
  Engine engine_;
};

// In memory; takes what it is told, but leaves the next so many questions without an answer.
class StoreThatStutters final : public RequestStore<Store> {
 public:
  StoreThatStutters() : RequestStore(1h), engine_({}) {}

  void ignore(int questions) {
    const std::lock_guard lock(mutex_);
    ignored_ = questions;
  }
  // Returns once it answers again.
  bool await_answers() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 30s, [&] { return ignored_ == 0; });
  }

 private:
  Reply perform(const Request& request, Deadline) override {
    const std::lock_guard lock(mutex_);
    const bool asks = request.op == StoreOp::try_get || request.op == StoreOp::multi_get;
    if (asks && ignored_ > 0) {
      --ignored_;
      changed_.notify_all();
      return timed_out(request.keys);
    }
    Reply answer;
    engine_.submit(request, {}, [&](Reply reply) { answer = std::move(reply); });
    engine_.expire(std::chrono::steady_clock::now());
    return answer;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int ignored_ = 0;
  Engine engine_;
};

// Who gave up would do so alone, where the others have read that all have come.
TEST(StoreControl, ARankThatWaitsInACallOutlivesASilenceOfTheStore) {
  const auto store = std::make_shared<StoreThatStutters>();
  const auto planes = make_both(store);
  const Op op = Barrier{};
  const Call call{op, 1, hash_of(signature_of(op, 2)), after(1h), false, 0};
  const auto calls = [&](int rank) {
    return [&, rank] { return planes[rank]->agree(call, Control::Waiting::sleep); };
  };
  const auto passes = [&](int rank) {
    return [&, rank] { return planes[rank]->barrier(after(1h)); };
  };
  const auto expect_both = [&](const auto& enters) {
    store->ignore(20);
    auto first = std::async(std::launch::async, enters(0));
    EXPECT_TRUE(store->await_answers());
    EXPECT_EQ(enters(1)(), nullptr);
    EXPECT_EQ(first.get(), nullptr);
  };
  expect_both(calls);
  expect_both(passes);
  for (const Plane& plane : planes) unwatch(*plane);
}

// Who gives an op a deadline waits no longer for a store either, however patient that is by itself.
TEST(GroupsOfAStore, GiveEveryRequestTheDeadlineOfTheCall) {
  const auto store = std::make_shared<StoreWithPauses>();
  const auto rank = [&](int me) {
    ProcessGroup world = init_process_group({.backend = "native",
                                             .store = store,
                                             .rank = me,
                                             .size = 2,
                                             .timeout = 5min,
                                             .connect_timeout = 5min});
    ProcessGroup both = world.new_group(std::array{0, 1});
    ProcessGroup alone = both.split(me);
    both.allocate<float>(16);
    both.monitored_barrier();
    for (ProcessGroup* group : {&alone, &both, &world}) group->shutdown();
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
  for (const Plane& plane : make_both(store, Hosts::several, 5min)) {
    plane->fail({.code = Code::revoked, .message = "enough"});
    plane->leave();
    unwatch(*plane);
  }
  EXPECT_LE(store->longest(), 5min);
}

// Of the groups of this process, each looks at its ranks as if it were alone.
TEST(StoreControl, AStoreThatDoesNotAnswerDelaysNoOtherGroup) {
  std::vector<std::shared_ptr<StoreWithPauses>> stores(5);
  std::vector<std::array<Plane, 2>> held;
  for (auto& store : stores) held.push_back(make_both(store = std::make_shared<StoreWithPauses>()));
  const auto of_one_host = make_both(make_hash_store(1h), Hosts::one);
  const auto of_several = make_both(make_hash_store(1h));
  for (const auto& store : stores) store->be_silent(true);
  for (const auto& store : stores) EXPECT_TRUE(store->await_calls(2));
  for (const auto& planes : {of_one_host, of_several})
    EXPECT_TRUE(breaks_when_the_sender_leaves(planes));
  auto ended = std::async(std::launch::async, [&] {
    for (const auto& planes : {of_one_host, of_several})
      for (const Plane& plane : planes) unwatch(*plane);
  });
  EXPECT_EQ(ended.wait_for(30s), std::future_status::ready);
  for (const auto& store : stores) store->be_silent(false);
  ended.wait();
  for (const auto& planes : held)
    for (const Plane& plane : planes) {
      EXPECT_FALSE(plane->broken());
      unwatch(*plane);
    }
}

// Runs nothing; its ops end when the test ends them.
class IdleBackend final : public Backend {
 public:
  explicit IdleBackend(WorkSource source) : source_(std::move(source)) {}
  Support supports(const Query&) const override { return {}; }
  Work launch(const Call&) override { return source_.work(); }
  std::unique_ptr<Backend> new_group(BackendContext, const std::vector<int>&) override {
    return nullptr;
  }
  void abort() noexcept override {}
  void shutdown(Deadline) override {}
  std::string description() const override { return "idle"; }

 private:
  const WorkSource source_;
};

// A call waits for as many answers as it takes requests.
TEST(StoreControl, ACallThatAllHaveMadeTakesTwoRequests) {
  constexpr std::uint64_t kCalls = 5;
  const auto store = std::make_shared<StoreWithPauses>();
  const auto planes = make_both(store);
  const Op op = Barrier{};
  const std::uint64_t hash = hash_of(signature_of(op, 2));
  for (std::uint64_t sequence = 1; sequence <= kCalls; ++sequence)
    planes[1]->announce({op, sequence, hash, after(1h), false, 0});
  std::thread([&] {
    for (std::uint64_t sequence = 1; sequence <= kCalls; ++sequence) {
      const auto before = store->asked_here().size();
      const Call call{op, sequence, hash, after(1h), false, 0};
      EXPECT_EQ(planes[0]->agree(call, Control::Waiting::sleep), nullptr);
      const auto asked = store->asked_here();
      EXPECT_EQ(std::vector(asked.begin() + static_cast<std::ptrdiff_t>(before), asked.end()),
                (std::vector{StoreOp::compare_set, StoreOp::multi_get}));
    }
  }).join();
  for (const Plane& plane : planes) unwatch(*plane);
}

// The keys of older calls go by and by.
TEST(StoreControl, WhatAllHaveReadIsDeleted) {
  const auto store = make_hash_store(1h);
  const auto planes = make_both(store);
  const auto keys = store->num_keys();
  const Op op = Barrier{};
  const std::uint64_t hash = hash_of(signature_of(op, 2));
  for (std::uint64_t sequence = 1; sequence <= 20; ++sequence)
    for (const Plane& plane : planes) plane->announce({op, sequence, hash, after(1h), false, 0});
  for (const Plane& plane : planes) plane->leave();
  EXPECT_LE(store->num_keys(), keys + 2 * 2);
  for (const Plane& plane : planes) unwatch(*plane);
}

// Whoever hears of the failure finds it in the record, and the group broken.
TEST(StoreControl, AnAsyncFailureIsHeardOfWhenAllIsWritten) {
  const auto store = std::make_shared<StoreWithPauses>();
  const std::vector<Member> members{
      {.rank = 0, .host = "somewhere", .pid = getpid(), .same_host = false}};
  const Plane plane = make_control_plane({.rank = 0,
                                          .size = 1,
                                          .group = "g",
                                          .members = members,
                                          .store = store,
                                          .token = {},
                                          .deadline = after(1h)});
  const WorkSource source;
  BackendContext context;
  context.group = "g";
  context.members = members;
  context.store = store;
  context.control = plane;
  context.timeout = 1h;
  ProcessGroup group = detail::GroupState::group_of(std::make_shared<detail::GroupState>(
      std::move(context), "idle", plane, std::make_unique<IdleBackend>(source)));
  std::array<float, 1> data{};
  const Work work = group.async().all_reduce(data);
  store->be_silent(true);
  std::thread other([&] { source.fail({.code = Code::backend_error, .message = "a bug"}); });
  EXPECT_TRUE(store->await_calls(2));  // of a look, and to tell the peers
  EXPECT_FALSE(work.done());
  store->be_silent(false);
  other.join();
  EXPECT_EQ(work.state(), WorkState::failed);
  EXPECT_EQ(work.failure()->op, "all_reduce");
  EXPECT_EQ(group.failure()->message, "a bug");
  std::vector<Record::State> states;
  visit_records(plane->own_block(),
                [&](const Recorded& record) { states.push_back(record.state); });
  EXPECT_EQ(states, std::vector{Record::failed});
}

// And an abort waits for no store at all.
TEST(StoreControl, WhatAStoreDidNotTakeIsToldOnceItAnswers) {
  const auto fail = [](ControlPlane& plane, bool aborts) {
    const Failure failure{.code = Code::revoked, .message = "enough"};
    return aborts ? plane.revoke(failure) : plane.fail(failure);
  };
  for (const bool aborts : {true, false}) {
    const TemporaryFile file;
    const auto planes = make_both(make_file_store(file.path(), 0, 1h));
    {
      const HeldLock lock(file.path());
      EXPECT_EQ(fail(*planes[0], aborts)->message, "enough");
    }
    ASSERT_TRUE(breaks(planes[1])) << aborts;
    EXPECT_EQ(planes[1]->failure()->code, Code::revoked);
    EXPECT_EQ(planes[1]->failure()->message, "enough");
    for (const Plane& plane : planes) unwatch(*plane);
  }
}

TEST(StoreSilence, IsLongAfterTimeThatThisRankSawPass) {
  using std::chrono::seconds;
  StoreSilence silence;
  StoreSilence::Time now{};
  silence.end(now);
  EXPECT_FALSE(silence.is_long(now += seconds(2)));
  EXPECT_FALSE(silence.is_long(now += seconds(1000))) << "stopped meanwhile: counts as 3 s";
  EXPECT_TRUE(silence.is_long(now += seconds(2)));
  silence.end(now += seconds(1));
  EXPECT_FALSE(silence.is_long(now += seconds(2))) << "it has answered";
}

TEST(StoreSilence, NamesTheRanksOfOtherHosts) {
  const std::vector<Member> members = {{.rank = 0, .host = "a", .pid = 1, .same_host = false},
                                       {.rank = 1, .host = "a", .pid = 2, .same_host = false},
                                       {.rank = 2, .host = "b", .pid = 3, .same_host = true},
                                       {.rank = 3, .host = "c", .pid = 4, .same_host = false}};
  const Failure failure = store_is_silent("g", members, "no route");
  EXPECT_EQ(failure.code, Code::store_lost);
  EXPECT_NE(failure.message.find("with ranks 0, 1, 3 on other hosts"), std::string::npos)
      << failure.message;
  EXPECT_NE(failure.message.find("no route"), std::string::npos);
}

}}  // namespace c10d::test
