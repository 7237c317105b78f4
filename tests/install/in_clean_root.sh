#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What clean_root.sh runs in the new Debian, as root.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 HOME=/tmp
log=/packages/log
quietly() { "$@" >"$log" 2>&1 </dev/null || { cat "$log"; echo "FAILED: $*" >&2; exit 1; }; }
as_user() { setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; }
mapfile -t names < <(for file in /packages/*.deb; do dpkg-deb --field "$file" Package; done)

echo "-- install ${names[*]}"
quietly apt-get update
quietly apt-get install -y --no-install-recommends /packages/*.deb mpich openmpi-bin
dpkg -L "${names[@]}" | sort -u >/packages/paths

echo "-- backends"
as_user c10d-info backends | tee "$log"
for backend in native gloo mpi; do
  grep -q "^ *$backend  *available" "$log" || { echo "FAILED: no $backend" >&2; exit 1; }
done

echo "-- a program, by pkg-config and by CMake"
cd "$(as_user mktemp -d)"
# shellcheck disable=SC2046 # a list of words
as_user g++ -std=c++20 /packages/consumer.cpp -o consumer $(pkg-config --cflags --libs c10d)
as_user ./consumer
quietly as_user cmake -S /usr/share/doc/libc10d-dev/examples -B examples -DCMAKE_CXX_FLAGS=-O0
quietly as_user cmake --build examples --target 01_hello_all_reduce 10_ddp
as_user c10d-run -n 2 examples/01_hello_all_reduce
as_user c10d-run -n 2 examples/10_ddp | tail -n 2

echo "-- compare"
as_user c10d-bench compare -n 2 -B native,gloo,raw:gloo,mpi@openmpi,mpi@mpich all_reduce -s 1K \
  --time 0.02s --launches 1

echo "-- remove"
quietly apt-get purge -y "${names[@]}"
mapfile -t left < <(
  while read -r path; do
    if [[ -e $path && ! -d $path ]]; then echo "$path"; fi
  done </packages/paths
  find / -xdev -path /packages -prune -o -path /tmp -prune -o -name '*c10d*' -print
)
if [[ ${#left[@]} != 0 ]]; then
  printf 'FAILED: left behind: %s\n' "${left[@]}" >&2
  exit 1
fi
echo "clean root: ok"
