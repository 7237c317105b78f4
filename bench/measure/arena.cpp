// SPDX-License-Identifier: BSD-3-Clause
#include "bench/measure/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include "bench/text/format.h"
#include "c10d/error.h"

namespace c10d::bench {

Arena::Arena(std::size_t bytes) : bytes_(bytes < 4096 ? 4096 : bytes) {
  data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
               -1, 0);
  if (data_ == MAP_FAILED)
    throw_failure(
        {Code::out_of_resources,
         fmt::format("no memory for benchmark buffers of {}; lower --max", bytes_text(bytes_))});
}

Arena::Arena(std::size_t bytes, const GpuSeat& seat)
    : bytes_(bytes < 4096 ? 4096 : bytes),
      seat_(&seat),
      on_gpu_(cuda::device_allocate(bytes_, seat.device.index)) {
  data_ = on_gpu_.data;
}

Arena::~Arena() {
  if (registered_.device_data() == nullptr && seat_ == nullptr) munmap(data_, bytes_);
}

}  // namespace c10d::bench
