#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Gate: an upward include does not compile, and an allowed one does.
#
#   layers.sh ROOT INCLUDES CC              check every layer of layers.txt
#   layers.sh --self-test ROOT INCLUDES CC  check that the gate rejects broken builds
#
# INCLUDES is written by CMake: one line per target, "target|dir;dir;...": the include path with
# which that target's sources are compiled. For every layer and every header of the tree a file of
# one line is compiled with exactly that path.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
self_test=
if [ "${1-}" = --self-test ]; then
    self_test=1
    shift
fi
if [ $# -ne 3 ]; then
    echo "usage: layers.sh [--self-test] ROOT INCLUDES CC" >&2
    exit 2
fi
# The compiler and INCLUDES say whole paths.
root=$(CDPATH='' cd -- "$1" && pwd)
includes=$2
cc=$3
if ! grep -q "[|;]$root/" "$includes"; then
    echo "gate_layers: $includes is of another tree: it has no directory of $root" >&2
    exit 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

# layers -> target directory allowed...
layers() {
    sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$here/layers.txt"
}

# Of each directory with a layer: "directory header", the header as an include spells it.
all_headers() {
    layers | awk '!seen[$2]++ { print $2 }' | while read -r dir; do
        if [ "$dir" = include ]; then
            (cd "$root/include" && find kvcache -name '*.h' 2>/dev/null | sort |
                sed 's/.*/include <&>/')
        else
            (cd "$root/$dir" 2>/dev/null && find . -maxdepth 1 -name '*.h' | sort |
                sed "s|^\./\(.*\)\$|$dir \"\1\"|")
        fi
    done
}

# directories -> the lines of all_headers() that are of one of them
headers_of() {
    awk -v of="$*" 'BEGIN { n = split(of, dir); while (n) wanted[dir[n--]] }
        $1 in wanted' "$work/headers"
}

# spelled headers -> does a file that includes them compile? -H lists the files it opened.
compiles() {
    printf '#include %s\n' "$@" >"$work/one.c"
    # shellcheck disable=SC2086 # a list of flags
    "$cc" -std=gnu17 -D_GNU_SOURCE= -fsyntax-only -H $path "$work/one.c" 2>"$work/errors"
}

# directory, spelled header -> was that very file what the include found? (A system header may have
# the same name: err.h.)
found_in() {
    name=$(printf '%s' "$2" | tr -d '<>"')
    grep -qxF ". $root/$1/$name" "$work/errors"
}

fail() {
    echo "gate_layers: $*" >&2
    failed=$((failed + 1))
}

# All at once; only when that fails one after the other, to say which.
check_allowed() {
    # shellcheck disable=SC2086 # a list of directories
    headers_of $allowed >"$work/allowed"
    if [ ! -s "$work/allowed" ]; then
        fail "$target: no header was found that it may include, so nothing was proved"
        return
    fi
    # shellcheck disable=SC2046 # a list of headers
    if compiles $(cut -d' ' -f2 "$work/allowed"); then
        # Opened by the file itself or, before that, by another header.
        sed 's/^\.\.* /. /' "$work/errors" | sort -u >"$work/opened"
        tr -d '<>"' <"$work/allowed" | sed "s|^\([^ ]*\) |. $root/\1/|" | sort >"$work/wanted"
        if [ -z "$(comm -13 "$work/opened" "$work/wanted")" ]; then
            accepted=$((accepted + $(wc -l <"$work/allowed")))
            return
        fi
    fi
    while read -r dir header; do
        if compiles "$header" && found_in "$dir" "$header"; then
            accepted=$((accepted + 1))
        else
            fail "$target may include $header of $dir, but that does not compile" \
                "(or finds another header of that name):"
            grep -v '^\.' "$work/errors" | sed -n 1,5p >&2
        fi
    done <"$work/allowed"
}

# "directory header" lines -> those for whose header an include finds any file at all
found_at_all() {
    awk '{ printf "#if __has_include(%s)\nfound %d\n#endif\n", $2, NR }' "$1" >"$work/all.c"
    # shellcheck disable=SC2086 # a list of flags
    "$cc" -std=gnu17 -D_GNU_SOURCE= -E -P $path "$work/all.c" >"$work/numbers"
    awk 'NR == FNR { found[$2]; next } FNR in found' "$work/numbers" "$1"
}

check_forbidden() {
    # shellcheck disable=SC2086 # lists of directories
    headers_of $(printf '%s\n' $all | grep -vxF "$(printf '%s\n' $allowed)") >"$work/forbidden"
    found_at_all "$work/forbidden" >"$work/suspects"
    refused=$((refused + $(wc -l <"$work/forbidden") - $(wc -l <"$work/suspects")))
    while read -r dir header; do
        compiles "$header" || :
        if found_in "$dir" "$header"; then
            fail "$target can include $header of $dir, which it must not"
        elif grep -qF "$root/" "$work/errors" &&
            ! grep -qE 'No such file|file not found' "$work/errors"; then
            fail "$header of $dir has the name of a header that $target may include"
        else
            refused=$((refused + 1))
        fi
    done <"$work/suspects"
}

# includes file, layer or "" for all -> 0 when each is as layers.txt says
check() {
    failed=0
    accepted=0
    refused=0
    all=$(layers | awk '{ print $2 }' | tr '\n' ' ')
    layers >"$work/layers"
    all_headers >"$work/headers"
    while read -r target own others; do
        allowed="$own $others"
        if [ -n "$2" ] && [ "$2" != "$target" ]; then
            continue
        fi
        line=$(grep "^$target|" "$1") || {
            fail "$target is in layers.txt but is no layer of the build"
            continue
        }
        # The directory of the including file is searched by the compiler anyway.
        path="-I$root/$own"
        for dir in $(printf '%s' "${line#*|}" | tr ';' ' '); do
            path="$path -I$dir"
        done
        check_allowed
        check_forbidden
    done <"$work/layers"
    while IFS='|' read -r target _; do
        grep -q "^$target " "$work/layers" || fail "layer $target is missing in layers.txt"
    done <"$1"
    [ "$failed" -eq 0 ]
}

# layer, what the gate must reject, what it must say
expect_rejected() {
    if check "$work/includes" "$1" 2>"$work/said"; then
        echo "gate_layers --self-test: accepted $2" >&2
        exit 1
    fi
    if ! grep -q -- "$3" "$work/said"; then
        echo "gate_layers --self-test: rejected $2, but did not say '$3':" >&2
        cat "$work/said" >&2
        exit 1
    fi
    echo "rejects $2"
}

if [ -z "$self_test" ]; then
    check "$includes" "" || exit 1
    echo "gate_layers: $accepted allowed includes compile, $refused upward ones do not"
    exit 0
fi

if ! grep -q '^kvc_list|' "$includes"; then
    echo "gate_layers --self-test: $includes has no line for kvc_list" >&2
    exit 2
fi
sed "s#^kvc_list|.*#&;$root/daemon/base#" "$includes" >"$work/includes"
expect_rejected kvc_list "a list layer that sees daemon/base" 'kvc_list can include'
sed "s#^kvc_core|.*#kvc_core|$root/daemon/core#" "$includes" >"$work/includes"
expect_rejected kvc_core "a core layer that lost base" 'kvc_core may include'
sed '/^kvc_policy|/d' "$includes" >"$work/includes"
expect_rejected kvc_policy "a build without the policy layer" 'kvc_policy is in layers.txt'
{ cat "$includes"; echo "kvc_more|$root"; } >"$work/includes"
expect_rejected kvc_list "a layer that layers.txt does not know" 'kvc_more is missing'
# A relative root is the tree that it names; another tree's INCLUDES are refused.
case $includes in
/*) ;;
*) includes=$(pwd)/$includes ;;
esac
if ! (cd "$root" && sh "$here/layers.sh" . "$includes" "$cc") >"$work/said" 2>&1; then
    echo "gate_layers --self-test: rejected the tree by a relative path:" >&2
    sed -n 1,10p "$work/said" >&2
    exit 1
fi
echo "accepts a relative root"
if sh "$here/layers.sh" "$work" "$includes" "$cc" 2>"$work/said" || ! grep -q 'is of another tree' "$work/said"; then
    echo "gate_layers --self-test: accepted a root that the build is not of" >&2
    exit 1
fi
echo "rejects a root that the build is not of"
