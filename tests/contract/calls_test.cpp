// SPDX-License-Identifier: BSD-3-Clause
// What one types: values, lists, ranges, own types, copies of a group.
#include <algorithm>
#include <array>
#include <complex>
#include <list>
#include <vector>

#include "c10d/rows.h"
#include "tests/contract/ranks.h"

struct Vec3 {
  float x, y, z;
};
template <>
struct c10d::element_traits<Vec3> {
  static constexpr c10d::DType dtype = c10d::DType::f32;
  static constexpr std::size_t count = 3;
};

namespace c10d::contract { namespace {

class Calls : public OnBackend {};

TEST_P(Calls, AValueIsReducedToItsResult) {
  run(3, [](ProcessGroup& group) {
    EXPECT_EQ(group.all_reduce(group.rank() + 1), 6);
    EXPECT_EQ(group.all_reduce(1.5 * group.rank(), ReduceOp::max), 3.0);
    EXPECT_EQ(group.all_reduce(group.rank() != 1, ReduceOp::min), false);
  });
}

TEST_P(Calls, OptionsNeedNeitherOpNorTag) {
  run(2, [](ProcessGroup& group) {
    const CallOptions options{.timeout = kTimeout};
    std::vector<float> data(4, 1);
    group.all_reduce(data, options);
    EXPECT_EQ(data[3], 2);
    group.async().all_reduce(data, options).wait();
    EXPECT_EQ(data[3], 4);
    if (group.rank() == 0)
      group.send(data, 1, options);
    else
      EXPECT_EQ(group.recv(data, 0, options).count, 4u);
  });
}

TEST_P(Calls, CountsAreAListOrAnyRangeOfIntegers) {
  run(2, [](ProcessGroup& group) {
    const std::vector<std::int32_t> mine(group.rank() == 0 ? 1 : 2, group.rank() + 1);
    const std::vector<std::int32_t> expected{1, 2, 2};
    const auto expect_gathered = [&](const auto& counts) {
      std::vector<std::int32_t> all(3);
      group.all_gather_v(all, mine, counts);
      EXPECT_EQ(all, expected);
    };
    expect_gathered(std::vector{1, 2});
    expect_gathered(std::array{std::size_t{1}, std::size_t{2}});
    expect_gathered(std::list<long>{1, 2});
    std::vector<std::int32_t> all(3);
    group.all_gather_v(all, mine, {1, 2});
    EXPECT_EQ(all, expected);
    EXPECT_THROW(group.all_gather_v(all, mine, std::vector{4, -1}), InvalidArgument);
    expect_usable(group);
  });
}

TEST_P(Calls, NewGroupTakesAnyRangeOfRanks) {
  run(3, [](ProcessGroup& group) {
    if (group.rank() == 1) return;
    EXPECT_EQ(group.new_group({2, 0}).rank(), group.rank() == 0 ? 1 : 0);
    EXPECT_EQ(group.new_group(std::vector<std::int64_t>{0, 2}).size(), 2);
    EXPECT_EQ(group.new_group(std::array{0, 2}).size(), 2);
  });
}

TEST_P(Calls, SplitByHostGroupsTheRanksOfThisHost) {
  run(3, [](ProcessGroup& group) {
    const ProcessGroup host = group.split_by_host();
    EXPECT_EQ(host.size(), 3);
    EXPECT_EQ(host.rank(), group.rank());
    EXPECT_EQ(host.all_reduce(1), 3);
  });
}

TEST_P(Calls, CopiesAreTheSameGroupAndTheLastOneEndsIt) {
  run(2, [](ProcessGroup& group) {
    ProcessGroup copy = group;
    EXPECT_EQ(copy.id(), group.id());
    group = ProcessGroup();
    expect_usable(copy);
    EXPECT_EQ(copy.sequence(), 1u);
    group = copy;
    copy = ProcessGroup();
    expect_usable(group);
  });
}

TEST_P(Calls, ComplexNumbersAreSummedPartByPart) {
  run(2, [](ProcessGroup& group) {
    using Complex = std::complex<double>;
    const double rank = group.rank();
    std::vector<Complex> data{{rank, 1}, {-rank, rank}};
    group.all_reduce(data);
    EXPECT_EQ(data, (std::vector<Complex>{{1, 2}, {-1, 1}}));
    group.all_reduce(data, ReduceOp::avg);
    EXPECT_EQ(data, (std::vector<Complex>{{1, 2}, {-1, 1}}));
    EXPECT_EQ(code_of([&] { group.all_reduce(data, ReduceOp::max); }), Code::unsupported);
    std::vector<std::complex<float>> single{{1, static_cast<float>(rank)}};
    group.broadcast(single, 1);
    EXPECT_EQ(single[0], std::complex<float>(1, 1));
  });
}

enum class Color : std::uint8_t { red = 1, green = 2 };

TEST_P(Calls, EnumsBytesAndOwnTypesAreElements) {
  run(2, [](ProcessGroup& group) {
    std::array<Color, 2> colors{};
    const std::array own{group.rank() == 0 ? Color::red : Color::green};
    group.all_gather(colors, own);
    EXPECT_EQ(colors, (std::array{Color::red, Color::green}));
    std::vector<std::byte> bytes(3, std::byte{static_cast<unsigned char>(group.rank())});
    group.broadcast(bytes, 1);
    EXPECT_EQ(bytes[2], std::byte{1});
    std::string text = group.rank() == 0 ? "hello" : "     ";
    group.broadcast(text, 0);
    EXPECT_EQ(text, "hello");
    std::vector<Vec3> points(2, Vec3{1, 2, static_cast<float>(group.rank())});
    group.all_reduce(points);
    EXPECT_EQ(points[1].x, 2);
    EXPECT_EQ(points[1].z, 1);
  });
}

// 4 rows of 3 elements at a stride of 5, in a matrix that is otherwise -1.
struct Matrix {
  std::vector<std::int32_t> data = std::vector<std::int32_t>(20, -1);

  Rows rows() { return View(data).slice(1, 19).rows(4, 3, 5); }
  void fill(std::int32_t first) {
    for (std::size_t i = 0; i < 12; ++i)
      data[1 + i / 3 * 5 + i % 3] = first + static_cast<std::int32_t>(i);
  }
  bool holds(std::int32_t first) const {
    Matrix expected;
    expected.fill(first);
    return data == expected.data;
  }
};

TEST_P(Calls, StridedRowsAreTheBufferAndTheGapsKeepTheirElements) {
  run(2, [](ProcessGroup& group) {
    const int rank = group.rank();
    Matrix matrix;
    if (rank == 1) matrix.fill(100);
    broadcast(group, matrix.rows(), 1);
    EXPECT_TRUE(matrix.holds(100));
    matrix.fill(12 * rank);
    std::vector<std::int32_t> all(24);
    all_gather(group, all, matrix.rows());
    for (int i = 0; i < 24; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)], i);
    std::vector<std::int32_t> wide(8 * 4, -1);  // 8 rows of 3, with a gap of 1
    all_gather(group, View(wide).rows(8, 3, 4), matrix.rows());
    for (std::size_t i = 0; i < wide.size(); ++i)
      EXPECT_EQ(wide[i], i % 4 == 3 ? -1 : static_cast<std::int32_t>(i / 4 * 3 + i % 4));
    if (rank == 0) {
      send(group, matrix.rows(), 1);
      const std::vector shorter{7, 8, 9, 10};
      group.send(shorter, 1, 3);
    } else {
      std::vector<std::int32_t> flat(12);
      EXPECT_EQ(group.recv(flat, 0).count, 12u);
      EXPECT_EQ(flat[11], 11);
      Matrix shorter;
      EXPECT_EQ(recv(group, shorter.rows(), 0, 3).count, 4u);
      EXPECT_EQ(shorter.data[3], 9);
      EXPECT_EQ(shorter.data[6], 10);
      EXPECT_EQ(shorter.data[7], -1);
    }
  });
}

TEST(Rows, MustNotOverlapAndMustFitIntoTheView) {
  std::vector<float> data(10);
  const View view(data);
  EXPECT_NO_THROW(view.rows(3, 2, 4));
  EXPECT_NO_THROW(view.rows(0, 5, 1));
  EXPECT_NO_THROW(view.rows(1, 10, 0));
  EXPECT_THROW(view.rows(3, 3, 4), InvalidArgument);
  EXPECT_THROW(view.rows(2, 3, 2), InvalidArgument);
  EXPECT_THROW(view.rows(2, 3, std::size_t{1} << 63), InvalidArgument);
  EXPECT_THROW(view.rows(std::size_t{1} << 62, 1, 4), InvalidArgument);
  EXPECT_THROW(ConstView(data).rows(1, 11, 11), InvalidArgument);
}

C10D_ON_EACH_BACKEND(Calls);

}}  // namespace c10d::contract
