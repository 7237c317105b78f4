# SPDX-License-Identifier: BSD-3-Clause
# C10D_NVCC is the compiler of the CUDA kernels, or C10D_NO_CUDA says why there is none. It is
# called as a command: CMake's CUDA language would want a runtime library to link. A static build
# has no backend for GPUs.
set(C10D_NO_CUDA)
set(C10D_CUDA_TOOLKIT ${PROJECT_SOURCE_DIR}/build/cuda-toolkit/nvidia/cu13) # ./dev installs it
if(NOT C10D_WITH_CUDA)
  set(C10D_NO_CUDA "C10D_WITH_CUDA is OFF")
elseif(C10D_LIBRARY_TYPE STREQUAL "STATIC")
  set(C10D_NO_CUDA "BUILD_SHARED_LIBS is OFF")
else()
  function(c10d_is_new_nvcc result nvcc)
    execute_process(COMMAND ${nvcc} --version OUTPUT_VARIABLE text ERROR_QUIET)
    if(NOT text MATCHES "release ([0-9.]+)" OR CMAKE_MATCH_1 VERSION_LESS 12.4)
      set(${result} FALSE PARENT_SCOPE)
    endif()
  endfunction()
  find_program(C10D_NVCC nvcc VALIDATOR c10d_is_new_nvcc
               PATHS /usr/local/cuda/bin ${C10D_CUDA_TOOLKIT}/bin)
  mark_as_advanced(C10D_NVCC)
  if(NOT C10D_NVCC)
    set(C10D_NO_CUDA "no nvcc of CUDA 12.4 or newer was found")
  endif()
endif()
if(C10D_NO_CUDA)
  message(STATUS "c10d: CUDA kernels: ${C10D_NO_CUDA}")
else()
  message(STATUS "c10d: CUDA kernels: ${C10D_NVCC}")
endif()
