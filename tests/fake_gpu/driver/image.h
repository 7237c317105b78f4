// SPDX-License-Identifier: BSD-3-Clause
// What a module is loaded from: a fat binary, an ELF file of a GPU, or the text of PTX.
#pragma once

#include <string>
#include <string_view>

#include "src/device/driver.h"

namespace fake_gpu {

struct Image {
  c10d::driver::Result result = c10d::driver::kSuccess;  // of loading it
  std::string bytes;

  bool has(std::string_view name) const;
};
Image read_image(const void* image);

}  // namespace fake_gpu
