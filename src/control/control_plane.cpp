// SPDX-License-Identifier: BSD-3-Clause
#include "src/control/control_plane.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "src/base/log.h"
#include "src/base/members.h"
#include "src/recorder/dump.h"

namespace c10d { inline namespace v0 {
namespace {

// A wrapped library that ends an op by itself does so within a second.
constexpr int kTicksOfGrace = std::chrono::seconds(1) / kMonitorPeriod;
constexpr int kTicksPerHeld = kReminder / kMonitorPeriod;

}  // namespace

bool leaves_group_intact(Code code) noexcept {
  return code == Code::unsupported || code == Code::concurrent_use;
}

Control::~Control() = default;

ControlPlane::ControlPlane(const ControlOptions& options, std::shared_ptr<SharedMapping> mapping,
                           int first_rank)
    : rank_(options.rank),
      size_(options.size),
      group_(options.group),
      members_(options.members),
      mapping_(std::move(mapping)),
      header_(*reinterpret_cast<GroupHeader*>(mapping_->data())),
      own_(blocks_of(header_)[options.rank - first_rank]) {
  write_identity(own_);
}

std::shared_ptr<SharedMapping> memory_for(const ControlOptions& options, int first_rank, int ranks,
                                          std::size_t more) {
  const std::size_t bytes =
      sizeof(GroupHeader) + static_cast<std::size_t>(ranks) * sizeof(RankBlock) + more;
  auto mapping = make_shared_memory(kControlMemory, bytes);
  write_header(*reinterpret_cast<GroupHeader*>(mapping->data()), options.group, options.size,
               first_rank, ranks);
  return mapping;
}

void ControlPlane::on_broken(std::function<void()> end_ops) {
  MutexLock lock(mutex_);
  end_ops_ = std::move(end_ops);
}

void ControlPlane::on_tick(std::function<void()> look) {
  MutexLock lock(mutex_);
  look_ = std::move(look);
}

void ControlPlane::look_after_backend() {
  std::function<void()> look;
  {
    MutexLock lock(mutex_);
    look = look_;
  }
  if (look) look();
}

void ControlPlane::end_ops_if_broken() {
  if (!broken()) return;
  std::function<void()> end_ops;
  {
    MutexLock lock(mutex_);
    end_ops.swap(end_ops_);
  }
  if (end_ops) end_ops();
}

std::shared_ptr<const Failure> ControlPlane::failure() {
  if (!broken()) return nullptr;
  MutexLock lock(mutex_);
  if (!cause_) {
    Failure cause = read_cause(header_);
    cause.group = group_;
    cause_ = std::make_shared<const Failure>(std::move(cause));
  }
  return cause_;
}

void ControlPlane::keep_record_if_broken() noexcept {
  if (!broken()) return;
  try {
    failure();  // waits for the rank that is just writing the cause
  } catch (const std::exception&) {
    return;
  }
  MutexLock lock(record_mutex_);  // the second to come waits for the file
  if (!std::exchange(record_kept_, true)) keep_record(image());
}

std::shared_ptr<const Failure> ControlPlane::end_op(OpKind kind, std::uint64_t sequence,
                                                    std::uint64_t record,
                                                    const Failure* failure) noexcept {
  if (!is_point_to_point(kind)) {
    std::uint64_t last = own_.finished.load(std::memory_order_relaxed);
    while (last < sequence && !own_.finished.compare_exchange_weak(last, sequence)) {
    }
  }
  finish_record(own_, record, failure == nullptr, steady_ns());
  if (failure == nullptr) return nullptr;
  Failure complete = *failure;
  if (complete.group.empty()) complete.group = group_;
  if (complete.op.empty()) complete.op = to_string(kind);
  if (complete.sequence == 0) complete.sequence = sequence;
  if (leaves_group_intact(complete.code)) return std::make_shared<const Failure>(complete);
  const auto cause = fail(std::move(complete));
  keep_record_if_broken();  // before the program hears of it, and ends
  return cause;
}

void ControlPlane::finished(OpKind kind, std::uint64_t sequence, std::uint64_t record,
                            const Failure* failure) noexcept {
  const auto seen = end_op(kind, sequence, record, failure);
  if (seen && tell_) tell_(*seen);
  end_on_gpu();
  own_.pending.fetch_sub(1, std::memory_order_release);
}

void ControlPlane::fail_overdue(OpKind kind, std::uint64_t sequence, std::string_view phase) {
  std::optional<Recorded> op;
  visit_records(own_, [&](const Recorded& record) {
    if (record.state == Record::running && record.signature.kind == kind &&
        record.sequence == sequence)
      op = record;
  });
  if (op) fail(late(op->signature, sequence, phase));
}

std::shared_ptr<const Failure> ControlPlane::resolve_cause(Failure otherwise, Duration patience) {
  constexpr std::chrono::milliseconds kLongestPause{32};  // a store that all ranks ask must keep up
  const Deadline end = std::chrono::steady_clock::now() + patience;
  for (std::chrono::milliseconds pause{1};; pause = std::min(2 * pause, kLongestPause)) {
    look_for_evidence();
    if (broken() || std::chrono::steady_clock::now() >= end) break;
    std::this_thread::sleep_for(pause);
  }
  if (broken()) return failure();
  return fail(peer_left(otherwise) ? left(otherwise.rank, otherwise.op) : std::move(otherwise));
}

// Whether the other end of a connection closed because its rank left the group.
bool ControlPlane::peer_left(const Failure& lost) try {
  if (lost.code != Code::link_lost || lost.rank < 0) return false;
  const std::vector<int> gone = ranks_that_left();
  return std::find(gone.begin(), gone.end(), lost.rank) != gone.end();
} catch (const DistError&) {  // the store is gone, and says nothing
  return false;
}

std::shared_ptr<const Failure> ControlPlane::failure_of_another() {
  constexpr std::chrono::seconds kToTell{2};
  return resolve_cause(
      {.code = Code::timed_out,
       .message = "another rank gave up waiting and did not report for which rank; look at what "
                  "the other ranks reported"},
      kToTell);
}

std::string ControlPlane::name_of(int rank) const {
  return v0::name_of(members_[static_cast<std::size_t>(rank)]);
}

std::string ControlPlane::names_of(const std::vector<int>& ranks) const {
  return v0::names_of(members_, ranks);
}

Failure ControlPlane::failure_about(int rank, Code code, std::string message) const {
  const Member& member = members_[static_cast<std::size_t>(rank)];
  return {.code = code,
          .message = std::move(message),
          .rank = rank,
          .host = member.host,
          .pid = member.pid,
          .group = group_};
}

Failure ControlPlane::left(int peer, std::string_view where) const {
  return failure_about(peer, Code::peer_left,
                       fmt::format("{} left the group; rank {} still waits for it in {}",
                                   name_of(peer), rank_, where));
}

void ControlPlane::check_receiver(int peer) {
  if (!has_left(peer)) return;
  fail(failure_about(
      peer, Code::peer_left,
      fmt::format("{} left the group before rank {} sent it a message", name_of(peer), rank_)));
}

void ControlPlane::warn_of_late_op(const std::function<std::vector<int>(const Recorded&)>& behind) {
  if (!is_busy(own_)) return;
  std::optional<Recorded> oldest;
  visit_records(own_, [&](const Recorded& record) {
    if (record.state == Record::running && (!oldest || record.start_ns < oldest->start_ns))
      oldest = record;
  });
  const std::int64_t now = steady_ns();
  if (!oldest || now - oldest->start_ns < std::chrono::nanoseconds(kLateOp).count()) return;
  const Signature& call = oldest->signature;
  const bool is_message = is_point_to_point(call.kind);
  const std::pair op(call.kind, oldest->sequence);
  const bool is_new = warned_.op != op;
  const bool again = now - std::max(oldest->start_ns, warned_.when_ns) >=
                     std::chrono::nanoseconds(kReminder).count();
  if (is_new || again) warned_ = {.op = op, .when_ns = warned_.when_ns};
  std::vector<int> missing;
  if (again || (is_new && !is_message)) missing = behind(*oldest);
  const std::vector<int> silent = ranks_that([&](int rank) {
    return rank != rank_ && (!is_message || rank == call.root) && is_silent(rank) &&
           std::ranges::find(warned_.named, rank) == warned_.named.end();
  });
  if (missing.empty() && silent.empty() && !again) return;
  for (const auto& ranks : {missing, silent})
    warned_.named.insert(warned_.named.end(), ranks.begin(), ranks.end());
  warned_.when_ns = now;
  log(LogLevel::warn, "group \"{}\", rank {}: {} #{} runs for {:.0f} s; {}", group_, rank_,
      to_string(call.kind), oldest->sequence, in_seconds(now - oldest->start_ns),
      !missing.empty()  ? "not there yet: " + names_of(missing)
      : !silent.empty() ? "no sign of life from " + names_of(silent)
                        : "all ranks have entered it");
}

void ControlPlane::watch_library(int ticks) {
  broken() ? warn_of_held_op(ticks) : break_if_overdue(ticks);
}

// The op that runs and must end first.
std::optional<Recorded> ControlPlane::first_due() const {
  std::optional<Recorded> first;
  if (!is_busy(own_)) return first;
  visit_records(own_, [&](const Recorded& record) {
    if (record.state == Record::running && (!first || record.end_ns < first->end_ns))
      first = record;
  });
  return first;
}

// Ticks are counted, not seconds: a rank that slept itself had no time to end its ops.
void ControlPlane::break_if_overdue(int ticks) {
  const std::optional<Recorded> due = first_due();
  const bool overdue = due && due->end_ns < steady_ns();
  ticks_overdue_ = overdue ? ticks_overdue_ + ticks : 0;
  if (ticks_overdue_ > kTicksOfGrace) fail(late(due->signature, due->sequence, "running"));
}

void ControlPlane::warn_of_held_op(int ticks) {
  const std::optional<Recorded> held = first_due();
  ticks_held_ = held ? ticks_held_ + ticks : 0;
  if (ticks_held_ % kTicksPerHeld != kTicksOfGrace) return;
  const auto cause = failure();
  log(LogLevel::warn,
      "group \"{}\", rank {}: {} #{} runs for {:.0f} s, held by the wrapped library although the "
      "group is broken{}; {}",
      group_, rank_, to_string(held->signature.kind), held->sequence,
      in_seconds(steady_ns() - held->start_ns),
      cause->rank < 0 || cause->rank >= size_ ? "" : " because of " + name_of(cause->rank),
      cause->message);
}

Failure ControlPlane::mismatch(const Signature& mine, int peer, const Signature& theirs, int odd,
                               const std::vector<int>& others, std::uint64_t sequence,
                               std::uint64_t their_sequence) const {
  const std::string who =
      others.size() < 2 ? "" : fmt::format("rank {} disagrees with {}; ", odd, ranges_of(others));
  Failure failure = failure_about(
      odd, Code::mismatch,
      fmt::format("{}rank {} called {} #{}, rank {} called {} #{}; first difference: {}; every "
                  "rank of a group makes the same calls in the same order",
                  who, peer, describe(theirs), their_sequence, rank_, describe(mine), sequence,
                  their_sequence == sequence ? first_difference(theirs, mine) : "its number"));
  failure.op = to_string(mine.kind);
  failure.sequence = sequence;
  return failure;
}

Failure ControlPlane::deadline_passed(const Signature& signature, std::uint64_t sequence,
                                      std::string_view phase, const std::vector<int>& missing,
                                      const std::function<std::string(int)>& about) const {
  // Each rank numbers its own messages.
  const std::string whose = is_point_to_point(signature.kind) ? " of " + name_of(rank_) : "";
  std::string text = fmt::format("the deadline of {} #{}{} passed while {}", describe(signature),
                                 sequence, whose, phase);
  constexpr std::size_t kTold = 8;  // if more are missing, only their numbers and hosts are listed
  if (missing.size() > kTold || !about) {
    if (!missing.empty()) text += "; missing: " + names_of(missing);
  } else {
    for (std::size_t i = 0; i < missing.size(); ++i)
      text += (i == 0 ? "; missing: " : ", ") + name_of(missing[i]) + about(missing[i]);
  }
  Failure failure = missing.empty() ? Failure{} : failure_about(missing.front(), {}, {});
  failure.code = Code::timed_out;
  failure.message = std::move(text);
  failure.group = group_;
  failure.op = to_string(signature.kind);
  failure.sequence = sequence;
  return failure;
}

Failure ControlPlane::did_not_reach_barrier(const std::vector<int>& missing,
                                            std::uint64_t round) const {
  Failure failure = failure_about(missing.empty() ? rank_ : missing.front(), Code::timed_out,
                                  fmt::format("{} of {} ranks did not reach monitored_barrier: {}",
                                              missing.size(), size_, names_of(missing)));
  failure.op = "monitored_barrier";
  failure.sequence = round;
  return name_not_running(std::move(failure), members_, missing);
}

Failure ControlPlane::counts_mismatch(std::uint64_t sequence, int sender, int receiver,
                                      std::uint64_t expected, std::uint64_t sent) const {
  Failure failure = failure_about(
      sender, Code::mismatch,
      fmt::format("rank {} called all_to_all_v #{} with input_counts[{}] = {}, rank {} called it "
                  "with output_counts[{}] = {}; what one rank sends the other must expect",
                  sender, sequence, receiver, sent, receiver, sender, expected));
  failure.op = to_string(OpKind::all_to_all_v);
  failure.sequence = sequence;
  return failure;
}

Failure ControlPlane::counts_do_not_fit(std::uint64_t sequence) const {
  return {.code = Code::mismatch,
          .message = fmt::format("the ranks called all_to_all_v #{} with counts that do not fit: "
                                 "what a rank sends to another one in input_counts, that one must "
                                 "expect in output_counts",
                                 sequence),
          .group = group_,
          .op = std::string(to_string(OpKind::all_to_all_v)),
          .sequence = sequence};
}

}}  // namespace c10d::v0
