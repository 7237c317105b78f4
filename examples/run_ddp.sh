#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Trains a replica of the model on every rank.
#   run_ddp.sh [RANKS [OPTION...]]    e.g. run_ddp.sh 4 --model resnet18
set -euo pipefail
programs=${PROGRAMS:-$(dirname "${BASH_SOURCE[0]}")/../build/release/bin}
ranks=${1:-2}
exec "$programs/c10d-run" -n "$ranks" "$programs/train_ddp" "${@:2}"
