#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Gate: what may be refused by the system is asked for behind a fault point.
#
#   points.sh [ROOT]       check daemon/, client/ and gpu/
#   points.sh --self-test  check that the gate finds what it is for
#
# Outside of sys.c, thread.c and the allocation counter a call that is listed below is a finding,
# unless FAULT( stands before it in the same function. Words in strings and comments do not count,
# nor do the definitions in front_limiter.c, nor the ftruncate() with which a chunk gives its pages
# back. client/ctl/, client/examples/ and client/worker/ are programs that end when they are refused
# something;
# client/python/ext/ stands on the public library alone, which has no fault points to offer, and
# client/model/ is compiled into it: client/python/tests/refuse.c refuses each of their allocations
# in turn.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
calls='malloc|calloc|realloc|reallocarray|aligned_alloc|posix_memalign|strdup|strndup|asprintf|open_memstream'
calls="$calls|mmap|ftruncate|memfd_create|eventfd|socket|socketpair|accept|accept4|open|openat|creat|fopen"
calls="$calls|opendir|dup|dup2|dup3|pipe|pipe2|epoll_create1|signalfd|timerfd_create|inotify_init1"
calls="$calls|pidfd_open|pthread_create|thrd_create|fork|zmq_ctx_new|zmq_socket|zmq_send|zmq_msg_send"
calls="$calls|send|sendmsg|sendto|hwloc_topology_init|hwloc_bitmap_alloc|EVP_MD_fetch|EVP_MD_CTX_new"
calls="$calls|yaml_parser_initialize|yaml_emitter_initialize|io_uring_queue_init_params"

# directory -> findings on stdout
findings() {
    (cd "$1" && find daemon client gpu -name '*.c' ! -path 'client/ctl/*' \
        ! -path 'client/model/*' \
        ! -path 'client/examples/*' ! -path 'client/python/*' ! -path 'client/worker/*' \
        ! -path daemon/base/wire/sys.c ! -path daemon/base/thread.c \
        ! -path daemon/alloc_count.c | sort) |
        while IFS= read -r file; do
            awk -v file="$file" -v calls="(^|[^_[:alnum:].>])($calls)[(]" '
                /^[[:space:]]*(\/?\*|\/\/)/ { next }
                /FAULT[(]/ { seen = 1 }
                {
                    code = $0
                    gsub(/"[^"]*"/, "", code)
                    gsub(/[/][*].*/, "", code)
                }
                /^[[:alpha:]]/ && !/;$/ { next } # the head of a function, perhaps of that name
                code ~ calls && !seen && code !~ /err = ftruncate\(fd, 0\)/ {
                    print file ":" NR ": not behind a fault point:" $0
                }
                /^}/ { seen = 0 }' "$1/$file"
        done
}

case "${1-}" in
--self-test)
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT INT TERM
    mkdir -p "$work/daemon/io" "$work/client" "$work/gpu"
    printf 'void f(void)\n{\n    char *p = calloc(1, 2);\n}\n' >"$work/daemon/io/bare.c"
    printf 'int f(int fd)\n{\n    return accept4(fd, 0, 0, 0);\n}\n' >"$work/client/bare.c"
    printf 'int f(void)\n{\n    if (FAULT(alloc))\n        return -1;\n}\nvoid *g(void)\n{\n    return zmq_ctx_new();\n}\n' >"$work/client/other.c"
    printf 'int accept4(int fd)\n{\n    return fd;\n}\n' >"$work/client/head.c"
    printf 'void *f(void)\n{\n    return FAULT(alloc) ? 0 : zmq_ctx_new();\n}\n' >"$work/client/good.c"
    printf 'int f(void)\n{\n    return 1; /* as mmap() does */\n}\n' >"$work/client/comment.c"
    printf 'int f(void)\n{\n    return dup(1); /* as mmap() does */\n}\n' >"$work/client/commented.c"
    found=$(findings "$work" | cut -d: -f1 | tr '\n' ' ')
    if [ "$found" != "client/bare.c client/commented.c client/other.c daemon/io/bare.c " ]; then
        echo "points --self-test: found in: $found" >&2
        exit 1
    fi
    echo "points --self-test: 4 fixtures"
    ;;
-*)
    echo "usage: points.sh [ROOT] | points.sh --self-test" >&2
    exit 2
    ;;
*)
    found=$(findings "${1:-$here/../..}")
    if [ -n "$found" ]; then
        printf '%s\n' "$found" >&2
        echo "points: use sys.h or thread.h, or FAULT() before it" >&2
        exit 1
    fi
    echo "points: clean"
    ;;
esac
