// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints that go wrong: a disk that fails at any operation or byte, files torn or changed at
// any byte, and files that somebody made up.
#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <mutex>
#include <set>

#include "src/parallel/checkpoint/save.h"
#include "tests/contract/ranks.h"
#include "tests/temporary_directory.h"

namespace c10d::parallel { namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCount = 10;
const ParamSpec kWeights{"weights", {2, 5}, DType::f32}, kStep{"step", {}, DType::i64};

// Elements of a rank: rank 0 has the step, both have a part of the weights.
struct Toy {
  std::vector<float> weights;
  std::array<std::int64_t, 1> step{};
  std::size_t first = 0;

  Toy(const ProcessGroup& group, std::int64_t at) : step{at} {
    const auto rank = static_cast<std::size_t>(group.rank());
    const auto size = static_cast<std::size_t>(group.size());
    first = kCount * rank / size;
    weights.resize(kCount * (rank + 1) / size - first);
    for (std::size_t i = 0; i < weights.size(); ++i)
      weights[i] = static_cast<float>(100 * at) + static_cast<float>(first + i);
  }
  Snapshot snapshot() {
    Snapshot snapshot{.step = static_cast<std::uint64_t>(step[0])};
    snapshot.parts.push_back({kWeights, first, std::as_writable_bytes(std::span(weights))});
    snapshot.parts.push_back({kStep, 0, std::as_writable_bytes(std::span(step))});
    return snapshot;
  }
};

// The step of what loads, after a look at all of it.
std::uint64_t step_that_loads(ProcessGroup& group, const std::string& directory,
                              const std::string& name = {}) {
  Toy run(group, 0);
  Snapshot snapshot = run.snapshot();
  EXPECT_TRUE(load(group, directory, snapshot, {.name = name}));
  EXPECT_EQ(run.weights, Toy(group, run.step[0]).weights);
  EXPECT_EQ(snapshot.step, static_cast<std::uint64_t>(run.step[0]));
  return snapshot.step;
}

// A disk that fails: once, or from then on, as for a process that is killed. Nothing is synced:
// what fsync does when the power goes is not to be seen from here.
class FailingDisk final : public FileSystem {
 public:
  int operations_left = INT32_MAX;  // before the one that fails
  std::size_t bytes_left = SIZE_MAX;
  bool is_dead_after = false;
  bool has_failed = false;

  bool make_directory(const std::string& path) override {
    count(path);
    return FileSystem::make_directory(path);
  }
  int create(const std::string& path) override {
    count(path);
    return FileSystem::create(path);
  }
  void write(int file, const std::string& path, std::span<const std::byte> bytes) override {
    const bool is_failing = is_next();
    const std::size_t fit = std::min(bytes_left, is_failing ? bytes.size() / 2 : bytes.size());
    FileSystem::write(file, path, bytes.first(fit));
    bytes_left -= fit;
    if (fit < bytes.size()) fail(path);
  }
  void sync(int, const std::string& path) override { count(path); }
  void close(int file, const std::string& path) override {
    FileSystem::close(file, path);
    count(path);
  }
  void sync_directory(const std::string& path) override { count(path); }
  void rename(const std::string& from, const std::string& to) override {
    count(from);
    FileSystem::rename(from, to);
  }
  void remove_tree(const std::string& path) override {
    count(path);
    FileSystem::remove_tree(path);
  }

 private:
  bool is_next() { return operations_left-- == 0 || (has_failed && is_dead_after); }
  void count(const std::string& path) {
    if (is_next()) fail(path);
  }
  [[noreturn]] void fail(const std::string& path) {
    has_failed = true;
    throw CheckpointError({.message = path + ": the disk is full", .file = path});
  }
};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);  // a file system may flush what is truncated and written again
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), std::ptrdiff_t(bytes.size()));
}

void save_step(ProcessGroup& group, const std::string& directory, std::int64_t step,
               FileSystem& disk, SaveOptions options = {}) {
  Toy run(group, step);
  save(group, directory, run.snapshot(), options, disk);
}

// By rank, what it was told.
void expect_same(const std::vector<std::vector<std::string>>& texts) {
  for (const auto& of_rank : texts) EXPECT_EQ(of_rank, texts[0]);
}

void one_rank(const contract::Body& body) { contract::run_ranks("native", 1, body); }

// Saves over and over onto a disk with `make_fault(i)`, until a save meets no fault.
int saves_until_whole(ProcessGroup& group, const std::string& directory,
                      const std::function<void(FailingDisk&, int)>& set_fault) {
  FailingDisk good;
  save_step(group, directory, 1, good);
  std::int64_t step = 1;
  std::uint64_t loadable = 1;
  for (int i = 0;; ++i) {
    FailingDisk disk;
    set_fault(disk, i);
    ++step;
    bool is_whole = false;
    try {
      save_step(group, directory, step, disk);
      is_whole = true;
    } catch (const CheckpointError& error) {
      EXPECT_NE(std::string(error.what()).find("the disk is full"), std::string::npos);
    }
    const std::uint64_t loaded = step_that_loads(group, directory);
    EXPECT_TRUE(loaded == loadable || loaded == static_cast<std::uint64_t>(step)) << i;
    EXPECT_TRUE(!is_whole || loaded == static_cast<std::uint64_t>(step)) << i;
    loadable = loaded;
    if (is_whole && !disk.has_failed) return i;
    if (testing::Test::HasFailure()) return i;
  }
}

TEST(CheckpointDamage, ADiskThatFailsAtAnyOperationLeavesTheOldOrTheNewOne) {
  for (const bool is_dead_after : {false, true}) {
    const TemporaryDirectory directory;
    one_rank([&](ProcessGroup& group) {
      const int faults = saves_until_whole(group, directory.path(), [&](FailingDisk& disk, int i) {
        disk.operations_left = i;
        disk.is_dead_after = is_dead_after;
      });
      EXPECT_GE(faults, 20) << "operations of one save";
    });
  }
}

TEST(CheckpointDamage, ASaveThatEndsAtAnyByteLeavesTheOldOne) {
  const TemporaryDirectory directory;
  one_rank([&](ProcessGroup& group) {
    const int bytes = saves_until_whole(group, directory.path(), [&](FailingDisk& disk, int i) {
      disk.bytes_left = static_cast<std::size_t>(i);
      disk.is_dead_after = true;
    });
    EXPECT_GT(bytes, 500) << "bytes of one checkpoint";
    // What the dead left behind goes with the next one that is whole.
    FailingDisk good;
    save_step(group, directory.path(), 9999, good, {.keep = 1});
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory.path()))
      names.insert(entry.path().filename());
    EXPECT_EQ(names.size(), 2u);
    EXPECT_TRUE(names.contains("latest"));
  });
}

TEST(CheckpointDamage, OneRanksDiskEndsTheSaveOnAllRanks) {
  const TemporaryDirectory directory;
  std::mutex mutex;
  std::set<std::string> texts;
  int operations = 0;
  contract::run_ranks("native", 2, [&](ProcessGroup& group) {
    FailingDisk good;
    save_step(group, directory.path(), 1, good);
    for (int i = 0; i < 100; ++i) {
      FailingDisk disk;
      if (group.rank() == 1) disk.operations_left = i;
      try {
        save_step(group, directory.path(), 2 + i, disk);
        EXPECT_EQ(step_that_loads(group, directory.path()), static_cast<std::uint64_t>(2 + i));
        if (group.rank() == 1) operations = i;
        break;
      } catch (const CheckpointError& error) {
        EXPECT_EQ(error.failure().rank, 1);
        EXPECT_NE(error.failure().file.find(directory.path()), std::string::npos);
        const std::lock_guard lock(mutex);
        texts.insert(error.what());
      }
      EXPECT_EQ(step_that_loads(group, directory.path()), 1u);
    }
  });
  // mkdir twice, create, two or more writes, fsync, close, fsync of the directory
  EXPECT_GE(operations, 8);
  EXPECT_EQ(texts.size(), static_cast<std::size_t>(operations))
      << "one text per fault, on both ranks";
}

TEST(CheckpointDamage, AFailureInTheBackgroundComesOutOfWait) {
  const TemporaryDirectory directory;
  const std::string parent = directory / "parent";
  fs::create_directory(parent);
  contract::run_ranks("native", 2, [&](ProcessGroup& group) {
    AsyncSaver saver(group, parent + "/run");
    if (group.rank() == 0) fs::remove_all(parent);
    group.barrier();
    Toy run(group, 1);
    saver.save(run.snapshot());
    EXPECT_THROW(saver.wait(), CheckpointError);
    saver.save(run.snapshot());
    EXPECT_THROW(saver.save(run.snapshot()), CheckpointError);
    saver.wait();  // the one that could not be saved is over
    contract::expect_usable(group);
    saver.save(run.snapshot());  // the destructor says nothing of it
  });
}

TEST(CheckpointDamage, OneRanksFailureInTheBackgroundIsThatOfEveryRank) {
  const TemporaryDirectory directory;
  std::vector<std::vector<std::string>> texts(2);
  contract::run_ranks("native", 2, [&](ProcessGroup& group) {
    auto& said = texts[static_cast<std::size_t>(group.rank())];
    AsyncSaver saver(group, group.rank() == 1 ? directory / "no/such/parent" : directory.path());
    Toy run(group, 1);
    const auto expect_told = [&](const std::function<void()>& call) {
      try {
        call();
        ADD_FAILURE() << "accepted";
      } catch (const CheckpointError& error) {
        EXPECT_EQ(error.failure().rank, 1);
        said.push_back(error.what());
      }
    };
    saver.save(run.snapshot());
    expect_told([&] { saver.wait(); });
    saver.save(run.snapshot());
    expect_told([&] {
      while (!saver.poll()) contract::expect_usable(group);
    });
    contract::expect_usable(group);
  });
  EXPECT_EQ(texts[0].size(), 2u);
  expect_same(texts);
  EXPECT_TRUE(fs::is_empty(directory.path())) << "neither a checkpoint nor a part of one";
}

// Loads and says why not; the failure is about `file`.
std::string refusal(ProcessGroup& group, const std::string& directory, const std::string& file) {
  Toy run(group, 0);
  Snapshot snapshot = run.snapshot();
  try {
    load(group, directory, snapshot);
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.failure().file, file) << error.what();
    EXPECT_NE(std::string(error.what()).find(file), std::string::npos);
    return error.what();
  }
  return "accepted";
}

// What rank 0 writes before a load is there for all: the first thing that load() does is
// collective.
void write_on_rank_0(const ProcessGroup& group, const std::string& path, const std::string& bytes) {
  if (group.rank() == 0) write_file(path, bytes);
}

TEST(CheckpointDamage, WhatIsTornIsRefusedOnEveryRankAndTheOneBeforeLoads) {
  const TemporaryDirectory directory;
  std::vector<std::vector<std::string>> texts(2);
  contract::run_ranks("native", 2, [&](ProcessGroup& group) {
    FailingDisk disk;
    save_step(group, directory.path(), 1, disk);
    save_step(group, directory.path(), 2, disk);
    auto& said = texts[static_cast<std::size_t>(group.rank())];
    for (const char* name :
         {"latest", "000002-step-2/manifest.json", "000002-step-2/rank-00000.safetensors",
          "000002-step-2/rank-00001.safetensors"}) {
      const std::string file = directory / name, whole = read_file(file);
      ASSERT_GT(whole.size(), 20u);
      group.barrier();  // all have read it
      for (std::size_t at = 0; at < whole.size(); at += 13) {
        write_on_rank_0(group, file, whole.substr(0, at));
        said.push_back(refusal(group, directory.path(), file));
        EXPECT_NE(said.back().find(std::to_string(at)), std::string::npos)
            << "the offset: " << said.back();
        if (testing::Test::HasFailure()) return;
      }
      write_on_rank_0(group, file, whole + "x");
      said.push_back(refusal(group, directory.path(), file));
      EXPECT_NE(said.back(), "accepted");
      EXPECT_EQ(step_that_loads(group, directory.path(), "000001-step-1"), 1u);
      if (group.rank() == 0) fs::remove(file);
      if (std::string(name) != "latest") {
        said.push_back(refusal(group, directory.path(), file));
        EXPECT_NE(said.back(), "accepted");
      } else {
        EXPECT_EQ(step_that_loads(group, directory.path()), 2u) << "the newest, without `latest`";
      }
      write_on_rank_0(group, file, whole);
      EXPECT_EQ(step_that_loads(group, directory.path()), 2u);
    }
  });
  expect_same(texts);
}

TEST(CheckpointDamage, TornOrChangedAtAnyByteItIsRefused) {
  const TemporaryDirectory directory;
  one_rank([&](ProcessGroup& group) {
    FailingDisk disk;
    save_step(group, directory.path(), 1, disk);
  });
  for (const char* name :
       {"latest", "000001-step-1/manifest.json", "000001-step-1/rank-00000.safetensors"}) {
    const std::string file = directory / name, whole = read_file(file);
    const auto refusal_of = [&](const std::string& bytes) -> std::string {
      write_file(file, bytes);
      try {
        verify_checkpoint(directory.path());
      } catch (const CheckpointError& error) {
        EXPECT_EQ(error.failure().file, file) << error.what();
        return error.what();
      }
      return "accepted";
    };
    for (std::size_t at = 0; at < whole.size(); ++at) {
      const std::string torn = refusal_of(whole.substr(0, at));
      ASSERT_NE(torn.find(std::to_string(at)), std::string::npos) << "the offset: " << torn;
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ (1 << at % 8));
      ASSERT_NE(refusal_of(changed), "accepted") << file << " " << at;
    }
    EXPECT_EQ(refusal_of(whole), "accepted");
  }
}

// CRC-32C bit by bit, from its definition.
std::string crc_of(const std::string& text) {
  std::uint32_t crc = ~0u;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  std::array<char, 9> digits{};
  std::snprintf(digits.data(), digits.size(), "%08x", ~crc);
  return digits.data();
}

TEST(CheckpointDamage, HostileManifestsAreRefusedOnEveryRank) {
  const TemporaryDirectory directory;
  std::vector<std::vector<std::string>> texts(2);
  one_rank([&](ProcessGroup& group) {
    FailingDisk disk;
    save_step(group, directory.path(), 1, disk);
  });
  const std::string file = directory / "000001-step-1/manifest.json", whole = read_file(file);
  const std::string body = whole.substr(0, whole.rfind(",\n\"crc32c\""));
  contract::run_ranks("native", 2, [&](ProcessGroup& group) {
    const std::string deep(1000, '['), deepest(1'000'000, '[');
    const std::vector<std::array<std::string, 3>> cases = {
        {"\"rank-00000.safetensors\"", "\"../rank-00000.safetensors\"", "not the name of a shard"},
        {"\"rank-00000.safetensors\"", "\"rank-00000.safetensors/\"", "not the name of a shard"},
        {"\"rank-00000.safetensors\"", "\"/etc/passwd\"", "not the name of a shard"},
        {"\"rank-00000.safetensors\"", "\"\"", "not the name of a shard"},
        {"\"file\": \"rank-00000.safetensors\"", "\"file\": \"rank-00001.safetensors\"",
         "not listed"},
        {"\"count\": 10", "\"count\": 11", "\"count\" is not an integer from 0 to 10"},
        {"\"count\": 10", "\"count\": 9", "parts for 9 of 10"},
        {"\"count\": 10", "\"count\": 0", "a part of 0 bytes"},
        {"\"count\": 10", "\"count\": -1", "not an integer"},
        {"\"count\": 10", "\"count\": 1e1", "1e1 is not a 64-bit integer"},
        {"\"count\": 10", "\"count\": 1e999", "JSON"},
        {"\"count\": 10", "\"count\": NaN", "JSON"},
        {"\"count\": 10", "\"count\": 18446744073709551616", "not a 64-bit integer"},
        {"\"count\": 10", "\"count\": null", "null"},
        {"\"count\": 10", "\"count\": 10, \"count\": 10", "occurs twice"},
        {"\"count\": 10", "\"count\": " + deep, "levels"},
        {"\"count\": 10", "\"count\": " + deepest, "levels"},
        {"\"offset\": 0", "\"offset\": 1", "not an integer from 0 to 0"},
        {"\"offset\": 0", "\"offset\": 18446744073709551615", "not an integer from 0 to"},
        {"\"begin\": ", "\"begin\": 1", "are not data of"},
        {"\"begin\": ", "\"begin\": 1844674407370955", "are not data of"},
        {"\"header_bytes\": ", "\"header_bytes\": 9", "longer than the file"},
        {"\"header_bytes\": ", "\"header_bytes\": 99999999", "not an integer from 0 to"},
        {"\"bytes\": ", "\"bytes\": 9", "belong to no tensor"},
        {"\"version\": 1", "\"version\": 2", "of version 2"},
        {"\"format\": \"c10d-checkpoint\"", "\"format\": \"x\"", "is not c10d-checkpoint"},
        {"\"tensors\"", "\"tensor\"", "\"tensors\" is missing"},
        {"\"F32\"", "\"F33\"", "not a dtype"},
        {"   2,\n    5", "   5,\n    2", "weights is f32 [2, 5]"},
        {"   2,\n    5", "   4294967296,\n    4294967296,\n 4294967296", "larger than memory"},
        {"\"name\": \"weights\"", "\"name\": \"step\"", "is listed twice"},
    };
    for (const auto& [from, to, why] : cases) {
      std::string changed = body;
      for (std::size_t at = 0; (at = changed.find(from, at)) != std::string::npos; at += to.size())
        changed.replace(at, from.size(), to);
      EXPECT_NE(changed, body) << from;
      write_on_rank_0(group, file, changed + ",\n\"crc32c\":\"" + crc_of(changed) + "\"}\n");
      const std::string what = refusal(group, directory.path(), file);
      EXPECT_NE(what.find(why), std::string::npos) << to.substr(0, 80) << ": " << what;
      texts[static_cast<std::size_t>(group.rank())].push_back(what);
    }
    write_on_rank_0(group, file, body + ",\n\"crc32c\":\"" + crc_of(body) + "\"}\n");
    EXPECT_EQ(step_that_loads(group, directory.path()), 1u) << "the checksum itself is right";
  });
  expect_same(texts);
}

TEST(CheckpointDamage, WhatNoReaderWouldTakeIsNotPublished) {
  const TemporaryDirectory directory;
  std::vector<std::vector<std::string>> texts(2);
  contract::run_ranks("native", 2, [&](ProcessGroup& group) {
    FailingDisk disk;
    save_step(group, directory.path(), 1, disk);
    Toy run(group, 2);
    Snapshot snapshot = run.snapshot();
    snapshot.strings["note"] = std::string(5000, 'x');
    const auto save_with_limit = [&](std::uint64_t limit) {
      save(group, directory.path(), snapshot, {}, disk, limit);
    };
    try {
      save_with_limit(5000);
      ADD_FAILURE() << "published";
    } catch (const CheckpointError& error) {
      EXPECT_EQ(error.failure().rank, 0);
      EXPECT_NE(std::string(error.what()).find("limit 5000: fewer tensors"), std::string::npos)
          << error.what();
      texts[static_cast<std::size_t>(group.rank())].push_back(error.what());
    }
    EXPECT_EQ(step_that_loads(group, directory.path()), 1u);
    group.barrier();
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory.path()))
      names.insert(entry.path().filename());
    EXPECT_EQ(names, (std::set<std::string>{"000001-step-1", "latest"})) << "nothing is left";
    save_with_limit(10'000);
    EXPECT_EQ(step_that_loads(group, directory.path()), 2u);
  });
  expect_same(texts);
}

TEST(CheckpointDamage, NothingLeadsOutOfTheDirectory) {
  const TemporaryDirectory directory;
  one_rank([&](ProcessGroup& group) {
    FailingDisk disk;
    save_step(group, directory.path(), 1, disk);
    for (const char* name :
         {"000001-step-1/rank-00000.safetensors", "000001-step-1/manifest.json", "latest"}) {
      const std::string file = directory / name;
      fs::rename(file, directory / "elsewhere");
      fs::create_symlink(directory / "elsewhere", file);
      EXPECT_NE(refusal(group, directory.path(), file).find("is a link"), std::string::npos);
      fs::remove(file);
      fs::create_directory(file);
      EXPECT_NE(refusal(group, directory.path(), file).find("not a regular file"),
                std::string::npos);
      fs::remove(file);
      fs::rename(directory / "elsewhere", file);
    }
    const std::string latest = directory / "latest";
    for (const std::string name : {"../000001-step-1", "000001-step-1/..", "1-step-1", ""}) {
      write_file(latest, name + " crc32c=" + crc_of(name) + "\n");
      EXPECT_NE(refusal(group, directory.path(), latest), "accepted") << name;
      Toy run(group, 0);
      Snapshot snapshot = run.snapshot();
      if (name.empty()) continue;
      EXPECT_THROW(load(group, directory.path(), snapshot, {.name = name}), CheckpointError);
    }
    EXPECT_EQ(step_that_loads(group, directory.path(), "000001-step-1"), 1u);
  });
}

}}  // namespace c10d::parallel
