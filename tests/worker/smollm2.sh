#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The worker with the real weights of SmolLM2-135M-Instruct, beside transformers: the environment of
# tests/engines, in $KVC_ENGINES or build/engines.
set -eu
source=${KVC_SOURCE_DIR:-$(cd "$(dirname -- "$0")/../.." && pwd)}
bin=${KVC_BIN_DIR:-$source/build/release/bin}
engines=${KVC_ENGINES:-$source/build/engines}
model=$engines/models/SmolLM2-135M-Instruct

cannot() {
    echo "SKIP: smollm2: $1 cannot be installed here (see above)"
    exit 77
}

if [ "${KVC_TRACE_LIGHT:-}" = 1 ]; then
    echo "SKIP: smollm2: a sanitizer makes minutes of it"
    exit 77
fi
mkdir -p "$engines"
exec 9>"$engines/lock"
flock 9
sh "$source/tests/engines/venv.sh" "$engines/venv" || cannot transformers
sh "$source/tests/engines/more.sh" "$engines" || cannot "what reads GGUF files"
export PYTHON="$engines/venv/bin/python" PYTHONPATH="$engines/more" PYTHONDONTWRITEBYTECODE=1
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 HF_HUB_DISABLE_PROGRESS_BARS=1 TQDM_DISABLE=1 OMP_NUM_THREADS=2
sh "$source/client/worker/smollm2.sh" "$model"
"$PYTHON" "$source/tests/worker/smollm2_reference.py" "$model"
flock -u 9
exec 9>&-
export KVC_SMOLLM2="$model" KVC_MODEL="$model"
"$bin/test_worker_tokenizer"
"$bin/test_worker_llama"
