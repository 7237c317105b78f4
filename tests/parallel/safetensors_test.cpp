// SPDX-License-Identifier: BSD-3-Clause
// The safetensors format, and what a hostile file may hold.
#include "src/parallel/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <fstream>

#include "c10d/parallel/checkpoint_info.h"
#include "tests/temporary_directory.h"

namespace c10d::parallel { namespace {

std::string with_length(const std::string& json) {
  std::string start(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) start[i] = static_cast<char>(json.size() >> 8 * i & 0xff);
  return start + json;
}

// What a file of this header and so many bytes of data is refused for.
std::string refusal(const std::string& json, std::uint64_t data_bytes) {
  const std::string start = with_length(json);
  try {
    parse_safetensors(start, start.size() + data_bytes, "some.safetensors");
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.failure().file, "some.safetensors");
    EXPECT_EQ(std::string(error.what()).find("some.safetensors: "), 0u) << error.what();
    return error.what();
  }
  return "accepted";
}

const std::vector<ParamSpec> kSpecs = {{"weights", {2, 3}, DType::f64},
                                       {"bias \"\xc3\xa4\"\n", {}, DType::f32},
                                       {"none", {0, 7}, DType::i32},
                                       {"flags", {5}, DType::boolean}};

TEST(Safetensors, WhatIsWrittenIsRead) {
  const std::map<std::string, std::string> metadata = {{"step", "7"}, {"format", "x"}};
  const std::string start = make_safetensors_header(kSpecs, metadata);
  EXPECT_EQ(start.size() % kTensorAlignment, 0u);
  const SafetensorsHeader header = parse_safetensors(start, start.size() + 48 + 4 + 5, "f");
  EXPECT_EQ(header.bytes, start.size());
  EXPECT_EQ(header.metadata, metadata);
  const std::uint64_t at = start.size();
  const std::vector<SafetensorsEntry> expected = {
      {kSpecs[0], at}, {kSpecs[1], at + 48}, {kSpecs[2], at + 52}, {kSpecs[3], at + 52}};
  EXPECT_EQ(header.entries, expected);
}

// Written by hand from the format's description.
TEST(Safetensors, AnothersFileIsRead) {
  const std::string start =
      with_length(R"({"b":{"dtype":"BF16","shape":[2],"data_offsets":[4,8]},)"
                  R"("d":{"dtype":"F8_E5M2","shape":[1],"data_offsets":[11,12]},)"
                  R"("c":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[8,11]},)"
                  R"("a":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]}}   )");
  const SafetensorsHeader header = parse_safetensors(start, start.size() + 12, "f");
  ASSERT_EQ(header.entries.size(), 4u);
  EXPECT_EQ(header.entries[0], (SafetensorsEntry{{"a", {2, 2}, DType::u8}, start.size()}));
  EXPECT_EQ(header.entries[1], (SafetensorsEntry{{"b", {2}, DType::bf16}, start.size() + 4}));
  EXPECT_EQ(header.entries[2], (SafetensorsEntry{{"c", {3}, DType::f8e4m3}, start.size() + 8}));
  EXPECT_EQ(header.entries[3], (SafetensorsEntry{{"d", {1}, DType::f8e5m2}, start.size() + 11}));
  EXPECT_TRUE(header.metadata.empty());
}

void write_file(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);  // a file system may flush what is truncated and written again
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), std::ptrdiff_t(bytes.size()));
}

// A file with kSpecs.
std::string whole_file() { return make_safetensors_header(kSpecs, {}) + std::string(57, 'd'); }

TEST(Safetensors, EveryTruncationIsRefused) {
  const TemporaryDirectory directory;
  const std::string path = directory / "some.safetensors", whole = whole_file();
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_THROW(parse_safetensors(whole.substr(0, bytes), bytes, "some.safetensors"),
                 CheckpointError)
        << bytes;
    write_file(path, whole.substr(0, bytes));
    try {
      read_safetensors_header(path);
      ADD_FAILURE() << "accepted: the first " << bytes;
    } catch (const CheckpointError& error) {
      EXPECT_EQ(error.failure().file, path) << error.what();
    }
  }
  write_file(path, whole);
  EXPECT_EQ(read_safetensors_header(path).entries.size(), kSpecs.size());
}

// There is no checksum: a letter of a name may change. What is read must tile the file all the
// same.
TEST(Safetensors, AnyBitThatChangedIsRefusedOrLeavesAFileThatIsWhole) {
  const std::string whole = whole_file();
  const std::uint64_t header_bytes = whole.size() - 57;
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < 8 * header_bytes; ++bit) {
    std::string changed = whole;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    try {
      const SafetensorsHeader header = parse_safetensors(changed, changed.size(), "f");
      std::uint64_t at = header.bytes;
      for (const SafetensorsEntry& entry : header.entries) {
        EXPECT_EQ(entry.begin, at) << bit;
        at += entry.spec.bytes();
      }
      EXPECT_EQ(at, whole.size()) << bit;
    } catch (const CheckpointError& error) {
      EXPECT_EQ(error.failure().file, "f") << bit;
      ++refused;
    }
  }
  EXPECT_GT(refused, 4 * header_bytes) << "most bits carry meaning";
}

TEST(Safetensors, HostileHeadersAreRefused) {
  const auto one = [](const char* entry) { return std::string("{\"t\":") + entry + "}"; };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "{"},
      {" {}", "{"},
      {"{\"t\":", "not JSON"},
      {"{} {}", "not JSON"},
      {"[]", "{"},
      {"{\"t\":[]}", "object"},
      {one(R"({"dtype":"F32","shape":[1]})"), "data_offsets"},
      {one(R"({"dtype":"F31","shape":[1],"data_offsets":[0,4]})"), "F31"},
      {one(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"), "extent"},
      {one(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})"), "1.0 is not a 64-bit integer"},
      {one(R"({"dtype":"F32","shape":[1e999],"data_offsets":[0,4]})"), "JSON"},
      {one(R"({"dtype":"F32","shape":[NaN],"data_offsets":[0,4]})"), "JSON"},
      {one(R"({"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4]})"), "integer"},
      {one(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]})"), "extent"},
      {one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]})"), "memory"},
      {one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,5]})"), "shape takes 4"},
      {one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})"), "shape takes 4"},
      {one(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})"), "two integers"},
      {one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"), "ends inside tensor t"},
      {one(R"({"dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,0]})"), "takes 4"},
      {one(R"({"dtype":"U8","shape":[3],"data_offsets":[1,4]})"), "begins at byte"},
      {one(R"({"dtype":"U8","shape":[3],"data_offsets":[0,3]})"), "1 bytes after"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
       "ends at"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
       "occurs twice"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
       "ends at"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})",
       "ends at"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})",
       "begins at byte"},
      {one(R"({"dtype":"U8","shape":[4],"data_offsets":[4,8]})"), "begins at byte"},
      {one(R"({"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]})"), "occurs twice"},
      {one(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4,4]})"), "two integers"},
      {one(R"({"dtype":"U8","shape":[4],"data_offsets":[-4,0]})"), "two integers"},
      {one(R"({"dtype":"U8","shape":4,"data_offsets":[0,4]})"), "array"},
      {R"({"__metadata__":{},"__metadata__":{}})", "occurs twice"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", "occurs twice"},
      {"{}", "4 bytes after"},
      {R"({"__metadata__":{"k":1},"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       "not a string"},
      {R"({"__metadata__":null})", "null"},
      {one("[[[[[[[[[[]]]]]]]]]]"), "8 levels"},
      {"{\"t\":" + std::string(1'000'000, '['), "8 levels"},
      {"{\"\xff\":1}", "JSON"},
  };
  for (const auto& [json, why] : cases) {
    const std::string what = refusal(json, 4);
    EXPECT_NE(what.find(why), std::string::npos) << json.substr(0, 200) << ": " << what;
  }
}

TEST(Safetensors, ALongHeaderTakesNoMemory) {
  std::string start(8, '\xff');
  EXPECT_THROW(parse_safetensors(start, UINT64_MAX, "f"), CheckpointError);
  start = std::string("\x00\xe1\xf5\x05\x00\x00\x00\x00", 8);  // 100,000,000: the limit itself
  EXPECT_THROW(parse_safetensors(start, 1000, "f"), CheckpointError);
  start[0] = 1;
  EXPECT_THROW(parse_safetensors(start, UINT64_MAX, "f"), CheckpointError);
}

TEST(Safetensors, TwoTensorsOfANameAreNotWritten) {
  const ParamSpec spec{"t", {1}, DType::f32}, other{"__metadata__", {1}, DType::f32};
  EXPECT_THROW(make_safetensors_header({spec, spec}, {}), CheckpointError);
  EXPECT_THROW(make_safetensors_header({other}, {}), CheckpointError);
}

}}  // namespace c10d::parallel
