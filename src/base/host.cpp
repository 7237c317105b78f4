// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/host.h"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace c10d { inline namespace v0 {

// None of these is ever destroyed: a group that is static, and the monitor's thread, live on.

const std::string& host_name() {
  static const std::string& name = *new std::string([] {
    char buffer[256] = {};
    return gethostname(buffer, sizeof buffer - 1) == 0 ? std::string(buffer)
                                                       : std::string("unknown");
  }());
  return name;
}

const std::string& host_identity() {
  static const std::string& identity = *new std::string([] {
    std::string boot_id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
    // Shared memory and its sockets need one network namespace, looking after peers one of pids.
    const auto space = [](const char* path) {
      struct stat info {};
      return stat(path, &info) == 0 ? std::to_string(info.st_ino) : std::string("0");
    };
    return boot_id + "." + space("/proc/self/ns/net") + "." + space("/proc/self/ns/pid") + "." +
           host_name();
  }());
  return identity;
}

const std::string& cpu_model() {
  static const std::string& model = *new std::string([] {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);)
      if (line.starts_with("model name"))
        return line.substr(std::min(line.size(), line.find(':') + 2));
    return std::string("unknown");
  }());
  return model;
}

int allowed_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0)
    return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  return std::max(1, CPU_COUNT(&set));
}

}}  // namespace c10d::v0
