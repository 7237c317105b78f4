// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/images.h"

#if defined(C10D_CUDA_IMAGES)
#define C10D_IMAGE(name)                                                                \
  asm(".pushsection .rodata\n"                                                          \
      ".balign 64\n"                                                                    \
      "c10d_image_" #name                                                               \
      ":\n"                                                                             \
      ".incbin \"" C10D_CUDA_IMAGES "/" #name                                           \
      ".fatbin\"\n"                                                                     \
      "c10d_end_of_image_" #name                                                        \
      ":\n"                                                                             \
      ".popsection\n");                                                                 \
  extern "C" __attribute__((visibility("hidden"))) const std::byte c10d_image_##name[], \
      c10d_end_of_image_##name[];
C10D_IMAGE(casts)
C10D_IMAGE(arithmetic)
C10D_IMAGE(fold)
#undef C10D_IMAGE
#endif

namespace c10d { inline namespace v0 { namespace cuda_kernels {

Images images() noexcept {
#if defined(C10D_CUDA_IMAGES)
  return {{c10d_image_casts, c10d_end_of_image_casts},
          {c10d_image_arithmetic, c10d_end_of_image_arithmetic},
          {c10d_image_fold, c10d_end_of_image_fold},
          {}};
#else
  return {{}, {}, {}, C10D_NO_CUDA_IMAGES};
#endif
}

}}}  // namespace c10d::v0::cuda_kernels
