// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints that go well: any split to any other, whole or in part, at once or in the background.
#include "c10d/parallel/checkpoint.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <type_traits>
#include <utility>

#include "src/parallel/checkpoint/files.h"
#include "src/parallel/checkpoint/safetensors.h"
#include "tests/contract/ranks.h"
#include "tests/parallel/refusals.h"
#include "tests/temporary_directory.h"

namespace c10d::parallel { namespace {

namespace fs = std::filesystem;

// The tensors of a toy run. Every element has a value of its own, so that each misplaced byte
// shows.
const std::vector<ParamSpec> kSpecs = {
    {"model.weights", {13, 7}, DType::f32}, {"model.bias", {}, DType::f64},
    {"adam.m", {91}, DType::f32},           {"rng", {3}, DType::u64},
    {"mask", {11}, DType::boolean},         {"empty", {0, 4}, DType::i16}};

std::vector<std::byte> content(const ParamSpec& spec) {
  std::vector<std::byte> bytes(spec.bytes());
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(31 * i + spec.name.size() * 7 + i / 256);
  return bytes;
}

enum class Split { replicated, cut, uneven };

struct Holder {
  Snapshot snapshot;
  std::vector<std::vector<std::byte>> memory;  // of each part
};

// Elements [first, last) of `count` that a rank holds.
std::pair<std::size_t, std::size_t> range_of(Split split, std::size_t count, int rank, int size) {
  const auto r = static_cast<std::size_t>(rank), n = static_cast<std::size_t>(size);
  if (split == Split::replicated) return {0, count};
  if (split == Split::cut) return {count * r / n, count * (r + 1) / n};
  // Rank 0 has a half, the others share the rest; each begins two elements early.
  const std::size_t half = n == 1 ? count : count / 2;
  if (rank == 0 || n == 1) return {0, half};
  const std::size_t rest = count - half, first = half + rest * (r - 1) / (n - 1);
  return {first < 2 ? 0 : first - 2, half + rest * r / (n - 1)};
}

Holder hold(Split split, int rank, int size, bool is_full) {
  Holder holder;
  for (const ParamSpec& spec : kSpecs) {
    const auto range = range_of(split, spec.count(), rank, size);
    const std::size_t width = size_of(spec.dtype);
    std::vector<std::byte> bytes((range.second - range.first) * width);
    if (is_full && !bytes.empty())
      std::memcpy(bytes.data(), content(spec).data() + range.first * width, bytes.size());
    holder.memory.push_back(std::move(bytes));
    holder.snapshot.parts.push_back({spec, range.first, holder.memory.back()});
  }
  return holder;
}

Holder full(Split split, const ProcessGroup& group, std::uint64_t step) {
  Holder holder = hold(split, group.rank(), group.size(), true);
  holder.snapshot.step = step;
  holder.snapshot.epoch = 3;
  holder.snapshot.cursor = 12345678901;
  holder.snapshot.strings = {{"code", "v1 \"\xc3\xa4\""}};
  holder.snapshot.integers = {{"seed", -5}, {"shards", 8}};
  return holder;
}

void expect_loads(ProcessGroup& group, const std::string& directory, Split split,
                  std::uint64_t step, const std::string& name = {}) {
  Holder holder = hold(split, group.rank(), group.size(), false);
  const auto result = load(group, directory, holder.snapshot, {.name = name});
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->missing.empty() && result->unexpected.empty());
  const Holder expected = full(split, group, step);
  EXPECT_EQ(holder.memory, expected.memory);
  EXPECT_EQ(holder.snapshot.step, step);
  EXPECT_EQ(holder.snapshot.epoch, expected.snapshot.epoch);
  EXPECT_EQ(holder.snapshot.cursor, expected.snapshot.cursor);
  EXPECT_EQ(holder.snapshot.strings, expected.snapshot.strings);
  EXPECT_EQ(holder.snapshot.integers, expected.snapshot.integers);
}

std::set<std::string> names_in(const std::string& path) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(path)) names.insert(entry.path().filename());
  return names;
}

void run(int size, const contract::Body& body) { contract::run_ranks("native", size, body); }

TEST(Checkpoint, AnySplitLoadsAsAnyOther) {
  for (const Split split : {Split::replicated, Split::cut, Split::uneven}) {
    for (const int writers : {1, 3}) {
      const TemporaryDirectory directory;
      run(writers, [&](ProcessGroup& group) {
        const Holder holder = full(split, group, 7);
        EXPECT_EQ(save(group, directory / "run", holder.snapshot), "000001-step-7");
      });
      for (const int readers : {1, 2, 4}) {
        if (readers == 1 && writers == 1) continue;
        run(readers, [&](ProcessGroup& group) {
          for (const Split other : {Split::replicated, Split::cut, Split::uneven})
            expect_loads(group, directory / "run", other, 7);
        });
      }
    }
  }
}

TEST(Checkpoint, WhatAllRanksHoldIsWrittenByRank0Alone) {
  const TemporaryDirectory directory;
  run(3, [&](ProcessGroup& group) {
    save(group, directory.path(), full(Split::replicated, group, 1).snapshot);
  });
  EXPECT_EQ(names_in(directory.path()), (std::set<std::string>{"000001-step-1", "latest"}));
  EXPECT_EQ(names_in(directory / "000001-step-1"),
            (std::set<std::string>{"manifest.json", "rank-00000.safetensors"}));
}

TEST(Checkpoint, TheLastOnesStayInTheOrderInWhichTheyCame) {
  const TemporaryDirectory directory;
  run(2, [&](ProcessGroup& group) {
    // Step 30 belongs to a history that was given up: the run resumes from 10.
    for (const std::uint64_t step : {10, 20, 30, 15, 30})
      save(group, directory.path(), full(Split::cut, group, step).snapshot, {.keep = 3});
    expect_loads(group, directory.path(), Split::replicated, 30);
    expect_loads(group, directory.path(), Split::cut, 15, "000004-step-15");
  });
  EXPECT_EQ(names_in(directory.path()), (std::set<std::string>{"000003-step-30", "000004-step-15",
                                                               "000005-step-30", "latest"}));
}

TEST(Checkpoint, AsManyStayAsAreWanted) {
  const TemporaryDirectory directory;
  const auto left = [&] { return names_in(directory.path()).size() - 1; };  // without `latest`
  run(1, [&](ProcessGroup& group) {
    const Holder holder = full(Split::cut, group, 1);
    for (int i = 0; i < 4; ++i) save(group, directory.path(), holder.snapshot, {.keep = 0});
    EXPECT_EQ(left(), 4u) << "0: all";
    save(group, directory.path(), holder.snapshot);
    EXPECT_EQ(left(), 2u) << "the default";
    save(group, directory.path(), holder.snapshot, {.keep = 1});
    EXPECT_EQ(left(), 1u);
    Holder other = full(Split::cut, group, 1);
    EXPECT_THROW(load(group, directory.path(), other.snapshot, {.name = "000001-step-1"}),
                 CheckpointError);
  });
}

TEST(Checkpoint, WithoutACheckpointThereIsNothing) {
  const TemporaryDirectory directory;
  run(2, [&](ProcessGroup& group) {
    Holder holder = hold(Split::cut, group.rank(), 2, false);
    EXPECT_FALSE(load(group, directory.path(), holder.snapshot));
    EXPECT_FALSE(load(group, directory / "nowhere", holder.snapshot));
  });
}

TEST(Checkpoint, KeysAreComparedOnAllRanks) {
  const TemporaryDirectory directory;
  Refusals strict, shape;
  run(2, [&](ProcessGroup& group) {
    save(group, directory.path(), full(Split::cut, group, 1).snapshot);
    Holder holder = hold(Split::cut, group.rank(), 2, false);
    auto& parts = holder.snapshot.parts;
    std::vector<float> more(2, 42);
    parts.erase(parts.begin() + 3);
    const ParamSpec extra{"extra", {2}, DType::f32};
    if (group.rank() == 1) parts.push_back({extra, 0, std::as_writable_bytes(std::span(more))});
    strict.expect([&] { load(group, directory.path(), holder.snapshot); });

    const auto result = load(group, directory.path(), holder.snapshot, {.strict = false});
    ASSERT_TRUE(result);
    EXPECT_EQ(result->missing, std::vector<std::string>{"extra"});
    EXPECT_EQ(result->unexpected, std::vector<std::string>{"rng"});
    EXPECT_EQ(more, std::vector<float>(2, 42));
    const Holder expected = full(Split::cut, group, 1);
    EXPECT_EQ(holder.memory, [&] {
      auto memory = expected.memory;
      memory[3] = holder.memory[3];
      return memory;
    }());

    if (group.rank() == 1) parts[0].spec.shape = {7, 13};
    shape.expect([&] { load(group, directory.path(), holder.snapshot, {.strict = false}); });
    contract::expect_usable(group);
  });
  strict.expect_all_say("not in the checkpoint: extra;");
  strict.expect_all_say("in the checkpoint only: rng;");
  shape.expect_all_say("model.weights is f32 [7, 13] on rank 1 and f32 [13, 7] in");
}

TEST(Checkpoint, RanksThatDisagreeAreToldSo) {
  const TemporaryDirectory directory;
  const std::vector<std::pair<std::function<void(Snapshot&)>, std::string>> cases = {
      {[](Snapshot& s) { s.step = 8; }, "rank 1 calls save of step 8, rank 0 calls save of step 7"},
      {[](Snapshot& s) { s.epoch = 4; }, "epoch is 4 on rank 1 and 3 on rank 0"},
      {[](Snapshot& s) { s.parts[0].spec.dtype = DType::i32; },
       "model.weights is f32 [13, 7] on rank 0 and i32 [13, 7] on rank 1"},
      {[](Snapshot& s) { s.parts[0].spec.name = "model.w"; },
       "of model.w, f32 [13, 7], are on no rank"},
      {[](Snapshot& s) { s.parts.erase(s.parts.begin()); },
       "elements 45 to 91 of model.weights, f32 [13, 7], are on no rank"},
      {[](Snapshot& s) { s.parts[2].offset = 90; }, "rank 1: adam.m: elements 90 to 136"},
      {[](Snapshot& s) { s.parts[0].data = s.parts[0].data.subspan(1); }, "no whole elements"},
      {[](Snapshot& s) { s.parts[1].spec.name = "\xff"; }, "rank 1: "},
  };
  for (const auto& [change, expected] : cases) {
    Refusals refusals;
    run(2, [&, &spoil = change](ProcessGroup& group) {
      Holder holder = full(Split::cut, group, 7);
      if (group.rank() == 1) spoil(holder.snapshot);
      refusals.expect([&] { save(group, directory.path(), holder.snapshot); });
      contract::expect_usable(group);
    });
    refusals.expect_all_say(expected);
  }
  EXPECT_TRUE(names_in(directory.path()).empty());
}

// To be kept in a member, moved from one to the next: a copy would wait when it goes.
static_assert(std::is_nothrow_move_constructible_v<AsyncSaver::Copying>);
static_assert(!std::is_copy_constructible_v<AsyncSaver::Copying>);

TEST(Checkpoint, InTheBackgroundTheyAreOfTheMomentOfTheCall) {
  const TemporaryDirectory directory;
  run(2, [&](ProcessGroup& group) {
    AsyncSaver saver(group, directory.path());
    EXPECT_TRUE(saver.poll());
    saver.wait();
    AsyncSaver::Copying().wait();  // of no save
    for (const std::uint64_t step : {1, 2}) {
      Holder holder = full(Split::uneven, group, step);
      if (step == 1) {
        saver.save(holder.snapshot);
      } else {
        const auto copying = saver.save(holder.snapshot);
        contract::expect_usable(group);  // as in training, before the optimizer
      }
      for (auto& bytes : holder.memory) std::fill(bytes.begin(), bytes.end(), std::byte{0});
    }
    saver.wait();
    expect_loads(group, directory.path(), Split::cut, 2);
    expect_loads(group, directory.path(), Split::cut, 1, "000001-step-1");

    saver.save(full(Split::cut, group, 3).snapshot);
    while (!saver.poll()) contract::expect_usable(group);
    expect_loads(group, directory.path(), Split::cut, 3);
    // Held in another way than the ones before, on one rank, then on all.
    Holder holder = full(Split::cut, group, 3);
    if (group.rank() == 1) std::reverse(holder.snapshot.parts.begin(), holder.snapshot.parts.end());
    saver.save(holder.snapshot);
    saver.wait();
    expect_loads(group, directory.path(), Split::uneven, 3);
    saver.save(full(Split::replicated, group, 4).snapshot);
  });  // nobody asked how it ended
  run(2, [&](ProcessGroup& group) { expect_loads(group, directory.path(), Split::cut, 4); });
  EXPECT_EQ(names_in(directory.path()),
            (std::set<std::string>{"000004-step-3", "000005-step-4", "latest"}));
}

TEST(Checkpoint, LargeTensorsHaveAChecksumForEachPiece) {
  constexpr std::int64_t kCount = (std::int64_t{20} << 20) / 4;  // two pieces of up to 16 MiB
  const TemporaryDirectory directory;
  std::vector<float> data(kCount), back(1000, -1);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  const ParamSpec spec{"w", {kCount}, DType::f32};
  contract::run_ranks("native", 1, [&](ProcessGroup& group) {
    save(group, directory.path(), {.parts = {{spec, 0, std::as_writable_bytes(std::span(data))}}});
    const std::size_t seam = (std::size_t{16} << 20) / 4 - 500;
    Snapshot part{.parts = {{spec, seam, std::as_writable_bytes(std::span(back))}}};
    load(group, directory.path(), part);
    for (std::size_t i = 0; i < back.size(); ++i)
      ASSERT_EQ(back[i], static_cast<float>(seam + i)) << i;
  });
}

TEST(Checkpoint, TheToolsReadIt) {
  const TemporaryDirectory directory;
  contract::run_ranks("native", 3, [&](ProcessGroup& group) {
    save(group, directory.path(), full(Split::cut, group, 9).snapshot);
  });
  const CheckpointInfo info = inspect_checkpoint(directory.path());
  EXPECT_EQ(info.path, directory / "000001-step-9");
  EXPECT_EQ(info.step, 9u);
  EXPECT_EQ(info.world_size, 3);
  EXPECT_EQ(info.files.size(), 3u);
  EXPECT_EQ(info.tensors.size(), kSpecs.size());
  verify_checkpoint(info.path);

  const std::string output = directory / "all.safetensors";
  consolidate_checkpoint(info.path, output);
  const SafetensorsHeader header = read_safetensors_header(output);
  EXPECT_EQ(header.metadata.at("step"), "9");
  EXPECT_EQ(header.metadata.at("seed"), "-5");
  EXPECT_EQ(header.bytes % kTensorAlignment, 0u);
  std::ifstream file(output, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  ASSERT_EQ(header.entries.size(), kSpecs.size());
  for (const SafetensorsEntry& entry : header.entries) {
    EXPECT_EQ(std::count(kSpecs.begin(), kSpecs.end(), entry.spec), 1) << entry.spec.name;
    const std::vector<std::byte> expected = content(entry.spec);
    EXPECT_EQ(bytes.substr(entry.begin, expected.size()),
              std::string(reinterpret_cast<const char*>(expected.data()), expected.size()));
  }
  EXPECT_THROW(consolidate_checkpoint(info.path, output), CheckpointError) << "never overwrites";
}

// Dies at an operation: no later one is done, either.
class DyingDisk final : public FileSystem {
 public:
  explicit DyingDisk(int operations) : left_(operations) {}
  bool is_dead() const { return left_ < 0; }

  int create(const std::string& path) override { return next(), FileSystem::create(path); }
  void write(int file, const std::string& path, std::span<const std::byte> bytes) override {
    next(), FileSystem::write(file, path, bytes);
  }
  void sync(int, const std::string&) override { next(); }
  void rename_to_new(const std::string& from, const std::string& to) override {
    next(), FileSystem::rename_to_new(from, to);
  }
  void sync_directory(const std::string&) override { next(); }
  void remove_tree(const std::string& path) override { next(), FileSystem::remove_tree(path); }

 private:
  void next() {
    if (--left_ < 0) throw CheckpointError({.message = "dead", .file = {}});
  }
  int left_;
};

TEST(Checkpoint, OneFileOfAllIsThereWhenItIsWhole) {
  const TemporaryDirectory directory;
  contract::run_ranks("native", 1, [&](ProcessGroup& group) {
    save(group, directory / "run", full(Split::cut, group, 9).snapshot);
  });
  const auto bytes_of = [](const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string run = directory / "run", output = directory / "all.safetensors";
  consolidate_checkpoint(run, output);
  const std::string whole = bytes_of(output);
  const auto names = [&] {
    return std::distance(fs::directory_iterator(directory.path()), fs::directory_iterator());
  };
  EXPECT_EQ(names(), 2) << "nothing else is left";
  bool died = true;
  for (int operations = 0; died; ++operations) {
    SCOPED_TRACE(operations);
    fs::remove(output);
    DyingDisk disk(operations);
    try {
      consolidate_checkpoint(run, output, disk);
    } catch (const CheckpointError&) {
    }
    died = disk.is_dead();
    ASSERT_TRUE(died || fs::exists(output));
    if (!fs::exists(output)) consolidate_checkpoint(run, output);
    ASSERT_EQ(bytes_of(output), whole);
  }
  EXPECT_GT(names(), 2) << "what a process that died could not remove";

  // What came to be there meanwhile stays.
  const TemporaryDirectory other;
  std::ofstream(other / "from") << "new";
  std::ofstream(other / "to") << "old";
  EXPECT_THROW(real_file_system().rename_to_new(other / "from", other / "to"), CheckpointError);
  EXPECT_EQ(bytes_of(other / "to"), "old");
}

class CheckpointOn : public contract::OnBackend {};

TEST_P(CheckpointOn, AnyBackendItIsTheSame) {
  const TemporaryDirectory directory;
  run(2, [&](ProcessGroup& group) {
    save(group, directory.path(), full(Split::cut, group, 1).snapshot);
    AsyncSaver saver(group, directory.path());
    saver.save(full(Split::uneven, group, 2).snapshot);
    while (!saver.poll()) contract::expect_usable(group);
    expect_loads(group, directory.path(), Split::replicated, 2);
    Holder other = full(Split::cut, group, 3);
    if (group.rank() == 1) other.snapshot.epoch = 4;
    EXPECT_THROW(save(group, directory.path(), other.snapshot), CheckpointError);
    contract::expect_usable(group);
  });
}

C10D_ON_EACH_BACKEND(CheckpointOn);

}}  // namespace c10d::parallel
