#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The wheel on a Debian 12 with nothing but Python: installed without network into an empty
# environment, it stores blocks into a daemon of this build, and another process there reads them.
#
# Takes debootstrap, a mirror and root. $KVC_BARE_TREE: a tree that debootstrap made before (with
# python3 and python3-venv); without it one is made here.
set -eu

skip() {
    echo "SKIP: the wheel on a bare Debian: $*"
    exit 77
}
[ "$(id -u)" -eq 0 ] || skip "chroot needs root"
unshare --mount true 2>/dev/null || skip "no mount namespaces here"

work=$(mktemp -d)
daemon=
clean() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || :
    rm -rf "$work"
    [ -z "${KVC_BARE_TREE:-}" ] || rmdir "$KVC_BARE_TREE$work" 2>/dev/null || :
}
trap clean EXIT INT TERM
tree=${KVC_BARE_TREE:-}
if [ -z "$tree" ]; then
    command -v debootstrap >/dev/null || skip "no debootstrap (apt-get install debootstrap)"
    tree=$work/tree
    debootstrap --variant=minbase --include=python3,python3-venv bookworm "$tree" >debootstrap.log 2>&1 ||
        skip "debootstrap: $(tail -n 1 debootstrap.log)"
fi

env=$KVC_SOURCE_DIR/build/python-env
PYTHON=${KVC_PYTHON:-python3} flock "$KVC_SOURCE_DIR/build/python-env.lock" \
    sh "$KVC_SOURCE_DIR/client/python/tests/venv.sh" "$env" >venv.log 2>&1 ||
    skip "no environment to build in: $(tail -n 1 venv.log)"
PYTHON=$env/bin/python sh "$KVC_SOURCE_DIR/client/python/wheel.sh" "$KVC_BIN_DIR" "$work/dist"

# The same path inside and outside: WELCOME names the control socket by it.
run=$work/run
mkdir -p "$run" "$tree$work"
"$KVC_BIN_DIR/kvcache-daemon" --set "runtime_dir=$run" --set memory.budget=1GiB --set host.limit=64MiB \
    --set host.prefault=false --set index.blocks=4096 2>daemon.log &
daemon=$!

cat >"$work/trip.py" <<'PY'
import sys
import kvcache_client as kv

store = sys.argv[1] == "store"
blocks = [bytes([i + 1]) * 4096 for i in range(4)]
with kv.Session(socket=sys.argv[2], staging_bytes=1 << 20, must_connect=True) as session:
    ns = session.namespace(model="bare", position="rope", groups=[kv.Group(16, 4096)])
    keys = ns.hash_chain(range(64))
    if store:
        assert not any(ns.store(0, None, keys, blocks)), "stored"
    else:
        with ns.acquire(keys, 64) as hold:
            into = bytearray(4 * 4096)
            hold.read_into(0, into)
        assert into == b"".join(blocks), "read what was stored"
print(sys.argv[1], "ok:", kv.__file__)
PY

# shellcheck disable=SC2016 # expanded in there
unshare --mount sh -euc '
    tree=$1 work=$2
    mount --bind "$work" "$tree$work"
    mount -t proc proc "$tree/proc"
    [ -z "$(chroot "$tree" sh -c "ls /usr/lib/*/libzmq* /usr/lib/*/libkvcache* 2>/dev/null")" ] ||
        { echo "the tree is not bare: it has libzmq or libkvcache" >&2; exit 1; }
    chroot "$tree" python3 -m venv "$work/empty"
    chroot "$tree" sh -c "$work/empty/bin/pip install --no-index $work/dist/*.whl"
    chroot "$tree" "$work/empty/bin/python" "$work/trip.py" store "$work/run/attach.sock"
    chroot "$tree" "$work/empty/bin/python" "$work/trip.py" load "$work/run/attach.sock"
' sh "$tree" "$work"
