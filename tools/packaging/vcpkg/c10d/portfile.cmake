# SPDX-License-Identifier: BSD-3-Clause
# vcpkg install c10d --overlay-ports=tools/packaging/vcpkg: builds the checkout that it is in.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)
vcpkg_check_features(
  OUT_FEATURE_OPTIONS FEATURES_WANTED
  FEATURES tools C10D_BUILD_PROGRAMS gloo C10D_WITH_GLOO mpi C10D_WITH_OPENMPI mpi C10D_WITH_MPICH)
vcpkg_find_acquire_program(PKGCONFIG)
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS ${FEATURES_WANTED} "-DPKG_CONFIG_EXECUTABLE=${PKGCONFIG}" -DC10D_BUILD_TESTS=OFF
          -DC10D_BUILD_EXAMPLES=OFF -DC10D_WITH_TRAINING=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME c10d CONFIG_PATH lib/cmake/c10d)
vcpkg_fixup_pkgconfig()
if("tools" IN_LIST FEATURES)
  vcpkg_copy_tools(TOOL_NAMES c10d-run c10d-bench c10d-info c10d-checkpoint AUTO_CLEAN)
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share"
     "${CURRENT_PACKAGES_DIR}/share/doc")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
