// SPDX-License-Identifier: BSD-3-Clause
// Stream capture: what is enqueued becomes a node of a graph.
#pragma once

#include <map>
#include <thread>

#include "tests/fake_gpu/driver/stream.h"

namespace fake_gpu {

// Its nodes in the order in which they were captured: a replay runs them in it, one by one.
struct Graph {
  Context* context = nullptr;
  std::vector<Op> nodes;
};

// How far each stream of a capture has come, as another knows it.
using Clock = std::map<const Stream*, std::uint64_t>;

struct Capture {
  cu::CaptureMode mode = cu::kCaptureGlobal;
  std::thread::id thread;
  std::shared_ptr<Stream> origin;
  bool is_broken = false, has_ended = false;
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  struct Member {
    std::shared_ptr<Stream> stream;
    Clock clock;
  };
  std::map<const Stream*, Member> members;
};

// Of an event that was recorded in a capture.
struct Captured {
  std::shared_ptr<Capture> capture;
  Clock clock;
};

// An op, to the stream or into its capture. `after`: what it waits for besides.
cu::Result submit(Stream& stream, Op op, std::vector<Mark> after = {});
// If the stream captures, or its work would wait for what is captured, the code that its call
// returns; nothing if it is an ordinary one.
std::optional<cu::Result> record_in_capture(Stream& stream, Event& event);
std::optional<cu::Result> wait_in_capture(Stream& stream, Event& event, bool is_external);
// A call that asks for, or waits for, what the stream has to do: never of a capture.
std::optional<cu::Result> ask_in_capture(Stream& stream);
std::optional<cu::Result> ask_in_capture(Event& event);
// Waiting for a whole context breaks all captures in it, in every mode.
std::optional<cu::Result> synchronize_in_capture(const Context& context);
cu::CaptureStatus capture_status(Stream& stream);
// A stream that goes.
void drop_capture(Stream& stream);

}  // namespace fake_gpu
