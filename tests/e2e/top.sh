#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Screens of `kvcachectl top` on terminals of three sizes (top.py): cut to them, with what says most.
set -eu
dir=$(mktemp -d /tmp/kvc-top.XXXXXX)
pid=
trap '[ -z "$pid" ] || kill -9 "$pid"; rm -rf "$dir"' EXIT
export KVCACHE_SOCKET="$dir/attach.sock"

fail() {
    echo "top: $*" >&2
    cat "$dir/log" >&2 || true
    exit 1
}

"$KVC_BIN_DIR/kvcache-daemon" --set runtime_dir="$dir" --set host.limit=8MiB --set nvme.limit=16MiB \
    --set nvme.paths="$dir" >"$dir/log" 2>&1 &
pid=$!
for _ in $(seq 600); do
    grep -q "ready: " "$dir/log" && break
    kill -0 "$pid" 2>/dev/null || fail "it ended"
    sleep 0.1
done
"$KVC_BIN_DIR/example_document" store manual >"$dir/out" 2>&1 || fail "$(cat "$dir/out")"
"$KVC_BIN_DIR/kvcachectl" ns >"$dir/ns" || fail "no namespaces"
python3 "$KVC_SOURCE_DIR/tests/e2e/top.py" "$KVC_BIN_DIR/kvcachectl" full || fail "see above"
# Once nothing of it is left, its namespace is shown no more.
"$KVC_BIN_DIR/kvcachectl" doc forget manual --evict >"$dir/out" 2>&1 || fail "$(cat "$dir/out")"
"$KVC_BIN_DIR/kvcachectl" ns | grep -q example || fail "the namespace is gone"
python3 "$KVC_SOURCE_DIR/tests/e2e/top.py" "$KVC_BIN_DIR/kvcachectl" empty || fail "see above"
kill "$pid"
wait "$pid" || fail "it ended with $?"
pid=
