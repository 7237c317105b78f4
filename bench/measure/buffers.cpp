// SPDX-License-Identifier: BSD-3-Clause
#include "bench/measure/buffers.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace c10d::bench {

namespace {

#if defined(__x86_64__)
constexpr bool kCanFlush = true;
void flush_line(const void* at) noexcept { __builtin_ia32_clflush(at); }
void flush_end() noexcept { __builtin_ia32_mfence(); }
#elif defined(__aarch64__)
constexpr bool kCanFlush = true;
void flush_line(const void* at) noexcept { asm volatile("dc civac, %0" : : "r"(at) : "memory"); }
void flush_end() noexcept { asm volatile("dsb sy" : : : "memory"); }
#else
constexpr bool kCanFlush = false;
void flush_line(const void*) noexcept {}
void flush_end() noexcept {}
#endif

constexpr std::size_t kLine = 64;

void flush(const View& view) noexcept {
  const auto* bytes = static_cast<const unsigned char*>(view.data);
  for (std::size_t at = 0; at < view.bytes(); at += kLine) flush_line(bytes + at);
}

// About the golden section of the sets, and without a common divisor: every set has its turn.
std::uint64_t step_of(std::uint64_t sets) {
  auto step = std::max<std::uint64_t>(1, sets * 618 / 1000);
  while (std::gcd(step, sets) != 1) ++step;
  return step;
}

}  // namespace

bool can_flush() noexcept { return kCanFlush; }

Buffers::Buffers(const Case& c, int rank, int size, int window, std::uint64_t seed, Arena& input,
                 Arena& output)
    : case_(c),
      rank_(rank),
      size_(size),
      window_(window_of(c, window)),
      oracle_(c, size, seed),
      input_arena_(input),
      output_arena_(output),
      stride_(stride_of(c, size, window)),
      sets_(sets_of(c, size, window)),
      step_(step_of(sets_)) {
  count_elements();
  if (on_gpu()) host_.resize(std::max(in_count_, out_count_) * size_of(c.dtype));
  pristine_ = view(input_arena_, 0, in_count_);
  fill_inputs();
}

void Buffers::fill_inputs() {
  if (on_gpu()) {
    fill_inputs_on_gpu();
    return;
  }
  oracle_.fill(pristine_, rank_, 0);
  for (std::uint64_t set = sets_; set-- > 0;) {
    take(set);
    for (const Slot& slot : slots_)
      if (slot.input.count > 0 && slot.input.data != pristine_.data) move(slot.input, pristine_);
  }
}

// The first set, and copies of all that are there already: a copy for each set would take seconds.
void Buffers::fill_inputs_on_gpu() {
  take(0);
  const View made = host_of(pristine_);
  oracle_.fill(made, rank_, 0);
  move(pristine_, made);
  if (in_place()) move(slots_.front().input, pristine_);
  const Arena& arena = in_place() ? output_arena_ : input_arena_;
  const std::uint64_t stride = in_place() ? stride_.output : stride_.input;
  const std::uint64_t all = sets_ * stride;
  for (std::uint64_t done = stride; done < all; done *= 2) {
    const std::uint64_t more = std::min(done, all - done);
    move(arena.view(done, more, DType::u8), arena.view(0, more, DType::u8));
  }
}

void Buffers::move(const View& to, const ConstView& from) const {
  if (from.count == 0) return;
  if (on_gpu())
    cuda::copy(to, from, seat()->stream);
  else
    std::memcpy(to.data, from.data, from.bytes());
}

View Buffers::host_of(const View& view) const { return {host_.data(), view.count, view.dtype}; }

View Buffers::on_host(const View& view) const {
  if (!on_gpu() || view.count == 0) return view;
  const View copy = host_of(view);
  move(copy, view);
  seat()->stream.synchronize();
  return copy;
}

void Buffers::count_elements() {
  const std::uint64_t k = case_.shard;
  const std::uint64_t all = shards_before(case_, size_, size_);
  const auto& end = case_.end;
  const bool sends = end ? end->sends && end->from == rank_ : (rank_ ^ 1) < size_;
  const bool receives = end ? !end->sends && end->to == rank_ : (rank_ ^ 1) < size_;
  const bool exchanges = case_.op == BenchOp::all_to_all_v;
  for (int peer = 0; peer < size_; ++peer)
    counts_.push_back(shard_of(case_, size_, exchanges ? shard_between(rank_, peer, size_) : peer));
  in_count_ = out_count_ = counts_[static_cast<std::size_t>(rank_)];
  switch (case_.op) {
    case BenchOp::all_reduce:
    case BenchOp::scan:
    case BenchOp::exscan:
      break;
    case BenchOp::broadcast:
      in_count_ = is_root() ? k : 0;
      break;
    case BenchOp::reduce:
      out_count_ = is_root() ? k : 0;
      break;
    case BenchOp::all_gather:
    case BenchOp::all_gather_v:
      out_count_ = all;
      break;
    case BenchOp::gather:
    case BenchOp::gather_v:
      out_count_ = is_root() ? all : 0;
      break;
    case BenchOp::reduce_scatter:
    case BenchOp::reduce_scatter_v:
      in_count_ = all;
      break;
    case BenchOp::scatter:
    case BenchOp::scatter_v:
      in_count_ = is_root() ? all : 0;
      break;
    case BenchOp::all_to_all:
    case BenchOp::all_to_all_v:
      in_count_ = out_count_ = all;
      break;
    case BenchOp::barrier:
      in_count_ = out_count_ = 0;
      break;
    case BenchOp::send:
    case BenchOp::isend:
      in_count_ = sends ? k : 0;
      out_count_ =
          receives ? k * static_cast<std::uint64_t>(case_.op == BenchOp::isend ? window_ : 1) : 0;
      break;
  }
}

View Buffers::view(const Arena& arena, std::uint64_t offset, std::uint64_t count) const {
  if (count == 0 && !facts_of(case_.op).uneven) return {};
  return arena.view(offset, count, case_.dtype);
}

Buffers::Slot Buffers::slot_at(std::uint64_t index) const {
  Slot slot{view(input_arena_, index * stride_.input, in_count_),
            view(output_arena_, index * stride_.output, out_count_)};
  if (in_place()) lay_out_in_place(slot, index * stride_.output);
  return slot;
}

void Buffers::lay_out_in_place(Slot& slot, std::uint64_t offset) const {
  const std::uint64_t k = case_.shard;
  const std::uint64_t mine = k * static_cast<std::uint64_t>(rank_);
  const View whole = view(output_arena_, offset, std::max(in_count_, out_count_));
  switch (case_.op) {
    case BenchOp::all_gather:
      slot.input = whole.slice(mine, k);
      break;
    case BenchOp::gather:
      slot.input = is_root() ? whole.slice(mine, k) : whole;
      break;
    case BenchOp::reduce_scatter:
      slot.input = whole;
      slot.output = whole.slice(mine, k);
      break;
    case BenchOp::scatter:
      if (!is_root()) break;
      slot.input = whole;
      slot.output = whole.slice(mine, k);
      break;
    default:
      if (in_count_ > 0) slot.input = whole;
  }
}

void Buffers::take(std::uint64_t set) {
  set_ = set;
  const auto lanes = static_cast<std::uint64_t>(case_.concurrent);
  slots_.clear();
  ops_.clear();
  for (std::uint64_t lane = 0; lane < lanes; ++lane) {
    slots_.push_back(slot_at(set * lanes + lane));
    add_ops(slots_.back());
  }
}

void Buffers::add_ops(const Slot& slot) {
  const ReduceOp redop = case_.redop == ReduceOp::premul_sum ? ReduceOp::premul(Oracle::kFactor)
                                                             : ReduceOp(case_.redop);
  const int root = case_.root;
  const auto& [input, output] = slot;
  switch (case_.op) {
    case BenchOp::all_reduce:
      ops_.push_back(AllReduce{output, input, redop});
      break;
    case BenchOp::broadcast:
      ops_.push_back(Broadcast{output, input, root});
      break;
    case BenchOp::all_gather:
      ops_.push_back(AllGather{output, input});
      break;
    case BenchOp::reduce_scatter:
      ops_.push_back(ReduceScatter{output, input, redop});
      break;
    case BenchOp::reduce:
      ops_.push_back(Reduce{output, input, redop, root});
      break;
    case BenchOp::gather:
      ops_.push_back(Gather{output, input, root});
      break;
    case BenchOp::scatter:
      ops_.push_back(Scatter{output, input, root});
      break;
    case BenchOp::all_to_all:
      ops_.push_back(AllToAll{output, input});
      break;
    case BenchOp::all_gather_v:
      ops_.push_back(AllGatherV{output, input, counts_});
      break;
    case BenchOp::reduce_scatter_v:
      ops_.push_back(ReduceScatterV{output, input, counts_, redop});
      break;
    case BenchOp::gather_v:
      ops_.push_back(GatherV{output, input, counts_, root});
      break;
    case BenchOp::scatter_v:
      ops_.push_back(ScatterV{output, input, counts_, root});
      break;
    case BenchOp::all_to_all_v:
      ops_.push_back(AllToAllV{output, input, counts_, counts_});
      break;
    case BenchOp::scan:
      ops_.push_back(Scan{output, input, redop});
      break;
    case BenchOp::exscan:
      ops_.push_back(Exscan{output, input, redop});
      break;
    case BenchOp::barrier:
      ops_.push_back(Barrier{});
      break;
    case BenchOp::send:
    case BenchOp::isend:
      if (input.count + output.count > 0) add_messages(slot);
      break;
  }
}

void Buffers::add_messages(const Slot& slot) {
  const auto& [input, output] = slot;
  const int peer = rank_ ^ 1;
  if (const auto& end = case_.end) {
    if (end->sends)
      ops_.push_back(Send{input, end->to, end->tag});
    else
      ops_.push_back(Recv{output, end->from, end->tag});
    return;
  }
  if (case_.op == BenchOp::send) {
    ops_.push_back(Send{input, peer, 0});
    ops_.push_back(Recv{output, peer, 0});
    if (rank_ % 2 == 1) std::swap(ops_[0], ops_[1]);
    return;
  }
  for (int i = 0; i < window_; ++i)
    ops_.push_back(
        Recv{output.slice(static_cast<std::size_t>(i) * case_.shard, case_.shard), peer, 0});
  for (int i = 0; i < window_; ++i) ops_.push_back(Send{input, peer, 0});
}

Flight Buffers::flight() const noexcept {
  if (case_.concurrent > 1) return Flight::one_per_group;
  return case_.op == BenchOp::isend ? Flight::together : Flight::in_turn;
}

double Buffers::share() const noexcept {
  if (case_.op == BenchOp::send) return 0.5;
  return case_.op == BenchOp::isend ? 1.0 / window_ : 1.0;
}

bool Buffers::same_everywhere() const noexcept {
  return case_.op == BenchOp::all_reduce || case_.op == BenchOp::broadcast ||
         case_.op == BenchOp::all_gather || case_.op == BenchOp::all_gather_v;
}

void Buffers::restore(const Slot& slot, bool dirty) const {
  if (slot.input.count == 0) return;
  if (in_place() && slot.input.data != pristine_.data) {
    move(slot.input, pristine_);
    return;
  }
  if (!dirty) return;
  auto* bytes = static_cast<volatile unsigned char*>(slot.input.data);
  for (std::size_t at = 0; at < slot.input.bytes(); at += kLine) bytes[at] = bytes[at];
}

void Buffers::refresh(bool dirty) noexcept {
  if (!on_gpu())
    for (const Slot& slot : slots_) restore(slot, dirty);
  if (sets_ > 1) take((set_ + step_) % sets_);
  if (case_.cache != Cache::cold) return;
  for (const Slot& slot : slots_) {
    flush(slot.input);
    flush(slot.output);
  }
  flush_end();
}

void Buffers::poison_output() {
  for (const Slot& slot : slots_) {
    const View made = on_gpu() ? host_of(slot.output) : slot.output;
    poison(made);
    if (on_gpu()) move(slot.output, made);
    restore(slot, false);
  }
}

std::uint64_t Buffers::wrong() const {
  std::uint64_t wrong = 0;
  for (const Slot& slot : slots_) wrong += oracle_.wrong(on_host(slot.output), rank_);
  return wrong;
}

// Equal results of ops at once give the hash of one, so that how many there were does not count.
std::uint64_t Buffers::hash() const {
  const auto hash_of = [&](const Slot& slot) {
    const View output = on_host(slot.output);
    return hash_bytes(output.data, output.bytes());
  };
  const std::uint64_t first = hash_of(slots_.front());
  std::uint64_t all = first;
  for (const Slot& slot : slots_)
    if (const std::uint64_t one = hash_of(slot); one != first) all = all * 31 + one;
  return all;
}

}  // namespace c10d::bench
