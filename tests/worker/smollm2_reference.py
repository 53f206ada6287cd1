# SPDX-License-Identifier: Apache-2.0
"""What transformers and tokenizers make of SmolLM2-135M-Instruct: smollm2_reference.py DIR

DIR is what client/worker/smollm2.sh made. Compares its weights with those that transformers reads out
of the GGUF file itself, and writes DIR/logits.safetensors of a text, for test_worker_llama.
"""
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "client" / "worker"))
import smollm2  # noqa: E402

TOKENS = 120
LICENCE = pathlib.Path(__file__).parents[2] / "LICENSE"


def check_weights(ours, theirs):
    theirs = dict(theirs.named_parameters())
    for name, weight in ours.named_parameters():
        if not torch.equal(weight, theirs.pop(name)):
            sys.exit(f"{name} is not what transformers reads out of the GGUF file")
    if theirs:
        sys.exit(f"not in the directory: {', '.join(theirs)}")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    to = pathlib.Path(sys.argv[1])
    gguf = smollm2.path_of_gguf()
    load = transformers.AutoModelForCausalLM.from_pretrained
    theirs = load(gguf.parent, gguf_file=gguf.name, dtype=torch.float32).eval()
    check_weights(load(to, dtype=torch.float32), theirs)
    ids = transformers.AutoTokenizer.from_pretrained(to)(LICENCE.read_text())["input_ids"]
    tokens = torch.tensor(ids[:TOKENS])
    with torch.no_grad():
        logits = theirs(tokens[None]).logits[0]
    save_file({"tokens": tokens.to(torch.int32), "logits": logits.contiguous()},
              to / "logits.safetensors")
    print(f"{len(tokens)} tokens; logits from {logits.min():.1f} to {logits.max():.1f}")


if __name__ == "__main__":
    main()
