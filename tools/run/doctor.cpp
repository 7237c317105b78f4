// SPDX-License-Identifier: BSD-3-Clause
#include "tools/run/doctor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <list>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "c10d/capability.h"
#include "c10d/error.h"
#include "src/launch/descriptor_limit.h"
#include "src/launch/line_output.h"
#include "src/launch/spawn.h"
#include "src/net/socket.h"
#include "src/net/token.h"
#include "tools/run/agent.h"

namespace c10d { inline namespace v0 {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kToStart{30};
constexpr std::chrono::seconds kToAnswer{10};
constexpr std::chrono::seconds kToEnd{5};
constexpr double kClockLimit = 1;  // seconds

// What was asked for on one host.
struct Peer {
  std::string host, agent;
  Child child{};
  Fd input;
  LineStream output;
  std::deque<std::string> lines{};
  bool answers = true, has_answered = false;
  std::string address{};  // that it listens on; empty: it does not
  std::uint16_t port = 0;

  void ask(const std::string& line) {
    const std::string text = line + '\n';
    answers = answers &&
              write(input.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  }
  // Nothing when it is gone, or silent for too long: then it is not asked again.
  std::optional<std::string> answer(std::chrono::seconds timeout) {
    const Deadline deadline = steady_clock::now() + timeout;
    while (answers && lines.empty()) {
      if (!output.fd || !wait_for(output.fd.get(), POLLIN, deadline))
        answers = false;
      else
        output.read([&](std::string_view line) {
          if (line.starts_with(kAnswerMark)) lines.emplace_back(line.substr(2));
        });
    }
    if (lines.empty()) return std::nullopt;
    has_answered = true;
    std::string line = std::move(lines.front());
    lines.pop_front();
    return line;
  }
};

// A file in the folder of the ranks, as long as this exists.
class Mark {
 public:
  explicit Mark(const std::string& folder)
      : path_(std::filesystem::path(folder) / (".c10d-doctor-" + to_hex(random_bytes(8)))) {
    is_there_ = static_cast<bool>(std::ofstream(path_));
  }
  ~Mark() {
    if (is_there_) unlink(path_.c_str());
  }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  bool is_there() const { return is_there_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool is_there_ = false;
};

class Doctor {
 public:
  explicit Doctor(const DoctorOptions& options)
      : options_(options),
        marker_("C10D_HOSTS_ID=" + to_hex(random_bytes(8))),
        guardian_(marker_),
        secret_(to_hex(random_bytes(16))) {}
  ~Doctor();
  Doctor(const Doctor&) = delete;
  Doctor& operator=(const Doctor&) = delete;

  int run() {
    start_all();
    check_versions();
    check_clocks();
    check_folder();
    listen_on_all();
    reach_all();
    check_mtus();
    for (const Peer& peer : peers_)
      if (peer.has_answered && !peer.answers)
        mend(fmt::format(
            "{}: stopped answering: check the agent's command and how the host resolves names",
            peer.host));
    if (to_mend_ == 0) fmt::print("all is well\n");
    return to_mend_ == 0 ? 0 : 1;
  }

 private:
  void start_all();
  void start(const std::string& host);
  void check_versions();
  void check_clocks();
  void check_folder();
  void listen_on_all();
  void reach_all();
  void note(const Peer& from, const Peer& to, const std::string& answer);
  void check_mtus();
  void mend(const std::string& what) {
    ++to_mend_;
    fmt::print("MEND  {}\n", what);
  }

  const DoctorOptions& options_;
  const std::string marker_;
  DescriptorLimit descriptors_;
  Guardian guardian_;
  const std::string secret_;
  std::list<Peer> peers_;
  std::map<int, std::string> mtus_;  // one pair for each
  int to_mend_ = 0;
};

Doctor::~Doctor() {
  for (Peer& peer : peers_) peer.input.reset();
  const Deadline end = steady_clock::now() + kToEnd;
  for (const Peer& peer : peers_) {
    if (!wait_for(peer.child.pidfd.get(), POLLIN, end)) kill(-peer.child.pid, SIGKILL);
    wait_for(peer.child.pidfd.get(), POLLIN, steady_clock::now() + kToEnd);
    waitpid(peer.child.pid, nullptr, WNOHANG);
  }
}

void Doctor::start(const std::string& host) {
  auto [input, input_writer] = make_pipe();
  auto [output, output_writer] = make_pipe();
  fcntl(output.get(), F_SETFL, O_NONBLOCK);
  const std::vector<std::string> command = command_on(host, {kDoctorPeer}, options_.agent);
  peers_.push_back({.host = host,
                    .agent = fmt::format("{}", fmt::join(command, " ")),
                    .child = start_agent({.command = command,
                                          .environment = {marker_},
                                          .stdin_fd = input.get(),
                                          .stdout_fd = output_writer.get(),
                                          .stderr_fd = STDERR_FILENO,
                                          .registration_fd = guardian_.registration_fd(),
                                          .descriptors = descriptors_.callers()}),
                    .input = std::move(input_writer),
                    .output = {std::move(output), {}}});
}

void Doctor::start_all() {
  signal(SIGPIPE, SIG_IGN);  // of a peer that has ended
  descriptors_.make_room(options_.hosts.size(), 0);
  for (const std::string& host : options_.hosts) start(host);
}

void Doctor::check_versions() {
  for (Peer& peer : peers_) peer.ask("version");
  for (Peer& peer : peers_) {
    const auto theirs = peer.answer(kToStart);
    if (!theirs)
      mend(
          fmt::format("{}: c10d-run does not answer there. See to it that this works, and that the "
                      "path of c10d-run is the same: {}",
                      peer.host, peer.agent));
    else if (*theirs != version())
      mend(fmt::format("{}: c10d {} there and {} here: install the same on all hosts", peer.host,
                       *theirs, version()));
    else
      fmt::print("ok    {}: c10d {}\n", peer.host, *theirs);
  }
}

// That of a wall, which stands in logs and files.
void Doctor::check_clocks() {
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  for (Peer& peer : peers_) {
    const double before = now();
    peer.ask("clock");
    const auto theirs = peer.answer(kToAnswer);
    if (!theirs) continue;
    const double after = now(), error = (after - before) / 2;
    const double ahead = std::strtod(theirs->c_str(), nullptr) * 1e-9 - (before + error);
    if (std::abs(ahead) > kClockLimit + error)
      mend(fmt::format("{}: its clock is {:.0f} s {} that of this host: let both follow NTP",
                       peer.host, std::abs(ahead), ahead > 0 ? "ahead of" : "behind"));
    else
      fmt::print("ok    {}: its clock is that of this host within {:.2g} s\n", peer.host,
                 std::abs(ahead) + error);
  }
}

void Doctor::check_folder() {
  const std::string folder =
      options_.directory.empty() ? std::filesystem::current_path().string() : options_.directory;
  const Mark mark(folder);
  for (Peer& peer : peers_) {
    peer.ask("sees " + folder);
    const auto there = peer.answer(kToAnswer);
    if (!there) continue;
    if (*there != "yes") {
      mend(fmt::format("{}: there is no {}, where the ranks start: make it, or give --wdir",
                       peer.host, folder));
      continue;
    }
    peer.ask("sees " + mark.path());
    const auto shared = peer.answer(kToAnswer);
    if (mark.is_there() && shared && *shared != "yes")
      fmt::print(
          "note  {}: its {} is not that of this host: copy programs, and write checkpoints "
          "elsewhere\n",
          peer.host, folder);
    else if (mark.is_there() && shared)
      fmt::print("ok    {}: shares {}\n", peer.host, folder);
  }
}

void Doctor::listen_on_all() {
  for (Peer& peer : peers_) {
    const bool is_first = &peer == &peers_.front();
    peer.ask(fmt::format("listen {} {} {}", secret_, is_first ? options_.port : "0", peer.host));
    const auto text = peer.answer(kToAnswer);
    if (!text) continue;
    std::istringstream words(*text);
    std::string state;
    words >> state;
    if (state == "ok") words >> peer.address >> peer.port;
    const bool is_loopback = peer.address == "::1" || peer.address.starts_with("127.");
    if (is_loopback && peer.address != peer.host && peers_.size() > 1) {
      mend(
          fmt::format("{}: its own name is {} there, where no other host reaches it: mend "
                      "/etc/hosts there, or give its address",
                      peer.host, peer.address));
      peer.address.clear();
      continue;
    }
    if (peer.address.empty())
      mend(fmt::format(
          "{}: does not listen under its own name:{}; give it an address that the "
          "others reach{}",
          peer.host, text->substr(state.size()), is_first ? ", or another --master-port" : ""));
    else
      fmt::print("ok    {}: listens on {}, port {}\n", peer.host, peer.address, peer.port);
  }
}

void Doctor::note(const Peer& from, const Peer& to, const std::string& answer) {
  std::istringstream words(answer);
  std::string state, address;
  int mtu = 0, microseconds = 0;
  words >> state >> address >> mtu >> microseconds;
  const std::string pair = fmt::format("{} -> {}", from.host, to.host);
  if (state != "ok") {
    mend(
        fmt::format("{}: {}; let its name resolve to {} there, and every TCP port between the "
                    "hosts be open",
                    pair, answer.substr(std::min(answer.size(), state.size() + 1)), to.address));
    return;
  }
  fmt::print("ok    {}: {}, MTU {}, round trip {} us\n", pair, address, mtu, microseconds);
  if (address != to.address)
    mend(
        fmt::format("{}: its name is {} there, and it listens on {}: make the name the same on "
                    "all hosts, or give addresses",
                    pair, address, to.address));
  mtus_.emplace(mtu, pair);
}

// One host after the other is reached by all others at once.
void Doctor::reach_all() {
  for (const Peer& to : peers_) {
    if (to.address.empty()) continue;
    for (Peer& from : peers_)
      if (&from != &to) from.ask(fmt::format("reach {} {} {}", secret_, to.port, to.host));
    for (Peer& from : peers_) {
      if (&from == &to) continue;
      if (const auto answer = from.answer(kToAnswer)) note(from, to, *answer);
    }
  }
}

void Doctor::check_mtus() {
  if (mtus_.size() < 2) return;
  std::string all;
  for (const auto& [mtu, pair] : mtus_)
    all += fmt::format("{}{} ({})", all.empty() ? "" : ", ", mtu, pair);
  mend(
      fmt::format("the MTU differs: {}: set the same on all interfaces of this network (ip link "
                  "set dev NAME mtu N)",
                  all));
}

}  // namespace

int check_hosts(const DoctorOptions& options) { return Doctor(options).run(); }

}}  // namespace c10d::v0
