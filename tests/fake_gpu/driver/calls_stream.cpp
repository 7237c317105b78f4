// SPDX-License-Identifier: BSD-3-Clause
// Streams, events, host functions.
#include <set>

#include "tests/fake_gpu/driver/capture.h"

namespace fake_gpu {

namespace {

// The stream or the event of a handle; or the code that the call returns.
std::optional<cu::Result> find(cu::Stream handle, std::shared_ptr<Stream>& stream) {
  cu::Result why = cu::kSuccess;
  stream = stream_of(handle, why);
  if (!stream) return why;
  return std::nullopt;
}
std::optional<cu::Result> find(cu::Event handle, std::shared_ptr<Event>& event) {
  event = events().find(handle);
  if (!event) return cu::kInvalidHandle;
  return refusal(*event->context);
}

std::shared_ptr<Record> record_of(Event& event) {
  const std::lock_guard lock(event.mutex);
  return event.record;
}
// What a call returns that asks for an event, or waits for it: first of all that it was recorded
// in a capture.
std::optional<cu::Result> ask(const char* function, Event& event) {
  if (const auto code = ask_in_capture(event)) return code;
  return check_state(function, kUnsafeInCapture);
}
std::optional<cu::Result> ask(const char* function, Stream& stream) {
  if (const auto code = ask_in_capture(stream)) return code;
  return check_state(function, kUnsafeInCapture);
}

// One thread of the driver runs all host functions, in the order in which they may begin: one that
// hangs holds those of other streams. A turn begins when it is made and ends with it.
class Turn {
 public:
  Turn() {
    const std::lock_guard lock(turns().mutex);
    turns().waiting.insert(number_ = ++turns().made);
  }
  ~Turn() {
    const std::lock_guard lock(turns().mutex);
    turns().waiting.erase(number_);
    turns().changed.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  void wait() const {
    std::unique_lock lock(turns().mutex);
    turns().changed.wait(lock, [&] { return *turns().waiting.begin() == number_; });
  }

 private:
  struct Turns {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t made = 0;
    std::set<std::uint64_t> waiting;
  };
  static Turns& turns() {
    static Turns& all = *new Turns;
    return all;
  }
  std::uint64_t number_ = 0;
};

}  // namespace

FAKE_GPU_API cuStreamCreateWithPriority(cu::Stream* handle, unsigned flags, int priority) {
  FAKE_GPU_ENTER(kNeedsContext);
  (void)priority;  // out of range it is clamped
  if (!handle || flags > cu::kStreamNonBlocking) return cu::kInvalidValue;
  *handle = streams().add(make_stream(*current(), flags, false));
  return cu::kSuccess;
}

FAKE_GPU_API cuStreamDestroy_v2(cu::Stream handle) {
  FAKE_GPU_ENTER(0);
  const std::shared_ptr<Stream> stream = streams().find(handle);
  if (!stream) return cu::kInvalidHandle;
  if (const auto refused = refusal(*stream->context)) return *refused;
  streams().remove(handle);
  drop_capture(*stream);
  const std::lock_guard lock(stream->mutex);
  stream->is_destroyed = true;  // what is in it is still done
  stream->changed.notify_all();
  return cu::kSuccess;
}

FAKE_GPU_API cuStreamQuery(cu::Stream handle) {
  FAKE_GPU_ENTER(kNeedsInit | kWorksInHostFunction);
  std::shared_ptr<Stream> stream;
  if (const auto why = find(handle, stream)) return *why;
  if (const auto code = ask(__func__, *stream)) return *code;
  std::vector<Mark> marks = work_of(*stream);
  {
    const std::lock_guard lock(stream->mutex);
    marks.back().number = stream->worked;  // it does not count records of events
  }
  for (const Mark& mark : marks) {
    if (!mark.is_reached()) return cu::kNotReady;
  }
  return static_cast<cu::Result>(stream->context->broken.load());
}

FAKE_GPU_API cuStreamSynchronize(cu::Stream handle) {
  FAKE_GPU_ENTER(kNeedsInit | kMayBlock | kWorksInHostFunction);
  std::shared_ptr<Stream> stream;
  if (const auto why = find(handle, stream)) return *why;
  if (const auto code = ask(__func__, *stream)) return *code;
  for (const Mark& mark : work_of(*stream)) mark.wait(*stream->context);
  return static_cast<cu::Result>(stream->context->broken.load());
}

FAKE_GPU_API cuCtxSynchronize() {
  FAKE_GPU_ENTER(kNeedsContext | kMayBlock);
  if (const auto code = synchronize_in_capture(*current())) return *code;
  return synchronize(*current());
}

FAKE_GPU_API cuStreamGetCtx(cu::Stream handle, cu::Context* context) {
  FAKE_GPU_ENTER(kNeedsInit);
  std::shared_ptr<Stream> stream;
  if (const auto why = find(handle, stream)) return *why;
  if (!context) return cu::kInvalidValue;
  *context = stream->context->handle();
  return cu::kSuccess;
}

FAKE_GPU_API cuStreamWaitEvent(cu::Stream handle, cu::Event event_handle, unsigned flags) {
  FAKE_GPU_ENTER(kNeedsInit);
  std::shared_ptr<Stream> stream;
  if (const auto why = find(handle, stream)) return *why;
  std::shared_ptr<Event> event;
  if (const auto why = find(event_handle, event)) return *why;
  if (flags > 1) return cu::kInvalidValue;
  if (const auto code = wait_in_capture(*stream, *event, flags == 1)) return *code;
  if (flags == 1) return static_cast<cu::Result>(401);  // only a capture has anything external
  if (const auto record = record_of(*event)) {
    Item item;
    item.after.push_back(record->mark);
    push(*stream, std::move(item));
  }
  return cu::kSuccess;
}

FAKE_GPU_API cuEventCreate(cu::Event* handle, unsigned flags) {
  FAKE_GPU_ENTER(kNeedsContext);
  const bool is_timed_interprocess =
      (flags & cu::kEventInterprocess) && !(flags & cu::kEventDisableTiming);
  if (!handle || flags > 7 || is_timed_interprocess) return cu::kInvalidValue;
  const auto event = std::make_shared<Event>();
  event->flags = flags;
  event->context = current();
  *handle = events().add(event);
  return cu::kSuccess;
}

FAKE_GPU_API cuEventDestroy_v2(cu::Event handle) {
  FAKE_GPU_ENTER(0);
  std::shared_ptr<Event> event;
  if (const auto why = find(handle, event)) return *why;
  events().remove(handle);
  return cu::kSuccess;
}

FAKE_GPU_API cuEventRecord(cu::Event event_handle, cu::Stream handle) {
  FAKE_GPU_ENTER(kNeedsInit | kWorksInHostFunction);
  std::shared_ptr<Stream> stream;
  if (const auto why = find(handle, stream)) return *why;
  std::shared_ptr<Event> event;
  if (const auto why = find(event_handle, event)) return *why;
  if (event->context != stream->context) return cu::kInvalidHandle;
  if (const auto code = record_in_capture(*stream, *event)) return *code;
  const auto record = std::make_shared<Record>();
  Item item;
  item.record = record;
  push(*stream, std::move(item));
  const std::lock_guard lock(event->mutex);
  event->record = record;
  event->captured.reset();
  return cu::kSuccess;
}

FAKE_GPU_API cuEventQuery(cu::Event handle) {
  FAKE_GPU_ENTER(kWorksInHostFunction);
  std::shared_ptr<Event> event;
  if (const auto why = find(handle, event)) return *why;
  if (const auto code = ask(__func__, *event)) return *code;
  const auto record = record_of(*event);
  return !record || record->mark.is_reached() ? cu::kSuccess : cu::kNotReady;
}

FAKE_GPU_API cuEventSynchronize(cu::Event handle) {
  FAKE_GPU_ENTER(kMayBlock);
  std::shared_ptr<Event> event;
  if (const auto why = find(handle, event)) return *why;
  if (const auto code = ask(__func__, *event)) return *code;
  if (const auto record = record_of(*event)) record->mark.wait(*event->context);
  return static_cast<cu::Result>(event->context->broken.load());
}

FAKE_GPU_API cuEventElapsedTime(float* ms, cu::Event from_handle, cu::Event to_handle) {
  FAKE_GPU_ENTER(0);
  std::shared_ptr<Event> from;
  if (const auto why = find(from_handle, from)) return *why;
  std::shared_ptr<Event> to;
  if (const auto why = find(to_handle, to)) return *why;
  if (!ms) return cu::kInvalidHandle;  // so it does
  if ((from->flags | to->flags) & cu::kEventDisableTiming) return cu::kInvalidHandle;
  const auto begin = record_of(*from), end = record_of(*to);
  if (!begin || !end) return cu::kInvalidHandle;
  if (!begin->mark.is_reached() || !end->mark.is_reached()) return cu::kNotReady;
  *ms = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return cu::kSuccess;
}

FAKE_GPU_API cuLaunchHostFunc(cu::Stream handle, cu::HostFunction function, void* data) {
  FAKE_GPU_ENTER(kNeedsInit);
  std::shared_ptr<Stream> stream;
  if (const auto why = find(handle, stream)) return *why;
  if (!function) return cu::kInvalidValue;
  Op op;
  op.name = __func__;
  // What may begin at once has its turn from now on, even if the thread of the stream is late.
  const auto early = std::make_shared<std::unique_ptr<Turn>>();
  if (capture_status(*stream) == cu::kCaptureNone && starts_at_once(*stream)) {
    *early = std::make_unique<Turn>();
  }
  op.body = [function, data, early](Running&) {
    std::unique_ptr<Turn> turn = std::move(*early);
    if (!turn) turn = std::make_unique<Turn>();
    turn->wait();
    const InHostFunction inside;
    function(data);
  };
  return submit(*stream, std::move(op));
}

}  // namespace fake_gpu
