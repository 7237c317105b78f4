// SPDX-License-Identifier: BSD-3-Clause
// The store's codec: a set of `bytes` into a frame, and the frame back into a request.
#include <benchmark/benchmark.h>

#include <string>

#include "src/net/frame.h"
#include "src/store/protocol.h"

namespace {

using namespace c10d;

std::string encode_set(const std::string& value) {
  std::string wire;
  const std::size_t start = begin_frame(wire, static_cast<std::uint8_t>(StoreOp::set), 1);
  const Request request{.op = StoreOp::set, .number = 0, .keys = {"rank/0"}, .values = {value}};
  encode(std::chrono::seconds(1), request, wire);
  end_frame(wire, start);
  return wire;
}

void store_encode(benchmark::State& state) {
  const std::string value(static_cast<std::size_t>(state.range(0)), 'v');
  for (auto _ : state) benchmark::DoNotOptimize(encode_set(value));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(store_encode)->Arg(16)->Arg(4096)->Arg(1 << 20);

void store_parse_and_decode(benchmark::State& state) {
  const std::string wire = encode_set(std::string(static_cast<std::size_t>(state.range(0)), 'v'));
  FrameParser parser(std::uint64_t{16} << 20);
  for (auto _ : state) {
    const auto failure = parser.feed(wire, [](const Frame& frame) {
      Request request;
      request.op = StoreOp::set;
      Duration timeout{};
      benchmark::DoNotOptimize(decode(frame.body, timeout, request));
      return true;
    });
    if (failure) state.SkipWithError(failure->message.c_str());
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(store_parse_and_decode)->Arg(16)->Arg(4096)->Arg(1 << 20);

}  // namespace
