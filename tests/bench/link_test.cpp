// SPDX-License-Identifier: BSD-3-Clause
#include "bench/measure/link.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>
#include <vector>

#include "bench/model/bandwidth.h"
#include "c10d/error.h"
#include "c10d/store.h"
#include "src/net/address.h"
#include "src/net/socket.h"

namespace c10d::bench { namespace {

using std::chrono::milliseconds;

const std::string kHere = "127.0.0.1";

std::future<LinkRates> measure(End end, Store& store, Duration timeout) {
  return std::async(std::launch::async,
                    [=, &store] { return measure_link(end, store, kHere, timeout); });
}

Fd connect_as_a_stranger(Store& store) {
  const auto port = static_cast<std::uint16_t>(std::stoi(store.get("link/port")));
  std::string problem;
  Fd socket = connect_tcp(resolve(kHere, port),
                          std::chrono::steady_clock::now() + milliseconds(500), problem);
  EXPECT_TRUE(socket) << problem;
  return socket;
}

void expect_rates(const LinkRates& rates) {
  EXPECT_GT(rates.round_trip_us, 0);
  std::vector<int> streams;
  for (const LinkRates::Flow& flow : rates.flows) {
    streams.push_back(flow.streams);
    EXPECT_GT(flow.both_ways, 0) << flow.streams;
  }
  EXPECT_EQ(streams, (std::vector{1, 2, 4}));
}

TEST(Link, BothEndsMeasure) {
  const auto store = make_hash_store();
  auto listens = measure(End::listens, *store, milliseconds(20000));
  auto connects = measure(End::connects, *store, milliseconds(20000));
  const LinkRates rates = listens.get();
  expect_rates(rates);
  for (const LinkRates::Flow& flow : rates.flows)
    EXPECT_GT(flow.one_way, 0) << "on the end that receives";
  expect_rates(connects.get());
}

TEST(Link, StrangersAreSentAway) {
  const auto store = make_hash_store();
  auto listens = measure(End::listens, *store, milliseconds(20000));
  const Fd wrong = connect_as_a_stranger(*store);
  EXPECT_TRUE(send_all(wrong.get(), std::string(32, 'x'),
                       std::chrono::steady_clock::now() + milliseconds(500)));
  const Fd silent = connect_as_a_stranger(*store);
  auto connects = measure(End::connects, *store, milliseconds(20000));
  expect_rates(listens.get());
  expect_rates(connects.get());
}

TEST(Link, AnEndThatNeverComesIsAnErrorInTime) {
  const auto store = make_hash_store();
  auto listens = measure(End::listens, *store, milliseconds(100));
  EXPECT_THROW(listens.get(), DistNetworkError);
}

// One byte at a time: the deadline is that of all of them.
TEST(Link, AStrangerThatDripsDoesNotPutOffTheDeadline) {
  const auto store = make_hash_store();
  auto listens = measure(End::listens, *store, milliseconds(300));
  const Fd slow = connect_as_a_stranger(*store);
  const auto until = std::chrono::steady_clock::now() + milliseconds(5000);
  while (listens.wait_for(milliseconds(50)) != std::future_status::ready) {
    ASSERT_LT(std::chrono::steady_clock::now(), until);
    send_all(slow.get(), "x", until);
  }
  EXPECT_THROW(listens.get(), DistNetworkError);
}

TEST(Link, WhatHostsMustExchange) {
  EXPECT_EQ(bytes_between_hosts("all_reduce", 1200, 2, 2), 1200);
  EXPECT_EQ(bytes_between_hosts("all_reduce", 1200, 3, 6), 1600);
  EXPECT_EQ(bytes_between_hosts("all_gather", 1200, 3, 3), 800);
  EXPECT_EQ(bytes_between_hosts("broadcast", 1200, 3, 6), 1200);
  // Each rank of a host has S for others.
  EXPECT_EQ(bytes_between_hosts("all_to_all", 1200, 2, 8), 2400);
  EXPECT_EQ(bytes_between_hosts("send", 1200, 2, 2), 1200);
  EXPECT_EQ(bytes_between_hosts("send", 1200, 2, 4), 0) << "neighbours share a host";
  EXPECT_EQ(bytes_between_hosts("barrier", 0, 2, 2), 0);
  EXPECT_EQ(bytes_between_hosts("unknown", 8, 2, 2), 0);
}

}}  // namespace c10d::bench
