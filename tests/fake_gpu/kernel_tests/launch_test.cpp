// SPDX-License-Identifier: BSD-3-Clause
// What kernels/cuda/launch.h says.
#include "kernels/cuda/launch.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/fake_gpu/kernel_tests/runner.h"

namespace kernel_tests { namespace {

using c10d::DType;
using c10d::ReduceOp;

TEST(Names, SayWhatAKernelDoes) {
  EXPECT_STREQ(kernels::cast_kernel(DType::f32, DType::bf16).name, "c10d_cast_f32_bf16");
  EXPECT_STREQ(kernels::cast_kernel(DType::boolean, DType::u8).name, "c10d_cast_boolean_u8");
  EXPECT_STREQ(kernels::to_keys_kernel(ReduceOp::min, DType::f64).name, "c10d_to_keys_min_f64");
  EXPECT_STREQ(kernels::from_keys_kernel(DType::f64).name, "c10d_from_keys_i64_f64");
  EXPECT_STREQ(kernels::from_keys_kernel(DType::f16).name, "c10d_from_keys_i32_f16");
  EXPECT_STREQ(kernels::combine_kernel(ReduceOp::sum, DType::i8).name, "c10d_combine_sum_u8");
  EXPECT_STREQ(kernels::fold_kernel(ReduceOp::prod, DType::f32, 1).name, "c10d_fold_prod_f32");
}

TEST(Names, AreNullWhereThereIsNoKernel) {
  EXPECT_FALSE(kernels::cast_kernel(DType::f64, DType::f32));
  EXPECT_FALSE(kernels::to_keys_kernel(ReduceOp::sum, DType::f32));
  EXPECT_FALSE(kernels::to_keys_kernel(ReduceOp::max, DType::i32));
  EXPECT_FALSE(kernels::from_keys_kernel(DType::u8));
  EXPECT_FALSE(kernels::divide_kernel(DType::i32, DType::i32));
  EXPECT_FALSE(kernels::combine_kernel(ReduceOp::bxor, DType::f32));
  EXPECT_FALSE(kernels::combine_kernel(ReduceOp::band, DType::f32));
  EXPECT_FALSE(kernels::fold_kernel(ReduceOp::max, DType::f32, 2));
  EXPECT_FALSE(kernels::fold_kernel(ReduceOp::sum, DType::i32, 2));
  EXPECT_FALSE(kernels::fold_kernel(ReduceOp::sum, DType::f32, 0));
  EXPECT_FALSE(kernels::fold_kernel(ReduceOp::sum, DType::f32, kernels::kMostInputs + 1));
}

TEST(Images, HaveEveryKernelOrThereIsAReason) {
  for (const kernels::Kernel& kernel : kernels::all_kernels())
    EXPECT_EQ(kernel.image.empty(), !kernels::why_none().empty()) << kernel.name;
  with_kernels([](Gpu& gpu) {
    for (const kernels::Kernel& kernel : kernels::all_kernels()) {
      cu::Module module = nullptr;
      EXPECT_NE(load(gpu, kernel, module), nullptr);
      EXPECT_EQ(gpu.api.module_unload(module), 0);
    }
  });
}

TEST(Pieces, AreNumberedOneTensorAfterAnother) {
  const std::uint64_t piece = kernels::kPiece;
  kernels::Tensor tensors[5];
  tensors[0].count = 0;
  tensors[1].count = 1;
  tensors[2].count = piece;
  tensors[3].count = 2 * piece + 1;
  tensors[4].count = 0;
  EXPECT_EQ(kernels::number_pieces(tensors), 5u);
  EXPECT_EQ(tensors[1].first_piece, 0u);
  EXPECT_EQ(tensors[2].first_piece, 1u);
  EXPECT_EQ(tensors[3].first_piece, 2u);
  EXPECT_EQ(tensors[4].first_piece, 5u);
}

TEST(Blocks, FillTheGpuAndAreAtLeastOne) {
  EXPECT_EQ(kernels::blocks_for(0, 132), 1u);
  EXPECT_EQ(kernels::blocks_for(7, 132), 7u);
  EXPECT_EQ(kernels::blocks_for(std::uint64_t{1} << 40, 132), 8u * 132);
}

TEST(Launch, MemoryThatIsNoneBreaksTheContext) {
  ASSERT_EQ(setenv("FAKE_GPU_KERNELS", KERNEL_BODIES, 1), 0);
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                cu::Module module = nullptr;
                const cu::Function function = load(gpu, kernels::parity_kernel(), module);
                launch(gpu, function, kernels::arguments_of({&module, &module, nullptr, 1}));
                EXPECT_EQ(gpu.api.stream_synchronize(nullptr), cu::kIllegalAddress);
              }).ok);
  unsetenv("FAKE_GPU_KERNELS");
}

}}  // namespace kernel_tests
