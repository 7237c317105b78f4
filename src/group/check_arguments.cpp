// SPDX-License-Identifier: BSD-3-Clause
#include "src/group/check_arguments.h"

#include <fmt/format.h>

#include <limits>

#include "c10d/call.h"
#include "c10d/error.h"
#include "c10d/values.h"
#include "src/device/gpu.h"

namespace c10d { inline namespace v0 {
namespace {

template <class... Args>
[[noreturn]] void reject(OpKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw InvalidArgument(
      fmt::format("{}: {}", to_string(kind), fmt::format(format, std::forward<Args>(args)...)));
}

// An enum holds whatever a caller casts to it, and is an index further down.
template <class Enum>
void known(OpKind op, Enum value, int count, const char* what) {
  if (static_cast<int>(value) >= count)
    reject(op, "{} {} does not exist; there are 0 to {}", what, static_cast<int>(value), count - 1);
}
void known(OpKind op, DType dtype) { known(op, dtype, kDTypeCount, "dtype"); }
void known(OpKind op, ReduceOp::Kind kind) { known(op, kind, kReduceOpCount, "reduce op"); }
void known(OpKind op, DeviceType type) { known(op, type, kDeviceTypeCount, "device type"); }

// Everything below checks one call on one rank.
class Checker {
 public:
  Checker(OpKind kind, int rank, int size)
      : kind_(kind), rank_(static_cast<std::size_t>(rank)), size_(static_cast<std::size_t>(size)) {}

  // Of all that the op holds, also what this rank need not give: the funnel looks at it.
  void enums(const auto& o) const {
    if constexpr (requires { o.op; }) known(kind_, o.op.kind);
    if constexpr (requires { o.output; }) known(kind_, o.output.device.type);
    if constexpr (requires { o.input; }) known(kind_, o.input.device.type);
  }
  void operator()(const AllReduce& o) const { same_shape(o); }
  void operator()(const Broadcast& o) const {
    root(o.root);
    buffer("output", o.output);
    if (is_root(o.root)) same_shape(o);
  }
  void operator()(const AllGather& o) const { gathers(o); }
  void operator()(const AllGatherV& o) const { gathers_v(o); }
  void operator()(const ReduceScatter& o) const { scatters(o); }
  void operator()(const ReduceScatterV& o) const { scatters_v(o); }
  void operator()(const Reduce& o) const {
    root(o.root);
    buffer("input", o.input);
    if (is_root(o.root)) same_shape(o);
  }
  void operator()(const Scan& o) const { same_shape(o); }
  void operator()(const Exscan& o) const { same_shape(o); }
  void operator()(const Gather& o) const {
    root(o.root);
    buffer("input", o.input);
    if (is_root(o.root)) gathers(o);
  }
  void operator()(const GatherV& o) const {
    root(o.root);
    buffer("input", o.input);
    counts_size("counts", o.counts);
    shard("input", o.input.count, o.counts);
    if (is_root(o.root)) gathers_v(o);
  }
  void operator()(const Scatter& o) const {
    root(o.root);
    buffer("output", o.output);
    if (is_root(o.root)) scatters(o);
  }
  void operator()(const ScatterV& o) const {
    root(o.root);
    buffer("output", o.output);
    counts_size("counts", o.counts);
    shard("output", o.output.count, o.counts);
    if (is_root(o.root)) scatters_v(o);
  }
  void operator()(const AllToAll& o) const {
    same_type(o.output, o.input);
    counts_equal(o.output.count, o.input.count);
    if (o.input.count % size_ != 0)
      reject(kind_, "count {} is no multiple of the {} ranks", o.input.count, size_);
    apart(o.output, o.input);
  }
  void operator()(const AllToAllV& o) const {
    same_type(o.output, o.input);
    totals("output_counts", o.output_counts, "output", o.output.count);
    totals("input_counts", o.input_counts, "input", o.input.count);
    if (o.output_counts[rank_] != o.input_counts[rank_])
      reject(kind_, "this rank sends itself {} elements but expects {}", o.input_counts[rank_],
             o.output_counts[rank_]);
    apart(o.output, o.input);
  }
  void operator()(const Barrier&) const {}
  void operator()(const Send& o) const {
    buffer("input", o.input);
    if (o.peer < 0 || static_cast<std::size_t>(o.peer) >= size_)
      reject(kind_, "peer {} is not in [0, {})", o.peer, size_);
  }
  void operator()(const Recv& o) const {
    buffer("output", o.output);
    check_source(to_string(kind_), o.peer, static_cast<int>(size_));
  }

 private:
  void same_shape(const auto& o) const {
    same_type(o.output, o.input);
    counts_equal(o.output.count, o.input.count);
    in_place_or_apart(o.output, o.input);
  }
  // The output holds the inputs of all ranks.
  void gathers(const auto& o) const {
    same_type(o.output, o.input);
    shards("output", o.output.count, "input", o.input.count);
    in_place_or_apart(o.output.slice(rank_ * o.input.count, o.input.count), o.input, o.output);
  }
  void gathers_v(const auto& o) const {
    same_type(o.output, o.input);
    const std::size_t first = totals("counts", o.counts, "output", o.output.count);
    shard("input", o.input.count, o.counts);
    in_place_or_apart(o.output.slice(first, o.input.count), o.input, o.output);
  }
  // The input holds the outputs of all ranks.
  void scatters(const auto& o) const {
    same_type(o.output, o.input);
    shards("input", o.input.count, "output", o.output.count);
    in_place_or_apart(o.input.slice(rank_ * o.output.count, o.output.count), o.output, o.input);
  }
  void scatters_v(const auto& o) const {
    same_type(o.output, o.input);
    const std::size_t first = totals("counts", o.counts, "input", o.input.count);
    shard("output", o.output.count, o.counts);
    in_place_or_apart(o.input.slice(first, o.output.count), o.output, o.input);
  }
  bool is_root(int root) const { return static_cast<std::size_t>(root) == rank_; }

  void root(int root) const {
    if (root < 0 || static_cast<std::size_t>(root) >= size_)
      reject(kind_, "root {} is not in [0, {})", root, size_);
  }
  void buffer(const char* name, const ConstView& view) const {
    known(kind_, view.dtype);
    if (view.data == nullptr && view.count != 0)
      reject(kind_, "{} is null but has {} elements", name, view.count);
    if (view.count > std::numeric_limits<std::size_t>::max() / size_of(view.dtype))
      reject(kind_, "{} has {} elements, more bytes than memory can hold", name, view.count);
  }
  void same_type(const ConstView& output, const ConstView& input) const {
    buffer("output", output);
    buffer("input", input);
    if (output.dtype != input.dtype)
      reject(kind_, "output is {}, input is {}", to_string(output.dtype), to_string(input.dtype));
    if (!(output.device == input.device))
      reject(kind_, "output is on {}, input is on {}", name_of(output.device),
             name_of(input.device));
  }
  void counts_equal(std::size_t output, std::size_t input) const {
    if (output != input) reject(kind_, "output has {} elements, input has {}", output, input);
  }
  void shards(const char* whole_name, std::size_t whole, const char* part_name,
              std::size_t part) const {
    if (part > std::numeric_limits<std::size_t>::max() / size_ || whole != part * size_)
      reject(kind_, "{} has {} elements, {} has {}: {} ranks need {} = {} x {}", whole_name, whole,
             part_name, part, size_, whole_name, size_, part_name);
  }
  void counts_size(const char* name, std::span<const std::size_t> counts) const {
    if (counts.size() != size_)
      reject(kind_, "{} has {} entries for {} ranks", name, counts.size(), size_);
  }
  // The first element of this rank's shard.
  std::size_t totals(const char* name, std::span<const std::size_t> counts, const char* whole_name,
                     std::size_t whole) const {
    counts_size(name, counts);
    std::size_t total = 0, first = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (i == rank_) first = total;
      if (__builtin_add_overflow(total, counts[i], &total))
        reject(kind_, "{} add up to more than memory can hold", name);
    }
    if (total != whole)
      reject(kind_, "{} add up to {}, {} has {} elements", name, total, whole_name, whole);
    return first;
  }
  void shard(const char* name, std::size_t count, std::span<const std::size_t> counts) const {
    if (count != counts[rank_])
      reject(kind_, "{} has {} elements, counts[{}] is {}", name, count, rank_, counts[rank_]);
  }

  static bool overlap(const ConstView& a, const ConstView& b) {
    const auto* first = static_cast<const std::byte*>(a.data);
    const auto* second = static_cast<const std::byte*>(b.data);
    return a.bytes() != 0 && b.bytes() != 0 && std::less<>{}(first, second + b.bytes()) &&
           std::less<>{}(second, first + a.bytes());
  }
  void apart(const ConstView& output, const ConstView& input) const {
    if (overlap(output, input))
      reject(kind_, "output and input overlap; {} cannot run in place", to_string(kind_));
  }
  // `place` is where `part` lies in `whole` when the op is in place.
  void in_place_or_apart(const ConstView& place, const ConstView& part,
                         const ConstView& whole) const {
    if (place.data != part.data && overlap(whole, part))
      reject(kind_, "output and input overlap in part: they are the same memory, or apart");
  }
  void in_place_or_apart(const ConstView& output, const ConstView& input) const {
    in_place_or_apart(output, input, output);
  }

  const OpKind kind_;
  const std::size_t rank_, size_;
};

// The kind of memory, and the GPU of memory of one. Of memory that the driver does not know the
// kind is 0.
std::pair<driver::MemoryType, int> lies_on(const void* data) {
  driver::MemoryType type{};
  int index = 0;
  driver::PointerAttribute wanted[] = {driver::kPointerMemoryType, driver::kPointerDeviceOrdinal};
  void* values[] = {&type, &index};
  check_driver(driver_api().pointer_get_attributes(2, wanted, values,
                                                   reinterpret_cast<driver::Pointer>(data)),
               "cuPointerGetAttributes");
  return {type, index};
}

// Throws unless `view` is memory of that GPU.
void check_memory(OpKind kind, const char* name, const ConstView& view, Device gpu) {
  if (view.count == 0 || view.data == nullptr) return;
  if (!(view.device == gpu))
    reject(kind, "{} is on {}, the GPU of this group is {}", name, name_of(view.device),
           name_of(gpu));
  const auto [type, index] = lies_on(view.data);
  if (type != driver::kDeviceMemory)
    reject(kind, "{} is no memory of a GPU, and the view says {}", name, name_of(gpu));
  if (index != gpu.index)
    reject(kind, "{} is memory of cuda:{}, and the view says {}", name, index, name_of(gpu));
}

}  // namespace

void check_host(const Op& op) {
  const OpKind kind = kind_of(op);
  const auto look = [&](const char* name, const ConstView& view) {
    if (view.count == 0 || view.data == nullptr) return;
    const auto [type, index] = lies_on(view.data);
    if (type == driver::kDeviceMemory)
      reject(kind,
             "{} is memory of cuda:{}, and the view says CPU: write View(data, count, dtype, "
             "cuda_device({}))",
             name, index, index);
  };
  std::visit(
      [&](const auto& o) {
        if constexpr (requires { o.output; }) look("output", o.output);
        if constexpr (requires { o.input; }) look("input", o.input);
      },
      op);
}

bool check_gpu(const Op& op, CudaStream stream, Device gpu, int rank) {
  const OpKind kind = kind_of(op);
  const OnGpu here(gpu.index);
  auto capture = driver::kCaptureNone;
  check_driver(driver_api().stream_is_capturing(stream, &capture), "CallOptions::stream");
  if (capture == driver::kCaptureInvalidated)
    reject(kind,
           "CallOptions::stream is captured into a graph, and an earlier call has broken the "
           "capture: end it, and capture again");
  if (stream != nullptr) {
    driver::Context context = nullptr;
    check_driver(driver_api().stream_get_ctx(stream, &context), "CallOptions::stream");
    if (context != primary_context(gpu.index))
      reject(kind, "CallOptions::stream is a stream of another GPU than {}, that of this group",
             name_of(gpu));
  }
  std::visit(
      [&](const auto& o) {
        bool all = true;  // else only what every rank passes: the other buffer is ignored
        if constexpr (requires { o.root; }) all = o.root == rank;
        const OpBuffer required = traits_of(kind).required;
        if constexpr (requires { o.output; })
          if (all || required == OpBuffer::output) check_memory(kind, "output", o.output, gpu);
        if constexpr (requires { o.input; })
          if (all || required == OpBuffer::input) check_memory(kind, "input", o.input, gpu);
      },
      op);
  return capture == driver::kCaptureActive;
}

void check_source(std::string_view call, int peer, int size) {
  if (peer != kAnySource && (peer < 0 || peer >= size))
    throw InvalidArgument(
        fmt::format("{}: peer {} is neither in [0, {}) nor kAnySource", call, peer, size));
}

void check_query(const Query& query) {
  known(query.op, query.op, kOpCount, "op");
  known(query.op, query.dtype);
  known(query.op, query.reduce_op);
  known(query.op, query.device);
}

void check_arguments(const Op& op, int rank, int size) {
  const Checker check(kind_of(op), rank, size);
  std::visit(
      [&check]<class T>(const T& o) {
        check.enums(o);
        check(o);
      },
      op);
}

void Counts::refuse_negative(long long number) {
  throw InvalidArgument(
      fmt::format("a count is {}: the number of elements for a rank is never "
                  "negative",
                  number));
}

std::size_t detail::checked_total(std::span<const std::size_t> counts, std::size_t size,
                                  std::size_t max_bytes) {
  std::size_t total = 0;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    if (counts[rank] > max_bytes / size - total)
      throw InvalidArgument(fmt::format(
          "the values are longer than ValueOptions::max_bytes, {}: value {} has {} elements of {} "
          "bytes, those before it {}",
          max_bytes, rank, counts[rank], size, total));
    total += counts[rank];
  }
  return total;
}

}}  // namespace c10d::v0
