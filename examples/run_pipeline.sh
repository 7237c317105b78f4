#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Trains a stage of the model on every rank.
#   run_pipeline.sh [RANKS [OPTION...]]    e.g. run_pipeline.sh 4 --model resnet18
set -euo pipefail
programs=${PROGRAMS:-$(dirname "${BASH_SOURCE[0]}")/../build/release/bin}
ranks=${1:-2}
exec "$programs/c10d-run" -n "$ranks" "$programs/train_pipeline" --chunks 8 "${@:2}"
