// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "c10d/init.h"

// The shapes of async calls in README, examples and documents, each with an exception between start
// and wait.
namespace c10d::contract {

using Values = std::vector<std::int32_t>;

inline constexpr std::size_t kCount = 1 << 16;  // more than an op takes over at once

struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("between start and wait") {}
};

// A program that starts async ops on buffers of its own and throws before it waits for them.
struct Shape {
  const char* name;
  void (*interrupted)(const ProcessGroup& group);
};
inline const Shape kShapes[] = {
    {"a Work",
     [](const ProcessGroup& group) {
       Values gradient(kCount, 1);
       const Work sum = group.async().all_reduce(gradient);
       throw Interrupted();
     }},
    {"several Works",
     [](const ProcessGroup& group) {
       Values first(kCount, 1), second(kCount, 2);
       std::vector<Work> works;
       works.push_back(group.async().all_reduce(first));
       works.push_back(group.async().all_reduce(second));
       throw Interrupted();
     }},
    {"messages round a ring",
     [](const ProcessGroup& group) {
       const int peer = 1 - group.rank();
       const Values out(kCount, 1);
       Values in(kCount);
       const Work received = group.irecv(in, peer);
       const Work sent = group.isend(out, peer);
       throw Interrupted();
     }},
    {"a batch",
     [](const ProcessGroup& group) {
       const int peer = 1 - group.rank();
       const Values out(kCount, 1);
       Values in(kCount);
       Batch batch = group.batch();
       batch.add(Send{out, peer, 0});
       batch.add(Recv{in, peer, 0});
       const Work work = batch.submit_async();
       throw Interrupted();
     }},
    {"a Work that nobody names",
     [](const ProcessGroup& group) {
       Values gradient(kCount, 1);
       static_cast<void>(group.async().all_reduce(gradient));
       throw Interrupted();
     }},
    {"a Work that is replaced",
     [](const ProcessGroup& group) {
       Values first(kCount, 1), second(kCount, 2);
       Work work = group.async().all_reduce(first);
       work = group.async().all_reduce(second);
       throw Interrupted();
     }},
};

}  // namespace c10d::contract
