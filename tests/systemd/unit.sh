#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The unit, as it is installed: see README.md.
#
#   unit.sh [--self-test] DAEMON SOURCE
set -eu

self=
[ "$1" != --self-test ] || {
    self=1
    shift
}
daemon=$1
source=$2
exposure_max=15 # tenths of a point, as --threshold= wants it

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
mkdir "$work/bin" "$work/etc" "$work/etc/kvcache" "$work/run"
ln -s "$daemon" "$work/bin/kvcache-daemon"
cp "$source/etc/daemon.yaml" "$work/etc/kvcache"

# unit -> findings on stdout
findings() {
    sed -n 's/.*\(@[A-Z_]*@\).*/\1 was not replaced/p' "$1"
    for line in Type=notify WatchdogSec= FileDescriptorStoreMax= LimitMEMLOCK=infinity LimitNOFILE= \
        Restart=on-failure RemoveIPC=no RuntimeDirectory=kvcache RuntimeDirectoryPreserve=restart \
        StateDirectory=kvcache; do
        grep -q "^$line" "$1" || echo "no $line"
    done
    unit=$1
    # shellcheck disable=SC2046 # words
    set -- $(sed -n 's/^ExecStart=//p' "$1")
    [ -x "$1" ] || echo "$1 is no program"
    "$1" --help >"$work/help" 2>/dev/null || :
    for word; do
        case $word in
        --*) grep -q -e "^ *$word\>" "$work/help" || echo "the daemon has no option $word" ;;
        esac
    done
    "$@" --check-config --set runtime_dir="$work/run" --set host.limit=64MiB \
        --set memory.budget=1GiB >"$work/check" 2>&1 || echo "refused: $(cat "$work/check")"
    command -v systemd-analyze >/dev/null || return 0
    # The user is made by sysusers.d, which has not run here.
    systemd-analyze verify --man=no "$unit" 2>&1 | grep -F kvcache.service |
        grep -v 'Failed to resolve unit user' || :
    systemd-analyze security --offline=true --threshold=$exposure_max "$unit" >"$work/security" 2>&1 ||
        echo "exposure: $(tail -n 1 "$work/security")"
}

sed -e "s|@KVC_BINDIR@|$work/bin|" -e "s|@KVC_SYSCONFDIR@|$work/etc|" \
    "$source/systemd/kvcache.service.in" >"$work/kvcache.service"

if [ -n "$self" ]; then
    while IFS= read -r edit; do
        mkdir -p "$work/bad"
        sed -e "$edit" "$work/kvcache.service" >"$work/bad/kvcache.service"
        if [ -z "$(findings "$work/bad/kvcache.service")" ]; then
            echo "systemd --self-test: not found: $edit" >&2
            exit 1
        fi
    done <<'EOF'
s/--config/--konfig/
s/^RemoveIPC=.*//
s/^FileDescriptorStoreMax=.*//
s/^ExecStart=[^ ]*/&d/
s|etc/kvcache|etc/nowhere|
EOF
    echo "systemd --self-test: 5 defects found"
    exit 0
fi

findings "$work/kvcache.service" >"$work/found"
if command -v systemd-analyze >/dev/null; then
    tail -n 1 "$work/security"
else
    echo "SKIP: there is no systemd-analyze here: the unit was not verified"
fi
if command -v systemd-sysusers >/dev/null; then
    mkdir -p "$work/root/etc"
    systemd-sysusers --root="$work/root" --dry-run "$source/systemd/kvcache.sysusers.conf" \
        >"$work/users" 2>&1 || cat "$work/users" >>"$work/found"
    grep -q kvcache "$work/users" || echo "sysusers: no user kvcache" >>"$work/found"
else
    echo "SKIP: there is no systemd-sysusers here"
fi
if [ -s "$work/found" ]; then
    sed 's/^/systemd: /' "$work/found" >&2
    exit 1
fi
echo "systemd: the unit is as it should be"
