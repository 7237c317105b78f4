#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# clean_root.sh FOLDER: installs the Debian packages of FOLDER into a new Debian, uses them there
# as a user who is not root, and removes them. It needs root, mmdebstrap and Debian's archive.
set -euo pipefail
folder=$1
here=$(cd "$(dirname "$0")" && pwd)
skip() { echo "skipped: clean root: $*"; exit; }
fail() { echo "FAILED: $*" >&2; exit 1; }
[[ $(id -u) == 0 ]] || skip "only root can enter one"
command -v mmdebstrap >/dev/null || skip "there is no mmdebstrap"
# shellcheck source=/dev/null
suite=$(. /etc/os-release && [[ $ID == debian ]] && echo "$VERSION_CODENAME") ||
  skip "the packages are those of a Debian, and this is none"
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root

echo "-- a new Debian"
mmdebstrap --quiet --variant=apt --include=g++,cmake,make,pkg-config "$suite" "$root" \
  >"$work/log" 2>&1 || { tail -n 20 "$work/log"; skip "mmdebstrap cannot make one"; }
cp /etc/resolv.conf "$root/etc/resolv.conf"
mkdir "$root/packages"
cp "$folder"/*.deb "$root/packages"
cp "$here/consumer/consumer.cpp" "$root/packages"
cp "$here/in_clean_root.sh" "$root/packages"
# Its mounts and processes end with it.
unshare --mount --pid --fork --kill-child --ipc bash -c "
  mount -t proc proc '$root/proc'
  mount -t sysfs -o ro sysfs '$root/sys'
  mount -t tmpfs -o mode=1777 tmpfs '$root/dev/shm'
  exec chroot '$root' bash /packages/in_clean_root.sh" || fail "see above"
