#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What is measured and tested on a real device, in one go of less than ten minutes.
#
#   bench/gpu.sh [BIN] [DEVICE]
#
# BIN: the directory of the built programs (build/release/bin); they may come from another machine,
# with the libraries that they need beside them. DEVICE: cuda:0 by default. Prints each command, and
# ends with 1 when one of them failed.
set -u

bin=${1:-build/release/bin}
device=${2:-cuda:0}
failed=0

run() {
    printf '\n$ %s\n' "$*"
    timeout 150 "$@" || {
        echo "FAILED ($?): $*"
        failed=1
    }
}

memory() {
    nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -n 1
}

for program in kvcachebench test_gpu test_gpu_device kvcache-daemon kvcachectl; do
    [ -x "$bin/$program" ] || {
        echo "gpu.sh: no $program in $bin: build with CUDA first (cmake --preset release)" >&2
        exit 2
    }
done
command -v nvidia-smi >/dev/null || {
    echo "gpu.sh: no nvidia-smi: this machine has no NVIDIA driver" >&2
    exit 2
}

date -u
nvidia-smi --query-gpu=name,uuid,driver_version --format=csv,noheader
run "$bin/kvcachebench" gpu --device "$device"
run env KVC_TEST_GPU="$device" "$bin/test_gpu"
run env KVC_TEST_GPU="$device" "$bin/test_gpu_device"
if command -v compute-sanitizer >/dev/null; then
    run env KVC_TEST_GPU="$device" CK_FORK=no compute-sanitizer --error-exitcode 9 "$bin/test_gpu"
else
    echo "SKIP: no compute-sanitizer here"
fi

# Twenty daemons that are killed: nothing of theirs stays allocated.
dir=$(mktemp -d)
before=$(memory)
for kill in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    "$bin/kvcache-daemon" --set "hbm.devices=$device=1GiB" --set host.limit=256MiB \
        --set "runtime_dir=$dir" >"$dir/log.$kill" 2>&1 &
    pid=$!
    sleep "1.$kill"
    kill -9 "$pid"
    wait "$pid" 2>/dev/null
done
sleep 2
after=$(memory)
echo "20 daemons killed: $before MiB in use before, $after MiB after"
[ "$after" -le $((before + 16)) ] || failed=1
rm -rf "$dir"
exit "$failed"
