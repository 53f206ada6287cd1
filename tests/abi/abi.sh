#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Gate: what libkvcache.so shows to programs that were linked with it.
#
#   abi.sh symbols LIBRARY     exactly the functions that the headers mark with KVC_API are exported
#   abi.sh compare LIBRARY     functions, structs and enums are those of client/abi/libkvcache.abi;
#                              new functions are allowed (77: no abidiff here)
#   abi.sh update LIBRARY      writes client/abi/libkvcache.abi (see client/abi/README.md for when)
#   abi.sh self-test CC        each rule rejects a library that breaks it
#
# LIBRARY needs debug information; run it from any directory.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../.." && pwd)
header=$root/include/kvcache/kvcache.h
headers="$header $root/include/kvcache/async.h $root/include/kvcache/admin.h
$root/include/kvcache/gpu.h"
baseline=$root/client/abi/libkvcache.abi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

marked() {
    # shellcheck disable=SC2086 # words
    sed -e '/^#/d' -e 's|/\*.*\*/||' $headers | tr '\n' ' ' | grep -oE 'KVC_API [^;(]*\(' |
        sed -E 's/.*[ *]([a-z0-9_]+)\($/\1/' | sort
}

exported() {
    nm -D --defined-only "$1" | sed -E 's/^[0-9a-f]+ . //; s/@.*//' | sort
}

symbols() {
    marked >"$work/marked"
    exported "$1" >"$work/exported"
    [ -s "$work/marked" ] || {
        echo "abi.sh: no KVC_API in $headers" >&2
        return 1
    }
    if ! diff "$work/marked" "$work/exported" >"$work/diff"; then
        sed -n -e 's/^< \(.*\)/marked with KVC_API, not exported: \1/p' \
            -e 's/^> \(.*\)/exported, not marked with KVC_API: \1/p' "$work/diff" >&2
        return 1
    fi
    echo "$(wc -l <"$work/exported") functions exported, each marked with KVC_API"
}

need_abidiff() {
    if ! command -v abidiff >/dev/null || ! command -v abidw >/dev/null; then
        echo "SKIP: no abidiff (Debian: abigail-tools; sh tests/deps.sh --ci installs it)"
        exit 77
    fi
}

# Public types only: those that the headers define.
describe() { # library, headers, file
    abidw --no-corpus-path --no-comp-dir-path --no-show-locs --no-architecture \
        --headers-dir "$2" --drop-private-types --exported-interfaces-only --out-file "$3" "$1"
    sed -E -i "s| path='[^']*/client/([a-z_]*\.c)'| path='client/\1'|" "$3" # wherever it was built
}

compare() { # library, headers
    describe "$1" "$2" "$work/new.abi"
    if ! abidiff --no-added-syms --no-architecture "$baseline" "$work/new.abi" >"$work/report" 2>&1; then
        cat "$work/report" >&2
        echo "abi.sh: programs linked with the recorded library may break with this one." >&2
        echo "abi.sh: undo the change, or make it on purpose: client/abi/README.md says how." >&2
        return 1
    fi
    echo "compatible with client/abi/libkvcache.abi"
}

# A library made of the client's sources and a header that was edited.
library_with() { # name, sed script
    mkdir -p "$work/$1/kvcache"
    cp "$root"/include/kvcache/*.h "$work/$1/kvcache"
    sed -E -i "$2" "$work/$1/kvcache/kvcache.h"
    if cmp -s "$work/$1/kvcache/kvcache.h" "$header" && [ "$1" != same ]; then
        echo "abi.sh: the edit '$1' changes nothing: mend it" >&2
        exit 1
    fi
    # Without optimisation and unlinked with others: only the interface matters.
    "$cc" -std=gnu17 -D_GNU_SOURCE= -g -O0 -fPIC -shared -fvisibility=hidden -w \
        -I"$work/$1" -I"$root/client" -I"$root/client/codec" -I"$root/daemon/base/wire" -I"$root/gpu" \
        -Wl,-soname,"$soname" -o "$work/$1.so" "$root"/client/*.c
}

must_reject() { # what, command...
    what=$1
    shift
    if "$@" >"$work/out" 2>&1; then
        echo "abi.sh: accepted: $what" >&2
        exit 1
    fi
    echo "rejected: $what"
}

self_test() {
    cc=$1
    soname=$(sed -n "s/.*soname='\([^']*\)'.*/\1/p" "$baseline" | head -n 1)
    library_with hidden 's/^KVC_API (KVC_MUST_USE int kvc_ping\()/\1/'
    must_reject "a function that is not exported" symbols "$work/hidden.so"
    library_with same ''
    cp "$work/same.so" "$work/extra.so"
    printf 'int kvc__extra(void);\nint kvc__extra(void) { return 0; }\n' >"$work/extra.c"
    "$cc" -shared -fPIC -o "$work/extra.so" "$work/extra.c" "$work/same.so"
    must_reject "a function that is not in the header" symbols "$work/extra.so"
    need_abidiff
    compare "$work/same.so" "$work/same/kvcache" || exit 1
    must_reject "a function that is gone" compare "$work/hidden.so" "$work/hidden/kvcache"
    library_with field 's/^(struct kvc_prefix \{)/\1\n    uint32_t inserted;/'
    must_reject "a field inserted into a struct" compare "$work/field.so" "$work/field/kvcache"
    library_with type 's/^(    )uint32_t (window;)/\1uint64_t \2/'
    must_reject "a field of another type" compare "$work/type.so" "$work/type/kvcache"
}

case ${1-} in
symbols) symbols "$2" ;;
compare)
    need_abidiff
    compare "$2" "$root/include/kvcache"
    ;;
update)
    need_abidiff
    describe "$2" "$root/include/kvcache" "$baseline"
    echo "written: $baseline"
    ;;
self-test) self_test "$2" ;;
*)
    echo "abi.sh: unknown command '${1-}'; usage: abi.sh symbols|compare|update LIBRARY," \
        "abi.sh self-test CC" >&2
    exit 2
    ;;
esac
