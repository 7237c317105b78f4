// SPDX-License-Identifier: BSD-3-Clause
// What the layers in dnnl*.cpp share, which alone know oneDNN. Written for 2.6, which Debian 12
// has; where 3.x differs stands in make(): 3.x has no operation descriptors, tells source and
// destination apart where 2.6 has one "data" descriptor, and gives pooling a dilation.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "examples/training/nn/errors.h"
#include "examples/training/nn/layer.h"

namespace nn {

struct Layout::Blocked {
  explicit Blocked(const dnnl::memory::desc& desc_) : desc(desc_) {}
  dnnl::memory::desc desc;
};

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
using Tag = dnnl::memory::format_tag;
using Arguments = std::unordered_map<int, dnnl::memory>;

inline const dnnl::engine& cpu() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

inline void execute(const dnnl::primitive& primitive, const Arguments& arguments) {
  static thread_local dnnl::stream stream(cpu());
  primitive.execute(stream, arguments);
  stream.wait();
}

inline dnnl::memory at(const Desc& desc, const float* data) {
  return {desc, cpu(), const_cast<float*>(data)};
}

inline Desc desc_of(const Dims& dims, Tag tag) { return {dims, dnnl::memory::data_type::f32, tag}; }

inline Desc row_by_row(const Dims& dims) {
  constexpr Tag tags[] = {Tag::a, Tag::a, Tag::ab, Tag::abc, Tag::abcd};
  if (dims.empty() || dims.size() > 4)
    throw_invalid("a tensor has 1 to 4 dimensions, not {}", dims.size());
  return desc_of(dims, tags[dims.size()]);
}

inline Desc desc_of(const Layout& layout) {
  return layout.blocked ? layout.blocked->desc : row_by_row(layout.shape);
}

inline Layout layout_of(const Desc& desc, const Shape& shape) {
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

inline void reorder(const Desc& from, const float* source, const Desc& to, float* target) {
  const dnnl::memory input = at(from, source);
  const dnnl::memory output = at(to, target);
  execute(dnnl::reorder(input, output), {{DNNL_ARG_FROM, input}, {DNNL_ARG_TO, output}});
}

// Memory between two calls of one layer. Every thread has its own.
enum class Use { weights, source, target, weight_gradient, kUses };
inline float* scratch(Use use, std::size_t bytes) {
  static thread_local Buffer buffers[static_cast<int>(Use::kUses)];
  Buffer& buffer = buffers[static_cast<int>(use)];
  const std::size_t floats = (bytes + sizeof(float) - 1) / sizeof(float);
  if (buffer.size() < floats) buffer = Buffer(floats);
  return buffer.data();
}

// What the primitive wants to read, made from what is there.
inline dnnl::memory wanted(const Desc& want, const Desc& have, const float* data, Use use) {
  if (want == have) return at(have, data);
  float* copied = scratch(use, want.get_size());
  reorder(have, data, want, copied);
  return at(want, copied);
}

// Where the primitive writes; settle() brings it to where it belongs.
inline dnnl::memory room(const Desc& want, const Desc& have, float* data, Use use) {
  return at(want, want == have ? data : scratch(use, want.get_size()));
}
inline void settle(const dnnl::memory& written, const Desc& have, float* data) {
  const float* source = static_cast<const float*>(written.get_data_handle());
  if (source != data) reorder(written.get_desc(), source, have, data);
}

}  // namespace nn
