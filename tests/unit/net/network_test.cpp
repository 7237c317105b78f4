// SPDX-License-Identifier: BSD-3-Clause
#include "src/net/network.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "c10d/error.h"

namespace c10d::test { namespace {

TEST(Network, IsFoundByItsInterfaceItsAddressAndItsSubnet) {
  for (const char* name : {"lo", "127.0.0.1", "127.0.0.0/8", "127.0.0.1/32", "127.3.0.0/8"}) {
    const auto network = find_network(name);
    ASSERT_TRUE(network) << name;
    EXPECT_EQ(network->address, "127.0.0.1") << name;
    EXPECT_EQ(network->subnet, "127.0.0.0/8") << name;
  }
}

TEST(Network, OfAnotherHostIsNone) {
  for (const char* name : {"no such", "240.0.0.1", "240.0.0.0/4", "127.0.0.0/x", "127.0.0.0/",
                           "127.0.0.2/32", "lo/8", "", "::2"})
    EXPECT_FALSE(find_network(name)) << name;
}

TEST(Network, ThatIsChosenMustBeThere) {
  EXPECT_TRUE(chosen_networks().empty());
  setenv("C10D_NET_INTERFACE", "lo", 1);
  ASSERT_EQ(chosen_networks().size(), 1U);
  EXPECT_EQ(chosen_networks()[0].address, "127.0.0.1");
  setenv("C10D_NET_INTERFACE", "127.0.0.0/8, lo", 1);
  EXPECT_EQ(chosen_networks().size(), 1U) << "it is named twice";
  for (const char* names : {"lo,,127.0.0.1", ",lo"}) {
    setenv("C10D_NET_INTERFACE", names, 1);
    EXPECT_THROW(chosen_networks(), DistNetworkError) << names;
  }
  setenv("C10D_NET_INTERFACE", "127.0.0.0/8,lo", 1);
  EXPECT_EQ(address_for_others({}), "127.0.0.1");
  setenv("C10D_NET_INTERFACE", "lo,240.0.0.0/4", 1);
  try {
    chosen_networks();
    ADD_FAILURE() << "it was found";
  } catch (const DistNetworkError& error) {
    EXPECT_NE(std::string(error.what()).find("C10D_NET_INTERFACE=240.0.0.0/4"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("lo 127.0.0.0/8"), std::string::npos);
  }
  unsetenv("C10D_NET_INTERFACE");
}

}}  // namespace c10d::test
