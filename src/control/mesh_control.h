// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/mutex.h"
#include "src/base/timeouts.h"
#include "src/control/call_rows.h"
#include "src/control/control_plane.h"
#include "src/control/dissemination.h"
#include "src/control/flood.h"
#include "src/control/group_formation.h"
#include "src/control/store_silence.h"
#include "src/net/mesh/mesh.h"
#include "src/net/mesh/rank_grid.h"
#include "src/sync/wait.h"

namespace c10d { inline namespace v0 {

// The control plane of ranks on several hosts. A rank tells its neighbours (mesh.h) that it has
// come to a call, that it leaves, and what broke the group; the end of a connection shows a dead
// rank or a lost host. The store brings the ranks together, decides which of several failures was
// first, and carries what is compared behind calls on GPUs.
class MeshControl final : public ControlPlane {
 public:
  explicit MeshControl(const ControlOptions& options);
  ~MeshControl() override { MeshControl::end_polls(); }

  // Returns when all are there, and this rank is linked to its neighbours.
  void join(const ControlOptions& options, GroupFormation& formation);

  std::shared_ptr<const Failure> agree(const Call& call, Waiting waiting) override;
  void announce(const Call& call) override;
  Agreement poll_agreement(const Call& call) override;
  std::size_t most_carried() const noexcept override { return kMostCarried; }
  std::span<const std::byte> carried(int rank) override;
  std::shared_ptr<const Failure> announce_in_order(const Call& call,
                                                   const Signature& signature) override;
  Agreement poll_enqueued(std::uint64_t sequence) override;
  std::shared_ptr<const Failure> fail(Failure failure) override;
  std::shared_ptr<const Failure> revoke(Failure failure) override;
  std::shared_ptr<const Failure> barrier(Deadline deadline) override;
  void leave() noexcept override;
  std::vector<int> ranks_that_left() override;
  void end_polls() noexcept override;
  bool has_left(int peer) const noexcept override { return flood_.has_left(peer); }
  void tick() override;
  // Known of a neighbour only.
  bool is_silent(int rank) const noexcept override;
  void look_for_evidence() override;

 private:
  // How a rank enters a call, or passes a barrier: mesh_control.cpp.
  struct Entrance {
    Gate gate;
    Coming own;
    Deadline deadline;
    bool polls;  // before it sleeps
    const AllToAllV* counts = nullptr;
  };
  Entrance entrance_of(const Call& call, Waiting waiting);
  std::shared_ptr<const Failure> enter(const Entrance& entrance);
  Patience::Verdict await(const Entrance& entrance, Deadline start);
  bool await_carried(const Entrance& entrance, Deadline start);
  bool come(Gate gate, const Coming& own);
  void wait_for_news(Deadline start, bool polls, Deadline deadline);
  // The failure of a call that this rank came to and does not go into. Breaks the group.
  std::shared_ptr<const Failure> refuse(const Entrance& entrance, Patience::Verdict verdict);
  void fail_with_difference(const Entrance& entrance);
  Failure misfit(const Entrance& entrance);
  Failure passed_deadline(const Entrance& entrance, const std::vector<int>& missing) const;
  // Uses what is known of calls, or barriers, and then sends what there is to send.
  template <class Use>
  auto use(Gate gate, const Use& use_it) {
    MutexLock lock(gates_mutex_);
    auto result = use_it(gates_[static_cast<std::size_t>(gate)]);
    post(gate);
    return result;
  }
  void post(Gate gate) C10D_REQUIRES(gates_mutex_);
  Failure late(const Signature& signature, std::uint64_t sequence, std::string_view phase) override;
  std::vector<int> behind(const Signature& signature, std::uint64_t sequence);
  std::vector<int> ask(std::uint64_t sequence);  // who is not known to have come to a call
  // Takes the news for so long, or until `is_known(dissemination)`.
  template <class Is>
  void hear(Gate gate, Duration patience, const Is& is_known);
  const AnnouncedSlot& announced(int rank, std::uint64_t sequence) const noexcept override {
    return rows_.slot(rank, sequence);
  }
  void visit_calls(int rank, const std::function<void(const Recorded&)>& visit) override {
    rank == rank_ ? visit_records(own_, visit) : rows_.visit_messages(rank, visit);
  }
  void want_calls(int rank) noexcept override { rows_.want_messages(rank); }

  // What is heard and told of failures, and of ranks that leave: mesh_failures.cpp.
  // What neighbours have said, and which of them are lost. Waits for nobody.
  void take_news();
  bool take_message(const Mesh::Message& message);
  bool take_letter(const Mesh::Message& message);
  void note_beat(int peer, std::string_view beat);
  Flood::Ends ends_of_flood();
  void keep_for_later(const Failure& failure, bool is_flooded);
  void tell() noexcept;  // what was kept
  // Has another thread tell, and find out about losses.
  void react() noexcept;
  void look_for_lost();
  Failure lost(const Mesh::Loss& loss) const;
  bool is_beside(int one, int other) const;
  bool is_where_it_broke(int rank);
  void look_for_cause();
  std::string glance_at(std::string key) const;
  void look_for_dead();
  void look_for_left_peers();
  void look_for_left_in_rows();
  void read_beats();
  void write_rows(Duration patience) noexcept;
  void poll() noexcept;

  // Of every rank, under its number; and of one, where it says that it is here, or left.
  std::vector<std::string> keys_of(std::string_view what) const;
  static std::string beat_key(int rank);

  const std::shared_ptr<Store> store_;
  const WaitPolicy policy_;
  const RankGrid grid_;
  const std::vector<int> neighbours_;
  Mesh mesh_;
  Flood flood_;
  std::deque<Mesh> more_networks_;  // until this rank has joined
  CallRows rows_;
  Mutex news_mutex_;  // what came first is taken first; locked before gates_mutex_
  Mutex gates_mutex_;
  std::array<Dissemination, kGates> gates_ C10D_GUARDED_BY(gates_mutex_);
  std::atomic<int> waiting_ = 0;  // threads in enter(), which take the news
  Mutex mutex_;
  std::vector<Mesh::Loss> losses_ C10D_GUARDED_BY(mutex_);  // whose reason is not known
  struct Untold {
    std::string text;         // of a failure that the store has not heard of
    bool is_flooded = false;  // while the ranks have
  };
  std::optional<Untold> untold_ C10D_GUARDED_BY(mutex_);
  // One poll at a time, and any number of reactions.
  Mutex poll_mutex_;
  CondVar polled_;
  bool polling_ C10D_GUARDED_BY(poll_mutex_) = false;
  int reactions_ C10D_GUARDED_BY(poll_mutex_) = 0;
  int ticks_ C10D_GUARDED_BY(poll_mutex_) = 0;  // since the last poll
  int ticks_since_beat_ = 0;                    // for the monitor
  int polls_ = 0;                               // for the thread that polls, as the next
  StoreSilence silence_;
  std::vector<std::atomic<int>> unheard_ticks_;  // since the last word of a neighbour
  std::atomic<bool> store_answers_ = true;       // when it was polled last
  std::atomic<bool> leaving_ = false;
};

std::shared_ptr<ControlPlane> make_mesh_control(const ControlOptions& options);

}}  // namespace c10d::v0
