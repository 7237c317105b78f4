// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "src/base/log.h"
#include "src/base/mutex.h"
#include "src/net/bytes.h"
#include "src/net/handshake.h"
#include "src/net/socket.h"
#include "src/net/token.h"
#include "src/store/request_store.h"
#include "src/store/server_state.h"
#include "src/store/tcp_options.h"
#include "src/store/tcp_server.h"
#include "src/sync/wait_look.h"

namespace c10d { inline namespace v0 {

namespace {

using std::chrono::steady_clock;

// How long a connection that broke may take to come back.
constexpr Duration kReconnectWindow = std::chrono::milliseconds(1500);
// The server ends a wait at its deadline; its answer may take a moment.
constexpr Duration kAnswerGrace = std::chrono::seconds(1);
constexpr Duration kFirstConnectPause = std::chrono::milliseconds(5);
constexpr Duration kLongestConnectPause = std::chrono::milliseconds(200);
constexpr Duration kReport = std::chrono::seconds(10);  // between lines about a store that is late

// Nothing to wait for but time: a server that is not there yet cannot say when it will be.
void pause_until(Deadline deadline) {
  while (steady_clock::now() < deadline) ::poll(nullptr, 0, poll_timeout(deadline));
}

// One call of one thread, as long as the thread is in it.
struct StoreCall {
  std::uint64_t id = 0;
  Deadline deadline;
  std::string frame;
  std::optional<Reply> reply;
  CondVar changed;
};

// A client that has no thread of its own: of the threads that are in a call, one drives the socket
// for all.
class TcpClient final : public RequestStore<TcpStore> {
 public:
  explicit TcpClient(const TcpStoreOptions& options)
      : RequestStore(options.timeout),
        handshake_(handshake_options(options)),
        host_(options.host),
        will_(will_frame(options)) {
    if (options.server) start_server(options);
    if (!options.server) port_ = options.port;
    wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake_)
      throw_failure({.code = Code::out_of_resources,
                     .message = "eventfd: " + error_text(errno) + "; raise ulimit -n"});
    connect_first(options, steady_clock::now() + timeout());
  }

  ~TcpClient() override {
    // A forked child shares the connection and must not end it for its parent.
    if (::getpid() != owner_) return;
    MutexLock lock(mutex_);
    if (!socket_ || failure_) return;
    append_frame(output_, goodbye_frame, 0, {});
    flush();
  }

  std::uint16_t port() const noexcept override { return port_; }
  const std::string& host() const noexcept override { return host_; }
  bool was_shut_down() const noexcept override { return was_shut_down_; }

 private:
  struct LaneState {
    std::uint64_t last = 0;  // id
    StoreCall* call = nullptr;
    bool busy = false;  // without a call: its thread gave up, the server's answer is still to come
  };

  Reply perform(const Request& request, Deadline deadline) override;
  Reply exchange(StoreCall& call) C10D_REQUIRES(mutex_);
  void abandon(const StoreCall& call) C10D_REQUIRES(mutex_);
  void start_server(const TcpStoreOptions& options);
  void connect_first(const TcpStoreOptions& options, Deadline deadline);
  // One attempt. Nothing: no server answered, `problem` says why.
  std::optional<Failure> connect_once(bool resume, Deadline deadline, Fd& fd, std::string& problem);
  void drive(Deadline until) C10D_REQUIRES(mutex_);
  void reconnect(Deadline until) C10D_REQUIRES(mutex_);
  void resend() C10D_REQUIRES(mutex_);
  void send_again(StoreCall& call) C10D_REQUIRES(mutex_);
  void flush() C10D_REQUIRES(mutex_);
  void receive() C10D_REQUIRES(mutex_);
  bool take(const Frame& frame) C10D_REQUIRES(mutex_);
  void lose() C10D_REQUIRES(mutex_);
  void forget_given_up_calls() C10D_REQUIRES(mutex_);
  void fail(Failure failure) C10D_REQUIRES(mutex_);
  bool claim_lane(StoreCall& call) C10D_REQUIRES(mutex_);
  void wake_driver() C10D_REQUIRES(mutex_);
  void hand_over() C10D_REQUIRES(mutex_);

  std::unique_ptr<TcpServer> server_;  // outlives the connection to it
  const HandshakeOptions handshake_;
  const std::string client_id_ = random_bytes(kClientIdBytes);
  const pid_t owner_ = ::getpid();
  std::string host_;
  std::uint16_t port_ = 0;
  std::vector<Address> addresses_;
  StoreLimits limits_;      // the server's
  const std::string will_;  // as its frame, or empty
  Fd wake_;                 // tells the driving thread to look again
  std::atomic<bool> was_shut_down_{false};

  Mutex mutex_;
  Fd socket_ C10D_GUARDED_BY(mutex_);
  FrameParser parser_ C10D_GUARDED_BY(mutex_){0};
  std::string output_ C10D_GUARDED_BY(mutex_);
  std::vector<LaneState> lanes_ C10D_GUARDED_BY(mutex_);
  const StoreCall* driver_ C10D_GUARDED_BY(mutex_) = nullptr;  // its thread reads for all
  Deadline lost_at_ C10D_GUARDED_BY(mutex_){};
  std::optional<Failure> failure_ C10D_GUARDED_BY(mutex_);
  std::array<char, 64 * 1024> input_ C10D_GUARDED_BY(mutex_);
};

void TcpClient::start_server(const TcpStoreOptions& options) {
  Fd listener;
  if (options.listen_fd >= 0) {
    listener.reset(options.listen_fd);
    ::fcntl(listener.get(), F_SETFD, FD_CLOEXEC);
  } else {
    const Address wanted = resolve(options.host, options.port).front();
    check_address(wanted, options);
    listener = listen_tcp(wanted);
  }
  Address bound = local_address(listener.get());
  check_address(bound, options);
  port_ = bound.port();
  server_ = std::make_unique<TcpServer>(std::move(listener), handshake_, options.limits);
  if (bound.is_wildcard())
    addresses_ = resolve(bound.family() == AF_INET6 ? "::1" : "127.0.0.1", port_);
  else
    addresses_.push_back(bound);
}

std::optional<Failure> TcpClient::connect_once(bool resume, Deadline deadline, Fd& fd,
                                               std::string& problem) {
  Fd socket = connect_tcp(addresses_, deadline, problem);
  if (!socket) return {};
  ClientHandshake handshake(handshake_, client_id_, resume);
  switch (run_handshake(socket.get(), handshake, deadline)) {
    case Step::done:
      break;
    case Step::more:
      problem = show_host_port(host_, port_) +
                (steady_clock::now() < deadline
                     ? ": the connection ended during the handshake; its server may have too few "
                       "descriptors (raise ulimit -n there)"
                     : ": the server does not answer; it may be no store, or it is stopped");
      return {};
    case Step::refused:
      Failure failure = *handshake.failure();
      failure.message =
          fmt::format("store at {}: {}", show_host_port(host_, port_), failure.message);
      return failure;
  }
  if (!resume) {
    ByteReader reader(handshake.welcome());
    for (std::size_t* limit : {&limits_.key_bytes, &limits_.value_bytes, &limits_.total_bytes,
                               &limits_.keys, &limits_.clients, &limits_.output_queue_bytes})
      *limit = reader.take<std::uint64_t>();
    if (!reader.finished())
      return Failure{
          .code = Code::corrupt,
          .message = fmt::format("store at {}: a malformed welcome", show_host_port(host_, port_))};
  }
  fd = std::move(socket);
  return {};
}

void TcpClient::connect_first(const TcpStoreOptions& options, Deadline deadline) {
  Fd socket;
  std::string problem = "no address";
  Duration pause = kFirstConnectPause;
  for (auto next_report = steady_clock::now() + kReport;;) {
    if (addresses_.empty()) {
      addresses_ = try_to_resolve(host_, port_, problem);
      for (const Address& address : addresses_) check_address(address, options);
    }
    if (auto failure = connect_once(false, deadline, socket, problem)) throw_failure(*failure);
    if (socket) break;
    if (steady_clock::now() >= deadline)
      throw_failure({.code = Code::timed_out,
                     .message = fmt::format("no store answered before the deadline: {}; check that "
                                            "its server runs and that the address is right",
                                            problem)});
    if (steady_clock::now() >= next_report) {
      next_report += kReport;
      log(LogLevel::warn, "still waiting for the store at {}: {}; rank 0, or c10d-run, serves it",
          show_host_port(host_, port_), problem);
    }
    pause_until(std::min({deadline, WaitLook::next(), steady_clock::now() + pause}));
    if (WaitLook::due()) throw_failure(WaitLook::failure());
    pause = std::min(2 * pause, kLongestConnectPause);
  }
  MutexLock lock(mutex_);
  parser_.set_max_body(max_body_bytes(limits_));
  socket_ = std::move(socket);
  output_ = will_;
  flush();
}

bool TcpClient::claim_lane(StoreCall& call) {
  std::size_t number = 0;
  while (number < lanes_.size() && lanes_[number].busy) ++number;
  if (number == kMaxLanes) return false;
  if (number == lanes_.size()) lanes_.emplace_back();
  LaneState& lane = lanes_[number];
  if (lane.last == 0) lane.last = static_cast<std::uint64_t>(number) << kLaneShift;
  output_.reserve(output_.size() + call.frame.size());  // from here on nothing throws
  call.id = ++lane.last;
  lane.call = &call;
  lane.busy = true;
  return true;
}

Reply TcpClient::perform(const Request& request, Deadline deadline) {
  if (auto refusal = refuse(request, limits_)) return *std::move(refusal);
  if (::getpid() != owner_)
    return error_reply(
        Code::forked_child,
        fmt::format("the store at {} belongs to the parent process; make one after fork",
                    show_host_port(host_, port_)));
  StoreCall call;
  call.deadline = deadline;
  call.frame.reserve(kFrameHeaderBytes + encoded_size(request));
  begin_frame(call.frame, static_cast<std::uint8_t>(request.op), 0);
  encode(std::max(Duration::zero(), Duration(deadline - steady_clock::now())), request, call.frame);
  end_frame(call.frame, 0);

  MutexLock lock(mutex_);
  try {
    return exchange(call);
  } catch (const std::exception& error) {
    abandon(call);
    return error_reply(Code::out_of_resources,
                       fmt::format("store at {}: in this process: {}; raise ulimit -v",
                                   show_host_port(host_, port_), error.what()));
  }
}

Reply TcpClient::exchange(StoreCall& call) {
  if (failure_) return {.failure = failure_};
  while (!claim_lane(call)) {
    // The answers to calls that were given up may be there: only a call reads them.
    if (!socket_ || !wait_for(socket_.get(), POLLIN, steady_clock::now()))
      return error_reply(
          Code::store_limit,
          fmt::format("{} calls are under way in this store client, the most it takes", kMaxLanes));
    receive();
    wake_driver();  // its answer may have been among them
    if (failure_) return {.failure = failure_};
  }
  set_frame_id(call.frame, call.id);
  if (socket_) {
    output_ += call.frame;
    flush();
    if (!output_.empty()) wake_driver();
  }
  const Deadline give_up = call.deadline + kAnswerGrace;
  while (!call.reply && steady_clock::now() < give_up) {
    if (driver_ != nullptr) {
      call.changed.wait_until(mutex_, give_up);
    } else {
      driver_ = &call;
      drive(give_up);
      driver_ = nullptr;
    }
  }
  hand_over();
  LaneState& lane = lanes_[call.id >> kLaneShift];
  lane.call = nullptr;
  if (call.reply) {
    lane.busy = false;
    return *std::move(call.reply);
  }
  return error_reply(Code::timed_out,
                     fmt::format("the store's server at {} did not answer before the deadline",
                                 show_host_port(host_, port_)));
}

// What was read or written may have ended within a frame: all calls go to the next connection.
void TcpClient::abandon(const StoreCall& call) {
  for (LaneState& lane : lanes_)
    if (lane.call == &call) lane.call = nullptr;
  if (driver_ == &call) driver_ = nullptr;
  lose();
  hand_over();
}

void TcpClient::wake_driver() {
  if (driver_ != nullptr) ::eventfd_write(wake_.get(), 1);
}

void TcpClient::hand_over() {
  if (driver_ != nullptr) return;
  for (const LaneState& lane : lanes_)
    if (lane.call != nullptr && !lane.call->reply) return lane.call->changed.notify_one();
}

void TcpClient::drive(Deadline until) {
  if (!socket_) return reconnect(until);
  pollfd entries[2] = {
      {socket_.get(), static_cast<short>(output_.empty() ? POLLIN : POLLIN | POLLOUT), 0},
      {wake_.get(), POLLIN, 0}};
  mutex_.unlock();
  const int ready = ::poll(entries, 2, poll_timeout(until));
  mutex_.lock();
  if (ready <= 0) return;
  if (entries[1].revents != 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto taken = ::read(wake_.get(), &count, sizeof count);
  }
  // Another thread may have seen the connection end meanwhile.
  if (socket_ && (entries[0].revents & POLLOUT) != 0) flush();
  if (socket_ && (entries[0].revents & ~POLLOUT) != 0) receive();
}

void TcpClient::flush() {
  while (socket_ && !output_.empty()) {
    const ssize_t sent =
        ::send(socket_.get(), output_.data(), output_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0)
      output_.erase(0, static_cast<std::size_t>(sent));
    else if (errno == EAGAIN)
      return;
    else if (errno != EINTR)
      lose();
  }
}

void TcpClient::receive() {
  const ssize_t count = ::recv(socket_.get(), input_.data(), input_.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return lose();
  const std::string_view bytes(input_.data(), static_cast<std::size_t>(count));
  // The lock is held all along; the analysis does not see through the parser.
  const auto sink = [this](const Frame& frame)
                        C10D_THREAD_ANNOTATION(no_thread_safety_analysis) { return take(frame); };
  if (auto problem = parser_.feed(bytes, sink)) fail(*std::move(problem));
  flush();
}

bool TcpClient::take(const Frame& frame) {
  if (frame.header.type == refusal_frame) {
    fail(refusal_of(frame));
    return false;
  }
  if (frame.header.type == goodbye_frame) {
    was_shut_down_ = true;
    fail({.code = Code::store_lost,
          .message = "its server was shut down; the process that serves a store ends last: if that "
                     "is rank 0, let it wait for the others, or let c10d-run serve the store"});
    return false;
  }
  const std::size_t number = frame.header.id >> kLaneShift;
  const bool later = frame.header.type == kLaterFrame;
  Reply reply;
  if (number >= lanes_.size() || !lanes_[number].busy || frame.header.id != lanes_[number].last ||
      !(later ? frame.body.empty() : decode(frame.body, reply))) {
    fail({.code = Code::corrupt, .message = "a malformed answer arrived"});
    return false;
  }
  if (frame.body.size() > kLargeAnswer) append_frame(output_, kSettledFrame, frame.header.id, {});
  LaneState& lane = lanes_[number];
  if (lane.call == nullptr) {
    lane.busy = false;
  } else if (!lane.call->reply && later) {
    send_again(*lane.call);
  } else if (!lane.call->reply) {
    lane.call->reply = std::move(reply);
    lane.call->changed.notify_one();
  }
  return true;
}

void TcpClient::lose() {
  socket_.reset();
  output_.clear();
  wake_driver();  // it may poll what is no more
  lost_at_ = steady_clock::now();
  forget_given_up_calls();
}

// The server withdrew them with the connection.
void TcpClient::forget_given_up_calls() {
  for (LaneState& lane : lanes_)
    if (lane.call == nullptr) lane.busy = false;
}

void TcpClient::fail(Failure failure) {
  socket_.reset();
  output_.clear();
  wake_driver();
  failure.message = fmt::format("store at {}: {}", show_host_port(host_, port_), failure.message);
  failure_ = std::move(failure);
  for (LaneState& lane : lanes_) {
    if (lane.call == nullptr || lane.call->reply) continue;
    lane.call->reply = Reply{.failure = failure_};
    lane.call->changed.notify_one();
  }
}

void TcpClient::reconnect(Deadline until) {
  // A try that was given up long ago, when its caller's time was over, does not count.
  if (steady_clock::now() >= lost_at_ + kReconnectWindow) lost_at_ = steady_clock::now();
  const Deadline lost = lost_at_ + kReconnectWindow;
  const Deadline deadline = std::min(until, lost);
  Fd socket;
  std::string problem = "the connection ended";
  std::optional<Failure> refusal;
  Duration pause = kFirstConnectPause;
  mutex_.unlock();
  try {
    for (; steady_clock::now() < deadline; pause = std::min(2 * pause, kLongestConnectPause)) {
      refusal = connect_once(true, deadline, socket, problem);
      if (socket || refusal) break;
      pause_until(std::min(deadline, steady_clock::now() + pause));
    }
  } catch (const std::exception& error) {
    mutex_.lock();
    return fail({.code = Code::store_lost, .message = error.what()});
  }
  mutex_.lock();
  if (refusal) {
    was_shut_down_ = refusal->code == Code::store_lost;  // another server is here
    return fail(*std::move(refusal));
  }
  if (socket) {
    socket_ = std::move(socket);
    return resend();
  }
  if (steady_clock::now() >= lost)
    fail({.code = Code::store_lost,
          .message = "its server is gone: " + problem +
                     "; look at why the process that serves it (rank 0, or the launcher) ended"});
}

void TcpClient::resend() {
  parser_ = FrameParser(max_body_bytes(limits_));
  output_ = will_;  // the one before may have been lost with the connection
  forget_given_up_calls();
  for (const LaneState& lane : lanes_)
    if (lane.call != nullptr && !lane.call->reply) send_again(*lane.call);
  flush();
}

void TcpClient::send_again(StoreCall& call) {
  const Duration left = call.deadline - steady_clock::now();
  std::string timeout;
  put(timeout, static_cast<std::uint64_t>(std::max(Duration::zero(), left).count()));
  call.frame.replace(kFrameHeaderBytes, kTimeoutBytes, timeout);
  output_ += call.frame;
}

}  // namespace

std::shared_ptr<TcpStore> make_tcp_store(const TcpStoreOptions& options) {
  return std::make_shared<TcpClient>(options);
}

}}  // namespace c10d::v0
