// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <vector>

#include "examples/training/nn/dnnl.h"

namespace nn {
namespace {

// Of a gradient: four of them, as adding up eight shards needs, stay in an L2 cache of 2 MiB.
constexpr std::size_t kPieceBytes = std::size_t{320} << 10;

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
      throw_invalid("conv2d of {} channels cannot take this input", conv.in);
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
  layer.plan = plan_maker<ConvPlan>(conv);
  return layer;
}

}  // namespace nn
