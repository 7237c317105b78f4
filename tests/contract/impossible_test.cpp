// SPDX-License-Identifier: BSD-3-Clause
// Values that cannot be: a world larger than any, and enums that hold what a caller cast to them.
// Each is InvalidArgument that says what there is, and the process and its groups go on.
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <fstream>

#include "c10d/capability.h"
#include "c10d/spi/plan.h"
#include "tests/contract/ranks.h"
#include "tests/contract/variables.h"

namespace c10d::contract { namespace {

template <class Exception = InvalidArgument>
std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.what();
  }
  return "nothing";
}

// Address space for half a gigabyte more than there is now.
void limit_memory() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t bytes = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{1} << 29);
  const rlimit limit{bytes, bytes};
  if (setrlimit(RLIMIT_AS, &limit) != 0) std::exit(2);
}

// Ends the process with 0 if a world of `size` ranks is refused, in little memory.
void make_world_in_little_memory(int size) {
  limit_memory();
  const std::string text = refusal_of([&] {
    init_process_group({.backend = "native",
                        .store = make_hash_store(kTimeout),
                        .rank = 0,
                        .size = size,
                        .connect_timeout = std::chrono::milliseconds(500)});
  });
  const bool says_limit = text.find(std::to_string(kMaxWorldSize)) != text.npos;
  std::fputs(text.c_str(), stderr);
  std::exit(says_limit ? 0 : 1);
}

TEST(WorldSize, BeyondTheLimitIsRefusedBeforeMemoryIsTaken) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer needs more address space than the test leaves";
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  GTEST_SKIP() << "the sanitizer needs more address space than the test leaves";
#endif
#endif
  for (const int size : {kMaxWorldSize + 1, 20'000'000, INT_MAX})
    EXPECT_EXIT(make_world_in_little_memory(size), testing::ExitedWithCode(0), "at most 65536")
        << size;
}

TEST(WorldSize, OfTheLimitWaitsForItsRanks) {
  const Failure failure = failure_of([] {
    init_process_group({.backend = "native",
                        .store = make_hash_store(kTimeout),
                        .rank = 0,
                        .size = kMaxWorldSize,
                        .connect_timeout = std::chrono::milliseconds(500)});
  });
  EXPECT_EQ(failure.code, Code::timed_out) << failure.message;
}

TEST(WorldSize, InAUrlOrAVariableIsLimitedToo) {
  EXPECT_NE(refusal_of([] {
              init_process_group({.url = "tcp://127.0.0.1:29500?rank=0&world_size=65537"});
            }).find("at most 65536"),
            std::string::npos);
  const Variables variables({{"RANK", "0"},
                             {"WORLD_SIZE", "65537"},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", "29500"}});
  EXPECT_NE(refusal_of([] { init_process_group(); }).find("WORLD_SIZE=65537"), std::string::npos);
}

TEST(UnknownEnum, OfAnOpIsAnInvalidArgument) {
  run_ranks("native", 1, [](ProcessGroup& group) {
    std::array<float, 4> memory{}, other{};
    const auto on = [&](int device) {
      return View(memory.data(), 4, DType::f32, {static_cast<DeviceType>(device), 0});
    };
    const View nothing(nullptr, 0, DType::f32, {static_cast<DeviceType>(9), 0});
    for (const int device : {kDeviceTypeCount, 9, 255}) {
      const std::string number = std::to_string(device);
      for (const std::string& text :
           {refusal_of([&] { group.all_reduce(on(device)); }),
            refusal_of([&] { group.async().all_reduce(on(device)).wait(); }),
            refusal_of([&] { group.broadcast(on(device), 0); }),
            refusal_of([&] { group.send(on(device), 0); }),
            refusal_of([&] { group.recv(on(device), 0); })})
        EXPECT_NE(text.find("device type " + number + " does not exist"), std::string::npos)
            << text;
    }
    EXPECT_NE(refusal_of([&] { group.all_reduce(nothing); }).find("device type 9"),
              std::string::npos);
    EXPECT_NE(refusal_of([&] { group.gather(nothing, View(other), 0); }).find("device type 9"),
              std::string::npos);
    expect_usable(group);
  });
}

TEST(UnknownEnum, OfAQueryIsAnInvalidArgument) {
  run_ranks("native", 1, [](ProcessGroup& group) {
    const Query rows[] = {
        {.op = static_cast<OpKind>(kOpCount)},
        {.op = OpKind::send, .dtype = static_cast<DType>(kDTypeCount)},
        {.op = OpKind::reduce, .reduce_op = static_cast<ReduceOp::Kind>(kReduceOpCount)},
        {.op = OpKind::reduce, .device = static_cast<DeviceType>(kDeviceTypeCount)},
    };
    for (const Query& query : rows) {
      EXPECT_NE(refusal_of([&] { group.supports(query); }).find("does not exist"),
                std::string::npos);
      EXPECT_NE(refusal_of([&] { backend_supports("native", query); }).find("does not exist"),
                std::string::npos);
    }
    EXPECT_NE(refusal_of([&] { group.plan({.op = rows[0].op}); }).find("does not exist"),
              std::string::npos);
    EXPECT_NE(refusal_of([&] { group.plan({.dtype = rows[1].dtype}); }).find("does not exist"),
              std::string::npos);
    expect_usable(group);
  });
}

TEST(UnknownEnum, HasANameAndEndsNothing) {
  EXPECT_EQ(to_string(static_cast<DType>(200)), "unknown");
  EXPECT_EQ(to_string(static_cast<DeviceType>(200)), "unknown");
  EXPECT_EQ(to_string(static_cast<ReduceOp::Kind>(200)), "unknown");
  EXPECT_EQ(to_string(static_cast<OpKind>(200)), "unknown");
  EXPECT_EQ(to_string(static_cast<WorkState>(200)), "unknown");
  EXPECT_EQ(to_string(static_cast<Reason>(200)), "unknown");
  const auto code = static_cast<Code>(200);
  EXPECT_EQ(to_string(code), "unknown");
  EXPECT_EQ(reason_of(code), Reason::internal);
  EXPECT_THROW(throw_failure({.code = code}), DistBackendError);
}

}}  // namespace c10d::contract
