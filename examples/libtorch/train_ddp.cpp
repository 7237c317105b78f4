// SPDX-License-Identifier: BSD-3-Clause
// LibTorch on several ranks: a small convolutional net learns handwritten digits.
//   c10d-run -n 2 libtorch_train_ddp --epochs 3 --global-batch-size 32
// With --reproducible the last line, a digest of all weights, is the same for every number of
// ranks.
// --checkpoint DIR saves after each epoch, and a run with the same DIR goes on from there.
#include <torch/torch.h>
#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "c10d/init.h"
#include "c10d/parallel/sampler.h"
#include "c10d/torch.h"

namespace {

using namespace c10d::parallel;
namespace F = torch::nn::functional;

struct Options {
  std::int64_t epochs = 3, batch_size = 32;
  double lr = 0.05;
  bool reproducible = false;
  std::string checkpoint{};
};

Options options_of(std::span<char*> words) {
  Options options;
  const auto value = [&](std::size_t& at) {
    if (at + 1 == words.size()) throw std::invalid_argument(std::string(words[at]) + ": no value");
    return words[++at];
  };
  for (std::size_t at = 1; at < words.size(); ++at) {
    const std::string word = words[at];
    if (word == "--epochs")
      options.epochs = std::atoll(value(at));
    else if (word == "--global-batch-size")
      options.batch_size = std::atoll(value(at));
    else if (word == "--lr")
      options.lr = std::atof(value(at));
    else if (word == "--reproducible")
      options.reproducible = true;
    else if (word == "--checkpoint")
      options.checkpoint = value(at);
    else
      throw std::invalid_argument(word +
                                  ": there are --epochs N, --global-batch-size N, --lr RATE, "
                                  "--reproducible, --checkpoint DIR");
  }
  return options;
}

struct BabyCnn : torch::nn::Module {
  torch::nn::Conv2d conv1 =
      register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 32, 3).padding(1)));
  torch::nn::Conv2d conv2 =
      register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(32, 64, 3).padding(1)));
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(64 * 2 * 2, 128));
  torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(128, 10));

  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(conv1(x)), 2);
    x = torch::max_pool2d(torch::relu(conv2(x)), 2);
    return fc2(torch::relu(fc1(x.flatten(1))));
  }
};

// The bytes of a file of this repository that gzip made, without the first `header`.
torch::Tensor read_gzip(const std::string& name, std::size_t header) {
  const std::string path = EXAMPLE_DATA "/" + name + "-ubyte.gz";
  const gzFile file = gzopen(path.c_str(), "rb");
  std::vector<std::uint8_t> bytes(1 << 20);
  const int count = file == nullptr ? -1 : gzread(file, bytes.data(), 1 << 20);
  if (file != nullptr) gzclose(file);
  if (count <= static_cast<int>(header)) throw std::runtime_error(path + ": cannot be read");
  const std::span own(bytes.data() + header, static_cast<std::size_t>(count) - header);
  return torch::from_blob(own.data(), static_cast<std::int64_t>(own.size()), torch::kByte).clone();
}

struct Digits {
  torch::Tensor images;  // [n, 1, 8, 8]
  torch::Tensor labels;  // [n]
};

// `part`: "train" or "t10k".
Digits read_digits(const std::string& part) {
  const torch::Tensor pixels = read_gzip(part + "-images-idx3", 16).view({-1, 1, 8, 8});
  return {(pixels.to(torch::kFloat) / 255 - 0.1307) / 0.3081,
          read_gzip(part + "-labels-idx1", 8).to(torch::kLong)};
}

// In percent, of digits that were not trained on.
double accuracy(BabyCnn& net, const Digits& test) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor right = net.forward(test.images).argmax(1).eq(test.labels);
  return 100 * right.to(torch::kDouble).mean().item<double>();
}

// The same for two modules only if names and bits of all weights are the same (FNV-1a).
std::string digest_of(const DistributedModule& ddp) {
  std::map<std::string, std::span<const std::byte>> sorted;
  for (const TensorPart& part : ddp.parts("")) sorted[part.spec.name] = part.data;
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto eat = [&](std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes)
      hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3;
  };
  for (const auto& [name, bytes] : sorted) {
    eat(std::as_bytes(std::span(name.c_str(), name.size() + 1)));
    eat(bytes);
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

void train(const Options& options) {
  c10d::ProcessGroup group = c10d::init_process_group();
  at::set_num_threads(1);  // the ranks are the parallelism; and a sum then has one order
  at::globalContext().setDeterministicAlgorithms(options.reproducible, false);
  torch::manual_seed(1);
  const Digits digits = read_digits("train"), test = read_digits("t10k");
  const auto net = std::make_shared<BabyCnn>();
  const ReduceMode mode = options.reproducible ? ReduceMode::reproducible : ReduceMode::fast;
  DistributedModule ddp(group, net, {.reducer = {.mode = mode, .shards = 8}});
  torch::optim::SGD optimizer(net->parameters(), options.lr);  // without momentum it has no state
  DistributedSampler sampler({.samples = digits.labels.size(0)});

  Snapshot snapshot{.parts = ddp.parts()};
  if (!options.checkpoint.empty()) load(group, options.checkpoint, snapshot);
  while (snapshot.epoch < static_cast<std::uint64_t>(options.epochs)) {
    sampler.set_epoch(snapshot.epoch);
    while (sampler.cursor() < sampler.total()) {
      const auto batch = sampler.next(options.batch_size);
      const auto size = static_cast<std::int64_t>(batch.size());
      const torch::Tensor numbers =
          torch::from_blob(const_cast<std::int64_t*>(batch.data()), size, torch::kLong);
      const ShardRange own = ddp.owned();
      const auto samples = [&](int shard) { return samples_of(size, ddp.shards(), shard); };
      std::int64_t count = 0;
      for (int shard = own.first; shard < own.last; ++shard) count += samples(shard).count();
      ddp.begin_step({.samples = count});
      for (int shard = own.first; shard < own.last; ++shard) {
        const auto [first, last] = samples(shard);
        if (first == last) {
          ddp.skip_shard();
          continue;
        }
        const torch::Tensor mine = numbers.slice(0, first, last);
        F::cross_entropy(net->forward(digits.images.index_select(0, mine)),
                         digits.labels.index_select(0, mine),
                         F::CrossEntropyFuncOptions().reduction(torch::kSum))
            .backward();
      }
      ddp.finish();
      optimizer.step();
    }
    ++snapshot.epoch;
    if (!options.checkpoint.empty()) save(group, options.checkpoint, snapshot);
    if (group.rank() == 0)
      std::printf("epoch %d  test accuracy %.2f %%\n", static_cast<int>(snapshot.epoch),
                  accuracy(*net, test));
    std::fflush(stdout);
  }
  const std::string digest = digest_of(ddp);
  check_same(group, "weights after training", std::as_bytes(std::span(digest)));
  if (group.rank() == 0) std::printf("weights %s\n", digest.c_str());
}

}  // namespace

int main(int argc, char** argv) try {
  train(options_of({argv, static_cast<std::size_t>(argc)}));
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
