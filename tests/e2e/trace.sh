#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A trace is replayed against a daemon that records, what it recorded is dumped, and the dump is
# replayed: the same requests, the same blocks up to their numbers, the same hit ratio.
set -eu
bin="$KVC_BIN_DIR"
dir=$(mktemp -d /tmp/kvc-trace-XXXXXX)
KVCACHE_SOCKET="$dir/attach.sock"
export KVCACHE_SOCKET
pid=
finish() {
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    [ -z "$pid" ] || wait "$pid" 2>/dev/null || true
    rm -rf "$dir"
}
trap finish EXIT INT TERM

fail() {
    echo "trace: $*" >&2
    [ ! -s "$dir/log" ] || tail -5 "$dir/log" >&2
    exit 1
}

# expect CODE COMMAND...: runs kvcachectl
expect() {
    want=$1
    shift
    got=0
    "$bin/kvcachectl" "$@" >"$dir/said" 2>&1 || got=$?
    [ "$got" = "$want" ] || fail "kvcachectl $* exited with $got, not $want: $(cat "$dir/said")"
}

# blocks FILE: the requests that ask for blocks, ids by order of appearance
blocks() {
    sed -n 's/.*"hash_ids": *\[\([^]]*[0-9][^]]*\)\].*/\1/p' "$1" | awk -F', *' '{
        line = ""
        for (i = 1; i <= NF; i++) {
            if (!($i in small)) small[$i] = n++
            line = line " " small[$i]
        }
        print line
    }'
}

hit_ratio() {
    sed -n 's/.*"metric":"hit_ratio","value":\([^,}]*\).*/\1/p' "$1"
}

"$bin/kvcache-daemon" --set runtime_dir="$dir" --set host.limit=4MiB --set host.chunk=4MiB \
    --set staging.total=64MiB --set staging.session_max=64MiB --set policy.eviction=lru \
    2>"$dir/log" &
pid=$!
tries=0
until "$bin/kvcachectl" ping >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 600 ] || fail "the daemon does not answer"
    kill -0 "$pid" || fail "the daemon did not start"
    sleep 0.1
done

# kept WHAT: the file that a dump was to go to is what it was, and nothing lies beside it
kept() {
    [ "$(cat "$dir/keep/old")" = precious ] || fail "$1: the file is gone or changed"
    [ "$(find "$dir/keep" | wc -l)" = 2 ] || fail "$1: left $(ls -a "$dir/keep")"
}

expect 1 blocks --ns 5
grep -q "blocks: there is no namespace 5" "$dir/said" || fail "blocks --ns 5: $(cat "$dir/said")"
mkdir "$dir/keep"
echo precious >"$dir/keep/old"
expect 3 --socket "$dir/nobody" trace dump "$dir/keep/old"
kept "no daemon"
expect 1 trace status
expect 1 trace dump
expect 1 trace dump "$dir/keep/old"
kept "no trace"
expect 0 trace on --bytes 4MiB
expect 1 trace dump "$dir/keep/old"
kept "an empty trace"
expect 1 trace dump --ns 5
grep -q "namespace 5" "$dir/said" || fail "--ns 5: $(cat "$dir/said")"
expect 5 trace on
"$bin/kvcachebench" gen --requests 400 --seed 5 >"$dir/first.jsonl"
"$bin/kvcachebench" replay "$dir/first.jsonl" --socket "$KVCACHE_SOCKET" --workers 1 \
    --block-bytes 4KiB --json >"$dir/first.out"
expect 0 trace status
expect 0 trace dump "$dir/dump.jsonl"
(
    trap '' XFSZ # a write beyond the limit fails instead
    ulimit -f 1
    expect 5 trace dump "$dir/keep/old"
)
kept "a write that fails"
grep -q "File too large" "$dir/said" || fail "a write that fails: $(cat "$dir/said")"
expect 5 trace dump "$dir/keep"
mkfifo "$dir/fifo"
cat "$dir/fifo" >"$dir/from-fifo" &
expect 0 trace dump "$dir/fifo"
wait $!
[ -p "$dir/fifo" ] || fail "the FIFO is gone"
cmp "$dir/dump.jsonl" "$dir/from-fifo" || fail "through a FIFO it differs"
for name in /dev/stdout /dev/fd/1; do # a pipe
    "$bin/kvcachectl" trace dump "$name" 2>"$dir/said" | cat >"$dir/from-pipe"
    cmp "$dir/dump.jsonl" "$dir/from-pipe" || fail "through $name it differs: $(cat "$dir/said")"
done
expect 0 trace dump /dev/null
chmod 640 "$dir/keep/old"
ln -s keep/old "$dir/link"
expect 0 trace dump "$dir/link"
[ -L "$dir/link" ] || fail "the symlink is gone"
cmp "$dir/dump.jsonl" "$dir/keep/old" || fail "through a symlink it differs"
[ "$(stat -c %a "$dir/keep/old")" = 640 ] || fail "the file has other rights now"
ln -s nothing "$dir/astray"
expect 5 trace dump "$dir/astray"
[ -L "$dir/astray" ] || fail "the symlink to nothing is gone"
for command in "trace dump" "stats --json" "stats" "ns --json" "--help"; do
    got=0
    # shellcheck disable=SC2086 # a command and its arguments
    "$bin/kvcachectl" $command >/dev/full 2>"$dir/said" || got=$?
    [ "$got" = 5 ] || fail "$command into a full device exited with $got"
    grep -q "stdout: No space left" "$dir/said" || fail "$command: $(cat "$dir/said")"
    ! grep -q "replay" "$dir/said" || fail "$command into a full device claims success"
done
for command in "stats --json" "stats" "ns --json" "ns" "ping"; do
    got=0
    # shellcheck disable=SC2086 # a command and its arguments
    "$bin/kvcachectl" $command >&- 2>"$dir/said" || got=$?
    [ "$got" = 5 ] || fail "$command with stdout closed exited with $got"
    grep -q "stdout: Bad file descriptor" "$dir/said" || fail "$command: $(cat "$dir/said")"
done
blocks "$dir/first.jsonl" >"$dir/first.ids"
blocks "$dir/dump.jsonl" >"$dir/dump.ids"
[ "$(wc -l <"$dir/dump.ids")" -gt 100 ] || fail "only $(wc -l <"$dir/dump.ids") requests in the dump"
cmp "$dir/first.ids" "$dir/dump.ids" || fail "the dump does not ask for the same blocks"
expect 0 trace off
expect 1 trace off

expect 0 evict --all
"$bin/kvcachebench" replay "$dir/dump.jsonl" --socket "$KVCACHE_SOCKET" --workers 1 \
    --block-bytes 4KiB --json >"$dir/second.out"
awk -v a="$(hit_ratio "$dir/first.out")" -v b="$(hit_ratio "$dir/second.out")" 'BEGIN {
    printf "hit ratio %s, of the dump %s\n", a, b
    d = a - b
    exit !(a > 0.05 && d < 0.01 && d > -0.01)
}' || fail "the hit ratios differ"
