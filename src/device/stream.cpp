// SPDX-License-Identifier: BSD-3-Clause
// cuda::Stream and cuda::Event.
#include <fmt/format.h>

#include "c10d/cuda.h"
#include "src/device/gpu.h"

namespace c10d { inline namespace v0 { namespace cuda {

Stream::Stream(int device) {
  const OnGpu here(device);
  check_driver(driver_api().stream_create(&stream_, driver::kStreamNonBlocking, 0),
               "cuStreamCreateWithPriority");
}
Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(stream_, other.stream_);
  return *this;
}
Stream::~Stream() {
  if (stream_ != nullptr) driver_api().stream_destroy(stream_);
}
void Stream::synchronize() const {
  check_driver(driver_api().stream_synchronize(stream_), "cuStreamSynchronize");
}

Event::Event(int device, Timing timing) : device_(device) {
  const OnGpu here(device);
  const unsigned flags = timing == Timing::on ? driver::kEventDefault : driver::kEventDisableTiming;
  check_driver(driver_api().event_create(&event_, flags), "cuEventCreate");
}
Event& Event::operator=(Event&& other) noexcept {
  std::swap(event_, other.event_);
  std::swap(device_, other.device_);
  return *this;
}
Event::~Event() {
  if (event_ != nullptr) driver_api().event_destroy(event_);
}
void Event::record(CudaStream stream) const {
  const OnGpu here(device_);  // whose legacy default stream it is
  check_driver(driver_api().event_record(event_, stream), "cuEventRecord");
}
bool Event::done() const {
  const driver::Result result = driver_api().event_query(event_);
  if (result == driver::kNotReady) return false;
  check_driver(result, "cuEventQuery");
  return true;
}
void Event::synchronize() const {
  check_driver(driver_api().event_synchronize(event_), "cuEventSynchronize");
}
void Event::wait(CudaStream stream) const {
  const OnGpu here(device_);
  check_driver(driver_api().stream_wait_event(stream, event_, 0), "cuStreamWaitEvent");
}
float Event::milliseconds_since(const Event& start) const {
  float milliseconds = 0;
  check_driver(driver_api().event_elapsed_time(&milliseconds, start.event_, event_),
               "cuEventElapsedTime");
  return milliseconds;
}

}}}  // namespace c10d::v0::cuda
