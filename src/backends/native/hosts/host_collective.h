// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "src/backends/common/single_rank.h"
#include "src/backends/native/collectives/collectives.h"
#include "src/backends/native/hosts/host_group.h"
#include "src/backends/native/hosts/schedule.h"
#include "src/sync/fiber.h"

namespace c10d { inline namespace v0 { namespace native {

// One collective of a group over several hosts, as one rank runs it. Functions that return bool say
// whether to continue; after false, failure() says why not.
//
// A rank enters the call, which all ranks agree on, before it waits for the first time: what it can
// send before that is on its way meanwhile. Nothing is received before: if ranks made different
// calls, that is the error.
//
// It goes in stages: an op among the ranks of each host, or blocks between hosts. A rank begins a
// stage in its host when all blocks that it has posted are through, or moves them beside it
// (overlap): so ranks that wait for each other in there keep nobody on another host waiting.
class HostCollective {
 public:
  HostCollective(HostGroup& group, const Call& call) noexcept
      : group_(group), call_(call), use_(group.links()) {}
  HostCollective(const HostCollective&) = delete;
  HostCollective& operator=(const HostCollective&) = delete;

  const Placement& placement() const noexcept { return group_.placement(); }
  const PartialSums& partial_sums() const noexcept { return group_.partial_sums(); }
  const HostPlan& plan() const noexcept { return group_.plan(); }
  int rank() const noexcept { return placement().rank(); }
  int host() const noexcept { return placement().host(); }
  bool is_alone() const noexcept { return group_.team()->size() == 1; }
  const std::shared_ptr<const Failure>& failure() const noexcept { return failure_; }

  // Once all ranks have. The second time it does nothing.
  bool enter();

  // Memory until the end of the op, unless it goes in parts.
  Scratch& scratch() noexcept { return group_.scratch(); }

  // An op among the ranks of this host, of which all run it. Ranks, roots and counts in it are by
  // place.
  template <class T>
  bool stage(const T& op) {
    if (!enter()) return false;
    if (is_alone()) {
      run_alone(op);
      return true;
    }
    const auto run_here = [&] {
      Collective collective(*group_.team(), call_);
      return collective.finish(run(collective, op)) || fail(collective.failure());
    };
    return in_turns_ ? run_here() : use_.without(run_here);
  }

  // Whether stages and blocks of an op of so many bytes, or parts, overlap: fewer are not worth it.
  bool overlaps_bytes(std::size_t bytes) const noexcept {
    constexpr std::size_t kLeast = std::size_t{2} << 20;
    return group_.overlaps() && bytes >= kLeast;
  }
  bool overlaps_parts(std::size_t parts) const noexcept {
    constexpr std::size_t kLeast = 4;
    return group_.overlaps() && parts >= kLeast;
  }
  // Blocks between hosts, and stages in this host: while the one waits, the other goes on, if so
  // many bytes overlap; else the stages follow the blocks.
  using Step = std::function<bool()>;
  bool overlap(std::size_t bytes, const Step& between, const Step& inside);
  // In one of the two: waits for the other one. False: that has failed.
  template <class Ready>
  bool await_other(Ready ready) const {
    for (; !ready(); Fiber::yield(Poll::idle))
      if (gave_up_) return false;
    return true;
  }
  // In one of the two: after what the other one waits for.
  static void give_turn() { Fiber::yield(Poll::busy); }

  // What is done with each part of the data of an op, one part after the other: stages in this
  // host, blocks between hosts, stages. If so many parts overlap, the blocks of one are under way
  // beside the stages of the next one, and of the one before. The memory lasts as long as the part.
  struct Pipeline {
    std::function<bool(std::size_t, Scratch&)> before, between;
    std::function<bool(std::size_t)> after;
  };
  bool run_parts(std::size_t parts, const Pipeline& pipeline);

  // Posts a block to or from a rank on another host. Both ends post the blocks between them in one
  // order. Their memory stays until they are through.
  void send(int rank, const std::byte* from, std::size_t bytes) {
    group_.links().send(rank, from, bytes, call_.sequence);
  }
  void receive(int rank, std::byte* to, std::size_t bytes) {
    group_.links().receive(rank, to, bytes, call_.sequence);
  }
  // How many blocks were posted to and from a rank so far.
  struct Posted {
    std::size_t sends = 0, receives = 0;
  };
  Posted posted(int rank) {
    const Links& links = group_.links();
    return {links.posted_sends(rank), links.posted_receives(rank)};
  }
  // Waits until so many of them are through.
  bool await_blocks(int rank, Posted posted) {
    const Links& links = group_.links();
    return await([&] {
      return links.sent(rank) >= posted.sends && links.received(rank) >= posted.receives;
    });
  }
  // Runs a schedule of messages that hosts pass on whole, over this rank and its twins. out(first,
  // hosts) and in(first, hosts) are the bytes of the inputs of so many neighbouring hosts, to be
  // sent and where they are received.
  template <class Out, class In>
  bool pass(const HostSchedule& schedule, Out out, In in) {
    const Placement& places = placement();
    for (int round = 0; round < schedule.rounds(); ++round) {
      schedule.for_each(places.host(), round, [&](const HostMessage& message) {
        const int peer = places.twin(message.peer);
        for_each_piece(message.hosts, places.hosts(), [&](int first, int hosts) {
          if (message.sent) {
            const std::span<const std::byte> data = out(first, hosts);
            send(peer, data.data(), data.size());
          } else {
            const std::span<std::byte> data = in(first, hosts);
            receive(peer, data.data(), data.size());
          }
        });
      });
      if (!finish_blocks()) return false;
    }
    return true;
  }
  // Waits until the other hosts have what was sent, so that nothing has to be sent again. The last
  // of an op.
  bool settle() {
    return group_.links().settled() || await([&] { return group_.links().settled(); });
  }
  // Waits until all that was posted is through.
  bool finish_blocks() {
    return await([&] { return group_.links().idle(); });
  }

 private:
  template <class Ready>
  bool await(Ready ready) {
    if (!enter()) return false;
    const Links::End end =
        group_.links().await(group_.team()->policy(), group_.control(), call_.deadline, ready);
    return end == Links::End::ready || give_up(end);
  }
  bool take_turns(const Step& between, const Step& inside);
  bool give_up(Links::End end);
  std::shared_ptr<const Failure> cause_of(Failure otherwise) const;
  bool fail(std::shared_ptr<const Failure> failure) noexcept {
    if (!failure_) failure_ = std::move(failure);
    return false;
  }
  void rest(int rests, Deadline& since);

  HostGroup& group_;
  const Call& call_;
  Links::Use use_;
  bool entered_ = false;
  const bool is_async_ = Fiber::running();
  bool in_turns_ = false, gave_up_ = false;  // blocks and stages; one of the two
  std::shared_ptr<const Failure> failure_;
};

// One function per op, in reductions.cpp and movement.cpp.
bool run(HostCollective& collective, const AllReduce& op);
bool run(HostCollective& collective, const Broadcast& op);
bool run(HostCollective& collective, const AllGather& op);
bool run(HostCollective& collective, const AllGatherV& op);
bool run(HostCollective& collective, const ReduceScatter& op);
bool run(HostCollective& collective, const ReduceScatterV& op);
bool run(HostCollective& collective, const Reduce& op);
bool run(HostCollective& collective, const Scan& op);
bool run(HostCollective& collective, const Exscan& op);
bool run(HostCollective& collective, const Gather& op);
bool run(HostCollective& collective, const GatherV& op);
bool run(HostCollective& collective, const Scatter& op);
bool run(HostCollective& collective, const ScatterV& op);
bool run(HostCollective& collective, const AllToAll& op);
bool run(HostCollective& collective, const AllToAllV& op);

// Enters the call with all ranks, and runs its op from beginning to end; null: it is done.
// Point-to-point ops never come here.
std::shared_ptr<const Failure> execute(HostGroup& group, const Call& call) noexcept;

// The algorithms between hosts of such a call, of sums in a reduction; none where it has one way to
// go.
PlanReport report_plan(const HostGroup& group, const PlanQuery& query);

}}}  // namespace c10d::v0::native
