// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "c10d/buffer.h"
#include "c10d/call.h"
#include "c10d/export.h"
#include "c10d/view.h"

struct CUevent_st;  // of CUDA

// CUDA's GPUs: what a program needs of them beside the ops of a group. It needs no header and no
// library of CUDA: the driver, libcuda.so.1, is opened at the first call. C10D_CUDA_LIBRARY names
// another file.
//
// Handles and memory are CUDA's own: a cudaStream_t, a cudaEvent_t and memory of cudaMalloc work
// here, and those of this header work there. A GPU is named by its number in this process, as
// CUDA_VISIBLE_DEVICES leaves them.
//
// Threads. Everything may be called from any thread. Calls use the primary context of the GPU, as
// CUDA's runtime does, and leave the current context of the thread as it was.
//
// Order. What takes a stream is enqueued there and returns; it runs behind all that is on the
// stream. Memory must stay valid until then. A null stream is the legacy default stream.
//
// Errors. InvalidArgument: a GPU that is not there, or arguments that make no sense.
// DistBackendError: unsupported where this process has no GPU, with the reason; out_of_resources
// where memory is missing; else backend_error with the driver's words. An illegal access in a
// kernel makes every later call of the process on that GPU fail.
namespace c10d { inline namespace v0 { namespace cuda {

// Number of GPUs that this process can use. 0: see why_no_gpu(). Does not throw.
C10D_API int device_count() noexcept;
// Why this process has no GPU, as a sentence: "no CUDA driver: libcuda.so.1: cannot open shared
// object file". Empty if it has one. Valid as long as the process.
C10D_API const std::string& why_no_gpu() noexcept;

// The driver.
struct DriverInfo {
  std::string path;  // of the library that was opened, or that was not found
  int version = 0;   // of CUDA: 13000 is 13.0; 0 if there is no driver
};
// The driver of this process. Does not throw where there is none.
C10D_API DriverInfo driver_info();

// One GPU.
struct DeviceInfo {
  std::string name;              // "NVIDIA H100 80GB HBM3"
  std::string uuid;              // "GPU-" and 32 hexadecimal digits in five parts, as nvidia-smi -L
  std::string pci_bus_id;        // "0000:04:00.0"
  std::size_t memory_bytes = 0;  // all of its memory
  std::size_t l2_bytes = 0;      // its L2 cache
  int multiprocessors = 0;       // its streaming multiprocessors
  int compute_capability = 0;    // 90 is 9.0
};
// What the driver says of GPU `device`.
C10D_API DeviceInfo device_info(int device);

// A stream that does not synchronise with the legacy default stream (cudaStreamNonBlocking). The
// destructor does not wait: work on the stream runs on. Movable; a stream that was moved from must
// not be used.
class C10D_API Stream {
 public:
  // A new stream on GPU `device`.
  explicit Stream(int device);
  // Takes over the stream of `other`, which has none afterwards.
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  // Gives up the stream that was here and takes over that of `other`.
  Stream& operator=(Stream&& other) noexcept;
  ~Stream();
  // The handle, for CallOptions::stream and for CUDA.
  operator CudaStream() const noexcept { return stream_; }
  // Waits until everything on it is done.
  void synchronize() const;

 private:
  CudaStream stream_ = nullptr;
};

// A point on a stream. It is done before the first record(), and after each when the stream got
// there. Movable.
class C10D_API Event {
 public:
  // Whether events can tell the time between them. It costs about 1 us a record.
  enum class Timing : std::uint8_t {
    off,  // they cannot
    on    // they can
  };
  // A new event on GPU `device`.
  explicit Event(int device, Timing timing = Timing::off);
  // Takes over the event of `other`, which has none afterwards.
  Event(Event&& other) noexcept
      : event_(std::exchange(other.event_, nullptr)), device_(other.device_) {}
  // Gives up the event that was here and takes over that of `other`.
  Event& operator=(Event&& other) noexcept;
  ~Event();
  // The handle, for CUDA.
  CUevent_st* get() const noexcept { return event_; }
  // Puts it behind all that is on the stream, which is of the same GPU. Allocates nothing.
  void record(CudaStream stream = nullptr) const;
  // Whether the stream got there. Does not wait.
  bool done() const;
  // Waits until the stream got there.
  void synchronize() const;
  // Makes a stream of any GPU wait for it, and not this thread.
  void wait(CudaStream stream) const;
  // Milliseconds from `start` to this event. Both have Timing::on and are done.
  float milliseconds_since(const Event& start) const;

 private:
  CUevent_st* event_ = nullptr;
  int device_ = 0;
};

// Memory of GPU `device`, aligned to 256 bytes at least, not initialised. It is freed with the last
// copy of the owner, and that waits for all work on the GPU, as cudaFree does.
C10D_API Allocation device_allocate(std::size_t bytes, int device);
// The same for `count` elements of T.
template <Element T>
Buffer<T> device_allocate(std::size_t count, int device) {
  if (count > static_cast<std::size_t>(-1) / sizeof(T)) count = static_cast<std::size_t>(-1);
  return Buffer<T>(device_allocate(count * sizeof(T), device));
}

// Copies `from` to `to` on the stream, which is of the GPU of `to`, or else of `from`: same count,
// same dtype, and at least one of them on a GPU. Where host memory is not pinned (cudaHostAlloc)
// the call waits for the stream. Throws InvalidArgument for views that differ.
C10D_API void copy(View to, ConstView from, CudaStream stream = nullptr);
// Sets every byte of memory on a GPU to `value`, on the stream.
C10D_API void fill(View memory, std::uint8_t value, CudaStream stream = nullptr);

// The three sizes of a grid or of a block.
struct Size3 {
  unsigned x = 1;  // at least 1
  unsigned y = 1;  // at least 1
  unsigned z = 1;  // at least 1
};
// How a kernel is launched.
struct Grid {
  Size3 blocks{};             // blocks of the grid
  Size3 threads{};            // threads of a block
  unsigned shared_bytes = 0;  // dynamic shared memory of a block
  bool cooperative = false;   // all blocks run at once, or the launch fails
};

// A kernel on one GPU. Copies share it.
class C10D_API Kernel {
 public:
  // The kernel `name` of `image`: a fat binary or a cubin, or PTX with a zero at its end. The name
  // is that of the machine code: `extern "C"` keeps it as it is written. The image is read by this
  // call only. Kernels of one image share a module; to load it, and to unload it with the last of
  // them, may wait for all work on the GPU, so make them early. Throws InvalidArgument if there is
  // no such kernel, unsupported if the image does not fit the GPU.
  Kernel(std::span<const std::byte> image, const std::string& name, int device);
  // Launches it on the stream. The arguments are copied, and have exactly the types of the kernel's
  // parameters: nobody checks that. Allocates nothing.
  template <class... Arguments>
  void launch(const Grid& grid, CudaStream stream, const Arguments&... arguments) const {
    const void* values[sizeof...(Arguments) + 1] = {&arguments..., nullptr};
    launch_with(grid, stream, values);
  }

 private:
  void launch_with(const Grid& grid, CudaStream stream, const void** arguments) const;

  std::shared_ptr<const void> module_;
  void* function_ = nullptr;
  int device_ = 0;
};

}}}  // namespace c10d::v0::cuda
