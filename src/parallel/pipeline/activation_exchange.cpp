// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/pipeline/activation_exchange.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace c10d { inline namespace v0 { namespace parallel {

// Messages. Backends bound the ops that may be pending in a group; gloo does at 256.
constexpr std::size_t kMaxOutgoing = 32, kMaxIncoming = 64;

void ActivationExchange::abort(const Action& action, std::string_view why) const {
  group_.abort(
      fmt::format("pipeline step: rank {}, {}: {}", group_.rank(), to_string(action), why));
}

Duration ActivationExchange::left(const Action& next) const {
  const auto now = Clock::now();
  if (now >= deadline_)
    throw_failure({.code = Code::timed_out,
                   .message = fmt::format("no time is left for {}", to_string(next)),
                   .rank = group_.rank(),
                   .group = group_.id(),
                   .op = "pipeline step"});
  return std::chrono::duration_cast<Duration>(deadline_ - now);
}

CallOptions ActivationExchange::options(const Address& address) const {
  return {.timeout = left(address.action)};
}

Work ActivationExchange::receive(View output, const Address& from, std::uint32_t tag) const {
  return group_.async().submit(Recv{output, from.peer, tag, true}, options(from));
}

void ActivationExchange::expect(std::span<const Address> from) {
  for (const Address& each : from) {
    Message& message = incoming_[each.tag];
    message.address = each;
    queues_[each.peer].push_back(&message);
  }
  advance();
}

void ActivationExchange::expect_like(std::uint32_t tag, const Activation& sent) {
  {
    const std::lock_guard lock(mutex_);
    Message& message = incoming_.at(tag);
    message.activation = make_activation(sent.shape, sent.data.dtype);
    message.is_asked = true;
  }
  advance();
}

void ActivationExchange::advance() {
  Begun begun;
  do {
    begun.clear();
    {
      const std::lock_guard lock(mutex_);
      if (!is_open_) return;
      for (auto& entry : queues_) advance(entry.second, begun);
    }
    for (const auto& [work, action] : begun) {
      if (work->done()) continue;  // the next round sees it
      work->on_done([self = shared_from_this(), failed = action](const Failure* failure) {
        try {
          if (failure == nullptr) self->advance();
        } catch (const std::exception& error) {
          const std::lock_guard lock(self->mutex_);
          if (self->is_open_) self->abort(failed, error.what());
        }
      });
    }
  } while (!begun.empty());
}

void ActivationExchange::advance(Queue& queue, Begun& begun) {
  while (!queue.empty() && queue.front()->is_posted && queue.front()->work.done())
    queue.pop_front();
  const std::size_t window = std::max<std::size_t>(1, kMaxIncoming / queues_.size());
  for (std::size_t i = 0; i < std::min(window, queue.size()); ++i) {
    Message& message = *queue[i];
    const auto& [peer, tag, action] = message.address;
    const bool has_header = action.kind == ActionKind::send_f;
    if (has_header && !message.is_asked) {
      message.header_work = receive(message.header, message.address, tag);
      message.is_asked = true;
      begun.emplace_back(&message.header_work, action);
    }
    if (!message.is_asked || message.is_posted || message.header_work.state() != WorkState::ok)
      continue;
    if (has_header) read_header(message);
    message.work = receive(message.activation.data, message.address, has_header ? tag + 1 : tag);
    message.is_posted = true;
    if (queue.size() > window) begun.emplace_back(&message.work, action);
  }
}

void ActivationExchange::read_header(Message& message) const {
  std::optional<Activation> activation = make_activation(message.header, limit_);
  if (!activation)
    throw_failure(
        {.code = Code::corrupt,
         .message = fmt::format("rank {} announced an activation of dtype, dimensions "
                                "and extents {}; the limit is {} bytes",
                                message.address.peer, fmt::join(message.header, " "), limit_),
         .rank = message.address.peer,
         .group = group_.id(),
         .op = "pipeline step"});
  message.activation = *std::move(activation);
}

Activation ActivationExchange::take(std::uint32_t tag) {
  Message& message = incoming_.at(tag);
  for (bool has_arrived = false; !has_arrived;) {
    static_cast<void>(left(message.address.action));
    advance();
    std::unique_lock lock(mutex_);
    has_arrived = message.is_posted;
    const Message& next = message.is_asked ? message : *queues_.at(message.address.peer).front();
    const Work& work = next.is_posted ? next.work : next.header_work;
    lock.unlock();
    work.wait();
  }
  return std::move(message.activation);
}

void ActivationExchange::send(const Address& to, Activation activation) {
  std::erase_if(outgoing_, [](const auto& entry) {
    return entry.second.header_work.done() && entry.second.work.done();
  });
  // The peer takes what comes next without being asked, so this ends.
  while (outgoing_.size() >= kMaxOutgoing) settle(outgoing_.begin()->first);
  Message& message = outgoing_[to.tag];
  message.activation = std::move(activation);
  const std::lock_guard lock(mutex_);
  std::uint32_t tag = to.tag;
  if (to.action.kind == ActionKind::send_f) {
    message.header = header_of(message.activation);
    message.header_work = group_.isend(message.header, to.peer, tag++, options(to));
  }
  message.work = group_.isend(message.activation.data, to.peer, tag, options(to));
}

void ActivationExchange::settle(std::uint32_t tag) {
  const auto message = outgoing_.find(tag);
  if (message == outgoing_.end()) return;
  message->second.header_work.wait();
  message->second.work.wait();
  outgoing_.erase(message);
}

void ActivationExchange::settle_all() {
  while (!outgoing_.empty()) settle(outgoing_.begin()->first);
}

void ActivationExchange::close() noexcept {
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
    if (!work.done()) work.on_done([self = shared_from_this()](const Failure*) {});
  };
  for (const auto* messages : {&outgoing_, &incoming_}) {
    for (const auto& entry : *messages) {
      end(entry.second.header_work);
      end(entry.second.work);
    }
  }
}

}}}  // namespace c10d::v0::parallel
