#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# packages.sh BUILD MODULES: makes the Debian packages of BUILD and looks into them. What
# clean_root.sh does with them takes longer: ./dev packages runs it.
set -euo pipefail
build=$1 modules=${2//,/ }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
for tool in cpack dpkg-shlibdeps dpkg-deb file; do
  command -v "$tool" >/dev/null || { echo "skipped: install.packages: there is no $tool"; exit; }
done

cpack --config "$build/CPackConfig.cmake" -B "$work" -D CPACK_STRIP_FILES=OFF \
  -D CPACK_PACKAGE_CONTACT="Test <test@c10d.example>" >"$work/log" 2>&1 ||
  { cat "$work/log"; fail cpack; }
package() { # package NAME: its file, and its fields and paths in $work/NAME and $work/NAME.paths
  local found=("$work/$1"_*.deb)
  [[ -e ${found[0]} ]] || fail "there is no package $1"
  dpkg-deb --field "${found[0]}" >"$work/$1"
  dpkg-deb --fsys-tarfile "${found[0]}" | tar -t | sed -n 's|^\./\(.*[^/]\)$|\1|p' >"$work/$1.paths"
}
holds() { # holds NAME PATTERN...: each of the patterns is in its fields or paths
  local pattern
  for pattern in "${@:2}"; do
    grep -qE -- "$pattern" "$work/$1" "$work/$1.paths" ||
      { cat "$work/$1" "$work/$1.paths"; fail "the package $1 lacks $pattern"; }
  done
}

soname=$(readelf -d "$build/lib/libc10d.so" | sed -n 's/.*SONAME.*libc10d.so.\([0-9.]*\).*/\1/p')
library=libc10d$soname
own="Depends:.*$library \(= [0-9.]+-1\)"
names=("$library" libc10d-dev)
package "$library"
holds "$library" "/libc10d\.so\.$soname$" "/libc10d_parallel\.so\.$soname$" "Depends:.*libfmt" \
  "Depends:.*libuv1" "Depends:.*libhwloc15" "Depends:.*libssl"
package libc10d-dev
holds libc10d-dev "$own" '/libc10d\.so$' include/c10d/init.h cmake/c10d/c10dConfig.cmake \
  pkgconfig/c10d_parallel.pc /examples/CMakeLists.txt /docs/api.md
if [[ -x $build/bin/c10d-run ]]; then
  names+=(c10d-tools)
  package c10d-tools
  for program in c10d-run c10d-bench c10d-info c10d-checkpoint; do
    holds c10d-tools "$own" "^usr/bin/$program$" "man1/$program.1.gz" "completions/$program$"
  done
fi
for module in $modules; do
  if [[ $module == raw_* ]]; then continue; fi
  name=libc10d-${module#mpi_}
  names+=("$name")
  package "$name"
  holds "$name" "$own" "c10d/backends/libc10d_$module\.so$"
done
for name in "${names[@]}"; do
  holds "$name" "doc/$name/copyright$" "doc/$name/changelog.Debian.gz$" "^Maintainer: Test" \
    "^Description: [^.]{10,70}$" '^Section: '
  [[ $(wc -l <"$work/$name") -gt 8 ]] || fail "$name is not described"
done
[[ $(find "$work" -maxdepth 1 -name '*.deb' | wc -l) == "${#names[@]}" ]] ||
  fail "there are more packages than ${names[*]}"

# Every file that is installed is in one package.
DESTDIR=$work/stage cmake --install "$build" --prefix /usr >"$work/log"
find "$work/stage" ! -type d -printf '%P\n' | grep -v '/LICENSE$' |
  sed 's|\(/man1/.*\)|\1.gz|' | sort >"$work/installed"
grep -hvE '/doc/[^/]*/(copyright|changelog.Debian.gz)$|/lintian/' "$work"/*.paths |
  sort >"$work/packed"
# An empty folder of documents is neither.
diff "$work/installed" <(while read -r path; do
  if [[ ! -d $work/stage/$path ]]; then echo "$path"; fi
done <"$work/packed") || fail "the packages differ from what is installed"
echo "packages: ${names[*]}"
