// SPDX-License-Identifier: BSD-3-Clause
// What the types of the public headers are by themselves: views, memory, names, failures.
#include <algorithm>
#include <array>
#include <complex>
#include <cstddef>
#include <list>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "c10d/capability.h"
#include "c10d/collective.h"
#include "tests/contract/ranks.h"

namespace c10d::contract { namespace {

// view.h: a view of what is contiguous and of a known element; of const memory nothing that an op
// may write.
static_assert(detail::OutputRange<std::vector<float>&>);
static_assert(detail::OutputRange<std::span<float>>, "a span outlives the expression");
static_assert(detail::InputRange<std::span<const std::int8_t>>);
static_assert(detail::OutputRange<Buffer<BFloat16>&>);
static_assert(std::is_convertible_v<View, ConstView>);
static_assert(!std::is_convertible_v<ConstView, View>);
// What follows compiles to a sentence that says why it does not.
static_assert(!detail::InputRange<std::vector<float>>, "a temporary");
static_assert(!detail::OutputRange<const std::vector<float>&>);
static_assert(!detail::OutputRange<std::span<const float>>);
static_assert(!detail::InputRange<std::vector<std::string>&>);
static_assert(!detail::InputRange<std::vector<bool>&>, "its elements are no bytes");
static_assert(!detail::InputRange<std::list<int>&>);

// element.h: a type is known by kind and size.
enum class Color : std::int16_t {};
struct Pair {
  float first, second;
};
static_assert(Element<bool> && Element<const Float16> && !Element<char*> && !Element<long double>);
static_assert(!Element<Pair> && !Element<std::string>);
static_assert(dtype_of<long> == DType::i64 && dtype_of<long long> == DType::i64);
static_assert(dtype_of<unsigned long long> == DType::u64 && dtype_of<wchar_t> == DType::i32);
static_assert(dtype_of<char> == DType::u8 && dtype_of<std::byte> == DType::u8);
static_assert(dtype_of<char8_t> == DType::u8 && dtype_of<Color> == DType::i16);
static_assert(dtype_of<std::complex<float>> == DType::c64);
static_assert(dtype_of<std::complex<double>> == DType::c128);

// buffer.h, work.h: who owns is moved. process_group.h: a handle is copied.
static_assert(!std::is_copy_constructible_v<Buffer<float>>);
static_assert(!std::is_copy_assignable_v<Buffer<float>>);
static_assert(std::is_nothrow_move_constructible_v<Buffer<float>>);
static_assert(std::is_nothrow_move_assignable_v<Buffer<float>>);
static_assert(std::is_nothrow_copy_constructible_v<ProcessGroup>);
static_assert(std::is_nothrow_move_constructible_v<ProcessGroup>);
static_assert(std::is_nothrow_move_assignable_v<ProcessGroup>);
static_assert(std::is_nothrow_destructible_v<ProcessGroup>);
static_assert(!std::is_copy_constructible_v<Work> && !std::is_copy_assignable_v<Work>);
static_assert(std::is_nothrow_move_constructible_v<Work>);
static_assert(std::is_nothrow_default_constructible_v<Work>);

// error.h: an exception may be copied while another one is under way; a mistake is no DistError.
static_assert(std::is_nothrow_copy_constructible_v<DistError>);
static_assert(std::is_nothrow_copy_constructible_v<DistTimeoutError>);
static_assert(std::is_base_of_v<std::runtime_error, DistError>);
static_assert(std::is_base_of_v<std::invalid_argument, InvalidArgument>);
static_assert(!std::is_base_of_v<DistError, InvalidArgument>);

TEST(Views, AreViewsWithACountOfElements) {
  std::vector<std::int16_t> memory(10);
  const View view(memory);
  EXPECT_EQ(view.data, memory.data());
  EXPECT_EQ(view.count, 10u);
  EXPECT_EQ(view.dtype, DType::i16);
  EXPECT_EQ(view.bytes(), 20u);
  EXPECT_EQ(view.device, (Device{DeviceType::cpu, 0}));
  EXPECT_EQ(ConstView(view).data, memory.data());
  const View gpu(memory.data(), 4, DType::bf16, {DeviceType::cuda, 3});
  for (const ConstView& part : {ConstView(gpu.slice(1, 2)), ConstView(gpu).slice(1, 2)}) {
    EXPECT_EQ(part.data, memory.data() + 1);
    EXPECT_EQ(part.count, 2u);
    EXPECT_EQ(part.dtype, DType::bf16);
    EXPECT_EQ(part.device, (Device{DeviceType::cuda, 3}));
  }
  EXPECT_EQ(View().data, nullptr);
  EXPECT_EQ(ConstView().count, 0u);
}

template <class... Ts>
void expect_sizes() {
  static_assert(((size_of(dtype_of<Ts>) == sizeof(Ts)) && ...));
  std::vector<DType> dtypes{dtype_of<Ts>...};
  std::sort(dtypes.begin(), dtypes.end());
  EXPECT_EQ(std::unique(dtypes.begin(), dtypes.end()) - dtypes.begin(), kDTypeCount);
}

TEST(Views, OfEveryElementHaveItsSize) {
  expect_sizes<double, float, Float16, BFloat16, std::int64_t, std::int32_t, std::int16_t,
               std::int8_t, std::uint64_t, std::uint32_t, std::uint16_t, std::uint8_t, bool,
               std::complex<float>, std::complex<double>, Float8E4M3, Float8E5M2>();
}

// The owner is asked, so that the test does not depend on what a deleter does.
TEST(Buffers, AreFreedWithTheLastAndEmptyOnceMoved) {
  const auto memory = std::make_shared<std::array<float, 4>>();
  const auto make = [&] {
    return Buffer<float>({.data = memory->data(),
                          .bytes = sizeof *memory,
                          .owner = memory,
                          .peer_base = reinterpret_cast<std::byte*>(memory->data()),
                          .peer_stride_bytes = 8});
  };
  Buffer<float> first = make();
  EXPECT_EQ(memory.use_count(), 2);
  EXPECT_EQ(first.peer_data(1), memory->data() + 2);
  Buffer<float> second = std::move(first);
  EXPECT_EQ(second.data(), memory->data());
  EXPECT_EQ(second.size(), 4u);
  Buffer<float>& same = second;
  second = std::move(same);
  EXPECT_EQ(second.size(), 4u);
  EXPECT_EQ(memory.use_count(), 2);
  // What moving leaves is a promise:
  // NOLINTBEGIN(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
  EXPECT_EQ(first.data(), nullptr);
  EXPECT_EQ(first.size(), 0u);
  EXPECT_EQ(first.begin(), first.end());
  EXPECT_EQ(first.peer_data(0), nullptr);
  // NOLINTEND(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
  second = make();
  EXPECT_EQ(memory.use_count(), 2) << "the one before is freed";
  second = {};
  EXPECT_EQ(memory.use_count(), 1);
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  ADD_FAILURE() << "was accepted";
  return {};
}

void expect_parts(const std::string& text, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

TEST(Names, ThatAreWrongAreToldAllThatAreRight) {
  const std::string dtype = message_of([] { dtype_from_string("f33"); });
  for (int d = 0; d < kDTypeCount; ++d) expect_parts(dtype, {to_string(static_cast<DType>(d))});
  const std::string kind = message_of([] { reduce_op_from_string("SUM"); });
  for (int k = 0; k < kReduceOpCount; ++k)
    expect_parts(kind, {to_string(static_cast<ReduceOp::Kind>(k))});
  const std::string op = message_of([] { op_from_string("al_reduce"); });
  for (int o = 0; o < kOpCount; ++o) expect_parts(op, {to_string(static_cast<OpKind>(o))});
  expect_parts(op, {"did you mean all_reduce?"});
}

TEST(Ops, TellTheirKind) {
  EXPECT_EQ(kind_of(AllGatherV{}), OpKind::all_gather_v);
  EXPECT_EQ(kind_of(Op(Recv{})), OpKind::recv);
  for (int o = 0; o < kOpCount; ++o) {
    const auto kind = static_cast<OpKind>(o);
    const bool reduces = kind == OpKind::all_reduce || kind == OpKind::reduce ||
                         kind == OpKind::reduce_scatter || kind == OpKind::reduce_scatter_v ||
                         kind == OpKind::scan || kind == OpKind::exscan;
    EXPECT_EQ(is_reduction(kind), reduces) << to_string(kind);
    EXPECT_EQ(is_point_to_point(kind), kind == OpKind::send || kind == OpKind::recv);
  }
  EXPECT_EQ(ReduceOp().kind, ReduceOp::sum);
  EXPECT_EQ(ReduceOp().factor, 1);
  EXPECT_EQ(ReduceOp::premul(0.5).kind, ReduceOp::premul_sum);
  EXPECT_EQ(ReduceOp::premul(0.5).factor, 0.5);
}

// collective.h lists them: avg and premul_sum are for floating point and complex numbers, the
// bitwise ones for integers and bool; complex numbers have no order, and are reduced part by part.
TEST(Ops, OfEveryDTypeMakeSenseOrSayWhyNot) {
  for (int d = 0; d < kDTypeCount; ++d)
    for (int k = 0; k < kReduceOpCount; ++k) {
      const auto dtype = static_cast<DType>(d);
      const auto kind = static_cast<ReduceOp::Kind>(k);
      const bool is_floating = dtype == DType::f64 || dtype == DType::f32 || dtype == DType::f16 ||
                               dtype == DType::bf16 || dtype == DType::f8e4m3 ||
                               dtype == DType::f8e5m2;
      const bool bitwise =
          kind == ReduceOp::band || kind == ReduceOp::bor || kind == ReduceOp::bxor;
      const bool fraction = kind == ReduceOp::avg || kind == ReduceOp::premul_sum;
      const bool complex = dtype == DType::c64 || dtype == DType::c128;
      EXPECT_EQ(why_unsupported(kind, dtype).empty(),
                complex ? kind == ReduceOp::sum || fraction
                        : (!bitwise || !is_floating) && (!fraction || is_floating))
          << to_string(kind) << " of " << to_string(dtype);
    }
}

// An op that does not reduce takes no ReduceOp, so nothing is wrong with one.
TEST(Ops, SayWhyTheyTakeNotEveryReduceOp) {
  for (int o = 0; o < kOpCount; ++o)
    for (int d = 0; d < kDTypeCount; ++d)
      for (int k = 0; k < kReduceOpCount; ++k) {
        const auto op = static_cast<OpKind>(o);
        const auto dtype = static_cast<DType>(d);
        const auto kind = static_cast<ReduceOp::Kind>(k);
        const bool scans = op == OpKind::scan || op == OpKind::exscan;
        const bool fits = why_unsupported(kind, dtype).empty() && !(scans && kind == ReduceOp::avg);
        EXPECT_EQ(why_unsupported(op, kind, dtype).empty(), !is_reduction(op) || fits)
            << to_string(op) << ' ' << to_string(kind) << " of " << to_string(dtype);
      }
}

std::string type_of(Code code) {
  try {
    throw_failure({.code = code, .message = "why"});
  } catch (const DistBackendError&) {
    return "backend";
  } catch (const DistNetworkError&) {
    return "network";
  } catch (const DistStoreError&) {
    return "store";
  } catch (const DistTimeoutError&) {
    return "timeout";
  }
}

// The table of error.h, by its sections.
TEST(Errors, HaveTheTypeAndTheReasonOfTheirCode) {
  struct Row {
    Code code;
    const char* type;
    Reason reason;
  };
  const Row rows[] = {
      {Code::peer_died, "backend", Reason::peer_lost},
      {Code::peer_left, "backend", Reason::peer_lost},
      {Code::mismatch, "backend", Reason::mismatch},
      {Code::revoked, "backend", Reason::aborted},
      {Code::destroyed, "backend", Reason::aborted},
      {Code::forked_child, "backend", Reason::aborted},
      {Code::concurrent_use, "backend", Reason::aborted},
      {Code::unsupported, "backend", Reason::unsupported},
      {Code::out_of_resources, "backend", Reason::internal},
      {Code::backend_error, "backend", Reason::internal},
      {Code::link_lost, "network", Reason::peer_lost},
      {Code::wrong_job, "network", Reason::mismatch},
      {Code::version_mismatch, "network", Reason::mismatch},
      {Code::corrupt, "network", Reason::internal},
      {Code::not_authenticated, "network", Reason::internal},
      {Code::address_in_use, "network", Reason::internal},
      {Code::unreachable, "network", Reason::internal},
      {Code::store_lost, "store", Reason::peer_lost},
      {Code::store_limit, "store", Reason::internal},
      {Code::store_error, "store", Reason::internal},
      {Code::timed_out, "timeout", Reason::timeout},
  };
  EXPECT_EQ(std::size(rows), static_cast<std::size_t>(Code::timed_out) + 1) << "all codes";
  std::map<std::string_view, Code> names;
  for (const Row& row : rows) {
    EXPECT_EQ(type_of(row.code), row.type) << to_string(row.code);
    EXPECT_EQ(reason_of(row.code), row.reason) << to_string(row.code);
    EXPECT_EQ(DistError({.code = row.code}).reason(), row.reason);
    EXPECT_TRUE(names.emplace(to_string(row.code), row.code).second) << to_string(row.code);
  }
}

// Whatever a program gives to abort(), or a library throws.
TEST(Errors, AreOneLine) {
  const DistError error({.code = Code::revoked, .message = "one\ntwo\n", .rank = 1, .host = "h\n"});
  const std::string text = error.what();
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  expect_parts(text, {"one two", "rank 1"});
  EXPECT_EQ(error.failure().message, "one\ntwo\n");
}

// What is absent is not shown.
TEST(Errors, ShowNoFactsThatTheyHaveNot) {
  EXPECT_STREQ(DistError({.code = Code::timed_out, .message = "late"}).what(),
               "c10d timed_out: late");
}

TEST(Versions, NameTheLibraryTheCompilerAndTheBuild) {
  const std::string text = version();
  EXPECT_TRUE(text.starts_with(std::string(kVersion) + " (")) << text;
  EXPECT_TRUE(text.ends_with(")")) << text;
  EXPECT_TRUE(text.find("g++ ") != text.npos || text.find("clang ") != text.npos) << text;
}

}}  // namespace c10d::contract
