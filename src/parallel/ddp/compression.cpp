// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/parallel/compression.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "c10d/parallel/philox.h"
#include "c10d/parallel/reproducible.h"
#include "src/parallel/common/host_memory.h"
#include "src/parallel/common/throw_invalid.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

constexpr int kMostRank = 64;

bool goes_as_it_is(const ProcessGroup& group, const Bucket& bucket) {
  check_on_host("compression of a Bucket", {bucket.gradient});
  if (bucket.gradient.dtype == DType::f32) return false;
  group.all_reduce(bucket.gradient, {.ready_at = bucket.ready_at});
  divide(bucket.gradient, bucket.samples);
  return true;
}

template <class Half, class Narrow>
void reduce_narrow(const ProcessGroup& group, const Bucket& bucket, Narrow narrow) {
  if (goes_as_it_is(group, bucket)) return;
  const std::span<float> values(static_cast<float*>(bucket.gradient.data), bucket.gradient.count);
  divide(bucket.gradient, bucket.samples);
  std::vector<Half> halves(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) halves[i] = narrow(values[i]);
  group.all_reduce(halves, {.ready_at = bucket.ready_at});
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(halves[i]);
}

// A gradient as a matrix: rows x columns, and what PowerSgd keeps of it from step to step.
struct Matrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<float> q;  // columns x rank
  std::vector<float> error;

  float* values = nullptr;  // in the bucket
  std::size_t p_first = 0;  // of rows x rank elements, in what all ranks sum first
  std::size_t q_first = 0;  // of columns x rank elements, in what they sum second
};

// p = values * q
void times_q(const Matrix& m, float* p, std::size_t rank) {
  std::fill_n(p, m.rows * rank, 0.0f);
  for (std::size_t i = 0; i < m.rows; ++i)
    for (std::size_t j = 0; j < m.columns; ++j)
      for (std::size_t k = 0; k < rank; ++k)
        p[i * rank + k] += m.values[i * m.columns + j] * m.q[j * rank + k];
}

// q = values^T * p
void transposed_times_p(const Matrix& m, const float* p, float* q, std::size_t rank) {
  std::fill_n(q, m.columns * rank, 0.0f);
  for (std::size_t i = 0; i < m.rows; ++i)
    for (std::size_t j = 0; j < m.columns; ++j)
      for (std::size_t k = 0; k < rank; ++k)
        q[j * rank + k] += m.values[i * m.columns + j] * p[i * rank + k];
}

// out = p * q^T
void product(const Matrix& m, const float* p, const float* q, std::span<float> out,
             std::size_t rank) {
  for (std::size_t i = 0; i < m.rows; ++i)
    for (std::size_t j = 0; j < m.columns; ++j) {
      float sum = 0;
      for (std::size_t k = 0; k < rank; ++k) sum += p[i * rank + k] * q[j * rank + k];
      out[i * m.columns + j] = sum;
    }
}

// Makes the columns of p orthonormal; one that is (nearly) a combination of those before becomes 0.
void orthonormalise(float* p, std::size_t rows, std::size_t rank) {
  const auto dot = [&](std::size_t a, std::size_t b) {
    double sum = 0;
    for (std::size_t i = 0; i < rows; ++i)
      sum += static_cast<double>(p[i * rank + a]) * p[i * rank + b];
    return sum;
  };
  for (std::size_t k = 0; k < rank; ++k) {
    const double before = dot(k, k);
    for (std::size_t earlier = 0; earlier < k; ++earlier) {
      const auto shadow = static_cast<float>(dot(k, earlier));
      for (std::size_t i = 0; i < rows; ++i) p[i * rank + k] -= shadow * p[i * rank + earlier];
    }
    const double after = dot(k, k);
    const auto inverse = static_cast<float>(1 / std::sqrt(after));
    const float scale = after > 1e-10 * before && std::isnormal(inverse) ? inverse : 0.0f;
    for (std::size_t i = 0; i < rows; ++i) p[i * rank + k] *= scale;
  }
}

// One gradient that is not finite must not spoil those of all later steps.
void forget_unless_finite(std::vector<float>& kept) {
  const auto is_finite = [](float value) { return std::isfinite(value); };
  if (!std::ranges::all_of(kept, is_finite)) std::ranges::fill(kept, 0.0f);
}

}  // namespace

void reduce_as_bf16(const ProcessGroup& group, const Bucket& bucket) {
  reduce_narrow<BFloat16>(group, bucket, [](float value) { return BFloat16(value); });
}

void reduce_as_f16(const ProcessGroup& group, const Bucket& bucket) {
  reduce_narrow<Float16>(group, bucket, [](float value) { return Float16(value); });
}

struct PowerSgd::State {
  Matrix* matrix_of(const BucketParam& param);
  void fill_empty_columns(Matrix& m, std::size_t param);

  PowerSgdOptions options;
  std::size_t rank = 0;
  std::uint64_t buckets = 0;           // reduced so far
  std::map<std::size_t, Matrix> kept;  // by parameter
};

// Null when the two factors would not be smaller.
Matrix* PowerSgd::State::matrix_of(const BucketParam& param) {
  const auto& shape = param.spec->shape;
  const std::size_t count = param.spec->count();
  if (shape.size() < 2 || count == 0) return nullptr;
  const auto rows = static_cast<std::size_t>(shape[0]);
  const std::size_t columns = count / rows;
  if (rank * (rows + columns) >= count) return nullptr;
  const auto [place, is_new] = kept.try_emplace(param.index);
  Matrix& m = place->second;
  if (is_new) {
    m.rows = rows;
    m.columns = columns;
    m.q.resize(columns * rank);
    m.error.resize(count);
  }
  return &m;
}

// A column of zeros would stay so for ever.
void PowerSgd::State::fill_empty_columns(Matrix& m, std::size_t param) {
  for (std::size_t k = 0; k < rank; ++k) {
    bool empty = true;
    for (std::size_t j = 0; j < m.columns; ++j) empty = empty && m.q[j * rank + k] == 0;
    if (!empty) continue;
    PhiloxStream random(options.seed, buckets, param, static_cast<std::uint32_t>(k));
    for (std::size_t j = 0; j < m.columns; ++j) m.q[j * rank + k] = random.uniform() - 0.5f;
  }
}

PowerSgd::PowerSgd(PowerSgdOptions options) : state_(std::make_unique<State>()) {
  if (options.rank < 1 || options.rank > kMostRank)
    throw_invalid("PowerSgd: a rank of {}; give 1 to {}", options.rank, kMostRank);
  state_->options = options;
  state_->rank = static_cast<std::size_t>(options.rank);
}
PowerSgd::~PowerSgd() = default;

void PowerSgd::operator()(const ProcessGroup& group, const Bucket& bucket) {
  if (goes_as_it_is(group, bucket)) return;
  State& state = *state_;
  const std::size_t rank = state.rank;
  divide(bucket.gradient, bucket.samples);
  auto* const values = static_cast<float*>(bucket.gradient.data);

  // First sum: the left factors, and the gradients that are not compressed.
  std::vector<Matrix*> matrices;
  std::vector<float> first;
  std::size_t q_count = 0;
  for (const BucketParam& param : bucket.params) {
    float* const own = values + param.offset;
    Matrix* const m = state.matrix_of(param);
    if (m == nullptr) {
      first.insert(first.end(), own, own + param.spec->count());
      continue;
    }
    matrices.push_back(m);
    m->values = own;
    m->p_first = first.size();
    m->q_first = q_count;
    first.resize(first.size() + m->rows * rank);
    q_count += m->columns * rank;
    for (std::size_t i = 0; i < m->error.size(); ++i) own[i] += m->error[i];
    state.fill_empty_columns(*m, param.index);
    times_q(*m, first.data() + m->p_first, rank);
  }
  group.all_reduce(first, {.ready_at = bucket.ready_at});

  // Second sum: the right factors. What this rank's share of the result lacks is its error.
  std::vector<float> second(q_count);
  for (Matrix* const m : matrices) {
    float* const p = first.data() + m->p_first;
    float* const q = second.data() + m->q_first;
    orthonormalise(p, m->rows, rank);
    transposed_times_p(*m, p, q, rank);
    product(*m, p, q, m->error, rank);
    for (std::size_t i = 0; i < m->error.size(); ++i) m->error[i] = m->values[i] - m->error[i];
    forget_unless_finite(m->error);
  }
  group.all_reduce(second);

  for (Matrix* const m : matrices) {
    m->q.assign(second.begin() + static_cast<std::ptrdiff_t>(m->q_first),
                second.begin() + static_cast<std::ptrdiff_t>(m->q_first + m->q.size()));
    product(*m, first.data() + m->p_first, m->q.data(), {m->values, m->error.size()}, rank);
    forget_unless_finite(m->q);
  }
  std::size_t at = 0;
  for (const BucketParam& param : bucket.params) {
    const Matrix* const m = state.matrix_of(param);
    const std::size_t count = param.spec->count();
    if (m == nullptr) std::copy_n(first.data() + at, count, values + param.offset);
    at += m == nullptr ? count : m->rows * rank;
  }
  ++state.buckets;
}

std::span<const float> PowerSgd::error(std::size_t param) const {
  const auto found = state_->kept.find(param);
  return found == state_->kept.end() ? std::span<const float>() : found->second.error;
}

}}}  // namespace c10d::v0::parallel
