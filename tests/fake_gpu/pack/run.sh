#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What ./dev gpu runs on a machine with a GPU, out of a folder that pack.sh made. It needs a driver,
# NCCL and glibc 2.36.
#
# usage: run [RESULTS_FILE [PART...]]
#
# Each part has a time limit, and one that fails does not stop the others. The results go to
# RESULTS_FILE (gpu-results.md here), all that the parts print to the same name with .log. Exit
# status: 1 if a part failed, 2 without a GPU.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
readonly results=${1:-$here/gpu-results.md}
readonly log=${results%.md}.log
readonly wanted=" ${*:2} "
readonly LIMIT=470 # seconds for all of it
PARTS="gpus kernels conformance_1 conformance_2 conformance_4 conformance_mps"
PARTS+=" conformance_multi_rank conformance_gpus faults same_as_real"
readonly PARTS
for name in $wanted; do
  if [[ " $PARTS " != *" $name "* ]]; then
    echo "run: there is no part $name; there are $PARTS" >&2
    exit 2
  fi
done
# shellcheck disable=SC2016 # of Markdown
readonly FENCE='```'
export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

readonly cuda=${C10D_CUDA_LIBRARY:-libcuda.so.1}
nccl=${C10D_NCCL_LIBRARY:-libnccl.so.2}
if [[ $nccl == libnccl.so.2 ]] && ! ldconfig -p 2>/dev/null | grep -q "$nccl"; then
  for place in /usr/local/cuda/lib64/libnccl.so.2 /usr/local/cuda/lib/libnccl.so.2; do
    if [[ -e $place ]]; then
      nccl=$place
      break
    fi
  done
fi

if ! why=$(timeout 60 "$here/bin/same_as_real" --cuda "$cuda" --only driver.init 2>&1 >/dev/null)
then
  echo "run: ${why:-no GPU}" >&2
  exit 2
fi
facts=$(timeout 30 "$here/bin/c10d-info" | grep -E '^(c10d|host|GPUs|nccl) ')
work=$(mktemp -d)
mps=no # whether a daemon of MPS runs
end_mps() {
  if [[ $mps == yes ]]; then timeout 20 nvidia-cuda-mps-control <<<quit >/dev/null; fi
  mps=no
}
trap 'end_mps; rm -rf "$work"' EXIT
: >"$log"
rows=() tails=() failed=0

# part NAME SECONDS COMMAND...
part() {
  local name=$1 limit=$2 start=$SECONDS left=$((LIMIT - SECONDS)) status verdict
  shift 2
  if [[ $wanted != "  " && $wanted != *" $name "* ]]; then return; fi
  printf '== %s: ' "$name"
  if ((left < 5)); then
    verdict="NOT RUN: $LIMIT s are over" failed=1
  else
    if ((limit > left)); then limit=$left; fi
    timeout -k 5 "$limit" "$@" >"$work/log" 2>&1 </dev/null
    status=$?
    case $status in
      0)
        verdict=passed
        # A program that cannot begin skips all.
        if grep -q '\[  PASSED  \] 0 tests' "$work/log"; then
          verdict="FAILED: all was skipped" failed=1
        fi
        ;;
      124 | 137) verdict="FAILED: it takes more than $limit s" failed=1 ;;
      *) verdict="FAILED: status $status" failed=1 ;;
    esac
    { printf '\n== %s: %s\n' "$name" "$*"; cat "$work/log"; } >>"$log"
    tails+=("### $name" "" "$FENCE" "$(said "$status")" "$FENCE" "")
  fi
  printf '%s after %d s\n' "$verdict" $((SECONDS - start))
  rows+=("| $name | $verdict | $((SECONDS - start)) |")
}

# skipped NAME WHY
skipped() {
  if [[ $wanted != "  " && $wanted != *" $1 "* ]]; then return; fi
  printf '== %s: skipped: %s\n' "$1" "$2"
  rows+=("| $1 | skipped: $2 | 0 |")
}

# What matters of what a part has printed: all that is wrong, what was assumed wrongly, the end.
said() {
  if [[ $1 != 0 ]]; then
    grep -av '^{' "$work/log" | grep -E 'Failure|FAILED|DIFFERENT|rror' | cut -c 1-300 | head -n 60
  fi
  grep -a '^NOT AS ASSUMED: ' "$work/log" | cut -c 1-300 | head -n 60
  grep -aE 'cases: |[Ss]kipped: |^unproven: ' "$work/log" | grep -av ', as assumed$' |
    cut -c 1-160 | head -n 9
  tail -n 5 "$work/log" | cut -c 1-300
}

# Ranks as processes that share GPU 0, as NCCL's test mode allows it: each has a host name of its
# own (docs/internals/gpu-facts.md).
readonly shared_gpu=(env NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1
  NCCL_MNNVL_ENABLE=0 NCCL_NVLS_ENABLE=0 NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_MAX_CTAS=2
  NCCL_ALGO=Ring NCCL_PROTO=Simple NCCL_RAS_ENABLE=0 NCCL_DEBUG=WARN CUDA_MODULE_LOADING=EAGER
  C10D_DEVICE=0)
# shellcheck disable=SC2016 # RANK is that of each rank
readonly conformance=(bash -c 'NCCL_HOSTID=c10d-$RANK exec "$@"' rank "$here/bin/conformance"
  '--gtest_filter=Processes.*' --backend=nccl)
# Those that need no script of the stand-in.
faults=NcclDeath.BeforeAnOp:NcclAbort.WhileARankIsMissing:NcclEnd.WaitsForTheOtherRanks
faults+=":NcclDeadline.OfARank*:NcclMismatch.Of*:NcclInput.Messages*:NcclOrder.*:NcclFork.*"

part gpus 30 "$here/bin/c10d-info" gpus
part kernels 60 env FAKE_GPU_DRIVER="$cuda" "$here/bin/cuda_kernel_tests" --gtest_filter=-Launch.*
part conformance_1 60 "${shared_gpu[@]}" "$here/bin/c10d-run" -n 1 "${conformance[@]}"
part conformance_2 120 "${shared_gpu[@]}" "$here/bin/c10d-run" -n 2 "${conformance[@]}" --thin=2
part faults 120 "${shared_gpu[@]}" NCCL_HOSTID=c10d "$here/bin/fault_nccl_ranks" \
  "--gtest_filter=$faults"
part conformance_4 90 "${shared_gpu[@]}" "$here/bin/c10d-run" -n 4 "${conformance[@]}" --thin=4
# The same under CUDA's MPS, with a daemon of this script: the kernels of the ranks overlap.
if ! command -v nvidia-cuda-mps-control >/dev/null; then
  skipped conformance_mps "there is no nvidia-cuda-mps-control"
elif [[ $wanted == "  " || $wanted == *" conformance_mps "* ]]; then
  export CUDA_MPS_PIPE_DIRECTORY=$work/mps CUDA_MPS_LOG_DIRECTORY=$work/mps
  mkdir "$work/mps"
  if timeout 20 nvidia-cuda-mps-control -d >>"$log" 2>&1; then
    mps=yes
    part conformance_mps 60 "${shared_gpu[@]}" "$here/bin/c10d-run" -n 2 "${conformance[@]}" \
      --thin=4
    end_mps
  else
    skipped conformance_mps "nvidia-cuda-mps-control -d does not start here"
  fi
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
fi
# By NCCL's own setting, with which ranks that share a GPU reach each other's memory.
version=$(sed -n 's/^nccl *\([0-9.]*\).*/\1/p' <<<"$facts")
if [[ $facts == *stand-in* ]]; then
  skipped conformance_multi_rank "the stand-in does not model NCCL_MULTI_RANK_GPU_ENABLE"
elif [[ $(printf '2.30.3\n%s\n' "$version" | sort -V | head -n 1) != 2.30.3 ]]; then
  skipped conformance_multi_rank "NCCL $version has no NCCL_MULTI_RANK_GPU_ENABLE, 2.30.3 has"
else
  part conformance_multi_rank 60 env NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_NVLS_ENABLE=0 \
    NCCL_SOCKET_IFNAME=lo CUDA_MODULE_LOADING=EAGER C10D_DEVICE=0 "$here/bin/c10d-run" -n 2 \
    "$here/bin/conformance" '--gtest_filter=Processes.*' --backend=nccl --thin=4
fi
# One rank on each GPU, where there are several.
gpus=$(sed -n 's/^GPUs *\([0-9]*\),.*/\1/p' <<<"$facts")
if ((gpus > 1)); then
  part conformance_gpus 90 "$here/bin/c10d-run" -n "$((gpus < 8 ? gpus : 8))" \
    "$here/bin/conformance" '--gtest_filter=Processes.*' --backend=nccl
fi
title="What a GPU did"
if [[ $facts == *stand-in* ]]; then
  title="What the stand-in for a GPU did"
  rows+=("| same_as_real | not run: it reads a GPU | 0 |")
else
  part same_as_real 240 "$here/bin/same_as_real" --cuda "$cuda" --nccl "$nccl" --jobs 3 \
    --expected "$here/expected.tsv"
fi
device=$(sed -n 's/.*Kernel Module *\([0-9.]*\).*/, kernel module \1/p' \
  /proc/driver/nvidia/version 2>/dev/null)
{
  cat <<EOF
# $title

Written by \`./dev gpu\`: [run.sh](../tests/fake_gpu/pack/run.sh) says what the parts are. But for
conformance_gpus the ranks share one GPU, so no time here is one of NCCL between GPUs.

$FENCE
date       $(date -u '+%Y-%m-%d %H:%M UTC')
command    run ${*:2}
$facts
driver     ${cuda##*/}$device
NCCL       ${nccl##*/}
$FENCE

| part | verdict | s |
|---|---|---|
EOF
  printf '%s\n' "${rows[@]}" "" "${tails[@]}"
} >"$results"
echo "results: $results"
exit "$failed"
