// SPDX-License-Identifier: BSD-3-Clause
#include "tests/nn/run_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace nn {
namespace {

Vector to_row_by_row(const Layout& layout, const float* data) {
  Buffer rows(count_of(layout.shape));
  copy(layout, data, Layout::plain(layout.shape), rows.data());
  return {rows.data(), rows.data() + rows.size()};
}

Buffer from_row_by_row(const Layout& layout, const Vector& values) {
  Buffer result(layout.floats);
  copy(Layout::plain(layout.shape), to_floats(values).data(), layout, result.data());
  return result;
}

struct Values {
  explicit Values(const Vectors& parameters) {
    for (const Vector& parameter : parameters) {
      floats.push_back(to_floats(parameter));
      pointers.push_back(floats.back().data());
    }
  }
  std::vector<Buffer> floats;
  std::vector<float*> pointers;
};

// The plan's buffers, with the output of forward.
Slot forward(Plan& plan, const Buffer& input, const Values& values) {
  Slot slot;
  slot.input = slot.second = input.data();
  slot.output = Buffer(plan.output.floats);
  slot.diff_input = Buffer(plan.input.floats);
  slot.kept = Buffer(plan.kept);
  Slot* slots[] = {&slot};
  plan.forward(slots, values.pointers);
  return slot;
}

}  // namespace

Buffer to_floats(const Vector& values) {
  Buffer buffer(values.size());
  std::copy(values.begin(), values.end(), buffer.data());
  return buffer;
}

double largest(const Vector& values) {
  double result = 1e-3;
  for (const double value : values) result = std::max(result, std::abs(value));
  return result;
}

void expect_near(const Vector& found, const Vector& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  const double bound = kBound * largest(expected);
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], bound) << what << "[" << i << "]";
}

LayerRun run_layer(const Layer& layer, const Layout& from, const Vector& input,
                   const Vectors& parameters, const Vector& diff_output) {
  const std::unique_ptr<Plan> plan = layer.plan(from, true);
  const Buffer x = from_row_by_row(from, input);
  const Values values(parameters);
  Slot slot = forward(*plan, x, values);
  const Buffer diff = from_row_by_row(plan->output, diff_output);
  slot.diff_output = diff.data();
  Slot* slots[] = {&slot};
  plan->backward_input(slots, values.pointers);
  const Values gradients(parameters);  // to be overwritten
  plan->backward_weight(slot, {0, layer.pieces}, gradients.pointers);
  LayerRun run;
  run.output = to_row_by_row(plan->output, slot.output.data());
  if (!plan->passes_gradient) run.diff_input = to_row_by_row(plan->input, slot.diff_input.data());
  for (const Buffer& gradient : gradients.floats)
    run.gradients.emplace_back(gradient.data(), gradient.data() + gradient.size());
  return run;
}

Vector evaluate_layer(const Layer& layer, const Layout& from, const Vector& input,
                      const Vectors& parameters) {
  const std::unique_ptr<Plan> plan = layer.plan(from, false);
  const Buffer x = from_row_by_row(from, input);
  const Slot slot = forward(*plan, x, Values(parameters));
  return to_row_by_row(plan->output, slot.output.data());
}

}  // namespace nn
