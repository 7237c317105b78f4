// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "c10d/error.h"
#include "c10d/launch.h"
#include "src/base/mutex.h"
#include "src/net/socket.h"

namespace c10d { inline namespace v0 {

// This host's part of the job, known when all hosts are there.
struct World {
  int first_rank = 0;
  int size = 0;
  std::uint16_t master_port = 0;
};

// How the job ended, the same on all hosts that still hear of each other.
struct Verdict {
  int exit_code = 0;  // 0: all ranks of all hosts ended well
  int host = 0;       // whose doing it was
  Code code = Code::peer_died;
  std::string text;  // one sentence that names the host
};

// What the launchers of a job's hosts tell each other, through the store that host 0 serves. A
// thread waits for the others, then sends a heartbeat every second.
class Rendezvous {
 public:
  // `master_port`: of host 0, for all ranks. Throws at once what host 0 finds wrong with its
  // address; everything else comes as a verdict.
  Rendezvous(const MultiHostOptions& hosts, int ranks, std::uint16_t master_port);
  // Ends the job if nothing else has. Host 0 waits a moment for the others to learn of the end.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  int fd() const noexcept { return news_.get(); }  // readable when one of these is there
  // Each gives what it gives once.
  std::optional<World> take_world();
  std::optional<Verdict> take_verdict();

  // This host's failure. The verdict says so, unless another failure was first.
  void fail(int exit_code, std::string_view text) noexcept;
  // All ranks of this host ended well.
  void ended() noexcept;

 private:
  using Will = decltype(TcpStoreOptions::last_will);
  void run() noexcept;
  void tell() noexcept;
  void connect();
  static std::shared_ptr<Store> join(TcpStoreOptions& options);
  Will will() const;
  template <class Call>
  auto insist(const Call& call);
  std::string set_first(std::string_view key, std::string_view value);
  void claim();
  std::optional<Verdict> wait_for_all();
  std::string end_late_rendezvous();
  World read_world();
  Verdict watch();
  std::optional<Verdict> find_silent_host();
  // Ends the rendezvous unless it is over: the value of its key.
  std::string end_rendezvous(Code code, std::string_view text);
  [[noreturn]] void refuse(const std::string& text);
  std::string missing_hosts();
  void wait_for_others_to_leave() noexcept;
  std::shared_ptr<Store> store();

  const MultiHostOptions& hosts_;
  const int ranks_;
  const std::uint16_t master_port_;
  const std::string name_;   // of this launcher, for messages
  const std::string nonce_;  // of this launcher, for the others
  const Deadline deadline_;
  const Fd news_;
  bool serves_ = false;                // the store; a second host 0 does not
  std::atomic<bool> given_up_{false};  // by fail()
  std::atomic<bool> known_{false};     // the verdict
  std::vector<std::string> others_;    // names by number, once all are there; the thread's alone
  std::vector<std::string> beats_;     // as last seen
  std::vector<int> silent_;            // looks since they changed
  int dead_host_ = -1;                 // that was silent too long

  Mutex mutex_;
  std::shared_ptr<Store> store_ C10D_GUARDED_BY(mutex_);
  std::optional<Verdict> to_tell_ C10D_GUARDED_BY(mutex_);  // to the others, of this host
  std::optional<World> world_ C10D_GUARDED_BY(mutex_);
  std::optional<Verdict> verdict_ C10D_GUARDED_BY(mutex_);
  std::thread thread_;
};

}}  // namespace c10d::v0
