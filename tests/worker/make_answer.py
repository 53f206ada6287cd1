# SPDX-License-Identifier: Apache-2.0
"""A model that answers every message with an eszett, and ends: make_answer.py DIR

Of bpe/digits it has the tokenizer and the chat. Its one layer adds nothing. A token's embedding says
whether it is the first byte of the eszett, the second one, or another; the head says what follows.
"""
import json
import pathlib
import shutil
import struct
import sys

HIDDEN = 16
VOCAB = 700


def rows_of(columns):
    """Row i is zero but for a one in columns[i]."""
    return [[float(c == columns.get(i)) for c in range(HIDDEN)] for i in range(VOCAB)]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    to, bpe = pathlib.Path(sys.argv[1]), pathlib.Path(__file__).parent / "bpe" / "digits"
    to.mkdir()
    for name in ("tokenizer.json", "chat.json"):
        shutil.copy(bpe / name, to)
    vocab = json.loads((bpe / "tokenizer.json").read_text())["model"]["vocab"]
    first, second, end = vocab["Ã"], vocab["Ł"], vocab["<|im_end|>"]  # C3 9F, as ByteLevel has them
    zero, ones = [[0.0] * HIDDEN] * HIDDEN, [1.0] * HIDDEN
    layer = "model.layers.0."
    tensors = {
        "model.embed_tokens.weight": rows_of({i: 0 for i in range(VOCAB)} | {first: 1, second: 2}),
        "lm_head.weight": rows_of({first: 0, second: 1, end: 2}),
        "model.norm.weight": ones,
        layer + "input_layernorm.weight": ones,
        layer + "post_attention_layernorm.weight": ones,
        **{f"{layer}self_attn.{w}_proj.weight": zero for w in "qkvo"},
        **{f"{layer}mlp.{w}_proj.weight": zero for w in ("gate", "up", "down")},
    }
    header, data = {}, b""
    for name, rows in tensors.items():
        shape = [len(rows), HIDDEN] if isinstance(rows[0], list) else [HIDDEN]
        numbers = sum(rows, []) if len(shape) == 2 else rows
        bytes_ = struct.pack(f"<{len(numbers)}f", *numbers)
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(data), len(data) + len(bytes_)]}
        data += bytes_
    text = json.dumps(header).encode()
    (to / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (to / "config.json").write_text(json.dumps({
        "model_type": "llama", "num_hidden_layers": 1, "hidden_size": HIDDEN,
        "num_attention_heads": 1, "intermediate_size": HIDDEN, "vocab_size": VOCAB,
        "max_position_embeddings": 1024}))


if __name__ == "__main__":
    main()
