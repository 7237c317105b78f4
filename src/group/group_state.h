// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "c10d/process_group.h"
#include "c10d/spi/backend.h"
#include "src/control/control_plane.h"
#include "src/group/work_shared.h"
#include "src/sync/process_singleton.h"

namespace c10d { inline namespace v0 {

// Behind a ProcessGroup. Async ops in flight point here: RankBlock::pending counts them, and the
// state outlives them.
struct detail::GroupState {
  GroupState(BackendContext context_, std::string backend_name_,
             std::shared_ptr<ControlPlane> control_, std::unique_ptr<Backend> backend_);
  ~GroupState();

  // The ProcessGroup in front of a state.
  static ProcessGroup group_of(std::shared_ptr<GroupState> state) {
    return ProcessGroup(std::move(state));
  }

  const BackendContext context;
  const std::shared_ptr<Store> user_store;  // apart from the library's own keys
  const std::string backend_name;
  const std::shared_ptr<ControlPlane> control;
  const std::unique_ptr<Backend> backend;
  const Device gpu;  // of this rank; the CPU in a group without one
  RankBlock& own;    // this rank's
  const bool agrees_first;
  const std::uint64_t process;  // generation of the process, to notice a fork

  const std::shared_ptr<detail::FailureWatch> watch;
  std::function<void()> release_claim;  // of its rank in the bootstrap

  std::atomic<Duration::rep> timeout;
  std::atomic<bool> busy{false};
  std::atomic<bool> closed{false};
  std::atomic<std::uint64_t> collectives{0};  // written by the one thread inside
  std::uint64_t messages = 0;
  // Messages, by device type and peer; no recv of any rank.
  std::array<std::vector<std::uint64_t>, kDeviceTypeCount> sent, received;
  int splits = 0;
  int allocations = 0;
  std::map<std::string, int> subgroups;  // how often each was made

  // Answers of Backend::supports, asked once each: 0 not asked, 1 yes, 2 no.
  using Supports =
      std::array<std::array<std::array<std::uint8_t, kReduceOpCount>, kDTypeCount>, kOpCount>;
  std::array<Supports, kDeviceTypeCount> supports{};  // by device type

  // The funnel: every op of every backend goes through here.
  enum class Mode : std::uint8_t { blocking, async };
  Work submit(const Op& op, const CallOptions& options, Mode mode);
  // The same by the one thread inside.
  Work submit_inside(const Op& op, const CallOptions& options, Mode mode);
  // Throws destroyed or forked_child.
  void check_alive() const;
  void check_not_forked() const;
  // Throws when this rank may not make this call: options, arguments, support. By the one thread
  // inside.
  struct Checked {
    Signature signature;
    bool captured = false;  // the stream is, into a graph
  };
  Checked check(const Op& op, const CallOptions& options);
  // Returns call(), which is no op. The record of a group that broke is kept before the program
  // hears of it, and ends.
  template <class Call>
  auto with_record_dump(Call&& call) {
    try {
      return call();
    } catch (...) {
      control->keep_record_if_broken();
      throw;
    }
  }
  // As Backend::probe(), but throws the failure of a group that is broken.
  std::optional<Received> probe(int peer, std::uint32_t tag);
  void abort(std::string_view why) noexcept;
  // From now on a stop that is requested breaks the group. Once at most.
  void abort_on(const std::stop_token& token);
  const std::stop_token& stop_token() const noexcept { return stop_; }
  // True when nothing points here any more.
  bool shutdown(Duration timeout);

 private:
  void check_supported(const Signature& signature);
  void check_special(const Checked& call) const;
  [[noreturn]] void throw_unsupported(const Signature& signature, const Support& support) const;
  Work failed(const Failure& failure) const;
  // Of a send to its peer, or a recv from it; 0 from any rank.
  std::uint64_t next_message(const Signature& signature);
  Work run(const Op& op, const Checked& checked, const CallOptions& options, bool async);

  std::stop_token stop_;
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;  // last: it calls abort()
};

// Throws InvalidArgument when there is no state.
detail::GroupState& require_state(const std::shared_ptr<detail::GroupState>& state);

// One thread at a time: throws concurrent_use when another one is inside.
class Exclusive {
 public:
  explicit Exclusive(detail::GroupState& state);
  ~Exclusive() { state_.busy.store(false, std::memory_order_release); }
  Exclusive(const Exclusive&) = delete;
  Exclusive& operator=(const Exclusive&) = delete;

 private:
  detail::GroupState& state_;
};

// Brings the members of a group together and returns its state. Collective. No wait is longer than
// `patience`, or than the backend's own. A failure of the parent ends it until all have joined.
std::shared_ptr<detail::GroupState> make_group(BackendContext context, std::string backend_name,
                                               Duration patience, detail::GroupState* parent,
                                               const std::vector<int>& parent_ranks);

}}  // namespace c10d::v0
