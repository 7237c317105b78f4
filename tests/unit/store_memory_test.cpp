// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <optional>
#include <string>

#include "tests/unit/store_kinds.h"

namespace {

// The most bytes that this thread gets at once.
thread_local std::size_t t_most_bytes = SIZE_MAX;

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return bytes > t_most_bytes ? nullptr : std::malloc(bytes);
}
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* const memory = operator new(bytes, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace c10d::test {
namespace {

TEST(TcpStore, ACallWithoutMemoryForItsAnswerLeavesTheStoreToLaterOnes) {
  const auto server = tcp_server();
  const std::string large(1 << 20, 'x');
  server->set("large", large);
  const auto client = make_tcp_store(client_of(*server));
  t_most_bytes = large.size() / 2;
  std::optional<Failure> failure;
  try {
    client->get("large");
  } catch (const DistError& error) {
    failure = error.failure();
  }
  t_most_bytes = SIZE_MAX;
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, Code::out_of_resources);
  EXPECT_NE(failure->message.find("raise ulimit -v"), std::string::npos) << failure->message;
  EXPECT_EQ(client->get("large"), large);
  EXPECT_EQ(client->add("n", 1), 1);
}

}  // namespace
}  // namespace c10d::test
