// SPDX-License-Identifier: BSD-3-Clause
// process_group.h: "partial overlap, a wrong count, dtype, root or peer is InvalidArgument, thrown
// before anything is sent". Each row is a call that only rank 0 makes; the group must be as before.
#include <array>
#include <limits>

#include "tests/contract/ranks.h"

namespace c10d::contract { namespace {

constexpr std::size_t kHuge = std::numeric_limits<std::size_t>::max() / 2;

// Memory of the calls below. Two ranks: `wide` holds two shards of four elements.
struct Memory {
  std::array<float, 4> small{}, other{};
  std::array<float, 8> wide{}, wide_too{};
  std::array<double, 4> doubles{};
  std::array<std::size_t, 2> halves{4, 4}, uneven{5, 4}, overflow{kHuge, kHuge + 4};
  std::array<std::size_t, 3> three{2, 3, 3};
  View null{nullptr, 4, DType::f32};
  View unknown{small.data(), 4, static_cast<DType>(kDTypeCount)};
  View endless{small.data(), kHuge, DType::f64};
};

struct Row {
  const char* name;
  const char* says;  // part of the message
  std::function<Op(Memory&)> op;
};

View part(std::array<float, 8>& memory, std::size_t first, std::size_t n) {
  return View(memory).slice(first, n);
}

const Row kRows[] = {
    {"AllReduceCounts", "input has 4",
     [](Memory& m) {
       return AllReduce{m.wide, m.small, {}};
     }},
    {"AllReduceDtypes", "f64",
     [](Memory& m) {
       return AllReduce{m.doubles, m.small, {}};
     }},
    {"AllReduceOverlap", "overlap",
     [](Memory& m) {
       return AllReduce{part(m.wide, 1, 4), part(m.wide, 0, 4), {}};
     }},
    {"AllReduceNull", "null",
     [](Memory& m) {
       return AllReduce{m.null, m.null, {}};
     }},
    {"AllReduceEndless", "memory",
     [](Memory& m) {
       return AllReduce{m.endless, m.endless, {}};
     }},
    {"AllReduceDevices", "cuda",
     [](Memory& m) {
       View output(m.small);
       output.device = {DeviceType::cuda, 0};
       return AllReduce{output, m.other, {}};
     }},
    {"BroadcastRootTooLarge", "root 2",
     [](Memory& m) {
       return Broadcast{m.small, m.small, 2};
     }},
    {"BroadcastRootNegative", "root -1",
     [](Memory& m) {
       return Broadcast{m.small, m.small, -1};
     }},
    {"BroadcastCounts", "8",
     [](Memory& m) {
       return Broadcast{m.wide, m.small, 0};
     }},
    {"BroadcastOverlap", "overlap",
     [](Memory& m) {
       return Broadcast{part(m.wide, 1, 4), part(m.wide, 0, 4), 0};
     }},
    {"AllGatherCounts", "2 ranks",
     [](Memory& m) {
       return AllGather{m.small, m.other};
     }},
    {"AllGatherWrongShard", "overlap",
     [](Memory& m) {
       return AllGather{m.wide, part(m.wide, 4, 4)};
     }},
    {"AllGatherVSpan", "3 entries",
     [](Memory& m) {
       return AllGatherV{m.wide, m.small, m.three};
     }},
    {"AllGatherVTotal", "9",
     [](Memory& m) {
       return AllGatherV{m.wide, m.small, m.uneven};
     }},
    {"AllGatherVShard", "counts[0]",
     [](Memory& m) {
       return AllGatherV{m.wide, part(m.wide_too, 0, 3), m.halves};
     }},
    {"AllGatherVOverflow", "memory",
     [](Memory& m) {
       return AllGatherV{m.wide, m.small, m.overflow};
     }},
    {"ReduceScatterCounts", "2 ranks",
     [](Memory& m) {
       return ReduceScatter{m.small, m.other, {}};
     }},
    {"ReduceScatterWrongShard", "overlap",
     [](Memory& m) {
       return ReduceScatter{part(m.wide, 2, 4), m.wide, {}};
     }},
    {"ReduceScatterVTotal", "9",
     [](Memory& m) {
       return ReduceScatterV{m.small, m.wide, m.uneven, {}};
     }},
    {"ReduceRoot", "root 7",
     [](Memory& m) {
       return Reduce{m.small, m.other, {}, 7};
     }},
    {"ReduceDtypes", "f64",
     [](Memory& m) {
       return Reduce{m.doubles, m.small, {}, 0};
     }},
    {"ScanCounts", "input has 4",
     [](Memory& m) {
       return Scan{m.wide, m.small, {}};
     }},
    {"ScanDtypes", "f64",
     [](Memory& m) {
       return Scan{m.doubles, m.small, {}};
     }},
    {"ScanOverlap", "overlap",
     [](Memory& m) {
       return Scan{part(m.wide, 1, 4), part(m.wide, 0, 4), {}};
     }},
    {"ExscanCounts", "input has 4",
     [](Memory& m) {
       return Exscan{m.wide, m.small, {}};
     }},
    {"ExscanDtypes", "f64",
     [](Memory& m) {
       return Exscan{m.doubles, m.small, {}};
     }},
    {"ExscanOverlap", "overlap",
     [](Memory& m) {
       return Exscan{part(m.wide, 1, 4), part(m.wide, 0, 4), {}};
     }},
    {"ExscanNoOutput", "output has 0",
     [](Memory& m) {
       return Exscan{View(m.other).slice(0, 0), m.small, {}};
     }},
    {"GatherRoot", "root 2",
     [](Memory& m) {
       return Gather{m.wide, m.small, 2};
     }},
    {"GatherCounts", "2 ranks",
     [](Memory& m) {
       return Gather{m.small, m.other, 0};
     }},
    {"GatherVSpan", "3 entries",
     [](Memory& m) {
       return GatherV{m.wide, m.small, m.three, 0};
     }},
    {"GatherVSpanNotRoot", "3 entries",
     [](Memory& m) {
       return GatherV{{}, m.small, m.three, 1};
     }},
    {"ScatterCounts", "2 ranks",
     [](Memory& m) {
       return Scatter{m.small, m.other, 0};
     }},
    {"ScatterVShard", "counts[0]",
     [](Memory& m) {
       return ScatterV{part(m.wide_too, 0, 3), m.wide, m.halves, 0};
     }},
    {"AllToAllCount", "multiple",
     [](Memory& m) {
       return AllToAll{part(m.wide, 0, 3), part(m.wide_too, 0, 3)};
     }},
    {"AllToAllInPlace", "in place",
     [](Memory& m) {
       return AllToAll{m.wide, m.wide};
     }},
    {"AllToAllVOverflow", "memory",
     [](Memory& m) {
       return AllToAllV{m.wide, m.wide_too, m.overflow, m.halves};
     }},
    {"AllToAllVSelf", "itself",
     [](Memory& m) {
       static constexpr std::array<std::size_t, 2> skewed{3, 5};
       return AllToAllV{m.wide, m.wide_too, m.halves, skewed};
     }},
    {"SendPeerTooLarge", "peer 2",
     [](Memory& m) {
       return Send{m.small, 2, 0};
     }},
    {"SendAnySource", "peer -1",
     [](Memory& m) {
       return Send{m.small, kAnySource, 0};
     }},
    {"RecvPeer", "peer -2",
     [](Memory& m) {
       return Recv{m.small, -2, 0};
     }},
    {"RecvNull", "null",
     [](Memory& m) {
       return Recv{m.null, 1, 0};
     }},
    {"ReduceOpUnknown", "reduce op 9",
     [](Memory& m) {
       return AllReduce{m.small, m.other, ReduceOp(static_cast<ReduceOp::Kind>(kReduceOpCount))};
     }},
    {"DtypeUnknown", "does not exist; there are 0 to",
     [](Memory& m) {
       return Broadcast{m.unknown, m.unknown, 0};
     }},
    {"AllGatherVOverlap", "overlap",
     [](Memory& m) {
       return AllGatherV{m.wide, part(m.wide, 4, 4), m.halves};
     }},
    {"ReduceScatterVShard", "counts[0]",
     [](Memory& m) {
       return ReduceScatterV{part(m.wide_too, 0, 3), m.wide, m.halves, {}};
     }},
    {"ReduceScatterVOverlap", "overlap",
     [](Memory& m) {
       return ReduceScatterV{part(m.wide, 2, 4), m.wide, m.halves, {}};
     }},
    {"ReduceCounts", "input has 4",
     [](Memory& m) {
       return Reduce{m.wide, m.small, {}, 0};
     }},
    {"ReduceOverlap", "overlap",
     [](Memory& m) {
       return Reduce{part(m.wide, 1, 4), part(m.wide, 0, 4), {}, 0};
     }},
    {"GatherOverlap", "overlap",
     [](Memory& m) {
       return Gather{m.wide, part(m.wide, 4, 4), 0};
     }},
    {"GatherVTotal", "output has 7",
     [](Memory& m) {
       return GatherV{part(m.wide, 0, 7), m.small, m.halves, 0};
     }},
    {"GatherVOverlap", "overlap",
     [](Memory& m) {
       return GatherV{m.wide, part(m.wide, 4, 4), m.halves, 0};
     }},
    {"ScatterDtypes", "f64",
     [](Memory& m) {
       return Scatter{m.doubles, m.wide, 0};
     }},
    {"ScatterOverlap", "overlap",
     [](Memory& m) {
       return Scatter{part(m.wide, 2, 4), m.wide, 0};
     }},
    {"ScatterVTotal", "input has 7",
     [](Memory& m) {
       return ScatterV{m.small, part(m.wide, 0, 7), m.halves, 0};
     }},
    {"ScatterVOverlap", "overlap",
     [](Memory& m) {
       return ScatterV{part(m.wide, 2, 4), m.wide, m.halves, 0};
     }},
    {"AllToAllVSpan", "3 entries",
     [](Memory& m) {
       return AllToAllV{m.wide, m.wide_too, m.three, m.halves};
     }},
    {"AllToAllVTotal", "add up to 9",
     [](Memory& m) {
       return AllToAllV{m.wide, m.wide_too, m.halves, m.uneven};
     }},
    {"AllToAllVInPlace", "in place",
     [](Memory& m) {
       return AllToAllV{m.wide, m.wide, m.halves, m.halves};
     }},
};

class Arguments : public OnBackend {};

TEST_P(Arguments, AWrongCallIsThrownHereAndTheGroupGoesOn) {
  run(2, [](ProcessGroup& group) {
    Memory memory;
    if (group.rank() == 0) {
      for (const Row& row : kRows) {
        for (const bool async : {false, true}) {
          SCOPED_TRACE(row.name);
          try {
            async ? group.async().submit(row.op(memory)).wait()
                  : static_cast<void>(group.submit(row.op(memory)));
            ADD_FAILURE() << "was accepted";
          } catch (const InvalidArgument& error) {
            EXPECT_NE(std::string(error.what()).find(row.says), std::string::npos) << error.what();
            EXPECT_NE(std::string(error.what()).find(to_string(kind_of(row.op(memory)))),
                      std::string::npos)
                << error.what();
          }
        }
      }
      EXPECT_EQ(group.sequence(), 0u) << "a rejected call took a sequence number";
    }
    expect_usable(group);
    EXPECT_EQ(group.sequence(), 1u);
    EXPECT_EQ(group.failure(), nullptr);
  });
}

TEST_P(Arguments, TimeoutsMustBePositive) {
  run(2, [](ProcessGroup& group) {
    std::array<float, 1> data{};
    for (const Duration bad : {Duration(0), Duration(-1)}) {
      EXPECT_THROW(group.all_reduce(data, ReduceOp::sum, {.timeout = bad}), InvalidArgument);
      EXPECT_THROW(group.set_timeout(bad), InvalidArgument);
      EXPECT_THROW(group.monitored_barrier(bad), InvalidArgument);
    }
    EXPECT_EQ(group.timeout(), Duration(kTimeout));
    expect_usable(group);
  });
}

TEST_P(Arguments, AStreamThatWouldOrderNothingIsRefused) {
  run(2, [](ProcessGroup& group) {
    std::array<float, 1> data{};
    int memory = 0;
    const auto stream = reinterpret_cast<CudaStream>(&memory);
    EXPECT_THROW(group.all_reduce(data, ReduceOp::sum, {.stream = stream}), InvalidArgument);
    if (group.device().type == DeviceType::cpu) {  // elsewhere it is an op on the stream
      EXPECT_THROW(group.async().barrier({.stream = stream}).wait(), InvalidArgument);
    }
    expect_usable(group);
  });
}

TEST_P(Arguments, AnInvalidArgumentIsNoDistError) {
  run(1, [](ProcessGroup& group) {
    std::array<float, 1> data{};
    try {
      group.broadcast(data, 5);
      ADD_FAILURE() << "was accepted";
    } catch (const DistError& error) {
      ADD_FAILURE() << "a retry loop would swallow this: " << error.what();
    } catch (const std::invalid_argument&) {
    }
  });
}

TEST_P(Arguments, InPlaceAndEmptyCallsAreRight) {
  run(2, [](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    std::array<std::int32_t, 2> wide{};
    wide[rank] = group.rank() + 1;
    group.all_gather(wide, ConstView(wide).slice(rank, 1));
    EXPECT_EQ(wide, (std::array{1, 2}));
    group.reduce_scatter(View(wide).slice(rank, 1), wide);
    EXPECT_EQ(wide[rank], group.rank() == 0 ? 2 : 4);
    group.all_reduce(View(nullptr, 0, DType::f32));
    group.all_to_all(View(nullptr, 0, DType::f32), ConstView(nullptr, 0, DType::f32));
    expect_usable(group);
  });
}

C10D_ON_EACH_BACKEND(Arguments);

}}  // namespace c10d::contract
