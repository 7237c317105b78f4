// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>

#include "c10d/parallel/reproducible.h"
#include "kernels/reduce.h"
#include "src/parallel/common/gpu_sums.h"
#include "src/parallel/common/host_memory.h"
#include "src/parallel/common/merge_plan.h"
#include "src/parallel/common/throw_invalid.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

// Up to here the latency of a second op costs more than every rank adding everything.
constexpr std::size_t kSmallBytes = std::size_t{16} << 10;
// An all_reduce goes piece by piece: to receive all of it at once took no less time and more
// memory.
constexpr std::size_t kPieceBytes = std::size_t{1} << 21;
// On GPUs an op of so many bytes takes about ten times as long as it takes to start it. That is
// reckoned from the links of one host, and not measured.
constexpr std::size_t kGpuPieceBytes = std::size_t{1} << 25;
// Elements: slices on GPUs are whole vectors of the kernels, but for the last.
constexpr std::size_t kGpuUnit = 64;

// Whether the balanced tree over ranks [first, last) is the tree below `node`.
bool ranks_are_tree(int shards, ShardRange node, int size, int first, int last) {
  if (last - first == 1) return node.count() > 0 && shards_of(shards, first, size) == node;
  const int middle = (first + last) / 2;
  const int mid = (node.first + node.last) / 2;
  return ranks_are_tree(shards, {node.first, mid}, size, first, middle) &&
         ranks_are_tree(shards, {mid, node.last}, size, middle, last);
}

// One or two ranks add to the same bits in any order.
bool op_is_tree(const ProcessGroup& group, int shards) {
  const int size = group.size();
  if (size > 2 && !group.reduces_along_rank_tree()) return false;
  return std::has_single_bit(static_cast<unsigned>(size)) &&
         ranks_are_tree(shards, {0, shards}, size, 0, size);
}

constexpr std::uint64_t kElsewhere = ~std::uint64_t{0};

// The byte at which `value` begins in this rank's part of `memory`, or kElsewhere.
std::uint64_t place_in(const Buffer<std::uint8_t>& memory, const ConstView& value) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  const auto place = reinterpret_cast<std::uintptr_t>(value.data) - begin;
  const bool is_inside = place <= memory.size() && value.bytes() <= memory.size() - place;
  return is_inside ? place : kElsewhere;
}

}  // namespace

struct TreeSum::Exchange {
  Exchange(const ProcessGroup& group_, int shards_, CudaStream stream_)
      : group(group_), shards(shards_), direct(op_is_tree(group_, shards_)), stream(stream_) {
    for (int rank = 0; rank < group.size(); ++rank) {
      const auto theirs = subtrees_of(shards, shards_of(shards, rank, group.size()));
      held.push_back(theirs.size());
      all.insert(all.end(), theirs.begin(), theirs.end());
      if (rank == group.rank()) own = theirs;
    }
  }

  void check(std::string_view who, const View& out, std::span<const ConstView> partials,
             std::size_t count) {
    const DType dtype = out.dtype;
    check_summable(who, dtype);
    if (partials.size() != own.size())
      throw_invalid("{}: {} partial sums for {} subtrees", who, partials.size(), own.size());
    for (const ConstView& partial : partials) {
      check_same_memory(who, out, partial);
      if (partial.count != count || partial.dtype != dtype)
        throw_invalid("{}: a partial sum of {} {} instead of {} {}", who, partial.count,
                      to_string(partial.dtype), count, to_string(dtype));
    }
    if (is_on_gpu(out)) prepare(who, out.device, dtype);
  }

  // For sums in memory of that GPU. Kernels that are loaded behind an op would wait for its peers.
  void prepare(std::string_view who, Device device, DType dtype) {
    const Device gpu_of_group = group.device();
    if (gpu_of_group.type == DeviceType::cpu)
      throw_invalid(
          "{}: it was given {}, and this group has no backend for GPUs: make it with the backend "
          "nccl, or copy it to host memory first (cuda::copy)",
          who, memory_of(device));
    if (device != gpu_of_group)
      throw_invalid(
          "{}: it was given {}, and the GPU of this group is cuda:{}: copy it there first "
          "(cuda::copy)",
          who, memory_of(device), gpu_of_group.index);
    if (!gpu) gpu.emplace(who, device, stream);
    gpu->load(dtype);
  }

  // Whether one op does it. On GPUs only where there is nothing to add: NCCL may add two numbers by
  // other hardware than ours, and the gathers move as many bytes.
  bool is_one_op(const View& out) const { return direct && (!is_on_gpu(out) || group.size() == 1); }
  // Elements of a piece. On GPUs all slices of a whole piece are whole units.
  std::size_t piece_of(const View& out) const {
    if (!is_on_gpu(out)) return kPieceBytes / size_of(out.dtype);
    const std::size_t units = kGpuUnit * static_cast<std::size_t>(group.size());
    return std::max<std::size_t>(kGpuPieceBytes / size_of(out.dtype) / units, 1) * units;
  }
  CallOptions options_for(const View& out) const {
    return {.stream = is_on_gpu(out) ? stream : nullptr};
  }

  void divide(const View& value, double divisor) {
    if (is_on_gpu(value))
      gpu->divide(value, divisor);
    else
      parallel::divide(value, divisor);
  }
  // Of values in memory of received().
  void fold(const View& out, std::span<const View> values, double divisor) {
    if (is_on_gpu(out)) return gpu->fold(out, shards, all, values, divisor);
    parallel::fold(out, shards, all, std::vector<ConstView>(values.begin(), values.end()), divisor);
  }

  // Every rank gets everything, then adds.
  void gather_and_fold(View out, std::span<const ConstView> partials, double divisor) {
    std::vector<std::size_t> counts;
    for (const std::size_t subtrees : held) counts.push_back(subtrees * out.count);
    const View gathered = received(out, out.count);
    std::size_t at = first_value(group.rank());
    const View mine = gathered.slice(at * out.count, own.size() * out.count);
    for (const ConstView& partial : partials)
      put(gathered.slice(at++ * out.count, out.count), partial);
    group.all_gather_v(gathered, mine, counts, options_for(out));
    std::vector<View> values;
    for (std::size_t i = 0; i < all.size(); ++i)
      values.push_back(gathered.slice(i * out.count, out.count));
    fold(out, values, divisor);
  }

  // This rank gets its slice of every partial sum, then adds. One exchange for the first partial
  // sum of each rank, one for the second, ...: to pack them together would cost a copy of all.
  void trade_and_fold(View out, std::span<const ConstView> partials,
                      std::span<const std::size_t> slices, double divisor) {
    const View all_received = received(out, *std::max_element(slices.begin(), slices.end()));
    std::vector<View> values(all.size());
    const std::vector<std::size_t> nothing(held.size());
    std::size_t at = 0;
    for (std::size_t round = 0; at < all.size(); ++round) {
      std::vector<std::size_t> take;
      const std::size_t first = at;
      for (std::size_t rank = 0; rank < held.size(); ++rank) {
        const bool gives = round < held[rank];
        take.push_back(gives ? out.count : 0);
        if (gives)
          values[first_value(static_cast<int>(rank)) + round] =
              all_received.slice(at++ * out.count, out.count);
      }
      const bool gives = round < own.size();
      // A rank that gives nothing names the memory that it would give from: `native` takes its fast
      // path where the memory of all ranks is of one kind.
      const ConstView none = own.empty() ? ConstView(all_received) : partials[0];
      group.all_to_all_v(all_received.slice(first * out.count, (at - first) * out.count),
                         gives ? partials[round] : none.slice(0, 0), take,
                         gives ? slices : std::span<const std::size_t>(nothing), options_for(out));
    }
    fold(out, values, divisor);
  }

  // The whole of an all_reduce, if the partial sums of all ranks lie in `shared`. No rank changes
  // its own before the others have read theirs: the slice that a rank adds is written to other
  // ranks' memory by all_gather_v only, when that rank has called it.
  bool sum_in_place(View out, std::span<const ConstView> partials, double divisor,
                    const Buffer<std::uint8_t>& shared) {
    if (shared.peer_data(0) == nullptr) return false;
    std::vector<std::uint64_t> places(all.size());
    const std::span mine = std::span(places).subspan(first_value(group.rank()), own.size());
    std::transform(partials.begin(), partials.end(), mine.begin(),
                   [&](const ConstView& partial) { return place_in(shared, partial); });
    group.all_gather_v(places, mine, held);
    if (std::find(places.begin(), places.end(), kElsewhere) != places.end()) return false;
    sum_slices(out, [&](View slice, std::size_t first, std::span<const std::size_t>) {
      std::vector<ConstView> values;
      for (std::size_t rank = 0; rank < held.size(); ++rank)
        for (std::size_t i = 0; i < held[rank]; ++i)
          values.push_back(
              ConstView(shared.peer_data(static_cast<int>(rank)) + places[values.size()], out.count,
                        out.dtype)
                  .slice(first, slice.count));
      parallel::fold(slice, shards, all, values, divisor);
    });
    return true;
  }

  // `add(slice, first, slices)` makes the result of out[first ...] in `slice`, this rank's of
  // `slices`.
  template <class Add>
  void sum_slices(View out, const Add& add) {
    const auto size = static_cast<std::size_t>(group.size());
    const std::size_t unit = is_on_gpu(out) ? kGpuUnit : 1;
    const auto bound = [&](std::size_t rank) {
      return rank == size ? out.count : out.count / unit * rank / size * unit;
    };
    std::vector<std::size_t> slices;
    for (std::size_t rank = 0; rank < size; ++rank) slices.push_back(bound(rank + 1) - bound(rank));
    const auto rank = static_cast<std::size_t>(group.rank());
    const View mine = out.slice(bound(rank), slices[rank]);
    add(mine, bound(rank), slices);
    group.all_gather_v(out, mine, slices, options_for(out));
  }

  // Room for one value of out's count per subtree of any rank. `most` is the largest of all ranks'
  // counts, so that all ranks' memory grows in the same call. On the host the group's own memory:
  // `native` copies into it straight from the partial sums where these are registered too.
  View received(const View& out, std::size_t most) {
    const std::size_t bytes = all.size() * most * size_of(out.dtype);
    Buffer<std::uint8_t>& room = is_on_gpu(out) ? gpu_memory : memory;
    if (bytes > room.size())
      room = is_on_gpu(out) ? more_gpu_memory(bytes) : group.allocate<std::uint8_t>(bytes);
    return {room.device_data(), all.size() * out.count, out.dtype, out.device};
  }
  // When the calls before, which use what there was, are done. Not the group's: memory in NCCL's
  // windows may go into no op beside other memory.
  Buffer<std::uint8_t> more_gpu_memory(std::size_t bytes) {
    const int device = group.device().index;
    const cuda::Event past(device);
    past.record(stream);
    past.synchronize();
    gpu_memory = {};
    return cuda::device_allocate<std::uint8_t>(bytes, device);
  }
  void put(const View& to, const ConstView& from) const {
    if (is_on_gpu(to))
      cuda::copy(to, from, stream);
    else if (from.count != 0)
      std::memcpy(to.data, from.data, from.bytes());
  }

  // Where the subtrees of `rank` begin in `all`.
  std::size_t first_value(int rank) const {
    return std::accumulate(held.begin(), held.begin() + rank, std::size_t{0});
  }

  const ProcessGroup group;
  const int shards;
  const bool direct;
  const CudaStream stream;
  std::vector<ShardRange> own;    // subtrees of this rank
  std::vector<ShardRange> all;    // of all ranks, in order
  std::vector<std::size_t> held;  // how many each rank has
  Buffer<std::uint8_t> memory, gpu_memory;
  std::optional<GpuSums> gpu;  // from the first sum on a GPU on
};

TreeSum::TreeSum(const ProcessGroup& group, int shards, CudaStream stream)
    : exchange_(std::make_unique<Exchange>(group, shards, stream)) {}
TreeSum::~TreeSum() = default;
TreeSum::TreeSum(TreeSum&&) noexcept = default;
TreeSum& TreeSum::operator=(TreeSum&&) noexcept = default;

int TreeSum::shards() const noexcept { return exchange_->shards; }

ShardRange TreeSum::owned() const noexcept {
  const ProcessGroup& group = exchange_->group;
  return shards_of(exchange_->shards, group.rank(), group.size());
}

const std::vector<ShardRange>& TreeSum::subtrees() const noexcept { return exchange_->own; }

void TreeSum::all_reduce(View out, std::span<const ConstView> partials, double divisor,
                         const Buffer<std::uint8_t>& memory) {
  Exchange& e = *exchange_;
  e.check("TreeSum::all_reduce", out, partials, out.count);
  if (memory.size() != 0) check_same_memory("TreeSum::all_reduce", out, memory.view());
  if (e.is_one_op(out)) {
    e.group.all_reduce(out, partials[0], e.options_for(out));
    return e.divide(out, divisor);
  }
  if (out.bytes() <= kSmallBytes) return e.gather_and_fold(out, partials, divisor);
  if (e.sum_in_place(out, partials, divisor, memory)) return;
  const std::size_t piece = e.piece_of(out);
  std::vector<ConstView> parts(partials.size());
  for (std::size_t first = 0; first < out.count; first += piece) {
    const std::size_t count = std::min(piece, out.count - first);
    std::transform(partials.begin(), partials.end(), parts.begin(),
                   [&](const ConstView& partial) { return partial.slice(first, count); });
    e.sum_slices(out.slice(first, count),
                 [&](View mine, std::size_t, std::span<const std::size_t> slices) {
                   e.trade_and_fold(mine, parts, slices, divisor);
                 });
  }
}

void TreeSum::reduce_scatter(View out, std::span<const ConstView> partials,
                             std::span<const std::size_t> counts, double divisor) {
  Exchange& e = *exchange_;
  const auto rank = static_cast<std::size_t>(e.group.rank());
  if (counts.size() != static_cast<std::size_t>(e.group.size()) || counts[rank] != out.count)
    throw_invalid("TreeSum::reduce_scatter: {} counts for {} ranks, or not {} elements for rank {}",
                  counts.size(), e.group.size(), out.count, rank);
  e.check("TreeSum::reduce_scatter", out, partials,
          std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  if (!e.is_one_op(out)) return e.trade_and_fold(out, partials, counts, divisor);
  e.group.reduce_scatter_v(out, partials[0], counts, e.options_for(out));
  e.divide(out, divisor);
}

void TreeSum::sum(std::span<double> out, std::span<const double> leaves) {
  const auto own = static_cast<std::size_t>(owned().count());
  if (leaves.size() != own * out.size())
    throw_invalid("TreeSum::sum: {} values for {} sums over {} own shards", leaves.size(),
                  out.size(), own);
  ShardAccumulator sums(shards(), owned(), out.size(), DType::f64);
  for (std::size_t shard = 0; shard < own; ++shard)
    sums.add(leaves.subspan(shard * out.size(), out.size()));
  all_reduce(out, sums.partials());
}

}}}  // namespace c10d::v0::parallel
