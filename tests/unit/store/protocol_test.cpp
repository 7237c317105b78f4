// SPDX-License-Identifier: BSD-3-Clause
#include "src/store/protocol.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "src/net/frame.h"
#include "src/store/pending_requests.h"

namespace c10d::test { namespace {

using Strings = std::vector<std::string>;

Request request_of(const Strings& keys, const Strings& values, std::int64_t number) {
  return {.op = StoreOp::multi_set,
          .number = number,
          .keys = {keys.begin(), keys.end()},
          .values = {values.begin(), values.end()}};
}

RC_GTEST_PROP(Codec, RequestsComeBackAsTheyWere,
              (const Strings& keys, const Strings& values, std::int64_t number)) {
  const Request request = request_of(keys, values, number);
  const Duration timeout(*rc::gen::inRange<std::int64_t>(0, 1'000'000'000'000));
  std::string body;
  encode(timeout, request, body);
  RC_ASSERT(body.size() == encoded_size(request));
  Duration timeout_back{};
  Request back;
  RC_ASSERT(decode(body, timeout_back, back));
  RC_ASSERT(timeout_back == timeout);
  RC_ASSERT(back.number == number);
  RC_ASSERT(back.keys == request.keys);
  RC_ASSERT(back.values == request.values);
}

RC_GTEST_PROP(Codec, RepliesComeBackAsTheyWere, (const Strings& values, std::int64_t number)) {
  Reply reply;
  reply.values = values;
  reply.number = number;
  std::string body;
  encode(reply, body);
  Reply back;
  RC_ASSERT(decode(body, back));
  RC_ASSERT(!back.failure);
  RC_ASSERT(back.number == number);
  RC_ASSERT(back.values == values);
}

RC_GTEST_PROP(Codec, FailuresComeBackAsTheyWere, (const std::string& message)) {
  const Code code = *rc::gen::element(Code::store_error, Code::store_limit, Code::timed_out);
  std::string body;
  encode(error_reply(code, message), body);
  Reply back;
  RC_ASSERT(decode(body, back));
  RC_ASSERT(back.failure && back.failure->code == code && back.failure->message == message);
}

RC_GTEST_PROP(Codec, NoPrefixIsARequest, (const Strings& keys, const Strings& values)) {
  std::string body;
  encode(Duration(1), request_of(keys, values, 2), body);
  const auto cut = *rc::gen::inRange<std::size_t>(0, body.size());
  Duration timeout{};
  Request back;
  RC_ASSERT(!decode(std::string_view(body).substr(0, cut), timeout, back));
}

RC_GTEST_PROP(FrameParser, AnySplitGivesTheSameFrames, (const Strings& bodies)) {
  std::string stream;
  std::uint64_t id = 0;
  for (const std::string& body : bodies) append_frame(stream, 7, id++, body);
  FrameParser parser(1 << 20);
  Strings got;
  std::uint64_t next = 0;
  std::string_view rest = stream;
  while (!rest.empty()) {
    const auto size = *rc::gen::inRange<std::size_t>(1, 40);
    const std::string_view chunk = rest.substr(0, size);
    rest.remove_prefix(chunk.size());
    const auto failure = parser.feed(chunk, [&](const Frame& frame) {
      RC_ASSERT(frame.header.type == 7);
      RC_ASSERT(frame.header.id == next++);
      got.emplace_back(frame.body);
      return true;
    });
    RC_ASSERT(!failure);
  }
  RC_ASSERT(got == bodies);
}

RC_GTEST_PROP(FrameParser, ALengthBeyondTheLimitIsNeverTaken, (std::uint64_t extra)) {
  constexpr std::uint64_t kLimit = 100;
  std::string stream;
  append_frame(stream, 1, 1, std::string(kLimit + 1 + extra % 50, 'x'));
  FrameParser parser(kLimit);
  bool called = false;
  const auto failure = parser.feed(stream, [&](const Frame&) { return called = true; });
  RC_ASSERT(failure && failure->code == Code::corrupt);
  RC_ASSERT(!called);
}

// Whatever the order of the keys, a wait is answered by the last of them and not before.
RC_GTEST_PROP(Engine, AWaitEndsWithTheLastKey, (std::vector<int> order)) {
  std::sort(order.begin(), order.end());
  order.erase(std::unique(order.begin(), order.end()), order.end());
  RC_PRE(!order.empty());
  Strings keys;
  for (const int number : order) keys.push_back(std::to_string(number));
  Engine engine{StoreLimits{}};
  bool done = false;
  Request wait = request_of(keys, {}, 0);
  wait.op = StoreOp::wait;
  engine.submit(wait, Deadline::max(), [&](const Reply&) { done = true; });
  for (std::size_t left = keys.size(); left > 0; --left) {
    RC_ASSERT(!done);
    std::swap(keys[left - 1], keys[*rc::gen::inRange<std::size_t>(0, left)]);
    engine.submit({.op = StoreOp::set, .keys = {keys[left - 1]}, .values = {"x"}}, Deadline::max(),
                  [](const Reply&) {});
  }
  RC_ASSERT(done);
  RC_ASSERT(engine.waiting() == 0U);
}

}}  // namespace c10d::test
