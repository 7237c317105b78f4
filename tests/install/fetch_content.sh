#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# fetch_content.sh SOURCE CXX [CMAKE_OPTIONS]: a project that builds c10d as a part of itself, as a
# static library; and the installed static library, with CMake and with pkg-config.
set -euo pipefail
source=$1 cxx=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; fail "$*"; }; }
launcher=$(command -v ccache || true)
# shellcheck source-path=SCRIPTDIR
source "$source/tests/install/snippet.sh"
mkdir "$work/project"
cp "$source/tests/install/consumer/consumer.cpp" "$work/project/program.cpp"
{
  echo 'cmake_minimum_required(VERSION 3.25)
    project(embedding LANGUAGES CXX)
    add_executable(program program.cpp)'
  snippet embedding.md "FetchContent and add_subdirectory" cmake | sed "s|/path/to/c10d|$source|"
  echo 'if(TARGET c10d-run OR TARGET headers_alone)
      message(FATAL_ERROR "a consumer must not be made to build programs or tests of c10d")
    endif()'
} >"$work/project/CMakeLists.txt"
fetch() { # fetch FOLDER [CMAKE_OPTIONS]
  quietly cmake -S "$work/project" -B "$work/$1" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" \
    -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" "${@:2}"
}

fetch shared "${@:3}" # install.moved_prefix builds on that kind, so it is only configured here
fetch static -DBUILD_SHARED_LIBS=OFF -DC10D_INSTALL=ON -DCMAKE_INSTALL_LIBDIR=lib "${@:3}"
grep -q "gloo is not built: this is a static build, only native" "$work/log" ||
  fail "configure does not say what a static build has"
quietly cmake --build "$work/static"
"$work/static/program"

echo "-- installed"
prefix=$work/moved
quietly cmake --install "$work/static" --prefix "$work/first"
mv "$work/first" "$prefix"
if grep -rIlE "$work|$source" "$prefix/lib/cmake" "$prefix/lib/pkgconfig"; then
  fail "the files above hold an absolute path"
fi
[[ $(find "$prefix" -name '*.so*') == "" ]] || fail "a static build has installed a shared library"
consume() {
  cmake -S "$source/tests/install/consumer" -B "$work/$1" -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_CXX_COMPILER="$cxx" "${@:2}" >"$work/log" 2>&1
}
consume found || { cat "$work/log"; fail "find_package"; }
quietly cmake --build "$work/found"
"$work/found/consumer"
"$work/found/trainer"
if consume gloo "-DC10D_COMPONENTS=native;gloo"; then fail "the component gloo was found"; fi
grep -q "static build (only native) of c10d has no backend 'gloo'" "$work/log" ||
  { cat "$work/log"; fail "the error does not say why gloo is missing"; }

# What libc10d.a links stands among the public requirements, so that both ways link the same; with
# --static hwloc asks for libraries of its own, which need not be there.
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
for static in "" --static; do
  mapfile -t below < <(pkg-config --libs $static fmt libcrypto libuv hwloc | xargs -n1)
  if ! "$cxx" -x c++ - -o "$work/probe" "${below[@]}" <<<'int main() {}' 2>"$work/log"; then
    echo "skipped: pkg-config $static: $(grep -m1 'cannot find' "$work/log")"
    continue
  fi
  mapfile -t flags < <(pkg-config --cflags --libs $static c10d | xargs -n1)
  quietly "$cxx" -std=c++20 "$source/tests/install/consumer/consumer.cpp" -o "$work/program" \
    "${flags[@]}"
  "$work/program"
done
for backend in gloo mpi nccl; do
  if "$work/program" "$backend" >"$work/log" 2>&1; then fail "$backend in a static program"; fi
  grep -q "static build.*native only.*BUILD_SHARED_LIBS=ON" "$work/log" ||
    { cat "$work/log"; fail "the error does not say why $backend is missing"; }
done
