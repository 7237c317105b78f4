#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Trains a model that is sharded over the ranks.
#   run_fsdp.sh [RANKS [OPTION...]]    e.g. run_fsdp.sh 4 --model resnet18
set -euo pipefail
programs=${PROGRAMS:-$(dirname "${BASH_SOURCE[0]}")/../build/release/bin}
ranks=${1:-2}
exec "$programs/c10d-run" -n "$ranks" "$programs/train_fsdp" "${@:2}"
