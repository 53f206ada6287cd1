#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes a virtual environment with the engines of requirements.txt. usage: venv.sh DIR
# Nothing is done when DIR was made from the same files. 6 GB; 20 s where the wheels are near.
set -eu
here=$(cd "$(dirname -- "$0")" && pwd)
dir=${1:?usage: venv.sh DIR}
python=${PYTHON:-python3}
want=$(cat "$here/requirements.txt" "$here/overrides.txt" "$0" | sha256sum)
[ "$(cat "$dir/made" 2>/dev/null)" = "$want" ] && exit 0

rm -rf "$dir"
"$python" -m venv "$dir"
"$dir/bin/pip" install -q "uv==$(sed -n 's/^# uv //p' "$here/requirements.txt")"
# Wheels are kept beside the environment, and linked into it.
UV_CACHE_DIR=${UV_CACHE_DIR:-$(dirname -- "$dir")/wheels} "$dir/bin/uv" pip install -q \
    --python "$dir/bin/python" -r "$here/requirements.txt" --override "$here/overrides.txt"
ldconfig -p | grep -q libnuma.so.1 || {
    echo "venv.sh: vLLM needs libnuma.so.1 (Debian: libnuma1)" >&2
    exit 1
}
echo "$want" >"$dir/made"
