// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/hosts/reducer.h"

#include <array>

namespace c10d { inline namespace v0 { namespace native {

bool Reducer::reduce_here(Scratch& scratch, const ConstView& input,
                          const std::vector<std::size_t>& counts, Pointers& values) {
  const std::size_t count = counts[static_cast<std::size_t>(collective_.placement().place())];
  const bool changes = how_.op.kind == ReduceOp::premul_sum || type_ != how_.dtype;
  if (collective_.is_alone() && (sums_.inputs || !changes)) {
    values = {bytes_of(input)};
    return true;
  }
  if (is_reduced_by_team()) {
    std::byte* const value = scratch.take(count, type_);
    values = {value};
    return collective_.stage(
        ReduceScatterV{View(value, count, type_), input, counts, without_end()});
  }
  const std::size_t ranks = counts.size();
  std::byte* const inputs = scratch.take(ranks * count, how_.dtype);
  const std::vector<std::size_t> taken(ranks, count);
  if (!collective_.stage(AllToAllV{View(inputs, ranks * count, how_.dtype), input, taken, counts}))
    return false;
  values.clear();
  std::vector<const std::byte*> some;
  for (const std::size_t index : sums_.of(collective_.host())) {
    const PartialSums::Value& value = sums_.all[index];
    some.clear();
    for (std::size_t i = 0; i < value.ranks; ++i)
      some.push_back(inputs +
                     (static_cast<std::size_t>(value.place) + i) * count * size_of(how_.dtype));
    if (sums_.inputs) {
      values.push_back(some.front());
      continue;
    }
    std::byte* const partial = scratch.take(count, type_);
    values.push_back(partial);
    if (count != 0) reduce_partial(how_.dtype, how_.op, partial, some, count);
  }
  return true;
}

void Reducer::finish(std::byte* out, std::span<const std::byte* const> values,
                     std::size_t count) const {
  if (count == 0) return;
  if (sums_.inputs || !has_order())
    reduce(how_.dtype, how_.op, out, values, count);
  else
    reduce_end(how_.dtype, how_.op, out, values, sums_.ranks, count);
}

void Reducer::add_values(std::byte* out, std::span<const std::byte* const, 2> in,
                         std::size_t count) const {
  if (!sums_.inputs) return add_sums(out, in, count);
  reduce_partial(how_.dtype, how_.op, out, in, count);
}

void Reducer::add_sums(std::byte* out, std::span<const std::byte* const, 2> in,
                       std::size_t count) const {
  const ReduceOp::Kind kind = how_.op.kind;
  const bool is_sum = kind == ReduceOp::avg || kind == ReduceOp::premul_sum;
  reduce(sum_type(), is_sum ? ReduceOp(ReduceOp::sum) : how_.op, out, in, count);
}

void Reducer::finish_sums(std::byte* out, std::span<const std::byte* const, 2> in,
                          std::size_t count) const {
  if (!has_order()) return reduce(how_.dtype, how_.op, out, in, count);
  const std::size_t half = static_cast<std::size_t>(collective_.placement().size()) / 2;
  reduce_end(how_.dtype, how_.op, out, in, std::array{half, half}, count);
}

}}}  // namespace c10d::v0::native
