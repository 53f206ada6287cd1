#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The byte-level model of client/worker/byte_model.py: trained, unless the same script has left it in
# $KVC_ENGINES or build/engines; it uses its context, the worker computes what transformers computes,
# recalls values with K and V in several types, and kvcachebench quality takes it.
set -eu
source=${KVC_SOURCE_DIR:-$(cd "$(dirname -- "$0")/../.." && pwd)}
bin=${KVC_BIN_DIR:-$source/build/release/bin}
engines=${KVC_ENGINES:-$source/build/engines}
script=$source/client/worker/byte_model.py
model=$engines/models/bytes

fail() {
    echo "byte_model.sh: $1" >&2
    exit 1
}

if [ "${KVC_TRACE_LIGHT:-}" = 1 ]; then
    echo "SKIP: byte_model: a sanitizer sees nothing in the training"
    exit 77
fi
mkdir -p "$engines/models"
exec 9>"$engines/lock"
flock 9
sh "$source/tests/engines/venv.sh" "$engines/venv" || {
    echo "SKIP: byte_model: PyTorch cannot be installed here (see above)"
    exit 77
}
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1
want=$(sha256sum <"$script")
if [ "$(cat "$model/made" 2>/dev/null)" != "$want" ]; then
    rm -rf "$model"
    "$engines/venv/bin/python" "$script" "$model" || fail "the model was not trained, or does not use its context"
    echo "$want" >"$model/made"
fi
flock -u 9
exec 9>&-
cat "$model/report.json"
KVC_MODEL="$model" "$bin/test_worker_llama"

# The value of each of three keys; by what lies in K and V alone.
keys='cat=hugo
dog=emil
fox=anna
'
for types in fp32 q8_0 int8; do
    for pair in cat=hugo dog=emil fox=anna; do
        prompt="$keys?${pair%=*}="
        got=$("$bin/kvcache-worker" --model "$model" --no-daemon --raw --prompt "$prompt" --new 4 \
            --strategy quantised --types "$types" --exact 0 2>/dev/null)
        [ "$got" = "${pair#*=}" ] || fail "$types: '$prompt' is answered '$got'"
    done
done

"$bin/kvcachebench" quality --model "$model" --threads 1 --types q8_0,int8,fp8,q4_0:fp32,fp32:q4_0 \
    "$model"/*.txt
