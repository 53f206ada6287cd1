#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures kvcache-daemon beside other places where a worker can keep blocks.
#
#   run.sh                everything: packages and LMCache installed where they are missing, release
#                         build, about 20 minutes; table on stdout, JSON and SVG in build/peers
#   run.sh --quick        a smoke run of what is installed: seconds, no figures to quote
#   run.sh --no-install   install nothing; what is missing is left out and said so
#   run.sh --no-lmcache   without LMCache (its wheels are some gigabytes)
#   run.sh -- OPTION...   options for peerbench, e.g. -- --rounds 9 --peers kvcache,redis
#
# $KVC_BIN_DIR names programs that are built already. Exit codes are peerbench's.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
packages="redis-server memcached libhiredis-dev librocksdb-dev python3 python3-venv"
quick=
install=1
lmcache=1
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=1 install= ;;
    --no-install) install= ;;
    --no-lmcache) lmcache= ;;
    --)
        shift
        break
        ;;
    --help | -h)
        sed -n '3,13s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *)
        echo "run.sh: unknown argument '$1'; see run.sh --help" >&2
        exit 2
        ;;
    esac
    shift
done

missing_packages() {
    for package in $packages; do
        # shellcheck disable=SC2016 # a format of dpkg-query
        state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || state=absent
        [ "$state" = installed ] || printf ' %s' "$package"
    done
}

# The packages bring services that start by themselves. None may run: the servers that are measured
# are started by peerbench, on sockets in directories of their own.
stop_services() {
    if [ -d /run/systemd/system ]; then
        for unit in redis-server memcached; do
            case $1 in
            *" $unit"*) $as_root systemctl disable --now "$unit" || : ;;
            esac
        done
    fi
}

install_packages() {
    if ! command -v apt-get >/dev/null; then
        echo "run.sh: no Debian here: nothing is installed. Its names are: $packages" >&2
        return 0
    fi
    missing=$(missing_packages)
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" -eq 0 ]; then
        as_root=
    elif command -v sudo >/dev/null; then
        as_root=sudo
    else
        echo "run.sh: neither root nor sudo; left out is what needs:$missing" >&2
        return 0
    fi
    echo "installing:$missing"
    $as_root apt-get -q -o DPkg::Lock::Timeout=300 update
    # shellcheck disable=SC2086 # a list of packages
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends \
        -o DPkg::Lock::Timeout=300 install $missing
    stop_services "$missing"
}

venv="$root/build/venv-lmcache"
install_lmcache() {
    if "$venv/bin/python" -c 'import lmcache' >/dev/null 2>&1; then
        return 0
    fi
    echo "installing LMCache in build/venv-lmcache: some gigabytes, ten minutes at most"
    python3 -m venv "$venv" && timeout 600 "$venv/bin/pip" install --quiet --no-input lmcache ||
        echo "run.sh: LMCache could not be installed; it is left out" >&2
}

if [ -n "$install" ]; then
    install_packages
    [ -z "$lmcache" ] || install_lmcache
fi

if [ -n "${KVC_BIN_DIR:-}" ]; then
    bin=$KVC_BIN_DIR
else
    [ -z "$install" ] || sh "$root/tests/deps.sh"
    (cd "$root" && cmake --preset release >build/cmake.log && cmake --build build/release) >&2
    bin=$root/build/release/bin
fi

out=${KVC_OUT:-$root/build/peers}
mkdir -p "$out"
if [ -n "$lmcache" ] && [ -x "$venv/bin/python" ]; then
    set -- --python "$venv/bin/python" "$@"
fi
[ -z "$quick" ] || set -- --quick "$@"

status=0
{
    date -u '+%Y-%m-%d %H:%M UTC'
    echo "$(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)," \
        "$(awk '/^MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo)," \
        "Linux $(uname -r), load $(cut -d ' ' -f 1-3 /proc/loadavg)"
} | tee "$out/machine.txt"
"$bin/peerbench" --disk "$out" --json --table "$@" >"$out/peers.json" || status=$?
# The form in which a test says what it left out.
sed -n 's/.*"peer":"\([^"]*\)".*"reason":"\([^"]*\)".*"not_measured".*/SKIP: \1: \2/p' \
    "$out/peers.json" | sort -u
if [ -s "$out/peers.json" ]; then
    python3 "$root/tools/peers/plot.py" "$out/peers.json" >"$out/peers.svg" || status=5
fi
echo "figures: $out/peers.json; plot: $out/peers.svg"
exit "$status"
