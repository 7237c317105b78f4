# SPDX-License-Identifier: BSD-3-Clause
# CPack includes this when the files of all packages lie in their folders: adds what Debian wants
# in each of them.
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC) # or SOURCE_DATE_EPOCH
set(version ${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} upper)
  set(share ${CPACK_TEMPORARY_DIRECTORY}/${component}${CPACK_PACKAGING_INSTALL_PREFIX}/share)
  set(documents ${share}/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  file(REMOVE ${share}/doc/c10d/LICENSE ${documents}/LICENSE) # the copyright file has it
  configure_file(${CMAKE_CURRENT_LIST_DIR}/copyright ${documents}/copyright COPYONLY)
  file(WRITE ${documents}/changelog.Debian
       "c10d (${version}) unstable; urgency=low\n\n  * See CHANGELOG.md in libc10d-dev.\n\n"
       " -- ${CPACK_PACKAGE_CONTACT}  ${date}\n")
  configure_file(${CMAKE_CURRENT_LIST_DIR}/lintian-overrides
                 ${share}/lintian/overrides/${CPACK_DEBIAN_${upper}_PACKAGE_NAME} COPYONLY)
  file(GLOB manuals ${share}/man/man1/*.1)
  execute_process(COMMAND gzip -9n ${documents}/changelog.Debian ${manuals}
                  COMMAND_ERROR_IS_FATAL ANY)
endforeach()
