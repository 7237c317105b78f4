// SPDX-License-Identifier: BSD-3-Clause
#include "bench/rank/gpu_ranks.h"

#include <fmt/format.h>

#include <set>

namespace c10d::bench {
namespace {

std::set<std::string> each_once(const Json& gpus, const char* field) {
  std::set<std::string> values;
  for (const Json& gpu : gpus) values.insert(gpu.at(field).get<std::string>());
  return values;
}

}  // namespace

std::string GpuRanks::names() const {
  return fmt::format("{}", fmt::join(each_once(gpus, "name"), ", "));
}

std::string GpuRanks::placement() const {
  if (gpus.size() == 1) return kOneGpu;
  return each_once(gpus, "uuid").size() == gpus.size() ? kGpuPerRank : kColocated;
}

GpuRanks gather_gpus(ControlGroup& control, const GpuSeat& seat) {
  const cuda::DeviceInfo info = cuda::device_info(seat.device.index);
  const Json own = {{"rank", control.rank()},
                    {"device", seat.device.index},
                    {"name", info.name},
                    {"uuid", info.uuid},
                    {"l2_bytes", info.l2_bytes}};
  GpuRanks ranks;
  for (const std::string& text : control.gather("gpu", own.dump()))
    ranks.gpus.push_back(Json::parse(text));
  return ranks;
}

void put_gpus(const GpuRanks& ranks, Json& environment) {
  const cuda::DriverInfo driver = cuda::driver_info();
  environment["gpu"] = ranks.names();
  environment["gpus"] = ranks.gpus;
  environment["placement"] = ranks.placement();
  environment["driver"] = {
      {"cuda", fmt::format("{}.{}", driver.version / 1000, driver.version % 1000 / 10)},
      {"path", driver.path}};
}

CeilRecord gpu_ceiling(const GpuSeat& seat, int launch) {
  const std::uint64_t bytes = beyond_l2_bytes();
  const double us = GpuCopier(seat).microseconds(bytes, false);
  return {"device_copy", "DRAM", bytes, launch, static_cast<double>(bytes) * 1e-3 / us, us, false};
}

}  // namespace c10d::bench
