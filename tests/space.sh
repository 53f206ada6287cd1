#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fails where a disk has no room for a run of builds and tests, before the run. On a full disk a run fails
# far from the cause: ninja goes round in circles, and daemons refuse their nvme.limit.
#
#   space.sh PART...   exit status 1, with what is missing and where, when the free space does not do; 2 when
#                      the space cannot be told, or a word or a variable is wrong
#   space.sh --list    each part, its directory, and the MiB that this has after .ci/run, rounded up
#
# Parts: release, asan, tsan, clang: a build, of which counts what it lacks. python, engines: environments
# that tests make, counted likewise. tests, quick: the most that all tests, or those of run.sh --quick, have
# in /tmp, $TMPDIR and build/ at a time; they remove that again. DIR=MIB: so much more in DIR.
set -eu
cd "$(dirname -- "$0")/.."

# why: the question has no answer, which is not "there is room".
refuse() {
    echo "space.sh: $*" >&2
    exit 2
}

list() {
    cat <<EOF
release build/release 700
asan build/asan 1200
tsan build/tsan 250
clang build/clang 600
python build/python-env 300
engines ${KVC_ENGINES:-build/engines} 7000
EOF
}

# MiB of temporary files, MiB of build/ -> lines "MIB DIR". Some tests write in /tmp, others in $TMPDIR.
passing() {
    [ -d "${TMPDIR:-/tmp}" ] ||
        refuse "TMPDIR is '$TMPDIR', which is no directory; make it, or unset TMPDIR to have /tmp"
    echo "$1 /tmp"
    [ "${TMPDIR:-/tmp}" = /tmp ] || echo "$1 $TMPDIR"
    echo "$2 build"
}

# part -> lines "MIB DIR": so much is added there
missing() {
    case $1 in
    tests) passing 3000 1300 ;;
    quick) passing 500 100 ;;
    *=*)
        case ${1##*=} in
        '' | *[!0-9]*) refuse "'$1' is not DIR=MIB: '${1##*=}' is no number" ;;
        esac
        [ -n "${1%=*}" ] || refuse "'$1' is not DIR=MIB: it names no directory"
        echo "${1##*=} ${1%=*}"
        ;;
    *)
        part=$(list | PART=$1 awk '$1 == ENVIRON["PART"]')
        [ -n "$part" ] || refuse "no part '$1'; see the top of tests/space.sh"
        dir=${part#* }
        dir=${dir% *}
        # A run may be at work there: files come and go while they are counted.
        has=$({ du -sm -- "$dir" 2>/dev/null || :; } | cut -f 1)
        echo "$((${part##* } - ${has:-0})) $dir"
        ;;
    esac
}

# directory -> "MOUNT<tab>FREE": the file system that it is on, or will be. Without the device, whose name
# may have blanks.
room() {
    at=$1
    until [ -d "$at" ]; do at=$(dirname -- "$at"); done
    said=$(df -m --output=avail,target -- "$at") || refuse "df fails for $at, so its free space is unknown"
    said=$(printf '%s\n' "$said" | sed -n '2s/^ *//p')
    case ${said%% *} in
    -[0-9]*) said="0 ${said#* }" ;; # what only root may have is in use, too
    '' | *[!0-9]*) refuse "df gives no free space for $at: '$said'" ;;
    esac
    printf '%s\t%s' "${said#* }" "${said%% *}"
}

newline='
'
case ${KVC_ENGINES-}${TMPDIR-}$* in
*"$newline"*) refuse "a line ends in KVC_ENGINES, TMPDIR or a part; name a directory without that" ;;
esac
[ "${1-}" != --list ] || {
    list
    exit 0
}
[ $# -gt 0 ] || refuse "no part is named; see the top of tests/space.sh"
needs=$(for part; do missing "$part"; done)
rooms=$(printf '%s\n' "$needs" | while IFS= read -r need; do
    there=$(room "${need#* }") || exit
    printf '%s\t%s\t%s\n' "$there" "${need%% *}" "${need#* }"
done)
printf '%s\n' "$rooms" | awk -F '\t' '
    $3 > 0 {
        free[$1] = $2
        sum[$1] += $3
        what[$1] = what[$1] (what[$1] == "" ? "" : ", ") $4 " " $3
    }
    END {
        for (mount in sum)
            if (sum[mount] > free[mount]) {
                printf "space.sh: the file system of %s has %.0f MiB free, and this run needs %.0f MiB: %s\n",
                    mount, free[mount], sum[mount], what[mount]
                full = 1
            }
        if (full)
            print "space.sh: delete files there, or take a larger disk: for build/ by a clone there, for " \
                "/tmp by a mount, for the environment of engines by KVC_ENGINES=DIR"
        exit full
    }' >&2
