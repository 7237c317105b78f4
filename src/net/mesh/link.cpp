// SPDX-License-Identifier: BSD-3-Clause
#include "src/net/mesh/link.h"

#include <fmt/format.h>

#include <utility>

#include "src/net/bytes.h"
#include "src/net/token.h"

namespace c10d { inline namespace v0 {
namespace {

// A rank, then what makes the id one of its own.
std::string id_of(int rank) {
  std::string id;
  put(id, static_cast<std::uint32_t>(rank));
  return id + random_bytes(kClientIdBytes - id.size());
}

}  // namespace

Link::Link(HandshakeOptions options, int rank)
    : options_(std::move(options)),
      calling_(std::in_place, options_, id_of(rank), false),
      output_(calling_->hello()) {}

Link::Link(HandshakeOptions options, Admit admit)
    : options_(std::move(options)), admit_(std::move(admit)), called_(std::in_place, options_) {}

void Link::close(Failure failure) {
  state_ = State::closed;
  failure_ = std::move(failure);
}

void Link::finish_call() {
  const auto rank = ByteReader(called_->client_id()).take<std::uint32_t>();
  constexpr std::uint32_t kMost = 0x7FFF'FFFF;
  auto refusal = rank > kMost
                     ? std::optional(Failure{.code = Code::corrupt, .message = "no rank called"})
                     : admit_(static_cast<int>(rank));
  if (refusal) {
    append_refusal(output_, *refusal);
    return close(*std::move(refusal));
  }
  caller_ = static_cast<int>(rank);
  append_frame(output_, welcome_frame, 0, {});
  state_ = State::open;
}

// Whether the link takes more.
bool Link::shake(const Frame& frame) {
  const Step step = calling_ ? calling_->step(frame, output_) : called_->step(frame, output_);
  if (step == Step::refused) {
    close(calling_ ? *calling_->failure() : *called_->failure());
  } else if (step == Step::done) {
    if (called_)
      finish_call();
    else
      state_ = State::open;
    parser_.set_max_body(kMaxBody);
  }
  return state_ != State::closed;
}

void Link::receive(std::string_view bytes, const Sink& sink) {
  if (state_ == State::closed) return;
  const auto failure = parser_.feed(bytes, [&](const Frame& frame) {
    if (state_ == State::shaking) return shake(frame);
    sink(frame);
    return true;
  });
  if (failure) close(*failure);
}

void Link::send(std::uint8_t type, std::string_view body) {
  if (state_ != State::open) return;
  if (output_.size() + body.size() > kMaxOutput)
    return close({.code = Code::link_lost,
                  .message = fmt::format("the other end has not read for so long that {} bytes "
                                         "wait for it",
                                         output_.size())});
  append_frame(output_, type, 0, body);
}

}}  // namespace c10d::v0
