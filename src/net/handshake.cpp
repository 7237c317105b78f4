// SPDX-License-Identifier: BSD-3-Clause
#include "src/net/handshake.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "src/net/bytes.h"
#include "src/net/socket.h"
#include "src/net/token.h"

namespace c10d { inline namespace v0 {

namespace {

// The label keeps a proof of one side from serving as that of the other.
std::string proof(const HandshakeOptions& options, std::string_view side,
                  std::string_view transcript) {
  return hmac_sha256(options.token,
                     fmt::format("c10d {} v{}\n", side, kFrameVersion).append(transcript));
}

Failure out_of_turn(std::uint8_t type) {
  return {.code = Code::corrupt,
          .message = fmt::format("a frame of type {} arrived during the handshake", type)};
}

}  // namespace

void append_refusal(std::string& out, const Failure& failure) {
  const std::size_t start = begin_frame(out, refusal_frame, 0);
  put(out, wire_code(failure.code));
  put_string(out, std::string_view(failure.message).substr(0, kMaxStrangerFrame - 16));
  end_frame(out, start);
}

Failure refusal_of(const Frame& frame) {
  ByteReader reader(frame.body);
  const auto code = code_from_wire(reader.take<std::uint8_t>());
  const std::string_view message = reader.take_string();
  if (!code || !reader.finished())
    return {.code = Code::corrupt, .message = "the other side refused without a reason"};
  return {.code = *code, .message = std::string(message)};
}

Step ServerHandshake::refuse(Failure failure, std::string& out) {
  append_refusal(out, failure);
  failure_ = std::move(failure);
  return Step::refused;
}

Step ServerHandshake::step(const Frame& frame, std::string& out) {
  if (transcript_.empty() && frame.header.type == hello_frame) return hello(frame.body, out);
  if (!transcript_.empty() && frame.header.type == refusal_frame) {
    failure_ = {.code = Code::not_authenticated,
                .message = "the caller has another token than this job"};
    return Step::refused;
  }
  if (transcript_.empty() || frame.header.type != proof_frame)
    return refuse(out_of_turn(frame.header.type), out);
  if (!equal_secrets(frame.body, proof(options_, "client", transcript_)))
    return refuse({.code = Code::not_authenticated,
                   .message = "the caller does not know the token of this job"},
                  out);
  return Step::done;
}

Step ServerHandshake::hello(std::string_view body, std::string& out) {
  ByteReader reader(body);
  resumes_ = reader.take<std::uint8_t>() != 0;
  client_id_ = reader.take_bytes(kClientIdBytes);
  reader.take_bytes(kNonceBytes);
  const std::string_view role = reader.take_string();
  const std::string_view job = reader.take_string();
  if (!reader.finished() || role.size() > kMaxRoleBytes || job.size() > kMaxJobBytes)
    return refuse({.code = Code::corrupt, .message = "the hello of the caller is malformed"}, out);
  if (job != options_.job)
    return refuse({.code = Code::wrong_job,
                   .message = fmt::format("the caller belongs to job '{}', but this is job '{}'; "
                                          "check address and port",
                                          job, options_.job)},
                  out);
  if (role != options_.role)
    return refuse({.code = Code::wrong_job,
                   .message = fmt::format("the caller wants '{}', but this port serves '{}'", role,
                                          options_.role)},
                  out);
  const std::string nonce = random_bytes(kNonceBytes);
  transcript_.append(body).append(nonce);
  append_frame(out, challenge_frame, 0, nonce + proof(options_, "server", transcript_));
  return Step::more;
}

ClientHandshake::ClientHandshake(const HandshakeOptions& options, std::string_view client_id,
                                 bool resume)
    : options_(options) {
  put(transcript_, static_cast<std::uint8_t>(resume ? 1 : 0));
  transcript_ += client_id;
  transcript_ += random_bytes(kNonceBytes);
  put_string(transcript_, options.role);
  put_string(transcript_, options.job);
  append_frame(hello_, hello_frame, 0, transcript_);
}

Step ClientHandshake::step(const Frame& frame, std::string& out) {
  if (frame.header.type == challenge_frame && !challenged_) return challenge(frame.body, out);
  if (frame.header.type == welcome_frame && challenged_) {
    welcome_ = frame.body;
    return Step::done;
  }
  return refuse(frame.header.type == refusal_frame ? refusal_of(frame)
                                                   : out_of_turn(frame.header.type));
}

Step ClientHandshake::refuse(Failure failure) {
  failure_ = std::move(failure);
  return Step::refused;
}

Step ClientHandshake::challenge(std::string_view body, std::string& out) {
  challenged_ = true;
  transcript_ += body.substr(0, kNonceBytes);
  const bool genuine =
      body.size() == kNonceBytes + kDigestBytes &&
      equal_secrets(body.substr(kNonceBytes), proof(options_, "server", transcript_));
  if (!genuine) {
    refuse({.code = Code::not_authenticated,
            .message = "the other side and this one have different tokens; start all ranks of a "
                       "job with the same one"});
    append_refusal(out, *failure_);
    return Step::refused;
  }
  append_frame(out, proof_frame, 0, proof(options_, "client", transcript_));
  return Step::more;
}

Step run_handshake(int fd, ClientHandshake& handshake, Deadline deadline) {
  if (!send_all(fd, handshake.hello(), deadline)) return Step::more;
  FrameParser parser(kMaxStrangerFrame);
  Step step = Step::more;
  bool leaves = false;
  while (step == Step::more) {
    char buffer[kMaxStrangerFrame];
    if (!wait_for(fd, POLLIN, deadline)) return Step::more;
    const ssize_t count = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count <= 0) return Step::more;
    std::string out;
    const auto failure =
        parser.feed({buffer, static_cast<std::size_t>(count)}, [&](const Frame& frame) {
          leaves = frame.header.type == goodbye_frame;
          if (!leaves) step = handshake.step(frame, out);
          return !leaves && step == Step::more;
        });
    if (failure) return handshake.refuse(*failure);
    if (leaves) return Step::more;  // another server may be there soon
    if (!send_all(fd, out, deadline) && step == Step::more) return Step::more;
  }
  return step;
}

}}  // namespace c10d::v0
