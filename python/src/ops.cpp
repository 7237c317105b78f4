// SPDX-License-Identifier: BSD-3-Clause
#include "python/src/arguments.h"
#include "python/src/call.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace c10d { namespace python {
namespace {

using Object = nb::handle;

template <class Op>
nb::object reduce_in_place(const char* name, Group& group, Object output, Object input, Object op,
                           Object timeout, bool async_op) {
  Call call(name, group, timeout, async_op);
  const View to = call.output(output);
  return call.submit(Op{to, input.is_none() ? to : call.input(input), reduce_op_of(op)});
}

nb::object all_reduce(Group& group, Object output, Object input, Object op, Object timeout,
                      bool async_op) {
  return reduce_in_place<AllReduce>("all_reduce", group, output, input, op, timeout, async_op);
}

nb::object scan(Group& group, Object output, Object input, Object op, Object timeout,
                bool async_op) {
  return reduce_in_place<Scan>("scan", group, output, input, op, timeout, async_op);
}

nb::object exscan(Group& group, Object output, Object input, Object op, Object timeout,
                  bool async_op) {
  return reduce_in_place<Exscan>("exscan", group, output, input, op, timeout, async_op);
}

nb::object broadcast(Group& group, Object output, int root, Object input, Object timeout,
                     bool async_op) {
  Call call("broadcast", group, timeout, async_op);
  // The root reads what it has; it may be read-only there.
  if (input.is_none() && root == group.handle.rank()) {
    const ConstView from = call.input(output);
    return call.submit(
        Broadcast{{const_cast<void*>(from.data), from.count, from.dtype, from.device}, from, root});
  }
  const View to = call.output(output);
  return call.submit(Broadcast{to, input.is_none() ? to : call.input(input), root});
}

nb::object reduce(Group& group, Object output, Object input, int root, Object op, Object timeout,
                  bool async_op) {
  Call call("reduce", group, timeout, async_op);
  const View to = call.output(output);
  return call.submit(Reduce{to, call.input(input), reduce_op_of(op), root});
}

template <class Op>
nb::object move_shards(const char* name, Group& group, Object output, Object input, Object timeout,
                       bool async_op) {
  Call call(name, group, timeout, async_op);
  const View to = call.output(output);
  return call.submit(Op{to, call.input(input)});
}

nb::object all_gather(Group& group, Object output, Object input, Object timeout, bool async_op) {
  return move_shards<AllGather>("all_gather", group, output, input, timeout, async_op);
}

nb::object all_to_all(Group& group, Object output, Object input, Object timeout, bool async_op) {
  return move_shards<AllToAll>("all_to_all", group, output, input, timeout, async_op);
}

nb::object all_gather_v(Group& group, Object output, Object input, Object counts, Object timeout,
                        bool async_op) {
  Call call("all_gather_v", group, timeout, async_op);
  const auto numbers = counts_of(counts, "all_gather_v: counts");
  const View to = call.output(output);
  return call.submit(AllGatherV{to, call.input(input), numbers});
}

nb::object all_to_all_v(Group& group, Object output, Object input, Object output_counts,
                        Object input_counts, Object timeout, bool async_op) {
  Call call("all_to_all_v", group, timeout, async_op);
  const auto to_me = counts_of(output_counts, "all_to_all_v: output_counts");
  const auto from_me = counts_of(input_counts, "all_to_all_v: input_counts");
  const View to = call.output(output);
  return call.submit(AllToAllV{to, call.input(input), to_me, from_me});
}

nb::object reduce_scatter(Group& group, Object output, Object input, Object op, Object timeout,
                          bool async_op) {
  Call call("reduce_scatter", group, timeout, async_op);
  const View to = call.output(output);
  return call.submit(ReduceScatter{to, call.input(input), reduce_op_of(op)});
}

nb::object reduce_scatter_v(Group& group, Object output, Object input, Object counts, Object op,
                            Object timeout, bool async_op) {
  Call call("reduce_scatter_v", group, timeout, async_op);
  const auto numbers = counts_of(counts, "reduce_scatter_v: counts");
  const View to = call.output(output);
  return call.submit(ReduceScatterV{to, call.input(input), numbers, reduce_op_of(op)});
}

nb::object gather(Group& group, Object output, Object input, int root, Object timeout,
                  bool async_op) {
  Call call("gather", group, timeout, async_op);
  const View to = call.output(output);
  return call.submit(Gather{to, call.input(input), root});
}

nb::object gather_v(Group& group, Object output, Object input, Object counts, int root,
                    Object timeout, bool async_op) {
  Call call("gather_v", group, timeout, async_op);
  const auto numbers = counts_of(counts, "gather_v: counts");
  const View to = call.output(output);
  return call.submit(GatherV{to, call.input(input), numbers, root});
}

nb::object scatter(Group& group, Object output, Object input, int root, Object timeout,
                   bool async_op) {
  Call call("scatter", group, timeout, async_op);
  const View to = call.output(output);
  return call.submit(Scatter{to, call.input(input), root});
}

nb::object scatter_v(Group& group, Object output, Object input, Object counts, int root,
                     Object timeout, bool async_op) {
  Call call("scatter_v", group, timeout, async_op);
  const auto numbers = counts_of(counts, "scatter_v: counts");
  const View to = call.output(output);
  return call.submit(ScatterV{to, call.input(input), numbers, root});
}

nb::object barrier(Group& group, Object timeout, bool async_op) {
  return Call("barrier", group, timeout, async_op).submit(Barrier{});
}

nb::object send(Group& group, Object input, int peer, std::uint32_t tag, Object timeout,
                bool async_op) {
  Call call("send", group, timeout, async_op);
  return call.submit(Send{call.input(input), peer, tag});
}

nb::object recv(Group& group, Object output, int peer, std::uint32_t tag, Object timeout,
                bool async_op) {
  Call call("recv", group, timeout, async_op);
  return call.submit(Recv{call.output(output), peer, tag});
}

}  // namespace

// The signatures and what the ops do: python/c10d/_c10d.pyi.
void bind_ops(Documented<Group>& group) {
  const auto bind = [&group](const char* name, auto function, const auto&... arguments) {
    group.def(name, function, arguments..., "timeout"_a = nb::none(), "async_op"_a = false);
  };
  const auto none = nb::none();
  bind("all_reduce", all_reduce, "output"_a, "input"_a = none, nb::kw_only(), "op"_a = none);
  bind("scan", scan, "output"_a, "input"_a = none, nb::kw_only(), "op"_a = none);
  bind("exscan", exscan, "output"_a, "input"_a = none, nb::kw_only(), "op"_a = none);
  bind("broadcast", broadcast, "output"_a, "root"_a = 0, "input"_a = none, nb::kw_only());
  bind("reduce", reduce, "output"_a.none(), "input"_a, "root"_a = 0, nb::kw_only(), "op"_a = none);
  bind("all_gather", all_gather, "output"_a, "input"_a, nb::kw_only());
  bind("all_gather_v", all_gather_v, "output"_a, "input"_a, "counts"_a, nb::kw_only());
  bind("reduce_scatter", reduce_scatter, "output"_a, "input"_a, nb::kw_only(), "op"_a = none);
  bind("reduce_scatter_v", reduce_scatter_v, "output"_a, "input"_a, "counts"_a, nb::kw_only(),
       "op"_a = none);
  bind("gather", gather, "output"_a.none(), "input"_a, "root"_a = 0, nb::kw_only());
  bind("gather_v", gather_v, "output"_a.none(), "input"_a, "counts"_a, "root"_a = 0, nb::kw_only());
  bind("scatter", scatter, "output"_a, "input"_a.none(), "root"_a = 0, nb::kw_only());
  bind("scatter_v", scatter_v, "output"_a, "input"_a.none(), "counts"_a, "root"_a = 0,
       nb::kw_only());
  bind("all_to_all", all_to_all, "output"_a, "input"_a, nb::kw_only());
  bind("all_to_all_v", all_to_all_v, "output"_a, "input"_a, "output_counts"_a, "input_counts"_a,
       nb::kw_only());
  bind("barrier", barrier, nb::kw_only());
  bind("send", send, "input"_a, "peer"_a, "tag"_a = 0, nb::kw_only());
  bind("recv", recv, "output"_a, "peer"_a, "tag"_a = 0, nb::kw_only());
}

}}  // namespace c10d::python
