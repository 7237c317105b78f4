// SPDX-License-Identifier: BSD-3-Clause
// The bodies of ops, in pieces of 64 KiB.
#include <algorithm>
#include <cstring>

#include "tests/fake_gpu/nccl/op.h"

namespace fake_nccl {
namespace {

using fake_gpu::Running;

// The bytes behind an address; null, after an illegal access, if the GPU cannot reach all of them.
std::byte* reach(const Task& task, const void* at, std::size_t bytes, Running& running) {
  std::byte* const found = fake_gpu::view(at, bytes);
  if (!found) {
    fake_gpu::violation("illegal access",
                        std::string(task.function) + " used what is no memory of the GPU");
    running.fail(cu::kIllegalAddress);
  }
  return found;
}

void remote_error(Comm& comm, int rank) {
  if (comm.fail(nccl::kRemoteError) != nccl::kRemoteError) return;
  say(nccl::kRemoteError,
      "socketProgress: Connection closed by remote peer rank " + std::to_string(rank));
}

class Collective {
 public:
  Collective(Comm& comm, const Task& task, Running& running)
      : comm_(comm),
        task_(task),
        running_(running),
        rank_(comm.rank),
        size_(comm.size),
        element_(size_of(task.dtype)),
        how_{task.dtype, task.op, comm.size} {}

  void run() {
    factor_ = task_.factor;
    if (task_.factor_at) {
      const std::byte* const at = reach(task_, task_.factor_at, element_, running_);
      if (!at) return;
      std::memcpy(&factor_, at, element_);
    }
    const std::size_t read = bytes_read(task_, rank_, size_);
    const std::size_t written = bytes_written(task_, rank_, size_);
    if (read != 0 && !(from_ = reach(task_, task_.from, read, running_))) return;
    if (written != 0 && !(to_ = reach(task_, task_.to, written, running_))) return;
    const bool has_blocks = task_.kind == Kind::reduce_scatter || task_.kind == Kind::all_to_all ||
                            task_.kind == Kind::scatter;
    for (int block = 0; block < (has_blocks ? size_ : 1); ++block) {
      if (!run_block(block)) return;
    }
  }

 private:
  // A block of `count` elements of each rank's input.
  bool run_block(int block) {
    const std::size_t bytes = task_.count * element_;
    const std::size_t piece = kPieceBytes / element_ * element_;
    const std::size_t start = static_cast<std::size_t>(block) * bytes;
    const bool is_source =
        rank_ == task_.root || (task_.kind != Kind::broadcast && task_.kind != Kind::scatter);
    for (std::size_t at = 0; at < bytes; at += piece) {
      const std::size_t now = std::min(piece, bytes - at);
      const int parity = exchange(is_source ? from_ + start + at : nullptr, now);
      if (parity < 0) return false;
      take(block, at, now, parity);
    }
    return true;
  }

  // Shows the others a piece and waits for theirs. The place is free: all have come to the piece
  // before this one, and so have done with the one before that.
  int exchange(const std::byte* piece, std::size_t bytes) {
    const std::uint64_t number = ++comm_.pieces;
    const int parity = static_cast<int>(number & 1);
    Member& mine = comm_.board->member(rank_);
    if (piece) std::memcpy(mine.piece[parity], piece, bytes);
    mine.factor[parity] = factor_;
    mine.arrived.store(number, std::memory_order_release);
    for (int rank = 0; rank < size_; ++rank) {
      const Member& other = comm_.board->member(rank);
      for (unsigned looks = 0; other.arrived.load(std::memory_order_acquire) < number;) {
        if (running_.is_over()) return -1;
        if (pause(looks) && comm_.board->is_gone(rank) &&
            other.arrived.load(std::memory_order_acquire) < number) {
          remote_error(comm_, rank);
        }
      }
    }
    return parity;
  }

  std::byte* of(int rank, int parity) { return comm_.board->member(rank).piece[parity]; }

  void take(int block, std::size_t at, std::size_t bytes, int parity) {
    const bool is_root = rank_ == task_.root, is_mine = rank_ == block;
    const std::size_t whole = task_.count * element_;
    switch (task_.kind) {
      case Kind::all_reduce:
        return reduce(at, bytes, parity);
      case Kind::reduce:
        if (is_root) reduce(at, bytes, parity);
        return;
      case Kind::reduce_scatter:
        if (is_mine) reduce(at, bytes, parity);
        return;
      case Kind::broadcast:
        std::memcpy(to_ + at, of(task_.root, parity), bytes);
        return;
      case Kind::scatter:
        if (is_mine) std::memcpy(to_ + at, of(task_.root, parity), bytes);
        return;
      case Kind::all_gather:
        return gather(whole, at, bytes, parity);
      case Kind::gather:
        if (is_root) gather(whole, at, bytes, parity);
        return;
      case Kind::all_to_all:
        if (is_mine) gather(whole, at, bytes, parity);
        return;
      case Kind::send:
      case Kind::recv:
        return;
    }
  }

  void gather(std::size_t whole, std::size_t at, std::size_t bytes, int parity) {
    for (int rank = 0; rank < size_; ++rank) {
      std::memcpy(to_ + static_cast<std::size_t>(rank) * whole + at, of(rank, parity), bytes);
    }
  }

  // Each half on its channel.
  void reduce(std::size_t at, std::size_t bytes, int parity) {
    alignas(64) std::byte sum[kPieceBytes];
    const std::size_t count = bytes / element_, half = (count + 1) / 2;
    for (int channel = 0; channel < 2; ++channel) {
      const std::size_t first = channel == 0 ? 0 : half, n = channel == 0 ? half : count - half;
      std::byte* const to = sum + first * element_;
      const std::vector<int> order = order_of(size_, channel, fake_gpu::seed(), at / kPieceBytes);
      for (const int rank : order) {
        const auto step = rank == order[0] ? start : accumulate;
        step(how_, to, of(rank, parity) + first * element_, n,
             comm_.board->member(rank).factor[parity]);
      }
    }
    finish(how_, sum, count);
    std::memcpy(to_ + at, sum, bytes);
  }

  Comm& comm_;
  const Task& task_;
  Running& running_;
  const int rank_, size_;
  const std::size_t element_;
  const Reduction how_;
  Factor factor_ = 0;
  const std::byte* from_ = nullptr;
  std::byte* to_ = nullptr;
};

// A message on its way.
struct Message {
  const Task* task;
  Box* box;
  std::byte* memory;
  std::size_t bytes, at = 0;
  bool is_over = false;

  bool is_send() const { return task->kind == Kind::send; }
  // Whether something moved.
  bool move(Comm& comm) {
    const std::uint64_t sent = box->sent.load(std::memory_order_acquire);
    const std::uint64_t taken = box->taken.load(std::memory_order_acquire);
    if (is_send()) {
      if (sent != taken) return false;
      if (at == bytes) return is_over = true;  // the last piece was taken
      box->bytes = std::min(bytes - at, kPieceBytes);
      std::memcpy(box->piece, memory + at, box->bytes);
      at += box->bytes;
      box->sent.store(sent + 1, std::memory_order_release);
      // NCCL has room for the last piece: a short message needs no recv.
      if (at == bytes && fake_gpu::seed() == 1) is_over = true;
      return true;
    }
    if (sent == taken) return false;
    if (box->bytes > bytes - at) {  // of a longer message: it never fits
      comm.fail(nccl::kInvalidUsage);
      return false;
    }
    std::memcpy(memory + at, box->piece, box->bytes);
    at += box->bytes;
    // One that is shorter leaves the rest as it was.
    if (box->bytes < kPieceBytes) at = bytes;
    box->taken.store(taken + 1, std::memory_order_release);
    is_over = at == bytes;
    return true;
  }
};

}  // namespace

std::size_t bytes_read(const Task& task, int rank, int size) {
  const std::size_t block = task.count * size_of(task.dtype);
  const auto n = static_cast<std::size_t>(size);
  switch (task.kind) {
    case Kind::all_reduce:
    case Kind::reduce:
    case Kind::all_gather:
    case Kind::gather:
    case Kind::send:
      return block;
    case Kind::broadcast:
      return rank == task.root ? block : 0;
    case Kind::reduce_scatter:
    case Kind::all_to_all:
      return block * n;
    case Kind::scatter:
      return rank == task.root ? block * n : 0;
    case Kind::recv:
      return 0;
  }
  return 0;
}

std::size_t bytes_written(const Task& task, int rank, int size) {
  const std::size_t block = task.count * size_of(task.dtype);
  const auto n = static_cast<std::size_t>(size);
  switch (task.kind) {
    case Kind::all_reduce:
    case Kind::broadcast:
    case Kind::reduce_scatter:
    case Kind::scatter:
    case Kind::recv:
      return block;
    case Kind::reduce:
      return rank == task.root ? block : 0;
    case Kind::all_gather:
    case Kind::all_to_all:
      return block * n;
    case Kind::gather:
      return rank == task.root ? block * n : 0;
    case Kind::send:
      return 0;
  }
  return 0;
}

// One rank copies, and that also from and to the host; with a factor it multiplies.
void run_alone(const Task& task, Running& running) {
  const std::size_t bytes = task.count * size_of(task.dtype);
  const std::byte* from = fake_gpu::view(task.from, bytes);
  std::byte* to = fake_gpu::view(task.to, bytes);
  if (!from) from = static_cast<const std::byte*>(task.from);
  if (!to) to = static_cast<std::byte*>(task.to);
  if (!task.reduces() || task.op != kPreMulSum) {
    std::memmove(to, from, bytes);
    return;
  }
  Factor factor = task.factor;
  if (task.factor_at) {
    const std::byte* const at = reach(task, task.factor_at, size_of(task.dtype), running);
    if (!at) return;
    std::memcpy(&factor, at, size_of(task.dtype));
  }
  start({task.dtype, task.op, 1}, to, from, task.count, factor);
}

void run_collective(Comm& comm, const Task& task, Running& running) {
  Collective(comm, task, running).run();
}

void run_messages(Comm& comm, const std::vector<Task>& tasks, Running& running) {
  std::vector<Message> messages;
  for (const Task& task : tasks) {
    const std::size_t bytes = task.count * size_of(task.dtype);
    const bool is_send = task.kind == Kind::send;
    std::byte* const memory = reach(task, is_send ? task.from : task.to, bytes, running);
    if (!memory) return;
    Box& box =
        is_send ? comm.board->box(comm.rank, task.root) : comm.board->box(task.root, comm.rank);
    messages.push_back({&task, &box, memory, bytes});
  }
  for (unsigned looks = 0; !messages.empty();) {
    bool moved = false;
    std::set<std::pair<const Box*, bool>> busy;  // messages to one rank stay in order
    for (Message& message : messages) {
      if (busy.insert({message.box, message.is_send()}).second) moved |= message.move(comm);
    }
    std::erase_if(messages, [](const Message& message) { return message.is_over; });
    if (moved) {
      looks = 0;
      continue;
    }
    if (running.is_over()) return;
    if (!pause(looks)) continue;
    for (const Message& message : messages) {
      if (!comm.board->is_gone(message.task->root)) continue;
      // What the peer did before it went still counts.
      const bool is_empty = message.box->sent == message.box->taken;
      if (is_empty != message.is_send()) remote_error(comm, message.task->root);
    }
  }
}

}  // namespace fake_nccl
