# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Sourced by tests that start daemons of their own, one at a time. Before: test=NAME, which errors begin
# with and the folder is named after. The folder, and a daemon that still runs, go at the end.
dir=$(mktemp -d "/tmp/kvc-${test:?}.XXXXXX")
pid=
daemon_clean() {
    [ -z "$pid" ] || kill -9 "$pid"
    rm -rf "$dir"
}
trap daemon_clean EXIT
export KVCACHE_SOCKET="$dir/run/attach.sock"

fail() {
    echo "$test: $*" >&2
    cat "$dir/log" "$dir/out" >&2 || true
    exit 1
}

# daemon_begin OPTION...: true once it serves; false when it ends instead, with an error
daemon_begin() {
    rm -f "$dir/log"
    "$KVC_BIN_DIR/kvcache-daemon" --set runtime_dir="$dir/run" "$@" >"$dir/log" 2>&1 &
    pid=$!
    for _ in $(seq 600); do
        grep -qs "ready: " "$dir/log" && return 0
        if ! kill -0 "$pid" 2>/dev/null; then
            wait "$pid" && fail "it ended with 0"
            pid=
            return 1
        fi
        sleep 0.1
    done
    fail "it is not ready"
}

# It ends when it is asked to, with 0.
daemon_end() {
    kill "$pid"
    wait "$pid" || fail "it ended with $?"
    pid=
}
