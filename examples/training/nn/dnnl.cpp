// SPDX-License-Identifier: BSD-3-Clause
#include "examples/training/nn/dnnl.h"

#include <dlfcn.h>

#include <cstring>

namespace nn {
namespace {

const auto kFlagsOfBatchNorm =
    dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
constexpr float kEpsilon = 1e-5F;

constexpr int kWholeImage = 0;  // the kernel of a pooling over height and width

class PoolPlan final : public Plan {
 public:
  PoolPlan(dnnl::algorithm algorithm, int kernel, int stride, int padding, const Layout& from,
           bool training) {
    input = from;
    if (from.shape.size() != 4) throw_invalid("pooling takes [n, c, h, w]");
    const Dims window =
        kernel == kWholeImage ? Dims{from.shape[2], from.shape[3]} : Dims{kernel, kernel};
    const Dims to{from.samples(), from.shape[1],
                  (from.shape[2] + 2 * padding - window[0]) / stride + 1,
                  (from.shape[3] + 2 * padding - window[1]) / stride + 1};
    if (to[2] < 1 || to[3] < 1) throw_invalid("the image is too small for this pooling");
    const Desc x = desc_of(from);
    const Desc y = desc_of(to, Tag::any);
    const Dims strides{stride, stride};
    const Dims paddings{padding, padding};
    const auto kind =
        training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
#if DNNL_VERSION_MAJOR >= 3
    const Dims dilation{0, 0};
    forward_ = make<dnnl::pooling_forward>(kind, algorithm, x, y, strides, window, dilation,
                                           paddings, paddings);
#else
    forward_ =
        make<dnnl::pooling_forward>(kind, algorithm, x, y, strides, window, paddings, paddings);
#endif
    run_forward_ = dnnl::pooling_forward(forward_);
    output = layout_of(forward_.dst_desc(), to);
    with_workspace_ = training && algorithm == dnnl::algorithm::pooling_max;
    if (!training) return;
    if (with_workspace_) kept = (forward_.workspace_desc().get_size() + 3) / sizeof(float);
#if DNNL_VERSION_MAJOR >= 3
    run_backward_ = dnnl::pooling_backward(
        make_backward<dnnl::pooling_backward>(forward_, algorithm, x, forward_.dst_desc(), strides,
                                              window, dilation, paddings, paddings));
#else
    run_backward_ = dnnl::pooling_backward(make_backward<dnnl::pooling_backward>(
        forward_, algorithm, x, forward_.dst_desc(), strides, window, paddings, paddings));
#endif
  }

  void forward(Slots shards, Pointers) override {
    for (Slot* shard : shards)
      run(run_forward_, *shard, DNNL_ARG_SRC, shard->input, DNNL_ARG_DST, shard->output.data());
  }
  void backward_input(Slots shards, Pointers) override {
    for (Slot* shard : shards)
      run(run_backward_, *shard, DNNL_ARG_DIFF_SRC, shard->diff_input.data(), DNNL_ARG_DIFF_DST,
          shard->diff_output);
  }

 private:
  void run(const dnnl::primitive& primitive, Slot& shard, int inner_name, const float* inner,
           int outer_name, const float* outer) {
    Arguments arguments{{inner_name, at(desc_of(input), inner)},
                        {outer_name, at(forward_.dst_desc(), outer)}};
    if (with_workspace_)
      arguments.emplace(DNNL_ARG_WORKSPACE, at(forward_.workspace_desc(), shard.kept.data()));
    execute(primitive, arguments);
  }

  bool with_workspace_ = false;
  dnnl::pooling_forward::primitive_desc forward_;
  dnnl::primitive run_forward_, run_backward_;
};

// Parameters: weight, bias, running mean, running variance. Kept: the shard's mean and variance,
// the gradients of weight and bias (oneDNN computes them together with that of the input), and
// oneDNN's mask of the ReLU.
class BatchNormPlan final : public Plan {
 public:
  BatchNormPlan(bool relu, const Layout& from, bool training) {
    input = output = from;
    if (from.shape.size() != 4) throw_invalid("batch_norm takes [n, c, h, w]");
    channels_ = static_cast<std::size_t>(from.shape[1]);
    room_ = (channels_ + 15) / 16 * 16;
    statistic_ = desc_of({from.shape[1]}, Tag::a);
    auto flags = kFlagsOfBatchNorm;
    if (relu) flags |= dnnl::normalization_flags::fuse_norm_relu;
    const auto kind =
        training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    if (!training) flags |= dnnl::normalization_flags::use_global_stats;
    training_ = training;
    const Desc x = desc_of(from);
#if DNNL_VERSION_MAJOR >= 3
    forward_ = make<dnnl::batch_normalization_forward>(kind, x, x, kEpsilon, flags);
#else
    forward_ = make<dnnl::batch_normalization_forward>(kind, x, kEpsilon, flags);
#endif
    run_forward_ = dnnl::batch_normalization_forward(forward_);
    if (!training) return;
    joint_gradients = true;
    with_workspace_ = relu;
    kept = 4 * room_ + (relu ? (forward_.workspace_desc().get_size() + 3) / sizeof(float) : 0);
#if DNNL_VERSION_MAJOR >= 3
    run_backward_ =
        dnnl::batch_normalization_backward(make_backward<dnnl::batch_normalization_backward>(
            forward_, dnnl::prop_kind::backward, x, x, x, kEpsilon, flags));
#else
    run_backward_ =
        dnnl::batch_normalization_backward(make_backward<dnnl::batch_normalization_backward>(
            forward_, dnnl::prop_kind::backward, x, x, kEpsilon, flags));
#endif
  }

  void forward(Slots shards, Pointers values) override {
    for (Slot* shard : shards) {
      const float* mean = training_ ? kept_part(*shard, 0) : values[2];
      const float* variance = training_ ? kept_part(*shard, 1) : values[3];
      Arguments arguments = common(*shard, mean, variance, values);
      arguments.emplace(DNNL_ARG_DST, at(desc_of(output), shard->output.data()));
      execute(run_forward_, arguments);
    }
  }

  void backward_input(Slots shards, Pointers values) override {
    for (Slot* shard : shards) {
      Arguments arguments = common(*shard, kept_part(*shard, 0), kept_part(*shard, 1), values);
      arguments.emplace(DNNL_ARG_DIFF_DST, at(desc_of(output), shard->diff_output));
      arguments.emplace(DNNL_ARG_DIFF_SRC, at(desc_of(input), shard->diff_input.data()));
      arguments.emplace(DNNL_ARG_DIFF_SCALE, at(statistic_, kept_part(*shard, 2)));
      arguments.emplace(DNNL_ARG_DIFF_SHIFT, at(statistic_, kept_part(*shard, 3)));
      execute(run_backward_, arguments);
    }
  }

  // The statistics are scaled by the samples, as gradients are, so that the step's division by all
  // samples leaves their mean. The running variance is the unbiased one.
  void backward_weight(Slot& shard, Pieces, Pointers grads) override {
    const auto samples = static_cast<float>(input.samples());
    const auto elements = static_cast<float>(input.samples() * input.shape[2] * input.shape[3]);
    const float unbiased = elements > 1 ? elements / (elements - 1) : 1;
    std::memcpy(grads[0], kept_part(shard, 2), channels_ * sizeof(float));
    std::memcpy(grads[1], kept_part(shard, 3), channels_ * sizeof(float));
    for (std::size_t c = 0; c < channels_; ++c) {
      grads[2][c] = kept_part(shard, 0)[c] * samples;
      grads[3][c] = kept_part(shard, 1)[c] * unbiased * samples;
    }
  }

 private:
  float* kept_part(Slot& shard, std::size_t part) const { return shard.kept.data() + part * room_; }
  Arguments common(Slot& shard, const float* mean, const float* variance, Pointers values) {
    Arguments arguments{{DNNL_ARG_SRC, at(desc_of(input), shard.input)},
                        {DNNL_ARG_MEAN, at(statistic_, mean)},
                        {DNNL_ARG_VARIANCE, at(statistic_, variance)},
                        {DNNL_ARG_SCALE, at(statistic_, values[0])},
                        {DNNL_ARG_SHIFT, at(statistic_, values[1])}};
    if (with_workspace_)
      arguments.emplace(DNNL_ARG_WORKSPACE, at(forward_.workspace_desc(), kept_part(shard, 4)));
    return arguments;
  }

  std::size_t channels_ = 0, room_ = 0;
  bool training_ = false, with_workspace_ = false;
  Desc statistic_;
  dnnl::batch_normalization_forward::primitive_desc forward_;
  dnnl::primitive run_forward_, run_backward_;
};

class EltwisePlan final : public Plan {
 public:
  EltwisePlan(dnnl::algorithm algorithm, const Layout& from) {
    input = output = from;
    const Desc x = desc_of(from);
    const auto kind = dnnl::prop_kind::forward_training;
#if DNNL_VERSION_MAJOR >= 3
    const auto forward = make<dnnl::eltwise_forward>(kind, algorithm, x, x, 0.F, 0.F);
    run_backward_ = dnnl::eltwise_backward(
        make_backward<dnnl::eltwise_backward>(forward, algorithm, x, x, x, 0.F, 0.F));
#else
    const auto forward = make<dnnl::eltwise_forward>(kind, algorithm, x, 0.F, 0.F);
    run_backward_ = dnnl::eltwise_backward(
        make_backward<dnnl::eltwise_backward>(forward, algorithm, x, x, 0.F, 0.F));
#endif
    run_forward_ = dnnl::eltwise_forward(forward);
  }
  void forward(Slots shards, Pointers) override {
    const Desc x = desc_of(input);
    for (Slot* shard : shards)
      execute(run_forward_,
              {{DNNL_ARG_SRC, at(x, shard->input)}, {DNNL_ARG_DST, at(x, shard->output.data())}});
  }
  void backward_input(Slots shards, Pointers) override {
    const Desc x = desc_of(input);
    for (Slot* shard : shards)
      execute(run_backward_, {{DNNL_ARG_SRC, at(x, shard->input)},
                              {DNNL_ARG_DIFF_DST, at(x, shard->diff_output)},
                              {DNNL_ARG_DIFF_SRC, at(x, shard->diff_input.data())}});
  }

 private:
  dnnl::primitive run_forward_, run_backward_;
};

}  // namespace

Layer max_pool(int kernel, int stride, int padding) {
  return {{}, plan_maker<PoolPlan>(dnnl::algorithm::pooling_max, kernel, stride, padding)};
}

Layer average_pool() {
  return {{},
          plan_maker<PoolPlan>(dnnl::algorithm::pooling_avg_exclude_padding, kWholeImage, 1, 0)};
}

Layer batch_norm(int channels, bool relu) {
  return {{{"weight", {channels}, Rule::bias, 0, 1},
           {"bias", {channels}, Rule::bias, 0, 0},
           {"running_mean", {channels}, Rule::statistic, 0, 0},
           {"running_var", {channels}, Rule::statistic, 0, 1}},
          plan_maker<BatchNormPlan>(relu)};
}

Layer relu() { return {{}, plan_maker<EltwisePlan>(dnnl::algorithm::eltwise_relu)}; }

Layer gelu() { return {{}, plan_maker<EltwisePlan>(dnnl::algorithm::eltwise_gelu_tanh)}; }

void multiply(std::int64_t m, std::int64_t n, std::int64_t k, Matrix a, Matrix b, float* c,
              std::int64_t stride, float scale) {
  dnnl::sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, scale, a.data, a.stride,
              b.data, b.stride, 0, c, stride);
}

void copy(const Layout& from, const float* source, const Layout& to, float* target) {
  if (same_layout(from, to))
    std::memcpy(target, source, from.floats * sizeof(float));
  else
    reorder(desc_of(from), source, desc_of(to), target);
}

bool same_layout(const Layout& a, const Layout& b) {
  return a.shape == b.shape && (a.blocked == b.blocked || desc_of(a) == desc_of(b));
}

// The OpenMP runtime that counts is oneDNN's; the compiler of this program may come with another.
void use_threads(int threads) {
  const auto set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set != nullptr) set(threads);
}

std::string compute_identity() {
  const dnnl_version_t& version = *dnnl_version();
  return fmt::format("oneDNN {}.{}.{} isa {:#x}", version.major, version.minor, version.patch,
                     static_cast<int>(dnnl::get_effective_cpu_isa()));
}

}  // namespace nn
