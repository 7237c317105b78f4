// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "c10d/call.h"
#include "c10d/error.h"
#include "src/net/frame.h"

// Three messages by which both ends of a connection prove that they belong to one job and know its
// token. State machines without sockets: they take frames and give bytes.
namespace c10d { inline namespace v0 {

// Frame types of the handshake; a protocol on top uses those below.
enum HandshakeType : std::uint8_t {
  hello_frame = 0xf0,
  challenge_frame,
  proof_frame,
  welcome_frame,
  refusal_frame,  // (code, message): the sender closes after it; of a client: another token
  goodbye_frame   // the sender leaves in good order
};
inline constexpr std::size_t kMaxStrangerFrame = 512;
inline constexpr Duration kStrangerDeadline = std::chrono::seconds(2);
inline constexpr std::size_t kMaxJobBytes = 128;
inline constexpr std::size_t kMaxRoleBytes = 32;
inline constexpr std::size_t kClientIdBytes = 16;

struct HandshakeOptions {
  std::string job;   // at most kMaxJobBytes
  std::string role;  // what the connection is for: "store", ...
  std::string token;
};

enum class Step { more, done, refused };

C10D_API void append_refusal(std::string& out, const Failure& failure);
C10D_API Failure refusal_of(const Frame& frame);

class C10D_API ServerHandshake {
 public:
  explicit ServerHandshake(const HandshakeOptions& options) : options_(options) {}

  // Appends what is to be sent. After `done` the caller sends a welcome; after `refused` it closes.
  // A client that refuses this side has another token.
  Step step(const Frame& frame, std::string& out);
  const std::string& client_id() const noexcept { return client_id_; }
  bool resumes() const noexcept { return resumes_; }
  const std::optional<Failure>& failure() const noexcept { return failure_; }

 private:
  Step refuse(Failure failure, std::string& out);
  Step hello(std::string_view body, std::string& out);

  const HandshakeOptions& options_;
  std::string transcript_;
  std::string client_id_;
  bool resumes_ = false;
  std::optional<Failure> failure_;
};

class C10D_API ClientHandshake {
 public:
  // `resume`: the same client id was connected before.
  ClientHandshake(const HandshakeOptions& options, std::string_view client_id, bool resume);

  const std::string& hello() const noexcept { return hello_; }  // the bytes to send first
  Step step(const Frame& frame, std::string& out);
  Step refuse(Failure failure);
  const std::optional<Failure>& failure() const noexcept { return failure_; }
  const std::string& welcome() const noexcept { return welcome_; }

 private:
  Step challenge(std::string_view body, std::string& out);

  const HandshakeOptions& options_;
  std::string transcript_;
  std::string hello_;
  bool challenged_ = false;
  std::string welcome_;
  std::optional<Failure> failure_;
};

// Runs the client's side over a connected socket. `more`: the connection ended, the other side said
// goodbye, or the deadline passed, without an answer.
C10D_API Step run_handshake(int fd, ClientHandshake& handshake, Deadline deadline);

}}  // namespace c10d::v0
