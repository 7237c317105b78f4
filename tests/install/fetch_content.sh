#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# fetch_content.sh SOURCE CXX [CMAKE_OPTIONS]: a project that builds c10d as a part of itself.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
launcher=$(command -v ccache || true)
cmake -S "$1/tests/install/fetch_content" -B "$work" -G Ninja -DCMAKE_CXX_COMPILER="$2" \
  -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" -DFETCHCONTENT_SOURCE_DIR_C10D="$1" \
  "${@:3}" >"$work/log" 2>&1 ||
  { cat "$work/log"; exit 1; }
cmake --build "$work" --target consumer >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$work/consumer"
