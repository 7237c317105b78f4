// SPDX-License-Identifier: BSD-3-Clause
#include "src/net/mesh/mesh.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <exception>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "c10d/error.h"
#include "src/base/hash.h"
#include "src/base/log.h"
#include "src/base/mutex.h"
#include "src/net/socket.h"
#include "src/net/url.h"

namespace c10d { inline namespace v0 {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kReadBytes = std::size_t{16} << 10;
constexpr std::chrono::milliseconds kLook{100};  // between two looks of connect()
// For the handshake of one that calls, on a busy host; so many may call at once beside the
// neighbours. Room for more is made of those that a rank that runs would have outpaced.
constexpr std::chrono::seconds kShaking{10};
constexpr std::size_t kStrangers = 128;
constexpr std::chrono::milliseconds kHurried{500};

// Until it is known that a neighbour died whose connection is refused, or ends.
constexpr std::chrono::seconds kEvidence{1};
// Of an address that does not answer, with a try each second: as long as ARP asks for it.
constexpr std::chrono::seconds kUnanswered{3}, kTry{1};

constexpr std::string_view kAdvice =
    "If they run, let TCP through between the hosts, at every port, and set C10D_NET_INTERFACE, on "
    "every host, to the network that joins them";

enum class Read { nothing, bytes, end, error };

// What has come, once.
Read read_some(Rails& rails, std::array<char, kReadBytes>& buffer, std::string_view& bytes,
               int& error) {
  const iovec piece{buffer.data(), buffer.size()};
  const ssize_t count = rails.receive({&piece, 1});
  if (count > 0) {
    bytes = {buffer.data(), static_cast<std::size_t>(count)};
    return Read::bytes;
  }
  if (count == 0) return Read::end;
  error = errno;
  return error == EAGAIN ? Read::nothing : Read::error;
}

// Returns an errno, or 0.
int write_some(Rails& rails, Link& link) {
  while (!link.output().empty()) {
    const std::string_view bytes = link.output();
    const iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
    const ssize_t count = rails.send({&piece, 1});
    if (count < 0) return errno == EAGAIN ? 0 : errno;
    link.sent(static_cast<std::size_t>(count));
  }
  return 0;
}

// A name has no limit, that of a job in a handshake has.
std::string job_of(const std::string& group) {
  return group.size() <= kMaxJobBytes ? group : fmt::format("group {:016x}", fnv1a(group));
}

}  // namespace

// A connection to a neighbour.
struct Mesh::Line {
  Line(int neighbour_, Fd fd, std::unique_ptr<Link> link_, const Options& options)
      : neighbour(neighbour_),
        rails(RankSocket(std::move(fd)), options.has_more_networks),
        link(std::move(link_)) {}

  int neighbour;  // -1: not known yet
  Rails rails;
  const std::unique_ptr<Link> link;
  int error = 0;  // of what was sent
  bool lost = false;
};

Mesh::Mesh(const Options& options)
    : options_(options),
      listener_(std::in_place, listen_tcp(resolve(options.address, 0).front())),
      listening_("tcp://" + local_address(listener_->get()).text()) {}

Mesh::~Mesh() = default;

// Who calls has the right rank in mind, not only the right group.
HandshakeOptions Mesh::handshake_with(int called) const {
  return {.job = job_of(options_.group),
          .role = fmt::format("{}/{}", options_.role, called),
          .token = options_.token};
}

// The connections that are made, from the first to the last.
class Mesh::Connecting {
 public:
  using Look = std::function<void()>;

  Connecting(const Mesh& mesh, const std::vector<int>& neighbours, Deadline deadline)
      : mesh_(mesh), deadline_(deadline), missing_(neighbours.begin(), neighbours.end()) {
    most_shaking_ = missing_.size() + kStrangers;
  }

  void run(const std::function<std::string(int)>& address_of, const Look& look) {
    for (const int neighbour : missing_)
      if (neighbour > mesh_.options_.rank) call(neighbour, address_of(neighbour), look);
    for (auto next_look = steady_clock::now(); !missing_.empty();) {
      if (const auto now = steady_clock::now(); now >= next_look) {
        look();
        next_look = now + kLook;
      }
      if (steady_clock::now() >= deadline_) throw_late();
      wait();
      take_callers();
      for (Shaking& one : shaking_) move(one, look);
      std::erase_if(shaking_, [](const Shaking& one) { return !one.line; });
    }
  }

  // What has come about, also after run() has thrown.
  std::vector<std::unique_ptr<Line>> take_lines() {
    std::ranges::sort(open_, {}, [](const auto& line) { return line->neighbour; });
    return std::move(open_);
  }
  std::vector<Message> take_messages() { return std::move(messages_); }

 private:
  struct Shaking {
    std::unique_ptr<Line> line;  // null: no more
    Deadline until;              // for one that called
    bool has_spoken = false;
    bool is_called() const noexcept { return line->neighbour < 0; }
  };

  [[noreturn]] static void throw_about(int neighbour, Failure failure) {
    failure.rank = neighbour;
    throw_failure(std::move(failure));
  }

  // Unless look() throws why it is so.
  [[noreturn]] void throw_unexplained(int neighbour, Failure failure, const Look& look) const {
    const Deadline until = std::min<Deadline>(deadline_, steady_clock::now() + kEvidence);
    for (look(); steady_clock::now() < until; look())
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    throw_about(neighbour, std::move(failure));
  }

  [[noreturn]] void throw_late() const {
    throw_about(*missing_.begin(),
                {.code = Code::timed_out,
                 .message = fmt::format("no connection to ranks {} in time; rank {} listens at {}. "
                                        "{}",
                                        fmt::join(missing_, ", "), mesh_.options_.rank,
                                        mesh_.listening_, kAdvice)});
  }

  // Again while packets are lost: what cuts this host off from the other one is known before that
  // is over, if a network joined them.
  void call(int neighbour, const std::string& address, const Look& look) {
    const Url url = parse_url(address);
    const std::vector<Address> addresses = resolve(url.host, static_cast<std::uint16_t>(url.port));
    const auto is_about = [](const std::string& problem, int error) {
      return problem.find(error_text(error)) != problem.npos;
    };
    const auto unreachable = [&](const std::string& why) {
      return Failure{.code = Code::unreachable,
                     .message = fmt::format("rank {} listened at {}, and there is no connection to "
                                            "it: {}. {}",
                                            neighbour, address, why, kAdvice)};
    };
    const Deadline answered = std::min<Deadline>(deadline_, steady_clock::now() + kUnanswered);
    std::string problem;
    Fd fd;
    for (;;) {
      look();
      fd =
          connect_tcp(addresses, std::min<Deadline>(answered, steady_clock::now() + kTry), problem);
      if (fd || (!is_about(problem, ETIMEDOUT) && !is_about(problem, EHOSTUNREACH))) break;
      if (steady_clock::now() >= answered) {
        look();
        throw_about(neighbour, unreachable(problem));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // a router says no at once
    }
    if (!fd && (is_about(problem, EMFILE) || is_about(problem, ENFILE)))
      throw_no_descriptor(problem);
    if (!fd) throw_unexplained(neighbour, unreachable(problem), look);
    auto link = std::make_unique<Link>(mesh_.handshake_with(neighbour), mesh_.options_.rank);
    auto line = std::make_unique<Line>(neighbour, std::move(fd), std::move(link), mesh_.options_);
    write_some(line->rails, *line->link);  // who is silent may be taken for a stranger
    shaking_.push_back({std::move(line), deadline_});
  }

  [[noreturn]] void throw_no_descriptor(const std::string& problem) const {
    throw_failure({.code = Code::out_of_resources,
                   .message = fmt::format("rank {} has no descriptor for a link to a neighbour: "
                                          "{}; raise ulimit -n",
                                          mesh_.options_.rank, problem),
                   .rank = mesh_.options_.rank});
  }

  void wait() const {
    std::vector<pollfd> entries;
    if (may_take_more()) entries.push_back({mesh_.listener_->get(), POLLIN, 0});
    for (const Shaking& one : shaking_) {
      one.line->rails.add_polled(entries, true, !one.line->link->output().empty());
    }
    ::poll(entries.data(), entries.size(),
           poll_timeout(std::min<Deadline>(deadline_, steady_clock::now() + kLook)));
  }

  bool may_take_more() const { return shaking_.size() < most_shaking_; }

  std::vector<Shaking>::iterator oldest_caller() {
    return std::ranges::find_if(shaking_, [](const Shaking& one) { return one.is_called(); });
  }

  // Of a caller that has been here for long: the oldest, if it can be one that has said nothing,
  // for a neighbour says hello at once, and may then be busy with others.
  bool make_room() {
    auto oldest = std::ranges::find_if(
        shaking_, [](const Shaking& one) { return one.is_called() && !one.has_spoken; });
    if (oldest == shaking_.end()) oldest = oldest_caller();
    if (oldest == shaking_.end() || steady_clock::now() < oldest->until - kShaking + kHurried)
      return false;
    shaking_.erase(oldest);
    return true;
  }

  void take_callers() {
    while (may_take_more() || make_room()) {
      Fd fd(::accept4(mesh_.listener_->get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd && (errno == EMFILE || errno == ENFILE)) {
        if (oldest_caller() == shaking_.end()) throw_no_descriptor(error_text(errno));
        most_shaking_ = shaking_.size();
        continue;
      }
      if (!fd) return;
      tune_tcp(fd.get());
      auto link = std::make_unique<Link>(mesh_.handshake_with(mesh_.options_.rank),
                                         [this](int rank) { return refusal_of(rank); });
      shaking_.push_back(
          {std::make_unique<Line>(-1, std::move(fd), std::move(link), mesh_.options_),
           steady_clock::now() + kShaking});
    }
  }

  std::optional<Failure> refusal_of(int caller) const {
    if (caller < mesh_.options_.rank && missing_.count(caller) != 0) return {};
    return Failure{
        .code = Code::mismatch,
        .message = fmt::format("rank {} expects no connection from rank {}: two processes "
                               "may claim that rank",
                               mesh_.options_.rank, caller)};
  }

  void move(Shaking& one, const Look& look) {
    Line& line = *one.line;
    const bool called = one.is_called();
    std::array<char, kReadBytes> buffer;
    std::string_view bytes;
    int error = 0;
    const Read read = read_some(line.rails, buffer, bytes, error);
    std::vector<Message> early;
    one.has_spoken = one.has_spoken || read == Read::bytes;
    if (read == Read::bytes)
      line.link->receive(bytes, [&](const Frame& frame) {
        early.push_back({-1, frame.header.type, std::string(frame.body)});
      });
    const int write_error = write_some(line.rails, *line.link);
    if (line.link->state() == Link::State::open) return settle(one, std::move(early));
    const bool ended = read == Read::end || read == Read::error || write_error != 0;
    if (line.link->state() == Link::State::shaking && !ended) {
      if (called && !one.has_spoken && steady_clock::now() >= one.until) one.line.reset();
      return;
    }
    if (read != Read::error) error = write_error;
    const bool refused = line.link->failure().has_value();
    Failure failure = line.link->failure().value_or(
        Failure{.code = Code::link_lost,
                .message = "the connection ended before it stood" +
                           (error == 0 ? std::string() : ": " + error_text(error))});
    const int neighbour = line.neighbour;
    one.line.reset();
    if (called) {
      log(LogLevel::info, "rank {}: a caller is no neighbour: {}", mesh_.options_.rank,
          failure.message);
      return;
    }
    failure.message = fmt::format("rank {}: {}", neighbour, failure.message);
    if (refused) throw_about(neighbour, std::move(failure));
    throw_unexplained(neighbour, std::move(failure), look);
  }

  void settle(Shaking& one, std::vector<Message> early) {
    Line& line = *one.line;
    if (line.neighbour < 0) line.neighbour = line.link->caller();
    for (Message& message : early) {
      message.from = line.neighbour;
      messages_.push_back(std::move(message));
    }
    missing_.erase(line.neighbour);
    open_.push_back(std::move(one.line));
  }

  const Mesh& mesh_;
  const Deadline deadline_;
  std::set<int> missing_;
  std::size_t most_shaking_;  // at once
  std::vector<Shaking> shaking_;
  std::vector<std::unique_ptr<Line>> open_;
  std::vector<Message> messages_;
};

void Mesh::connect(const std::function<std::string(int rank)>& address_of,
                   const std::function<void()>& look, Deadline deadline) {
  std::vector<int> neighbours = options_.neighbours;
  std::erase_if(neighbours, [&](int neighbour) { return address_of(neighbour).empty(); });
  Connecting connecting(*this, neighbours, deadline);
  std::exception_ptr problem;
  try {
    connecting.run(address_of, look);
  } catch (...) {  // the others shall hear of it by the links that are there
    problem = std::current_exception();
  }
  listener_.reset();
  {
    MutexLock lock(mutex_);
    lines_ = connecting.take_lines();
    early_ = connecting.take_messages();
  }
  if (problem) std::rethrow_exception(problem);
}

std::vector<Mesh::Connection> Mesh::take_connections() {
  MutexLock lock(mutex_);
  std::vector<Connection> all;
  for (const auto& line : lines_) {
    leave_unwatched(line->rails.fd());
    all.push_back({line->neighbour, std::move(line->rails)});
  }
  lines_.clear();
  return all;
}

void Mesh::add(std::vector<Connection> connections) {
  MutexLock lock(mutex_);
  for (Connection& one : connections)
    for (const auto& line : lines_)
      if (line->neighbour == one.neighbour) line->rails.add(one.rails.release());
}

// Nothing is read any more, and the other end shall see that. The descriptor stays: another thread
// may wait for it.
void Mesh::lose(Line& line, Loss::Kind kind, std::string why, News& news) {
  line.lost = true;
  line.rails.shutdown();
  news.losses.push_back({line.neighbour, kind, std::move(why)});
}

// The connection ended; `error` may be 0.
void Mesh::lose(Line& line, int error, News& news) {
  if (line.error != 0) error = line.error;  // the first says more
  const bool cut_off =
      error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == ENETDOWN;
  lose(line, cut_off ? Loss::Kind::cut_off : Loss::Kind::ended,
       error == 0 ? "its connection ended" : error_text(error), news);
}

void Mesh::flush(Line& line, News& news) {
  const int error = write_some(line.rails, *line.link);
  if (line.link->state() == Link::State::closed)
    return lose(line, Loss::Kind::corrupt, line.link->failure()->message, news);
  // What the neighbour said before it ended can still be read.
  if (error == 0 || error == EPIPE || error == ECONNRESET) return;
  lose(line, error, news);
}

void Mesh::receive(Line& line, News& news) {
  std::array<char, kReadBytes> buffer;
  for (;;) {
    std::string_view bytes;
    int error = 0;
    switch (read_some(line.rails, buffer, bytes, error)) {
      case Read::nothing:
        return;
      case Read::end:
        return lose(line, 0, news);
      case Read::error:
        return lose(line, error, news);
      case Read::bytes:
        line.link->receive(bytes, [&](const Frame& frame) {
          news.messages.push_back({line.neighbour, frame.header.type, std::string(frame.body)});
        });
    }
    if (line.link->state() == Link::State::closed)
      return lose(line, Loss::Kind::corrupt, line.link->failure()->message, news);
    if (bytes.size() < buffer.size()) return;
  }
}

void Mesh::post(Line& line, std::uint8_t type, std::string_view body) {
  if (line.lost) return;
  line.link->send(type, body);
  if (const int error = write_some(line.rails, *line.link); line.error == 0) line.error = error;
}

void Mesh::send(int neighbour, std::uint8_t type, std::string_view body) {
  MutexLock lock(mutex_);
  for (const auto& line : lines_)
    if (line->neighbour == neighbour) post(*line, type, body);
}

void Mesh::send_to_all(std::uint8_t type, std::string_view body, int except) {
  MutexLock lock(mutex_);
  for (const auto& line : lines_)
    if (line->neighbour != except) post(*line, type, body);
}

Mesh::News Mesh::drive() {
  News news;
  MutexLock lock(mutex_);
  news.messages.swap(early_);
  for (const auto& line : lines_) {
    if (line->lost) continue;
    flush(*line, news);
    if (!line->lost) receive(*line, news);
  }
  return news;
}

bool Mesh::has_several_networks() {
  MutexLock lock(mutex_);
  return std::ranges::any_of(lines_, [](const auto& line) { return line->rails.has_several(); });
}

bool Mesh::is_acknowledged() {
  MutexLock lock(mutex_);
  return std::ranges::all_of(lines_, [](const auto& line) {
    return line->lost || (line->link->output().empty() && line->rails.is_acknowledged());
  });
}

void Mesh::wait(Deadline deadline) {
  std::vector<pollfd> entries;
  {
    MutexLock lock(mutex_);
    if (!early_.empty()) return;
    for (const auto& line : lines_) {
      if (line->lost) continue;
      line->rails.add_polled(entries, true, !line->link->output().empty());
    }
  }
  // The descriptors stay as long as this object.
  ::poll(entries.data(), entries.size(), poll_timeout(deadline));
}

std::string addresses_of(const std::deque<Mesh>& meshes) {
  std::string all;
  for (const Mesh& mesh : meshes) all += (all.empty() ? "" : " ") + mesh.address();
  return all;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

}}  // namespace c10d::v0
