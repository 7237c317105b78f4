// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fake_gpu/kernel_tests/runner.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

namespace kernel_tests {
namespace {

constexpr std::size_t kCounts[] = {0, 1, 2, 3, 5, 8, 13, 16, 17, 33, 0, 100, 8191, 8193, 20000};
constexpr std::byte kUntouched{0xee};

struct Piece {
  std::size_t begin, count, in_at, out_at, other_at;  // elements of the arrays; bytes of the memory
};

// Where the tensors lie: the next multiple of 16 bytes and some elements. Every third pair of input
// and output has two different distances, so that no vectors are possible.
std::vector<Piece> layout(const Expected& expected) {
  const std::size_t all = expected.out.size() / expected.out_bytes;
  std::vector<Piece> pieces;
  std::size_t begin = 0, in = 0, out = 0;
  const auto aligned = [](std::size_t at) { return (at + 47) / 16 * 16; };
  for (std::size_t i = 0; begin < all || i < std::size(kCounts); ++i) {
    const std::size_t count = std::min(kCounts[i % std::size(kCounts)], all - begin);
    const std::size_t shift = i % 7, odd = i % 3 == 2 ? 1 : 0;
    const std::size_t in_at = aligned(in) + shift * expected.in_bytes;
    const std::size_t out_at = aligned(out) + (shift + odd) * expected.out_bytes;
    const std::size_t other_at = in_at + (i % 4 == 3 ? expected.in_bytes : 0);
    pieces.push_back({begin, count, in_at, out_at, other_at});
    begin += count;
    in = in_at + (count + 1) * expected.in_bytes;
    out = out_at + count * expected.out_bytes;
  }
  return pieces;
}

std::size_t in_length(const Expected& expected, const std::vector<Piece>& pieces) {
  return (pieces.back().in_at + (pieces.back().count + 2) * expected.in_bytes + 15) / 16 * 16;
}

Bytes scattered(const Bytes& array, const std::vector<Piece>& pieces, std::size_t Piece::*at,
                std::size_t element, std::size_t length) {
  Bytes memory(length, kUntouched);
  for (const Piece& piece : pieces)
    std::copy_n(array.begin() + static_cast<std::ptrdiff_t>(piece.begin * element),
                piece.count * element, memory.begin() + static_cast<std::ptrdiff_t>(piece.*at));
  return memory;
}

void* address(cu::Pointer at, std::size_t offset) { return reinterpret_cast<void*>(at + offset); }

void expect_same(const Bytes& expected, const std::string& found, std::size_t element,
                 const char* name) {
  ASSERT_EQ(expected.size(), found.size());
  const auto* const bytes = reinterpret_cast<const std::byte*>(found.data());
  const auto wrong = std::mismatch(expected.begin(), expected.end(), bytes);
  if (wrong.first == expected.end()) return;
  const auto at = static_cast<std::size_t>(wrong.first - expected.begin());
  std::uint64_t wanted = 0, got = 0;
  std::memcpy(&wanted, &expected[at / element * element], element);
  std::memcpy(&got, &bytes[at / element * element], element);
  ADD_FAILURE() << name << ": byte " << at << " of the memory, in an element " << std::hex << got
                << " that must be " << wanted;
}

}  // namespace

cu::Pointer upload(Gpu& gpu, const void* from, std::size_t bytes) {
  const cu::Pointer to = gpu.bytes(bytes);
  EXPECT_EQ(gpu.api.memcpy_h2d_async(to, from, bytes, nullptr), 0);
  return to;
}

// The image, or where this build has none a text with the name.
cu::Function load(Gpu& gpu, const kernels::Kernel& kernel, cu::Module& module) {
  const std::string text =
      ".version 7.0\n.target sm_80\n.visible .entry " + std::string(kernel.name) + "() { }";
  const void* const image =
      kernel.image.empty() ? static_cast<const void*>(text.c_str()) : kernel.image.data();
  cu::Function function = nullptr;
  EXPECT_EQ(gpu.api.module_load_data(&module, image), 0);
  EXPECT_EQ(gpu.api.module_get_function(&function, module, kernel.name), 0) << kernel.name;
  return function;
}

void launch(Gpu& gpu, cu::Function function, kernels::Arguments arguments) {
  void* parameters[] = {&arguments};
  EXPECT_EQ(gpu.api.launch_kernel(function, kernels::blocks_for(arguments.pieces, 1), 1, 1,
                                  kernels::kThreads, 1, 1, 0, nullptr, parameters, nullptr),
            0);
}

void with_kernels(const std::function<void(Gpu&)>& body) {
  ASSERT_EQ(setenv("FAKE_GPU_KERNELS", KERNEL_BODIES, 1), 0);
  const Ended ended = with_gpu(body);
  EXPECT_TRUE(std::getenv(kDriver) ? ::testing::AssertionResult(ended.ok) : ended.clean());
  unsetenv("FAKE_GPU_KERNELS");
}

void expect_bits(Gpu& gpu, const Expected& expected) {
  ASSERT_TRUE(expected.kernel);
  const std::size_t in_bytes = expected.in_bytes, out_bytes = expected.out_bytes;
  const std::vector<Piece> pieces = layout(expected);
  const std::size_t row = in_length(expected, pieces) + expected.arguments.stride;
  const std::size_t out_length = pieces.back().out_at + (pieces.back().count + 1) * out_bytes;
  Bytes rows;
  for (const Bytes& array : expected.in) {
    const Bytes memory = scattered(array, pieces, &Piece::in_at, in_bytes, row);
    rows.insert(rows.end(), memory.begin(), memory.end());
  }
  const Bytes others = scattered(expected.other.empty() ? expected.in[0] : expected.other, pieces,
                                 &Piece::other_at, in_bytes, row + in_bytes);
  const Bytes untouched(out_length, kUntouched);
  const cu::Pointer in = upload(gpu, rows.data(), rows.size());
  const cu::Pointer other = upload(gpu, others.data(), others.size());
  const cu::Pointer out = upload(gpu, untouched.data(), out_length);
  std::vector<kernels::Tensor> tensors;
  for (const Piece& piece : pieces)
    tensors.push_back({address(out, piece.out_at), address(in, piece.in_at),
                       address(other, piece.other_at), piece.count});
  const std::uint64_t count = kernels::number_pieces(tensors);
  const cu::Pointer table = upload(gpu, tensors.data(), tensors.size() * sizeof tensors[0]);

  cu::Module module = nullptr;
  const cu::Function function = load(gpu, expected.kernel, module);
  const auto run = [&](kernels::Arguments arguments, const std::vector<Piece>& written) {
    arguments.divisor = expected.arguments.divisor;
    arguments.factor = expected.arguments.factor;
    arguments.inputs = expected.arguments.inputs;
    arguments.stride = row;
    launch(gpu, function, arguments);
    expect_same(scattered(expected.out, written, &Piece::out_at, out_bytes, out_length),
                gpu.read(out, out_length, nullptr), out_bytes, expected.kernel.name);
    EXPECT_EQ(gpu.api.memset_d8_async(out, 0xee, out_length, nullptr), 0);
  };
  const auto* const in_device = static_cast<const kernels::Tensor*>(address(table, 0));
  run(kernels::arguments_of(in_device, tensors.size(), count), pieces);
  for (std::size_t i = 0; i < std::size(kCounts); i += 4)
    run(kernels::arguments_of(tensors[i]), {pieces[i]});

  EXPECT_EQ(gpu.api.stream_synchronize(nullptr), 0);
  for (const cu::Pointer memory : {in, other, out, table}) gpu.give_back(memory);
  EXPECT_EQ(gpu.api.module_unload(module), 0);
}

std::vector<std::uint16_t> every_half() {
  std::vector<std::uint16_t> all(0x10000);
  for (std::size_t i = 0; i < all.size(); ++i)  // neighbours in memory differ
    all[i] = static_cast<std::uint16_t>(i * 40503);
  return all;
}

std::vector<std::uint32_t> many_words() {
  std::vector<std::uint32_t> all = {0,          0x80000000, 1,          0x80000001, 0x007fffff,
                                    0x00800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
                                    0x7fc00000, 0xffc00000, 0x7f800001, 0xffbfffff, 0x7fffffff,
                                    0xffffffff, 0x3f800000, 0xbf800000, 0x40490fdb, 0x33000000,
                                    0x33000001, 0x32ffffff, 0x477fefff, 0x477ff000, 0x38800000};
  std::mt19937 random(1);
  for (std::uint32_t i = 0; i < 0x10000; i += 5) {
    const std::uint32_t beside = i % 3 - 1;      // below, on and above a halfway case
    all.push_back((i << 16) + 0x8000 + beside);  // of bf16
    const std::uint32_t half = i & 0x7fff;       // of f16, among its normal numbers
    all.push_back((i & 0x8000) << 16 | ((half << 13) + (112u << 23) + 0x1000 + beside));
    all.push_back(random());
  }
  return all;
}

std::vector<std::uint64_t> many_long_words() {
  std::vector<std::uint64_t> all = {0,
                                    1,
                                    1ull << 63,
                                    (1ull << 63) + 1,
                                    ~0ull,
                                    0x7ff0000000000000,
                                    0xfff0000000000000,
                                    0x7ff8000000000000,
                                    0xfff8000000000000,
                                    0x7ff0000000000001,
                                    0x7fefffffffffffff,
                                    0x000fffffffffffff,
                                    0x0010000000000000,
                                    0x3ff0000000000000,
                                    0x7fffffffffffffff};
  std::mt19937_64 random(1);
  for (int i = 0; i < 40000; ++i) all.push_back(random());
  return all;
}

}  // namespace kernel_tests
