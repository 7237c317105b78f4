#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes a folder with all that ./dev gpu runs, for a machine that has a GPU and no packages.
#
# usage: pack.sh BUILD_FOLDER FOLDER
set -euo pipefail
build=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
readonly build here to=$2
readonly LIMIT=60 # MiB
readonly PROGRAMS="c10d-run c10d-info conformance cuda_kernel_tests c10d-fault-nccl
  fault_nccl_ranks same_as_real"

if [[ -n $(ls -A "$to" 2>/dev/null) && ! (-x $to/run && -x $to/bin/conformance) ]]; then
  echo "pack.sh: $to holds other files: name an empty folder, or one that an older pack made" >&2
  exit 2
fi
rm -rf "$to"
mkdir -p "$to/bin" "$to/lib/c10d/backends"
for program in $PROGRAMS; do cp "$build/bin/$program" "$to/bin/"; done
cp -P "$build"/lib/libc10d.so* "$to/lib/"
cp "$build/lib/c10d/backends/libc10d_nccl.so" "$to/lib/c10d/backends/"
# What they need of the system, but for glibc.
ldd "$to"/bin/* "$to/lib/c10d/backends/libc10d_nccl.so" |
  sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | sort -u | while read -r library; do
    case ${library##*/} in
      libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libc10d*) ;;
      *) cp -L "$library" "$to/lib/" ;;
    esac
  done
find "$to" -type f -exec strip --strip-unneeded {} +
cp "$here/run.sh" "$to/run"
cp "$here/../same_as_real/expected.tsv" "$to/"
size=$(du -sm "$to" | cut -f 1)
((size <= LIMIT)) || { echo "pack.sh: $to has $size MiB, more than $LIMIT" >&2; exit 1; }
echo "packed: $to, $size MiB; on the machine with the GPU: ./run"
