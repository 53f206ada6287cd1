#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Screens of `kvcachectl top` on terminals of three sizes (top.py): cut to them, with what says most.
set -eu
test=top
. "$KVC_SOURCE_DIR/tests/e2e/daemon.sh"

daemon_begin --set host.limit=8MiB --set nvme.limit=16MiB \
    --set nvme.paths="$dir" || fail "it does not start"
"$KVC_BIN_DIR/example_document" store manual >"$dir/out" 2>&1 || fail "$(cat "$dir/out")"
"$KVC_BIN_DIR/kvcachectl" ns >"$dir/ns" || fail "no namespaces"
python3 "$KVC_SOURCE_DIR/tests/e2e/top.py" "$KVC_BIN_DIR/kvcachectl" full || fail "see above"
# Once nothing of it is left, its namespace is shown no more.
"$KVC_BIN_DIR/kvcachectl" doc forget manual --evict >"$dir/out" 2>&1 || fail "$(cat "$dir/out")"
"$KVC_BIN_DIR/kvcachectl" ns | grep -q example || fail "the namespace is gone"
python3 "$KVC_SOURCE_DIR/tests/e2e/top.py" "$KVC_BIN_DIR/kvcachectl" empty || fail "see above"
daemon_end
