// SPDX-License-Identifier: BSD-3-Clause
// The only file that knows oneDNN. Written for 2.6, which Debian 12 has; where 3.x differs stands
// in make(): 3.x has no operation descriptors, tells source and destination apart where 2.6 has one
// "data" descriptor, and gives pooling a dilation.
#include <dlfcn.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <stdexcept>
#include <unordered_map>

#include "examples/nn/layer.h"

namespace nn {

struct Layout::Blocked {
  explicit Blocked(const dnnl::memory::desc& desc_) : desc(desc_) {}
  dnnl::memory::desc desc;
};

namespace {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
using Tag = dnnl::memory::format_tag;
using Arguments = std::unordered_map<int, dnnl::memory>;
const auto kFlagsOfBatchNorm =
    dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
constexpr float kEpsilon = 1e-5F;
// Of a gradient: four of them, as adding up eight shards needs, stay in an L2 cache of 2 MiB.
constexpr std::size_t kPieceBytes = std::size_t{320} << 10;

const dnnl::engine& cpu() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

void execute(const dnnl::primitive& primitive, const Arguments& arguments) {
  static thread_local dnnl::stream stream(cpu());
  primitive.execute(stream, arguments);
  stream.wait();
}

dnnl::memory at(const Desc& desc, const float* data) {
  return {desc, cpu(), const_cast<float*>(data)};
}

Desc desc_of(const Dims& dims, Tag tag) { return {dims, dnnl::memory::data_type::f32, tag}; }

Desc row_by_row(const Dims& dims) {
  constexpr Tag tags[] = {Tag::a, Tag::a, Tag::ab, Tag::abc, Tag::abcd};
  if (dims.empty() || dims.size() > 4)
    throw std::invalid_argument(fmt::format("a tensor of {} dimensions", dims.size()));
  return desc_of(dims, tags[dims.size()]);
}

Desc desc_of(const Layout& layout) {
  return layout.blocked ? layout.blocked->desc : row_by_row(layout.shape);
}

Layout layout_of(const Desc& desc, const Shape& shape) {
  if (desc == row_by_row(shape)) return Layout::plain(shape);
  return {shape, desc.get_size() / sizeof(float), std::make_shared<Layout::Blocked>(desc)};
}

// A primitive descriptor from the arguments of the operation, then the hint where there is one.
template <class Primitive, class... Args>
typename Primitive::primitive_desc make(const Args&... args) {
#if DNNL_VERSION_MAJOR >= 3
  return {cpu(), args...};
#else
  return {typename Primitive::desc(args...), cpu()};
#endif
}
template <class Primitive, class Hint, class... Args>
typename Primitive::primitive_desc make_backward(const Hint& hint, const Args&... args) {
#if DNNL_VERSION_MAJOR >= 3
  return {cpu(), args..., hint};
#else
  return {typename Primitive::desc(args...), cpu(), hint};
#endif
}

void reorder(const Desc& from, const float* source, const Desc& to, float* target) {
  const dnnl::memory input = at(from, source);
  const dnnl::memory output = at(to, target);
  execute(dnnl::reorder(input, output), {{DNNL_ARG_FROM, input}, {DNNL_ARG_TO, output}});
}

// Memory between two calls of one layer. Every thread has its own.
enum class Use { weights, source, target, weight_gradient, kUses };
float* scratch(Use use, std::size_t bytes) {
  static thread_local Buffer buffers[static_cast<int>(Use::kUses)];
  Buffer& buffer = buffers[static_cast<int>(use)];
  const std::size_t floats = (bytes + sizeof(float) - 1) / sizeof(float);
  if (buffer.size() < floats) buffer = Buffer(floats);
  return buffer.data();
}

// What the primitive wants to read, made from what is there.
dnnl::memory wanted(const Desc& want, const Desc& have, const float* data, Use use) {
  if (want == have) return at(have, data);
  float* copied = scratch(use, want.get_size());
  reorder(have, data, want, copied);
  return at(want, copied);
}

// Where the primitive writes; settle() brings it to where it belongs.
dnnl::memory room(const Desc& want, const Desc& have, float* data, Use use) {
  return at(want, want == have ? data : scratch(use, want.get_size()));
}
void settle(const dnnl::memory& written, const Desc& have, float* data) {
  const float* source = static_cast<const float*>(written.get_data_handle());
  if (source != data) reorder(written.get_desc(), source, have, data);
}

struct ConvShape {
  int in, out, kernel, stride, padding;
  bool bias;

  bool in_blocks() const { return in % 16 == 0 && out % 16 == 0; }
  Tag weights_tag() const { return in_blocks() ? Tag::ABcd16b16a : Tag::cdba; }
  // Of output channels: in blocks, the weights of each piece lie together.
  int pieces() const {
    const std::size_t bytes = sizeof(float) * count_of({out, in, kernel, kernel});
    int count = 1;
    while (in_blocks() && bytes / count > kPieceBytes && out / count % 32 == 0) count *= 2;
    return count;
  }
};

class ConvPlan final : public Plan {
 public:
  ConvPlan(const ConvShape& conv, const Layout& from, bool training) : conv_(conv) {
    input = from;
    const auto extent = [&](std::int64_t size) {
      return (size + 2 * conv.padding - conv.kernel) / conv.stride + 1;
    };
    if (from.shape.size() != 4 || from.shape[1] != conv.in || extent(from.shape[2]) < 1 ||
        extent(from.shape[3]) < 1)
      throw std::invalid_argument(
          fmt::format("conv2d of {} channels cannot take this input", conv.in));
    const Dims to{from.samples(), conv.out, extent(from.shape[2]), extent(from.shape[3])};
    const Dims weights{conv.out, conv.in, conv.kernel, conv.kernel};
    const Dims strides{conv.stride, conv.stride};
    const Dims padding{conv.padding, conv.padding};
    weights_ = desc_of(weights, conv.weights_tag());
    bias_ = conv.bias ? desc_of({conv.out}, Tag::a) : Desc();
    const Desc x = desc_of(from.shape, Tag::any);
    const Desc w = desc_of(weights, Tag::any);
    const Desc y = desc_of(to, Tag::any);
    using dnnl::algorithm;
    forward_ = make<dnnl::convolution_forward>(dnnl::prop_kind::forward_training,
                                               algorithm::convolution_direct, x, w, bias_, y,
                                               strides, padding, padding);
    run_forward_ = dnnl::convolution_forward(forward_);
    output = layout_of(forward_.dst_desc(), to);
    if (!training) return;
    by_input_ = make_backward<dnnl::convolution_backward_data>(
        forward_, algorithm::convolution_direct, x, w, y, strides, padding, padding);
    run_by_input_ = dnnl::convolution_backward_data(by_input_);
    plan_by_weight(to, strides, padding);
  }

  void forward(Slots shards, Pointers values) override {
    const dnnl::memory weights = wanted(forward_.weights_desc(), weights_, values[0], Use::weights);
    for (Slot* shard : shards) {
      Arguments arguments{
          {DNNL_ARG_SRC, wanted(forward_.src_desc(), desc_of(input), shard->input, Use::source)},
          {DNNL_ARG_WEIGHTS, weights},
          {DNNL_ARG_DST, at(forward_.dst_desc(), shard->output.data())}};
      if (conv_.bias) arguments.emplace(DNNL_ARG_BIAS, at(bias_, values[1]));
      execute(run_forward_, arguments);
    }
  }

  void backward_input(Slots shards, Pointers values) override {
    const dnnl::memory weights =
        wanted(by_input_.weights_desc(), weights_, values[0], Use::weights);
    for (Slot* shard : shards) {
      float* diff = shard->diff_input.data();
      const dnnl::memory to = room(by_input_.diff_src_desc(), desc_of(input), diff, Use::target);
      execute(run_by_input_, {{DNNL_ARG_DIFF_DST, wanted(by_input_.diff_dst_desc(), desc_of(output),
                                                         shard->diff_output, Use::source)},
                              {DNNL_ARG_WEIGHTS, weights},
                              {DNNL_ARG_DIFF_SRC, to}});
      settle(to, desc_of(input), diff);
    }
  }

  void backward_weight(Slot& shard, Pieces pieces, Pointers grads) override {
    const dnnl::memory from =
        wanted(by_weight_.src_desc(), desc_of(input), shard.input, Use::source);
    float* weights = grads[0];
    float* bias = conv_.bias ? grads[1] : nullptr;
    for (int piece = pieces.first; piece < pieces.last; ++piece) {
      const dnnl::memory to =
          room(by_weight_.diff_weights_desc(), weights_piece_, weights, Use::weight_gradient);
      Arguments arguments{{DNNL_ARG_SRC, from},
                          {DNNL_ARG_DIFF_DST, diff_piece(shard, piece)},
                          {DNNL_ARG_DIFF_WEIGHTS, to}};
      if (conv_.bias) arguments.emplace(DNNL_ARG_DIFF_BIAS, at(bias_piece_, bias));
      execute(run_by_weight_, arguments);
      settle(to, weights_piece_, weights);
      weights += weights_piece_.get_size() / sizeof(float);
      if (conv_.bias) bias += conv_.out / conv_.pieces();
    }
  }

 private:
  void plan_by_weight(Dims to, const Dims& strides, const Dims& padding) {
    const Dims whole = to;
    to[1] = conv_.out / conv_.pieces();
    const Dims weights{to[1], conv_.in, conv_.kernel, conv_.kernel};
    weights_piece_ = desc_of(weights, conv_.weights_tag());
    bias_piece_ = conv_.bias ? desc_of({to[1]}, Tag::a) : Desc();
    const Desc x = desc_of(input.shape, Tag::any);
    const Desc w = desc_of(weights, Tag::any);
    const Desc y = desc_of(to, Tag::any);
    const auto algorithm = dnnl::algorithm::convolution_direct;
    const auto forward =
        make<dnnl::convolution_forward>(dnnl::prop_kind::forward_training, algorithm, x, w,
                                        bias_piece_, y, strides, padding, padding);
    by_weight_ = make_backward<dnnl::convolution_backward_weights>(
        forward, algorithm, x, w, bias_piece_, y, strides, padding, padding);
    run_by_weight_ = dnnl::convolution_backward_weights(by_weight_);
    for (int piece = 0; piece < conv_.pieces(); ++piece) {
      const Desc diff = desc_of(output).submemory_desc(to, {0, piece * to[1], 0, 0});
      diff_pieces_.emplace_back(diff);
      if (conv_.pieces() > 1 || diff != by_weight_.diff_dst_desc())
        take_pieces_.emplace_back(
            dnnl::reorder::primitive_desc(cpu(), diff, cpu(), by_weight_.diff_dst_desc()));
    }
  }

  // Of the gradient of the output.
  dnnl::memory diff_piece(const Slot& shard, int piece) const {
    const dnnl::memory diff = at(diff_pieces_[piece], shard.diff_output);
    if (take_pieces_.empty()) return diff;
    const Desc& want = by_weight_.diff_dst_desc();
    const dnnl::memory taken = at(want, scratch(Use::target, want.get_size()));
    execute(take_pieces_[piece], {{DNNL_ARG_FROM, diff}, {DNNL_ARG_TO, taken}});
    return taken;
  }

  ConvShape conv_;
  Desc weights_, bias_;
  Desc weights_piece_, bias_piece_;  // of weights and bias
  std::vector<Desc> diff_pieces_;
  std::vector<dnnl::reorder> take_pieces_;
  dnnl::convolution_forward::primitive_desc forward_;
  dnnl::convolution_backward_data::primitive_desc by_input_;
  dnnl::convolution_backward_weights::primitive_desc by_weight_;
  dnnl::primitive run_forward_, run_by_input_, run_by_weight_;
};

class PoolPlan final : public Plan {
 public:
  PoolPlan(dnnl::algorithm algorithm, const Dims& window, int stride, int padding,
           const Layout& from, bool training) {
    input = from;
    if (from.shape.size() != 4) throw std::invalid_argument("pooling takes [n, c, h, w]");
    const Dims to{from.samples(), from.shape[1],
                  (from.shape[2] + 2 * padding - window[0]) / stride + 1,
                  (from.shape[3] + 2 * padding - window[1]) / stride + 1};
    if (to[2] < 1 || to[3] < 1) throw std::invalid_argument("pooling of an image that small");
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
    if (from.shape.size() != 4) throw std::invalid_argument("batch_norm takes [n, c, h, w]");
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

Layer conv2d(int in, int out, int kernel, int stride, int padding, bool bias) {
  const ConvShape conv{in, out, kernel, stride, padding, bias};
  const float bound = 1 / std::sqrt(static_cast<float>(in * kernel * kernel));
  Layer layer;
  layer.pieces = conv.pieces();
  layer.parameters.push_back({"weight",
                              conv.in_blocks() ? Shape{out / 16, in / 16, kernel, kernel, 16, 16}
                                               : Shape{kernel, kernel, in, out},
                              Rule::weight, bound});
  if (bias) layer.parameters.push_back({"bias", {out}, Rule::bias, bound});
  layer.plan = [conv](const Layout& from, bool training) -> std::unique_ptr<Plan> {
    return std::make_unique<ConvPlan>(conv, from, training);
  };
  return layer;
}

Layer max_pool(int kernel, int stride, int padding) {
  return {{}, [=](const Layout& from, bool training) -> std::unique_ptr<Plan> {
            return std::make_unique<PoolPlan>(dnnl::algorithm::pooling_max, Dims{kernel, kernel},
                                              stride, padding, from, training);
          }};
}

Layer average_pool() {
  return {{}, [](const Layout& from, bool training) -> std::unique_ptr<Plan> {
            return std::make_unique<PoolPlan>(dnnl::algorithm::pooling_avg_exclude_padding,
                                              Dims{from.shape.at(2), from.shape.at(3)}, 1, 0, from,
                                              training);
          }};
}

Layer batch_norm(int channels, bool relu) {
  return {{{"weight", {channels}, Rule::bias, 0, 1},
           {"bias", {channels}, Rule::bias, 0, 0},
           {"running_mean", {channels}, Rule::statistic, 0, 0},
           {"running_var", {channels}, Rule::statistic, 0, 1}},
          [relu](const Layout& from, bool training) -> std::unique_ptr<Plan> {
            return std::make_unique<BatchNormPlan>(relu, from, training);
          }};
}

Layer relu() {
  return {{}, [](const Layout& from, bool) -> std::unique_ptr<Plan> {
            return std::make_unique<EltwisePlan>(dnnl::algorithm::eltwise_relu, from);
          }};
}

Layer gelu() {
  return {{}, [](const Layout& from, bool) -> std::unique_ptr<Plan> {
            return std::make_unique<EltwisePlan>(dnnl::algorithm::eltwise_gelu_tanh, from);
          }};
}

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
