// SPDX-License-Identifier: BSD-3-Clause
#include "src/store/server_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "src/base/log.h"
#include "src/net/bytes.h"

namespace c10d { inline namespace v0 {

using std::chrono::steady_clock;

Service::Service(HandshakeOptions options, StoreLimits limits)
    : options_(std::move(options)), limits_(limits), engine_(limits) {}

std::size_t Service::connected() const {
  return static_cast<std::size_t>(std::count_if(
      clients_.begin(), clients_.end(), [](const StoreClient& client) { return client.session; }));
}

StoreClient* Service::join(const std::string& id, bool resumes, Session* session,
                           Failure& refusal) {
  const auto found = std::find_if(clients_.begin(), clients_.end(),
                                  [&](const StoreClient& client) { return client.id == id; });
  if (found != clients_.end()) {
    // The client noticed before we did that its former connection is gone.
    if (found->session != nullptr) found->session->detach(false);
    if (found->refusal) {
      refusal = *found->refusal;
      forget(found);
      return nullptr;
    }
    found->session = session;
    return &*found;
  }
  if (resumes) {
    refusal = {.code = Code::store_lost,
               .message =
                   "the store was restarted, or has forgotten this client; its calls cannot "
                   "continue"};
    return nullptr;
  }
  if (connected() >= limits_.clients) {
    refusal = {.code = Code::store_limit,
               .message = fmt::format("{} clients are connected, the most that the store takes "
                                      "(StoreLimits::clients)",
                                      limits_.clients)};
    return nullptr;
  }
  // Clients that may still come back are remembered, but not without limit.
  if (clients_.size() >= 2 * limits_.clients)
    forget(std::find_if(clients_.begin(), clients_.end(),
                        [](const StoreClient& client) { return client.session == nullptr; }));
  clients_.push_back({.id = id, .session = session});
  return &clients_.back();
}

void Service::leave(StoreClient& client, Duration memory) {
  for (Lane& lane : client.lanes)
    if (lane.ticket != 0) engine_.cancel(std::exchange(lane.ticket, 0));
  client.session = nullptr;
  client.forget_at = steady_clock::now() + memory;
  if (memory == Duration::zero())
    forget(std::find_if(clients_.begin(), clients_.end(),
                        [&](const StoreClient& other) { return &other == &client; }));
}

void Service::forget(std::list<StoreClient>::iterator client) {
  const auto will = std::move(client->will);
  clients_.erase(client);
  for (const auto& [key, value] : will)
    engine_.submit(
        {.op = StoreOp::compare_set, .keys = {key}, .values = {value}}, {},
        [key = key](const Reply& reply) {
          if (reply.failure)
            log(LogLevel::warn,
                "the last will of a disconnected client could not be written to \"{}\": {}", key,
                reply.failure->message);
        });
}

void Service::tick(Deadline now) {
  engine_.expire(now);
  for (auto client = clients_.begin(); client != clients_.end();) {
    const auto next = std::next(client);
    if (client->session == nullptr && client->forget_at <= now) forget(client);
    client = next;
  }
}

std::optional<Deadline> Service::next_deadline() const {
  std::optional<Deadline> next = engine_.next_deadline();
  for (const StoreClient& client : clients_) {
    if (client.session != nullptr) continue;
    next = next ? std::min(*next, client.forget_at) : client.forget_at;
  }
  return next;
}

Session::Session(Service& service, std::function<void()> on_output)
    : service_(service),
      on_output_(std::move(on_output)),
      parser_(kMaxStrangerFrame - kFrameHeaderBytes),
      handshake_(service.handshake()) {}

Session::~Session() { leave(false); }

void Session::leave(bool for_good) {
  if (client_ == nullptr) return;
  const bool ended = closed_ && !client_->will.empty();
  service_.leave(*std::exchange(client_, nullptr), for_good ? Duration::zero()
                                                   : ended  ? kClosedMemory
                                                            : kClientMemory);
}

void Session::detach(bool for_good) {
  leave(for_good);
  closing_ = true;
  on_output_();
}

void Session::receive(std::string_view bytes) {
  if (closing_) return;
  if (auto failure = parser_.feed(bytes, [this](const Frame& frame) { return handle(frame); }))
    refuse(*std::move(failure));
}

void Session::say_goodbye() {
  if (closing_) return;
  std::string frame;
  append_frame(frame, goodbye_frame, 0, {});
  send(frame);
  detach(false);
}

std::string Session::take_output() { return std::exchange(output_, {}); }

void Session::send(std::string_view bytes) {
  output_ += bytes;
  unsent_ += bytes.size();
  on_output_();
}

void Session::refuse(Failure failure) {
  std::string out;
  append_refusal(out, failure);
  failure_ = std::move(failure);
  send(out);
  // What made no sense once will make no sense again: the client need not be remembered.
  detach(true);
}

bool Session::handle(const Frame& frame) {
  if (is_stranger()) {
    shake_hands(frame);
  } else if (frame.header.type == goodbye_frame) {
    detach(true);
  } else if (frame.header.type == kSettledFrame) {
    settle(frame.header.id);
  } else if (frame.header.type == kWillFrame) {
    take_will(frame);
  } else if (frame.header.type >= 1 && frame.header.type <= kStoreOpCount) {
    call(frame);
  } else {
    refuse({.code = Code::corrupt,
            .message = fmt::format("a frame of the unknown type {} arrived", frame.header.type)});
  }
  return !closing_;
}

void Session::shake_hands(const Frame& frame) {
  std::string out;
  const Step step = handshake_.step(frame, out);
  if (!out.empty()) send(out);
  if (step == Step::done) return welcome();
  if (step != Step::refused) return;
  failure_ = handshake_.failure();
  detach(false);
}

void Session::welcome() {
  Failure refusal;
  client_ = service_.join(handshake_.client_id(), handshake_.resumes(), this, refusal);
  if (client_ == nullptr) return refuse(std::move(refusal));
  const StoreLimits& limits = service_.limits();
  std::string out;
  const std::size_t start = begin_frame(out, welcome_frame, 0);
  for (const std::size_t limit : {limits.key_bytes, limits.value_bytes, limits.total_bytes,
                                  limits.keys, limits.clients, limits.output_queue_bytes})
    put(out, static_cast<std::uint64_t>(limit));
  end_frame(out, start);
  parser_.set_max_body(max_body_bytes(limits));
  send(out);
}

void Session::settle(std::uint64_t id) {
  const std::size_t lane = id >> kLaneShift;
  if (lane >= client_->lanes.size() || client_->lanes[lane].id != id) return;
  client_->remembered_bytes -= client_->lanes[lane].answer.size();
  client_->lanes[lane].answer.clear();
  client_->lanes[lane].answer.shrink_to_fit();
}

void Session::take_will(const Frame& frame) {
  Duration unused{};
  Request will{.op = StoreOp::multi_set};
  if (frame.body.size() > kMaxWillBytes || !decode(frame.body, unused, will) ||
      c10d::refuse(will, service_.limits()))
    return refuse({.code = Code::corrupt, .message = "a malformed last will arrived"});
  client_->will.clear();
  for (std::size_t i = 0; i < will.keys.size(); ++i)
    client_->will.emplace_back(will.keys[i], will.values[i]);
}

void Session::call(const Frame& frame) {
  const std::uint64_t id = frame.header.id;
  const std::size_t number = id >> kLaneShift;
  Duration timeout{};
  Request request{.op = static_cast<StoreOp>(frame.header.type)};
  if (number >= kMaxLanes || !decode(frame.body, timeout, request))
    return refuse({.code = Code::corrupt, .message = "a malformed request arrived"});
  if (number >= client_->lanes.size()) client_->lanes.resize(number + 1);
  Lane& lane = client_->lanes[number];
  if (id < lane.id || lane.ticket != 0)
    return refuse({.code = Code::corrupt, .message = "a call arrived twice or out of turn"});
  // The same call again, after a reconnection or when it was put off: if it was carried out, only
  // its answer is missing.
  if (id == lane.id && !lane.answer.empty()) return offer(id, lane.answer);
  if (!unsent_laters_.empty()) return put_off(id);
  settle(lane.id);
  lane.id = id;
  execute(number, request, timeout);
}

void Session::execute(std::size_t number, const Request& request, Duration timeout) {
  StoreClient* client = client_;
  const StoreOp op = request.op;
  const Engine::Ticket ticket = service_.engine_.submit(
      request, steady_clock::now() + timeout, [client, number, op](const Reply& reply) {
        client->lanes[number].ticket = 0;
        // A waiting call is withdrawn when its connection ends: there is a session to answer.
        client->session->answer(number, op, reply);
      });
  if (ticket != 0) client_->lanes[number].ticket = ticket;
}

void Session::answer(std::size_t number, StoreOp op, const Reply& reply) {
  Lane& lane = client_->lanes[number];
  std::string frame;
  const std::size_t start = begin_frame(frame, static_cast<std::uint8_t>(op), lane.id);
  encode(reply, frame);
  end_frame(frame, start);
  if (is_mutation(op)) {
    client_->remembered_bytes += frame.size();
    lane.answer = frame;
  }
  if (closing_) return;
  const std::size_t limit = service_.limits_.total_bytes;
  if (client_->remembered_bytes > std::max(limit, max_body_bytes(service_.limits_)))
    return drop(fmt::format("did not settle {} bytes of answers (StoreLimits::total_bytes = {})",
                            client_->remembered_bytes, limit));
  offer(lane.id, frame);
}

void Session::offer(std::uint64_t id, std::string_view answer) {
  // One alone may be longer.
  if (unsent_ == 0 || unsent_ + answer.size() <= service_.limits_.output_queue_bytes)
    send(answer);
  else
    put_off(id);
}

// A client has one call under way in each of its lanes, and sends none again before it has read
// this.
void Session::put_off(std::uint64_t id) {
  if (unsent_laters_.size() == kMaxLanes)
    return drop(
        fmt::format("did not read {} bytes of answers (StoreLimits::output_queue_bytes = {})",
                    unsent_, service_.limits_.output_queue_bytes));
  std::string frame;
  append_frame(frame, kLaterFrame, id, {});
  send(frame);
  unsent_laters_.push_back(sent_ + unsent_);
}

void Session::sent(std::size_t bytes) noexcept {
  unsent_ -= bytes;
  sent_ += bytes;
  while (!unsent_laters_.empty() && unsent_laters_.front() <= sent_) unsent_laters_.pop_front();
}

void Session::drop(std::string_view why) {
  client_->refusal = Failure{.code = Code::store_limit,
                             .message = fmt::format("this client {} and was dropped", why)};
  failure_ = client_->refusal;
  closing_ = true;
  on_output_();
}

}}  // namespace c10d::v0
