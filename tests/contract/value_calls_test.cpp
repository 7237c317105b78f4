// SPDX-License-Identifier: BSD-3-Clause
// values.h and custom_reduce.h: values in, values out, and reductions with a function of the
// program.
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "c10d/custom_reduce.h"
#include "c10d/values.h"
#include "tests/contract/ranks.h"

namespace shapes {

struct Point {
  double x;
  int color;
  friend bool operator==(const Point&, const Point&) = default;
};

struct Shape {
  std::string name;
  int corners = 0;
  friend bool operator==(const Shape&, const Shape&) = default;
};
std::string to_bytes(const Shape& shape) { return std::to_string(shape.corners) + shape.name; }
Shape from_bytes(std::string_view bytes, std::type_identity<Shape>) {
  return {std::string(bytes.substr(1)), bytes[0] - '0'};
}

}  // namespace shapes

namespace c10d::contract { namespace {

using shapes::Point;
using shapes::Shape;

class ValueCalls : public OnBackend {};

TEST_P(ValueCalls, BroadcastGivesTheRootsValue) {
  run(3, [](ProcessGroup& group) {
    const int rank = group.rank();
    EXPECT_EQ(broadcast(group, rank, 2), 2);
    EXPECT_EQ(broadcast(group, Point{1.5 * rank, rank}, 1), (Point{1.5, 1}));
    EXPECT_EQ(broadcast(group, rank == 0 ? std::string("resnet") : std::string(), 0), "resnet");
    EXPECT_EQ(broadcast(group, std::vector<float>(rank == 1 ? 1000 : 7, 2.5f), 1),
              std::vector<float>(1000, 2.5f));
    EXPECT_EQ(broadcast(group, std::vector<Point>(static_cast<std::size_t>(rank), {1, 2}), 2),
              std::vector<Point>(2, {1, 2}));
    EXPECT_EQ(broadcast(group, std::string("x"), 0, {.max_bytes = 1}), "x");
    EXPECT_EQ(broadcast(group, Shape{"square", rank + 2}, 2), (Shape{"square", 4}));
    EXPECT_EQ(broadcast(group, std::vector<int>(), 0), std::vector<int>());
  });
}

TEST_P(ValueCalls, GatherGivesTheValuesByRank) {
  run(3, [](ProcessGroup& group) {
    const int rank = group.rank();
    const auto of = [](int r) { return std::vector<int>(static_cast<std::size_t>(r), r); };
    const std::vector<std::vector<int>> lists{of(0), of(1), of(2)};
    const std::vector<std::string> texts{"", "b", "bb"};
    const std::vector<Shape> shapes{{"", 0}, {"b", 1}, {"bb", 2}};
    const std::string text(static_cast<std::size_t>(rank), 'b');
    const Shape shape{text, rank};
    EXPECT_EQ(all_gather(group, rank), (std::vector{0, 1, 2}));
    EXPECT_EQ(all_gather(group, of(rank)), lists);
    EXPECT_EQ(all_gather(group, text), texts);
    EXPECT_EQ(all_gather(group, shape), shapes);
    const std::vector<Point> points(static_cast<std::size_t>(rank), {0.5, rank});
    EXPECT_EQ(all_gather(group, points)[2], std::vector<Point>(2, {0.5, 2}));
    for (const int root : {0, 2}) {
      const bool gets = rank == root;
      EXPECT_EQ(gather(group, rank, root), gets ? (std::vector{0, 1, 2}) : std::vector<int>());
      EXPECT_EQ(gather(group, of(rank), root), gets ? lists : decltype(lists)());
      EXPECT_EQ(gather(group, text, root), gets ? texts : decltype(texts)());
      EXPECT_EQ(gather(group, shape, root), gets ? shapes : decltype(shapes)());
    }
  });
}

// On every rank alike, before memory is allocated: the group stays intact.
TEST_P(ValueCalls, ALongValueIsRefusedOnEveryRank) {
  run(2, [](ProcessGroup& group) {
    const std::vector<std::int32_t> mine(group.rank() == 0 ? 10 : 1000);
    for (const std::size_t limit : {std::size_t{0}, std::size_t{4039}}) {
      EXPECT_THROW(all_gather(group, mine, {.max_bytes = limit}), InvalidArgument);
      EXPECT_THROW(gather(group, mine, 0, {.max_bytes = limit}), InvalidArgument);
      EXPECT_THROW(broadcast(group, mine, 1, {.max_bytes = limit / 2}), InvalidArgument);
    }
    EXPECT_EQ(all_gather(group, mine, {.max_bytes = 4040})[1].size(), 1000u);
    expect_usable(group);
  });
}

TEST_P(ValueCalls, DifferentTypesAreAMismatch) {
  run(2, [](ProcessGroup& group) {
    EXPECT_EQ(code_of([&] {
                group.rank() == 0 ? static_cast<void>(broadcast(group, 1.0f, 0))
                                  : static_cast<void>(broadcast(group, 1, 0));
              }),
              Code::mismatch);
  });
}

struct Moments {
  double count, mean;
};
Moments merged(const Moments& a, const Moments& b) {
  const double count = a.count + b.count;
  return {count, (a.count * a.mean + b.count * b.mean) / count};
}

TEST_P(ValueCalls, AnOwnReductionRunsAlongTheTreeOfRanks) {
  run(3, [](ProcessGroup& group) {
    const Moments all = all_reduce(group, Moments{1.0 + group.rank(), group.rank() * 6.0}, merged);
    EXPECT_EQ(all.count, 6);
    EXPECT_EQ(all.mean, 8);  // (1 * 0 + 2 * 6 + 3 * 12) / 6
    // Not commutative: the order of ranks. Several slices.
    struct Text {
      std::array<char, 4> letters;
    };
    std::vector<Text> texts((std::size_t{1} << 20) / 2 + 3,
                            Text{{static_cast<char>('a' + group.rank())}});
    all_reduce(group, std::span(texts), [](Text a, const Text& b) {
      const auto end = std::find(a.letters.begin(), a.letters.end(), '\0');
      std::copy(b.letters.begin(), std::find(b.letters.begin(), b.letters.end(), '\0'), end);
      return a;
    });
    for (const Text& text : {texts.front(), texts[texts.size() / 2], texts.back()})
      EXPECT_EQ(std::string(text.letters.data()), "abc");
    all_reduce(group, std::span<int>(), [](int a, int) { return a; });
  });
}

TEST_P(ValueCalls, MinLocAndMaxLocSayWhere) {
  run(3, [](ProcessGroup& group) {
    const Located<double> mine{std::abs(group.rank() - 1.0), group.rank()};
    EXPECT_EQ(all_reduce(group, mine, MinLoc()), (Located<double>{0, 1}));
    EXPECT_EQ(all_reduce(group, mine, MaxLoc()), (Located<double>{1, 0})) << "the lowest of equals";
  });
}

C10D_ON_EACH_BACKEND(ValueCalls);

}}  // namespace c10d::contract
