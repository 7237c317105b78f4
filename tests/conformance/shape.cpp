// SPDX-License-Identifier: BSD-3-Clause
#include "tests/conformance/shape.h"

#include <numeric>

namespace c10d::conformance {
namespace {

std::size_t sum(const std::vector<std::size_t>& counts, std::size_t first_n) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(first_n),
                         std::size_t{0});
}

// One rank's view of one case; each member function below is the definition of an op.
class Shaper {
 public:
  Shaper(const Case& c, int rank, int ranks)
      : case_(c),
        rank_(static_cast<std::size_t>(rank)),
        n_(static_cast<std::size_t>(ranks)),
        root_(static_cast<int>(c.root % static_cast<std::uint32_t>(ranks))),
        shard_(c.size > (64 << 10) + 1 ? c.size / n_ : c.size) {}

  Shape all_reduce() const {
    const std::size_t k = case_.size;
    return {.input = k, .output = k, .expected = {{k, kEveryRank, 0}}, .same_on_all_ranks = true};
  }
  Shape reduce() const {
    const std::size_t k = case_.size;
    if (!is_root()) return {.input = k};
    return {.input = k, .output = k, .expected = {{k, kEveryRank, 0}}};
  }
  // Of so many ranks from rank 0 on.
  Shape scan(std::size_t ranks) const {
    const std::size_t k = case_.size;
    const int source = ranks == 0 ? kNoRank : kEveryRank;
    return {.input = k, .output = k, .expected = {{k, source, 0, static_cast<int>(ranks)}}};
  }
  Shape broadcast() const {
    const std::size_t k = case_.size;
    return {.input = is_root() ? k : 0,
            .output = k,
            .expected = {{k, root_, 0}},
            .same_on_all_ranks = true};
  }
  // Equal shards are uneven ones that happen to be equal.
  Shape gather(std::vector<std::size_t> counts, bool everywhere) const {
    Shape shape{.input = counts[rank_], .same_on_all_ranks = everywhere};
    if (everywhere || is_root()) {
      shape.output = sum(counts, n_);
      shape.place = sum(counts, rank_);
      for (std::size_t r = 0; r < n_; ++r)
        shape.expected.push_back({counts[r], static_cast<int>(r), 0});
    }
    shape.counts = std::move(counts);
    return shape;
  }
  // Every rank takes its shard of what the root has, or of the reduction of what all have.
  Shape scatter(std::vector<std::size_t> counts, int source) const {
    const std::size_t first = sum(counts, rank_);
    Shape shape{.output = counts[rank_], .place = first};
    if (source == kEveryRank || is_root()) shape.input = sum(counts, n_);
    shape.expected = {{counts[rank_], source, first}};
    shape.counts = std::move(counts);
    return shape;
  }
  Shape all_to_all() const {
    const bool uneven = traits_of(case_.op).has_counts;
    Shape shape{.may_be_in_place = false};
    for (std::size_t r = 0; r < n_; ++r) {
      shape.counts.push_back(exchanged(rank_, r, uneven));
      shape.output_counts.push_back(exchanged(r, rank_, uneven));
      std::size_t first = 0;
      for (std::size_t to = 0; to < rank_; ++to) first += exchanged(r, to, uneven);
      shape.expected.push_back({shape.output_counts[r], static_cast<int>(r), first});
    }
    shape.input = sum(shape.counts, n_);
    shape.output = sum(shape.output_counts, n_);
    return shape;
  }

  // Of each rank: equal shards, or where the op takes counts, from nothing to a whole shard.
  std::vector<std::size_t> shards() const {
    if (!traits_of(case_.op).has_counts) return std::vector(n_, shard_);
    std::vector<std::size_t> counts;
    for (std::size_t r = 0; r < n_; ++r) counts.push_back(shard_ * ((case_.id + r) % 4) / 3);
    return counts;
  }
  int root() const { return root_; }
  std::size_t rank() const { return rank_; }

 private:
  bool is_root() const { return static_cast<std::size_t>(root_) == rank_; }
  std::size_t exchanged(std::size_t from, std::size_t to, bool uneven) const {
    return uneven ? shard_ * ((case_.id + from + 2 * to) % 4) / 3 : shard_;
  }

  const Case& case_;
  const std::size_t rank_, n_;
  const int root_;
  const std::size_t shard_;
};

}  // namespace

Shape shape_of(const Case& c, int rank, int ranks) {
  const Shaper s(c, rank, ranks);
  // clang-format off
  switch (c.op) {
    case OpKind::all_reduce: return s.all_reduce();
    case OpKind::broadcast: return s.broadcast();
    case OpKind::all_gather: case OpKind::all_gather_v: return s.gather(s.shards(), true);
    case OpKind::reduce_scatter: case OpKind::reduce_scatter_v:
      return s.scatter(s.shards(), kEveryRank);
    case OpKind::reduce: return s.reduce();
    case OpKind::scan: return s.scan(s.rank() + 1);
    case OpKind::exscan: return s.scan(s.rank());
    case OpKind::gather: case OpKind::gather_v: return s.gather(s.shards(), false);
    case OpKind::scatter: case OpKind::scatter_v: return s.scatter(s.shards(), s.root());
    case OpKind::all_to_all: case OpKind::all_to_all_v: return s.all_to_all();
    case OpKind::barrier: case OpKind::send: case OpKind::recv: break;
  }
  // clang-format on
  return {.may_be_in_place = false};
}

}  // namespace c10d::conformance
