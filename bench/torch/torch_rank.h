// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace c10d::bench {

extern const char* const kTorchRank;  // torch_rank.py, a part of the program

}  // namespace c10d::bench
