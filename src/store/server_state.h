// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/net/handshake.h"
#include "src/store/pending_requests.h"

// The server of a TcpStore without its sockets: bytes in, bytes out. Everything here runs on one
// thread.
namespace c10d { inline namespace v0 {

// A client numbers its calls (lane << kLaneShift | n), n growing by one within a lane, and has at
// most one call under way per lane. A call therefore settles the one before it in its lane, and
// remembering one answer per lane is enough to carry out every call exactly once across
// reconnections.
inline constexpr int kLaneShift = 48;
inline constexpr std::size_t kMaxLanes = 1024;
// How long a client that vanished without a goodbye may come back.
inline constexpr Duration kClientMemory = std::chrono::seconds(10);
// A client says that it has the answer with this id: for large ones, which the server need not keep
// until the lane's next call.
inline constexpr std::uint8_t kSettledFrame = 0x40;
inline constexpr std::size_t kLargeAnswer = 4096;
// The server has no room to queue the answer with this id: the client, which has read all before
// this, sends the call again.
inline constexpr std::uint8_t kLaterFrame = 0x46;
// A client leaves its will (TcpStoreOptions::will).
inline constexpr std::uint8_t kWillFrame = 0x45;
inline constexpr std::size_t kMaxWillBytes = 4096;
// How long one with a will may stay away whose host says that it closed the connection, as when its
// process ends: longer than a client that lives needs to come back.
inline constexpr Duration kClosedMemory = std::chrono::seconds(3);

class Session;

struct Lane {
  std::uint64_t id = 0;  // of the last call
  Engine::Ticket ticket = 0;
  std::string answer;  // of a mutation, as its frame; empty = settled
};

// What the server knows of a client; survives its connection for a while.
struct StoreClient {
  std::string id;
  std::vector<Lane> lanes;
  std::size_t remembered_bytes = 0;
  Session* session = nullptr;
  Deadline forget_at{};  // without a session
  std::vector<std::pair<std::string, std::string>> will;
  std::optional<Failure> refusal;  // why it was dropped: said when it comes back
};

class Service {
 public:
  Service(HandshakeOptions options, StoreLimits limits);

  Engine& engine() noexcept { return engine_; }
  const StoreLimits& limits() const noexcept { return limits_; }
  const HandshakeOptions& handshake() const noexcept { return options_; }
  // Ends waits whose deadline passed, forgets clients that stay away.
  void tick(Deadline now);
  std::optional<Deadline> next_deadline() const;

 private:
  friend class Session;
  // The client of a new connection, or why there is none.
  StoreClient* join(const std::string& id, bool resumes, Session* session, Failure& refusal);
  // The connection of the client ended: its waiting calls are withdrawn.
  void leave(StoreClient& client, Duration memory);
  void forget(std::list<StoreClient>::iterator client);
  std::size_t connected() const;

  HandshakeOptions options_;
  StoreLimits limits_;
  Engine engine_;
  std::list<StoreClient> clients_;
};

// One connection.
class Session {
 public:
  // `on_output` is called when there is something to send or the connection is to be closed.
  Session(Service& service, std::function<void()> on_output);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  void receive(std::string_view bytes);
  // Says goodbye, as a server that shuts down in good order.
  void say_goodbye();
  // The other side closed the connection; it did not break.
  void note_closed() noexcept { closed_ = true; }
  // What is to be sent. The transport reports through sent() what has left.
  std::string take_output();
  void sent(std::size_t bytes) noexcept;
  // Send what there is, then close.
  bool closing() const noexcept { return closing_; }
  bool is_stranger() const noexcept { return client_ == nullptr; }
  const std::optional<Failure>& failure() const noexcept { return failure_; }

 private:
  friend class Service;
  bool handle(const Frame& frame);
  void shake_hands(const Frame& frame);
  void welcome();
  void call(const Frame& frame);
  void execute(std::size_t lane, const Request& request, Duration timeout);
  void answer(std::size_t lane, StoreOp op, const Reply& reply);
  void settle(std::uint64_t id);
  void take_will(const Frame& frame);
  void send(std::string_view bytes);
  // Sends the answer, or when to ask for it.
  void offer(std::uint64_t id, std::string_view answer);
  void put_off(std::uint64_t id);
  void drop(std::string_view why);
  void refuse(Failure failure);
  // Ends the session, and the client with it when it leaves for good.
  void detach(bool for_good);
  void leave(bool for_good);

  Service& service_;
  std::function<void()> on_output_;
  FrameParser parser_;
  ServerHandshake handshake_;
  StoreClient* client_ = nullptr;
  std::string output_;
  std::size_t unsent_ = 0;
  std::uint64_t sent_ = 0;
  std::deque<std::uint64_t> unsent_laters_;  // how much is sent once each of them is
  bool closing_ = false;
  bool closed_ = false;
  std::optional<Failure> failure_;
};

}}  // namespace c10d::v0
