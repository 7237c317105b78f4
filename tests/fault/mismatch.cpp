// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fault/mismatch.h"

#include <chrono>

namespace c10d::fault {
namespace {

constexpr std::size_t kCount = 5;

OpKind next(OpKind kind) {
  do kind = static_cast<OpKind>((static_cast<int>(kind) + 1) % kOpCount);
  while (is_point_to_point(kind));
  return kind;
}

// A call and the memory that it uses.
class Made {
 public:
  Made(OpKind kind, int rank, int root, DType dtype, ReduceOp op, std::size_t count)
      : shards_(kMismatchRanks, count) {
    const std::size_t n = kMismatchRanks;
    const View whole(output_.data(), count * n, dtype);
    const View part(output_.data(), count, dtype);
    const ConstView whole_in(input_.data(), count * n, dtype);
    const ConstView part_in(input_.data(), count, dtype);
    // clang-format off
    switch (kind) {
      case OpKind::all_reduce: op_ = AllReduce{part, part_in, op}; break;
      case OpKind::broadcast: op_ = Broadcast{part, part_in, root}; break;
      case OpKind::all_gather: op_ = AllGather{whole, part_in}; break;
      case OpKind::all_gather_v: op_ = AllGatherV{whole, part_in, shards_}; break;
      case OpKind::reduce_scatter: op_ = ReduceScatter{part, whole_in, op}; break;
      case OpKind::reduce_scatter_v: op_ = ReduceScatterV{part, whole_in, shards_, op}; break;
      case OpKind::reduce: op_ = Reduce{part, part_in, op, root}; break;
      case OpKind::scan: op_ = Scan{part, part_in, op}; break;
      case OpKind::exscan: op_ = Exscan{part, part_in, op}; break;
      case OpKind::gather: op_ = Gather{whole, part_in, root}; break;
      case OpKind::gather_v: op_ = GatherV{whole, part_in, shards_, root}; break;
      case OpKind::scatter: op_ = Scatter{part, whole_in, root}; break;
      case OpKind::scatter_v: op_ = ScatterV{part, whole_in, shards_, root}; break;
      case OpKind::all_to_all: op_ = AllToAll{whole, whole_in}; break;
      case OpKind::all_to_all_v: op_ = exchange(rank, dtype, count); break;
      default: op_ = Barrier{}; break;
    }
    // clang-format on
  }
  const Op& op() const { return op_; }

 private:
  // Sends `count` to each other rank, of which each expects kCount: who differs sends what nobody
  // wants.
  Op exchange(int rank, DType dtype, std::size_t count) {
    sent_ = shards_;
    sent_[static_cast<std::size_t>(rank)] = kCount;
    shards_.assign(kMismatchRanks, kCount);
    const std::size_t total = count * (kMismatchRanks - 1) + kCount;
    return AllToAllV{View(output_.data(), kCount * kMismatchRanks, dtype),
                     ConstView(input_.data(), total, dtype), shards_, sent_};
  }

  std::vector<double> input_ = std::vector<double>(64), output_ = std::vector<double>(64);
  std::vector<std::size_t> shards_, sent_;
  Op op_;
};

Made make(const MismatchRow& row, int rank) {
  OpKind kind = row.kind;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  std::size_t count = kCount;
  if (rank == row.odd) {
    if (row.differs == "op") kind = next(kind);
    if (row.differs == "dtype") dtype = DType::i32;
    if (row.differs == "reduce_op") op = ReduceOp::max;
    if (row.differs == "root") root = 1;
    if (row.differs == "count") count = kCount + 1;
  }
  return Made(kind, rank, root, dtype, op, count);
}

// What tells the two calls apart, as a message must show it.
std::pair<std::string, std::string> parts(const MismatchRow& row) {
  if (row.differs == "op")
    return {std::string(to_string(row.kind)) + "(", std::string(to_string(next(row.kind))) + "("};
  if (row.differs == "dtype") return {"f32", "i32"};
  if (row.differs == "reduce_op") return {"(sum", "(max"};
  if (row.differs == "root") return {"root 0", "root 1"};
  if (row.kind == OpKind::all_to_all_v) return {" 5", " 6"};
  if (traits_of(row.kind).has_counts) return {"counts", "counts per rank"};
  return {"x 5", "x 6"};
}

// Why the backend cannot make one of the two calls of the row, or empty.
std::string why_left_out(const ProcessGroup& world, const MismatchRow& row) {
  for (const OpKind kind : {row.kind, row.differs == "op" ? next(row.kind) : row.kind})
    for (const DType dtype : {DType::f32, row.differs == "dtype" ? DType::i32 : DType::f32})
      if (const Support support = world.supports({.op = kind, .dtype = dtype}); !support)
        return support.reason;
  return {};
}

}  // namespace

std::vector<MismatchRow> mismatch_rows() {
  std::vector<MismatchRow> rows;
  int odd = 0;
  for (const OpTraits& op : kOpTraits) {
    if (op.is_point_to_point) continue;
    const OpKind kind = op.kind;
    const auto add = [&](const char* differs) {
      rows.push_back({kind, differs, odd++ % kMismatchRanks});
    };
    add("op");
    if (op.required == OpBuffer::neither) continue;
    add("dtype");
    add("count");
    if (op.has_reduce_op) add("reduce_op");
    if (op.has_root) add("root");
  }
  return rows;
}

std::string call_mismatched(ProcessGroup& world, const MismatchRow& row) {
  using std::chrono::steady_clock;
  if (const std::string why = why_left_out(world, row); !why.empty())
    return std::string(to_string(row.kind)) + " " + row.differs + " unsupported 0 ||" + why;
  ProcessGroup group = world.new_group({0, 1, 2}, std::string(to_string(row.kind)) + row.differs);
  const Made made = make(row, group.rank());
  const auto start = steady_clock::now();
  std::string code = "none", message = "the call went through";
  try {
    group.submit(made.op());
  } catch (const DistError& error) {
    code = to_string(error.code());
    message = error.failure().message;
  } catch (const std::exception& error) {
    message = error.what();
  }
  const auto elapsed = steady_clock::now() - start;
  const auto [part, other] = parts(row);
  return std::string(to_string(row.kind)) + " " + row.differs + " " + code + " " +
         std::to_string(elapsed / std::chrono::milliseconds(1)) + " " + part + "|" + other + "|" +
         message;
}

int call_mismatched_with_more_queued(ProcessGroup& world, int rounds) {
  constexpr std::size_t kQueued = 12;
  int mismatches = 0;
  for (int round = 0; round < rounds; ++round) {
    ProcessGroup group = world.new_group({0, 1, 2}, "queued" + std::to_string(round));
    std::vector<float> output(kCount), input(kCount * kMismatchRanks);
    std::vector<std::vector<float>> data(kQueued, std::vector<float>(kCount));
    bool all = true;
    const auto expect_mismatch = [&](const auto& call) {
      try {
        call();
        all = false;
      } catch (const DistError& error) {
        all = all && error.code() == Code::mismatch;
      }
    };
    if (group.rank() == 0) {
      expect_mismatch([&] { group.reduce_scatter(output, input); });
    } else {
      std::vector<Work> queued;
      for (auto& each : data) queued.push_back(group.async().all_reduce(each));
      for (Work& work : queued) expect_mismatch([&] { work.wait(); });
    }
    mismatches += all ? 1 : 0;
  }
  return mismatches;
}

}  // namespace c10d::fault
