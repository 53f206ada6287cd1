#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What seeds of a simulation do, as a small file, and whether a build still does it.
set -eu

usage="usage: digests.sh [-j JOBS] [-g SEEDS] record FILE [FROM..TO PROGRAM [OPTION...]]
       digests.sh [-j JOBS] compare FILE [FROM..TO [OPTION...]]

record   runs PROGRAM (sim or nvmesim) with these options and seeds, and writes FILE. Without
         them: those that are in FILE, as it is to be when a change of behaviour is meant.
compare  runs the seeds of FILE, or those of them that are in FROM..TO, and prints the lines that
         differ: - as recorded, + as it is. OPTIONs are given to the program beside FILE's own.

-j JOBS   so many programs at a time (1)
-g SEEDS  of so many seeds there is one line (100); with 1 each seed that differs is named
The programs are those of \$KVC_BIN_DIR (build/release/bin).

FILE: the program with its options, then lines 'FROM..TO DIGEST DIGEST'.
exit status: 0 done, or all the same; 1 seeds differ or failed; 2 wrong arguments"

wrong() {
    printf '%s\n' "digests: $*" "$usage" >&2
    exit 2
}

bin=${KVC_BIN_DIR:-build/release/bin}

# piece DIR FROM..TO PROGRAM [OPTION...]: the line of these seeds
if [ "${1-}" = piece ]; then
    out=$2/$3 seeds=$3 program=$bin/$4
    shift 4
    if ! "$program" "$@" --seeds "$seeds" --digests "$out" >"$out.log" 2>&1; then
        cat "$out.log" >&2
        echo "$seeds failed"
        exit 0
    fi
    for column in 2 3; do
        awk -v column=$column '{ print $1, $column }' "$out" | sha256sum | cut -c1-16
    done | paste -sd' ' | sed "s/^/$seeds /"
    exit 0
fi

jobs=1 group=100
while getopts j:g:h option; do
    case $option in
    j) jobs=$OPTARG ;;
    g) group=$OPTARG ;;
    h) echo "$usage" && exit 0 ;;
    *) wrong 'see above' ;;
    esac
done
shift $((OPTIND - 1))
[ $# -ge 2 ] || wrong 'what is to be done, and with which file?'
what=$1 file=$2
shift 2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# The lines of the pieces in $dir/pieces, by the program and options that are given.
run() {
    xargs -P "$jobs" -I{} sh "$0" piece "$dir" {} "$@" <"$dir/pieces" >"$dir/lines"
    sort -n "$dir/lines"
}

# in_range FROM..TO: of lines that begin with seeds those that are all in there
in_range() {
    awk -v from="${1%..*}" -v to="${1#*..}" '{
        split($1, seed, "[.][.]")
        if (seed[1] >= from + 0 && seed[2] <= to + 0) print
    }'
}

# covers FROM..TO: whether so many seeds are in the lines
covers() {
    awk -v from="${1%..*}" -v to="${1#*..}" '{
        split($1, seed, "[.][.]")
        n += seed[2] - seed[1] + 1
    } END { exit n != to - from + 1 }'
}

case $what in
record)
    if [ $# = 0 ]; then
        [ -r "$file" ] || wrong "$file is not there: which seeds, and which program?"
        words=$(sed -n '/^#/!{p;q;}' "$file")
        sed '/^[^0-9]/d; s/ .*//' "$file" >"$dir/pieces"
        # shellcheck disable=SC2086 # a program and its options
        set -- $words
    else
        [ $# -ge 2 ] || wrong 'record: which program?'
        seeds=$1
        shift
        awk -v from="${seeds%..*}" -v to="${seeds#*..}" -v group="$group" 'BEGIN {
            for (; from + 0 <= to + 0; from += group)
                print from + 0 ".." (from + group - 1 < to ? from + group - 1 : to + 0)
        }' >"$dir/pieces"
    fi
    run "$@" >"$dir/all"
    ! grep failed "$dir/all" >&2 || exit 1
    [ -s "$dir/all" ] || wrong 'no seeds'
    {
        echo "# Made by tests/sim/digests.sh."
        echo "$*"
        cat "$dir/all"
    } >"$file"
    ;;
compare)
    [ -r "$file" ] || wrong "$file cannot be read"
    words=$(sed -n '/^#/!{p;q;}' "$file")
    sed '/^[^0-9]/d' "$file" >"$dir/was"
    if [ $# != 0 ]; then
        mv "$dir/was" "$dir/all"
        in_range "$1" <"$dir/all" >"$dir/was"
        covers "$1" <"$dir/was" || wrong "the lines of $file are not those of seeds $1"
        shift
    fi
    [ -s "$dir/was" ] || wrong "$file has no seeds"
    cut -d' ' -f1 "$dir/was" >"$dir/pieces"
    # shellcheck disable=SC2086 # a program and its options
    run $words "$@" >"$dir/is"
    pieces=$(wc -l <"$dir/pieces")
    if ! diff -U0 "$dir/was" "$dir/is" >"$dir/diff"; then
        grep '^[-+][0-9]' "$dir/diff"
        echo "digests: $(grep -c '^+[0-9]' "$dir/diff") of $pieces lines of $file differ"
        exit 1
    fi
    echo "digests: all $pieces lines of $file are the same"
    ;;
*) wrong "'$what' is neither record nor compare" ;;
esac
