// SPDX-License-Identifier: BSD-3-Clause
// Modules, kernels and the limits of a launch.
#include <cstdlib>

#include "tests/fake_gpu/driver_tests/process.h"
#include "tests/fake_gpu/same_as_real/kernels.h"
#include "tests/fake_gpu/same_as_real/no_fitting_image.h"

namespace {

TEST(Module, Images) {
  EXPECT_TRUE(
      with_gpu([](Gpu& gpu) {
        const auto load = [&](const std::string& image) {
          cu::Module module = nullptr;
          const cu::Result result = gpu.api.module_load_data(&module, image.c_str());
          if (module) {
            EXPECT_EQ(gpu.api.module_unload(module), 0);
          }
          return result;
        };
        const std::string entry = ".address_size 64\n.visible .entry e() { ret; }";
        EXPECT_EQ(load(same_as_real::kKernels), 0);
        EXPECT_EQ(load(""), cu::kInvalidImage);
        EXPECT_EQ(load("this is no module"), cu::kInvalidImage);
        EXPECT_EQ(load("\177ELF\2\1\1" + std::string(200, 'x')), cu::kInvalidImage);
        EXPECT_EQ(load(".version 9.9\n.target sm_80\n" + entry), cu::kUnsupportedPtxVersion);
        EXPECT_EQ(load(".target sm_80\n" + entry), cu::kInvalidImage);
        EXPECT_EQ(load(std::string(same_as_real::kKernels) + "broken( { }"), cu::kInvalidPtx);
        cu::Module module = nullptr;
        EXPECT_EQ(gpu.api.module_load_data(&module, same_as_real::kNoFittingImage),
                  cu::kNoBinaryForGpu);
        EXPECT_EQ(gpu.api.module_load_data(&module, same_as_real::kNoFittingCubin),
                  cu::kNoBinaryForGpu);
        EXPECT_EQ(gpu.api.module_load_data(&module, nullptr), cu::kInvalidValue);
      }).clean());
}

TEST(Module, FunctionsByTheNamesInTheImage) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                cu::Function one = nullptr, two = nullptr;
                EXPECT_EQ(gpu.api.module_get_function(&one, gpu.module(), "nobody"), cu::kNotFound);
                EXPECT_EQ(gpu.api.module_get_function(&one, gpu.module(), ""), cu::kInvalidValue);
                EXPECT_EQ(gpu.api.module_get_function(&one, gpu.module(), "emp"), cu::kNotFound);
                EXPECT_EQ(gpu.api.module_get_function(&one, gpu.module(), "empty"), 0);
                EXPECT_EQ(gpu.api.module_get_function(&two, gpu.module(), "empty"), 0);
                EXPECT_EQ(one, two);
                EXPECT_EQ(gpu.launch(nullptr, nullptr), cu::kInvalidHandle);
                EXPECT_EQ(gpu.api.module_unload(gpu.module()), 0);
              }).clean());
}

TEST(Kernel, ParametersAreCopied) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                cu::Pointer word = gpu.bytes(4);
                unsigned value = 0x41414141;
                const cu::Stream stream = gpu.stream();
                const cu::Function poke = gpu.kernel("poke");
                Gate gate(gpu, stream);
                EXPECT_EQ(gpu.launch(poke, stream, {&word, &value}), 0);
                value = 0;
                gate.open();
                EXPECT_EQ(gpu.read(word, 4, stream), "AAAA");
                EXPECT_EQ(
                    gpu.api.launch_kernel(poke, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr),
                    cu::kInvalidValue);
                gpu.give_back(stream);
                gpu.give_back(word);
                EXPECT_EQ(gpu.api.module_unload(gpu.module()), 0);
              }).clean());
}

TEST(Kernel, BodiesOfALibrary) {
  ASSERT_EQ(setenv("FAKE_GPU_KERNELS", KERNEL_BODIES, 1), 0);
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                cu::Module module = nullptr;
                cu::Function function = nullptr;
                cu::Pointer memory = gpu.bytes(1);
                const char* const image =
                    ".version 7.0\n.target sm_80\n.visible .entry twice() { }";
                EXPECT_EQ(gpu.api.module_load_data(&module, image), 0);
                EXPECT_EQ(gpu.api.module_get_function(&function, module, "twice"), 0);
                EXPECT_EQ(gpu.api.memset_d8_async(memory, 3, 1, nullptr), 0);
                EXPECT_EQ(gpu.launch(function, nullptr, {&memory}), 0);
                EXPECT_EQ(gpu.read(memory, 1, nullptr), "\6");
                EXPECT_EQ(gpu.api.module_unload(module), 0);
                gpu.give_back(memory);
              }).clean());
  unsetenv("FAKE_GPU_KERNELS");
}

TEST(Kernel, ATrapBreaksTheContext) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                EXPECT_EQ(gpu.launch(gpu.kernel("stop"), nullptr), 0);
                EXPECT_EQ(gpu.api.stream_synchronize(nullptr), cu::kLaunchFailed);
                cu::Event event = nullptr;
                EXPECT_EQ(gpu.api.event_create(&event, 0), cu::kLaunchFailed);
              }).ok);
}

TEST(Kernel, LimitsOfALaunch) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                const cu::Function f = gpu.kernel("empty");
                const auto launch = [&](unsigned gx, unsigned gy, unsigned bx, unsigned by,
                                        unsigned bz, unsigned shared) {
                  return gpu.api.launch_kernel(f, gx, gy, 1, bx, by, bz, shared, nullptr, nullptr,
                                               nullptr);
                };
                EXPECT_EQ(launch(1, 1, 1024, 1, 1, 0), 0);
                EXPECT_EQ(launch(1, 1, 1025, 1, 1, 0), cu::kInvalidValue);
                EXPECT_EQ(launch(1, 1, 32, 32, 2, 0), cu::kInvalidValue);
                EXPECT_EQ(launch(1, 1, 1, 1, 65, 0), cu::kInvalidValue);
                EXPECT_EQ(launch(0, 1, 1, 1, 1, 0), cu::kInvalidValue);
                EXPECT_EQ(launch(2147483647, 1, 1, 1, 1, 0), 0);
                EXPECT_EQ(launch(1, 65536, 1, 1, 1, 0), cu::kInvalidValue);
                EXPECT_EQ(launch(1, 1, 1, 1, 1, 48 << 10), 0);
                EXPECT_EQ(launch(1, 1, 1, 1, 1, (48 << 10) + 4), cu::kInvalidValue);
                EXPECT_EQ(gpu.api.func_set_attribute(f, cu::kMaxDynamicSharedMemory, 228 << 10),
                          cu::kInvalidValue);
                EXPECT_EQ(gpu.api.func_set_attribute(f, cu::kMaxDynamicSharedMemory, 227 << 10), 0);
                EXPECT_EQ(launch(1, 1, 1, 1, 1, 227 << 10), 0);
                EXPECT_EQ(gpu.api.stream_synchronize(nullptr), 0);
                EXPECT_EQ(gpu.api.module_unload(gpu.module()), 0);
              }).clean());
}

TEST(Kernel, CooperativeGridsMustFit) {
  EXPECT_TRUE(with_gpu([](Gpu& gpu) {
                const cu::Function f = gpu.kernel("empty");
                const auto fits = [&](unsigned blocks, unsigned threads) {
                  return gpu.api.launch_cooperative(f, blocks, 1, 1, threads, 1, 1, 0, nullptr,
                                                    nullptr);
                };
                int blocks = 0;
                EXPECT_EQ(gpu.api.occupancy(&blocks, f, 1024, 0), 0);
                EXPECT_EQ(blocks, 2);
                EXPECT_EQ(fits(264, 1024), 0);
                EXPECT_EQ(fits(265, 1024), cu::kCooperativeLaunchTooLarge);
                EXPECT_EQ(gpu.api.occupancy(&blocks, f, 128, 48 << 10), 0);
                EXPECT_EQ(blocks, 4);
                EXPECT_EQ(gpu.api.occupancy(&blocks, f, 0, 0), cu::kInvalidValue);
                EXPECT_EQ(gpu.api.stream_synchronize(nullptr), 0);
                EXPECT_EQ(gpu.api.module_unload(gpu.module()), 0);
              }).clean());
}

}  // namespace
