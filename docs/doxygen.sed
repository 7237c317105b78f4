# SPDX-License-Identifier: BSD-3-Clause
# Makes documentation of the comments of a public header, for Doxygen:
#   // before a declaration    ->  ///
#   // behind a declaration    ->  ///<
/^ *\/\/ (SPDX-License-Identifier|clang-format|NOLINT)/ s/.*//
s/^( *)\/\/( |$)/\1\/\/\/\2/
t
s/([,;{}]|[a-z]) +\/\/ /\1  \/\/\/< /
