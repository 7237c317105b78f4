// SPDX-License-Identifier: BSD-3-Clause
#include "python/torch/src/group.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>

#include "python/torch/src/failures.h"
#include "python/torch/src/store.h"
#include "python/torch/src/threads.h"

namespace c10d_torch {
namespace {

// The groups of this process, for the end of the interpreter.
std::mutex groups_mutex;
std::set<Group*> groups;

std::shared_ptr<Op> op_with(Tensors results) {
  auto op = std::make_shared<Op>();
  op->results = std::move(results);
  return op;
}

// What an op reads.
View input(Op& op, const at::Tensor& tensor, Use use = Use::moved) {
  op.buffers.push_back(plain(tensor));
  return view_of(op.buffers.back(), use);
}

// What an op writes.
View output(Op& op, const at::Tensor& tensor, Use use = Use::moved) {
  if (is_plain(tensor)) {
    op.buffers.push_back(tensor);
  } else {
    op.buffers.push_back(empty_like(tensor, tensor.numel()));
    op.copies.emplace_back(op.buffers.back(), Tensors{tensor});
  }
  return view_of(op.buffers.back(), use);
}

// What an op reads and writes.
View in_place(Op& op, const at::Tensor& tensor, Use use = Use::moved) {
  const View view = output(op, tensor, use);
  if (!is_plain(tensor)) pack({tensor}, op.buffers.back());
  return view;
}

View inputs(Op& op, const Tensors& tensors, Use use = Use::moved) {
  op.buffers.push_back(empty_like(tensors[0], total(tensors)));
  pack(tensors, op.buffers.back());
  return view_of(op.buffers.back(), use);
}

View outputs(Op& op, const Tensors& tensors, Use use = Use::moved) {
  op.buffers.push_back(empty_like(tensors[0], total(tensors)));
  op.copies.emplace_back(op.buffers.back(), tensors);
  return view_of(op.buffers.back(), use);
}

// The two tensors of an op; `to` and `from` say which they are.
void check_sides(const at::Tensor& output, const at::Tensor& input, const char* to,
                 const char* from) {
  check_tensor(output, to);
  check_tensor(input, from);
  if (output.scalar_type() != input.scalar_type())
    throw Invalid(std::string("the output is of ") + c10::toString(output.scalar_type()) +
                  ", the input of " + c10::toString(input.scalar_type()) +
                  "; make one of them .to() the other's dtype");
}

void check_elements(const char* what, std::int64_t elements, std::int64_t needed) {
  if (elements != needed)
    throw Invalid(std::string(what) + " has " + std::to_string(elements) + " elements, and " +
                  std::to_string(needed) + " are needed");
}

struct Sides {
  View to, from;
};

// Of an all_gather into one tensor.
Sides gathered(Op& op, const at::Tensor& to, const at::Tensor& from, int ranks) {
  check_sides(to, from, "the output of all_gather", "the input of all_gather");
  check_elements("the output of all_gather", to.numel(), from.numel() * ranks);
  op.results.push_back(to);
  return {output(op, to), input(op, from)};
}

// Of a reduce_scatter of one tensor.
Sides reduced_and_scattered(Op& op, const at::Tensor& to, const at::Tensor& from, int ranks) {
  check_sides(to, from, "the output of reduce_scatter", "the input of reduce_scatter");
  check_elements("the input of reduce_scatter", from.numel(), to.numel() * ranks);
  op.results.push_back(to);
  return {output(op, to, Use::reduced), input(op, from, Use::reduced)};
}

// The list that the root of a gather or scatter gives, of one tensor like `like` for each rank;
// null on the other ranks. It has the `side` of the op: outputs or inputs.
const Tensors* list_of_root(std::vector<Tensors>& lists, const at::Tensor& like, int ranks,
                            bool is_root, const std::string& op, const std::string& side) {
  if (!is_root) {
    if (!lists.empty()) throw Invalid(op + ": only the root has " + side + "s");
    return nullptr;
  }
  const Tensors& list = only(lists, op.c_str());
  check_list(list, static_cast<std::size_t>(ranks), like, op.c_str());
  const std::string what = "an " + side + " of " + op;
  for (const at::Tensor& one : list) check_elements(what.c_str(), one.numel(), like.numel());
  return &list;
}

void scale(std::vector<std::size_t>& counts, std::size_t each) {
  for (std::size_t& count : counts) count *= each;
}

c10d_reduce_op reduction(const ::c10d::ReduceOp& op, c10d_call_options& options) {
  if (op.op_ == ::c10d::ReduceOp::PREMUL_SUM) {
    const auto* const factor =
        dynamic_cast<const ::c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
    if (factor == nullptr) throw Invalid("PREMUL_SUM has no factor");
    options.premul_factor = factor->double_factor;
#if TORCH_VERSION_MAJOR >= 2
    const at::Tensor& tensor = factor->tensor_factor;
    if (tensor.defined()) options.premul_factor = tensor.item<double>();
#else
    if (!factor->tensor_factors.empty())
      throw Unsupported("the factor of PREMUL_SUM is a number, not a tensor");
#endif
  }
  return static_cast<c10d_reduce_op>(op.op_);
}
static_assert(static_cast<int>(::c10d::ReduceOp::SUM) == C10D_SUM &&
              static_cast<int>(::c10d::ReduceOp::AVG) == C10D_AVG &&
              static_cast<int>(::c10d::ReduceOp::PRODUCT) == C10D_PROD &&
              static_cast<int>(::c10d::ReduceOp::MIN) == C10D_MIN &&
              static_cast<int>(::c10d::ReduceOp::MAX) == C10D_MAX &&
              static_cast<int>(::c10d::ReduceOp::BAND) == C10D_BAND &&
              static_cast<int>(::c10d::ReduceOp::BOR) == C10D_BOR &&
              static_cast<int>(::c10d::ReduceOp::BXOR) == C10D_BXOR &&
              static_cast<int>(::c10d::ReduceOp::PREMUL_SUM) == C10D_PREMUL_SUM);

std::uint32_t tag_of(int tag) {
  if (tag < 0) throw Invalid("the tag is " + std::to_string(tag) + "; tags start at 0");
  return static_cast<std::uint32_t>(tag);
}

// "1, 2" of "2 of 3 ranks did not reach monitored_barrier: rank 1 (host a, pid 7), rank 2 (...)".
std::string missing_ranks(std::string_view message) {
  constexpr std::string_view kRank = "rank ";
  std::string ranks;
  for (auto at = message.find(": rank "); at != message.npos; at = message.find(", rank ", at)) {
    at += 2 + kRank.size();
    const auto end = message.find_first_not_of("0123456789", at);
    if (end == message.npos || message.substr(end, 2) != " (") break;
    ranks += (ranks.empty() ? "" : ", ") + std::string(message.substr(at, end - at));
  }
  return ranks;
}

std::int64_t nanoseconds(Milliseconds timeout) {
  return timeout <= Milliseconds(0) ? 0 : std::chrono::nanoseconds(timeout).count();
}

}  // namespace

Group::Group(StorePtr store, int rank, int size, c10::intrusive_ptr<GroupOptions> options,
             const std::string& name)
    : Base(rank, size), store_(std::move(store)), options_(std::move(options)) {
  std::string label = "torch-" + name;
  std::replace(label.begin(), label.end(), '/', '-');  // which a name of ours cannot hold
  c10d_init_options init = C10D_INIT_OPTIONS_INIT;
  init.backend = options_->below.empty() ? nullptr : options_->below.c_str();
  init.store = store_.get();
  init.rank = rank;
  init.size = size;
  init.timeout_ns = nanoseconds(options_->timeout);
  init.name = label.c_str();
  check(c10d_init_process_group(&init, &group_));
  is_native_ = std::string_view(c10d_group_backend(group_)) == "native";
  const std::lock_guard lock(groups_mutex);
  groups.insert(this);
}

Group::~Group() {
  {
    const std::lock_guard lock(groups_mutex);
    groups.erase(this);
  }
  c10d_batch_free(batch_);
  c10d_group_free(group_);
}

void Group::leave(Milliseconds timeout) {
  // A group that is broken or has ended has nobody to wait for.
  if (c10d_group_failure(group_) == C10D_OK) c10d_group_shutdown(group_, nanoseconds(timeout));
}

void Group::leave_all() {
  using std::chrono::steady_clock;
  const auto end = steady_clock::now() + Milliseconds(1000);
  {
    const std::lock_guard lock(groups_mutex);
    for (Group* const group : groups)
      group->leave(std::max(Milliseconds(1),
                            std::chrono::duration_cast<Milliseconds>(end - steady_clock::now())));
  }
  close_threads(Milliseconds(5000));
}

std::uint64_t Group::getSequenceNumberForGroup() { return c10d_group_sequence(group_); }

template <class Start>
WorkPtr Group::submit(OpType type, std::shared_ptr<Op> op, Milliseconds timeout, Start start) {
  c10d_call_options options = C10D_CALL_OPTIONS_INIT;
  options.timeout_ns = nanoseconds(timeout);
  op->keeps_buffers = !is_native_;
  const std::lock_guard lock(mutex_);
  if (batch_ != nullptr) {
    options.batch = batch_;
    try {
      check(start(options, static_cast<c10d_work**>(nullptr)));
    } catch (...) {  // it may hold buffers of this op: none of its ops is started
      c10d_batch_free(std::exchange(batch_, nullptr));
      batched_ = nullptr;
      throw;
    }
    const auto move_all = [](auto& from, auto& to) {
      std::move(from.begin(), from.end(), std::back_inserter(to));
    };
    move_all(op->buffers, batched_->buffers);
    move_all(op->counts, batched_->counts);
    move_all(op->copies, batched_->copies);
    move_all(op->results, batched_->results);
    op = batched_;
  } else {
    check(start(options, &op->handle));
  }
  return c10::make_intrusive<Work>(rank_, type, std::move(op), c10d_group_sequence(group_));
}

template <class Each>
WorkPtr Group::coalesced(OpType type, std::size_t count, Each each) {
  if (count == 0) throw Invalid("the list of tensors is empty");
  auto op = std::make_shared<Op>();
  return submit(type, op, Milliseconds(0), [&](c10d_call_options& options, c10d_work** work) {
    c10d_batch* batch = options.batch;
    if (batch == nullptr) check(c10d_batch_create(group_, nullptr, &batch));
    const std::unique_ptr<c10d_batch, void (*)(c10d_batch*)> own(
        options.batch == nullptr ? batch : nullptr, c10d_batch_free);
    options.batch = batch;
    for (std::size_t i = 0; i < count; ++i) check(each(i, *op, options));
    return own ? c10d_batch_submit(batch, work) : C10D_OK;
  });
}

WorkPtr Group::broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& opts) {
  const at::Tensor& tensor = only(tensors, "broadcast");
  auto op = op_with(tensors);
  const View data = in_place(*op, tensor);
  return submit(OpType::BROADCAST, op, opts.timeout, [&](auto& options, auto* work) {
    return c10d_broadcast(group_, data.data, data.data, data.count, data.dtype,
                          static_cast<int>(opts.rootRank), &options, work);
  });
}

WorkPtr Group::allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& opts) {
  if (tensors.size() == 1 && tensors[0].layout() == at::kSparse)
    return allreduce_sparse_tensor(tensors[0], opts);
  const at::Tensor& tensor = only(tensors, "all_reduce");
  auto op = op_with(tensors);
  const View data = in_place(*op, tensor, Use::reduced);
  return submit(OpType::ALLREDUCE, op, opts.timeout, [&](auto& options, auto* work) {
    return c10d_all_reduce(group_, data.data, data.data, data.count, data.dtype,
                           reduction(opts.reduceOp, options), &options, work);
  });
}

// Gathers indices and values, and adds them up in the same order on every rank.
WorkPtr Group::allreduce_sparse_tensor(at::Tensor& tensor, const ::c10d::AllreduceOptions& opts) {
  if (!tensor.device().is_cpu()) check_tensor(tensor.values(), "all_reduce");
  if (opts.reduceOp.op_ != ::c10d::ReduceOp::SUM)
    throw Unsupported("sparse tensors can be reduced by SUM only");
  const at::NoGradGuard no_grad;
  const at::Tensor mine = tensor.coalesce();
  const at::Tensor indices = mine.indices().t().contiguous();
  const at::Tensor values = mine.values().contiguous();
  const auto ranks = static_cast<std::int64_t>(size_);
  const auto gather = [&](const at::Tensor& input, const std::vector<std::size_t>& counts) {
    const auto all = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    Tensors outputs{empty_like(input, static_cast<std::int64_t>(all))};
    const View from = view_of(input, Use::reduced), to = view_of(outputs[0], Use::reduced);
    submit(OpType::ALLREDUCE, op_with(outputs), opts.timeout, [&](auto& options, auto* work) {
      return c10d_all_gather_v(group_, to.data, from.data, counts.data(), from.dtype, &options,
                               work);
    })->wait(::kNoTimeout);
    return outputs[0];
  };
  const auto scaled = [&](const at::Tensor& numbers, std::int64_t each) {
    std::vector<std::size_t> counts;
    for (std::int64_t i = 0; i < ranks; ++i)
      counts.push_back(static_cast<std::size_t>(numbers[i].item<std::int64_t>() * each));
    return counts;
  };
  const at::Tensor shape = at::tensor(mine.sizes(), at::kLong);
  const auto of_each = [&](std::int64_t count) {
    return std::vector<std::size_t>(static_cast<std::size_t>(ranks),
                                    static_cast<std::size_t>(count));
  };
  if (batch_ != nullptr) throw Unsupported("a sparse all_reduce cannot be coalesced");
  const at::Tensor shapes = gather(shape, of_each(shape.numel())).view({ranks, -1});
  for (std::int64_t i = 0; i < ranks; ++i)
    if (!shapes[i].equal(shape))
      throw Invalid("rank " + std::to_string(i) + " has a sparse tensor of another shape");
  const at::Tensor numbers = gather(at::tensor({indices.size(0)}, at::kLong), of_each(1));
  const std::int64_t per_value = values.numel() / std::max<std::int64_t>(values.size(0), 1);
  std::int64_t dense = 1;
  for (std::int64_t i = mine.sparse_dim(); i < mine.dim(); ++i) dense *= mine.size(i);
  TORCH_INTERNAL_ASSERT(values.size(0) == 0 || per_value == dense);
  const at::Tensor all_indices =
      gather(indices, scaled(numbers, indices.size(1))).view({-1, indices.size(1)});
  auto value_sizes = values.sizes().vec();
  value_sizes[0] = all_indices.size(0);
  const at::Tensor all_values = gather(values, scaled(numbers, dense)).view(value_sizes);
  tensor.copy_(
      at::sparse_coo_tensor(all_indices.t(), all_values, mine.sizes(), mine.options()).coalesce());
  auto op = op_with({tensor});
  op->finish(nullptr);
  return c10::make_intrusive<Work>(rank_, OpType::ALLREDUCE, std::move(op),
                                   c10d_group_sequence(group_));
}

WorkPtr Group::allreduce_coalesced(Tensors& tensors,
                                   const ::c10d::AllreduceCoalescedOptions& opts) {
  if (!tensors.empty()) check_list(tensors, tensors.size(), tensors[0], "all_reduce_coalesced");
  return coalesced(OpType::ALLREDUCE_COALESCED, tensors.size(), [&](auto i, Op& op, auto& options) {
    op.results.push_back(tensors[i]);
    const View data = in_place(op, tensors[i], Use::reduced);
    return c10d_all_reduce(group_, data.data, data.data, data.count, data.dtype,
                           reduction(opts.reduceOp, options), &options, nullptr);
  });
}

WorkPtr Group::reduce(Tensors& tensors, const ::c10d::ReduceOptions& opts) {
  const at::Tensor& tensor = only(tensors, "reduce");
  auto op = op_with(tensors);
  const bool is_root = opts.rootRank == rank_;
  const View data =
      is_root ? in_place(*op, tensor, Use::reduced) : input(*op, tensor, Use::reduced);
  return submit(OpType::REDUCE, op, opts.timeout, [&](auto& options, auto* work) {
    return c10d_reduce(group_, is_root ? data.data : nullptr, data.data, data.count, data.dtype,
                       reduction(opts.reduceOp, options), static_cast<int>(opts.rootRank), &options,
                       work);
  });
}

WorkPtr Group::allgather(std::vector<Tensors>& lists, Tensors& tensors,
                         const ::c10d::AllgatherOptions& opts) {
  const at::Tensor& tensor = only(tensors, "all_gather");
  const Tensors& list = only(lists, "all_gather");
  check_list(list, static_cast<std::size_t>(size_), tensor, "all_gather");
  auto op = op_with(list);
  auto& counts = op->counts.emplace_back(counts_of(list));
  check_elements("the input of all_gather", tensor.numel(),
                 static_cast<std::int64_t>(counts[static_cast<std::size_t>(rank_)]));
  const View from = input(*op, tensor), to = outputs(*op, list);
  scale(counts, from.each);
  return submit(OpType::ALLGATHER, op, opts.timeout, [&](auto& options, auto* work) {
    return all_same(counts)
               ? c10d_all_gather(group_, to.data, from.data, from.count, from.dtype, &options, work)
               : c10d_all_gather_v(group_, to.data, from.data, counts.data(), from.dtype, &options,
                                   work);
  });
}

WorkPtr Group::_allgather_base(at::Tensor& to_tensor, at::Tensor& from_tensor,
                               const ::c10d::AllgatherOptions& opts) {
  auto op = op_with({});
  const Sides sides = gathered(*op, to_tensor, from_tensor, size_);
  const View to = sides.to, from = sides.from;
  return submit(OpType::_ALLGATHER_BASE, op, opts.timeout, [&](auto& options, auto* work) {
    return c10d_all_gather(group_, to.data, from.data, from.count, from.dtype, &options, work);
  });
}

// One all_gather for each tensor; lists[r] is what comes from rank r.
WorkPtr Group::allgather_coalesced(std::vector<Tensors>& lists, Tensors& tensors,
                                   const ::c10d::AllgatherOptions&) {
  if (lists.size() != static_cast<std::size_t>(size_))
    throw Invalid("all_gather_coalesced: a list of tensors is needed for each of " +
                  std::to_string(size_) + " ranks, here are " + std::to_string(lists.size()));
  for (const Tensors& list : lists)
    if (list.size() != tensors.size())
      throw Invalid("all_gather_coalesced: a list has " + std::to_string(list.size()) +
                    " tensors, and the input " + std::to_string(tensors.size()));
  return coalesced(OpType::ALLGATHER_COALESCED, tensors.size(), [&](auto i, Op& op, auto& options) {
    check_tensor(tensors[i], "all_gather_coalesced");
    Tensors list;
    for (const Tensors& of_rank : lists) list.push_back(of_rank[i]);
    check_list(list, lists.size(), tensors[i], "all_gather_coalesced");
    for (const at::Tensor& tensor : list)
      check_elements("an output of all_gather_coalesced", tensor.numel(), tensors[i].numel());
    std::copy(list.begin(), list.end(), std::back_inserter(op.results));
    const View from = input(op, tensors[i]), to = outputs(op, list);
    return c10d_all_gather(group_, to.data, from.data, from.count, from.dtype, &options, nullptr);
  });
}

WorkPtr Group::gather(std::vector<Tensors>& lists, Tensors& tensors,
                      const ::c10d::GatherOptions& opts) {
  const at::Tensor& tensor = only(tensors, "gather");
  auto op = op_with(lists.empty() ? Tensors() : lists[0]);
  View to;
  if (const Tensors* const list =
          list_of_root(lists, tensor, size_, opts.rootRank == rank_, "gather", "output"))
    to = outputs(*op, *list);
  const View from = input(*op, tensor);
  return submit(OpType::GATHER, op, opts.timeout, [&](auto& options, auto* work) {
    return c10d_gather(group_, to.data, from.data, from.count, from.dtype,
                       static_cast<int>(opts.rootRank), &options, work);
  });
}

WorkPtr Group::scatter(Tensors& tensors, std::vector<Tensors>& lists,
                       const ::c10d::ScatterOptions& opts) {
  const at::Tensor& tensor = only(tensors, "scatter");
  auto op = op_with(tensors);
  View from;
  if (const Tensors* const list =
          list_of_root(lists, tensor, size_, opts.rootRank == rank_, "scatter", "input"))
    from = inputs(*op, *list);
  const View to = output(*op, tensor);
  return submit(OpType::SCATTER, op, opts.timeout, [&](auto& options, auto* work) {
    return c10d_scatter(group_, to.data, from.data, to.count, to.dtype,
                        static_cast<int>(opts.rootRank), &options, work);
  });
}

WorkPtr Group::reduce_scatter(Tensors& tensors, std::vector<Tensors>& lists,
                              const ::c10d::ReduceScatterOptions& opts) {
  const at::Tensor& tensor = only(tensors, "reduce_scatter");
  const Tensors& list = only(lists, "reduce_scatter");
  check_list(list, static_cast<std::size_t>(size_), tensor, "reduce_scatter");
  auto op = op_with(tensors);
  const auto& counts = op->counts.emplace_back(counts_of(list));
  check_elements("the output of reduce_scatter", tensor.numel(),
                 static_cast<std::int64_t>(counts[static_cast<std::size_t>(rank_)]));
  const View from = inputs(*op, list, Use::reduced), to = output(*op, tensor, Use::reduced);
  return submit(OpType::REDUCE_SCATTER, op, opts.timeout, [&](auto& options, auto* work) {
    const c10d_reduce_op how = reduction(opts.reduceOp, options);
    return all_same(counts) ? c10d_reduce_scatter(group_, to.data, from.data, to.count, to.dtype,
                                                  how, &options, work)
                            : c10d_reduce_scatter_v(group_, to.data, from.data, counts.data(),
                                                    to.dtype, how, &options, work);
  });
}

WorkPtr Group::_reduce_scatter_base(at::Tensor& to_tensor, at::Tensor& from_tensor,
                                    const ::c10d::ReduceScatterOptions& opts) {
  auto op = op_with({});
  const Sides sides = reduced_and_scattered(*op, to_tensor, from_tensor, size_);
  const View to = sides.to, from = sides.from;
  return submit(OpType::_REDUCE_SCATTER_BASE, op, opts.timeout, [&](auto& options, auto* work) {
    return c10d_reduce_scatter(group_, to.data, from.data, to.count, to.dtype,
                               reduction(opts.reduceOp, options), &options, work);
  });
}

WorkPtr Group::alltoall_base(at::Tensor& to_tensor, at::Tensor& from_tensor,
                             std::vector<std::int64_t>& to_splits,
                             std::vector<std::int64_t>& from_splits,
                             const ::c10d::AllToAllOptions& opts) {
  check_sides(to_tensor, from_tensor, "the output of all_to_all", "the input of all_to_all");
  auto op = op_with({to_tensor});
  const View from = input(*op, from_tensor), to = output(*op, to_tensor);
  // Splits are rows: elements of the first dimension.
  const auto counts = [&](const at::Tensor& tensor, const std::vector<std::int64_t>& splits) {
    const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
    std::vector<std::int64_t> wanted = splits;
    if (splits.empty()) {
      if (rows % size_ != 0)
        throw Invalid("all_to_all: a tensor's first dimension is " + std::to_string(rows) +
                      ", which " + std::to_string(size_) +
                      " ranks do not divide (the tensor's dim 0 does not divide equally)");
      wanted.assign(static_cast<std::size_t>(size_), rows / size_);
    } else if (splits.size() != static_cast<std::size_t>(size_) ||
               std::accumulate(splits.begin(), splits.end(), std::int64_t{0}) != rows ||
               std::any_of(splits.begin(), splits.end(), [](auto split) { return split < 0; })) {
      throw Invalid("all_to_all: the split sizes must be " + std::to_string(size_) +
                    " numbers that add up to the first dimension, " + std::to_string(rows));
    }
    std::vector<std::size_t> elements;
    const std::int64_t row = rows == 0 ? 0 : tensor.numel() / rows;
    for (const std::int64_t split : wanted)
      elements.push_back(static_cast<std::size_t>(split * row) * from.each);
    return elements;
  };
  op->counts = {counts(to_tensor, to_splits), counts(from_tensor, from_splits)};
  const auto &to_counts = op->counts[0], &from_counts = op->counts[1];
  return submit(OpType::ALLTOALL_BASE, op, opts.timeout, [&](auto& options, auto* work) {
    return to_splits.empty() && from_splits.empty() && to.count == from.count
               ? c10d_all_to_all(group_, to.data, from.data, to_counts[0], from.dtype, &options,
                                 work)
               : c10d_all_to_all_v(group_, to.data, from.data, to_counts.data(), from_counts.data(),
                                   from.dtype, &options, work);
  });
}

WorkPtr Group::alltoall(Tensors& to_list, Tensors& from_list, const ::c10d::AllToAllOptions& opts) {
  const auto ranks = static_cast<std::size_t>(size_);
  if (from_list.empty()) throw Invalid("all_to_all: the list of inputs is empty");
  check_list(from_list, ranks, from_list[0], "all_to_all");
  check_list(to_list, ranks, from_list[0], "all_to_all");
  auto op = op_with(to_list);
  const View from = inputs(*op, from_list), to = outputs(*op, to_list);
  op->counts = {counts_of(to_list), counts_of(from_list)};
  auto &to_counts = op->counts[0], &from_counts = op->counts[1];
  scale(to_counts, to.each);
  scale(from_counts, from.each);
  return submit(OpType::ALLTOALL, op, opts.timeout, [&](auto& options, auto* work) {
    return c10d_all_to_all_v(group_, to.data, from.data, to_counts.data(), from_counts.data(),
                             from.dtype, &options, work);
  });
}

WorkPtr Group::barrier(const ::c10d::BarrierOptions& opts) {
  return submit(OpType::BARRIER, op_with({}), opts.timeout,
                [&](auto& options, auto* work) { return c10d_barrier(group_, &options, work); });
}

void Group::monitoredBarrier(const ::c10d::BarrierOptions& opts, bool wait_all_ranks) {
  const std::lock_guard lock(mutex_);
  const bool has_own = opts.timeout >= Milliseconds(0);
  const std::int64_t timeout =
      has_own ? std::max<std::int64_t>(std::chrono::nanoseconds(opts.timeout).count(), 1)
              : C10D_DEFAULT_TIMEOUT;
  if (c10d_monitored_barrier(group_, timeout) == C10D_OK) return;
  const c10d_failure& failure = *c10d_last_failure();
  if (failure.code != C10D_TIMED_OUT) check(failure.code);
  // As gloo says it, where rank 0 alone knows who is missing; our message, behind that, names all.
  const std::string me = "Rank " + std::to_string(rank_);
  if (rank_ != 0)
    throw Error(failure, me + " successfully reached monitoredBarrier, but received errors while "
                              "waiting for send/recv from rank 0. ");
  const auto limit = has_own ? opts.timeout : Milliseconds(c10d_group_timeout(group_) / 1000000);
  const std::string passed = std::to_string(limit.count()) + " ms";
  const std::string missing =
      wait_all_ranks ? missing_ranks(failure.message) : std::to_string(failure.rank);
  const char* const ranks = missing.find(',') == missing.npos ? "Rank " : "Ranks ";
  throw Error(failure, me + " timed out in monitoredBarrier after " + passed + ": " + ranks +
                           missing + " failed to pass monitoredBarrier in " + passed + ". ");
}

WorkPtr Group::send(Tensors& tensors, int to, int tag) {
  const at::Tensor& tensor = only(tensors, "send");
  auto op = op_with({});
  const View from = input(*op, tensor);
  const std::uint32_t known = tag_of(tag);
  return submit(OpType::SEND, op, Milliseconds(0), [&](auto& options, auto* work) {
    return c10d_send(group_, from.data, from.count, from.dtype, to, known, &options, work);
  });
}

WorkPtr Group::receive(Tensors& tensors, OpType type, int from, int tag) {
  const at::Tensor& tensor = only(tensors, "recv");
  auto op = op_with(tensors);
  // A shorter message leaves the other elements as they are.
  const View to = in_place(*op, tensor);
  const std::uint32_t known = tag_of(tag);
  return submit(type, op, Milliseconds(0), [&](auto& options, auto* work) {
    return c10d_recv(group_, to.data, to.count, to.dtype, from, known, &options, nullptr, work);
  });
}

WorkPtr Group::recv(Tensors& tensors, int from, int tag) {
  return receive(tensors, OpType::RECV, from, tag);
}

WorkPtr Group::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, OpType::RECVANYSOURCE, C10D_ANY_SOURCE, tag);
}

#if TORCH_VERSION_MAJOR >= 2
namespace {

void check_as_many(const char* op, const Tensors& outputs, const Tensors& inputs) {
  if (outputs.size() != inputs.size())
    throw Invalid(std::string(op) + ": " + std::to_string(outputs.size()) + " outputs for " +
                  std::to_string(inputs.size()) + " inputs");
}

}  // namespace

WorkPtr Group::allgather_into_tensor_coalesced(Tensors& to_list, Tensors& from_list,
                                               const ::c10d::AllgatherOptions&) {
  check_as_many("all_gather_into_tensor_coalesced", to_list, from_list);
  return coalesced(OpType::ALLGATHER_INTO_TENSOR_COALESCED, to_list.size(),
                   [&](auto i, Op& op, auto& options) {
                     const auto [to, from] = gathered(op, to_list[i], from_list[i], size_);
                     return c10d_all_gather(group_, to.data, from.data, from.count, from.dtype,
                                            &options, nullptr);
                   });
}

WorkPtr Group::reduce_scatter_tensor_coalesced(Tensors& to_list, Tensors& from_list,
                                               const ::c10d::ReduceScatterOptions& opts) {
  check_as_many("reduce_scatter_tensor_coalesced", to_list, from_list);
  return coalesced(
      OpType::REDUCE_SCATTER_TENSOR_COALESCED, to_list.size(), [&](auto i, Op& op, auto& options) {
        const auto [to, from] = reduced_and_scattered(op, to_list[i], from_list[i], size_);
        return c10d_reduce_scatter(group_, to.data, from.data, to.count, to.dtype,
                                   reduction(opts.reduceOp, options), &options, nullptr);
      });
}

void Group::startCoalescing() {
  const std::lock_guard lock(mutex_);
  // One that is left over never ended: an exception came between. None of its ops is started.
  c10d_batch_free(std::exchange(batch_, nullptr));
  check(c10d_batch_create(group_, nullptr, &batch_));
  batched_ = std::make_shared<Op>();
}

WorkPtr Group::endCoalescing() {
  const std::lock_guard lock(mutex_);
  if (batch_ == nullptr) throw Invalid("no ops of this group are being coalesced");
  const std::unique_ptr<c10d_batch, void (*)(c10d_batch*)> batch(std::exchange(batch_, nullptr),
                                                                 c10d_batch_free);
  const auto op = std::exchange(batched_, nullptr);
  op->keeps_buffers = !is_native_;
  check(c10d_batch_submit(batch.get(), &op->handle));
  return c10::make_intrusive<Work>(rank_, OpType::COALESCED, op, c10d_group_sequence(group_));
}
#endif

#ifdef C10D_BACKEND_HAS_HOOKS
c10::intrusive_ptr<Base::Options> Group::getBackendOptions() { return options_; }

void Group::setTimeout(Milliseconds timeout) {
  check(c10d_group_set_timeout(group_, nanoseconds(timeout)));
  options_->timeout = timeout;
}

c10::intrusive_ptr<Base> Group::split(const c10::intrusive_ptr<::c10d::Store>& store,
                                      const std::vector<int>& ranks,
                                      const c10::intrusive_ptr<Base::Options>& opts) {
  const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
  if (mine == ranks.end()) return nullptr;
  auto options = c10::make_intrusive<GroupOptions>(options_->below, opts->timeout);
  return c10::make_intrusive<Group>(store_over(store), static_cast<int>(mine - ranks.begin()),
                                    static_cast<int>(ranks.size()), std::move(options),
                                    opts->group_name);
}

// The ranks that are left meet in the store of this group.
c10::intrusive_ptr<Base> Group::shrink(const std::vector<std::int64_t>& excluded, int flags,
                                       const c10::intrusive_ptr<Base::Options>& opts) {
  std::string name = "shrunk-" + std::to_string(++shrinks_);
  std::vector<int> left;
  for (int rank = 0; rank < size_; ++rank) {
    if (std::find(excluded.begin(), excluded.end(), rank) == excluded.end()) {
      left.push_back(rank);
    } else {
      name += "-" + std::to_string(rank);
    }
  }
  const auto mine = std::find(left.begin(), left.end(), rank_);
  if (mine == left.end())
    throw Invalid("rank " + std::to_string(rank_) + " is one of those to exclude; others call it");
  if (flags != 0) abort();
  const auto* const given = dynamic_cast<const GroupOptions*>(opts.get());
  auto options = c10::make_intrusive<GroupOptions>(given == nullptr ? *options_ : *given);
  if (options->timeout <= Milliseconds(0)) options->timeout = options_->timeout;
  return c10::make_intrusive<Group>(store_below(name, store_),
                                    static_cast<int>(mine - left.begin()),
                                    static_cast<int>(left.size()), std::move(options), name);
}

void Group::abort() { c10d_group_abort(group_, "torch.distributed called abort()"); }

void Group::shutdown() { leave(options_->timeout); }

::c10d::ErrorType Group::getError() {
  switch (c10d_group_failure(group_)) {
    case C10D_OK:
      return ::c10d::ErrorType::SUCCESS;
    case C10D_TIMED_OUT:
      return ::c10d::ErrorType::TIMEOUT;
    case C10D_PEER_DIED:
    case C10D_PEER_LEFT:
      return ::c10d::ErrorType::REMOTE_ERROR;
    default:
      return ::c10d::ErrorType::COMM_ERROR;
  }
}
#endif

#ifdef C10D_BACKEND_HAS_HOOKS
void Group::registerAbortHook(std::int64_t, ::c10d::AbortHook) {
  throw Unsupported("no hook runs before an abort: the future of a Work hears of the failure");
}
void Group::registerCompletionHook(std::int64_t, ::c10d::CompletionHook) {
  throw Unsupported("no hook runs when an op has ended: the future of its Work says so");
}
#endif
#ifdef C10D_BACKEND_HAS_RECONFIGURE
::c10d::ReconfigureHandle Group::get_reconfigure_handle() const {
  throw Unsupported("ranks cannot join a group; shrink_group() makes one of those that are left");
}
WorkPtr Group::reconfigure(const ::c10d::ReconfigureOptions&) {
  throw Unsupported("ranks cannot join a group; shrink_group() makes one of those that are left");
}
#endif
#ifdef C10D_BACKEND_HAS_WINDOW
c10::intrusive_ptr<::c10d::Window> Group::new_window(const std::optional<at::Tensor>&) {
  throw Unsupported("there is no one-sided access to the memory of another rank");
}
#endif

}  // namespace c10d_torch
