// SPDX-License-Identifier: BSD-3-Clause
#include "examples/training/nn/idx.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <functional>

#include "examples/training/nn/data.h"
#include "tests/temporary_directory.h"

namespace nn { namespace {

using Bytes = std::vector<std::uint8_t>;

const Bytes kTwoByThree = {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 10, 11, 12, 13, 14, 15};

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

Bytes pack(const Bytes& contents) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
  Bytes packed(deflateBound(&stream, contents.size()));
  stream.next_in = const_cast<std::uint8_t*>(contents.data());
  stream.avail_in = static_cast<uInt>(contents.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

TEST(Idx, HoldsShapeAndElements) {
  const Idx idx = parse_idx(kTwoByThree, "x");
  EXPECT_EQ(idx.shape, (std::vector<std::uint32_t>{2, 3}));
  EXPECT_EQ(idx.data, (Bytes{10, 11, 12, 13, 14, 15}));
}

TEST(Idx, EveryTruncationIsAnErrorThatNamesTheFile) {
  for (std::size_t size = 0; size < kTwoByThree.size(); ++size) {
    const Bytes cut(kTwoByThree.begin(), kTwoByThree.begin() + static_cast<std::ptrdiff_t>(size));
    const std::string error = error_of([&] { parse_idx(cut, "the file"); });
    EXPECT_EQ(error.rfind("the file: ", 0), 0U) << size << ": " << error;
  }
}

TEST(Idx, HostileHeadersAreRefusedBeforeMemoryIsTaken) {
  const auto with = [](std::size_t at, std::uint8_t value) {
    Bytes changed = kTwoByThree;
    changed[at] = value;
    return error_of([&] { parse_idx(changed, "x"); });
  };
  EXPECT_NE(with(0, 1).find("begins with 01000802"), std::string::npos);
  EXPECT_NE(with(2, 0x0d).find("begins with 00000d02"), std::string::npos);  // floats
  EXPECT_NE(with(3, 0).find("begins with"), std::string::npos);
  EXPECT_NE(with(3, 5).find("begins with"), std::string::npos);
  EXPECT_NE(with(4, 0xff).find("larger than 1 GiB"), std::string::npos);
  EXPECT_NE(with(7, 3).find("a header for 9 elements, and holds 6"), std::string::npos);
  EXPECT_NE(with(7, 0).find("dimension of 0"), std::string::npos);
  Bytes longer = kTwoByThree;
  longer.push_back(0);
  EXPECT_NE(error_of([&] { parse_idx(longer, "x"); }).find("holds 7"), std::string::npos);
  // Four extents whose product wraps 64 bits to 6.
  const Bytes wraps = {0,    0,    8,    4,    0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                       0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  EXPECT_NE(error_of([&] { parse_idx(wraps, "x"); }).find("larger than 1 GiB"), std::string::npos);
}

TEST(Gzip, UnpacksWhatWasPacked) {
  const Bytes large(300'000, 7);
  EXPECT_EQ(unpack_gzip(pack(kTwoByThree), 1 << 20, "x"), kTwoByThree);
  EXPECT_EQ(unpack_gzip(pack(large), large.size(), "x"), large);
  EXPECT_EQ(unpack_gzip(pack({}), 0, "x"), Bytes());
}

TEST(Gzip, EveryTruncationAndWhatFollowsIsAnError) {
  const Bytes packed = pack(kTwoByThree);
  for (std::size_t size = 0; size < packed.size(); ++size) {
    const Bytes cut(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(error_of([&] { unpack_gzip(cut, 1000, "x"); }), "x: not one whole gzip file") << size;
  }
  Bytes followed = packed;
  followed.push_back(0);
  EXPECT_EQ(error_of([&] { unpack_gzip(followed, 1000, "x"); }), "x: not one whole gzip file");
  Bytes damaged = packed;
  damaged[damaged.size() - 6] ^= 1;  // the checksum
  EXPECT_EQ(error_of([&] { unpack_gzip(damaged, 1000, "x"); }), "x: not one whole gzip file");
}

TEST(Gzip, ABombStopsAtTheLimit) {
  const Bytes packed = pack(Bytes(10'000'000, 0));
  EXPECT_LT(packed.size(), 20'000U);
  EXPECT_EQ(error_of([&] { unpack_gzip(packed, 1'000'000, "x"); }),
            "x: unpacks to more than 1000000 bytes");
}

// A file of MNIST's format whose header says 5 x 10,000 bytes, followed by half a gigabyte.
Bytes pack_bomb() {
  constexpr std::size_t kChunk = 1 << 20, kChunks = 512;
  const Bytes header = {0, 0, 8, 2, 0, 0, 0, 5, 0, 0, 0x27, 0x10};
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 1, Z_DEFLATED, 16 + MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
  Bytes packed(4 << 20);
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  const auto add = [&](const Bytes& bytes, int flush) {
    stream.next_in = const_cast<std::uint8_t*>(bytes.data());
    stream.avail_in = static_cast<uInt>(bytes.size());
    return deflate(&stream, flush);
  };
  const Bytes zeros(kChunk);
  EXPECT_EQ(add(header, Z_NO_FLUSH), Z_OK);
  for (std::size_t i = 0; i < kChunks; ++i) EXPECT_EQ(add(zeros, Z_NO_FLUSH), Z_OK);
  EXPECT_EQ(add({}, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

TEST(Gzip, ABombBehindASmallHeaderIsNotUnpacked) {
  const Bytes bomb = pack_bomb();
  ASSERT_LT(bomb.size(), std::size_t{4} << 20);
  const c10d::TemporaryDirectory folder;
  const std::string path = folder / "train-images-idx3-ubyte";
  std::ofstream(path + ".gz", std::ios::binary)
      .write(reinterpret_cast<const char*>(bomb.data()), static_cast<std::streamsize>(bomb.size()));
  EXPECT_EQ(error_of([&] { read_idx(path); }), path + ".gz: unpacks to more than 50012 bytes");
}

TEST(Gzip, AnIdxFileUnpacksToItsShape) {
  EXPECT_EQ(unpack_idx(pack(kTwoByThree), "x").data, (Bytes{10, 11, 12, 13, 14, 15}));
  for (std::size_t size = 0; size < kTwoByThree.size(); ++size) {
    const Bytes cut(kTwoByThree.begin(), kTwoByThree.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(error_of([&] { unpack_idx(pack(cut), "x"); }).rfind("x: ", 0), 0U) << size;
  }
  Bytes longer = kTwoByThree;
  longer.push_back(0);
  EXPECT_EQ(error_of([&] { unpack_idx(pack(longer), "x"); }), "x: unpacks to more than 18 bytes");
}

TEST(Data, TheShippedDigitsAreThere) {
  const Data data = load_data("digits");
  EXPECT_EQ(data.train.size, 1438);
  EXPECT_EQ(data.test.size, 359);
  EXPECT_EQ(data.train.sample, (Shape{1, 8, 8}));
  std::vector<int> count(10);
  for (const std::int32_t label : data.train.labels) ++count[static_cast<std::size_t>(label)];
  for (const int digits : count) EXPECT_GT(digits, 120);
}

TEST(Data, ALabelOfTextIsTheNextCharacter) {
  const Data data = load_data("text");
  const std::int64_t numbers[] = {0, 1};
  std::vector<float> values(64);
  std::vector<std::int32_t> labels(64);
  data.train.copy_samples(numbers, values.data(), labels.data());
  for (std::size_t i = 0; i + 1 < values.size(); ++i)
    ASSERT_EQ(static_cast<float>(labels[i]), values[i + 1]);
}

TEST(Data, AnImageIsMovedAndBackgroundComesIn) {
  const DataSet digits = load_data("digits").train;
  const std::size_t pixels = count_of(digits.sample);
  ASSERT_EQ(pixels, 64U);
  const float background = -0.1307F / 0.3081F;
  for (const auto& [down, right] : {std::pair{0, 0}, {2, 0}, {-1, 3}, {1, -7}}) {
    std::vector<float> image(64);
    for (std::size_t i = 0; i < pixels; ++i) image[i] = static_cast<float>(i);
    digits.shift(image, down, right);
    for (int y = 0; y < 8; ++y)
      for (int x = 0; x < 8; ++x) {
        const int from_y = y - down, from_x = x - right;
        const bool inside = from_y >= 0 && from_y < 8 && from_x >= 0 && from_x < 8;
        EXPECT_EQ(image[static_cast<std::size_t>(y * 8 + x)],
                  inside ? static_cast<float>(from_y * 8 + from_x) : background)
            << down << " down, " << right << " right";
      }
  }
}

TEST(Data, WhatIsMissingOrDoesNotBelongTogetherIsNamed) {
  EXPECT_NE(error_of([] { load_data("nowhere"); }).find("--data nowhere: no such folder"),
            std::string::npos);
  const c10d::TemporaryDirectory folder;
  EXPECT_NE(error_of([&] { load_data(folder.path()); }).find("train-images-idx3-ubyte"),
            std::string::npos);
  const auto write = [&](const std::string& name, const Bytes& bytes) {
    std::ofstream(folder / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  };
  write("train-images-idx3-ubyte", {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 9});
  write("train-labels-idx1-ubyte", {0, 0, 8, 1, 0, 0, 0, 2, 1, 1});
  EXPECT_NE(error_of([&] { load_data(folder.path()); }).find("do not belong together"),
            std::string::npos);
  write("train-labels-idx1-ubyte", {0, 0, 8, 1, 0, 0, 0, 1, 10});
  EXPECT_NE(error_of([&] { load_data(folder.path()); }).find("label 10 of train is not a digit"),
            std::string::npos);
  write("train-labels-idx1-ubyte", {0, 0, 8, 1, 0, 0, 0, 1, 1});
  write("t10k-images-idx3-ubyte", {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 9, 9});
  write("t10k-labels-idx1-ubyte", {0, 0, 8, 1, 0, 0, 0, 1, 1});
  EXPECT_NE(error_of([&] { load_data(folder.path()); }).find("those of t10k are 1x1x2"),
            std::string::npos);
}

}}  // namespace nn
