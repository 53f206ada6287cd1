#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --check-config finds what a start would refuse, in the same words, and neither of them leaves anything
# behind. What is only odd is a warning of both.
set -eu
daemon="$KVC_BIN_DIR/kvcache-daemon"
test=check
. "$KVC_SOURCE_DIR/tests/e2e/daemon.sh"
: >"$dir/out"

# check OPTION...: what it ends with; its words are in $dir/out
check() {
    status=0
    "$daemon" --check-config --set runtime_dir="$dir/run" --set host.limit=8MiB "$@" >"$dir/out" 2>&1 || status=$?
}

# says STATUS TEXT OPTION...: the check ends with that, and its words have that text
says() {
    wanted=$1
    text=$2
    shift 2
    check "$@"
    [ "$status" = "$wanted" ] || fail "--check-config $* ended with $status"
    grep -qF "$text" "$dir/out" || fail "--check-config $* does not say '$text'"
}

# both TEXT OPTION...: refused with that text, by the check and by a start
both() {
    says 2 "$@"
    shift
    daemon_begin --set host.limit=8MiB "$@" && fail "a start takes what --check-config refuses: $*"
    grep -qF "$text" "$dir/log" || fail "a start with $* does not say '$text'"
    [ ! -e "$dir/run" ] || fail "a start with $* left its runtime_dir behind"
}

mkdir "$dir/s" "$dir/p" "$dir/open" "$dir/other"
chmod 0777 "$dir/open"
check
[ "$status" = 0 ] || fail "the built-in configuration is refused"

# The folder of this test is on a disk, unless /tmp is not.
case $(stat -f -c %T "$dir") in
tmpfs) ;;
*) both "it must be on tmpfs or hugetlbfs" --set host.persist="$dir/p" ;;
esac
both "nvme.limit: expected nvme.paths with it" --set nvme.limit=1GiB
both "nvme.segment: expected a multiple of 4KiB" --set nvme.paths="$dir/s" --set nvme.segment=2MB
both "nvme.limit: expected for each of the 2 paths" --set nvme.paths="$dir/s,$dir/other" \
    --set nvme.limit=8MiB --set nvme.segment=1MiB
both "hbm.emu_bandwidth: expected 0 or at least 16MiB" --set hbm.devices=emu:0=8MiB \
    --set hbm.emu_bandwidth=1
free=$(($(stat -f -c '%a * %S' "$dir/s")))
both "more are wanted" --set nvme.paths="$dir/s" --set nvme.limit=$((free + 1073741824)) \
    --set index.blocks=4096 --set memory.budget=auto
[ -z "$(ls "$dir/s")" ] || fail "a store that does not fit left something behind"

cat >"$dir/quotas.yaml" <<EOF
principals:
  - {name: vllm, uids: [$(id -u)], tenant: chat}
quotas:
  - {tenant: chta, host: 4MiB}
EOF
both "quotas.yaml:4: quotas: expected a tenant that a principal has, got 'chta'; did you mean 'chat'?" \
    --config "$dir/quotas.yaml"

# Whatever this machine has of them: the check and the start agree.
check --set host.huge_pages=require
if daemon_begin --set host.limit=8MiB --set host.huge_pages=require; then
    daemon_end
    [ "$status" = 0 ] || fail "a start takes the huge pages that --check-config does not find"
else
    [ "$status" = 2 ] || fail "--check-config finds huge pages, and a start does not"
    grep -q "host.huge_pages: require: [0-9]* pages of 2 MiB are needed, and the kernel has [0-9]*" "$dir/log" ||
        fail "nothing is said of huge pages"
fi

# Memory that is kept on tmpfs has no pages of hugetlbfs.
if [ "$(stat -f -c %T /dev/shm)" = tmpfs ]; then
    kept=$(mktemp -d /dev/shm/kvc-check-XXXXXX)
    both "is on tmpfs, which has none of the huge pages" --set host.huge_pages=require --set host.persist="$kept"
    [ -z "$(ls "$kept")" ] || fail "a start that is refused left something in host.persist"
    rmdir "$kept"
else
    echo "SKIP: /dev/shm is no tmpfs here"
fi

# Fewer descriptors than the sessions of the configuration may take.
(
    ulimit -n 256 # both limits
    both "descriptors may be needed and the hard limit is 256 (RLIMIT_NOFILE)" --set limits.sessions=1000
) || exit 1
check --set limits.sessions=1000
[ "$status" = 0 ] || fail "a thousand sessions are refused here"

# Files that are smaller than what is to be made: in blocks of 512 bytes, as POSIX has it for sh.
limited() {
    (
        ulimit -f "$1"
        shift
        both "$@"
    ) || exit 1
}
limited 8192 "staging.session_max: a file of" --set staging.session_max=8MiB
limited 65536 "nvme.limit: a file of 128.00 MiB is needed, and this process may make files of 32.00 MiB at most" \
    --set staging.session_max=8MiB --set nvme.paths="$dir/s" --set nvme.limit=128MiB
[ -z "$(ls "$dir/s")" ] || fail "a store that may not be made left something behind"

# What others may replace is warned of.
says 0 "runtime_dir: every user may write to $dir/open (mode 0777)" --set runtime_dir="$dir/open"
says 0 "runtime_dir: every user may write to $dir/open" --set runtime_dir="$dir/open/run"
says 0 "nvme.paths: every user may write to $dir/open" --set nvme.paths="$dir/open" --set nvme.limit=64MiB
chmod 1777 "$dir/open"
check --set runtime_dir="$dir/open/run"
! grep -q "every user" "$dir/out" || fail "a directory with the sticky bit is warned of"
if [ "$(id -u)" = 0 ]; then
    chown 65534 "$dir/other"
    says 0 "runtime_dir: $dir/other belongs to uid 65534, and the daemon is uid 0" --set runtime_dir="$dir/other"
fi
daemon_begin --set host.limit=8MiB --set nvme.paths="$dir/s" --set nvme.limit=64MiB || fail "it does not start"

# A limit that comes later is an error of the file, and no death.
kill -XFSZ "$pid"
daemon_end
