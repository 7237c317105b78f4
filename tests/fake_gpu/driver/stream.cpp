// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fake_gpu/driver/stream.h"

#include <pthread.h>

#include <algorithm>
#include <thread>

namespace fake_gpu {
namespace {

using namespace std::chrono_literals;

class RunningOp final : public Running {
 public:
  RunningOp(Context& context, const AbortFlag* abort) : context_(context), abort_(abort) {}
  bool is_over() const override {
    return context_.broken != 0 || !context_.is_active || (abort_ && abort_->raised);
  }
  void fail(cu::Result result) override { break_context(context_, result); }

 private:
  Context& context_;
  const AbortFlag* abort_;
};

void run(Stream& stream, Item& item) {
  bool may_run = true;
  for (const Mark& mark : item.after) may_run = mark.wait(*stream.context) && may_run;
  RunningOp running(*stream.context, item.op.abort.get());
  if (may_run && item.op.body && before_op(item.faults, running, item.op.abort.get())) {
    item.op.body(running);
    after_op(item.faults);
  }
  if (item.record) item.record->time = std::chrono::steady_clock::now();
  // Whoever sees that it is done may free the memory, and what the body holds.
  item.uses.clear();
  item.op = {};
  item.after.clear();
}

void work(const std::shared_ptr<Stream>& stream) {
  pthread_setname_np(pthread_self(), "fake-stream");
  std::unique_lock lock(stream->mutex);
  for (;;) {
    stream->changed.wait(lock, [&] { return !stream->queue.empty() || stream->is_destroyed; });
    if (stream->queue.empty()) return;
    Item item = std::move(stream->queue.front());
    stream->queue.pop_front();
    lock.unlock();
    run(*stream, item);
    item.record.reset();
    lock.lock();
    ++stream->done;
    stream->changed.notify_all();
  }
}

// What the streams of a context have to do with the legacy one. Its order is locked.
void join(Stream& stream, std::vector<Mark>& after) {
  Context& context = *stream.context;
  if (stream.is_legacy) {
    for (const auto& other : context.streams) {
      if (!other->joins_legacy()) continue;
      const std::lock_guard lock(other->mutex);
      if (other->done < other->pushed) after.push_back({other, other->pushed});
    }
  } else if (stream.joins_legacy() && context.legacy) {
    const std::lock_guard lock(context.legacy->mutex);
    if (context.legacy->done < context.legacy->pushed) {
      after.push_back({context.legacy, context.legacy->pushed});
    }
  }
}

// Destroyed streams that have done their work are forgotten. The order is locked.
void prune(Context& context) {
  std::erase_if(context.streams, [](const std::shared_ptr<Stream>& stream) {
    const std::lock_guard lock(stream->mutex);
    return stream->is_destroyed && stream->done == stream->pushed;
  });
}

std::shared_ptr<Stream> per_thread_stream(Context& context) {
  thread_local std::map<Context*, std::weak_ptr<Stream>> all;
  std::shared_ptr<Stream> stream = all[&context].lock();
  if (!stream) all[&context] = stream = make_stream(context, 0, false);
  return stream;
}

}  // namespace

Streams& streams() {
  static Streams& all = *new Streams("stream", 0x20000000, true);
  return all;
}
Events& events() {
  static Events& all = *new Events("event", 0x40000000, true);
  return all;
}

bool Mark::is_reached() const {
  const std::lock_guard lock(stream->mutex);
  return stream->done >= number;
}

bool Mark::wait(const Context& waiting) const {
  std::unique_lock lock(stream->mutex);
  while (stream->done < number) {
    stream->changed.wait_for(lock, 5ms);
    if (waiting.broken != 0 || !waiting.is_active) return false;
  }
  return true;
}

bool Stream::is_idle() const {
  const std::lock_guard lock(mutex);
  return done == pushed;
}

std::shared_ptr<Stream> make_stream(Context& context, unsigned flags, bool is_legacy) {
  const auto stream = std::make_shared<Stream>();
  stream->context = &context;
  stream->flags = flags;
  stream->is_legacy = is_legacy;
  if (!is_legacy) {
    const std::lock_guard lock(context.order);
    prune(context);
    context.streams.push_back(stream);
  }
  return stream;
}

std::shared_ptr<Stream> stream_of(cu::Stream handle, cu::Result& why) {
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  std::shared_ptr<Stream> stream;
  Context* context = current();
  if (number > 2) {
    if (number < 4096) crash("a stream at an address that is none was used");
    stream = streams().find(handle);
    why = cu::kInvalidHandle;
    if (!stream) return nullptr;
    context = stream->context;
  } else if (!context) {
    violation("no context", "a stream of the current context was used on a thread without one");
    why = cu::kInvalidContext;
    return nullptr;
  }
  if (const auto refused = refusal(*context)) {
    why = *refused;
    return nullptr;
  }
  if (stream) return stream;
  return number == 2 ? per_thread_stream(*context) : context->legacy;
}

Mark push(Stream& stream, Item item) {
  const std::lock_guard order(stream.context->order);
  const bool is_work = item.op.body || !item.after.empty();
  join(stream, item.after);
  const std::lock_guard lock(stream.mutex);
  const Mark mark{stream.shared_from_this(), ++stream.pushed};
  if (is_work) stream.worked = mark.number;
  if (item.record) item.record->mark = mark;
  if (!item.op.body && item.after.empty() && stream.done + 1 == mark.number) {
    if (item.record) item.record->time = std::chrono::steady_clock::now();
    ++stream.done;  // there is nothing to wait for
    return mark;
  }
  stream.queue.push_back(std::move(item));
  if (!stream.has_thread) {
    stream.has_thread = true;
    std::thread(work, mark.stream).detach();
  }
  stream.changed.notify_all();
  return mark;
}

bool starts_at_once(Stream& stream) {
  const std::lock_guard order(stream.context->order);
  std::vector<Mark> after;
  join(stream, after);
  return after.empty() && stream.is_idle();
}

std::vector<Mark> work_of(Stream& stream) {
  const std::lock_guard order(stream.context->order);
  std::vector<Mark> marks;
  if (stream.is_legacy) join(stream, marks);
  const std::lock_guard lock(stream.mutex);
  marks.push_back({stream.shared_from_this(), stream.pushed});
  return marks;
}

cu::Result synchronize(Context& context) {
  std::vector<Mark> marks;
  {
    const std::lock_guard order(context.order);
    for (const auto& stream : context.streams) {
      const std::lock_guard lock(stream->mutex);
      marks.push_back({stream, stream->pushed});
    }
    const std::lock_guard lock(context.legacy->mutex);
    marks.push_back({context.legacy, context.legacy->pushed});
  }
  for (const Mark& mark : marks) mark.wait(context);
  return static_cast<cu::Result>(context.broken.load());
}

int destroy_streams_and_events(Context& context) {
  const auto is_in = [&](const auto& object) { return object.context == &context; };
  const int removed = streams().remove_if(is_in) + events().remove_if(is_in);
  std::vector<std::shared_ptr<Stream>> gone;
  {
    const std::lock_guard order(context.order);
    gone.swap(context.streams);
    gone.push_back(std::move(context.legacy));
  }
  for (const auto& stream : gone) {
    const std::lock_guard lock(stream->mutex);
    stream->is_destroyed = true;
    stream->changed.notify_all();
  }
  return removed;
}

}  // namespace fake_gpu
