# SPDX-License-Identifier: BSD-3-Clause
# Private dependencies of the library. None of their types appears in a public header.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(nlohmann_json REQUIRED)
pkg_search_module(libuv REQUIRED IMPORTED_TARGET libuv libuv-static)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc)

# What the program links, too, where the library is static.
set(C10D_LINKED fmt::fmt OpenSSL::Crypto PkgConfig::libuv PkgConfig::hwloc ${CMAKE_DL_LIBS})
add_library(c10d_dependencies INTERFACE)
target_link_libraries(c10d_dependencies INTERFACE ${C10D_LINKED} nlohmann_json::nlohmann_json
                                                  Threads::Threads)

# Of the programs and tests.
find_package(CLI11 QUIET)

# Of the training examples.
find_package(ZLIB QUIET)
find_library(C10D_DNNL_LIBRARY dnnl) # Debian's CMake package asks for OpenCL, which it does not use
find_path(C10D_DNNL_INCLUDE oneapi/dnnl/dnnl.hpp)
mark_as_advanced(C10D_DNNL_LIBRARY C10D_DNNL_INCLUDE)
