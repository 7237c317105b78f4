# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# snippet PAGE HEADING LANGUAGE: the first block of that language below that heading of docs/PAGE.
snippet() {
  awk -v heading="## $2" -v fence="\`\`\`$3" '
    $0 == heading { there = 1; next }
    there && $0 == fence { inside = 1; next }
    inside && /^```/ { exit }
    inside' "$(dirname "${BASH_SOURCE[0]}")/../../docs/$1"
}
