# SPDX-License-Identifier: BSD-3-Clause
# C10D_PYTHON is the Python for which the package is built, or C10D_NO_PYTHON says why there is
# none. Its tests use NumPy.
set(C10D_NO_PYTHON)
set(C10D_NANOBIND ${PROJECT_SOURCE_DIR}/build/nanobind) # ./dev installs it
if(NOT C10D_WITH_PYTHON)
  set(C10D_NO_PYTHON "C10D_WITH_PYTHON is OFF")
elseif(C10D_LIBRARY_TYPE STREQUAL "STATIC")
  set(C10D_NO_PYTHON "BUILD_SHARED_LIBS is OFF")
elseif(C10D_SANITIZE)
  set(C10D_NO_PYTHON "Python does not load a library with sanitizers")
elseif(NOT EXISTS ${C10D_NANOBIND}/nanobind/cmake)
  set(C10D_NO_PYTHON "nanobind is not in build/nanobind; ./dev build downloads it")
else()
  function(c10d_is_python_with_headers result python)
    execute_process(
      COMMAND ${python} -c "import os, sys, sysconfig, numpy
header = sysconfig.get_path('include') + '/Python.h'
sys.exit(not os.path.exists(header) or sys.version_info < (3, 10))"
      RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
    if(NOT status EQUAL 0)
      set(${result} FALSE PARENT_SCOPE)
    endif()
  endfunction()
  find_program(C10D_PYTHON python3 VALIDATOR c10d_is_python_with_headers)
  mark_as_advanced(C10D_PYTHON)
  if(NOT C10D_PYTHON)
    set(C10D_NO_PYTHON "no python3 from 3.10 on with headers and NumPy (python3-dev python3-numpy)")
  endif()
endif()
if(C10D_NO_PYTHON)
  message(STATUS "c10d: Python package: ${C10D_NO_PYTHON}")
else()
  message(STATUS "c10d: Python package: for ${C10D_PYTHON}")
endif()
