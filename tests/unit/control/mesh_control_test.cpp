// SPDX-License-Identifier: BSD-3-Clause
// The control plane of a group on several hosts: what a rank learns of one that left or died, and
// what it does with a store that no longer answers.
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
#include "src/base/failure_text.h"
#include "src/control/flood.h"
#include "src/control/group_formation.h"
#include "src/control/make_control_plane.h"
#include "src/control/store_silence.h"
#include "src/group/group_state.h"
#include "src/net/mesh/mesh.h"
#include "src/net/mesh/rank_grid.h"
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
        {.rank = peer, .host = "localhost", .pid = getpid(), .same_host = hosts == Hosts::one});
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

TEST(MeshControl, ARankThatLeftIsNotWaitedFor) {
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

TEST(MeshControl, WhatARankDidBeforeItLeftCounts) {
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

// A group of three ranks: two of this process, the second said to be on another host, and between
// them one of a child that only waits.
class GroupWithChild {
 public:
  GroupWithChild() {
    if (child_ == 0) be_child();
    std::thread other([this] { far_ = make_one(2); });
    plane_ = make_one(0);
    other.join();
    store_->wait({"waits"});
  }
  ~GroupWithChild() {
    for (const Plane& plane : {plane_, far_}) unwatch(*plane);
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  GroupWithChild(const GroupWithChild&) = delete;
  GroupWithChild& operator=(const GroupWithChild&) = delete;

  const Plane& plane() const { return plane_; }
  const Plane& far_plane() const { return far_; }
  Store& store() { return *store_; }
  // Returns once the child is stopped.
  void stop_child() {
    kill(child_, SIGSTOP);
    waitpid(child_, nullptr, WUNTRACED);
  }
  // Returns once the child has ended.
  void kill_child() { end_child(SIGKILL); }
  // The same, but the child first says that the group is revoked.
  void let_child_revoke() { end_child(SIGTERM); }
  std::string path_of_store() const { return file_.path(); }

 private:
  // Without a thread: a sanitizer lets a forked process start none.
  [[noreturn]] void be_child() const {
    Mesh mesh({.rank = 1,
               .neighbours = RankGrid(3).neighbours_of(1),
               .role = "mesh",
               .group = "g",
               .token = kToken,
               .address = "127.0.0.1"});
    store_->set("mesh/1", mesh.address());
    store_->set("beat/1", "here");
    store_->wait({"beat/0", "beat/2"});
    mesh.connect([&](int rank) { return store_->get("mesh/" + std::to_string(rank)); }, [] {},
                 after(1h));
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, nullptr);
    store_->set("waits", "");
    int signal = 0;
    sigwait(&term, &signal);
    mesh.send_to_all(revoke_frame, to_text({.code = Code::revoked, .message = "enough"}));
    _exit(0);
  }

  void end_child(int signal) const {
    kill(child_, signal);
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOWAIT);
  }

  Plane make_one(int rank) const {
    const auto member = [&](int other, std::int64_t pid) {
      return Member{
          .rank = other, .host = "localhost", .pid = pid, .same_host = (other == 2) == (rank == 2)};
    };
    return make_control_plane(
        {.rank = rank,
         .size = 3,
         .group = "g",
         .members = {member(0, getpid()), member(1, child_), member(2, getpid())},
         .store = store_,
         .token = kToken,
         .deadline = after(1h)});
  }

  const TemporaryFile file_;
  const pid_t child_ = fork();
  const std::shared_ptr<Store> store_ =
      make_prefix_store("g", make_file_store(file_.path(), 0, 1h));
  Plane plane_, far_;
};

void expect_child_died(const Plane& plane) {
  const auto failure = plane->failure();
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->code, Code::peer_died);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_NE(failure->message.find("ended without leaving"), std::string::npos) << failure->message;
}

TEST(MeshControl, ARankThatDiedIsNamedOnItsHostAndElsewhere) {
  GroupWithChild group;
  EXPECT_FALSE(group.plane()->broken());
  group.kill_child();
  for (const Plane& plane : {group.plane(), group.far_plane()}) {
    EXPECT_TRUE(breaks(plane));
    expect_child_died(plane);
  }
}

// It is late, and will come.
TEST(MeshControl, ARankThatIsStoppedBreaksNothing) {
  GroupWithChild group;
  group.stop_child();
  const Deadline end = after(3s);  // twice as long as a host may be silent
  while (std::chrono::steady_clock::now() < end && !group.far_plane()->broken())
    std::this_thread::sleep_for(10ms);
  const auto failure = group.far_plane()->failure();
  EXPECT_EQ(failure, nullptr) << failure->message;
}

// Another group may have told its program of the death: the others then wait here for both.
TEST(MeshControl, ARankThatLeavesNamesTheDeadRankOfItsHostFirst) {
  GroupWithChild group;
  group.kill_child();
  group.plane()->leave();
  EXPECT_TRUE(group.store().try_get("cause", 1h));
  expect_child_died(group.plane());
}

// The store says nothing, and nobody has read yet what the child said.
TEST(MeshControl, WhatARankSaidBeforeItEndedCounts) {
  GroupWithChild group;
  unwatch(*group.plane());
  const HeldLock lock(group.path_of_store());
  group.let_child_revoke();
  group.plane()->leave();
  const auto failure = group.plane()->failure();
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->code, Code::revoked) << failure->message;
}

TEST(MeshControl, ARankThatLeftSendsNothingMore) {
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
TEST(MeshControl, AStoreThatDoesNotAnswerDelaysNoFailure) {
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

// Calls and barriers go from rank to rank.
TEST(MeshControl, CallsNeedNoStore) {
  const auto store = std::make_shared<StoreWithPauses>();
  const auto planes = make_both(store);
  const Op op = Barrier{};
  const auto enter = [&](int rank) {
    for (std::uint64_t sequence = 1; sequence <= 5; ++sequence) {
      const Call call{op, sequence, hash_of(signature_of(op, 2)), after(1h), false, 0};
      EXPECT_EQ(planes[rank]->agree(call, Control::Waiting::sleep), nullptr);
      EXPECT_EQ(planes[rank]->barrier(after(1h)), nullptr);
    }
  };
  store->be_silent(true);
  auto first = std::async(std::launch::async, [&] { enter(0); });
  enter(1);
  first.get();
  store->be_silent(false);
  for (const Plane& plane : planes) unwatch(*plane);
}

// Who leaves then serves no store any more: its word goes from rank to rank, too.
TEST(MeshControl, ARankIsKnownToHaveLeftWithoutAStore) {
  const auto store = std::make_shared<StoreWithPauses>();
  const auto planes = make_both(store);
  store->be_silent(true);
  auto leaving = std::async(std::launch::async, [&] { planes[1]->leave(); });
  const Deadline end = after(30s);
  while (planes[0]->ranks_that_left().empty() && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
  EXPECT_EQ(planes[0]->ranks_that_left(), std::vector{1});
  store->be_silent(false);
  leaving.get();
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
TEST(MeshControl, AStoreThatDoesNotAnswerDelaysNoOtherGroup) {
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

// Whoever hears of the failure finds it in the record, and the group broken.
TEST(MeshControl, AnAsyncFailureIsHeardOfWhenAllIsWritten) {
  const auto store = std::make_shared<StoreWithPauses>();
  const std::vector<Member> members{
      {.rank = 0, .host = "localhost", .pid = getpid(), .same_host = false}};
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
  const Deadline end = after(30s);
  while (!work.done() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_NE(group.failure(), nullptr);
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
TEST(MeshControl, WhatAStoreDidNotTakeIsToldOnceItAnswers) {
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
