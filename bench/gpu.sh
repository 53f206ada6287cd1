#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What is measured and tested on a real device, in one go of less than ten minutes.
#
#   [GPU_SECONDS=570] bench/gpu.sh [--quick] [BIN] [DEVICE]
#
# BIN: the directory of the built programs (build/release/bin); they may come from another machine,
# with the libraries that they need beside them. DEVICE: cuda:0 by default. Prints each command and
# what it says, and ends with 1 when one of them failed, or when what was killed left memory behind.
# What the machine cannot do, or what there is no time for, is one line that begins with SKIP.
# --quick: a try of the script itself; its figures mean nothing.
set -u

quick=
rounds=20
pairs=3
if [ "${1-}" = --quick ]; then
    quick="--bytes 128MiB --seconds 0.05 --pairs 1"
    rounds=2
    pairs=1
    shift
fi
bin=${1:-build/release/bin}
device=${2:-cuda:0}
failed=0
until=$(($(date +%s) + ${GPU_SECONDS:-570}))
work=$(mktemp -d)
mps=

# The control daemon of our own pipe directory, and no other.
mps_stop() {
    # shellcheck disable=SC2086 # a command
    [ -z "$mps" ] || echo quit | timeout 20 $mps nvidia-cuda-mps-control >/dev/null 2>&1 ||
        echo "the MPS control daemon did not answer 'quit'; it is the one of $work/pipe" >&2
    mps=
}
trap 'mps_stop; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP

# run SECONDS COMMAND...: at most so long, and not beyond the ten minutes
run() {
    limit=$1
    shift
    left=$((until - $(date +%s)))
    [ "$limit" -le "$left" ] || limit=$left
    if [ "$limit" -lt 5 ]; then
        printf '\nSKIP: no time is left for: %s\n' "$*"
        failed=1
        return
    fi
    printf '\n$ %s\n' "$*"
    timeout -k 5 "$limit" "$@" || {
        echo "FAILED ($?): $*"
        failed=1
    }
}

memory() {
    nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i "${device#cuda:}" | head -n 1
}

for program in kvcachebench test_gpu test_gpu_device test_attend_device test_gpu_worker test_kill_gpu kvcache-daemon; do
    [ -x "$bin/$program" ] || {
        echo "gpu.sh: no $program in $bin: build with CUDA first (cmake --preset release)" >&2
        exit 2
    }
done
command -v nvidia-smi >/dev/null || {
    echo "gpu.sh: no nvidia-smi: this machine has no NVIDIA driver" >&2
    exit 2
}
export KVC_BIN_DIR="$bin" KVC_TEST_GPU="$device" KVC_TEST_DEVICE="$device" KVC_ROUNDS=$rounds

date -u
nvidia-smi --query-gpu=name,uuid,driver_version --format=csv,noheader

# Fragments by one plain copy, of eight sizes; what loads cost who decodes.
# shellcheck disable=SC2086 # a list of options
run 150 "$bin/kvcachebench" gpu --device "$device" ${quick:---seconds 0.3}
decode="$bin/kvcachebench gpu --device $device --decode $quick${quick:+ --kv-bytes 4MiB}"
# shellcheck disable=SC2086 # a command
run 90 $decode
if ! command -v nvidia-cuda-mps-control >/dev/null; then
    printf '\nSKIP: with MPS: no nvidia-cuda-mps-control here\n'
else
    mkdir "$work/pipe" "$work/log"
    mps="env CUDA_MPS_PIPE_DIRECTORY=$work/pipe CUDA_MPS_LOG_DIRECTORY=$work/log"
    # shellcheck disable=SC2086 # a command
    if timeout 20 $mps nvidia-cuda-mps-control -d >"$work/said" 2>&1; then
        run 90 $mps $decode
        mps_stop
    else
        printf '\nSKIP: with MPS: nvidia-cuda-mps-control did not start: %s\n' "$(cat "$work/said")"
        mps=
    fi
fi

# Attention, whose bits are the CPU's, beside a kernel that only reads; pages of a worker.
attention="$bin/kvcachebench attention --device $device"
# shellcheck disable=SC2086 # a command
{
    run 60 $attention ${quick:+--bytes 64MiB --seconds 0.05 --pairs 1}
    run 30 $attention --prefill ${quick:+--seconds 0.05 --pairs 1}
    run 60 "$bin/kvcachebench" pages --device "$device" --seconds 0.3 --pairs $pairs \
        ${quick:+--bytes 128MiB}
}

# Right at all, and after kills.
run 60 "$bin/test_gpu"
run 60 "$bin/test_gpu_device"
run 60 "$bin/test_attend_device"
run 240 "$bin/test_gpu_worker"
before=$(memory)
run 120 "$bin/test_kill_gpu"
sleep 2
after=$(memory)
echo "$rounds daemons and $rounds workers killed while they load: $before MiB in use before, $after MiB after"
[ "$after" -le $((before + 16)) ] || {
    echo "FAILED: memory is left"
    failed=1
}

# Without the test that provokes an illegal access; refusals of the driver, which others provoke, are
# no findings. Check forks each test before it uses the device.
if command -v compute-sanitizer >/dev/null; then
    check="compute-sanitizer --error-exitcode 9 --report-api-errors no --target-processes all"
    # shellcheck disable=SC2086 # a command
    {
        run 100 env CK_RUN_CASE="one process" $check "$bin/test_gpu_device"
        run 150 $check "$bin/test_gpu"
        run 60 $check "$bin/kvcachebench" gpu --device "$device" --decode --bytes 128MiB --kv-bytes 4MiB \
            --block-bytes 16KiB --seconds 0.05 --pairs 1
    }
else
    printf '\nSKIP: compute-sanitizer is not here\n'
fi
exit "$failed"
