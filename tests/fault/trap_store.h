// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>

#include "c10d/store.h"

namespace c10d::fault {

// `store` for a rank that comes to grief: "die:KEY:N" kills this process when it first writes or
// waits for the N-th key that contains KEY, "exec:KEY:N" makes it another program that sleeps for a
// minute, "throw:KEY:N" makes that call throw store_error once.
std::shared_ptr<Store> make_trap_store(std::shared_ptr<Store> store, const std::string& trap);

}  // namespace c10d::fault
