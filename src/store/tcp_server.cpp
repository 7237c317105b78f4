// SPDX-License-Identifier: BSD-3-Clause
#include "src/store/tcp_server.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <new>
#include <system_error>

#include "src/base/log.h"
#include "src/store/refusals.h"
#include "src/sync/thread.h"

namespace c10d { inline namespace v0 {

using std::chrono::steady_clock;

namespace {

constexpr std::size_t kReadBytes = 64 * 1024;

void check(int result, std::string_view call) {
  if (result < 0)
    throw_failure(
        {.code = Code::out_of_resources,
         .message = fmt::format("cannot start the store's server: {}: {}; raise ulimit -n", call,
                                uv_strerror(result))});
}

// The first loop of a process takes a pipe for signals after a descriptor or two of its own, and
// libuv ends the process when it gets none.
void check_descriptors() {
  Fd held[4];
  for (Fd& fd : held) {
    fd.reset(::eventfd(0, EFD_CLOEXEC));
    check(fd ? 0 : -errno, "eventfd");
  }
}

template <class Handle>
uv_handle_t* base(Handle* handle) {
  return reinterpret_cast<uv_handle_t*>(handle);
}

// Strangers never take more than a quarter of the descriptors that the process may have.
std::size_t limbo_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 64;
  return std::clamp<std::size_t>(limit.rlim_cur / 4, 16, 1024);
}

}  // namespace

struct TcpServer::Connection {
  Connection(TcpServer& owner)
      : server(owner), session(std::make_unique<Session>(owner.service_, [this] {
          if (!std::exchange(dirty, true)) server.dirty_.push_back(this);
        })) {}

  TcpServer& server;
  uv_tcp_t handle{};
  uv_write_t write{};
  uv_shutdown_t shutdown{};
  std::string writing;  // under way in libuv
  bool dirty = false;   // listed in dirty_
  bool half_closed = false;
  bool closed = false;
  Deadline leave_by{};  // while in limbo
  std::string host;     // of the other end
  Connections::iterator self;
  Connections::iterator limbo;
  bool in_limbo = false;
  std::unique_ptr<Session> session;
};

TcpServer::TcpServer(Fd listener, HandshakeOptions options, StoreLimits limits)
    : service_(std::move(options), limits), max_limbo_(limbo_limit()), buffer_(kReadBytes) {
  check_descriptors();
  check(uv_loop_init(&loop_), "uv_loop_init");
  int result = uv_async_init(
      &loop_, &stop_, [](uv_async_t* handle) { static_cast<TcpServer*>(handle->data)->stop(); });
  uv_timer_init(&loop_, &timer_);
  uv_tcp_init(&loop_, &listener_);
  stop_.data = timer_.data = listener_.data = this;
  if (result == 0) result = uv_tcp_open(&listener_, listener.get());
  if (result == 0) {
    listener.release();
    result = uv_listen(reinterpret_cast<uv_stream_t*>(&listener_), SOMAXCONN,
                       [](uv_stream_t* stream, int status) {
                         auto* server = static_cast<TcpServer*>(stream->data);
                         if (status == 0) server->accept();
                         server->settle();
                       });
  }
  try {
    check(result, "uv_listen");
    thread_ = start_thread([this] { run(); });
  } catch (const std::exception& error) {
    uv_walk(
        &loop_, [](uv_handle_t* handle, void*) { uv_close(handle, nullptr); }, nullptr);
    uv_run(&loop_, UV_RUN_DEFAULT);
    uv_loop_close(&loop_);
    if (dynamic_cast<const std::system_error*>(&error) == nullptr) throw;
    throw_failure({.code = Code::out_of_resources,
                   .message = fmt::format("cannot start the thread of the store's server: {}; "
                                          "raise ulimit -u",
                                          error.what())});
  }
}

TcpServer::~TcpServer() {
  // The thread of the parent does not exist in a forked child, and the loop is not the child's to
  // touch.
  if (::getpid() != owner_) {
    new (&thread_) std::thread;  // there is nothing to join or to detach
    return;
  }
  uv_async_send(&stop_);
  thread_.join();
  uv_loop_close(&loop_);
}

void TcpServer::run() noexcept {
  pthread_setname_np(pthread_self(), "c10d-store");
  uv_run(&loop_, UV_RUN_DEFAULT);
}

void TcpServer::stop() {
  for (Connection* connection : connections_)
    if (!connection->closed) connection->session->say_goodbye();
  settle();
  const Connections all = connections_;
  for (Connection* connection : all) close(*connection);
  uv_close(base(&listener_), nullptr);
  uv_close(base(&timer_), nullptr);
  uv_close(base(&stop_), nullptr);
}

void TcpServer::accept() {
  auto* connection = new (std::nothrow) Connection(*this);
  if (connection == nullptr) return;
  uv_tcp_init(&loop_, &connection->handle);
  connection->handle.data = connection;
  connections_.push_back(connection);
  connection->self = std::prev(connections_.end());
  auto* stream = reinterpret_cast<uv_stream_t*>(&connection->handle);
  if (uv_accept(reinterpret_cast<uv_stream_t*>(&listener_), stream) != 0) return close(*connection);
  uv_os_fd_t fd = -1;
  if (uv_fileno(base(&connection->handle), &fd) == 0) {
    tune_tcp(fd);
    connection->host = peer_host(fd);
  }
  if (limbo_.size() >= max_limbo_) close(*limbo_.front());
  enter_limbo(*connection);
  uv_read_start(
      stream,
      [](uv_handle_t* handle, std::size_t, uv_buf_t* buffer) {
        auto& shared = static_cast<Connection*>(handle->data)->server.buffer_;
        *buffer = uv_buf_init(shared.data(), static_cast<unsigned>(shared.size()));
      },
      [](uv_stream_t* from, ssize_t count, const uv_buf_t* buffer) {
        auto& that = *static_cast<Connection*>(from->data);
        TcpServer& server = that.server;
        if (count > 0) server.received(that, {buffer->base, static_cast<std::size_t>(count)});
        if (count < 0) server.lose(that, static_cast<int>(count));
        server.settle();
      });
}

void TcpServer::received(Connection& connection, std::string_view bytes) noexcept {
  if (connection.closed) return;
  try {
    connection.session->receive(bytes);
  } catch (const std::exception& error) {
    log(LogLevel::error, "store server: dropped a client: {}", error.what());
    close(connection);
  }
}

void TcpServer::enter_limbo(Connection& connection) {
  leave_limbo(connection);
  connection.leave_by = steady_clock::now() + kStrangerDeadline;
  limbo_.push_back(&connection);
  connection.limbo = std::prev(limbo_.end());
  connection.in_limbo = true;
}

void TcpServer::leave_limbo(Connection& connection) {
  if (std::exchange(connection.in_limbo, false)) limbo_.erase(connection.limbo);
}

void TcpServer::settle() noexcept {
  try {
    // Ending one session may give output to others.
    while (!dirty_.empty()) {
      std::vector<Connection*> dirty;
      dirty.swap(dirty_);
      for (Connection* connection : dirty) {
        connection->dirty = false;
        if (!connection->closed) flush(*connection);
      }
    }
    set_timer();
  } catch (const std::exception& error) {
    log(LogLevel::error, "store server: {}", error.what());
  }
}

void TcpServer::flush(Connection& connection) {
  Session& session = *connection.session;
  auto* stream = reinterpret_cast<uv_stream_t*>(&connection.handle);
  if (!connection.writing.empty() || connection.half_closed) return;
  if (!session.is_stranger() && !session.closing()) leave_limbo(connection);
  std::string output = session.take_output();
  if (!output.empty()) {
    uv_buf_t part = uv_buf_init(output.data(), static_cast<unsigned>(output.size()));
    const int count = std::max(0, uv_try_write(stream, &part, 1));
    session.sent(static_cast<std::size_t>(count));
    connection.writing = output.substr(static_cast<std::size_t>(count));
  }
  if (session.closing() && !connection.in_limbo) enter_limbo(connection);
  if (!connection.writing.empty()) {
    uv_buf_t part =
        uv_buf_init(connection.writing.data(), static_cast<unsigned>(connection.writing.size()));
    uv_write(&connection.write, stream, &part, 1, [](uv_write_t* request, int status) {
      auto& that = *static_cast<Connection*>(request->handle->data);
      if (that.closed) return;
      that.session->sent(that.writing.size());
      that.writing.clear();
      TcpServer& server = that.server;
      if (status != 0) server.lose(that, status);
      if (!that.closed) server.flush(that);
      server.settle();
    });
  } else if (session.closing()) {
    // A close with unread input would destroy the refusal on its way: the other side closes first,
    // or loses.
    if (session.failure()) note_refusal(connection);
    connection.half_closed = true;
    uv_shutdown(&connection.shutdown, stream, nullptr);
  }
}

// Who waits in vain for ranks with another token finds in the store that they were here.
void TcpServer::note_refusal(const Connection& connection) {
  const Failure& why = *connection.session->failure();
  LogLevel level = LogLevel::debug;
  constexpr std::size_t kMostAddresses = 16;
  if (why.code == Code::not_authenticated &&
      (other_tokens_.size() < kMostAddresses || other_tokens_.contains(connection.host))) {
    if (++other_tokens_[connection.host] == 1) level = LogLevel::warn;
    std::string text;
    for (const auto& [host, count] : other_tokens_)
      text += fmt::format("{}{} from {} refused", text.empty() ? "" : ", ",
                          count == 1 ? "1 connection" : fmt::format("{} connections", count),
                          host + (count == 1 ? " was" : " were"));
    text += ": another token";
    const Request request{.op = StoreOp::set, .keys = {kRefusalsKey}, .values = {text}};
    service_.engine().submit(request, steady_clock::now(), [](const Reply&) {});
  }
  log(level, "store server: refused a connection from {}: {}", connection.host, why.message);
}

void TcpServer::lose(Connection& connection, int error) {
  if (connection.session && (error == UV_EOF || error == UV_ECONNRESET || error == UV_EPIPE))
    connection.session->note_closed();
  close(connection);
}

void TcpServer::close(Connection& connection) {
  if (std::exchange(connection.closed, true)) return;
  leave_limbo(connection);
  connection.session.reset();
  uv_close(base(&connection.handle), [](uv_handle_t* handle) {
    auto* that = static_cast<Connection*>(handle->data);
    that->server.connections_.erase(that->self);
    std::erase(that->server.dirty_, that);
    delete that;
  });
}

void TcpServer::tick() {
  const Deadline now = steady_clock::now();
  timer_at_ = Deadline::max();
  service_.tick(now);
  while (!limbo_.empty() && limbo_.front()->leave_by <= now) close(*limbo_.front());
  settle();
}

void TcpServer::set_timer() {
  Deadline next = service_.next_deadline().value_or(Deadline::max());
  if (!limbo_.empty()) next = std::min(next, limbo_.front()->leave_by);
  if (next == timer_at_) return;
  timer_at_ = next;
  if (next == Deadline::max()) {
    uv_timer_stop(&timer_);
    return;
  }
  uv_update_time(&loop_);
  uv_timer_start(
      &timer_, [](uv_timer_t* timer) { static_cast<TcpServer*>(timer->data)->tick(); },
      static_cast<std::uint64_t>(poll_timeout(next)), 0);
}

}}  // namespace c10d::v0
