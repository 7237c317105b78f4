// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>
#include <span>

#include "c10d/init.h"
#include "src/c/arguments.h"
#include "src/c/failures.h"
#include "src/c/handles.h"

namespace c10d { inline namespace v0 { namespace c {
namespace {

// What a caller gave for one op.
class Given {
 public:
  Given(const c10d_group* group, c10d_dtype dtype, const c10d_call_options* options)
      : group_(group_of(group)),
        options_(taken(options, "options")),
        dtype_(dtype_of_c(dtype)),
        device_(device_of(options_)) {
    if (options_.batch != nullptr && &options_.batch->group.id() != &group_.id())
      throw InvalidArgument("the batch is one of another group");
  }

  // A buffer.
  View output(void* data, std::size_t count) const { return {data, count, dtype_, device_}; }
  ConstView input(const void* data, std::size_t count) const {
    return {data, count, dtype_, device_};
  }
  // One that only the root gives or gets.
  View output_of(int root, void* data, std::size_t count) const {
    return root == group_.rank() ? output(data, count) : View();
  }
  ConstView input_of(int root, const void* data, std::size_t count) const {
    return root == group_.rank() ? input(data, count) : ConstView();
  }
  // Elements of as many shards as there are ranks.
  std::size_t of_all(std::size_t count) const {
    const auto ranks = static_cast<std::size_t>(group_.size());
    if (count > std::numeric_limits<std::size_t>::max() / ranks)
      throw InvalidArgument("count is more than memory can hold");
    return count * ranks;
  }
  // A count for each rank.
  std::span<const std::size_t> counts(const std::size_t* counts, const char* name) const {
    return array_of(counts, static_cast<std::size_t>(group_.size()), name);
  }
  std::size_t own(std::span<const std::size_t> counts) const {
    return counts[static_cast<std::size_t>(group_.rank())];
  }
  ReduceOp reduce_op(c10d_reduce_op op) const {
    const ReduceOp::Kind kind = reduce_kind_of(op);
    return kind == ReduceOp::premul_sum ? ReduceOp::premul(options_.premul_factor) : kind;
  }
  CallOptions options() const { return call_options_of(options_); }

  // Runs the op, starts it or adds it to the batch.
  void submit(const Op& op, c10d_received* received, c10d_work** work) const {
    if (options_.batch != nullptr) {
      if (work != nullptr || received != nullptr)
        throw InvalidArgument("work and received of an op of a batch are not NULL");
      options_.batch->batch.add(op);
    } else if (work != nullptr) {
      start(*work, [&] { return group_.async().submit(op, options()); });
    } else {
      const Received got = group_.submit(op, options());
      if (received != nullptr) *received = to_c_received(got);
    }
  }

 private:
  const ProcessGroup& group_;
  const c10d_call_options options_;
  const DType dtype_;
  const Device device_;
};

// Their sum. One that no number holds is refused with the op.
std::size_t total(std::span<const std::size_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

// The body of an op: `make` makes it of what is given.
template <class F>
c10d_code run(const c10d_group* group, c10d_dtype dtype, const c10d_call_options* options,
              c10d_received* received, c10d_work** work, F make) noexcept {
  if (work != nullptr) *work = nullptr;
  return call([&] {
    const Given given(group, dtype, options);
    given.submit(make(given), received, work);
  });
}
template <class F>
c10d_code run(const c10d_group* group, c10d_dtype dtype, const c10d_call_options* options,
              c10d_work** work, F make) noexcept {
  return run(group, dtype, options, nullptr, work, make);
}

}  // namespace

extern "C" {

C10D_C_API c10d_code c10d_all_reduce(const c10d_group* group, void* output, const void* input,
                                     size_t count, c10d_dtype dtype, c10d_reduce_op op,
                                     const c10d_call_options* options, c10d_work** work) {
  return run(group, dtype, options, work, [&](const Given& given) {
    return AllReduce{given.output(output, count), given.input(input, count), given.reduce_op(op)};
  });
}

C10D_C_API c10d_code c10d_broadcast(const c10d_group* group, void* output, const void* input,
                                    size_t count, c10d_dtype dtype, int32_t root,
                                    const c10d_call_options* options, c10d_work** work) {
  return run(group, dtype, options, work, [&](const Given& given) {
    return Broadcast{given.output(output, count), given.input_of(root, input, count), root};
  });
}

C10D_C_API c10d_code c10d_all_gather(const c10d_group* group, void* output, const void* input,
                                     size_t count, c10d_dtype dtype,
                                     const c10d_call_options* options, c10d_work** work) {
  return run(group, dtype, options, work, [&](const Given& given) {
    return AllGather{given.output(output, given.of_all(count)), given.input(input, count)};
  });
}

C10D_C_API c10d_code c10d_all_gather_v(const c10d_group* group, void* output, const void* input,
                                       const size_t* counts, c10d_dtype dtype,
                                       const c10d_call_options* options, c10d_work** work) {
  return run(group, dtype, options, work, [&](const Given& given) {
    const auto all = given.counts(counts, "counts");
    return AllGatherV{given.output(output, total(all)), given.input(input, given.own(all)), all};
  });
}

C10D_C_API c10d_code c10d_reduce_scatter(const c10d_group* group, void* output, const void* input,
                                         size_t count, c10d_dtype dtype, c10d_reduce_op op,
                                         const c10d_call_options* options, c10d_work** work) {
  return run(group, dtype, options, work, [&](const Given& given) {
    return ReduceScatter{given.output(output, count), given.input(input, given.of_all(count)),
                         given.reduce_op(op)};
  });
}

C10D_C_API c10d_code c10d_reduce_scatter_v(const c10d_group* group, void* output, const void* input,
                                           const size_t* counts, c10d_dtype dtype,
                                           c10d_reduce_op op, const c10d_call_options* options,
                                           c10d_work** work) {
  return run(group, dtype, options, work, [&](const Given& given) {
    const auto all = given.counts(counts, "counts");
    return ReduceScatterV{given.output(output, given.own(all)), given.input(input, total(all)), all,
                          given.reduce_op(op)};
  });
}

C10D_C_API c10d_code c10d_reduce(const c10d_group* group, void* output, const void* input,
                                 size_t count, c10d_dtype dtype, c10d_reduce_op op, int32_t root,
                                 const c10d_call_options* options, c10d_work** work) {
  return run(group, dtype, options, work, [&](const Given& given) {
    return Reduce{given.output_of(root, output, count), given.input(input, count),
                  given.reduce_op(op), root};
  });
}

C10D_C_API c10d_code c10d_scan(const c10d_group* group, void* output, const void* input,
                               size_t count, c10d_dtype dtype, c10d_reduce_op op,
                               const c10d_call_options* options, c10d_work** work) {
  return run(group, dtype, options, work, [&](const Given& given) {
    return Scan{given.output(output, count), given.input(input, count), given.reduce_op(op)};
  });
}

C10D_C_API c10d_code c10d_exscan(const c10d_group* group, void* output, const void* input,
                                 size_t count, c10d_dtype dtype, c10d_reduce_op op,
                                 const c10d_call_options* options, c10d_work** work) {
  return run(group, dtype, options, work, [&](const Given& given) {
    return Exscan{given.output(output, count), given.input(input, count), given.reduce_op(op)};
  });
}

C10D_C_API c10d_code c10d_gather(const c10d_group* group, void* output, const void* input,
                                 size_t count, c10d_dtype dtype, int32_t root,
                                 const c10d_call_options* options, c10d_work** work) {
  return run(group, dtype, options, work, [&](const Given& given) {
    return Gather{given.output_of(root, output, given.of_all(count)), given.input(input, count),
                  root};
  });
}

C10D_C_API c10d_code c10d_gather_v(const c10d_group* group, void* output, const void* input,
                                   const size_t* counts, c10d_dtype dtype, int32_t root,
                                   const c10d_call_options* options, c10d_work** work) {
  return run(group, dtype, options, work, [&](const Given& given) {
    const auto all = given.counts(counts, "counts");
    return GatherV{given.output_of(root, output, total(all)), given.input(input, given.own(all)),
                   all, root};
  });
}

C10D_C_API c10d_code c10d_scatter(const c10d_group* group, void* output, const void* input,
                                  size_t count, c10d_dtype dtype, int32_t root,
                                  const c10d_call_options* options, c10d_work** work) {
  return run(group, dtype, options, work, [&](const Given& given) {
    return Scatter{given.output(output, count), given.input_of(root, input, given.of_all(count)),
                   root};
  });
}

C10D_C_API c10d_code c10d_scatter_v(const c10d_group* group, void* output, const void* input,
                                    const size_t* counts, c10d_dtype dtype, int32_t root,
                                    const c10d_call_options* options, c10d_work** work) {
  return run(group, dtype, options, work, [&](const Given& given) {
    const auto all = given.counts(counts, "counts");
    return ScatterV{given.output(output, given.own(all)), given.input_of(root, input, total(all)),
                    all, root};
  });
}

C10D_C_API c10d_code c10d_all_to_all(const c10d_group* group, void* output, const void* input,
                                     size_t count, c10d_dtype dtype,
                                     const c10d_call_options* options, c10d_work** work) {
  return run(group, dtype, options, work, [&](const Given& given) {
    const std::size_t all = given.of_all(count);
    return AllToAll{given.output(output, all), given.input(input, all)};
  });
}

C10D_C_API c10d_code c10d_all_to_all_v(const c10d_group* group, void* output, const void* input,
                                       const size_t* output_counts, const size_t* input_counts,
                                       c10d_dtype dtype, const c10d_call_options* options,
                                       c10d_work** work) {
  return run(group, dtype, options, work, [&](const Given& given) {
    const auto from = given.counts(output_counts, "output_counts");
    const auto to = given.counts(input_counts, "input_counts");
    return AllToAllV{given.output(output, total(from)), given.input(input, total(to)), from, to};
  });
}

C10D_C_API c10d_code c10d_barrier(const c10d_group* group, const c10d_call_options* options,
                                  c10d_work** work) {
  return run(group, C10D_U8, options, work, [](const Given&) { return Barrier{}; });
}

C10D_C_API c10d_code c10d_monitored_barrier(const c10d_group* group, int64_t timeout_ns) {
  return call([&] { group_of(group).monitored_barrier(timeout_of(timeout_ns)); });
}

C10D_C_API c10d_code c10d_send(const c10d_group* group, const void* input, size_t count,
                               c10d_dtype dtype, int32_t peer, uint32_t tag,
                               const c10d_call_options* options, c10d_work** work) {
  return run(group, dtype, options, work, [&](const Given& given) {
    return Send{given.input(input, count), peer, tag};
  });
}

C10D_C_API c10d_code c10d_recv(const c10d_group* group, void* output, size_t count,
                               c10d_dtype dtype, int32_t peer, uint32_t tag,
                               const c10d_call_options* options, c10d_received* received,
                               c10d_work** work) {
  return run(group, dtype, options, received, work, [&](const Given& given) {
    return Recv{given.output(output, count), peer, tag};
  });
}

C10D_C_API c10d_code c10d_sendrecv(const c10d_group* group, const void* input, size_t input_count,
                                   int32_t to, void* output, size_t output_count, int32_t from,
                                   c10d_dtype dtype, uint32_t tag, const c10d_call_options* options,
                                   c10d_received* received) {
  return call([&] {
    const Given given(group, dtype, options);
    const Received got =
        group_of(group).sendrecv(given.input(input, input_count), to,
                                 given.output(output, output_count), from, tag, given.options());
    if (received != nullptr) *received = to_c_received(got);
  });
}

C10D_C_API c10d_code c10d_probe(const c10d_group* group, int32_t peer, uint32_t tag,
                                const c10d_call_options* options, c10d_received* received) {
  return call([&] {
    c10d_received& to = required(received, "received");
    to =
        to_c_received(group_of(group).probe(peer, tag, call_options_of(taken(options, "options"))));
  });
}

C10D_C_API c10d_code c10d_iprobe(const c10d_group* group, int32_t peer, uint32_t tag,
                                 c10d_received* received) {
  return call([&]() -> c10d_code {
    c10d_received& to = required(received, "received");
    const std::optional<Received> found = group_of(group).iprobe(peer, tag);
    if (!found) return C10D_PENDING;
    to = to_c_received(*found);
    return C10D_OK;
  });
}

}  // extern "C"

}}}  // namespace c10d::v0::c
