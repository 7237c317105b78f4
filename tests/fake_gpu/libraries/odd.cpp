// SPDX-License-Identifier: BSD-3-Clause
// Libraries that are none, or not whole.
extern "C" {
#if defined(C10D_HALF_CUDA)
int cuInit(unsigned) { return 0; }
int cuDeviceGet(int*, int) { return 0; }
#elif defined(C10D_NCCL_VERSION)
int ncclGetVersion(int* version) {
  *version = C10D_NCCL_VERSION;
  return 0;
}
int ncclGroupStart() { return 0; }
#endif
}
