# SPDX-License-Identifier: Apache-2.0
"""What transformers and tokenizers make of SmolLM2-135M-Instruct: smollm2_reference.py DIR

DIR is what client/worker/smollm2.sh made. Compares its weights with those that transformers reads out
of the GGUF file itself, and writes DIR/logits.safetensors of a text, for test_worker_llama, and DIR/texts.txt,
ids of many texts, for test_worker_tokenizer.
"""
import json
import pathlib
import sys

import make_bpe
import tokenizers
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


def check_chat(tokenizer, chat):
    """What chat.json composes is what the template in Jinja writes."""
    talk = [("user", "Hello, you"), ("assistant", "Yes?"), ("user", " 12 rivers\n"), ("system", "Be kind.")]
    text = chat["system"][0] + chat["default_system"] + chat["system"][1]
    for n in range(1, len(talk)):
        text += chat[talk[n - 1][0]][0] + talk[n - 1][1] + chat[talk[n - 1][0]][1]
        check_rendered(tokenizer, chat, talk[:n], text)
    check_rendered(tokenizer, chat, [talk[3], talk[0]], "".join(
        chat[role][0] + said + chat[role][1] for role, said in (talk[3], talk[0])))


def check_rendered(tokenizer, chat, talk, text):
    asked = talk[-1][0] == "user"
    want = tokenizer.apply_chat_template(
        [{"role": role, "content": said} for role, said in talk], tokenize=False,
        add_generation_prompt=asked)
    if want != text + (chat["assistant"][0] if asked else ""):
        sys.exit(f"chat.json makes {text!r} of {talk}, and the template {want!r}")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    to = pathlib.Path(sys.argv[1])
    gguf = smollm2.path_of_gguf()
    load = transformers.AutoModelForCausalLM.from_pretrained
    theirs = load(gguf.parent, gguf_file=gguf.name, dtype=torch.float32).eval()
    check_weights(load(to, dtype=torch.float32), theirs)
    tokenizer = transformers.AutoTokenizer.from_pretrained(to)
    check_chat(tokenizer, json.loads((to / "chat.json").read_text()))
    ids = tokenizer(LICENCE.read_text())["input_ids"]
    tokens = torch.tensor(ids[:TOKENS])
    make_bpe.write_texts(tokenizers.Tokenizer.from_file(str(to / "tokenizer.json")),
                         to / "texts.txt", 135, 2000)
    with torch.no_grad():
        logits = theirs(tokens[None]).logits[0]
    save_file({"tokens": tokens.to(torch.int32), "logits": logits.contiguous()},
              to / "logits.safetensors")
    print(f"{len(tokens)} tokens; logits from {logits.min():.1f} to {logits.max():.1f}")


if __name__ == "__main__":
    main()
