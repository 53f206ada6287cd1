#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs a build, moves what was installed, and builds and runs programs of somebody else's against
# it: by pkg-config in C and C++, and by CMake's find_package.
#
#   install.sh BUILD SOURCE CC [CXX]
set -eu

build=$1
source=$2
cc=$3
cxx=${4-}
here=$source/tests/install

work=$(mktemp -d /tmp/kvc-install-XXXXXX)
daemon=
finish() {
    if [ -n "$daemon" ]; then
        kill "$daemon" 2>/dev/null || :
        wait "$daemon" 2>/dev/null || :
    fi
    rm -rf "$work"
}
trap finish EXIT INT TERM

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

# ---- install: with DESTDIR, into a prefix that is moved afterwards ----

DESTDIR=$work/stage cmake --install "$build" --prefix /opt/kvcache >"$work/install.log" ||
    fail "cmake --install failed: $(cat "$work/install.log")"
mv "$work/stage/opt/kvcache" "$work/moved"
prefix=$work/moved
if [ -n "$(find "$work/stage" ! -type d)" ]; then
    fail "installed outside the prefix: $(find "$work/stage" ! -type d)"
fi

library=$(find "$prefix" -name libkvcache.so)
[ -n "$library" ] || fail "no libkvcache.so"
libdir=$(dirname "$library")
soname=$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
[ -e "$libdir/$soname" ] || fail "no file of the library's soname $soname"
for file in bin/kvcache-daemon bin/kvcachectl bin/kvcachebench \
    include/kvcache/kvcache.h include/kvcache/async.h include/kvcache/admin.h \
    include/kvcache/gpu.h include/kvcache/proto.h include/kvcache/rows.h \
    share/doc/kvcache/PROTOCOL.md share/doc/kvcache/LICENSE share/doc/kvcache/README.md \
    share/man/man1/kvcachectl.1 share/man/man1/kvcachebench.1 etc/kvcache/daemon.yaml \
    lib/systemd/system/kvcache.service lib/sysusers.d/kvcache.conf lib/tmpfiles.d/kvcache.conf; do
    [ -f "$prefix/$file" ] || fail "$file is not installed"
done
# Completions find what they ask, in the shells that are here.
for shell in bash zsh fish; do
    rc=0
    PATH="$prefix/bin:$PATH" sh "$source/tests/gates/complete.sh" "$shell" "$prefix/share" kvcachectl doc '' \
        >"$work/offered" 2>&1 || rc=$?
    [ $rc -eq 77 ] || grep -q -x export "$work/offered" ||
        fail "$shell completes nothing where it is installed: $(cat "$work/offered")"
done
[ ! -f "$prefix/bin/kvcache-worker" ] || [ -f "$prefix/share/man/man1/kvcache-worker.1" ] ||
    fail "kvcache-worker is installed without its manual page"
others=$(find "$prefix/include" "$libdir" -type f ! -name 'libkvcache.so.*' ! -name kvcache.pc \
    ! -name 'kvcache-*.cmake' ! -name kvcache.h ! -name async.h ! -name admin.h ! -name gpu.h ! -name proto.h ! -name rows.h \
    ! -path "$libdir/systemd/*" ! -path "$libdir/sysusers.d/*" ! -path "$libdir/tmpfiles.d/*")
[ -z "$others" ] || fail "installed, but nobody's business: $others"
grep -q '^ExecStart=/opt/kvcache/bin/kvcache-daemon --config /opt/kvcache/etc/' \
    "$prefix/lib/systemd/system/kvcache.service" || fail "the unit starts something else"
if grep -rlF -e "$build" -e "$source" -e /opt/kvcache "$libdir/cmake" "$libdir/pkgconfig"; then
    fail "these files name a directory of the build, or the prefix before it was moved"
fi

# ---- build ----

mkdir "$work/app"
cp "$here/program.c" "$here/program.cc" "$work/app"
cd "$work/app"
export PKG_CONFIG_PATH="$libdir/pkgconfig"
flags=$(pkg-config --cflags --libs kvcache)
# shellcheck disable=SC2086 # words
"$cc" -std=c17 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -Werror -o by-pkg-config \
    program.c $flags -Wl,-rpath,"$libdir"
programs=./by-pkg-config
if [ -n "$cxx" ] && command -v "$cxx" >/dev/null; then
    # shellcheck disable=SC2086 # words
    "$cxx" -std=c++17 -Wall -Wextra -Wpedantic -Werror -o by-c++ program.cc $flags \
        -Wl,-rpath,"$libdir"
    programs="$programs ./by-c++"
else
    echo "SKIP: no C++ compiler: the header was not tried in C++"
fi

configure() { # wanted version, build directory
    sed "s/@WANTED@/$1/" "$here/project.cmake" >CMakeLists.txt
    cmake -S . -B "$2" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" >"$2.log" 2>&1
}
minor=${soname#libkvcache.so.}
configure "$minor" by-cmake || fail "find_package(kvcache $minor): $(cat by-cmake.log)"
cmake --build by-cmake >by-cmake.log 2>&1 || fail "the CMake project: $(cat by-cmake.log)"
programs="$programs by-cmake/program"
if configure 99.0 too-new; then
    fail "find_package(kvcache 99.0) finds this version"
fi

version=$(sed -n 's/^project(.*VERSION \([0-9.]*\).*/\1/p' "$source/CMakeLists.txt")
for program in "$prefix"/bin/*; do
    "$program" --version | grep -q " $version" || fail "$program is not of version $version: $("$program" --version)"
done

# With /usr the configuration is in /etc, and the unit says so.
DESTDIR=$work/usr cmake --install "$build" --prefix /usr >"$work/usr.log" ||
    fail "cmake --install --prefix /usr failed: $(cat "$work/usr.log")"
grep -q '^ExecStart=/usr/bin/kvcache-daemon --config /etc/kvcache/daemon.yaml$' \
    "$work/usr/usr/lib/systemd/system/kvcache.service" || fail "the unit of /usr names other files"
[ -f "$work/usr/etc/kvcache/daemon.yaml" ] || fail "with the prefix /usr there is no /etc/kvcache/daemon.yaml"

# Where it is installed for good, the next step is told.
cmake --install "$build" --prefix "$work/here" >"$work/install.log" || fail "cmake --install failed"
grep -q "find it after: ldconfig .*$work/here/lib" "$work/install.log" ||
    fail "nothing is said of ldconfig: $(cat "$work/install.log")"
! grep -q ldconfig "$work/usr.log" || fail "a staged installation speaks of ldconfig"

# ---- run ----

mkdir "$work/run"
"$prefix/bin/kvcache-daemon" --set runtime_dir="$work/run" --set host.limit=16MiB \
    --set host.chunk=4MiB --set staging.total=16MiB --set staging.session_max=4MiB \
    >"$work/daemon.log" 2>&1 &
daemon=$!
export KVCACHE_SOCKET="$work/run/attach.sock"
tries=0
until "$prefix/bin/kvcachectl" ping >"$work/ping.log" 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || fail "no daemon: $(cat "$work/daemon.log" "$work/ping.log")"
    kill -0 "$daemon" 2>/dev/null || fail "the daemon ended: $(cat "$work/daemon.log")"
    sleep 0.1
done
for program in $programs; do
    echo "$program: $($program)"
done
kill "$daemon"
wait "$daemon" || fail "the daemon's end: $(cat "$work/daemon.log")"
daemon=
