// SPDX-License-Identifier: BSD-3-Clause
#include "src/store/pending_requests.h"

#include <fmt/format.h>

#include <algorithm>

namespace c10d { inline namespace v0 {

Request Engine::Waiter::request() const {
  return {.op = op, .number = number, .keys = {keys.begin(), keys.end()}, .values = {}};
}

Engine::Ticket Engine::submit(const Request& request, Deadline deadline, Done done) {
  if (request.op == StoreOp::barrier) return arrive(request, deadline, std::move(done));
  std::optional<Reply> reply = table_.apply(request);
  if (!reply) return park(request, deadline, std::move(done));
  const bool changed = is_mutation(request.op) && !reply->failure;
  done(*std::move(reply));
  if (changed)
    for (const std::string_view key : request.keys) wake(key);
  return 0;
}

Engine::Ticket Engine::park(const Request& request, Deadline deadline, Done done) {
  const Ticket ticket = ++last_ticket_;
  Waiter waiter{.op = request.op,
                .number = request.number,
                .keys = {request.keys.begin(), request.keys.end()},
                .deadline = deadline,
                .done = std::move(done)};
  if (request.op != StoreOp::barrier) {
    while (table_.contains(waiter.missing_key())) ++waiter.missing;
    by_key_[waiter.missing_key()].push_back(ticket);
  }
  deadlines_.emplace(deadline, ticket);
  waiters_.emplace(ticket, std::move(waiter));
  return ticket;
}

Engine::Ticket Engine::arrive(const Request& request, Deadline deadline, Done done) {
  if (auto refusal = refuse(request, table_.limits())) {
    done(*std::move(refusal));
    return 0;
  }
  const std::string_view key = request.keys[0];
  auto found = gates_.find(key);
  if (found == gates_.end())
    found = gates_.emplace(std::string(key), Gate{request.number, {}}).first;
  Gate& gate = found->second;
  if (gate.size != request.number) {
    done(error_reply(Code::store_error,
                     fmt::format("barrier {}: called for {} callers while others wait for {}",
                                 quoted(key), request.number, gate.size)));
    return 0;
  }
  if (static_cast<std::int64_t>(gate.arrived.size()) + 1 < gate.size) {
    const Ticket ticket = park(request, deadline, std::move(done));
    gate.arrived.push_back(ticket);
    return ticket;
  }
  const std::vector<Ticket> released = std::move(gate.arrived);
  gates_.erase(found);
  done({});
  for (const Ticket ticket : released) finish(waiters_.find(ticket), {});
  return 0;
}

void Engine::finish(Waiters::iterator waiter, Reply reply) {
  const Done done = std::move(waiter->second.done);
  deadlines_.erase({waiter->second.deadline, waiter->first});
  waiters_.erase(waiter);
  done(std::move(reply));
}

std::optional<Reply> Engine::retry(Waiter& waiter) {
  // Looks on from the key that was missing, so that many keys that come one by one cost linear
  // time. Whether the earlier ones are still there is asked once all have been seen.
  const auto skip_present = [&] {
    while (waiter.missing < waiter.keys.size() && table_.contains(waiter.missing_key()))
      ++waiter.missing;
    return waiter.missing == waiter.keys.size();
  };
  if (!skip_present()) return {};
  auto reply = table_.apply(waiter.request());
  if (!reply) {
    waiter.missing = 0;
    skip_present();
  }
  return reply;
}

void Engine::wake(std::string_view key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end() || !table_.contains(key)) return;
  std::deque<Ticket> parked = std::move(found->second);
  by_key_.erase(found);
  // Once a pop has taken the last element, the others have nothing to be woken for.
  while (!parked.empty() && table_.contains(key)) {
    const auto waiter = waiters_.find(parked.front());
    parked.pop_front();
    if (auto reply = retry(waiter->second)) {
      finish(waiter, *std::move(reply));
    } else {
      by_key_[waiter->second.missing_key()].push_back(waiter->first);
    }
  }
  if (!parked.empty()) by_key_[std::string(key)] = std::move(parked);
}

void Engine::leave_gate(Ticket ticket, const std::string& key) {
  const auto gate = gates_.find(key);
  std::erase(gate->second.arrived, ticket);
  if (gate->second.arrived.empty()) gates_.erase(gate);
}

void Engine::unpark(Ticket ticket, const Waiter& waiter) {
  if (waiter.op == StoreOp::barrier) return leave_gate(ticket, waiter.keys[0]);
  const auto parked = by_key_.find(waiter.missing_key());
  std::erase(parked->second, ticket);
  if (parked->second.empty()) by_key_.erase(parked);
}

void Engine::cancel(Ticket ticket) {
  const auto waiter = waiters_.find(ticket);
  if (waiter == waiters_.end()) return;
  unpark(ticket, waiter->second);
  deadlines_.erase({waiter->second.deadline, ticket});
  waiters_.erase(waiter);
}

void Engine::expire(Deadline now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const auto waiter = waiters_.find(deadlines_.begin()->second);
    const Request request = waiter->second.request();
    Reply reply;
    if (request.op == StoreOp::barrier) {
      const Gate& gate = gates_.find(waiter->second.keys[0])->second;
      reply = error_reply(Code::timed_out,
                          fmt::format("barrier {}: the deadline passed when {} of {} had arrived",
                                      quoted(request.keys[0]), gate.arrived.size(), gate.size));
    } else {
      const std::vector<std::string_view> missing = table_.missing(request);
      reply = timed_out(missing);
    }
    unpark(waiter->first, waiter->second);
    finish(waiter, std::move(reply));
  }
}

std::optional<Deadline> Engine::next_deadline() const {
  if (deadlines_.empty()) return {};
  return deadlines_.begin()->first;
}

}}  // namespace c10d::v0
