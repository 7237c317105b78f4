// SPDX-License-Identifier: BSD-3-Clause
#include "src/group/bootstrap.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <iterator>
#include <random>

#include "c10d/capability.h"
#include "c10d/spi/backend.h"
#include "src/base/failure_text.h"
#include "src/base/host.h"
#include "src/base/log.h"
#include "src/base/members.h"
#include "src/base/timeouts.h"
#include "src/store/refusals.h"

namespace c10d { inline namespace v0 {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kMissingReport{10};
constexpr std::chrono::seconds kTelling{5};  // for a store to take what all must know
// To take back a claim: a rank that leaves does not wait for a server that is stopped or gone.
constexpr std::chrono::seconds kGivingBack{1};
constexpr std::chrono::seconds kServersPatience{5};  // with ranks that have yet to read why

// What a rank tells the others, one field a line. All but the last three must be equal on all
// ranks.
enum Field { version, abi, size, backend, host, host_id, pid, field_count };
constexpr std::array<std::string_view, field_count> kFieldNames = {
    "c10d version", "backend ABI", "world size", "backend", "host", "host identity", "pid"};
using Identity = std::array<std::string, field_count>;

std::string to_bytes(const Identity& identity) {
  std::string bytes;
  for (const std::string& field : identity) bytes += field + "\n";
  return bytes;
}

Identity from_bytes(std::string_view bytes) {
  Identity identity;
  for (std::string& field : identity) {
    const std::size_t end = bytes.find('\n');
    if (end == bytes.npos)
      throw_failure(
          {.code = Code::corrupt, .message = "a rank's identity in the store is not one of c10d"});
    field = bytes.substr(0, end);
    bytes.remove_prefix(end + 1);
  }
  return identity;
}

std::int64_t to_pid(const Identity& identity) {
  std::int64_t value = 0;
  std::from_chars(identity[pid].data(), identity[pid].data() + identity[pid].size(), value);
  return value;
}

std::string claimant(std::string_view bytes) {
  const Identity identity = from_bytes(bytes);
  return fmt::format("pid {} on host {}", identity[pid], identity[host]);
}

constexpr std::string_view kHeld = " held ";

class Bootstrap {
 public:
  explicit Bootstrap(const BootstrapOptions& options) : options_(options) {
    mine_[version] = kVersion;
    mine_[abi] = std::to_string(kBackendAbiVersion);
    mine_[size] = std::to_string(options.size);
    mine_[backend] = options.backend;
    mine_[host] = host_name();
    mine_[host_id] = host_identity();
    mine_[pid] = std::to_string(getpid());
  }

  Bootstrapped run() {
    claim();
    try {
      check_size();
      options_.store->set(key(options_.rank), to_bytes(mine_), patience_until(options_.deadline));
      return {.members = learn(meet()),
              .store = make_prefix_store(prefix_, options_.store),
              .release = release_,
              .part = [this_rank = *this] { this_rank.part(); }};
    } catch (const DistError& error) {
      give_up(error.failure());
      throw;
    } catch (...) {
      withdraw_();
      throw;
    }
  }

 private:
  std::string key(int rank) const { return fmt::format("{}/rank/{}", prefix_, rank); }
  std::string claim_key() const {
    return fmt::format("{}/claims/{}", options_.name, options_.rank);
  }
  std::string failed_key() const { return prefix_ + "/failed"; }

  // What all must know ends this world, and its name can be used again. Else a rank that fails
  // before all are there leaves as if it had never come: another process may be the one that the
  // others wait for.
  void give_up(const Failure& failure) noexcept {
    const bool takes_the_store_away = options_.ends_with_rank_0 && options_.rank == 0;
    const bool concerns_all = failure.code == Code::mismatch ||
                              failure.code == Code::version_mismatch || takes_the_store_away;
    if (concerns_all && !is_stranger_) try {
        options_.store->compare_set(failed_key(), std::nullopt, to_text(failure), kTelling);
        has_ended_ = true;
      } catch (const std::exception&) {  // the store is gone
      }
    if (!has_ended_) {
      withdraw_();
      // Rank 0 may wait to see it leave: its deadline is the same.
      if (failure.code == Code::timed_out) part();
      return;
    }
    release_();
    part(failure.code == Code::timed_out);
  }

  // Nobody knows when ranks that have not arrived will arrive.
  void part(bool only_from_those_here = false) const noexcept {
    const auto parted = [this](int rank) { return fmt::format("{}/parted/{}", prefix_, rank); };
    if (!options_.ends_with_rank_0) return;
    try {
      options_.store->set(parted(options_.rank), "", kGivingBack);
      if (options_.rank != 0) return;
      std::vector<std::string> keys;
      for (int rank = 0; rank < options_.size; ++rank)
        if (!only_from_those_here || options_.store->try_get(key(rank), kGivingBack))
          keys.push_back(parted(rank));
      options_.store->wait(keys, kServersPatience);
    } catch (const std::exception&) {  // of a rank that is gone
    }
  }

  // A group of the same name may be made again once its ranks have left: each rank counts its own
  // claims. The claim changes hands in one step, so that of two processes that want to be the same
  // rank one is told.
  void claim() {
    while (true) {
      const auto before = options_.store->try_get(claim_key(), patience_until(options_.deadline));
      const std::int64_t generation = before ? std::atoll(before->c_str()) : 0;
      if (before && before->find(kHeld) != before->npos) refuse(*before);
      prefix_ = fmt::format("{}.{}", options_.name, generation + 1);
      const std::string wanted = fmt::format("{}{}{:x}\n{}", generation + 1, kHeld,
                                             std::random_device()(), to_bytes(mine_));
      if (options_.store->compare_set(claim_key(), before, wanted,
                                      patience_until(options_.deadline)) != wanted)
        continue;
      withdraw_ = [store = options_.store, claim = claim_key(), mine = key(options_.rank), before] {
        try {
          store->delete_key(mine, kGivingBack);
          before ? store->set(claim, *before, kGivingBack)
                 : static_cast<void>(store->delete_key(claim, kGivingBack));
        } catch (const std::exception&) {  // the store is gone, and the claim with it
        }
      };
      release_ = [store = options_.store, key = claim_key(), generation] {
        try {
          store->set(key, std::to_string(generation + 1), kGivingBack);
        } catch (const std::exception&) {  // the store is gone, and the claim with it
        }
      };
      return;
    }
  }

  [[noreturn]] void refuse(const std::string& held) const {
    throw_failure(
        {.code = Code::mismatch,
         .message = fmt::format("two processes claim rank {} of group \"{}\": {} and this one, pid "
                                "{} on host {}; give every process a rank of its own",
                                options_.rank, options_.name,
                                claimant(std::string_view(held).substr(held.find('\n') + 1)),
                                getpid(), host_name()),
         .rank = options_.rank,
         .group = options_.name});
  }

  // Before anybody waits: a rank with another world size would wait for ranks that never come.
  void check_size() {
    const std::string text = fmt::format("{} (rank {}, pid {} on host {})", options_.size,
                                         options_.rank, getpid(), host_name());
    const auto first = options_.store->compare_set(prefix_ + "/size", std::nullopt, text,
                                                   patience_until(options_.deadline));
    const int size = first ? std::atoi(first->c_str()) : options_.size;
    if (size == options_.size) return;
    is_stranger_ = options_.rank >= size;
    throw_failure(
        {.code = Code::mismatch,
         .message = fmt::format("world size {} does not fit: the first rank of group \"{}\" "
                                "has world size {}; start every rank with the same one",
                                text, options_.name, *first),
         .rank = options_.rank,
         .host = host_name(),
         .pid = getpid(),
         .group = options_.name});
  }

  void look_for_failure(Duration patience) {
    std::optional<std::string> text;
    try {
      text = options_.store->try_get(failed_key(), patience);
    } catch (const DistTimeoutError&) {  // no news; the deadline decides
    }
    if (!text) return;
    has_ended_ = true;
    Failure failure = from_text(*text);
    failure.group = options_.name;
    throw_failure(std::move(failure));
  }

  std::vector<std::string> meet() {
    std::vector<std::string> keys;
    for (int rank = 0; rank < options_.size; ++rank) keys.push_back(key(rank));
    auto next_report = steady_clock::now() + kMissingReport;
    const Duration pause = pause_between_looks(options_.size);
    std::vector<int> missing_before;  // others give up when we do, and take back that they came
    while (true) {
      const Duration left = options_.deadline - steady_clock::now();
      const bool late = left <= Duration::zero();
      look_for_failure(std::clamp<Duration>(left, kGivingBack, kTelling));
      try {
        if (left <= pause && missing_before.empty()) missing_before = missing_ranks();
        return options_.store->multi_get(keys, std::clamp<Duration>(left, Duration(1), pause));
      } catch (const DistTimeoutError&) {
      }
      if (!late && steady_clock::now() < next_report) continue;
      next_report += kMissingReport;
      std::vector<int> missing;
      try {
        missing = missing_ranks();
      } catch (const DistTimeoutError&) {  // as above
        if (late) throw;
      }
      if (missing.empty()) continue;
      if (late) throw_failure(never_arrived(in_both(missing, missing_before)));
      log(LogLevel::warn, "group \"{}\", rank {}: still waiting for ranks {}", options_.name,
          options_.rank, ranges_of(missing));
    }
  }

  std::vector<int> missing_ranks() const {
    std::vector<int> missing;
    for (int rank = 0; rank < options_.size; ++rank)
      if (!options_.store->try_get(key(rank), kGivingBack)) missing.push_back(rank);
    return missing;
  }

  // All that are missing, if none was before.
  static std::vector<int> in_both(const std::vector<int>& missing, const std::vector<int>& before) {
    std::vector<int> both;
    std::set_intersection(missing.begin(), missing.end(), before.begin(), before.end(),
                          std::back_inserter(both));
    return both.empty() ? missing : both;
  }

  Failure never_arrived(const std::vector<int>& missing) const {
    return {.code = Code::timed_out,
            .message = fmt::format("group \"{}\" did not form: of {} ranks these never "
                                   "arrived: {}; look at why they ended, or start them, with the "
                                   "same address and world size{}",
                                   options_.name, options_.size, ranges_of(missing),
                                   refusals_of(*options_.store)),
            .rank = missing.front(),
            .group = options_.name};
  }

  std::vector<Member> learn(const std::vector<std::string>& all) const {
    std::vector<Member> members;
    for (int rank = 0; rank < options_.size; ++rank) {
      const Identity theirs = from_bytes(all[static_cast<std::size_t>(rank)]);
      compare(rank, theirs);
      members.push_back({.rank = rank,
                         .host = theirs[host],
                         .pid = to_pid(theirs),
                         .same_host = theirs[host_id] == mine_[host_id]});
    }
    return members;
  }

  void compare(int rank, const Identity& theirs) const {
    for (const Field field : {version, abi, size, backend}) {
      if (theirs[field] == mine_[field]) continue;
      throw_failure({.code = field <= abi ? Code::version_mismatch : Code::mismatch,
                     .message = fmt::format(
                         "{} differs: rank {} (pid {} on host {}) has {}, rank {} "
                         "(pid {} on host {}) has {}",
                         kFieldNames[field], rank, theirs[pid], theirs[host], theirs[field],
                         options_.rank, mine_[pid], mine_[host], mine_[field]),
                     .rank = rank,
                     .host = theirs[host],
                     .pid = to_pid(theirs),
                     .group = options_.name});
    }
  }

  const BootstrapOptions options_;
  Identity mine_;
  std::string prefix_;
  std::function<void()> withdraw_, release_;
  bool is_stranger_ = false;  // no rank of the world that the others make
  bool has_ended_ = false;    // this world: all ranks learn why
};

}  // namespace

Duration pause_between_looks(int ranks) noexcept {
  const double crowd = ranks / 64.0;
  return std::chrono::milliseconds(static_cast<int>(std::clamp(200 * crowd * crowd, 200.0, 10e3)));
}

Bootstrapped bootstrap(const BootstrapOptions& options) { return Bootstrap(options).run(); }

}}  // namespace c10d::v0
