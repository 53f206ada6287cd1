#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that building and testing need, those that are missing only.
#
#   deps.sh             compilers, build tools, libraries, Check, Python
#   deps.sh --ci        also clang, clang-format, clang-tidy, ccache, abidiff, NumPy,
#                       a parser of OpenMetrics, zsh, fish
#   deps.sh --coverage  also gcovr
#   deps.sh --bench     also fio and RocksDB, which storage is compared with, OpenBLAS
#   deps.sh --fuzz      also clang with its sanitizers and libFuzzer, and llvm-cov
#   deps.sh --list      print the names and install nothing (after one of these: the longer list)
set -eu

packages="gcc g++ libc6-dev cmake ninja-build pkg-config
    liburing-dev libzmq3-dev libmsgpack-dev libhwloc-dev liblmdb-dev libsystemd-dev libmicrohttpd-dev
    libxxhash-dev libssl-dev libyaml-dev libjansson-dev libopenblas-dev check python3 python3-dev python3-venv"
list=

for argument; do
    case $argument in
    --ci) packages="$packages clang clang-format clang-tidy ccache abigail-tools
        python3-numpy python3-prometheus-client zsh fish libnuma1" ;;
    --bench) packages="$packages fio librocksdb-dev libopenblas-dev" ;;
    --coverage) packages="$packages gcovr" ;;
    # clang's runtime (sanitizers, libFuzzer) is a package of clang's own version.
    --fuzz) packages="$packages clang llvm libclang-rt-14-dev" ;;
    --list) list=1 ;;
    *)
        echo "deps.sh: unknown argument '$argument'; usage:" \
            "deps.sh [--bench] [--ci] [--coverage] [--fuzz] [--list]" >&2
        exit 2
        ;;
    esac
done

if [ -n "$list" ]; then
    # shellcheck disable=SC2086 # one name per line
    printf '%s\n' $packages
    exit 0
fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "deps.sh: no Debian here: nothing is installed. CMake names what is missing; the Debian" \
        "names are: sh tests/deps.sh --list" >&2
    exit 0
fi

missing=
for package in $packages; do
    # shellcheck disable=SC2016 # a format of dpkg-query
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || state=absent
    if [ "$state" != installed ]; then
        missing="$missing $package"
    fi
done
if [ -z "$missing" ]; then
    exit 0
fi

if [ "$(id -u)" -eq 0 ]; then
    as_root=
elif command -v sudo >/dev/null; then
    as_root=sudo
else
    echo "deps.sh: missing packages, and neither root nor sudo to install them. As root:" >&2
    echo "    apt-get install$missing" >&2
    exit 1
fi

echo "installing:$missing"
$as_root apt-get -q -o DPkg::Lock::Timeout=300 update
# shellcheck disable=SC2086 # a list of packages
$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends \
    -o DPkg::Lock::Timeout=300 install $missing
