// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <map>
#include <mutex>
#include <optional>
#include <sstream>

#include "c10d/torch.h"
#include "tests/contract/ranks.h"
#include "tests/temporary_directory.h"

namespace c10d::parallel { namespace {

using contract::OnBackend;
using contract::run_ranks;
using testing::AllOf;
using testing::HasSubstr;
using LibTorchOn = OnBackend;

// Weights that depend on name and `salt` only: the random numbers of PyTorch are those of all
// threads.
void fill(torch::nn::Module& module, double salt = 0) {
  const torch::NoGradGuard no_grad;
  for (auto& item : module.named_parameters()) {
    const auto count = item.value().numel();
    const double seed = static_cast<double>(item.key().size()) + salt;
    item.value().copy_(torch::sin(torch::arange(count) * 1.7 + seed).view_as(item.value()) * 0.3);
  }
}

struct Net : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 5));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(5, 3));

  explicit Net(double salt = 0) { fill(*this, salt); }
  torch::Tensor forward(const torch::Tensor& x) { return last(torch::tanh(first(x))); }
};

// Of the samples [first, last) of a step.
torch::Tensor inputs(std::int64_t step, std::int64_t first, std::int64_t last) {
  return torch::cos(torch::arange(6 * first, 6 * last) * 0.37 + static_cast<double>(step))
      .view({-1, 6});
}
torch::Tensor loss_of(Net& net, std::int64_t step, std::int64_t first, std::int64_t last) {
  return net.forward(inputs(step, first, last)).square().sum();
}

std::int64_t batch_of(std::int64_t step) { return step == 2 ? 3 : 21 + step; }
constexpr std::int64_t kSteps = 4;
constexpr int kShards = 8;

// One step; a shard may have no samples.
void take_step(DistributedModule& ddp, Net& net, std::int64_t step) {
  const ShardRange own = ddp.owned();
  const auto samples = [&](int s) { return samples_of(batch_of(step), ddp.shards(), s); };
  std::int64_t count = 0;
  for (int shard = own.first; shard < own.last; ++shard) count += samples(shard).count();
  ddp.begin_step({.samples = count});
  for (int shard = own.first; shard < own.last; ++shard) {
    const auto [first, last] = samples(shard);
    if (first == last)
      ddp.skip_shard();
    else
      loss_of(net, step, first, last).backward();
  }
  EXPECT_EQ(ddp.finish().samples, batch_of(step));
}

std::vector<torch::Tensor> trained(const ProcessGroup& group, const ReducerOptions& options,
                                   bool find_unused = false) {
  const auto net = std::make_shared<Net>();
  DistributedModule ddp(group, net, {.reducer = options, .find_unused_parameters = find_unused});
  torch::optim::SGD optimizer(net->parameters(), 0.2);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    take_step(ddp, *net, step);
    optimizer.step();
  }
  return net->parameters();
}

// One process, without c10d.
std::vector<torch::Tensor> trained_alone() {
  Net net;
  torch::optim::SGD optimizer(net.parameters(), 0.2);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    (loss_of(net, step, 0, batch_of(step)) / batch_of(step)).backward();
    optimizer.step();
  }
  return net.parameters();
}

bool same(const std::vector<torch::Tensor>& some, const std::vector<torch::Tensor>& others) {
  return std::equal(some.begin(), some.end(), others.begin(), others.end(),
                    [](const auto& a, const auto& b) { return a.equal(b); });
}

ReducerOptions reproducible() {
  return {.mode = ReduceMode::reproducible,
          .shards = kShards,
          .first_bucket_bytes = 16,
          .bucket_bytes = 64};
}

std::string text_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(AsTensor, IsTheMemoryOfTheTensor) {
  const std::map<at::ScalarType, DType> dtypes = {
      {at::kDouble, DType::f64},       {at::kFloat, DType::f32},
      {at::kHalf, DType::f16},         {at::kBFloat16, DType::bf16},
      {at::kLong, DType::i64},         {at::kInt, DType::i32},
      {at::kShort, DType::i16},        {at::kChar, DType::i8},
      {at::kByte, DType::u8},          {at::kBool, DType::boolean},
      {at::kComplexFloat, DType::c64}, {at::kComplexDouble, DType::c128}};
  for (const auto& [scalar, dtype] : dtypes) {
    const torch::Tensor tensor = torch::zeros({2, 3}, scalar);
    const View view = as_tensor(tensor);
    EXPECT_EQ(view.data, tensor.data_ptr()) << scalar;
    EXPECT_EQ(view.count, 6U) << scalar;
    EXPECT_EQ(view.dtype, dtype) << scalar;
    EXPECT_EQ(view.bytes(), tensor.nbytes()) << scalar;
    EXPECT_EQ(view.device, Device{}) << scalar;
  }
  EXPECT_EQ(as_tensor(torch::empty({0, 4})).count, 0U);
}

TEST(AsTensor, SaysWhatIsWrong) {
  const auto said = [](const torch::Tensor& tensor) {
    EXPECT_THROW(as_tensor(tensor), InvalidArgument);
    return text_of([&] { as_tensor(tensor); });
  };
  const torch::Tensor whole = torch::zeros({2, 3});
  EXPECT_THAT(said({}), HasSubstr("the tensor is undefined"));
  EXPECT_THAT(said(whole.t()), AllOf(HasSubstr("sizes [3, 2] and strides [1, 3] is not contiguous"),
                                     HasSubstr("use contiguous()")));
  EXPECT_THAT(said(whole.to_sparse()), HasSubstr("the layout is Sparse: use to_dense()"));
  EXPECT_THAT(said(torch::zeros({2}, torch::kComplexFloat).conj()), HasSubstr("resolve_conj()"));
  EXPECT_THAT(said(torch::zeros({2}, torch::kComplexHalf)), HasSubstr("no dtype for ComplexHalf"));
  EXPECT_THAT(said(torch::quantize_per_tensor(whole, 1, 0, torch::kQInt8)),
              HasSubstr("no dtype for QInt8"));
  EXPECT_THAT(said(torch::empty({2}, torch::kMeta)), HasSubstr("the tensor is on meta"));
}

TEST_P(LibTorchOn, TensorIsABufferOfAnOp) {
  run(3, [](ProcessGroup& group) {
    torch::Tensor tensor = torch::full({2, 2}, group.rank() + 1, torch::kHalf);
    group.all_reduce(as_tensor(tensor));
    EXPECT_TRUE(tensor.equal(torch::full({2, 2}, 6, torch::kHalf))) << tensor;
  });
}

TEST_P(LibTorchOn, SameBitsAtEveryNumberOfRanks) {
  std::mutex mutex;
  std::vector<torch::Tensor> expected;
  for (const int size : {1, 2, 3, 4})
    for (const bool find_unused : {false, true})
      run(size, [&](ProcessGroup& group) {
        const auto weights = trained(group, reproducible(), find_unused);
        const std::lock_guard lock(mutex);
        if (expected.empty()) expected = weights;
        EXPECT_TRUE(same(weights, expected)) << size << " ranks, " << find_unused;
      });
}

TEST_P(LibTorchOn, MeanOverAllSamplesInModeFast) {
  const auto expected = trained_alone();
  for (const int size : {1, 3})
    run(size, [&](ProcessGroup& group) {
      const auto weights = trained(group, {});
      for (std::size_t i = 0; i < weights.size(); ++i)
        EXPECT_TRUE(weights[i].allclose(expected[i], 1e-4, 1e-6)) << size << " ranks, " << i;
    });
}

TEST(LibTorch, GradientsAreViewsOfBuckets) {
  run_ranks("native", 2, [](ProcessGroup& group) {
    const auto net = std::make_shared<Net>();
    DistributedModule ddp(group, net, {.reducer = reproducible()});
    for (std::int64_t step = 0; step < 3; ++step) {
      take_step(ddp, *net, step);
      for (std::size_t i = 0; i < net->parameters().size(); ++i)
        EXPECT_EQ(net->parameters()[i].grad().data_ptr(), ddp.reducer().grad_view(i).data());
    }
    ddp.begin_step({.samples = 1});
    for (const auto& param : net->parameters()) EXPECT_FALSE(param.grad().defined());
    for (int shard = 0; shard < ddp.owned().count(); ++shard) ddp.skip_shard();
    ddp.finish();
    for (const auto& param : net->parameters())
      EXPECT_EQ(param.grad().count_nonzero().item<int>(), 0);
  });
}

// Its backward waits for a latch, which the caller keeps.
struct Gate : torch::autograd::Function<Gate> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               std::int64_t latch) {
    context->saved_data["latch"] = latch;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    reinterpret_cast<contract::Latch*>(context->saved_data["latch"].toInt())->wait();
    return {gradients[0], {}};
  }
};

TEST(LibTorch, BucketsLeaveWhileBackwardRuns) {
  run_ranks("native", 2, [](ProcessGroup& group) {
    contract::Latch reduced(2);
    const auto net = std::make_shared<Net>();
    DistributedModule ddp(group, net, {.reducer = {.first_bucket_bytes = 1, .bucket_bytes = 1}});
    ddp.reducer().on_bucket_done([&](const Bucket& bucket) {
      if (bucket.index < 2) reduced.count_down();
    });
    ddp.begin_step({.samples = 1});
    const auto hidden = torch::tanh(net->first(inputs(0, 0, 1)));
    const auto gated = Gate::apply(hidden, reinterpret_cast<std::int64_t>(&reduced));
    net->last(gated).sum().backward();  // both parameters of `last` are reduced before the gate
    ddp.finish();
  });
}

TEST(LibTorch, NoSyncReducesNothing) {
  run_ranks("native", 2, [](ProcessGroup& group) {
    const auto net = std::make_shared<Net>();
    const auto alone = std::make_shared<Net>();
    DistributedModule ddp(group, net);
    const auto micro_step = [&](std::int64_t first, std::int64_t last) {
      ddp.begin_step({.samples = last - first});
      loss_of(*net, 0, first, last).backward();
      return ddp.finish().samples;
    };
    const std::int64_t mine = 10 * group.rank();
    {
      const auto accumulating = ddp.no_sync();
      EXPECT_EQ(micro_step(mine, mine + 3), 3);
      EXPECT_EQ(micro_step(mine + 3, mine + 4), 4);
    }
    loss_of(*alone, 0, mine, mine + 4).backward();
    for (std::size_t i = 0; i < net->parameters().size(); ++i)
      EXPECT_TRUE(net->parameters()[i].grad().allclose(alone->parameters()[i].grad(), 1e-4, 1e-6));
    EXPECT_EQ(micro_step(mine + 4, mine + 10), 20);
    for (auto& param : alone->parameters()) param.mutable_grad().reset();
    (loss_of(*alone, 0, 0, 20) / 20).backward();
    for (std::size_t i = 0; i < net->parameters().size(); ++i)
      EXPECT_TRUE(net->parameters()[i].grad().allclose(alone->parameters()[i].grad(), 1e-4, 1e-6));
    EXPECT_EQ(micro_step(mine, mine + 10), 20);  // begins anew
    for (std::size_t i = 0; i < net->parameters().size(); ++i)
      EXPECT_TRUE(net->parameters()[i].grad().allclose(alone->parameters()[i].grad(), 1e-4, 1e-6));
  });
}

// A step in which `last` of rank 1 has no gradient.
void leave_out_last(DistributedModule& ddp, Net& net, int rank) {
  ddp.begin_step({.samples = 1});
  if (rank == 1)
    net.first(inputs(0, 0, 1)).sum().backward();
  else
    loss_of(net, 0, 0, 1).backward();
  ddp.finish();
}

TEST(LibTorch, UnusedParametersAreNamedOnEveryRank) {
  contract::Latch heard(3);
  run_ranks("native", 3, [&](ProcessGroup& group) {
    const auto net = std::make_shared<Net>();
    DistributedModule ddp(group, net);
    EXPECT_THAT(text_of([&] { leave_out_last(ddp, *net, group.rank()); }),
                HasSubstr("parameters without a gradient on rank 1 in step 1: last.weight, "
                          "last.bias"));
    heard.arrive_and_wait();
  });
}

TEST(LibTorch, UnusedParametersCountAsZeroIfFound) {
  run_ranks("native", 2, [](ProcessGroup& group) {
    const auto net = std::make_shared<Net>();
    const auto alone = std::make_shared<Net>();
    DistributedModule ddp(group, net, {.find_unused_parameters = true});
    leave_out_last(ddp, *net, group.rank());
    (loss_of(*alone, 0, 0, 1) / 2).backward();
    EXPECT_TRUE(net->last->weight.grad().allclose(alone->last->weight.grad()));
  });
}

// `last` is used in shards 0, 2 and 3: there its gradients stand in the tree.
TEST(LibTorch, UnusedParametersKeepThePlaceOfTheirShard) {
  run_ranks("native", 1, [](ProcessGroup& group) {
    const auto net = std::make_shared<Net>();
    DistributedModule ddp(group, net, {.reducer = reproducible(), .find_unused_parameters = true});
    const auto loss = [&](int shard) { return loss_of(*net, 0, shard, shard + 1); };
    const auto alone = [&](int shard) {
      return torch::autograd::grad({loss(shard)}, {net->last->weight})[0];
    };
    const torch::Tensor sum = alone(0) + (alone(2) + alone(3));
    EXPECT_FALSE(sum.equal((alone(0) + alone(2)) + alone(3)));
    ddp.begin_step({.samples = kShards});
    for (int shard = 0; shard < kShards; ++shard)
      if (shard == 0 || shard == 2 || shard == 3)
        loss(shard).backward();
      else
        net->first(inputs(0, shard, shard + 1)).sum().backward();
    ddp.finish();
    EXPECT_TRUE(net->last->weight.grad().equal(sum / kShards));
  });
}

struct Stateful : torch::nn::Module {
  torch::Tensor frozen = register_parameter("frozen", torch::zeros({2}), false);
  torch::Tensor weight = register_parameter("weight", torch::zeros({3, 2}));
  torch::Tensor tied = register_parameter("tied", weight);
  torch::Tensor none = register_parameter("none", {}, false);
  torch::Tensor seen = register_buffer("seen", torch::zeros({}, torch::kLong));

  explicit Stateful(double value = 0) {
    const torch::NoGradGuard no_grad;
    frozen.fill_(value);
    weight.fill_(value + 1);
    seen.fill_(static_cast<std::int64_t>(value + 2));
  }
  bool holds(double value) const {
    return frozen.eq(value).all().item<bool>() && weight.eq(value + 1).all().item<bool>() &&
           seen.item<double>() == value + 2;
  }
};

TEST(LibTorch, StateOfRankZeroComesToAllRanks) {
  run_ranks("native", 3, [](ProcessGroup& group) {
    const auto module = std::make_shared<Stateful>(10.0 * group.rank() + 5);
    DistributedModule ddp(group, module);
    EXPECT_TRUE(module->holds(5));
    EXPECT_EQ(ddp.parts().size(), 3U);  // weight once
    ddp.begin_step({.samples = 1});
    (module->weight.sum() + module->tied.sum() * group.rank()).backward();
    ddp.finish();
    EXPECT_TRUE(module->weight.grad().eq(2).all().item<bool>()) << module->weight.grad();
    EXPECT_FALSE(module->frozen.grad().defined());
    module->seen.fill_(group.rank() + 70);
    ddp.broadcast_buffers();
    EXPECT_EQ(module->seen.item<int>(), 70);
  });
}

TEST(LibTorch, CheckpointIsReadByAnotherNumberOfRanks) {
  const TemporaryDirectory directory;
  run_ranks("native", 2, [&](ProcessGroup& group) {
    DistributedModule ddp(group, std::make_shared<Stateful>(3));
    save(group, directory.path(), {.step = 7, .parts = ddp.parts()});
  });
  run_ranks("native", 3, [&](ProcessGroup& group) {
    const auto module = std::make_shared<Stateful>(9);
    DistributedModule ddp(group, module);
    Snapshot snapshot{.parts = ddp.parts()};
    ASSERT_TRUE(load(group, directory.path(), snapshot));
    EXPECT_EQ(snapshot.step, 7U);
    EXPECT_TRUE(module->holds(3));
  });
}

TEST(LibTorch, OptimizerStateIsAPart) {
  const TemporaryDirectory directory;
  run_ranks("native", 2, [&](ProcessGroup& group) {
    torch::Tensor momentum = torch::full({2, 2}, 4.5);
    save(group, directory.path(), {.parts = {part_of("momentum.w", momentum)}});
    momentum.zero_();
    Snapshot snapshot{.parts = {part_of("momentum.w", momentum)}};
    ASSERT_TRUE(load(group, directory.path(), snapshot));
    EXPECT_TRUE(momentum.equal(torch::full({2, 2}, 4.5)));
    EXPECT_THROW(part_of("momentum.w", momentum.t()[0]), InvalidArgument);
  });
}

// What the ranks hear from the constructor when rank 1 has another module.
void expect_refused(const std::function<std::shared_ptr<torch::nn::Module>(int rank)>& make,
                    const std::string& text, bool is_own_mistake) {
  run_ranks("native", 3, [&](ProcessGroup& group) {
    const bool own = is_own_mistake && group.rank() == 1;
    try {
      DistributedModule ddp(group, make(group.rank()));
      ADD_FAILURE() << "accepted on rank " << group.rank();
    } catch (const InvalidArgument& error) {
      EXPECT_TRUE(own) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(text));
    } catch (const DistError& error) {
      EXPECT_FALSE(own) << error.what();
      EXPECT_EQ(error.code(), Code::mismatch);
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
    contract::expect_usable(group);
  });
}

struct One : torch::nn::Module {
  explicit One(const torch::Tensor& parameter, const torch::Tensor& buffer = torch::zeros({2})) {
    register_parameter("w", parameter);
    register_buffer("b", buffer);
  }
};

TEST(LibTorch, ConstructorNamesWhatDiffers) {
  const auto module = [](const torch::Tensor& odd_w, const torch::Tensor& odd_b) {
    return [=](int rank) {
      return rank == 1 ? std::make_shared<One>(odd_w.clone(), odd_b.clone())
                       : std::make_shared<One>(torch::zeros({3, 4}));
    };
  };
  expect_refused(module(torch::zeros({4, 3}), torch::zeros({2})),
                 "parameter 0 is w f32 [3, 4] on rank 0, and w f32 [4, 3] on rank 1", false);
  expect_refused(module(torch::zeros({3, 4}), torch::zeros({2}, torch::kDouble)),
                 "parameter 1 is b f32 [2] on rank 0, and b f64 [2] on rank 1", false);
  expect_refused(
      [](int rank) -> std::shared_ptr<torch::nn::Module> {
        if (rank == 1) return nullptr;
        return std::make_shared<Net>();
      },
      "there is no module", true);
}

TEST(LibTorch, ConstructorRefusesTensorsThatAreNoBuffers) {
  const auto odd = [](const torch::Tensor& w) {
    return [=](int rank) { return std::make_shared<One>(rank == 1 ? w : torch::zeros({3, 4})); };
  };
  expect_refused(odd(torch::zeros({4, 3}).t()),
                 "w: as_tensor: the tensor with sizes [3, 4] and strides [1, 3] is not contiguous",
                 true);
  expect_refused(odd(torch::zeros({3, 4}, torch::kMeta)), "w: as_tensor: the tensor is on meta",
                 true);
  run_ranks("native", 2, [](ProcessGroup& group) {
    const auto module = std::make_shared<One>(torch::zeros({2}, torch::kComplexFloat));
    EXPECT_THAT(text_of([&] { DistributedModule ddp(group, module); }),
                HasSubstr("the gradient of w is c64"));
  });
}

TEST(LibTorch, SparseGradientIsRefused) {
  run_ranks("native", 1, [](ProcessGroup& group) {
    const auto net =
        std::make_shared<torch::nn::EmbeddingImpl>(torch::nn::EmbeddingOptions(5, 2).sparse(true));
    DistributedModule ddp(group, net);
    ddp.begin_step({.samples = 1});
    EXPECT_THROW(net->forward(torch::zeros({1}, torch::kLong)).sum().backward(), InvalidArgument);
  });
}

// What the call throws.
template <class Call>
std::string refusal_of(Call call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(LibTorch, ParametersThatAreOthersThanAtFirstAreRefused) {
  run_ranks("native", 1, [](ProcessGroup& group) {
    const auto begins = [&](const std::function<void(Net&)>& change) {
      const auto net = std::make_shared<Net>();
      net->last->bias.requires_grad_(false);
      DistributedModule ddp(group, net);
      take_step(ddp, *net, 0);
      change(*net);
      return refusal_of([&] { ddp.begin_step({.samples = 1}); });
    };
    EXPECT_THAT(begins([](Net& net) { net.first->weight.requires_grad_(false); }),
                HasSubstr("first.weight was frozen since"));
    EXPECT_THAT(begins([](Net& net) { net.last->bias.requires_grad_(true); }),
                HasSubstr("last.bias was unfrozen since"));
    EXPECT_THAT(begins([](Net& net) {
                  std::stringstream file;
                  torch::serialize::OutputArchive out;
                  net.save(out);
                  out.save_to(file);
                  torch::serialize::InputArchive in;
                  in.load_from(file);
                  net.load(in);
                }),
                HasSubstr("first.weight was replaced, by torch::load() or to(), since"));
    EXPECT_THAT(begins([](Net& net) { net.to(torch::kDouble); }),
                HasSubstr("first.weight was replaced"));
    EXPECT_THAT(begins([](Net& net) {
                  const torch::NoGradGuard no_grad;
                  net.first->weight.fill_(1);
                }),
                HasSubstr("nothing was thrown"));
  });
}

TEST(LibTorch, StepsThatWouldSumNothingAreRefused) {
  run_ranks("native", 1, [](ProcessGroup& group) {
    torch::nn::Sequential net{torch::nn::Linear(6, 3)};
    DistributedModule ddp(group, net);
    ddp.begin_step({});
    EXPECT_THAT(refusal_of([&] { net->forward(inputs(0, 0, 2)).sum().backward(); }),
                HasSubstr("begin_step() said 0 samples"));
    EXPECT_THAT(refusal_of([&] { static_cast<void>(ddp.no_sync()); }),
                HasSubstr("goes around begin_step() and finish()"));
    ddp.finish();
    ddp.begin_step({.samples = 2});
    net->forward(inputs(0, 0, 2)).sum().backward();
    EXPECT_EQ(ddp.finish().samples, 2);
  });
}

TEST(LibTorch, OutsideOfAStepAutogradIsAsItWas) {
  run_ranks("native", 1, [](ProcessGroup& group) {
    const auto net = std::make_shared<Net>();
    const auto doubled = [&] {
      for (auto& param : net->parameters()) param.mutable_grad().reset();
      loss_of(*net, 0, 0, 2).backward();
      const torch::Tensor once = net->first->weight.grad().clone();
      loss_of(*net, 0, 0, 2).backward();
      return net->first->weight.grad().equal(2 * once);
    };
    torch::Tensor graph;  // outlives the hooks
    {
      DistributedModule ddp(group, net);
      EXPECT_TRUE(doubled());
      take_step(ddp, *net, 0);
      EXPECT_TRUE(doubled());
      graph = loss_of(*net, 0, 0, 2);
    }
    EXPECT_FALSE(net->first->weight.grad().defined());
    graph.backward();
    EXPECT_TRUE(doubled());
  });
}

TEST(LibTorch, HooksGoWithTheirObject) {
  const torch::Tensor weight = torch::ones({2}, torch::requires_grad());
  int calls = 0;
  std::optional<GradientHooks> hooks(std::in_place, std::vector{weight},
                                     [&](std::size_t) { ++calls; });
  const torch::Tensor one = weight.sum(), other = weight.sum();
  one.backward();
  EXPECT_EQ(calls, 1);
  hooks.reset();
  other.backward();  // a graph that was made under the hooks
  EXPECT_EQ(calls, 1);
}

TEST(LibTorch, BackwardTooOftenIsHeardByAll) {
  contract::Latch heard(2);
  run_ranks("native", 2, [&](ProcessGroup& group) {
    const auto net = std::make_shared<Net>();
    DistributedModule ddp(group, net);
    const std::string text = text_of([&] {
      ddp.begin_step({.samples = 1});
      loss_of(*net, 0, 0, 1).backward();
      if (group.rank() == 1) loss_of(*net, 0, 0, 1).backward();
      ddp.finish();
      ddp.begin_step({.samples = 1});
    });
    EXPECT_THAT(text, AllOf(HasSubstr("was marked ready too often"), HasSubstr("rank 1")));
    heard.arrive_and_wait();
  });
}

std::vector<ShardedUnit> units_of(const std::shared_ptr<Net>& net) {
  return {{"first", net->first.ptr(), [net](const auto& x) { return torch::tanh(net->first(x)); }},
          {"last", net->last.ptr(), [net](const auto& x) { return net->last(x); }}};
}

void take_step(ShardedSequence& model, int shards, std::int64_t step) {
  std::int64_t count = 0;
  std::vector<torch::Tensor> own;
  for (int shard = model.owned().first; shard < model.owned().last; ++shard) {
    const auto [first, last] = samples_of(batch_of(step), shards, shard);
    count += last - first;
    own.push_back(first == last ? torch::Tensor() : inputs(step, first, last));
  }
  const auto loss = [](std::size_t, const torch::Tensor& y) { return y.square().sum(); };
  EXPECT_EQ(model.step(own, loss, {.samples = count}).samples, batch_of(step));
}

// Trains, saves, and loads the checkpoint into a whole module.
std::vector<torch::Tensor> trained_sharded(const ProcessGroup& group, const FsdpOptions& options,
                                           const std::string& directory) {
  ShardedSequence model(group, units_of(std::make_shared<Net>(group.rank())), options);
  torch::optim::SGD optimizer(model.parameters(), 0.2);
  const int shards = options.mode == ReduceMode::fast ? group.size() : options.shards;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    take_step(model, shards, step);
    optimizer.step();
    model.sync_parameters();
  }
  save(group, directory, {.step = kSteps, .parts = model.parts()});
  const auto whole = std::make_shared<Net>(7);
  DistributedModule ddp(group, whole);
  Snapshot snapshot{.parts = ddp.parts()};
  EXPECT_TRUE(load(group, directory, snapshot));
  EXPECT_TRUE(model.forward(inputs(9, 0, 2)).equal(whole->forward(inputs(9, 0, 2))));
  return whole->parameters();
}

TEST(LibTorch, ShardedBitsAreThoseOfDistributedModule) {
  std::mutex mutex;
  std::vector<torch::Tensor> expected;
  run_ranks("native", 1, [&](ProcessGroup& group) { expected = trained(group, reproducible()); });
  for (const int size : {1, 2, 3, 4})
    for (const Sharding& sharding : {kZero1, kZero2, kZero3}) {
      const TemporaryDirectory directory;
      run_ranks("native", size, [&](ProcessGroup& group) {
        const auto weights = trained_sharded(
            group, {.sharding = sharding, .mode = ReduceMode::reproducible, .shards = kShards},
            directory.path());
        const std::lock_guard lock(mutex);
        EXPECT_TRUE(same(weights, expected)) << size << " ranks";
      });
    }
}

TEST(LibTorch, ShardedMeanOverAllSamplesInModeFast) {
  const auto expected = trained_alone();
  const TemporaryDirectory directory;
  run_ranks("native", 3, [&](ProcessGroup& group) {
    const auto weights = trained_sharded(group, {}, directory.path());
    for (std::size_t i = 0; i < weights.size(); ++i)
      EXPECT_TRUE(weights[i].allclose(expected[i], 1e-4, 1e-6)) << i;
  });
}

// Rank 1 has another error than the others.
void expect_step_fails(const std::function<void(ShardedSequence&, bool is_odd)>& step,
                       const std::string& text) {
  contract::Latch heard(3);
  run_ranks("native", 3, [&](ProcessGroup& group) {
    ShardedSequence model(group, units_of(std::make_shared<Net>()));
    const bool is_odd = group.rank() == 1;
    EXPECT_THAT(text_of([&] { step(model, is_odd); }), HasSubstr(text));
    heard.arrive_and_wait();
  });
}

TEST(LibTorch, ShardedStepThatFailsIsHeardByAll) {
  const auto square = [](std::size_t, const torch::Tensor& y) { return y.square().sum(); };
  expect_step_fails(
      [&](ShardedSequence& model, bool is_odd) {
        model.step(is_odd ? std::vector<torch::Tensor>() : std::vector{inputs(0, 0, 1)}, square,
                   {.samples = 1});
      },
      "0 inputs on rank 1, which has 1 shards");
  expect_step_fails(
      [&](ShardedSequence& model, bool is_odd) {
        model.step({is_odd ? torch::zeros({1, 7}) : inputs(0, 0, 1)}, square, {.samples = 1});
      },
      "mat1 and mat2 shapes cannot be multiplied");
}

TEST(LibTorch, ShardedRefusesWhatMakesNoSense) {
  const auto refusal =
      [](const std::function<void(ProcessGroup&, const std::shared_ptr<Net>&)>& make) {
        std::string text;
        run_ranks("native", 1, [&](ProcessGroup& group) {
          text = text_of([&] { make(group, std::make_shared<Net>()); });
        });
        return text;
      };
  EXPECT_THAT(refusal([](ProcessGroup& group, const std::shared_ptr<Net>& net) {
                std::vector<ShardedUnit> units = units_of(net);
                units.push_back({"again", net->last.ptr(), units[1].forward});
                ShardedSequence(group, units);
              }),
              HasSubstr("a parameter of unit again is in a unit before"));
  EXPECT_THAT(refusal([](ProcessGroup& group, const std::shared_ptr<Net>& net) {
                ShardedSequence(group, units_of(net), {.compute = DType::bf16});
              }),
              HasSubstr("compute is f32"));
  EXPECT_THAT(refusal([](ProcessGroup& group, const std::shared_ptr<Net>& net) {
                net->to(torch::kDouble);
                ShardedSequence(group, units_of(net));
              }),
              HasSubstr("f64"));
}

C10D_ON_EACH_BACKEND(LibTorchOn);

}}  // namespace c10d::parallel
