#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Shows the daemon at work: installs what is missing, builds, replays a request trace with two
# workers against a daemon of its own in a private directory, and ends with a table.
#
#   sh bench/demo.sh [TRACE]
#
# TRACE is a file in Mooncake's JSONL form; without one, conversations of several turns that share
# system prompts are generated. Nothing stays behind but build/release.
set -eu

usage() {
    cat <<'EOF'
usage: sh bench/demo.sh [TRACE]

  TRACE   a request trace in Mooncake's JSONL form; generated when not given

Environment:
  KVC_DEMO_REQUESTS   requests to replay (default 20000; with a TRACE: all of it)
  KVC_DEMO_CAPACITY   host memory, as --capacity of kvcachebench replay (default 10%)
  KVC_DEMO_BLOCK      bytes of a block (default 64KiB)
  KVC_JOBS            parallel compilations (default: one per CPU)
EOF
}

case ${1-} in
-h | --help)
    usage
    exit 0
    ;;
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
if [ $# -eq 1 ]; then
    if [ ! -r "$1" ]; then
        echo "demo.sh: cannot read the trace '$1'; leave it away and one is generated" >&2
        exit 2
    fi
    trace=$(cd "$(dirname -- "$1")" && pwd)/$(basename -- "$1")
fi

cd "$(dirname -- "$0")/.."
jobs=${KVC_JOBS:-$(nproc)}
capacity=${KVC_DEMO_CAPACITY:-10%}
block=${KVC_DEMO_BLOCK:-64KiB}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

echo "1/3 installing what is missing, building in build/release"
sh tests/deps.sh
if ! cmake --preset release >"$work/log" 2>&1; then
    cat "$work/log" >&2
    echo "demo.sh: the build could not be configured" >&2
    exit 1
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
