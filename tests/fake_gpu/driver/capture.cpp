// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fake_gpu/driver/capture.h"

#include <algorithm>

namespace fake_gpu {
namespace {

constexpr auto kIllegalState = static_cast<cu::Result>(401);

struct Captures {
  std::mutex mutex;
  std::vector<std::shared_ptr<Capture>> all;  // that have not ended
  std::atomic<int> count{0};
};
Captures& captures() {
  static Captures& only = *new Captures;
  return only;
}
thread_local cu::CaptureMode mode_of_thread = cu::kCaptureGlobal;

// A graph that was instantiated. One launch of it runs at a time.
struct Exec {
  std::shared_ptr<Graph> graph;
  std::mutex mutex;
  std::optional<Mark> last;
};
using Graphs = Handles<Graph, cu::Graph>;
using Execs = Handles<Exec, cu::GraphExec>;
Graphs& graphs() {
  static Graphs& all = *new Graphs("graph", 0x60000000);
  return all;
}
Execs& execs() {
  static Execs& all = *new Execs("executable graph", 0x70000000);
  return all;
}

// A call that no capture survives. Locked by the caller, as in all below.
void spoil(Capture& capture, const char* what) {
  capture.is_broken = true;
  violation("in a capture", what);
}

bool forbids(const Capture& capture) {
  if (mode_of_thread == cu::kCaptureRelaxed || capture.mode == cu::kCaptureRelaxed) return false;
  if (capture.thread == std::this_thread::get_id()) return true;
  return mode_of_thread == cu::kCaptureGlobal && capture.mode == cu::kCaptureGlobal;
}

// Legacy work would wait for the captured work of streams that it joins.
std::optional<cu::Result> implicit(Stream& stream) {
  if (!stream.is_legacy) return std::nullopt;
  bool found = false;
  for (const auto& capture : captures().all) {
    for (const auto& [at, member] : capture->members) {
      if (member.stream->context != stream.context || !member.stream->joins_legacy()) continue;
      spoil(*capture, "work of the legacy stream would wait for a captured stream");
      found = true;
      break;
    }
  }
  return found ? std::optional(cu::kStreamCaptureImplicit) : std::nullopt;
}

// The capture that the stream takes part in; null, or a code, if there is none.
Capture* capture_of(Stream& stream, std::optional<cu::Result>& code) {
  code = implicit(stream);
  if (!code && stream.capture && stream.capture->is_broken) code = cu::kStreamCaptureInvalidated;
  return code ? nullptr : stream.capture.get();
}

void end(Capture& capture) {
  capture.has_ended = true;
  for (auto& [at, member] : capture.members) member.stream->capture.reset();
  capture.members.clear();
  capture.origin.reset();
  std::erase_if(captures().all, [&](const auto& each) { return each.get() == &capture; });
  captures().count = static_cast<int>(captures().all.size());
}

bool all_are_joined(Capture& capture) {
  const Clock& seen = capture.members[capture.origin.get()].clock;
  return std::all_of(capture.members.begin(), capture.members.end(), [&](const auto& member) {
    const auto own = member.second.clock.find(member.first);
    const auto found = seen.find(member.first);
    return own->second == 0 || (found != seen.end() && found->second >= own->second);
  });
}

void join(Clock& clock, const Clock& other) {
  for (const auto& [stream, count] : other) clock[stream] = std::max(clock[stream], count);
}

std::optional<cu::Result> add_to_capture(Stream& stream, const Op& op) {
  if (captures().count == 0) return std::nullopt;
  const std::lock_guard lock(captures().mutex);
  std::optional<cu::Result> code;
  Capture* const capture = capture_of(stream, code);
  if (!capture) return code;
  capture->graph->nodes.push_back(op);
  ++capture->members[&stream].clock[&stream];
  return cu::kSuccess;
}

}  // namespace

cu::Result submit(Stream& stream, Op op, std::vector<Mark> after) {
  std::optional<std::vector<Use>> uses = use(op.name, op.ranges);
  if (!uses) return cu::kInvalidValue;
  if (const auto code = add_to_capture(stream, op)) return *code;
  Item item;
  item.after = std::move(after);
  item.faults = op_faults(op.name);
  item.op = std::move(op);
  item.uses = std::move(*uses);
  push(stream, std::move(item));
  return cu::kSuccess;
}

cu::Result enqueue(cu::Stream handle, Op op) {
  cu::Result why = cu::kSuccess;
  const std::shared_ptr<Stream> stream = stream_of(handle, why);
  if (!stream) return why;
  return submit(*stream, std::move(op));
}

std::optional<cu::Result> record_in_capture(Stream& stream, Event& event) {
  if (captures().count == 0) return std::nullopt;
  const std::lock_guard lock(captures().mutex);
  std::optional<cu::Result> code;
  Capture* const capture = capture_of(stream, code);
  if (!capture) return code;
  const std::lock_guard event_lock(event.mutex);
  event.record.reset();
  event.captured = std::make_shared<Captured>();
  event.captured->capture = stream.capture;
  event.captured->clock = capture->members[&stream].clock;
  return cu::kSuccess;
}

std::optional<cu::Result> wait_in_capture(Stream& stream, Event& event, bool is_external) {
  std::shared_ptr<Captured> captured;
  {
    const std::lock_guard event_lock(event.mutex);
    captured = event.captured;
  }
  if (!captured && captures().count == 0) return std::nullopt;
  const std::lock_guard lock(captures().mutex);
  std::optional<cu::Result> code;
  Capture* const own = capture_of(stream, code);
  if (code) return code;
  if (!captured || captured->capture->has_ended) {
    if (captured) return cu::kInvalidValue;  // of a capture that has ended
    if (!own) return std::nullopt;
    if (is_external) return cu::kSuccess;
    spoil(*own, "a capture would wait for an event outside of it");
    return cu::kStreamCaptureIsolation;
  }
  if (captured->capture->is_broken) return cu::kStreamCaptureInvalidated;
  if (own && own != captured->capture.get()) {
    captured->capture->is_broken = true;
    spoil(*own, "one capture would wait for another");
    return cu::kStreamCaptureMerge;
  }
  if (!own) {
    stream.capture = captured->capture;
    captured->capture->members[&stream] = {stream.shared_from_this(), {{&stream, 0}}};
  }
  join(captured->capture->members[&stream].clock, captured->clock);
  return cu::kSuccess;
}

std::optional<cu::Result> ask_in_capture(Stream& stream) {
  if (captures().count == 0) return std::nullopt;
  const std::lock_guard lock(captures().mutex);
  std::optional<cu::Result> code;
  Capture* const capture = capture_of(stream, code);
  if (!capture) return code;
  spoil(*capture, "a stream was asked, or waited for, that captures");
  return cu::kStreamCaptureUnsupported;
}

std::optional<cu::Result> ask_in_capture(Event& event) {
  std::shared_ptr<Captured> captured;
  {
    const std::lock_guard event_lock(event.mutex);
    captured = event.captured;
  }
  if (!captured) return std::nullopt;
  const std::lock_guard lock(captures().mutex);
  if (captured->capture->has_ended) return cu::kInvalidValue;
  spoil(*captured->capture, "an event was asked, or waited for, that a capture recorded");
  return cu::kCapturedEvent;
}

std::optional<cu::Result> synchronize_in_capture(const Context& context) {
  if (captures().count == 0) return std::nullopt;
  const std::lock_guard lock(captures().mutex);
  bool found = false;
  for (const auto& capture : captures().all) {
    if (capture->graph->context != &context) continue;
    spoil(*capture, "a context was waited for in which a stream captures");
    found = true;
  }
  return found ? std::optional(cu::kStreamCaptureUnsupported) : std::nullopt;
}

cu::CaptureStatus capture_status(Stream& stream) {
  const std::lock_guard lock(captures().mutex);
  return !stream.capture             ? cu::kCaptureNone
         : stream.capture->is_broken ? cu::kCaptureInvalidated
                                     : cu::kCaptureActive;
}

void drop_capture(Stream& stream) {
  const std::lock_guard lock(captures().mutex);
  if (stream.capture) end(*std::shared_ptr<Capture>(stream.capture));
}

bool is_forbidden_by_capture() {
  if (captures().count == 0) return false;
  const std::lock_guard lock(captures().mutex);
  bool found = false;
  for (const auto& capture : captures().all) {
    if (forbids(*capture)) capture->is_broken = found = true;
  }
  return found;
}

cu::CaptureStatus capture_status(cu::Stream handle) {
  cu::Result why = cu::kSuccess;
  const std::shared_ptr<Stream> stream = stream_of(handle, why);
  return stream ? capture_status(*stream) : cu::kCaptureNone;
}

FAKE_GPU_API cuThreadExchangeStreamCaptureMode(cu::CaptureMode* mode) {
  FAKE_GPU_ENTER(kNeedsInit);
  if (!mode) crash("cuThreadExchangeStreamCaptureMode got no mode");
  std::swap(*mode, mode_of_thread);
  return cu::kSuccess;
}

FAKE_GPU_API cuStreamBeginCapture_v2(cu::Stream handle, cu::CaptureMode mode) {
  FAKE_GPU_ENTER(kNeedsInit);
  cu::Result why = cu::kSuccess;
  const std::shared_ptr<Stream> stream = stream_of(handle, why);
  if (!stream) return why;
  if (static_cast<unsigned>(mode) > cu::kCaptureRelaxed) return cu::kInvalidValue;
  if (stream->is_legacy) return cu::kStreamCaptureUnsupported;
  const std::lock_guard lock(captures().mutex);
  if (stream->capture) return kIllegalState;
  const auto capture = std::make_shared<Capture>();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = stream;
  capture->graph->context = stream->context;
  capture->members[stream.get()] = {stream, {{stream.get(), 0}}};
  stream->capture = capture;
  captures().all.push_back(capture);
  captures().count = static_cast<int>(captures().all.size());
  return cu::kSuccess;
}

FAKE_GPU_API cuStreamEndCapture(cu::Stream handle, cu::Graph* graph) {
  FAKE_GPU_ENTER(kNeedsInit);
  cu::Result why = cu::kSuccess;
  const std::shared_ptr<Stream> stream = stream_of(handle, why);
  if (!stream) return why;
  if (!graph) return cu::kInvalidValue;
  const std::lock_guard lock(captures().mutex);
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) return kIllegalState;
  *graph = nullptr;
  if (capture->origin != stream) {
    spoil(*capture, "a capture was ended on another stream than it began");
    return cu::kStreamCaptureUnmatched;
  }
  const bool is_wrong_thread =
      capture->mode != cu::kCaptureRelaxed && capture->thread != std::this_thread::get_id();
  const cu::Result result = is_wrong_thread             ? cu::kStreamCaptureWrongThread
                            : capture->is_broken        ? cu::kStreamCaptureInvalidated
                            : !all_are_joined(*capture) ? cu::kStreamCaptureUnjoined
                                                        : cu::kSuccess;
  end(*capture);
  if (result == cu::kSuccess) *graph = graphs().add(capture->graph);
  return result;
}

FAKE_GPU_API cuStreamIsCapturing(cu::Stream handle, cu::CaptureStatus* status) {
  FAKE_GPU_ENTER(kNeedsInit | kWorksInHostFunction);
  cu::Result why = cu::kSuccess;
  const std::shared_ptr<Stream> stream = stream_of(handle, why);
  if (!stream) return why;
  if (!status) return cu::kInvalidValue;
  if (captures().count != 0) {
    const std::lock_guard lock(captures().mutex);
    if (const auto code = implicit(*stream)) return *code;
  }
  *status = capture_status(*stream);
  return cu::kSuccess;
}

FAKE_GPU_API cuGraphInstantiateWithFlags(cu::GraphExec* handle, cu::Graph graph,
                                         unsigned long long flags) {
  FAKE_GPU_ENTER(kNeedsContext);
  const std::shared_ptr<Graph> found = graphs().find(graph);
  if (!handle || !found || flags > 15) return cu::kInvalidValue;
  const auto exec = std::make_shared<Exec>();
  exec->graph = found;
  *handle = execs().add(exec);
  return cu::kSuccess;
}

FAKE_GPU_API cuGraphLaunch(cu::GraphExec handle, cu::Stream stream_handle) {
  FAKE_GPU_ENTER(kNeedsInit);
  const std::shared_ptr<Exec> exec = execs().find(handle);
  if (!exec) return cu::kInvalidValue;
  cu::Result why = cu::kSuccess;
  const std::shared_ptr<Stream> stream = stream_of(stream_handle, why);
  if (!stream) return why;
  // The driver of the readings takes no graph into another one.
  if (const auto code = ask_in_capture(*stream)) return *code;
  const std::lock_guard lock(exec->mutex);
  std::vector<Mark> after;
  if (exec->last) after.push_back(*exec->last);
  cu::Result result = cu::kSuccess;
  for (const Op& node : exec->graph->nodes) {
    result = submit(*stream, node, std::move(after));
    after.clear();
    if (result != cu::kSuccess) return result;
  }
  exec->last = work_of(*stream).back();
  return result;
}

FAKE_GPU_API cuGraphExecDestroy(cu::GraphExec handle) {
  FAKE_GPU_ENTER(kNeedsInit);
  return execs().remove(handle) ? cu::kSuccess : cu::kInvalidValue;
}

FAKE_GPU_API cuGraphDestroy(cu::Graph handle) {
  FAKE_GPU_ENTER(kNeedsInit);
  return graphs().remove(handle) ? cu::kSuccess : cu::kInvalidValue;
}

}  // namespace fake_gpu
