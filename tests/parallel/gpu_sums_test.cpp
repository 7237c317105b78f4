// SPDX-License-Identifier: BSD-3-Clause
// The sums of reproducible.h on GPUs have the bits of the CPU. CMake runs it on the stand-ins for
// the driver and for NCCL: each rank has a GPU of its own.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "c10d/cuda.h"
#include "c10d/parallel/philox.h"
#include "c10d/parallel/reproducible.h"
#include "tests/contract/ranks.h"
#include "tests/parallel/refused_argument.h"

namespace c10d::parallel { namespace {

using contract::run_ranks;
using testing::AllOf;
using testing::HasSubstr;

// Of one element, and on both sides of the size at which the exchange changes; no multiple of a
// number of ranks, nor of a vector.
constexpr std::size_t kMostValues = 10007, kCounts[] = {1, 77, kMostValues}, kMostShards = 37;
constexpr int kShards[] = {1, 2, 5, 16};
constexpr int kMostRanks = 4;
constexpr double kDivisor = 37.5;

// Why this build has no kernels, or empty. A scan of nccl is always one of them.
std::string why_no_kernels() {
  return backend_supports("nccl", {.op = OpKind::scan, .device = DeviceType::cuda}).reason;
}
class GpuSums : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_kernels(); !why.empty()) GTEST_SKIP() << why;
  }
};

// The first values of a shard. Their sums round, so that another order gives other bits.
template <class T>
std::span<const T> values(int shard, std::size_t count) {
  static const auto all = [] {
    std::vector<std::vector<T>> shards(kMostShards);
    for (std::size_t s = 0; s < shards.size(); ++s) {
      PhiloxStream random(7, 0, s, 0);
      for (std::size_t i = 0; i < kMostValues; ++i) {
        const int exponent = static_cast<int>(random.next() % 12) - 6;
        const T drawn = static_cast<T>(random.next()) - T(2147483648.5);
        shards[s].push_back(std::ldexp(drawn, exponent - 31));
      }
      shards[s][41] = std::numeric_limits<T>::denorm_min();
      shards[s][42] = -T(0);
    }
    // A sum is never the NaN that went in, nor the one that the CPU makes of both infinities.
    shards[1][43] = -std::numeric_limits<T>::quiet_NaN();
    shards[0][44] = std::numeric_limits<T>::infinity();
    shards[1][44] = -std::numeric_limits<T>::infinity();
    return shards;
  }();
  return std::span(all[static_cast<std::size_t>(shard)]).first(count);
}

template <class T>
void expect_bits(const std::vector<T>& got, std::span<const T> expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  const auto bytes = std::as_bytes(std::span(got)), wanted = std::as_bytes(expected);
  const auto differs = std::mismatch(bytes.begin(), bytes.end(), wanted.begin()).first;
  EXPECT_TRUE(differs == bytes.end())
      << what << ": element " << static_cast<std::size_t>(differs - bytes.begin()) / sizeof(T);
}

// One GPU, and a stream that waits for no other.
class Gpu {
 public:
  explicit Gpu(int device) : device_(device), stream_(device) {}

  template <class T>
  Buffer<T> make(std::span<const T> from) const {
    auto memory = cuda::device_allocate<T>(from.size(), device_);
    cuda::copy(memory, from, stream_);
    stream_.synchronize();
    return memory;
  }
  template <class T>
  std::vector<T> read(const ConstView& memory) const {
    std::vector<T> host(memory.count);
    cuda::copy(host, memory, stream_);
    stream_.synchronize();
    return host;
  }
  Device device() const { return cuda_device(device_); }
  const cuda::Stream& stream() const { return stream_; }

 private:
  const int device_;
  const cuda::Stream stream_;
};

// The sums of these shards, by the CPU.
template <class T>
ShardAccumulator on_host(int shards, ShardRange owned, std::size_t count) {
  ShardAccumulator sums(shards, owned, count, dtype_of<T>);
  for (int shard = owned.first; shard < owned.last; ++shard) sums.add(values<T>(shard, count));
  return sums;
}
// By the GPU: every other shard is copied, or written to its place.
template <class T>
ShardAccumulator on_gpu(const Gpu& gpu, int shards, ShardRange owned, std::size_t count) {
  ShardAccumulator sums(shards, owned, count, dtype_of<T>, gpu.device(), gpu.stream());
  const auto memory = cuda::device_allocate<T>(count, gpu.device().index);
  for (int shard = owned.first; shard < owned.last; ++shard) {
    if (shard % 2 == 0) {
      cuda::copy(memory, values<T>(shard, count), gpu.stream());
      sums.add(memory);
    } else {
      cuda::copy(sums.next(), values<T>(shard, count), gpu.stream());
      sums.done();
    }
  }
  gpu.stream().synchronize();  // the memory ends
  return sums;
}
// The sum of all shards / divisor, by the CPU alone.
template <class T>
std::vector<T> expected_sum(int shards, std::size_t count, double divisor) {
  ShardAccumulator sums = on_host<T>(shards, {0, shards}, count);
  divide(sums.sum(), divisor);
  const T* const first = static_cast<const T*>(sums.sum().data);
  return {first, first + count};
}

template <class T>
std::vector<T> special_values() {
  using Limits = std::numeric_limits<T>;
  const T all[] = {0,
                   -T(0),
                   Limits::denorm_min(),
                   -Limits::denorm_min(),
                   Limits::min(),
                   Limits::max(),
                   -Limits::max(),
                   Limits::infinity(),
                   -Limits::infinity(),
                   Limits::quiet_NaN(),
                   -Limits::quiet_NaN(),
                   1};
  return {std::begin(all), std::end(all)};
}

template <class T>
void expect_added(const Gpu& gpu) {
  const auto first = values<T>(0, 1000), second = values<T>(1, 1000);
  std::vector<T> a(first.begin(), first.end()), b(second.begin(), second.end());
  for (const T x : special_values<T>())
    for (const T y : special_values<T>()) {
      a.push_back(x);
      b.push_back(y);
    }
  const Buffer<T> to = gpu.make<T>(a), from = gpu.make<T>(b);
  for (const std::size_t skipped : {0, 1, 3}) {  // the operands: then not aligned in the same way
    const std::size_t count = a.size() - 3;
    add_to(View(a).slice(3 - skipped, count), View(b).slice(skipped, count));
    add_to(to.view().slice(3 - skipped, count), from.view().slice(skipped, count), gpu.stream());
  }
  expect_bits<T>(gpu.read<T>(to), a, "add_to");
}

TEST_F(GpuSums, AddAsTheCpu) {
  const Gpu gpu(1);
  expect_added<float>(gpu);
  expect_added<double>(gpu);
}

template <class T>
void expect_divided(const Gpu& gpu) {
  for (const double divisor : {3.0, 37.5, 0.3, 64.0, -4.0, 1.0, 0x1p-126, 0x1p127, 16777217.0}) {
    std::vector<T> host;
    for (const float value : values<float>(0, 1001)) host.push_back(static_cast<T>(value));
    if constexpr (std::is_floating_point_v<T>)
      for (const T value : special_values<T>())
        if (!std::isnan(value)) host.push_back(value);
    const Buffer<T> memory = gpu.make<T>(host);
    divide(memory, divisor, gpu.stream());
    divide(host, divisor);
    expect_bits<T>(gpu.read<T>(memory), host, "divided by " + std::to_string(divisor));
  }
}

TEST_F(GpuSums, DivideAsTheCpu) {
  const Gpu gpu(1);
  expect_divided<Float16>(gpu);
  expect_divided<BFloat16>(gpu);
  expect_divided<float>(gpu);
  expect_divided<double>(gpu);
}

template <class T>
void expect_accumulated(const Gpu& gpu, int shards, ShardRange owned) {
  for (const std::size_t count : {1, 1003}) {
    const ShardAccumulator host = on_host<T>(shards, owned, count);
    ShardAccumulator device = on_gpu<T>(gpu, shards, owned, count);
    const auto expected = host.partials(), got = device.partials();
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].device, gpu.device());
      expect_bits<T>(gpu.read<T>(got[i]), {static_cast<const T*>(expected[i].data), count},
                     std::to_string(shards) + " shards");
    }
    device.reset();
    EXPECT_EQ(device.complete(), owned.count() == 0);
  }
}

TEST_F(GpuSums, ShardsAccumulateAsOnTheCpu) {
  const Gpu gpu(1);
  for (const int shards : {1, 2, 5, 16, int{kMostShards}}) {
    expect_accumulated<float>(gpu, shards, {0, shards});
    expect_accumulated<double>(gpu, shards, {0, shards});
  }
  expect_accumulated<float>(gpu, 16, {1, 15});
  expect_accumulated<double>(gpu, 16, {4, 4});
}

// Rank r gets about r of `parts`: the first one nothing.
std::vector<std::size_t> slices_of(std::size_t count, int ranks) {
  std::vector<std::size_t> slices;
  const auto parts = static_cast<std::size_t>(ranks * (ranks - 1) / 2);
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r)
    slices.push_back(parts == 0 ? 0 : count * r / parts);
  slices.back() += count - std::accumulate(slices.begin(), slices.end(), std::size_t{0});
  return slices;
}

template <class T>
void expect_sums(const ProcessGroup& group, const Gpu& gpu, TreeSum& tree, std::size_t count) {
  const auto rank = static_cast<std::size_t>(group.rank());
  const std::string what = std::to_string(tree.shards()) + " shards, " + std::to_string(count) +
                           " elements, " + std::to_string(group.size()) + " ranks";
  const std::vector<T> expected = expected_sum<T>(tree.shards(), count, kDivisor);
  const ShardAccumulator sums = on_gpu<T>(gpu, tree.shards(), tree.owned(), count);
  const auto out = cuda::device_allocate<T>(count, gpu.device().index);
  tree.all_reduce(out, sums.partials(), kDivisor);
  expect_bits<T>(gpu.read<T>(out), expected, "all_reduce, " + what);

  const std::vector<std::size_t> slices = slices_of(count, group.size());
  const std::size_t before =
      std::accumulate(slices.begin(), slices.begin() + group.rank(), std::size_t{0});
  const View slice = out.view().slice(0, slices[rank]);
  tree.reduce_scatter(slice, sums.partials(), slices, kDivisor);
  expect_bits<T>(gpu.read<T>(slice), std::span(expected).subspan(before, slices[rank]),
                 "reduce_scatter, " + what);

  // In place, where the rank has a partial sum.
  const auto partials = sums.partials();
  const View first = partials.empty() ? out.view()
                                      : View(const_cast<void*>(partials[0].data), count,
                                             dtype_of<T>, gpu.device());
  tree.all_reduce(first, partials);
  expect_bits<T>(gpu.read<T>(first), expected_sum<T>(tree.shards(), count, 1), "in place, " + what);
}

TEST_F(GpuSums, HaveTheSameBitsAtEveryNumberOfRanks) {
  for (int size = 1; size <= kMostRanks; ++size)
    run_ranks("nccl", size, [&](ProcessGroup& group) {
      const Gpu gpu(group.device().index);
      for (const int shards : kShards) {
        TreeSum tree(group, shards, gpu.stream());
        for (const std::size_t count : kCounts) {
          expect_sums<float>(group, gpu, tree, count);
          expect_sums<double>(group, gpu, tree, count);
        }
        gpu.stream().synchronize();  // the memory of the tree ends
      }
    });
}

// In several pieces, the last one short. The sum before it is not done when it takes more memory.
TEST_F(GpuSums, LongOnesGoPieceByPiece) {
  constexpr std::size_t kLong = (std::size_t{1} << 22) + 1001;  // f64: 32 MiB and more
  std::vector<double> expected(kLong);
  for (std::size_t i = 0; i < kLong; ++i) expected[i] = static_cast<double>(3 * i + 3) / 4;
  run_ranks("nccl", 3, [&](ProcessGroup& group) {
    const Gpu gpu(group.device().index);
    std::vector<double> own(kLong);
    for (std::size_t i = 0; i < kLong; ++i)
      own[i] = static_cast<double>(i + static_cast<std::size_t>(group.rank()));
    TreeSum tree(group, 3, gpu.stream());
    const Buffer<double> sum = gpu.make<double>(own);
    const ConstView partials[] = {sum};
    const Buffer<double> busy = gpu.make<double>(own);
    const ConstView short_one[] = {sum.view().slice(0, kLong / 16)};
    const auto out = cuda::device_allocate<double>(short_one[0].count, gpu.device().index);
    group.barrier({.stream = gpu.stream()});  // NCCL waits for the peers in the first op
    for (int i = 0; i < 20; ++i) cuda::fill(busy, 0, gpu.stream());
    tree.all_reduce(out, short_one, 4);
    tree.all_reduce(sum, partials, 4);
    expect_bits<double>(gpu.read<double>(sum), expected, "long");
    expect_bits<double>(gpu.read<double>(out), std::span(expected).first(kLong / 16), "short");
  });
}

// The same object, in the group of the GPU.
TEST_F(GpuSums, LeaveThoseOfTheHostAsTheyAre) {
  run_ranks("nccl", 3, [&](ProcessGroup& group) {
    const Gpu gpu(group.device().index);
    TreeSum tree(group, 5, gpu.stream());
    std::vector<float> out(77);
    tree.all_reduce(out, on_host<float>(5, tree.owned(), 77).partials(), kDivisor);
    expect_bits<float>(out, expected_sum<float>(5, 77, kDivisor), "host");
    expect_sums<float>(group, gpu, tree, 77);
    std::vector<double> loss(1);
    const std::vector<double> leaves(static_cast<std::size_t>(tree.owned().count()), 0.5);
    tree.sum(loss, leaves);
    EXPECT_EQ(loss[0], 2.5);
    gpu.stream().synchronize();
  });
}

TEST_F(GpuSums, ReturnWhenTheyAreEnqueued) {
  contract::Latch returned(1);
  run_ranks("nccl", 2, [&](ProcessGroup& group) {
    const Gpu gpu(group.device().index);
    TreeSum tree(group, 16, gpu.stream());
    expect_sums<float>(group, gpu, tree, 10007);  // takes memory, loads kernels
    const ShardAccumulator sums = on_gpu<float>(gpu, 16, tree.owned(), 10007);
    const auto out = cuda::device_allocate<float>(10007, gpu.device().index);
    if (group.rank() == 1) returned.wait();
    tree.all_reduce(out, sums.partials());
    if (group.rank() == 0) returned.count_down();
    expect_bits<float>(gpu.read<float>(out), expected_sum<float>(16, 10007, 1), "enqueued");
  });
}

TEST_F(GpuSums, RefuseMemoryOfOtherDevices) {
  const Gpu other(7);
  run_ranks("nccl", 2, [&](ProcessGroup& group) {
    const Gpu gpu(group.device().index);
    TreeSum tree(group, 2, gpu.stream());
    std::vector<float> host(4, 1.0f);
    const Buffer<float> own = gpu.make<float>(host), far = other.make<float>(host);
    const auto bytes = cuda::device_allocate<std::uint8_t>(64, gpu.device().index);
    const ConstView of_host[] = {host}, of_own[] = {own}, of_far[] = {far};
    const std::size_t counts[] = {2, 2};
    const View half = own.view().slice(0, 2), half_of_host = View(host).slice(0, 2);
    const std::string mine = "memory of cuda:" + std::to_string(group.rank());
    const auto mixed = AllOf(HasSubstr("TreeSum"), HasSubstr(mine), HasSubstr("copy it"));
    EXPECT_THAT(refusal_of([&] { tree.all_reduce(own, of_host); }), mixed);
    EXPECT_THAT(refusal_of([&] { tree.all_reduce(own, of_far); }), mixed);
    EXPECT_THAT(refusal_of([&] { tree.all_reduce(host, of_own); }), mixed);
    EXPECT_THAT(refusal_of([&] { tree.all_reduce(host, of_host, 1, bytes); }), mixed);
    EXPECT_THAT(refusal_of([&] { tree.reduce_scatter(half, of_host, counts); }), mixed);
    EXPECT_THAT(refusal_of([&] { tree.reduce_scatter(half_of_host, of_own, counts); }), mixed);
    EXPECT_THAT(refusal_of([&] { tree.all_reduce(far, of_far); }),
                AllOf(HasSubstr("memory of cuda:7"), HasSubstr("the GPU of this group is cuda:"),
                      HasSubstr("copy it")));
    // Nothing was sent.
    tree.all_reduce(own, of_own);
    expect_bits<float>(gpu.read<float>(own), std::vector<float>(4, 2.0f), "after refusals");
  });
}

TEST_F(GpuSums, RefuseMixedOperandsAndStreamsOfTheHost) {
  const Gpu gpu(1), other(2);
  std::vector<float> host(4, 1.0f);
  const Buffer<float> near = gpu.make<float>(host), far = other.make<float>(host);
  const auto mixed = AllOf(HasSubstr("memory of cuda:1"), HasSubstr("copy it"));
  EXPECT_THAT(refusal_of([&] { add_to(near, host, gpu.stream()); }), mixed);
  EXPECT_THAT(refusal_of([&] { add_to(host, near); }), mixed);
  EXPECT_THAT(refusal_of([&] { add_to(near, far); }), mixed);
  EXPECT_THAT(refusal_of([&] { add_to(host, host, gpu.stream()); }), HasSubstr("a stream"));
  EXPECT_THAT(refusal_of([&] { divide(host, 2, gpu.stream()); }), HasSubstr("a stream"));
  EXPECT_THAT(refusal_of([&] {
                ShardAccumulator(1, {0, 1}, 4, DType::f32, {}, gpu.stream());
              }),
              HasSubstr("a stream"));
  const Buffer<std::int32_t> whole = gpu.make<std::int32_t>(std::vector<std::int32_t>{1});
  EXPECT_THAT(refusal_of([&] { divide(whole, 2, gpu.stream()); }), HasSubstr("i32"));
  ShardAccumulator sums(1, {0, 1}, 4, DType::f32, gpu.device(), gpu.stream());
  EXPECT_THAT(refusal_of([&] { sums.add(host); }), mixed);
  EXPECT_THAT(refusal_of([&] { sums.add(far); }), mixed);
  EXPECT_FALSE(sums.complete());
  EXPECT_THAT(refusal_of([] {
                ShardAccumulator(1, {0, 1}, 4, DType::f32, cuda_device(8));
              }),
              HasSubstr("cuda:8"));
}

TEST(GpuSumsWithoutKernels, SayWhatIsMissing) {
  const std::string why = why_no_kernels();
  if (why.empty()) GTEST_SKIP() << "this build has CUDA kernels";
  const auto memory = cuda::device_allocate<float>(4, 1);
  const auto expect_named = [&](const std::function<void()>& call) {
    const Failure failure = contract::failure_of(call);
    EXPECT_EQ(failure.code, Code::unsupported);
    EXPECT_THAT(failure.message, AllOf(HasSubstr(why), HasSubstr("cuda::copy")));
  };
  expect_named([&] { add_to(memory, memory); });
  expect_named([&] { divide(memory, 2); });
  expect_named([] { ShardAccumulator(1, {0, 1}, 4, DType::f32, cuda_device(1)); });
  run_ranks("nccl", 2, [&](ProcessGroup& group) {
    const auto own = cuda::device_allocate<float>(4, group.device().index);
    const ConstView partials[] = {own};
    TreeSum tree(group, 2);
    expect_named([&] { tree.all_reduce(own, partials); });
    contract::expect_usable(group);
  });
}

}}  // namespace c10d::parallel
