# SPDX-License-Identifier: BSD-3-Clause
# cmake -DSOURCE=DIR -DOUTPUT=FILE -P write_commit.cmake: a source file with the commit of DIR, or
# with an empty text where DIR is no checkout of git. It is written only when it changes.
get_filename_component(parent ${SOURCE} DIRECTORY)
set(ENV{GIT_CEILING_DIRECTORIES} ${parent}) # not the checkout of a project that holds this one
set(ENV{GIT_OPTIONAL_LOCKS} 0) # a build leaves the checkout alone
execute_process(
  COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
  OUTPUT_VARIABLE commit
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
set(text "#include \"bench/measure/machine.h\"\n\n")
string(APPEND text "const char* c10d::bench::commit() { return \"${commit}\"; }\n")
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "${text}" @ONLY)
