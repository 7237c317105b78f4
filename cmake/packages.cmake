# SPDX-License-Identifier: BSD-3-Clause
# Debian packages, one for each component of cmake/install.cmake: `cpack` in the build folder makes
# them, in a folder of the preset `packages` with Debian's paths (./dev packages).
set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_CONTACT "The c10d authors <nobody@c10d.invalid>" CACHE STRING "Maintainer")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SOURCE c10d)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/lib)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/tools/packaging/debian/complete.cmake)

set(version ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})
set(library libc10d${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}) # as its soname
set(control ${PROJECT_BINARY_DIR}/debian)
file(WRITE ${control}/triggers "activate-noawait ldconfig\n")
file(WRITE ${control}/shlibs "")
foreach(name IN ITEMS libc10d libc10d_parallel)
  file(APPEND ${control}/shlibs
       "${name} ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} ${library} (= ${version})\n")
endforeach()

# c10d_package(<component> <name> <section> <summary> <text> [<field> <value>]...)
macro(c10d_package component name section summary text)
  string(TOUPPER ${component} package)
  set(package CPACK_DEBIAN_${package})
  list(APPEND CPACK_COMPONENTS_ALL ${component})
  set(${package}_PACKAGE_NAME ${name})
  set(${package}_PACKAGE_SECTION ${section})
  set(${package}_DESCRIPTION "${summary}\n${text}")
  set(fields ${ARGN})
  while(fields)
    list(POP_FRONT fields field value)
    set(${package}_PACKAGE_${field} "${value}")
  endwhile()
endmacro()

# c10d_module_package(<what it wraps> <its name> [<field> <value>]...)
macro(c10d_module_package wrapped title)
  if(TARGET c10d_${wrapped} OR TARGET c10d_mpi_${wrapped})
    c10d_package(
      c10d_${wrapped} libc10d-${wrapped} libs "collective communication over ${title}"
      "With this module, programs that use c10d exchange data through ${title},
also between hosts. The library opens it at run time, so programs need not
be compiled again."
      DEPENDS "${library} (= ${version})" ${ARGN})
  endif()
endmacro()

set(CPACK_COMPONENTS_ALL)
c10d_package(
  c10d_library ${library} libs "collective communication between processes"
  "The ranks of a parallel program exchange data by collective operations
(all_reduce, broadcast, all_to_all and more) and by messages. This package
has the library with the backend native, which uses the shared memory of one
host, and a library of trainers: data parallel, sharded, pipelines.
The packages libc10d-gloo, libc10d-openmpi, libc10d-mpich and libc10d-nccl add
backends, also for several hosts and for GPUs."
  SUGGESTS "libc10d-gloo, libc10d-openmpi, libc10d-mpich, libc10d-nccl")
set(CPACK_DEBIAN_C10D_LIBRARY_PACKAGE_CONTROL_EXTRA ${control}/triggers ${control}/shlibs)
c10d_package(
  c10d_dev libc10d-dev libdevel "collective communication between processes (development)"
  "To compile programs whose ranks exchange data by collective operations and
messages: the headers, the files for CMake and pkg-config, documents and
examples of c10d."
  DEPENDS "${library} (= ${version})" RECOMMENDS "cmake | pkg-config"
  SUGGESTS "c10d-tools, zlib1g-dev")
if(TARGET c10d-run)
  c10d_package(
    c10d_tools c10d-tools utils "programs that start, measure and inspect ranks of c10d"
    "c10d-run starts the ranks of a program and says which failed first.
c10d-bench compares the backends of this machine and checks every result.
c10d-info says what each backend can do here, and what a program that hangs
is waiting for. c10d-checkpoint lists, checks and converts checkpoints."
    DEPENDS "${library} (= ${version})" RECOMMENDS "libc10d-gloo, libc10d-openmpi | libc10d-mpich"
    SUGGESTS "libc10d-dev, bash-completion")
endif()
c10d_module_package(gloo Gloo)
c10d_module_package(openmpi "Open MPI" RECOMMENDS openmpi-bin) # the launchers
c10d_module_package(mpich MPICH RECOMMENDS mpich)
c10d_module_package(nccl "NCCL, on GPUs") # which Debian does not have: found at run time
include(CPack)
