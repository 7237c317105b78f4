#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# usage: aarch64.sh SOURCE_DIR
# Builds the kernels and their test for aarch64 and runs the test in an emulator. Exit status 77:
# what that takes is not installed.
set -euo pipefail
root=$1
gtest=${GTEST_SOURCE:-/usr/src/googletest/googletest}
compiler=aarch64-linux-gnu-g++
emulator=qemu-aarch64

skip() {
  printf 'skipped: %s\n' "$1"
  exit 77
}
command -v $compiler >/dev/null || skip "no $compiler (package g++-aarch64-linux-gnu)"
command -v $emulator >/dev/null || skip "no $emulator (package qemu-user)"
[[ -f $gtest/src/gtest-all.cc ]] || skip "no sources in $gtest (package googletest)"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
options=(-std=c++20 -ffp-contract=off -Wall -Wextra -Wpedantic -Wshadow -Werror
  -I "$root" -I "$root/include" -isystem "$gtest/include" -isystem "$gtest")
objects=()
compile() { # SOURCE OPTIONS...
  local object=$folder/${#objects[@]}.o
  $compiler "${options[@]}" "${@:2}" -c "$1" -o "$object"
  objects+=("$object")
}
for source in "$root"/kernels/*.cpp; do compile "$source" -O2; done
for source in "$root"/tests/unit/kernels/*_test.cpp; do compile "$source" -O1; done
for source in gtest-all gtest_main; do compile "$gtest/src/$source.cc" -O0 -w; done

$compiler -static "${objects[@]}" -o "$folder/unit_kernels"
$emulator "$folder/unit_kernels" --gtest_brief=1
