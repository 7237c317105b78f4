// SPDX-License-Identifier: BSD-3-Clause
#include "examples/training/trainer/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "c10d/parallel/philox.h"
#include "examples/training/nn/errors.h"

namespace nn {

using namespace c10d::parallel;

Task::Task(const Options& given, int workers)
    : options(given),
      data(load_data(given.data)),
      model(make_model(given.model, data.train.sample, data.train.classes)),
      optimizer(given.optimizer),
      batch_size(given.global_batch_size > 0 ? given.global_batch_size
                                             : given.batch_size * workers),
      shards(given.reproducible ? given.shards : workers) {
  const Shape& sample = data.train.sample;
  if (options.shift > 0 && (sample.size() != 3 || options.shift >= std::min(sample[1], sample[2])))
    throw_invalid("--shift {}: samples are [{}]; give less than the height and width of an image",
                  options.shift, fmt::join(sample, ", "));
}

std::int64_t Task::steps_per_epoch() const {
  return (data.train.size + batch_size - 1) / batch_size;
}

std::uint64_t Task::steps() const {
  return static_cast<std::uint64_t>(options.epochs * steps_per_epoch());
}

std::string state_name(const std::string& parameter, int state) {
  return fmt::format("optimizer.{}.{}", state, parameter);
}

Weights::Weights(const Task& task, Model::Range range) : task_(task), range_(range) {
  for (std::size_t i = range.first; i < range.last; ++i) {
    const std::size_t count = task.model.parameters[i].count();
    values_.emplace_back(count);
    initialise(task.model, i, task.options.seed, {values_.back().data(), count});
    auto& states = states_.emplace_back();
    for (int s = 0; s < task.optimizer.states(); ++s) states.emplace_back(count);
  }
}

void Weights::update(std::size_t parameter, std::size_t first, std::span<const float> gradient,
                     std::uint64_t step, float rate) {
  const std::size_t at = parameter - range_.first;
  std::vector<float*> state;
  for (const Buffer& buffer : states_[at]) state.push_back(buffer.data() + first);
  task_.optimizer.update(task_.model.details[parameter].rule, step, rate,
                         {values_[at].data() + first, gradient.size()}, gradient.data(), state);
}

std::vector<TensorPart> Weights::parts() {
  std::vector<TensorPart> parts;
  const auto bytes = [](const Buffer& buffer) {
    return std::as_writable_bytes(std::span(buffer.data(), buffer.size()));
  };
  for (std::size_t i = range_.first; i < range_.last; ++i) {
    ParamSpec spec = task_.model.parameters[i];
    const std::string name = spec.name;
    spec.name = "model." + name;
    parts.push_back({spec, 0, bytes(values_[i - range_.first])});
    for (int s = 0; s < task_.optimizer.states(); ++s) {
      spec.name = state_name(name, s);
      parts.push_back({spec, 0, bytes(states_[i - range_.first][s])});
    }
  }
  return parts;
}

void Weights::put_into(Net& net) const {
  for (std::size_t i = range_.first; i < range_.last; ++i) net.values[i] = value(i);
}

std::vector<const float*> Weights::values() const {
  std::vector<const float*> all;
  for (const Buffer& value : values_) all.push_back(value.data());
  return all;
}

Feed::Feed(const Task& task, Net& net, int shards, ShardRange owned)
    : task_(task),
      net_(net),
      total_(shards),
      owned_(owned),
      shards_(static_cast<std::size_t>(owned.count())) {}

void Feed::load(std::span<const std::int64_t> batch, int shard, std::uint64_t step) {
  const DataSet& data = task_.data.train;
  const auto range =
      samples_of(static_cast<std::int64_t>(batch.size()), total_, owned_.first + shard);
  const auto samples = static_cast<std::size_t>(range.count());
  Shard& at = shards_[shard];
  const std::size_t floats = count_of(data.sample);
  const auto numbers = batch.subspan(range.first, samples);
  at.values.resize(samples * floats);
  at.labels.resize(samples * static_cast<std::size_t>(data.labels_per_sample));
  data.copy_samples(numbers, at.values.data(), at.labels.data());
  const std::int64_t reach = task_.options.shift;
  for (std::size_t i = 0; i < samples && reach > 0; ++i) {
    PhiloxStream random(task_.options.seed, step, static_cast<std::uint64_t>(numbers[i]), 0);
    const auto draw = [&] {
      return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(2 * reach + 1)));
    };
    const std::int64_t down = draw() - reach, right = draw() - reach;
    data.shift({at.values.data() + i * floats, floats}, down, right);
  }
  net_.place(shard, range.count(), true);
  net_.set_output(kModelInput, shard, at.values.data());
}

void Feed::load(std::span<const std::int64_t> batch, std::uint64_t step) {
  for (int shard = 0; shard < owned_.count(); ++shard) load(batch, shard, step);
}

Score Feed::score(int shard) {
  Shard& at = shards_[shard];
  if (at.labels.empty()) return {};
  const int last = static_cast<int>(net_.model().nodes.size()) - 1;
  at.diff.resize(net_.layout(last, shard).floats);
  const Score score =
      cross_entropy({net_.output(last, shard), at.diff.size()}, at.labels, at.diff.data());
  net_.set_diff(last, shard, at.diff.data());
  return score;
}

Score Feed::forward(std::span<const std::int64_t> batch, std::uint64_t step) {
  load(batch, step);
  net_.forward(0, static_cast<int>(net_.model().nodes.size()), 0, net_.shards());
  Score total;
  for (int shard = 0; shard < net_.shards(); ++shard) total = total + score(shard);
  return total;
}

double rows_of(const Task& task, std::span<const std::int64_t> batch) {
  return static_cast<double>(static_cast<std::int64_t>(batch.size()) *
                             task.data.train.labels_per_sample);
}

Score operator+(Score a, const Score& b) {
  a.loss += b.loss;
  a.right += b.right;
  a.rows += b.rows;
  return a;
}

}  // namespace nn
