// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/pipeline_mail.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "src/parallel/stage.h"

namespace c10d::inline v0::parallel {

// Backends bound the ops that may be pending in a group; gloo does at 256.
constexpr std::size_t kMaxOutgoing = 32;

void Mail::abort(const Action& action, std::string_view why) const {
  group_.abort(
      fmt::format("pipeline step: rank {}, {}: {}", group_.rank(), to_string(action), why));
}

Duration Mail::left(const Action& next) const {
  const auto now = Clock::now();
  if (now >= deadline_)
    throw_failure({.code = Code::timed_out,
                   .message = fmt::format("no time is left for {}", to_string(next)),
                   .rank = group_.rank(),
                   .group = group_.id(),
                   .op = "pipeline step"});
  return std::chrono::duration_cast<Duration>(deadline_ - now);
}

CallOptions Mail::options(const Address& address) const {
  return {.async = true, .timeout = left(address.action), .stream = nullptr};
}

void Mail::expect(const Address& from) {
  Message& message = incoming_[from.tag];
  message.address = from;
  {
    const std::lock_guard lock(mutex_);
    message.header_work = group_.irecv(message.header, from.peer, from.tag, options(from));
  }
  message.header_work.then([self = shared_from_this(), &message](const Failure* failure) {
    const std::lock_guard lock(self->mutex_);
    if (failure != nullptr || !self->is_open_) return;
    try {
      self->post(message);
    } catch (const std::exception& error) {
      self->abort(message.address.action, error.what());
    }
  });
}

void Mail::post(Message& message) {
  if (message.is_posted) return;
  const Address& from = message.address;
  const std::int64_t dims = message.header[1];
  const auto dtype = static_cast<DType>(message.header[0]);
  const bool plausible = message.header[0] >= 0 && message.header[0] < kDTypeCount && dims >= 0 &&
                         dims <= static_cast<std::int64_t>(kMaxActivationDims);
  std::vector<std::int64_t> shape(message.header.begin() + 2,
                                  message.header.begin() + 2 + (plausible ? dims : 0));
  if (!plausible || !bytes_of(shape, dtype, limit_))
    throw_failure({.code = Code::corrupt,
                   .message = fmt::format("rank {} announced an activation of dtype, dimensions "
                                          "and extents {}; the limit is {} bytes",
                                          from.peer, fmt::join(message.header, " "), limit_),
                   .rank = from.peer,
                   .group = group_.id(),
                   .op = "pipeline step"});
  message.activation = make_activation(std::move(shape), dtype);
  message.work = group_.irecv(message.activation.data, from.peer, from.tag + 1, options(from));
  message.is_posted = true;
}

void Mail::expect_like(const Address& from, const Activation& sent) {
  Message& message = incoming_[from.tag];
  message.address = from;
  message.activation = make_activation(sent.shape, sent.data.dtype);
  message.is_posted = true;
  const std::lock_guard lock(mutex_);
  message.work = group_.irecv(message.activation.data, from.peer, from.tag, options(from));
}

Activation Mail::take(std::uint32_t tag) {
  Message& message = incoming_.at(tag);
  message.header_work.wait();
  {
    const std::lock_guard lock(mutex_);
    post(message);
  }
  message.work.wait();
  // The entry stays: its callback may still be on its way.
  return std::move(message.activation);
}

void Mail::send(const Address& to, Activation activation) {
  std::erase_if(outgoing_, [](const auto& entry) {
    return entry.second.header_work.done() && entry.second.work.done();
  });
  // The peer takes what comes without being asked, so this ends.
  while (outgoing_.size() >= kMaxOutgoing) settle(outgoing_.begin()->first);
  Message& message = outgoing_[to.tag];
  message.activation = std::move(activation);
  const std::lock_guard lock(mutex_);
  std::uint32_t tag = to.tag;
  if (to.action.kind == ActionKind::send_f) {
    const std::vector<std::int64_t>& shape = message.activation.shape;
    message.header[0] = static_cast<std::int64_t>(message.activation.data.dtype);
    message.header[1] = static_cast<std::int64_t>(shape.size());
    std::ranges::copy(shape, message.header.begin() + 2);
    message.header_work = group_.isend(message.header, to.peer, tag++, options(to));
  }
  message.work = group_.isend(message.activation.data, to.peer, tag, options(to));
}

void Mail::settle(std::uint32_t tag) {
  const auto message = outgoing_.find(tag);
  if (message == outgoing_.end()) return;
  message->second.header_work.wait();
  message->second.work.wait();
  outgoing_.erase(message);
}

void Mail::settle_all() {
  while (!outgoing_.empty()) settle(outgoing_.begin()->first);
}

void Mail::close() noexcept {
  {
    const std::lock_guard lock(mutex_);
    is_open_ = false;
  }
  const auto patience = Clock::now() + std::chrono::seconds(2);
  const auto end = [&](const Work& work) {
    try {
      const auto wait = patience - Clock::now();
      if (!work.done() && wait > Duration::zero())
        work.wait(std::chrono::duration_cast<Duration>(wait));
    } catch (const DistError&) {
      // It failed, as the whole step did; or it is not done and keeps what it needs.
    }
    if (!work.done()) work.then([self = shared_from_this()](const Failure*) {});
  };
  for (const auto* messages : {&outgoing_, &incoming_}) {
    for (const auto& entry : *messages) {
      end(entry.second.header_work);
      end(entry.second.work);
    }
  }
}

}  // namespace c10d::inline v0::parallel
