// SPDX-License-Identifier: BSD-3-Clause
// Every collective and message: by threads and processes, in each version.
#include <cmath>
#include <tuple>

#include "tests/fake_gpu/nccl_tests/oracle.h"
#include "tests/fake_gpu/nccl_tests/world.h"

namespace {

constexpr auto I = nccl::kInt32;

// Integers whose results have a closed form; more than one piece if `k` is large.
class Exchange {
 public:
  Exchange(Me& me_, int k_)
      : me(me_), a(me.api), k(k_), n(me.size), last(n - 1), count(static_cast<std::size_t>(k)) {
    std::vector<int> mine(count * static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = me.rank * 1'000'000 + int(i);
    from = me.put(mine);
    to = me.put(std::vector<int>(mine.size(), -1));
  }
  void collectives();
  void messages();

 private:
  void check(const char* what, int code, const std::function<int(int)>& expected, int right) {
    EXPECT_TRUE(code == nccl::kSuccess || code == nccl::kInProgress) << what << " " << code;
    EXPECT_EQ(me.settle(), 0) << what;
    EXPECT_EQ(me.stream_end(), 0) << what;
    const auto got = me.get<int>(to, count * static_cast<std::size_t>(n));
    int wrong = 0;
    for (int i = 0; i < right; ++i) wrong += got[static_cast<std::size_t>(i)] != expected(i);
    EXPECT_EQ(wrong, 0) << what;
    EXPECT_TRUE(right == k * n || got[static_cast<std::size_t>(right)] == -1) << what;
    EXPECT_EQ(me.gpu.memset_d8_async(to, 255, got.size() * 4, me.stream), 0);
  }

  Me& me;
  nccl::Api& a;
  const int k, n, last;
  const std::size_t count;
  cu::Pointer from, to;
};

void Exchange::collectives() {
  const int ranks = n * last / 2 * 1'000'000;
  const bool is_root = me.rank == last;
  const auto gathered = [&](int i) { return i / k * 1'000'000 + i % k; };
  check(
      "all_reduce", a.all_reduce(in(from), out(to), count, I, nccl::kSum, me.comm, me.stream),
      [&](int i) { return ranks + n * i; }, k);
  check(
      "reduce", a.reduce(in(from), out(to), count, I, nccl::kMax, last, me.comm, me.stream),
      [&](int i) { return last * 1'000'000 + i; }, is_root ? k : 0);
  check(
      "broadcast", a.broadcast(in(from), out(to), count, I, last, me.comm, me.stream),
      [&](int i) { return last * 1'000'000 + i; }, k);
  check(
      "reduce_scatter",
      a.reduce_scatter(in(from), out(to), count, I, nccl::kSum, me.comm, me.stream),
      [&](int i) { return ranks + n * (me.rank * k + i); }, k);
  check("all_gather", a.all_gather(in(from), out(to), count, I, me.comm, me.stream), gathered,
        k * n);
  if (a.version >= 22803) {
    check(
        "all_to_all", a.all_to_all(in(from), out(to), count, I, me.comm, me.stream),
        [&](int i) { return i / k * 1'000'000 + me.rank * k + i % k; }, k * n);
    check("gather", a.gather(in(from), out(to), count, I, last, me.comm, me.stream), gathered,
          is_root ? k * n : 0);
    check(
        "scatter", a.scatter(in(from), out(to), count, I, last, me.comm, me.stream),
        [&](int i) { return last * 1'000'000 + me.rank * k + i; }, k);
  }
}

void Exchange::messages() {
  EXPECT_EQ(a.group_start(), 0);
  EXPECT_EQ(a.send(in(from), count, I, (me.rank + 1) % n, me.comm, me.stream), 0);
  EXPECT_EQ(a.recv(out(to), count, I, (me.rank + last) % n, me.comm, me.stream), 0);
  check(
      "ring", a.group_end(), [&](int i) { return (me.rank + last) % n * 1'000'000 + i; }, k);
  EXPECT_EQ(a.group_start(), 0);
  for (int peer = 0; peer < n; ++peer) {
    const auto at = static_cast<std::size_t>(peer) * count * 4;
    EXPECT_EQ(a.send(in(from + at), count, I, peer, me.comm, me.stream), 0);
    EXPECT_EQ(a.recv(out(to + at), count, I, peer, me.comm, me.stream), 0);
  }
  check(
      "all to all by messages", a.group_end(),
      [&](int i) { return i / k * 1'000'000 + me.rank * k + i % k; }, k * n);
  if (me.rank == 0) {
    check("send", n > 1 ? a.send(in(from), count, I, 1, me.comm, me.stream) : 0, {}, 0);
  }
  if (me.rank == 1) {
    check(
        "recv", a.recv(out(to), count, I, 0, me.comm, me.stream), [](int i) { return i; }, k);
  }
  // Several ops in one group, one in place.
  EXPECT_EQ(a.group_start(), 0);
  EXPECT_EQ(a.all_reduce(in(from), out(from), count, I, nccl::kMin, me.comm, me.stream), 0);
  EXPECT_EQ(a.broadcast(in(from), out(to), count, I, 0, me.comm, me.stream), 0);
  check(
      "group", a.group_end(), [](int i) { return i; }, k);
  EXPECT_EQ(me.get<int>(from, 1)[0], 0);
}

void move_and_reduce(Me& me, int k) {
  Exchange exchange(me, k);
  exchange.collectives();
  exchange.messages();
}

// Everything that the version reduces, against the oracle.
void reduce_all(Me& me) {
  std::vector<nccl::DataType> dtypes;
  for (int i = 0; i < (me.api.version >= 22400 ? 12 : 10); ++i) dtypes.push_back(nccl::DataType(i));
  const std::vector<double> inputs = {1,     2,   3,    -1,  0.5,   -0.25, 256,
                                      1.125, 100, -7,   77,  0.125, 0.375, 12.75,
                                      -0.0,  0.0, 2048, 448, 5,     60000};
  const int n = me.size;
  for (const nccl::DataType dtype : dtypes) {
    const bool is_float = dtype >= nccl::kFloat16;
    std::vector<Words> ranks(static_cast<std::size_t>(n));
    Words factors;
    for (int rank = 0; rank < n; ++rank) {
      for (std::size_t i = 0; i < 3 * inputs.size(); ++i) {
        double value = inputs[(i + static_cast<std::size_t>(rank) * 7) % inputs.size()];
        if (is_float && i % 11 == 3 && rank % 2 == 0) value = std::nan("");
        ranks[static_cast<std::size_t>(rank)].push_back(word_of(dtype, value));
      }
      factors.push_back(word_of(dtype, is_float ? 0.25 * (rank % 4 + 1) : rank + 2));
    }
    nccl::RedOp product{};
    EXPECT_EQ(me.api.red_op_create(&product, &factors[static_cast<std::size_t>(me.rank)], dtype,
                                   nccl::kScalarHostImmediate, me.comm),
              0);
    const cu::Pointer from = me.put(packed(dtype, ranks[static_cast<std::size_t>(me.rank)]));
    const std::size_t count = ranks[0].size(), bytes = count * bytes_of(dtype);
    const cu::Pointer to = me.bytes(bytes);
    for (const nccl::RedOp op :
         {nccl::kSum, nccl::kProd, nccl::kMax, nccl::kMin, nccl::kAvg, kProducts}) {
      const bool is_refused =
          n == 1 && dtype >= nccl::kFloat8e4m3 && (op == nccl::kAvg || op == kProducts);
      if (is_refused) continue;
      const int code = me.api.all_reduce(in(from), out(to), count, dtype,
                                         op == kProducts ? product : op, me.comm, me.stream);
      EXPECT_TRUE(code == 0 || code == nccl::kInProgress);
      EXPECT_EQ(me.settle(), 0);
      const Words got = unpacked(dtype, me.get<std::byte>(to, bytes));
      const Words expected =
          n == 1 && op != kProducts ? ranks[0] : reduced(dtype, op, ranks, factors);
      for (std::size_t i = 0; i < count; ++i) {
        // What bits a NaN of f64 has is not known.
        if (dtype == nccl::kFloat64 && std::isnan(std::bit_cast<double>(expected[i])) &&
            std::isnan(std::bit_cast<double>(got[i]))) {
          continue;
        }
        EXPECT_EQ(got[i], expected[i]) << "dtype " << dtype << " op " << op << " element " << i;
      }
    }
    EXPECT_EQ(me.api.red_op_destroy(product, me.comm), 0);
  }
}

class Collectives : public ::testing::TestWithParam<std::tuple<const char*, As, int>> {};

TEST_P(Collectives, MoveAndReduce) {
  World world;
  std::tie(std::ignore, world.as, world.size) = GetParam();
  world.version = std::get<0>(GetParam());
  run_clean(world, [](Me& me) {
    const int blocking = me.size % 2;
    EXPECT_EQ(me.make(blocking), 0);
    move_and_reduce(me, 100);
    if (me.size <= 4) move_and_reduce(me, 40'000);
    reduce_all(me);
    EXPECT_EQ(me.api.comm_destroy(me.comm), 0);
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Collectives,
                         ::testing::Combine(::testing::Values("2.18.3", "2.28.9", "2.32.3"),
                                            ::testing::Values(As::threads, As::processes),
                                            ::testing::Values(1, 2, 3, 4, 8)),
                         [](const auto& about) {
                           std::string name = std::get<0>(about.param);
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name +
                                  (std::get<1>(about.param) == As::threads ? "_threads_"
                                                                           : "_processes_") +
                                  std::to_string(std::get<2>(about.param));
                         });

// Another seed: another order, and a send waits for its recv.
TEST(Seed, ChangesTheOrder) {
  World world;
  world.size = 4;
  std::string sums[2];
  for (const int seed : {1, 2}) {
    world.script = "seed = " + std::to_string(seed);
    const auto ended = run(world, [](Me& me) {
      EXPECT_EQ(me.make(1), 0);
      std::vector<float> values;
      for (int i = 0; i < 64; ++i) values.push_back(0.1F * float(i + 1) + 0.7F * float(me.rank));
      const cu::Pointer p = me.put(values);
      EXPECT_EQ(
          me.api.all_reduce(in(p), out(p), 64, nccl::kFloat32, nccl::kSum, me.comm, me.stream), 0);
      for (const auto word : me.get<std::uint32_t>(p, 64)) {
        if (me.rank == 0) std::fprintf(stderr, "%x ", word);
      }
      EXPECT_EQ(me.api.comm_destroy(me.comm), 0);
    });
    for (const Ended& one : ended) EXPECT_TRUE(one.is_clean()) << one;
    sums[seed - 1] = ended[0].errors;
  }
  EXPECT_NE(sums[0], sums[1]);
}

TEST(Send, MayWaitForItsRecv) {
  World world;
  for (const int seed : {1, 2}) {
    world.script = "seed = " + std::to_string(seed);
    run_clean(world, [&](Me& me) {
      EXPECT_EQ(me.make(1), 0);
      const cu::Pointer p = me.put(std::vector<int>(10, me.rank));
      const auto move = [&] {
        return int(me.rank == 0 ? me.api.send(in(p), 10, I, 1, me.comm, me.stream)
                                : me.api.recv(out(p), 10, I, 0, me.comm, me.stream));
      };
      EXPECT_EQ(move(), 0);
      EXPECT_EQ(me.stream_end(), 0);
      me.meet();
      if (me.rank == 0) {
        EXPECT_EQ(move(), 0);
        EXPECT_EQ(me.stream_end(200), seed == 1 ? 0 : cu::kNotReady);
      }
      me.meet();
      if (me.rank == 1) {
        EXPECT_EQ(move(), 0);
      }
      EXPECT_EQ(me.stream_end(), 0);
      EXPECT_EQ(me.api.comm_destroy(me.comm), 0);
    });
  }
}

}  // namespace
