// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "bench/measure/gpu.h"
#include "bench/model/record.h"
#include "bench/rank/control_group.h"

namespace c10d::bench {

// The GPUs of all ranks, by rank: their number in that process, name, UUID and L2.
struct GpuRanks {
  Json gpus = Json::array();
  std::string names() const;      // "NVIDIA H100 80GB HBM3", each once
  std::string placement() const;  // by the UUIDs
};
// Collective.
GpuRanks gather_gpus(ControlGroup& control, const GpuSeat& seat);

// Adds them, and the driver of this process, to an env record.
void put_gpus(const GpuRanks& ranks, Json& environment);

// What any collective on these GPUs is held against: copies of memory that the L2 holds no byte of,
// on the GPU of this rank.
CeilRecord gpu_ceiling(const GpuSeat& seat, int launch);

}  // namespace c10d::bench
