// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/pipeline_mail.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

namespace c10d::inline v0::parallel {

// Backends bound the ops that may be pending in a group; gloo does at 256.
constexpr std::size_t kMaxOutgoing = 32;

std::string to_text(std::span<const std::int64_t> shape, DType dtype) {
  return fmt::format("{} [{}]", to_string(dtype), fmt::join(shape, ", "));
}

std::optional<std::size_t> bytes_of(std::span<const std::int64_t> shape, DType dtype,
                                    std::size_t limit) {
  if (shape.size() > kMaxActivationDims) return {};
  // An extent of 0 makes the others harmless, wherever it stands.
  const bool empty = std::ranges::find(shape, 0) != shape.end();
  std::size_t bytes = size_of(dtype);
  for (const std::int64_t extent : shape) {
    if (extent < 0 || (!empty && static_cast<std::size_t>(extent) > limit / bytes)) return {};
    if (!empty) bytes *= static_cast<std::size_t>(extent);
  }
  return empty ? 0 : bytes;
}

Activation make_activation(std::vector<std::int64_t> shape, DType dtype) {
  constexpr std::align_val_t kAlignment{64};
  const auto bytes = bytes_of(shape, dtype, std::numeric_limits<std::ptrdiff_t>::max());
  if (!bytes)
    throw InvalidArgument(
        fmt::format("no activation can be {}: at most {} dimensions, none negative, in memory",
                    to_text(shape, dtype), kMaxActivationDims));
  std::shared_ptr<void> owner(::operator new(std::max<std::size_t>(*bytes, 1), kAlignment),
                              [](void* data) { ::operator delete(data, kAlignment); });
  void* const data = owner.get();
  return {std::move(shape), Tensor(data, *bytes / size_of(dtype), dtype), std::move(owner)};
}

Mail::Mail(ProcessGroup& group, std::size_t limit, Clock::time_point deadline)
    : group_(group), limit_(limit), deadline_(deadline) {}

std::string describe_failure(const ProcessGroup& group, const Action& action,
                             std::string_view what) {
  return fmt::format("pipeline step: rank {}, {}: {}", group.rank(), to_string(action), what);
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
  Incoming& message = incoming_[from.tag];
  message.from = from;
  {
    const std::lock_guard lock(mutex_);
    message.header_work = group_.irecv(message.header, from.peer, from.tag, options(from));
  }
  message.header_work.then([self = shared_from_this(), &message](const Failure* failure) {
    const std::lock_guard lock(self->mutex_);
    if (failure != nullptr || !self->open_) return;
    try {
      self->post(message);
    } catch (const std::exception& error) {
      self->group_.abort(describe_failure(self->group_, message.from.action, error.what()));
    }
  });
}

void Mail::post(Incoming& message) {
  if (message.posted) return;
  const std::int64_t dims = message.header[1];
  const auto dtype = static_cast<DType>(message.header[0]);
  const bool plausible = message.header[0] >= 0 && message.header[0] < kDTypeCount && dims >= 0 &&
                         dims <= static_cast<std::int64_t>(kMaxActivationDims);
  std::vector<std::int64_t> shape(message.header.begin() + 2,
                                  message.header.begin() + 2 + (plausible ? dims : 0));
  if (!plausible || !bytes_of(shape, dtype, limit_))
    throw_failure(
        {.code = Code::corrupt,
         .message = fmt::format("rank {} announced an activation of dtype, dimensions "
                                "and extents {}; the limit is {} bytes",
                                message.from.peer, fmt::join(message.header, " "), limit_),
         .rank = message.from.peer,
         .group = group_.id(),
         .op = "pipeline step"});
  message.activation = make_activation(std::move(shape), dtype);
  message.work = group_.irecv(message.activation.data, message.from.peer, message.from.tag + 1,
                              options(message.from));
  message.posted = true;
}

void Mail::expect_like(const Address& from, const Activation& sent) {
  Incoming& message = incoming_[from.tag];
  message.from = from;
  message.activation = make_activation(sent.shape, sent.data.dtype);
  message.posted = true;
  const std::lock_guard lock(mutex_);
  message.work = group_.irecv(message.activation.data, from.peer, from.tag, options(from));
}

Activation Mail::take(Key tag) {
  Incoming& message = incoming_.at(tag);
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
  make_room();
  Outgoing& message = outgoing_[to.tag];
  message.activation = std::move(activation);
  const std::vector<std::int64_t>& shape = message.activation.shape;
  message.header[0] = static_cast<std::int64_t>(message.activation.data.dtype);
  message.header[1] = static_cast<std::int64_t>(shape.size());
  std::ranges::copy(shape, message.header.begin() + 2);
  const std::lock_guard lock(mutex_);
  const CallOptions both = options(to);
  message.header_work = group_.isend(message.header, to.peer, to.tag, both);
  message.work = group_.isend(message.activation.data, to.peer, to.tag + 1, both);
}

void Mail::send_gradient(const Address& to, Activation gradient) {
  make_room();
  Outgoing& message = outgoing_[to.tag];
  message.activation = std::move(gradient);
  const std::lock_guard lock(mutex_);
  message.work = group_.isend(message.activation.data, to.peer, to.tag, options(to));
}

// Gives memory back that went out, and waits where too much is under way: the peer takes what comes
// without being asked, so that ends.
void Mail::make_room() {
  std::erase_if(outgoing_, [](const auto& entry) {
    return entry.second.header_work.done() && entry.second.work.done();
  });
  while (outgoing_.size() >= kMaxOutgoing) settle(outgoing_.begin()->first);
}

void Mail::settle(Key tag) {
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
    open_ = false;
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
  for (const auto& entry : outgoing_) {
    end(entry.second.header_work);
    end(entry.second.work);
  }
  for (const auto& entry : incoming_) {
    end(entry.second.header_work);
    end(entry.second.work);
  }
}

}  // namespace c10d::inline v0::parallel
