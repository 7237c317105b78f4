// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/async_group.h"
#include "c10d/batch.h"
#include "c10d/buffer.h"
#include "c10d/call.h"
#include "c10d/capability.h"
#include "c10d/collective.h"
#include "c10d/store.h"
#include "c10d/work.h"

namespace c10d { inline namespace v0 {

struct PlanReport;
namespace detail {
struct GroupState;
}

// A set of ranks that call collectives together: PyTorch's ProcessGroup, MPI's communicator.
// init_process_group() makes the first group of a job; new_group() and split() make subgroups.
//
// Lifetime. This is a handle: copies are the same group, which ends with the last of them. A
// default-constructed or moved-from handle holds no group: every call but abort() and operator bool
// throws InvalidArgument.
//
// Order. All ranks call the collectives of a group in the same order. send() and recv() match by
// peer, tag and order. Groups are independent of each other: ranks may start async ops of two
// groups in different orders.
//
// Threads. One thread at a time may call a group: another one that calls it meanwhile gets
// concurrent_use. abort() and the const members may be called from any thread at any time.
//
// Blocking and async. An op of this class runs in the calling thread and returns when the result
// is in place. The same op of async() returns at once with a Work: see AsyncGroup.
//
// GPUs. An op on memory of a GPU (cuda.h) is enqueued on CallOptions::stream and returns; what
// follows on that stream sees its result. Its buffers must stay valid until the stream is past it.
// It may still fail after that: the next call of the group throws it. barrier() without a stream,
// and Work::wait() of an async op, return only when the ops before have succeeded on this rank. All
// ranks start the ops of all their groups on GPUs in one order, as NCCL asks. What is said below of
// results, of messages and of order is of host memory, unless it names GPUs.
//
// CUDA graphs. A call on a stream that is captured (cudaStreamBeginCapture) starts nothing: the op
// becomes part of the graph, and runs at each replay. All ranks capture the same calls in one
// order, and replay them in one order among their other ops. The calls are compared as they are
// captured: one that differs breaks the group, and so does a rank that has not made the call at its
// deadline. Work::wait(), Batch::submit() and barrier() return when that is known; a stream that
// waits for the Work joins the capture. A replay has no deadline and no record, and is compared
// with nothing. A reduction that supports() calls composed, and that runs on another stream than
// the last one of the group, or in another graph, waits for it only if the program has the stream
// wait. Destroy the graphs before the group: NCCL waits for them.
//
// Arguments. The output comes first, as in torch.distributed; MPI and NCCL name the input first.
//
// Notation. n is size(), k is a number of elements. A buffer of n k elements is n shards of k:
// shard r is the elements [r k, (r + 1) k). With counts, shard r has counts[r] elements and begins
// where shard r - 1 ends. In place means that input and output are the same memory, as each op
// describes. Buffers that overlap in any other way are refused. An input is never written, unless
// the op is in place.
//
// Errors of every op:
// - InvalidArgument: this rank's own arguments are wrong, or this object holds no group. It is
//   thrown before anything is sent, also by an async call. The group stays intact.
// - DistBackendError, code unsupported: this backend cannot do this op with this dtype, ReduceOp
//   and device (see supports()). Thrown as above. The group stays intact.
// - DistBackendError, code concurrent_use: another thread is inside a call. The group stays intact.
// - DistBackendError, code destroyed (after shutdown()) or forked_child (the group belongs to the
//   parent process).
// - DistBackendError, code mismatch: ranks made different calls. The message shows both.
// - DistBackendError, code peer_died or peer_left: a rank ended or left the group.
// - DistBackendError, code revoked: a rank called abort().
// - DistBackendError, code out_of_resources or backend_error: see the message.
// - DistNetworkError (link_lost) and DistStoreError (store_lost, store_limit): a connection broke.
// - DistTimeoutError, code timed_out: the deadline passed. The message names the ranks that did not
//   enter the call.
//
// From mismatch on, the failures break the group: every pending and later call on every rank fails
// with that first cause. Blocking calls throw it; async calls report it through Work::wait(). If no
// call, wait or callback of this rank got the failure of an async op, the end of the group logs it:
// see unobserved_failures(). The output of an op that failed may hold anything. docs/recovery.md
// says how to continue.
class C10D_API ProcessGroup {
 public:
  // Holds no group: operator bool is false.
  ProcessGroup() noexcept;
  // Another handle of the same group.
  ProcessGroup(const ProcessGroup& other) noexcept;
  // Takes over the group of `other`, which then holds none.
  ProcessGroup(ProcessGroup&& other) noexcept;
  // Gives up the group that was here, as the destructor does, for that of `other`.
  ProcessGroup& operator=(const ProcessGroup& other) noexcept;
  // The same; `other` then holds none.
  ProcessGroup& operator=(ProcessGroup&& other) noexcept;
  // With the last handle the group ends, as by shutdown() with a timeout of one second. Never
  // throws: problems are logged.
  ~ProcessGroup();
  // Whether this object holds a group. Also true for a group that is broken or shut down.
  explicit operator bool() const noexcept;

  // Rank of this process in the group, in [0, size()).
  int rank() const;
  // Number of ranks in the group.
  int size() const;
  // Name of the group, as errors and logs print it. The reference is valid as long as the group.
  const std::string& id() const;
  // Name of the backend: "native", "gloo", ... The reference is valid as long as the group.
  const std::string& backend() const;
  // What the backend says of itself, for people: library, version, transport.
  std::string description() const;
  // Whether its sums are added along the tree over the ranks: n ranks are the first L, the largest
  // power of two below n, and the others; each part is added in the same way, then the two sums.
  // Then the bits depend on nothing but the values and the number of ranks.
  bool reduces_along_rank_tree() const;
  // Which algorithm the backend takes for a call, and what time it expects. Empty options where the
  // backend has no choice. The answer is in c10d/spi/plan.h, for tools. Throws InvalidArgument for
  // an enum value that does not exist.
  PlanReport plan(const PlanQuery& query) const;
  // Rank, host and process id of every rank, by rank. Valid as long as the group.
  const std::vector<Member>& members() const;
  // The GPU of this rank, InitOptions::device; the CPU in a group without one.
  Device device() const;
  // A store that holds the keys of this group only. Valid as long as the group.
  Store& store() const;
  // The timeout of calls that give none of their own.
  Duration timeout() const;
  // Sets the timeout of later calls on this rank. Throws InvalidArgument unless it is positive. At
  // most one year counts.
  void set_timeout(Duration timeout) const;
  // Whether the backend can do an op with this dtype, ReduceOp and device, and if not, why not. The
  // answer depends on nothing but the query and the build. Throws InvalidArgument for an enum value
  // that does not exist.
  Support supports(const Query& query) const;
  // Number of collectives that this rank has called. Calls that were refused do not count.
  std::uint64_t sequence() const;
  // The first failure of the group, or null while it is not broken. The pointer is valid for the
  // lifetime of the group.
  const Failure* failure() const;

  // The async form of the ops.
  AsyncGroup async() const noexcept;

  // All-reduce in place: buffer[i] becomes the reduction over all ranks of buffer[i]. The same bits
  // on every rank.
  // Every rank passes the same count, dtype and ReduceOp, else mismatch. unsupported where the
  // ReduceOp makes no sense for the dtype: see why_unsupported().
  void all_reduce(View buffer, ReduceOp op = ReduceOp::sum, CallOptions options = {}) const;
  // The same with ReduceOp::sum.
  void all_reduce(View buffer, CallOptions options) const {
    all_reduce(buffer, ReduceOp::sum, options);
  }
  // All-reduce (MPI_Allreduce): output[i] is the reduction over all ranks of input[i]. The same
  // bits on every rank.
  // Every rank passes the same count, dtype and ReduceOp, else mismatch. In place: output is input.
  // Throws InvalidArgument unless output and input have the same count, dtype and device.
  void all_reduce(View output, ConstView input, ReduceOp op = ReduceOp::sum,
                  CallOptions options = {}) const;
  // The same with ReduceOp::sum.
  void all_reduce(View output, ConstView input, CallOptions options) const {
    all_reduce(output, input, ReduceOp::sum, options);
  }
  // All-reduce of one value: returns the reduction over all ranks, the same on every rank.
  // Every rank passes the same T and ReduceOp, else mismatch. unsupported where the ReduceOp makes
  // no sense for T: see why_unsupported().
  template <Element T>
  T all_reduce(T value, ReduceOp op = ReduceOp::sum, CallOptions options = {}) const {
    all_reduce(View(&value, 1), op, options);
    return value;
  }
  // Broadcast in place: buffer holds the root's elements on every rank.
  // Every rank passes the same count, dtype and root, else mismatch. Throws InvalidArgument unless
  // root is in [0, n).
  void broadcast(View buffer, int root, CallOptions options = {}) const;
  // Broadcast (MPI_Bcast): output holds a copy of the root's input on every rank, the root among
  // them.
  // Every rank passes an output of the same count and dtype and the same root, else mismatch. Ranks
  // other than the root may pass an empty input: it is ignored. In place on the root: output is
  // input. Throws InvalidArgument for a root out of [0, n), or on the root when output and input
  // differ in count, dtype or device.
  void broadcast(View output, ConstView input, int root, CallOptions options = {}) const;
  // All-gather (MPI_Allgather): shard r of output is the input of rank r, on every rank.
  // input has k elements, output n k; every rank passes the same k and dtype, else mismatch. In
  // place: input is this rank's shard of output. Throws InvalidArgument for other counts, for
  // different dtypes, or for any other overlap.
  void all_gather(View output, ConstView input, CallOptions options = {}) const;
  // All-gather with a count per rank (MPI_Allgatherv): shard r of output, counts[r] elements, is
  // the input of rank r, on every rank.
  // counts has n entries, of which any may be 0; input has counts[rank()] elements, output the sum
  // of counts, of one dtype. Else InvalidArgument, as for any overlap but in place: input is this
  // rank's shard of output. Ranks that pass different counts get mismatch.
  void all_gather_v(View output, ConstView input, const Counts& counts,
                    CallOptions options = {}) const;
  // Reduce-scatter (MPI_Reduce_scatter_block): output on rank r is the reduction over all ranks of
  // shard r of their inputs.
  // input has n k elements, output k; every rank passes the same k, dtype and ReduceOp, else
  // mismatch. In place: output is this rank's shard of input. Throws InvalidArgument for other
  // counts, for different dtypes, or for any other overlap.
  void reduce_scatter(View output, ConstView input, ReduceOp op = ReduceOp::sum,
                      CallOptions options = {}) const;
  // The same with ReduceOp::sum.
  void reduce_scatter(View output, ConstView input, CallOptions options) const {
    reduce_scatter(output, input, ReduceOp::sum, options);
  }
  // Reduce-scatter with a count per rank (MPI_Reduce_scatter): output on rank r, counts[r]
  // elements, is the reduction over all ranks of shard r of their inputs.
  // counts has n entries, of which any may be 0; output has counts[rank()] elements, input the sum
  // of counts, of one dtype. Else InvalidArgument, as for any overlap but in place: output is this
  // rank's shard of input. Ranks that pass different counts or ReduceOps get mismatch.
  void reduce_scatter_v(View output, ConstView input, const Counts& counts,
                        ReduceOp op = ReduceOp::sum, CallOptions options = {}) const;
  // The same with ReduceOp::sum.
  void reduce_scatter_v(View output, ConstView input, const Counts& counts,
                        CallOptions options) const {
    reduce_scatter_v(output, input, counts, ReduceOp::sum, options);
  }
  // Reduce (MPI_Reduce): on the root, output[i] is the reduction over all ranks of input[i].
  // Every rank passes an input of the same count and dtype, the same root and ReduceOp, else
  // mismatch. Ranks other than the root may pass an empty output: it is ignored. In place on the
  // root: output is input. Throws InvalidArgument for a root out of [0, n), or on the root when
  // output and input differ in count, dtype or device.
  void reduce(View output, ConstView input, int root, ReduceOp op = ReduceOp::sum,
              CallOptions options = {}) const;
  // The same with ReduceOp::sum.
  void reduce(View output, ConstView input, int root, CallOptions options) const {
    reduce(output, input, root, ReduceOp::sum, options);
  }
  // Scan in place: buffer[i] on rank r becomes the reduction over ranks 0 to r of buffer[i].
  // Every rank passes the same count, dtype and ReduceOp, else mismatch. unsupported for avg, and
  // where the ReduceOp makes no sense for the dtype: see why_unsupported().
  void scan(View buffer, ReduceOp op = ReduceOp::sum, CallOptions options = {}) const;
  // The same with ReduceOp::sum.
  void scan(View buffer, CallOptions options) const { scan(buffer, ReduceOp::sum, options); }
  // Scan (MPI_Scan): output[i] on rank r is the reduction over ranks 0 to r of input[i]. Where
  // reduces_along_rank_tree(), it has the bits that an all_reduce of these r + 1 ranks gives.
  // Every rank passes the same count, dtype and ReduceOp, else mismatch. unsupported as above. In
  // place: output is input. Throws InvalidArgument unless output and input have the same count,
  // dtype and device.
  void scan(View output, ConstView input, ReduceOp op = ReduceOp::sum,
            CallOptions options = {}) const;
  // The same with ReduceOp::sum.
  void scan(View output, ConstView input, CallOptions options) const {
    scan(output, input, ReduceOp::sum, options);
  }
  // Exclusive scan in place: buffer[i] on rank r becomes the reduction over ranks 0 to r - 1 of
  // buffer[i]. On rank 0, which has no ranks before it, the buffer keeps its elements.
  // Every rank passes the same count, dtype and ReduceOp, else mismatch. unsupported as for scan().
  void exscan(View buffer, ReduceOp op = ReduceOp::sum, CallOptions options = {}) const;
  // The same with ReduceOp::sum.
  void exscan(View buffer, CallOptions options) const { exscan(buffer, ReduceOp::sum, options); }
  // Exclusive scan (MPI_Exscan): output[i] on rank r is the reduction over ranks 0 to r - 1 of
  // input[i], with the bits that scan() gives rank r - 1. The output of rank 0 is not written, and
  // keeps its elements.
  // Every rank, rank 0 too, passes an output and an input of the same count, dtype and device, else
  // InvalidArgument; the same count, dtype and ReduceOp on every rank, else mismatch. unsupported
  // as for scan(). In place: output is input.
  void exscan(View output, ConstView input, ReduceOp op = ReduceOp::sum,
              CallOptions options = {}) const;
  // The same with ReduceOp::sum.
  void exscan(View output, ConstView input, CallOptions options) const {
    exscan(output, input, ReduceOp::sum, options);
  }
  // Gather (MPI_Gather): on the root, shard r of output is the input of rank r.
  // input has k elements on every rank; every rank passes the same k, dtype and root, else
  // mismatch. The root's output has n k elements, else InvalidArgument; ranks other than the root
  // may pass an empty one: it is ignored. In place on the root: its input is its own shard of
  // output. Throws InvalidArgument for a root out of [0, n).
  void gather(View output, ConstView input, int root, CallOptions options = {}) const;
  // Gather with a count per rank (MPI_Gatherv): on the root, shard r of output, counts[r] elements,
  // is the input of rank r.
  // Every rank passes all n counts, of which any may be 0; input has counts[rank()] elements, the
  // root's output the sum of counts. Else InvalidArgument, as for a root out of [0, n). Ranks other
  // than the root may pass an empty output: it is ignored. In place on the root: its input is its
  // own shard of output. Ranks that pass different counts or roots get mismatch.
  void gather_v(View output, ConstView input, const Counts& counts, int root,
                CallOptions options = {}) const;
  // Scatter (MPI_Scatter): output on rank r is shard r of the root's input.
  // output has k elements on every rank; every rank passes the same k, dtype and root, else
  // mismatch. The root's input has n k elements, else InvalidArgument; ranks other than the root
  // may pass an empty one: it is ignored. In place on the root: its output is its own shard of
  // input. Throws InvalidArgument for a root out of [0, n).
  void scatter(View output, ConstView input, int root, CallOptions options = {}) const;
  // Scatter with a count per rank (MPI_Scatterv): output on rank r is shard r, counts[r] elements,
  // of the root's input.
  // Every rank passes all n counts, of which any may be 0; output has counts[rank()] elements, the
  // root's input the sum of counts. Else InvalidArgument, as for a root out of [0, n). Ranks other
  // than the root may pass an empty input: it is ignored. In place on the root: its output is its
  // own shard of input. Ranks that pass different counts or roots get mismatch.
  void scatter_v(View output, ConstView input, const Counts& counts, int root,
                 CallOptions options = {}) const;
  // All-to-all (MPI_Alltoall): shard s of output on rank r is shard r of the input of rank s.
  // input and output both have n k elements; every rank passes the same k and dtype, else mismatch.
  // Never in place. Throws InvalidArgument for different counts or dtypes, a count that is no
  // multiple of n, or any overlap.
  void all_to_all(View output, ConstView input, CallOptions options = {}) const;
  // All-to-all with a count per pair of ranks (MPI_Alltoallv): this rank sends input_counts[r]
  // elements, shard r of input, to rank r; shard s of output, output_counts[s] elements, is what
  // rank s sent to this rank.
  // Both have n entries; 0 is allowed. output_counts[s] here equals input_counts[rank()] on rank s,
  // else mismatch. Never in place. Throws InvalidArgument unless input and output have the sums of
  // their counts, and this rank sends itself as many elements as it expects of itself.
  void all_to_all_v(View output, ConstView input, const Counts& output_counts,
                    const Counts& input_counts, CallOptions options = {}) const;
  // Barrier (MPI_Barrier): returns once every rank of the group has called it. Moves no data, and
  // has its place among the collectives of the group: every rank calls them in the same order. With
  // options.stream it is an op on that stream, and returns at once.
  // A rank that does not arrive is a DistTimeoutError that names it: see also monitored_barrier().
  void barrier(CallOptions options = {}) const;
  // Sends input to `peer`. Returns when input may be used again. send() may or may not block until
  // the receive is posted; do not rely on either. Where both ranks send first, use isend() or
  // sendrecv().
  // Messages from one rank to another with the same tag arrive in the order in which they were
  // sent. Throws InvalidArgument unless peer is in [0, n).
  void send(ConstView input, int peer, std::uint32_t tag = 0, CallOptions options = {}) const;
  // The same with tag 0.
  void send(ConstView input, int peer, CallOptions options) const { send(input, peer, 0, options); }
  // Receives into output the next message from `peer` with this tag. `peer` may be kAnySource.
  // Returns the sender and the number of elements.
  // The message must have the dtype of output, else mismatch. It may be shorter than output, whose
  // other elements keep their values; a longer one is a mismatch. Throws InvalidArgument unless
  // peer is in [0, n) or kAnySource.
  Received recv(View output, int peer, std::uint32_t tag = 0, CallOptions options = {}) const;
  // The same with tag 0.
  Received recv(View output, int peer, CallOptions options) const {
    return recv(output, peer, 0, options);
  }
  // Waits for a message from `peer` with this tag, and says who sent it and how many elements it
  // has (MPI_Probe). The next recv() of that source and tag takes it. `peer` may be kAnySource.
  // What an earlier irecv() waits for is not seen. Throws InvalidArgument as recv() does;
  // unsupported, with the group intact, on a backend without probe, such as gloo. If the
  // deadline passes it throws DistTimeoutError, and the group stays intact.
  Received probe(int peer, std::uint32_t tag = 0, CallOptions options = {}) const;
  // The same without waiting (MPI_Iprobe): nothing if there is no such message now.
  std::optional<Received> iprobe(int peer, std::uint32_t tag = 0) const;
  // Sends input to rank `to` and receives into output from rank `from` at the same time, with the
  // same tag (MPI_Sendrecv). Ranks that all call it, in a ring say, do not wait for each other in
  // a circle. input and output may differ in count and dtype. The result is that of recv(); throws
  // what send() and recv() throw. A wrong argument is found before anything is sent.
  Received sendrecv(ConstView input, int to, View output, int from, std::uint32_t tag = 0,
                    CallOptions options = {}) const;
  // async().send(), by the name that MPI and PyTorch give it.
  Work isend(ConstView input, int peer, std::uint32_t tag = 0, CallOptions options = {}) const;
  // async().recv(), by the name that MPI and PyTorch give it.
  Work irecv(View output, int peer, std::uint32_t tag = 0, CallOptions options = {}) const;

  // Runs an op that is given as a value: the form in which tools and traces hold ops. Same contract
  // as the method of that op; the result is that of recv().
  Received submit(const Op& op, CallOptions options = {}) const;

  // A batch of ops of this group that start together and complete together: see Batch.
  Batch batch(CallOptions options = {}) const;

  // Blocking barrier for debugging: on a timeout, every rank's error names all ranks that did not
  // come. `timeout` is that of the group where none is given. It uses no op of the backend. Throws
  // what barrier() throws.
  void monitored_barrier(std::optional<Duration> timeout = {}) const;

  // Allocates memory for `count` elements of T on every rank: aligned to 4096 bytes (on a GPU 256),
  // zeroed, and shared between the ranks where the backend can do that (see Buffer). Ops of
  // `native` on such memory copy less.
  // `device` is the CPU or device().
  // Collective: every rank calls it with the same count and kind of device. A rank that does not
  // arrive is named by a DistTimeoutError, which breaks this group. Throws InvalidArgument for a
  // size that no memory can have, DistBackendError (out_of_resources) where there is too little
  // memory.
  template <Element T>
  Buffer<T> allocate(std::size_t count, Device device = {}) const {
    return Buffer<T>(allocate_bytes(checked_bytes(count, sizeof(T)), device));
  }

  // Makes a group of the given ranks of this group. ranks[i] gets rank i in the new group. Only
  // these ranks call it, all with the same ranks in the same order and the same `name`. The new
  // group begins with the timeout of this one.
  // Throws InvalidArgument for a rank out of [0, n), a rank that is given twice, or when this rank
  // is not among them. Throws DistTimeoutError that names the ranks that did not arrive; this group
  // stays intact, and they may try again. If members wait in different new_group() calls, all of
  // them throw mismatch and this group is broken.
  ProcessGroup new_group(std::span<const int> ranks, std::string_view name = {}) const;
  // The same with a list: group.new_group({0, 2}).
  ProcessGroup new_group(std::initializer_list<int> ranks, std::string_view name = {}) const {
    return new_group(std::span(ranks.begin(), ranks.size()), name);
  }
  // The same with any other range of integers.
  template <class R>
  requires std::integral<std::remove_cvref_t<decltype(*std::begin(std::declval<const R&>()))>>
      ProcessGroup new_group(const R& ranks, std::string_view name = {})
  const {
    return new_group(std::span<const int>(std::vector<int>(std::begin(ranks), std::end(ranks))),
                     name);
  }
  // Splits the group (MPI_Comm_split): one new group for each color. Its ranks are ordered by key,
  // then by their rank here. A rank without a color gets a ProcessGroup that holds no group.
  // Collective: every rank calls it. A rank that does not arrive is named by a DistTimeoutError,
  // which breaks this group.
  ProcessGroup split(std::optional<int> color, int key = 0) const;
  // Splits the group by host (MPI_Comm_split_type, MPI_COMM_TYPE_SHARED): the ranks of each host
  // become one group, in the order of their ranks here. Collective, as split().
  ProcessGroup split_by_host() const;

  // Breaks the group: pending and later calls fail with `revoked` on every rank, and the message
  // shows `why`. One rank calls it, from any thread. It returns within 100 ms and never throws. A
  // second abort() does nothing; neither does one after shutdown().
  void abort(std::string_view why = "abort() was called") const noexcept;
  // Leaves the group in good order: waits until the pending ops of this rank are done, then tells
  // the peers that it left. If ops are still running after `timeout`, they fail with `destroyed`
  // and the group breaks. Every later call throws `destroyed`. A second shutdown() does nothing.
  void shutdown(Duration timeout = std::chrono::seconds(30)) const;

 private:
  friend struct detail::GroupState;
  friend class AsyncGroup;
  explicit ProcessGroup(std::shared_ptr<detail::GroupState> state);
  static std::size_t checked_bytes(std::size_t count, std::size_t element);
  Allocation allocate_bytes(std::size_t bytes, Device device) const;
  std::shared_ptr<detail::GroupState> state_;
};

}}  // namespace c10d::v0
