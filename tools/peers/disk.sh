#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures kvcache-daemon with a store on disk beside RocksDB and a file per block, each within the
# same memory.
#
#   disk.sh               everything: packages, release build, about 15 minutes; table on stdout,
#                         JSON in build/peers
#   disk.sh --quick       a smoke run of what is installed: seconds, no figures to quote
#   disk.sh --no-install  install nothing; what is missing is left out and said so
#   disk.sh -- OPTION...  options for peerdisk, e.g. -- --rounds 5 --memory 2GiB --data-set 8GiB
#
# $KVC_CGROUP names a directory of cgroups in which one may be made (version 2 with the memory
# controller handed on, or version 1's memory hierarchy): the page cache then belongs to what is
# measured and is bounded with it. Without one, RocksDB reads and writes past the page cache, with
# caches of its own that --memory bounds, and a file per block keeps to that much page cache itself.
# $KVC_BIN_DIR names programs that are built already. Exit codes are peerdisk's.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
install=1
quick=
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=1 install= ;;
    --no-install) install= ;;
    --)
        shift
        break
        ;;
    --help | -h)
        sed -n '3,17s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *)
        echo "disk.sh: unknown argument '$1'; see disk.sh --help" >&2
        exit 2
        ;;
    esac
    shift
done

if [ -n "$install" ]; then
    sh "$root/tests/deps.sh" --bench
fi
if [ -n "${KVC_BIN_DIR:-}" ]; then
    bin=$KVC_BIN_DIR
else
    (cd "$root" && cmake --preset release >build/cmake.log && cmake --build build/release) >&2
    bin=$root/build/release/bin
fi
out=${KVC_OUT:-$root/build/peers}
mkdir -p "$out"

memory=1073741824
[ -z "$quick" ] || memory=16777216
previous=
for argument; do
    [ "$previous" != --memory ] || memory=$argument
    previous=$argument
done

# The cgroup, or the reason why there is none. What runs beside the blocks (the client's buffers,
# code, the measuring process) gets a quarter more.
group=
why="KVC_CGROUP is not set"
make_group() {
    [ -d "$KVC_CGROUP" ] || {
        why="$KVC_CGROUP is no directory"
        return 1
    }
    memory=$(numfmt --from=auto "${memory%B}") || {
        why="--memory $memory is no size"
        return 1
    }
    group=$KVC_CGROUP/peerdisk.$$
    mkdir "$group" 2>/dev/null || {
        why="no cgroup can be made in $KVC_CGROUP"
        group=
        return 1
    }
    limit=$((memory + memory / 4))
    for file in memory.max memory.limit_in_bytes; do
        if [ -e "$group/$file" ] && echo "$limit" >"$group/$file"; then
            return 0
        fi
    done
    rmdir "$group"
    group=
    why="$KVC_CGROUP does not hand the memory controller on"
    return 1
}
if [ -n "${KVC_CGROUP:-}" ] && make_group; then
    trap 'rmdir "$group"' EXIT
    set -- --buffered "$@"
    echo "memory: $limit bytes in $group, page cache included"
else
    echo "SKIP: memory cgroup: $why; each peer keeps to $memory bytes by itself"
fi
[ -z "$quick" ] || set -- --quick "$@"

{
    date -u '+%Y-%m-%d %H:%M UTC'
    echo "$(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)," \
        "$(awk '/^MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo)," \
        "Linux $(uname -r), load $(cut -d ' ' -f 1-3 /proc/loadavg)"
} | tee "$out/disk-machine.txt"
status=0
# shellcheck disable=SC2016 # for the inner shell, which becomes peerdisk inside the cgroup
sh -c '[ -z "$1" ] || echo $$ >"$1/cgroup.procs"; shift; exec "$@"' sh "$group" \
    "$bin/peerdisk" --disk "$out" --json --table "$@" >"$out/disk.json" || status=$?
# The form in which a test says what it left out.
sed -n 's/.*"peer":"\([^"]*\)".*"reason":"\([^"]*\)".*"not_measured".*/SKIP: \1: \2/p' \
    "$out/disk.json" | sort -u
echo "figures: $out/disk.json"
exit "$status"
