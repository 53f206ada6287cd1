#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Gate: what ARCHITECTURE.md says of the code is so.
#
#   architecture.sh ROOT         check ROOT/ARCHITECTURE.md
#   architecture.sh --self-test  check that wrong documents are rejected, each for what is wrong
#
# Each function is defined in the file beside it, each "->" is a call, each path is in the tree, and
# the document is at most two pages. architecture.awk says how it is read.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

LINES_MAX=120
COLUMNS_MAX=100

# root -> findings, and "functions N", on stdout
check() {
    page=$1/ARCHITECTURE.md
    if [ ! -f "$page" ]; then
        echo "$page: is missing"
        return
    fi
    (
        cd "$1"
        LC_ALL=C awk -v root=. -f "$here/architecture.awk" ARCHITECTURE.md
        grep -oE '(daemon|client|kernels|include|policy|tests|tools|bench|docs)/[A-Za-z0-9_./-]+' \
            ARCHITECTURE.md | sed 's/[.]$//' | sort -u | while read -r path; do
            [ -e "$path" ] || echo "ARCHITECTURE.md: names $path, which is not in the tree"
        done
        # Bytes that continue a character are no columns.
        LC_ALL=C awk -v lines="$LINES_MAX" -v columns="$COLUMNS_MAX" '
            { gsub(/[\200-\277]/, "") }
            length($0) > columns { print FILENAME ":" FNR ": more than " columns " columns" }
            END { if (NR > lines) print FILENAME ": " NR " lines; at most " lines }' \
            ARCHITECTURE.md
    )
}

# what it is, what the finding has to say; the document on stdin
rejects() {
    cat >"$work/tree/ARCHITECTURE.md"
    check "$work/tree" | grep -v '^functions ' >"$work/found" || :
    if [ ! -s "$work/found" ]; then
        echo "architecture.sh --self-test: accepted $1" >&2
        exit 1
    fi
    if ! grep -qF -- "$2" "$work/found"; then
        echo "architecture.sh --self-test: rejected $1, but did not say '$2':" >&2
        cat "$work/found" >&2
        exit 1
    fi
}

self_test() {
    mkdir -p "$work/tree/daemon"
    cat >"$work/tree/daemon/one.c" <<'END'
static int leaf(int x);

static int inner(struct ops *ops, int x)
{
    return ops->table(x);
}

int outer(struct ops *ops,
          int x)
{
    return inner(ops, x);
}
END
    cat >"$work/tree/daemon/two.c" <<'END'
int table(int x)
{
    return x;
}
END
    cat >"$work/tree/ARCHITECTURE.md" <<'END'
outer() -> inner()   daemon/one.c
=> table()   daemon/two.c
END
    check "$work/tree" >"$work/found"
    if [ "$(cat "$work/found")" != "functions 3" ]; then
        echo "architecture.sh --self-test: the right document is rejected:" >&2
        cat "$work/found" >&2
        exit 1
    fi
    rejects "a function that does not exist" "outest() is not defined in daemon/one.c" <<'END'
outest() -> inner()   daemon/one.c
END
    rejects "a function that is only declared" "leaf() is not defined in daemon/one.c" <<'END'
leaf()   daemon/one.c
END
    rejects "a function in the wrong file" "table() is not defined in daemon/one.c" <<'END'
outer() -> inner() => table()   daemon/one.c
END
    rejects "a file that does not exist" "daemon/three.c, which is not in the tree" <<'END'
outer()   daemon/three.c
END
    rejects "a directory that does not exist" "daemon/four, which is not in the tree" <<'END'
outer()   daemon/one.c and daemon/four
END
    rejects "a function without a file" "outer() has no file beside it" <<'END'
daemon/one.c has outer()
END
    rejects "a call that is none" "outer() of daemon/one.c does not call table()" <<'END'
outer()   daemon/one.c
-> table()   daemon/two.c
END
    rejects "a call through a table" "inner() of daemon/one.c does not call table()" <<'END'
outer() -> inner()   daemon/one.c
-> table()   daemon/two.c
END
    for columns in 1 2 3; do printf '%s' 'forty columns of text that is of no use '; done |
        rejects "a long line" "more than 100 columns"
    seq 121 | rejects "three pages" "121 lines"
    echo "architecture.sh --self-test: 10 documents rejected"
}

case "${1-}" in
--self-test)
    self_test
    ;;
'' | -*)
    echo "usage: architecture.sh ROOT | architecture.sh --self-test" >&2
    exit 2
    ;;
*)
    check "$1" >"$work/all"
    grep -v '^functions ' "$work/all" >"$work/found" || :
    if [ -s "$work/found" ]; then
        cat "$work/found" >&2
        echo "architecture: $(wc -l <"$work/found") findings" >&2
        exit 1
    fi
    n=$(sed -n 's/^functions //p' "$work/all")
    if [ "$n" -lt 60 ]; then
        echo "architecture: only $n functions were found in the document" >&2
        exit 1
    fi
    echo "architecture: $n functions are where the document says"
    ;;
esac
