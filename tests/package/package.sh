#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Debian packages from a build with /usr as its prefix: lintian, then in a tree of debootstrap they are
# installed, the daemon is run as the unit says, upgraded under load with blocks in memory, removed and
# purged.
#
#   package.sh SOURCE BUILD
#
# Exits 77 where a tool, root or the network is missing. KVC_DEB_TREE: a tree of debootstrap that is
# there already; it is copied.
set -eu

source=$1
build=$2
unset KVCACHE_SOCKET

for tool in lintian debootstrap dpkg-deb cpack chroot setpriv; do
    command -v "$tool" >/dev/null || {
        echo "package.sh: no $tool (Debian: apt-get install lintian debootstrap)"
        exit 77
    }
done
[ "$(id -u)" -eq 0 ] || {
    echo "package.sh: debootstrap needs root"
    exit 77
}

work=$(mktemp -d /tmp/kvc-package-XXXXXX)
tree=$work/tree
daemon=
load=
finish() {
    if [ -n "$load" ]; then
        touch "$tree/tmp/enough"
        wait "$load" 2>/dev/null || :
    fi
    if [ -n "$daemon" ]; then
        kill "$daemon" 2>/dev/null || :
        wait "$daemon" 2>/dev/null || :
    fi
    umount "$tree/proc" "$tree/dev/shm" 2>/dev/null || :
    rm -rf --one-file-system "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

fail() {
    echo "package.sh: $*" >&2
    exit 1
}

# ---- build, lintian ----

(cd "$source" && cmake --preset deb -B "$build") >"$work/log" 2>&1 || fail "$(cat "$work/log")"
cmake --build "$build" >"$work/log" 2>&1 || fail "$(tail -n 30 "$work/log")"
cpack --config "$build/CPackConfig.cmake" -B "$work/packages" >"$work/log" 2>&1 ||
    fail "cpack: $(cat "$work/log")"
version=$(sed -n 's/^set(CPACK_PACKAGE_VERSION "\(.*\)")/\1/p' "$build/CPackConfig.cmake")
for name in kvcache-daemon kvcachectl libkvcache-dev kvcache-bench "libkvcache${version%.*}"; do
    [ -f "$work/packages/${name}_${version}_$(dpkg --print-architecture).deb" ] ||
        fail "no package $name: $(ls "$work/packages")"
done
# Whoever publishes packages sets KVC_MAINTAINER to an address that exists.
lintian --fail-on error --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog \
    "$work"/packages/*.deb >"$work/lintian" 2>&1 || fail "lintian: $(cat "$work/lintian")"
echo "lintian: no errors, $(grep -c '^W:' "$work/lintian" || :) warnings"

# ---- a tree, what is in it before ----

if [ -n "${KVC_DEB_TREE-}" ]; then
    cp -a "$KVC_DEB_TREE" "$tree"
else
    debootstrap --variant=minbase bookworm "$tree" >"$work/log" 2>&1 || {
        tail -n 5 "$work/log"
        echo "package.sh: no tree could be made (is there a network?)"
        exit 77
    }
fi
cp /etc/resolv.conf "$tree/etc/resolv.conf"
mkdir -p "$tree/dev/shm" "$tree/root/packages"
cp "$work"/packages/*.deb "$tree/root/packages/"
{ mount -t proc proc "$tree/proc" && mount -t tmpfs -o mode=1777 tmpfs "$tree/dev/shm"; } || {
    echo "package.sh: nothing can be mounted in the tree"
    exit 77
}
in_tree() {
    chroot "$tree" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
        HOME=/root "$@"
}
apt() {
    in_tree apt-get -y -o Dpkg::Use-Pty=0 "$@" >"$work/log" 2>&1 ||
        fail "apt-get $*: $(tail -n 15 "$work/log")"
}
apt update
apt install --no-install-recommends systemd-standalone-sysusers systemd-standalone-tmpfiles

# ---- install ----

in_tree sh -c 'apt-get -y install --no-install-recommends /root/packages/*.deb' >"$work/log" 2>&1 ||
    fail "install: $(tail -n 20 "$work/log")"
in_tree getent passwd kvcache >/dev/null || fail "there is no user kvcache"
[ "$(in_tree stat -c '%U %a' /dev/shm/kvcache)" = "kvcache 700" ] || fail "/dev/shm/kvcache is not made"
unit=$(find "$tree/usr/lib/systemd/system" "$tree/lib/systemd/system" -name kvcache.service | head -n 1)
command=$(sed -n 's/^ExecStart=//p' "$unit")
config=${command##* }
[ -f "$tree$config" ] || fail "the unit's $config is not installed"
in_tree "${command%% *}" --check-config --config "$config" || fail "the installed configuration is wrong"

# ---- the unit's command line; what the service manager would do is done here ----

cat >"$tree$config" <<'EOF'
host:
  limit: 256MiB
  persist: /dev/shm/kvcache
EOF
in_tree install -d -o kvcache -g kvcache -m 0750 /run/kvcache
as_kvcache() {
    in_tree setpriv --reuid kvcache --regid kvcache --clear-groups "$@"
}
start() {
    # shellcheck disable=SC2086 # a command and its arguments
    (exec chroot "$tree" /usr/bin/setpriv --reuid kvcache --regid kvcache --clear-groups $command \
        >"$work/daemon.log" 2>&1) &
    daemon=$!
    tries=0
    until as_kvcache kvcachectl ping >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || fail "the daemon does not answer: $(cat "$work/daemon.log")"
        sleep 0.1
    done
}
stop() {
    kill "$daemon"
    wait "$daemon" || fail "the daemon ended with $?: $(cat "$work/daemon.log")"
    daemon=
}
counted() {
    as_kvcache kvcachectl stats --json | sed -n "s/.*\"core.blocks_$1\":\([0-9]*\).*/\1/p"
}
blocks() {
    counted in_memory
}
adopted() {
    counted adopted
}
start
library=$(find "$tree/usr/lib" -name 'libkvcache.so')
cc -o "$tree/root/program" "$source/tests/install/program.c" "-I$tree/usr/include" "$library"
cp "$tree/root/program" "$tree/usr/local/bin/program"
as_kvcache /usr/local/bin/program || fail "the program cannot use the installed library"
[ "$(blocks)" -gt 0 ] || fail "nothing was stored"

# ---- upgrade while two workers replay a trace, and compare each byte that they read ----

as_kvcache kvcachebench gen --requests 300 --output /tmp/trace.jsonl
replays() {
    while [ ! -e "$tree/tmp/enough" ]; do
        as_kvcache kvcachebench replay /tmp/trace.jsonl --workers 2 --block-bytes 64KiB \
            --socket /run/kvcache/attach.sock --json || echo "ended with $?"
        echo replayed
    done
}
replayed() {
    grep -c '^replayed$' "$work/load" || :
}
replays >"$work/load" 2>&1 &
load=$!
begun=0
# Until they are there, and one of them reads what another has stored.
until [ "$(replayed)" -gt 0 ]; do
    begun=$((begun + 1))
    [ "$begun" -lt 1200 ] || fail "no replay ends: $(tail -n 5 "$work/load")"
    sleep 0.1
done
begun=$(replayed)

for deb in "$work"/packages/*.deb; do
    dpkg-deb -R "$deb" "$work/newer"
    sed -i -e "s/^Version: .*/Version: $version+1/" -e "s/(= $version)/(= $version+1)/g" \
        "$work/newer/DEBIAN/control"
    dpkg-deb -b "$work/newer" "$tree/root/packages/" >/dev/null
    rm -rf "$work/newer" "$tree/root/packages/${deb##*/}"
done
in_tree sh -c 'dpkg --force-confold -i /root/packages/*.deb' >"$work/log" 2>&1 ||
    fail "upgrade: $(tail -n 20 "$work/log")"
kill -0 "$daemon" || fail "the upgrade ended the daemon"
tries=0
until [ "$(replayed)" -gt $((begun + 1)) ]; do # one that began after it
    tries=$((tries + 1))
    [ "$tries" -lt 1200 ] || fail "no replay ends after the upgrade: $(tail -n 5 "$work/load")"
    sleep 0.1
done
touch "$tree/tmp/enough"
wait "$load"
load=
! grep -q 'ended with' "$work/load" || fail "a worker failed beside the upgrade: $(cat "$work/load")"
before=$(blocks)
[ "$before" -gt 100 ] || fail "$before blocks are left of those that the workers stored"
stop
start
[ "$(adopted)" = "$before" ] || fail "$(adopted) of $before blocks after upgrade and restart"
grep -q 'limit: 256MiB' "$tree$config" || fail "the upgrade changed daemon.yaml"
stop
echo "upgrade: $(replayed) replays beside it, $before blocks kept in memory"

# ---- remove, purge ----

# shellcheck disable=SC2016 # dpkg's own variable
names=$(in_tree dpkg-query -W -f '${Package} ' '*kvcache*')
# shellcheck disable=SC2086
in_tree dpkg --remove $names >"$work/log" 2>&1 || fail "remove: $(cat "$work/log")"
[ -f "$tree$config" ] || fail "removing took the configuration"
[ -n "$(find "$tree/dev/shm/kvcache" -type f)" ] || fail "removing took what is cached"
# shellcheck disable=SC2086
in_tree dpkg --purge $names >"$work/log" 2>&1 || fail "purge: $(cat "$work/log")"
left=$(find "$tree" -xdev -name '*kvcache*' ! -path "$tree/root/packages/*"; find "$tree/dev/shm" -name "*kvcache*")
[ -z "$left" ] || fail "purging left: $left"
if in_tree getent passwd kvcache || in_tree getent group kvcache; then
    fail "purging left the user"
fi
echo "purge: nothing is left"
