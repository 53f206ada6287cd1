#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What stands at a path: what is not a store stays as it is, and --check-store reads one that is
# damaged to its end.
set -eu
daemon="$KVC_BIN_DIR/kvcache-daemon"
test=store
. "$KVC_SOURCE_DIR/tests/e2e/daemon.sh"

# begin PATH [KEY=VALUE]: a daemon on that path; false when it ends instead of serving
begin() {
    daemon_begin --set host.limit=8MiB --set nvme.limit=16MiB --set nvme.paths="$1" ${2:+--set "$2"}
}

end() {
    kill -"$1" "$pid"
    wait "$pid" || true
    pid=
}

# check STATUS TEXT [OPTION]: of --check-store
check() {
    status=0
    "$daemon" --check-store "$dir/s" ${3:+"$3"} >"$dir/out" 2>&1 || status=$?
    [ "$status" = "$1" ] || fail "--check-store ended with $status, not with $1"
    grep -q "$2" "$dir/out" || fail "--check-store does not say '$2'"
}

# Something else: larger than the limit, smaller, with nothing but zeroes where a store's head is.
mkdir "$dir/f" "$dir/s"
head -c 20000000 /dev/urandom >"$dir/f/large"
echo text >"$dir/f/small"
{ head -c 65536 /dev/zero && head -c 100000 /dev/urandom; } >"$dir/f/late"
for name in large small late; do
    cp "$dir/f/$name" "$dir/f/before"
    begin "$dir/f/$name" && fail "$name was taken"
    grep -q "holds something that is not a store" "$dir/log" || fail "$name: no reason is given"
    cmp "$dir/f/$name" "$dir/f/before" || fail "$name was changed"
done
: >"$dir/f/empty"
begin "$dir/f/empty" nvme.journal="$dir/j" || fail "an empty file was refused"
end TERM

begin "$dir/s" || fail "a directory was refused"
end KILL
cp -R "$dir/s" "$dir/good"
check 0 "clean: "
for bytes in 0 1 4096 8192; do
    rm -rf "$dir/s" && cp -R "$dir/good" "$dir/s"
    truncate -s "$bytes" "$dir/s/journal/env/data.mdb"
    check 1 "blocks are found by their tables"
done
check 1 '^{.*blocks are found by their tables.*}$' --json
for bytes in 8192 1000000; do
    rm -rf "$dir/s" && cp -R "$dir/good" "$dir/s"
    truncate -s "$bytes" "$dir/s/kvcache.store"
    check 1 "it was cut"
done
truncate -s 0 "$dir/s/kvcache.store"
check 2 "it is empty"
