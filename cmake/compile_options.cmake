# SPDX-License-Identifier: BSD-3-Clause
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_UNITY_BUILD_BATCH_SIZE 10)
if(PROJECT_IS_TOP_LEVEL AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(C10D_CCACHE ccache)
  if(C10D_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${C10D_CCACHE})
    set(CMAKE_C_COMPILER_LAUNCHER ${C10D_CCACHE})
  endif()
endif()

# What every target of this project compiles with; nothing of it reaches a consumer.
add_library(c10d_compile_options INTERFACE)
set(cxx $<COMPILE_LANGUAGE:CXX>) # tests and examples of the C interface are in C
target_compile_options(
  c10d_compile_options
  INTERFACE -Wall -Wextra -Wpedantic -Wshadow $<${cxx}:-Wnon-virtual-dtor>
            $<${cxx}:-Woverloaded-virtual> -Wno-missing-field-initializers -fvisibility=hidden
            $<${cxx}:-fvisibility-inlines-hidden> -fstack-protector-strong)
target_compile_definitions(c10d_compile_options INTERFACE _GLIBCXX_ASSERTIONS)
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT C10D_SANITIZE)
  target_compile_options(c10d_compile_options INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
endif()
target_link_options(c10d_compile_options INTERFACE -Wl,-z,relro,-z,now)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(c10d_compile_options INTERFACE -Wthread-safety)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 warns of overlapping copies inside std::string's operator+ (GCC bug 105651).
  target_compile_options(c10d_compile_options INTERFACE -Wno-restrict)
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ takes a source in a unity build for a header, whose unnamed namespaces would be a mistake.
  target_compile_options(c10d_compile_options INTERFACE $<${cxx}:-Wno-subobject-linkage>)
endif()
if(C10D_WERROR)
  target_compile_options(c10d_compile_options INTERFACE -Werror)
endif()
if(C10D_SANITIZE)
  target_compile_options(
    c10d_compile_options INTERFACE -fsanitize=${C10D_SANITIZE} -fno-sanitize-recover=all
                                   -fno-omit-frame-pointer -gline-tables-only)
  target_link_options(c10d_compile_options INTERFACE -fsanitize=${C10D_SANITIZE})
endif()
