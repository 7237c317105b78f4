#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# install.sh BUILD LIBDIR CXX MODULES LIBTORCH: installs BUILD, moves the tree, and uses it there.
# LIBTORCH is 1 where LibTorch is installed.
set -euo pipefail
build=$1 libdir=$2 cxx=$3 modules=${4//,/ } libtorch=$5
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
step() { echo "-- $*"; }

step install and move
cmake --install "$build" --prefix "$work/first" >"$work/log" || { cat "$work/log"; fail install; }
mv "$work/first" "$work/moved"
prefix=$work/moved
lib=$prefix/$libdir
for file in include/c10d/{init,c,c/ops,spi/backend}.h "$libdir/libc10d.so" \
  "$libdir/cmake/c10d/c10dConfig.cmake" "$libdir/pkgconfig/c10d.pc" \
  "$libdir/pkgconfig/c10d_parallel.pc"; do
  [[ -e $prefix/$file ]] || fail "$file is not installed"
done
if [[ -d $prefix/bin ]]; then
  for program in "$prefix"/bin/c10d-*; do
    name=${program##*/}
    grep -q "^\.TH ${name//-/.*} 1" "$prefix/share/man/man1/$name.1" ||
      fail "no manual page of $name"
    bash -c "source '$prefix/share/bash-completion/completions/$name' && complete -p $name" \
      >"$work/log" || { cat "$work/log"; fail "no completion of $name"; }
  done
fi
for module in $modules; do
  [[ -e $lib/c10d/backends/libc10d_$module.so ]] || fail "the module $module is not installed"
done

step no absolute path
if grep -rIl -e "$build" -e "$work" "$prefix" --include='*.cmake' --include='*.pc'; then
  fail "the files above hold an absolute path"
fi
while read -r file; do
  # shellcheck disable=SC2016 # the loader expands it, not the shell
  if readelf -d "$file" 2>/dev/null | grep -E 'R(UN)?PATH' | grep -v '\[\$ORIGIN'; then
    fail "$file has an absolute search path"
  fi
done < <(find "$prefix" -type f \( -name '*.so*' -o -path '*/bin/*' \))

step exported symbols
nm -DC --defined-only "$lib/libc10d.so" >"$work/symbols"
grep -q 'c10d::v0::init_process_group' "$work/symbols" || fail "init_process_group is not exported"
if grep -E ' [TWVu] (fmt::|nlohmann|uv_|hwloc_)' "$work/symbols"; then
  fail "symbols of dependencies are exported"
fi

step find_package
consume() { cmake -S "$here/consumer" -B "$work/$1" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_CXX_COMPILER="$cxx" "${@:2}" >"$work/log" 2>&1; }
components=native
for module in $modules; do
  [[ $module == raw_* ]] || components+=";${module%%_*}" # raw_*: peers of the benchmark
done
consume found "-DC10D_COMPONENTS=$components" || { cat "$work/log"; fail configure; }
cmake --build "$work/found" >"$work/log" || { cat "$work/log"; fail build; }
"$work/found/consumer"
"$work/found/trainer"
if [[ $libtorch == 1 ]]; then
  consume torch -DC10D_COMPONENTS=torch -DCMAKE_CXX_FLAGS=-O0 ||
    { cat "$work/log"; fail "configure with LibTorch"; }
  cmake --build "$work/torch" --target with_libtorch >"$work/log" ||
    { cat "$work/log"; fail "build with LibTorch"; }
  "$work/torch/with_libtorch"
fi

step docs/embedding.md
# shellcheck source-path=SCRIPTDIR
source "$here/snippet.sh"
mkdir "$work/documented"
cd "$work/documented"
cp "$here/consumer/consumer.cpp" program.cpp
{
  echo 'cmake_minimum_required(VERSION 3.25)
    project(documented LANGUAGES CXX)
    add_executable(program program.cpp)'
  snippet embedding.md CMake cmake | sed "s/native gloo/$components/"
} >CMakeLists.txt
cmake -B build -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$cxx" >"$work/log" ||
  { cat "$work/log"; fail "configure with the lines for CMake"; }
cmake --build build >"$work/log" || { cat "$work/log"; fail "build with the lines for CMake"; }
build/program
(eval "$(snippet embedding.md pkg-config sh | sed "s|DIR/lib|$lib|g")" && ./program) ||
  fail "the lines for pkg-config"
cd "$here"

step examples
examples=$(dirname "$(find "$prefix/share" -name 01_hello_all_reduce.cpp)")
cp -r "$examples" "$work/mine" # the folder may have any name
cmake -S "$work/mine" -B "$work/examples" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_FLAGS=-O0 \
  -DCMAKE_CXX_COMPILER="$cxx" >"$work/log" 2>&1 || { cat "$work/log"; fail "configure examples"; }
some=(01_hello_all_reduce 20_from_c 10_ddp) # one for each library; all of them take a minute
if ! grep -q "tutorial is not built" "$work/log"; then some+=(2_ddp); fi
cmake --build "$work/examples" --target "${some[@]}" >"$work/log" ||
  { cat "$work/log"; fail build; }
for program in "${some[@]}"; do "$work/examples/$program" >"$work/log" || fail "$program"; done

step what must not be found
if consume other_version -DC10D_WANTED=0.2; then fail "version 0.2 was found"; fi
if consume no_torch -DC10D_COMPONENTS=torch -DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON; then
  fail "the component torch was found without LibTorch"
fi
grep -q "the component torch needs LibTorch" "$work/log" ||
  { cat "$work/log"; fail "the error does not say that LibTorch is missing"; }
if consume other_backend -DC10D_COMPONENTS=carrier_pigeon; then
  fail "the component carrier_pigeon was found"
fi
grep -q carrier_pigeon "$work/log" || fail "the error does not name the missing component"

step pkg-config
export PKG_CONFIG_PATH=$lib/pkgconfig
while read -r package program; do
  mapfile -t flags < <(pkg-config --cflags --libs "$package" | xargs -n1)
  "$cxx" -std=c++20 "$here/consumer/$program.cpp" -o "$work/$package" "${flags[@]}" \
    -Wl,-rpath,"$lib"
  "$work/$package"
done <<<"c10d consumer
c10d_parallel trainer"

step plain compiler
"$cxx" -std=c++20 -I"$prefix/include" "$here/consumer/consumer.cpp" -o "$work/by_hand" -L"$lib" \
  -lc10d -pthread -Wl,-rpath,"$lib"
"$work/by_hand"

step programs from the moved prefix
for program in "$prefix"/bin/*; do
  "$program" --help >"$work/log" 2>&1 || { cat "$work/log"; fail "$program --help"; }
done
if [[ -x $prefix/bin/c10d-info ]]; then
  "$prefix/bin/c10d-info" backends >"$work/info"
  for backend in ${components//;/ }; do
    state=available
    if [[ $backend == nccl ]]; then state='\(available\|unavailable  no CUDA driver\)'; fi
    grep -q "^ *$backend  *$state" "$work/info" || { cat "$work/info"; fail "no $backend"; }
  done
  if grep -o '/[^ ]*/libc10d_[a-z_]*\.so' "$work/info" | grep -v "^$lib/"; then
    fail "a module is opened that was not moved"
  fi
  if [[ -d $lib/c10d/backends ]]; then
    mv "$lib/c10d/backends" "$work/away"
    "$prefix/bin/c10d-info" backends --json >"$work/info"
    mv "$work/away" "$lib/c10d/backends"
    gloo=$lib/c10d/backends/libc10d_gloo.so
    if [[ -e $gloo ]]; then # as a disk that is full leaves it
      mv "$gloo" "$work/whole"
      head -c 5000 "$work/whole" >"$gloo"
      "$prefix/bin/c10d-info" backends --json >"$work/cut" || fail "a truncated module"
      grep -q "libc10d_gloo.so is truncated" "$work/cut" || { cat "$work/cut"; fail "truncated"; }
      mv "$work/whole" "$gloo"
    fi
    grep -q "no libc10d_gloo.so in $lib/c10d/backends: not installed" "$work/info" ||
      { cat "$work/info"; fail "a module that is missing is not named with its folder"; }
  fi
fi

step DESTDIR
DESTDIR=$work/stage cmake --install "$build" --prefix /usr >"$work/log"
[[ -e $work/stage/usr/include/c10d/init.h ]] || fail "DESTDIR was ignored"
echo "install: ok"
