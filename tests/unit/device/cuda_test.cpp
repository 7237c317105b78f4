// SPDX-License-Identifier: BSD-3-Clause
// c10d/cuda.h on the stand-in for the driver, which CMake names in C10D_CUDA_LIBRARY.
#include "c10d/cuda.h"

#include <gmock/gmock.h>

#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "c10d/error.h"
#include "src/device/gpu.h"
#include "tests/unit/device/message_of.h"
#include "tests/unit/device/spin.h"

namespace c10d { inline namespace v0 { namespace {

using testing::HasSubstr;

Code code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const DistError& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return Code::timed_out;
}

TEST(Cuda, TellsWhichGpusThereAre) {
  EXPECT_EQ(cuda::device_count(), 8);
  EXPECT_EQ(cuda::why_no_gpu(), "");
  EXPECT_GE(cuda::driver_info().version, 12000);
  EXPECT_THAT(cuda::driver_info().path, HasSubstr("fake_cuda"));
  const cuda::DeviceInfo first = cuda::device_info(0), last = cuda::device_info(7);
  EXPECT_EQ(first.compute_capability, 90);
  EXPECT_EQ(first.multiprocessors, 132);
  EXPECT_GT(first.memory_bytes, std::size_t{70} << 30);
  EXPECT_GT(first.l2_bytes, std::size_t{1} << 20);
  EXPECT_NE(first.name, "");
  EXPECT_THAT(first.uuid, testing::MatchesRegex("GPU-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-"
                                                "[0-9a-f]+"));
  EXPECT_EQ(first.uuid.size(), 40u);
  EXPECT_NE(first.uuid, last.uuid);
  EXPECT_NE(first.pci_bus_id, last.pci_bus_id);
}

TEST(Cuda, RefusesAGpuThatIsNotThere) {
  for (const int device : {-1, 8, 1000}) {
    EXPECT_THROW(cuda::device_info(device), InvalidArgument);
    EXPECT_THROW(cuda::Stream{device}, InvalidArgument);
    EXPECT_THROW(cuda::Event{device}, InvalidArgument);
    EXPECT_THROW(cuda::device_allocate(8, device), InvalidArgument);
    EXPECT_THROW(cuda::Kernel(test_kernels(), "empty", device), InvalidArgument);
  }
  EXPECT_EQ(message_of([] { cuda::device_info(8); }),
            "cuda:8 is not there: this process has 8 GPUs, numbered from 0");
}

TEST(Cuda, CopiesAndFills) {
  for (const int device : {0, 3}) {
    std::vector<std::int32_t> numbers(10'007), back(numbers.size());
    std::iota(numbers.begin(), numbers.end(), 7);
    const auto one = cuda::device_allocate<std::int32_t>(numbers.size(), device);
    const auto two = cuda::device_allocate<std::int32_t>(numbers.size(), device);
    const cuda::Stream stream(device);
    cuda::copy(one, numbers, stream);
    cuda::copy(two, one, stream);
    cuda::fill(two.view().slice(5, 2), 0xff, stream);
    cuda::copy(back, two, stream);
    stream.synchronize();
    numbers[5] = numbers[6] = -1;
    EXPECT_EQ(back, numbers);
  }
}

TEST(Cuda, CopyRefusesWhatDoesNotFit) {
  std::vector<float> host(8), other(8);
  std::vector<double> doubles(8);
  const auto memory = cuda::device_allocate<float>(8, 0);
  EXPECT_THAT(message_of([&] { cuda::copy(host, other); }), HasSubstr("neither side"));
  EXPECT_THAT(message_of([&] { cuda::copy(memory, doubles); }), HasSubstr("8 elements of f32"));
  EXPECT_THAT(message_of([&] { cuda::copy(memory.view().slice(0, 7), host); }),
              HasSubstr("to has 7 elements"));
  EXPECT_THAT(message_of([&] { cuda::fill(host, 0); }), HasSubstr("no memory of a GPU"));
  EXPECT_THROW(cuda::copy(View(nullptr, 8, DType::f32, cuda_device(0)), host), InvalidArgument);
  EXPECT_THROW(cuda::copy(View(host.data(), 8, DType::f32, cuda_device(9)), host), InvalidArgument);
  cuda::copy(memory.view().slice(0, 0), std::span<float>());  // nothing to copy
}

TEST(Cuda, ABufferOfAGpuIsNotReadByTheHost) {
  const auto memory = cuda::device_allocate<float>(4, 2);
  EXPECT_EQ(memory.size(), 4u);
  EXPECT_EQ(memory.device(), cuda_device(2));
  EXPECT_NE(memory.device_data(), nullptr);
  EXPECT_THROW(static_cast<void>(memory.data()), InvalidArgument);
  EXPECT_THROW(static_cast<void>(memory.begin()), InvalidArgument);
  EXPECT_THROW(static_cast<void>(memory.end()), InvalidArgument);
  EXPECT_THROW(static_cast<void>(memory[0]), InvalidArgument);
  EXPECT_THROW(static_cast<void>(std::span<float>(memory)), InvalidArgument);
  const View view = memory;
  EXPECT_EQ(view.device, cuda_device(2));
  EXPECT_EQ(view.count, 4u);
  EXPECT_EQ(view.data, memory.device_data());
  const ConstView const_view = memory;
  EXPECT_EQ(const_view.device, cuda_device(2));
  EXPECT_THAT(message_of([&] { static_cast<void>(memory[0]); }), HasSubstr("cuda:2"));
}

TEST(Cuda, TooMuchMemoryIsOutOfResources) {
  EXPECT_EQ(code_of([] { cuda::device_allocate(std::size_t{1} << 45, 0); }),
            Code::out_of_resources);
  EXPECT_EQ(code_of([] { cuda::device_allocate<double>(~std::size_t{0} / 2, 0); }),
            Code::out_of_resources);
  EXPECT_EQ(cuda::device_allocate(0, 0).data, nullptr);
}

TEST(Cuda, AnEventIsDoneWhenTheStreamGotThere) {
  const cuda::Stream stream(1), follower(1);
  const cuda::Event event(1), behind(1);
  EXPECT_TRUE(event.done());
  Spin spin(1);
  spin.hold(stream);
  event.record(stream);
  event.wait(follower);
  behind.record(follower);
  EXPECT_FALSE(event.done());
  EXPECT_FALSE(behind.done());
  spin.let_go();
  behind.synchronize();
  EXPECT_TRUE(event.done());
  EXPECT_TRUE(behind.done());
}

TEST(Cuda, EventsTellTheTime) {
  const cuda::Stream stream(0);
  const cuda::Event start(0, cuda::Event::Timing::on), end(0, cuda::Event::Timing::on);
  start.record(stream);
  end.record(stream);
  stream.synchronize();
  EXPECT_GE(end.milliseconds_since(start), 0.0f);
  const cuda::Event untimed(0);
  EXPECT_EQ(code_of([&] { static_cast<void>(end.milliseconds_since(untimed)); }),
            Code::backend_error);
}

TEST(Cuda, LaunchesAKernelByName) {
  const auto word = cuda::device_allocate<std::uint32_t>(1, 0);
  const cuda::Stream stream(0);
  const cuda::Kernel poke(test_kernels(), "poke", 0), add_one(test_kernels(), "add_one", 0);
  poke.launch({}, stream, word.device_data(), 40u);
  add_one.launch({.blocks = {.x = 2}, .threads = {.x = 32}}, stream, word.device_data());
  std::uint32_t value = 0;
  cuda::copy(View(&value, 1), word, stream);
  stream.synchronize();
  EXPECT_EQ(value, 40u + 2 * 32);
  add_one.launch({.threads = {.x = 32}, .cooperative = true}, stream, word.device_data());
  cuda::copy(View(&value, 1), word, stream);
  stream.synchronize();
  EXPECT_EQ(value, 40u + 3 * 32);
}

TEST(Cuda, RefusesAKernelThatIsNotThere) {
  EXPECT_THAT(message_of([] { cuda::Kernel(test_kernels(), "nobody", 0); }),
              HasSubstr("kernel 'nobody' is not in its image"));
  EXPECT_THROW(cuda::Kernel(test_kernels(), "nobody", 0), InvalidArgument);
  EXPECT_THROW(cuda::Kernel({}, "empty", 0), InvalidArgument);
  static const char rubbish[] = "no image at all, and no kernel";
  EXPECT_THAT(message_of([] { cuda::Kernel(std::as_bytes(std::span(rubbish)), "empty", 0); }),
              HasSubstr("a kernel image on cuda:0"));
}

TEST(Cuda, ALaunchThatCannotBeIsAnError) {
  const cuda::Kernel empty(test_kernels(), "empty", 0);
  EXPECT_THAT(message_of([&] { empty.launch({.threads = {.x = 2048}}, nullptr); }),
              HasSubstr("launch of 1x1x1 blocks of 2048x1x1 threads"));
}

TEST(Cuda, HandlesMove) {
  cuda::Stream one(0), two(0);
  const CudaStream handle = one;
  two = std::move(one);
  EXPECT_EQ(static_cast<CudaStream>(two), handle);
  const cuda::Stream three(std::move(two));
  EXPECT_EQ(static_cast<CudaStream>(three), handle);
  cuda::Event event(0);
  CUevent_st* const raw = event.get();
  cuda::Event moved(std::move(event)), another(1);
  EXPECT_EQ(moved.get(), raw);
  another = std::move(moved);
  EXPECT_EQ(another.get(), raw);
  another.record(three);  // it is of GPU 0 now
}

TEST(Cuda, LeavesNoContextBehindInAThread) {
  std::thread([] {
    const auto memory = cuda::device_allocate<float>(8, 5);
    const cuda::Stream stream(5);
    cuda::fill(memory, 0, stream);
    stream.synchronize();
    driver::Context context = nullptr;
    EXPECT_EQ(driver_api().ctx_get_current(&context), driver::kSuccess);
    EXPECT_EQ(context, nullptr);
    const OnGpu outer(5);
    {
      const OnGpu inner(6);
      EXPECT_EQ(driver_api().ctx_get_current(&context), driver::kSuccess);
      EXPECT_EQ(context, primary_context(6));
    }
    EXPECT_EQ(driver_api().ctx_get_current(&context), driver::kSuccess);
    EXPECT_EQ(context, primary_context(5));
  }).join();
}

}}}  // namespace c10d::v0
