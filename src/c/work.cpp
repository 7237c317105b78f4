// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/work.h"

#include <utility>

#include "src/c/arguments.h"
#include "src/c/failures.h"
#include "src/c/handles.h"

namespace c10d { inline namespace v0 { namespace c {
namespace {

const Work& work_of(const c10d_work* handle) { return required(handle, "work").work; }

// Waits for the op; false when it still runs after the timeout.
bool ends_within(const Work& work, Duration timeout) {
  if (work.done()) return true;
  if (timeout <= Duration::zero()) return false;
  try {
    work.wait(timeout);
  } catch (const DistTimeoutError&) {
    return work.done();  // then it is the op whose deadline passed
  }
  return true;
}

}  // namespace

extern "C" {

C10D_C_API c10d_code c10d_work_wait(const c10d_work* work, int64_t timeout_ns) {
  return call([&]() -> c10d_code {
    const Work& op = work_of(work);
    if (const auto timeout = timeout_of(timeout_ns); timeout && !ends_within(op, *timeout))
      return C10D_PENDING;
    op.wait();
    return C10D_OK;
  });
}

C10D_C_API c10d_code c10d_work_synchronize_stream(const c10d_work* work, void* stream) {
  return call([&] { work_of(work).synchronize_stream(static_cast<CudaStream>(stream)); });
}

C10D_C_API c10d_received c10d_work_received(const c10d_work* work) {
  return to_c_received(work == nullptr ? Received{} : work->work.received());
}

C10D_C_API c10d_code c10d_work_on_done(const c10d_work* work, c10d_callback callback, void* arg) {
  return call([&] {
    if (callback == nullptr) refuse_null("callback");
    work_of(work).on_done([callback, arg](const Failure* failure) {
      if (failure == nullptr) return callback(arg, nullptr);
      const DistError error(*failure);
      const c10d_failure shown = to_c(error);
      callback(arg, &shown);
    });
  });
}

C10D_C_API void c10d_work_free(c10d_work* work) { delete work; }

C10D_C_API void c10d_work_detach(c10d_work* work) {
  if (work != nullptr) work->work.detach();
  delete work;
}

C10D_C_API c10d_code c10d_batch_create(const c10d_group* group, const c10d_call_options* options,
                                       c10d_batch** batch) {
  return call([&] {
    c10d_batch*& handle = handle_of(batch, "batch");
    const ProcessGroup& owner = group_of(group);
    hand_out(handle, owner, owner.batch(call_options_of(taken(options, "options"))));
  });
}

C10D_C_API c10d_code c10d_batch_submit(c10d_batch* batch, c10d_work** work) {
  if (work != nullptr) *work = nullptr;
  return call([&] {
    Batch& ops = required(batch, "batch").batch;
    if (work == nullptr)
      ops.submit();
    else
      start(*work, [&] { return ops.submit_async(); });
  });
}

C10D_C_API void c10d_batch_free(c10d_batch* batch) { delete batch; }

}  // extern "C"

}}}  // namespace c10d::v0::c
