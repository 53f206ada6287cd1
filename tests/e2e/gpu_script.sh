#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/gpu.sh itself, on the fake CUDA driver, with stand-ins for the vendor's tools: what it runs,
# what it says of tools that are missing or fail, and that memory that is left is a failure.
set -eu
script="$KVC_SOURCE_DIR/bench/gpu.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Everything but the vendor's tools, wherever they may be.
mkdir "$work/usual" "$work/tools"
for dir in /usr/local/bin /usr/bin /bin; do
    ln -sf "$dir"/* "$work/usual/"
done
rm -f "$work/usual"/nvidia-* "$work/usual/compute-sanitizer"
export PATH="$work/tools:$work/usual" FAKE_CUDA_DELAY_US=20

fail() {
    echo "gpu_script: $*" >&2
    cat "$work/out" >&2
    exit 1
}

# tool NAME LINE...: a stand-in that notes its arguments and runs these lines
tool() {
    name=$1
    shift
    printf '%s\n' '#!/bin/sh' "echo \"$name \$*\" >>'$work/calls'" "$@" >"$work/tools/$name"
    chmod +x "$work/tools/$name"
}

says() {
    grep -q -- "$1" "$work/out" || fail "it does not say '$1'"
}

# go CODE [BIN]: the script ends with that
go() {
    : >"$work/calls"
    code=0
    LD_LIBRARY_PATH="$FAKE_CUDA" sh "$script" --quick "${2:-$KVC_BIN_DIR}" cuda:0 >"$work/out" 2>&1 || code=$?
    [ "$code" = "$1" ] || fail "it ended with $code"
}

go 2
says "no nvidia-smi: this machine has no NVIDIA driver"

# It is about the script: the tests, which the suite runs by themselves, are stand-ins.
mkdir "$work/bin"
ln -s "$KVC_BIN_DIR"/* "$work/bin/"
for test in test_gpu test_gpu_device test_attend_device test_gpu_worker; do
    rm "$work/bin/$test"
    printf '%s\n' '#!/bin/sh' "echo $test >>'$work/calls'" >"$work/bin/$test"
    chmod +x "$work/bin/$test"
done

# The fake driver knows no attention, and a worker's pages are other tests'.
rm "$work/bin/kvcachebench"
printf '%s\n' '#!/bin/sh' "case \$1 in attention | pages) echo \"bench \$*\" >>'$work/calls' ;; *)" \
    "exec '$KVC_BIN_DIR/kvcachebench' \"\$@\" ;; esac" >"$work/bin/kvcachebench"
chmod +x "$work/bin/kvcachebench"

# Another 100 MiB each time that it is asked.
tool nvidia-smi "case \$* in *memory.used*) echo 9 >>'$work/asked'; wc -c <'$work/asked' | awk '{ print \$1 * 50 }' ;; esac"
tool nvidia-cuda-mps-control "echo no licence; exit 1"
go 1 "$work/bin"
says "FAILED: memory is left"
for test in test_gpu test_gpu_device test_attend_device test_gpu_worker; do
    grep -qx "$test" "$work/calls" || fail "$test was not run"
done
grep -q '^bench attention --device cuda:0' "$work/calls" || fail "attention was not measured"
grep -q '^bench pages --device cuda:0' "$work/calls" || fail "pages were not measured"
says "SKIP: with MPS: nvidia-cuda-mps-control did not start: no licence"
says "SKIP: compute-sanitizer is not here"

tool nvidia-smi "case \$* in *memory.used*) echo 500 ;; *) echo 'a fake' ;; esac"
tool nvidia-cuda-mps-control "[ \"\$*\" = -d ] || cat >>'$work/calls'"
tool compute-sanitizer "while [ \"\${1#-}\" != \"\$1\" ]; do shift 2; done" \
    'exec "$@"'
go 0 "$work/bin"
says "beside loads"
says "CUDA_MPS_PIPE_DIRECTORY="
grep -q '^quit$' "$work/calls" || fail "MPS was not stopped"
says "2 daemons and 2 workers killed"
[ "$(grep -c '^compute-sanitizer' "$work/calls")" = 3 ] || fail "the sanitizer ran another number of programs"
echo "all is said"
