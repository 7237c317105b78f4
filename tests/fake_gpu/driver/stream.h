// SPDX-License-Identifier: BSD-3-Clause
// Streams: each a queue and a thread. Events are marks in them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <optional>

#include "tests/fake_gpu/driver/context.h"
#include "tests/fake_gpu/driver/faults.h"
#include "tests/fake_gpu/driver/memory.h"

namespace fake_gpu {

struct Capture;
struct Captured;

// A place in a stream: reached when that many of its items are done.
struct Mark {
  std::shared_ptr<Stream> stream;
  std::uint64_t number = 0;

  bool is_reached() const;
  // Returns false if the context of the waiting side breaks first.
  bool wait(const Context& waiting) const;
};

// When an event was recorded.
struct Record {
  Mark mark;
  std::chrono::steady_clock::time_point time;  // once the mark is reached
};

// What is enqueued. Without a body it only waits, or records.
struct Item {
  std::vector<Mark> after;
  Op op;
  OpFaults faults;
  std::vector<Use> uses;
  std::shared_ptr<Record> record;
};

struct Stream : std::enable_shared_from_this<Stream> {
  Context* context = nullptr;
  unsigned flags = 0;
  bool is_legacy = false;

  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  std::deque<Item> queue;
  std::uint64_t pushed = 0, done = 0;
  std::uint64_t worked = 0;  // the last that is more than the record of an event
  bool has_thread = false, is_destroyed = false;

  std::shared_ptr<Capture> capture;  // under the mutex of all captures

  bool joins_legacy() const { return !is_legacy && (flags & cu::kStreamNonBlocking) == 0; }
  bool is_idle() const;
};

struct Event {
  unsigned flags = 0;
  Context* context = nullptr;
  std::mutex mutex;
  std::shared_ptr<Record> record;      // the last; null if there was none
  std::shared_ptr<Captured> captured;  // if the last was in a capture
};

using Streams = Handles<Stream, cu::Stream>;
using Events = Handles<Event, cu::Event>;
Streams& streams();
Events& events();

std::shared_ptr<Stream> make_stream(Context& context, unsigned flags, bool is_legacy);
// Null, 1 and 2 are streams of the current context. Null, and the code in `why`, if it is none.
std::shared_ptr<Stream> stream_of(cu::Stream handle, cu::Result& why);
// Behind all that is in the stream, and what the legacy stream has to do with it.
Mark push(Stream& stream, Item item);
// Whether nothing is before what is pushed next.
bool starts_at_once(Stream& stream);
// What the stream must have done: its own, and for the legacy stream that of all that it joins.
std::vector<Mark> work_of(Stream& stream);
// Waits for all that the context has to do.
cu::Result synchronize(Context& context);
// How many there were.
int destroy_streams_and_events(Context& context);

}  // namespace fake_gpu
