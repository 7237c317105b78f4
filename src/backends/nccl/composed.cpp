// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/nccl/composed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/cuda/launch.h"
#include "src/backends/common/gathered_reduction.h"
#include "src/backends/nccl/library.h"
#include "src/backends/nccl/settings.h"
#include "src/base/mutex.h"

namespace c10d { inline namespace v0 { namespace nccl {
namespace {

namespace kernels = cuda_kernels;
using Kind = ReduceOp::Kind;

// Pieces are of some MiB, large enough that their calls cost little beside the data.
constexpr std::size_t kScratchBytes = std::size_t{16} << 20;
constexpr std::size_t kAlignment = 256;

bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }
bool is_bitwise(Kind kind) {
  return kind == ReduceOp::band || kind == ReduceOp::bor || kind == ReduceOp::bxor;
}
// Elements become numbers that NCCL reduces, and the result becomes elements again.
struct Conversion {
  kernels::Kernel before;
  kernels::Kernel after;  // none: the numbers are the elements
  DataType type;
  std::size_t bytes;  // of a number
  RedOp op;
  bool divides = false;  // `after` divides by the number of ranks
  const char* how;
};

Conversion of_booleans(Kind kind) {
  Conversion all{.before = kernels::cast_kernel(DType::boolean, DType::u8),
                 .after = {},
                 .type = kUint8,
                 .bytes = 1,
                 .op = kMax,
                 .how = "0 and 1, then max or min"};
  if (kind == ReduceOp::prod || kind == ReduceOp::min || kind == ReduceOp::band) all.op = kMin;
  if (kind == ReduceOp::bxor) {
    all.after = kernels::parity_kernel();
    all.op = kSum;
    all.how = "sum, then parity";
  }
  return all;
}

std::optional<Conversion> conversion_of(Kind kind, DType dtype) {
  if (dtype == DType::boolean) return of_booleans(kind);
  const bool is_order = kind == ReduceOp::min || kind == ReduceOp::max;
  if (is_floating(dtype) && is_order) {  // never of 8 bits: supports() refuses them
    const bool wide = dtype == DType::f64;
    return Conversion{.before = kernels::to_keys_kernel(kind, dtype),
                      .after = kernels::from_keys_kernel(dtype),
                      .type = wide ? kInt64 : kInt32,
                      .bytes = wide ? std::size_t{8} : std::size_t{4},
                      .op = nccl_op(kind),
                      .how = "ordered integers, then min or max"};
  }
  if ((dtype == DType::i16 || dtype == DType::u16) && !is_bitwise(kind)) {
    const DType wide = dtype == DType::i16 ? DType::i32 : DType::u32;
    return Conversion{.before = kernels::cast_kernel(dtype, wide),
                      .after = kernels::cast_kernel(wide, dtype),
                      .type = dtype == DType::i16 ? kInt32 : kUint32,
                      .bytes = 4,
                      .op = nccl_op(kind),
                      .how = "in 32 bits"};
  }
  if (is_half(dtype) && settings().accumulates_in_f32 &&
      (kind == ReduceOp::sum || kind == ReduceOp::avg))
    return Conversion{.before = kernels::cast_kernel(dtype, DType::f32),
                      .after = kind == ReduceOp::sum ? kernels::cast_kernel(DType::f32, dtype)
                                                     : kernels::divide_kernel(DType::f32, dtype),
                      .type = kFloat32,
                      .bytes = 4,
                      .op = kSum,
                      .divides = kind == ReduceOp::avg,
                      .how = "in f32"};
  return std::nullopt;
}

// What makes one input of all that lie one behind another. None where two at a time are combined.
kernels::Kernel folding(Kind kind, DType dtype, int ranks) {
  if (kind == ReduceOp::premul_sum) kind = ReduceOp::sum;
  return kernels::fold_kernel(kind, real_of(dtype), static_cast<std::size_t>(ranks));
}

bool is_prefix(OpKind op) { return op == OpKind::scan || op == OpKind::exscan; }

using Loaded = std::map<std::string, cuda::Kernel, std::less<>>;

Loaded load_kernels(int device) {
  Loaded kernels;
  if (!kernels::why_none().empty()) return kernels;
  for (const kernels::Kernel& kernel : kernels::all_kernels())
    kernels.emplace(kernel.name, cuda::Kernel(kernel.image, kernel.name, device));
  return kernels;
}

// One set for all groups of the process on that GPU.
std::shared_ptr<const Loaded> kernels_on(int device) {
  struct Slot {
    Mutex mutex;
    std::weak_ptr<const Loaded> kernels C10D_GUARDED_BY(mutex);
  };
  static auto& slots = *new std::array<Slot, kMaxDevices>;
  Slot& slot = slots[static_cast<std::size_t>(device)];
  const MutexLock lock(slot.mutex);
  if (auto known = slot.kernels.lock()) return known;
  auto made = std::make_shared<const Loaded>(load_kernels(device));
  slot.kernels = made;
  return made;
}

}  // namespace

bool is_native_reduction(OpKind op, Kind kind, DType dtype) {
  if (is_prefix(op) || is_bitwise(kind) || kind == ReduceOp::avg) return false;
  return !conversion_of(kind, dtype);
}

Support supports_composed(const Query& query) {
  if (const auto why = kernels::why_none(); !why.empty()) return refused(std::string(why));
  const auto [op, dtype, kind] = std::tuple(query.op, query.dtype, query.reduce_op);
  if (is_prefix(op)) return composed("all_gather + kernel");
  Support support;
  if (const auto conversion = conversion_of(kind, dtype)) {
    support = composed(conversion->how);
  } else if (kind == ReduceOp::avg) {
    support = composed("sum, then a division");
    if (is_half(dtype)) support.rounds = Rounding::every_step;
  } else {
    support = composed("all inputs + kernel");
  }
  return support;
}

Composer::Composer(Device device)
    : device_(device),
      multiprocessors_(cuda::device_info(device.index).multiprocessors),
      scratch_(cuda::device_allocate<std::uint8_t>(kScratchBytes, device.index)),
      free_(device.index),
      kernels_(kernels_on(device.index)) {}

// One op.
class Composer::Run {
 public:
  Run(Composer& all, const Target& target, ReduceOp op, DType dtype)
      : all_(all), t_(target), op_(op), dtype_(dtype), element_(size_of(dtype)) {}

  // The numbers of `count` elements for each of `shares` places, of `bytes` each.
  struct Part {
    std::uint8_t* data;
    std::size_t stride;  // bytes from one place to the next
  };
  Part scratch(std::size_t count, std::size_t bytes) const {
    return {all_.scratch_.device_data(), aligned(count * bytes)};
  }
  // How many elements of `bytes` fit in each of `places` places.
  static std::size_t fitting(std::size_t places, std::size_t bytes) {
    const std::size_t most = kScratchBytes / places / kAlignment;
    if (most < 2)
      throw_failure({.code = Code::unsupported,
                     .message = fmt::format("a reduction that is composed for {} ranks needs more "
                                            "than {} MiB of memory",
                                            places, kScratchBytes >> 20)});
    return (most - 1) * kAlignment / bytes;
  }
  static std::size_t aligned(std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  void launch(const kernels::Kernel& kernel, void* out, const void* in, std::size_t count,
              const void* other = nullptr) const {
    launch(kernel, kernels::arguments_of({.out = out, .in = in, .other = other, .count = count}));
  }
  void launch(const kernels::Kernel& kernel, const kernels::Arguments& arguments) const {
    const unsigned blocks = kernels::blocks_for(arguments.pieces, all_.multiprocessors_);
    const auto found = all_.kernels_->find(std::string_view(kernel.name ? kernel.name : ""));
    if (found == all_.kernels_->end())
      throw_failure({.code = Code::unsupported,
                     .message = fmt::format("there is no kernel for {} of {} by {} ranks",
                                            to_string(op_.kind), to_string(dtype_), t_.size)});
    found->second.launch({.blocks = {.x = blocks}, .threads = {.x = kernels::kThreads}}, t_.stream,
                         arguments);
  }
  void divide(void* data, std::size_t elements) const {
    const DType real = real_of(dtype_);
    kernels::Arguments arguments = kernels::arguments_of(
        {.out = data, .in = data, .count = elements * element_ / size_of(real)});
    arguments.divisor = t_.size;
    launch(kernels::divide_kernel(real, real), arguments);
  }
  // The result of `count` numbers of a conversion, as elements.
  void finish(const Conversion& c, void* out, const void* numbers, std::size_t count) const {
    if (!c.after) return copy(t_, out, numbers, count * element_);
    kernels::Arguments arguments =
        kernels::arguments_of({.out = out, .in = numbers, .count = count});
    if (c.divides) arguments.divisor = t_.size;
    launch(c.after, arguments);
  }
  static std::uint8_t* bytes_of(const View& view) { return static_cast<std::uint8_t*>(view.data); }
  static const std::uint8_t* bytes_of(const ConstView& view) {
    return static_cast<const std::uint8_t*>(view.data);
  }

  // To every rank, or to `root` alone.
  void reduce(const View& output, const ConstView& input, std::optional<int> root) const {
    const bool has_result = !root || *root == t_.rank;
    if (const auto c = conversion_of(op_.kind, dtype_)) {
      for_pieces(input.count, fitting(1, c->bytes), [&](std::size_t first, std::size_t count) {
        std::uint8_t* const numbers = scratch(count, c->bytes).data;
        launch(c->before, numbers, bytes_of(input) + first * element_, count);
        check(
            root
                ? api().reduce(numbers, numbers, count, c->type, c->op, *root, t_.comm(), t_.stream)
                : api().all_reduce(numbers, numbers, count, c->type, c->op, t_.comm(), t_.stream),
            root ? "ncclReduce" : "ncclAllReduce");
        if (has_result) finish(*c, bytes_of(output) + first * element_, numbers, count);
      });
    } else if (op_.kind == ReduceOp::avg) {
      const Op sum = root ? Op(Reduce{output, input, ReduceOp::sum, *root})
                          : Op(AllReduce{output, input, ReduceOp::sum});
      nccl::enqueue(t_, sum);
      if (has_result) divide(output.data, output.count);
    } else {
      for_pieces(input.count, fitting(places(), element_),
                 [&](std::size_t first, std::size_t count) {
                   const Part all = scratch(count, element_);
                   const ConstView piece = input.slice(first, count);
                   if (root)
                     gather(all, piece, *root);
                   else
                     all_gather(all, piece);
                   if (has_result)
                     combine_all(bytes_of(output) + first * element_, all, count, t_.size);
                 });
    }
  }

  // Shard r of the input to rank r.
  void reduce_scatter(const View& output, const ConstView& input,
                      std::span<const std::size_t> counts) const {
    if (op_.kind == ReduceOp::avg && !conversion_of(op_.kind, dtype_)) {
      nccl::enqueue(t_, ReduceScatterV{output, input, counts, ReduceOp::sum});
      return divide(output.data, output.count);
    }
    const auto c = conversion_of(op_.kind, dtype_);
    const std::size_t longest = *std::max_element(counts.begin(), counts.end());
    const std::size_t bytes = c ? c->bytes : element_;
    for_pieces(longest, fitting(places() + 1, bytes), [&](std::size_t first, std::size_t most) {
      const Part parts = scratch(most, bytes);
      const auto piece = [&](int rank) {
        const std::size_t count = counts[static_cast<std::size_t>(rank)];
        const std::size_t left = count < first ? 0 : std::min(count - first, most);
        return input.slice(first_of(counts, rank) + std::min(first, count), left);
      };
      const std::size_t mine = piece(t_.rank).count;
      std::uint8_t* const out = bytes_of(output) + std::min(first, output.count) * element_;
      if (c)
        reduce_shards(*c, parts, piece);
      else
        exchange(parts, piece);
      if (mine == 0) return;
      if (c)
        finish(*c, out, place(parts, t_.size), mine);
      else
        combine_all(out, parts, mine, t_.size);
    });
  }

  // The reduction of the first ranks up to this one, or before it.
  void prefix(const View& output, const ConstView& input, bool with_own) const {
    const int ranks = t_.rank + (with_own ? 1 : 0);
    for_pieces(input.count, fitting(places(), element_), [&](std::size_t first, std::size_t count) {
      const Part all = scratch(count, element_);
      all_gather(all, input.slice(first, count));
      if (ranks > 0) combine_all(bytes_of(output) + first * element_, all, count, ranks);
    });
  }

 private:
  std::size_t places() const { return static_cast<std::size_t>(t_.size); }
  static std::uint8_t* place(const Part& parts, int rank) {
    return parts.data + static_cast<std::size_t>(rank) * parts.stride;
  }
  template <class Piece>
  static void for_pieces(std::size_t count, std::size_t most, const Piece& piece) {
    for (std::size_t first = 0; first < count; first += most)
      piece(first, std::min(most, count - first));
  }

  // Results lie behind the places of all shards.
  template <class Piece>
  void reduce_shards(const Conversion& c, const Part& parts, const Piece& piece) const {
    for (int root = 0; root < t_.size; ++root)
      if (const ConstView shard = piece(root); shard.count != 0)
        launch(c.before, place(parts, root), shard.data, shard.count);
    in_group(t_, [&] {
      for (int root = 0; root < t_.size; ++root) {
        const std::size_t count = piece(root).count;
        if (count == 0) continue;
        check(api().reduce(place(parts, root), place(parts, t_.size), count, c.type, c.op, root,
                           t_.comm(), t_.stream),
              "ncclReduce");
      }
    });
  }
  // Every rank's piece, by rank.
  void all_gather(const Part& parts, const ConstView& piece) const {
    copy(t_, place(parts, t_.rank), piece.data, piece.bytes());
    check(api().all_gather(place(parts, t_.rank), parts.data, parts.stride, kUint8, t_.comm(),
                           t_.stream),
          "ncclAllGather");
  }
  void gather(const Part& parts, const ConstView& piece, int root) const {
    exchange(
        parts, [&](int rank) { return rank == root ? piece : piece.slice(0, 0); },
        [&](int) { return t_.rank == root ? piece.count : 0; });
  }
  template <class Piece>
  void exchange(const Part& parts, const Piece& piece) const {
    exchange(parts, piece, [&](int) { return piece(t_.rank).count; });
  }
  // Sends piece(r) to rank r, and receives so many elements from it.
  template <class Piece, class Count>
  void exchange(const Part& parts, const Piece& piece, const Count& count) const {
    nccl::exchange(t_, piece,
                   [&](int rank) { return View(place(parts, rank), count(rank), dtype_); });
  }
  // Of the first `ranks` places.
  void combine_all(void* out, const Part& parts, std::size_t count, int ranks) const {
    if (const auto fold = folding(op_.kind, dtype_, ranks)) {
      kernels::Arguments arguments = kernels::arguments_of(
          {.out = out, .in = parts.data, .count = count * element_ / size_of(real_of(dtype_))});
      arguments.inputs = static_cast<std::uint64_t>(ranks);
      arguments.stride = parts.stride;
      if (op_.kind == ReduceOp::premul_sum) arguments.factor = op_.factor;
      return launch(fold, arguments);
    }
    if (ranks == 1 && dtype_ == DType::boolean)
      return launch(kernels::cast_kernel(DType::boolean, DType::u8), out, parts.data, count);
    if (ranks == 1) return copy(t_, out, parts.data, count * element_);
    const auto two = kernels::combine_kernel(op_.kind, dtype_);
    for (int rank = 1; rank < ranks; ++rank)
      launch(two, out, rank == 1 ? parts.data : out, count, place(parts, rank));
  }

  Composer& all_;
  const Target& t_;
  const ReduceOp op_;
  const DType dtype_;
  const std::size_t element_;
};

void Composer::enqueue(const Target& target, const Op& op) {
  // A handle does not tell whether it is the same stream.
  if (!target.captured) free_.wait(target.stream);
  std::visit(
      [&]<class T>(const T& o) {
        if constexpr (requires { o.op; }) {
          const Run run(*this, target, o.op, o.input.dtype);
          if constexpr (requires { o.root; }) {
            run.reduce(o.output, o.input, o.root);
          } else if constexpr (std::is_same_v<T, Scan> || std::is_same_v<T, Exscan>) {
            run.prefix(o.output, o.input, std::is_same_v<T, Scan>);
          } else if constexpr (requires { o.counts; }) {
            run.reduce_scatter(o.output, o.input, o.counts);
          } else if constexpr (std::is_same_v<T, ReduceScatter>) {
            const std::vector<std::size_t> counts(static_cast<std::size_t>(target.size),
                                                  o.output.count);
            run.reduce_scatter(o.output, o.input, counts);
          } else {
            run.reduce(o.output, o.input, std::nullopt);
          }
        }
      },
      op);
  if (!target.captured) free_.record(target.stream);
}

}}}  // namespace c10d::v0::nccl
