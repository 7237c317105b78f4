# SPDX-License-Identifier: BSD-3-Clause
# What is installed. The tree can be moved as a whole: nothing in it holds an absolute path.
# The components are the packages of cmake/packages.cmake.
include(CMakePackageConfigHelpers)

set(C10D_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/c10d)
set(C10D_MODULE_DIR ${CMAKE_INSTALL_LIBDIR}/c10d/backends)

install(
  TARGETS c10d c10d_parallel
  EXPORT c10dTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
          COMPONENT c10d_library
          NAMELINK_COMPONENT c10d_dev
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT c10d_dev)
install(
  DIRECTORY include/c10d
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  COMPONENT c10d_dev
  FILES_MATCHING
  PATTERN "*.h")

get_property(modules GLOBAL PROPERTY C10D_MODULES)
foreach(module IN LISTS modules) # c10d_gloo with c10d_raw_gloo, c10d_mpi_mpich with its raw one
  string(REGEX REPLACE "^c10d_(raw_)?(mpi_)?" "" wrapped ${module})
  if(module STREQUAL c10d_raw_tcp) # wraps nothing
    set(wrapped tools)
  endif()
  install(TARGETS ${module} LIBRARY DESTINATION ${C10D_MODULE_DIR} COMPONENT c10d_${wrapped})
endforeach()

foreach(program IN ITEMS c10d-run c10d-bench c10d-info c10d-checkpoint)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT c10d_tools)
    if(NOT CMAKE_CROSSCOMPILING) # c10d_add_manual made them
      install(FILES ${C10D_MANUALS}/${program}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
              COMPONENT c10d_tools)
      install(FILES ${C10D_MANUALS}/${program} COMPONENT c10d_tools
              DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    endif()
  endif()
endforeach()

install(
  EXPORT c10dTargets
  NAMESPACE c10d::
  DESTINATION ${C10D_CMAKE_DIR}
  COMPONENT c10d_dev)
configure_package_config_file(
  cmake/c10dConfig.cmake.in ${PROJECT_BINARY_DIR}/c10dConfig.cmake
  INSTALL_DESTINATION ${C10D_CMAKE_DIR}
  PATH_VARS C10D_MODULE_DIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/c10dConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/c10dConfig.cmake ${PROJECT_BINARY_DIR}/c10dConfigVersion.cmake
        DESTINATION ${C10D_CMAKE_DIR} COMPONENT c10d_dev)

file(RELATIVE_PATH C10D_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" C10D_PC_PREFIX "${C10D_PC_PREFIX}")
if(C10D_LIBRARY_TYPE STREQUAL "STATIC") # with and without pkg-config --static
  set(C10D_PC_REQUIRES "fmt libcrypto ${libuv_MODULE_NAME} hwloc")
  list(TRANSFORM CMAKE_DL_LIBS PREPEND " -l" OUTPUT_VARIABLE C10D_PC_LIBS)
endif()
foreach(library IN ITEMS c10d c10d_parallel)
  configure_file(cmake/${library}.pc.in ${PROJECT_BINARY_DIR}/${library}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${library}.pc
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT c10d_dev)
endforeach()

install(FILES README.md CHANGELOG.md SECURITY.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR}
        COMPONENT c10d_dev)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT c10d_dev)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT c10d_dev
        PATTERN training EXCLUDE PATTERN "run_*.sh" EXCLUDE)
