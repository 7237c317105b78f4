// SPDX-License-Identifier: BSD-3-Clause
// Partial reductions against reduce(), which reduce_test.cpp compares with a reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/reduce.h"
#include "tests/unit/kernels/reduce_inputs.h"

namespace c10d { namespace {

using Nodes = std::vector<TreeNode>;
using Inputs = std::vector<Bytes>;

// Half of the elements are such that an f16 or bf16 result tells the order in which it was made:
// large numbers that cancel each other, or overflow, between small ones.
Bytes telling_bytes(DType dtype, std::size_t count, std::uint32_t seed) {
  Bytes bytes = random_bytes(dtype, count, seed);
  if (dtype != DType::f16 && dtype != DType::bf16) return bytes;
  const float large = dtype == DType::f16 ? 0x1p15f : 0x1p100f;
  const float numbers[] = {large,      -large,     large,    -large,    1,
                           0x1.8p-10f, 0x1.4p-11f, 0x1p-12f, -0x1p-13f, 5 / large};
  std::mt19937 random(seed);
  for (std::size_t e = 0; e < count; e += 2) {
    const float number = numbers[random() % std::size(numbers)];
    const auto bits = dtype == DType::f16 ? std::bit_cast<std::uint16_t>(Float16(number))
                                          : std::bit_cast<std::uint16_t>(BFloat16(number));
    std::memcpy(&bytes[e * 2], &bits, 2);
  }
  return bytes;
}

Inputs inputs_of(DType dtype, std::size_t n, std::size_t count) {
  Inputs inputs;
  for (std::size_t rank = 0; rank < n; ++rank)
    inputs.push_back(telling_bytes(dtype, count, static_cast<std::uint32_t>(rank * 1000 + count)));
  return inputs;
}

std::vector<const std::byte*> pointers_to(const Inputs& inputs) {
  std::vector<const std::byte*> in;
  for (const Bytes& input : inputs) in.push_back(input.data());
  return in;
}

struct Case {
  DType dtype;
  ReduceOp op;
  std::size_t count;
};

Bytes whole(const Case& c, const Inputs& inputs) {
  Bytes out(c.count * size_of(c.dtype));
  reduce(c.dtype, c.op, out.data(), pointers_to(inputs), c.count);
  return out;
}

// What each host sends: one result for each of its nodes, behind bytes that make it misaligned.
constexpr std::size_t kShift = 3;
Bytes partial(KernelIsa isa, const Case& c, const Inputs& inputs, TreeNode node) {
  const std::size_t size = c.count * size_of(partial_type(c.dtype, c.op.kind));
  Bytes out(kShift + size + 16, std::byte{0xa5});
  const auto in = pointers_to(inputs);
  reduce_partial(isa, c.dtype, c.op, &out[kShift], std::span(in).subspan(node.first, node.count),
                 c.count);
  EXPECT_TRUE(std::ranges::all_of(std::span(out).subspan(kShift + size),
                                  [](std::byte b) { return b == std::byte{0xa5}; }));
  return out;
}

Bytes ended(KernelIsa isa, const Case& c, const Inputs& partials, const Nodes& nodes) {
  const std::size_t size = c.count * size_of(c.dtype);
  std::vector<const std::byte*> in;
  std::vector<std::size_t> ranks;
  for (const Bytes& value : partials) in.push_back(&value[kShift]);
  for (const TreeNode& node : nodes) ranks.push_back(node.count);
  Bytes out(kShift + size + 16, std::byte{0xa5});
  reduce_end(isa, c.dtype, c.op, &out[kShift], in, ranks, c.count);
  EXPECT_TRUE(std::ranges::all_of(std::span(out).subspan(kShift + size),
                                  [](std::byte b) { return b == std::byte{0xa5}; }));
  return {out.begin() + kShift, out.begin() + static_cast<std::ptrdiff_t>(kShift + size)};
}

// The nodes of hosts, each of which has the ranks up to the next of `ends`.
Nodes nodes_of(const std::vector<std::size_t>& ends) {
  Nodes nodes;
  std::size_t first = 0;
  for (const std::size_t end : ends) {
    const Nodes own = tree_nodes(ends.back(), first, end);
    nodes.insert(nodes.end(), own.begin(), own.end());
    first = end;
  }
  return nodes;
}

std::string name_of(const Case& c, const Nodes& nodes) {
  std::string name = name_of(KernelIsa::baseline, c.dtype, c.op) + " nodes";
  for (const TreeNode& node : nodes) name += " " + std::to_string(node.count);
  return name;
}

// All ways to divide n ranks among up to four hosts that differ in their nodes.
std::vector<Nodes> ways_to_divide(std::size_t n) {
  std::vector<Nodes> ways;
  for (std::size_t a = 1; a <= n; ++a)
    for (std::size_t b = a; b <= n; ++b)
      for (std::size_t c = b; c <= n; ++c) {
        Nodes nodes = nodes_of({a, b, c, n});
        if (std::ranges::find(ways, nodes) == ways.end()) ways.push_back(std::move(nodes));
      }
  return ways;
}

std::vector<DType> dtypes() {
  std::vector<DType> all;
  for (int d = 0; d < kDTypeCount; ++d)
    if (!is_float8(static_cast<DType>(d))) all.push_back(static_cast<DType>(d));
  return all;
}

// The hosts have the parameter, the receiver has it too or another one.
class PartialTest : public testing::TestWithParam<KernelIsa> {
 protected:
  static void expect_bits_of_whole(const Case& c, const Inputs& inputs,
                                   const std::vector<Nodes>& ways) {
    const Bytes expected = whole(c, inputs);
    const auto isas = runnable_isas();
    const auto own = static_cast<std::size_t>(std::ranges::find(isas, GetParam()) - isas.begin());
    for (const Nodes& nodes : ways) {
      Inputs partials;
      for (const TreeNode& node : nodes) partials.push_back(partial(GetParam(), c, inputs, node));
      ASSERT_EQ(ended(GetParam(), c, partials, nodes), expected) << name_of(c, nodes);
      const KernelIsa other = isas[(own + 1) % isas.size()];
      ASSERT_EQ(ended(other, c, partials, nodes), expected) << name_of(c, nodes);
    }
  }
};

TEST_P(PartialTest, EveryDivisionGivesTheBitsOfTheWhole) {
  constexpr std::size_t kCount = 45;
  for (std::size_t n = 1; n <= 16; ++n) {
    const std::vector<Nodes> ways = ways_to_divide(n);
    for (const DType dtype : dtypes()) {
      const Inputs inputs = inputs_of(dtype, n, kCount);
      for (const ReduceOp op : ops_of(dtype))
        ASSERT_NO_FATAL_FAILURE(expect_bits_of_whole({dtype, op, kCount}, inputs, ways));
    }
  }
}

TEST_P(PartialTest, ManyRanksAndElements) {
  std::mt19937 random(3);
  for (int i = 0; i < 12; ++i) {
    const std::size_t n = 17 + random() % 48, count = i == 0 ? 2048 : 1 + random() % 2500;
    std::vector<std::size_t> ends = {n};
    while (random() % 6 != 0) ends.push_back(1 + random() % n);
    std::ranges::sort(ends);
    for (const DType dtype : dtypes()) {
      const Inputs inputs = inputs_of(dtype, n, count);
      for (const ReduceOp op : ops_of(dtype))
        ASSERT_NO_FATAL_FAILURE(expect_bits_of_whole({dtype, op, count}, inputs, {nodes_of(ends)}));
    }
  }
}

TEST_P(PartialTest, AnyNumberOfElementsMayBeLast) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::u8})
    for (std::size_t count = 0; count <= 70; ++count)
      for (const std::vector<std::size_t>& ends : {std::vector<std::size_t>{2, 4}, {3, 6}, {5, 7}})
        ASSERT_NO_FATAL_FAILURE(expect_bits_of_whole(
            {dtype, ReduceOp::sum, count}, inputs_of(dtype, ends.back(), count), {nodes_of(ends)}));
}

INSTANTIATE_TEST_SUITE_P(Isas, PartialTest,
                         testing::ValuesIn(runnable_isas().begin(), runnable_isas().end()),
                         isa_name);

TEST(Partial, InputsTellTheOrder) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod}) {
      // So few f16 neither overflow nor underflow as f32, so all orders round to the same f16.
      if (dtype == DType::f16 && op.kind == ReduceOp::prod) continue;
      const Case c = {dtype, op, 1000};
      Inputs inputs = inputs_of(dtype, 16, c.count);
      const Bytes expected = whole(c, inputs);
      std::swap(inputs[3], inputs[12]);
      EXPECT_TRUE(whole(c, inputs) != expected) << name_of(c, {});
    }
}

TEST(Partial, IsF32WhereTheResultIsRounded) {
  for (const ReduceOp::Kind kind :
       {ReduceOp::sum, ReduceOp::avg, ReduceOp::prod, ReduceOp::premul_sum}) {
    EXPECT_EQ(partial_type(DType::f16, kind), DType::f32);
    EXPECT_EQ(partial_type(DType::bf16, kind), DType::f32);
    EXPECT_EQ(partial_type(DType::f64, kind), DType::f64);
    EXPECT_EQ(partial_type(DType::c64, kind), DType::c64);
  }
  EXPECT_EQ(partial_type(DType::f16, ReduceOp::min), DType::f16);
  EXPECT_EQ(partial_type(DType::bf16, ReduceOp::max), DType::bf16);
  EXPECT_EQ(partial_type(DType::i8, ReduceOp::sum), DType::i8);

  const Float16 in[] = {Float16(60000.0f), Float16(-0.0f), Float16(0x1p-24f)};
  float out[3] = {};
  const std::byte* const one = std::as_bytes(std::span(in)).data();
  const std::vector<const std::byte*> twice = {one, one};
  reduce_partial(DType::f16, ReduceOp::avg, std::as_writable_bytes(std::span(out)).data(), twice,
                 3);
  EXPECT_EQ(out[0], 120000);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(out[1]), 0x80000000u);
  EXPECT_EQ(out[2], 0x1p-23f);
}

TEST(Partial, OutputMayBeAnyInput) {
  constexpr std::size_t kCount = 2500;
  for (const DType dtype : {DType::f32, DType::c128, DType::u8})
    for (const auto& ends : std::vector<std::vector<std::size_t>>{{4, 8}, {3, 6, 11}, {5, 12}}) {
      const Case c = {dtype, ReduceOp::sum, kCount};
      const Inputs inputs = inputs_of(dtype, ends.back(), kCount);
      const Nodes nodes = nodes_of(ends);
      for (std::size_t place = 0; place < nodes.size(); ++place) {
        Inputs partials;
        std::vector<std::size_t> ranks;
        for (const TreeNode& node : nodes) {
          Inputs own(inputs.begin() + static_cast<std::ptrdiff_t>(node.first),
                     inputs.begin() + static_cast<std::ptrdiff_t>(node.first + node.count));
          Bytes& out = own.back();
          reduce_partial(dtype, c.op, out.data(), pointers_to(own), kCount);
          partials.push_back(out);
          ranks.push_back(node.count);
        }
        reduce_end(dtype, c.op, partials[place].data(), pointers_to(partials), ranks, kCount);
        ASSERT_EQ(partials[place], whole(c, inputs)) << name_of(c, nodes) << " place " << place;
      }
    }
}

TEST(Partial, RoundsAlikeWhateverItsThreadIsSetTo) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const ReduceOp op : ops_of(dtype))
      for (const auto& ends : std::vector<std::vector<std::size_t>>{{4, 8}, {3, 7}}) {
        const Case c = {dtype, op, 1003};
        const Inputs inputs = inputs_of(dtype, ends.back(), c.count);
        const Nodes nodes = nodes_of(ends);
        const KernelIsa isa = runnable_isas().back();
        Inputs partials;
        Bytes result;
        {
          const OtherArithmetic other;
          for (const TreeNode& node : nodes) partials.push_back(partial(isa, c, inputs, node));
          result = ended(isa, c, partials, nodes);
          EXPECT_EQ(std::fegetround(), FE_UPWARD) << "it is the caller's again";
        }
        ASSERT_EQ(result, whole(c, inputs)) << name_of(c, nodes);
      }
}

void end(DType dtype, ReduceOp op, std::size_t values, const std::vector<std::size_t>& ranks) {
  const Bytes value(64);
  Bytes out(64);
  const std::vector<const std::byte*> in(values, value.data());
  reduce_end(dtype, op, out.data(), in, ranks, 2);
}

TEST(Partial, RefusesWhatHasNoMeaning) {
  const auto start = [](DType dtype, ReduceOp op, std::size_t n) {
    const Bytes value(64);
    Bytes out(64);
    const std::vector<const std::byte*> in(n, value.data());
    reduce_partial(dtype, op, out.data(), in, 2);
  };
  EXPECT_NO_THROW(start(DType::f16, ReduceOp::avg, 1));
  EXPECT_NO_THROW(end(DType::f16, ReduceOp::avg, 2, {2, 1}));
  EXPECT_THROW(start(DType::f16, ReduceOp::avg, 0), std::invalid_argument);
  const std::pair<DType, ReduceOp> wrong[] = {
      {DType::f32, ReduceOp::band},        {DType::bf16, ReduceOp::bxor},
      {DType::i32, ReduceOp::avg},         {DType::u8, ReduceOp::premul(2)},
      {DType::boolean, ReduceOp::avg},     {DType::c64, ReduceOp::max},
      {DType::f8e4m3, ReduceOp::sum},      {DType::f8e5m2, ReduceOp::avg},
      {DType::f8e5m2, ReduceOp::premul(2)}};
  for (const auto& [dtype, op] : wrong) {
    EXPECT_THROW(start(dtype, op, 2), std::invalid_argument);
    EXPECT_THROW(end(dtype, op, 2, {2, 2}), std::invalid_argument);
    EXPECT_THROW(end(dtype, op, 3, {2, 2, 1, 1}), std::invalid_argument);
  }
}

TEST(Partial, RefusesWhatIsNoNode) {
  const auto refused = [](std::size_t values, const std::vector<std::size_t>& ranks) {
    try {
      end(DType::f32, ReduceOp::sum, values, ranks);
      return false;
    } catch (const std::invalid_argument&) {
      return true;
    }
  };
  EXPECT_TRUE(refused(0, {}));
  EXPECT_TRUE(refused(2, {1}));
  EXPECT_TRUE(refused(1, {1, 1}));
  EXPECT_TRUE(refused(1, {0}));
  EXPECT_TRUE(refused(2, {0, 2}));
  EXPECT_TRUE(refused(2, {2, 0}));
  EXPECT_TRUE(refused(2, {1, 2}));        // 3 is 2 and 1
  EXPECT_TRUE(refused(2, {3, 3}));        // 6 is 4 and 2
  EXPECT_TRUE(refused(3, {1, 2, 1}));     // the 2 lies across the middle
  EXPECT_TRUE(refused(4, {4, 4, 4, 5}));  // 17 is 16 and 1
  EXPECT_TRUE(refused(3, {~std::size_t{0}, 1, 1}));
  EXPECT_FALSE(refused(1, {5}));
  EXPECT_FALSE(refused(2, {4, 2}));
  EXPECT_FALSE(refused(3, {4, 4, 5}));
  EXPECT_FALSE(refused(4, {4, 4, 4, 3}));
  EXPECT_FALSE(refused(4, {4, 2, 2, 1}));
}

// All nodes of the tree over n, as the header describes it.
void add_all(Nodes& all, std::size_t first, std::size_t n) {
  all.push_back({first, n});
  if (n == 1) return;
  std::size_t left = 1;
  while (left * 2 < n) left *= 2;
  add_all(all, first, left);
  add_all(all, first + left, n - left);
}

TEST(TreeNodes, AreTheLargestInsideTheRange) {
  EXPECT_EQ(tree_nodes(8, 0, 4), (Nodes{{0, 4}}));
  EXPECT_EQ(tree_nodes(6, 2, 6), (Nodes{{2, 2}, {4, 2}}));
  EXPECT_EQ(tree_nodes(7, 4, 7), (Nodes{{4, 3}}));
  EXPECT_EQ(tree_nodes(8, 3, 7), (Nodes{{3, 1}, {4, 2}, {6, 1}}));
  EXPECT_EQ(tree_nodes(8, 0, 8), (Nodes{{0, 8}}));
  for (std::size_t n = 1; n <= 33; ++n) {
    Nodes all;
    add_all(all, 0, n);
    for (std::size_t first = 0; first <= n; ++first)
      for (std::size_t last = first; last <= n; ++last) {
        const auto is_inside = [&](const TreeNode& node) {
          return first <= node.first && node.first + node.count <= last;
        };
        // A node is left out if a larger one has its ranks.
        Nodes expected;
        for (const TreeNode& node : all)
          if (is_inside(node) &&
              (expected.empty() || expected.back().first + expected.back().count <= node.first))
            expected.push_back(node);
        ASSERT_EQ(tree_nodes(n, first, last), expected) << n << ": " << first << ", " << last;
      }
  }
}

}}  // namespace c10d
