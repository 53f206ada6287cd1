# SPDX-License-Identifier: Apache-2.0
"""Trains a small Llama whose tokens are bytes: byte_model.py DIR [STEPS]

For tests that need a model which uses its context, where nothing can be downloaded. It learns from the
licences and copyright files that every Debian has, and from two tasks that cannot be done without the
context: to copy random letters, and to recall the value of a key. Random numbers come from a seed.

Writes DIR/config.json and DIR/model.safetensors, which kvcache-worker and transformers load;
DIR/*.txt, texts that it was not trained with; DIR/report.json: the loss on such texts with the context
in order and with it shuffled, and how far the channels of K lie apart; and DIR/logits.safetensors of
a text. Exits with 1 if the model does not use its context. Needs torch and transformers.
"""
import json
import pathlib
import random
import sys
import time

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

SEED, STEPS, RATE, WARM = 22, 1200, 2.5e-3, 100
SHORT, LONG = (24, 128), (12, 256)  # rows and tokens of a step; LONG in the last FALL of the steps,
FALL = 0.25                         # in which the rate falls to nothing
TASKS = ("text", "copy", "recall")
HELD_OUT = ("Artistic", "CC0-1.0")
LETTERS = b"abcdefghijklmnopqrstuvwxyz"
ASKED = 64      # the bytes at the end of a text whose loss is measured
MEASURED = 32   # texts of each task
MARGIN = 1.0    # nats that the context must be worth where nothing else tells


# ---- texts ----


def texts():
    """Bytes to learn from, and bytes held out."""
    licences = pathlib.Path("/usr/share/common-licenses")
    files = sorted(p for p in licences.iterdir() if not p.is_symlink())
    held = b"".join(p.read_bytes() for p in files if p.name in HELD_OUT)
    read = [p.read_bytes() for p in files if p.name not in HELD_OUT]
    for path in sorted(pathlib.Path("/usr/share/doc").glob("*/copyright")):
        text = path.read_bytes()[:8192]
        if text not in read:
            read.append(text)
    if len(held) < 2 * LONG[1]:
        sys.exit(f"byte_model.py: {licences} has no {' and '.join(HELD_OUT)} (Debian: base-files)")
    return b"\n".join(read), held


def word(rng, n):
    return bytes(rng.choices(LETTERS, k=n))


def copy_text(rng, tokens, _):
    """A word of letters and once more the same; which bytes follow from what was before."""
    text, known = b"", []
    while len(text) <= tokens:
        letters = word(rng, rng.randint(4, tokens // 5))
        text += letters + b"|" + letters + b"\n"
        known += [0] * (len(letters) + 1) + [1] * (len(letters) + 1)
    return text[:tokens + 1], known[:tokens + 1]


def recall_text(rng, tokens, _):
    """Keys with values, then keys again, in any order, and their values."""
    values = {word(rng, 3): word(rng, 4) for _ in range(rng.randint(2, tokens // 20))}
    text = b"".join(key + b"=" + value + b"\n" for key, value in values.items())
    known, keys = [0] * len(text), list(values)
    while len(text) <= tokens:
        key = rng.choice(keys)
        text += b"?" + key + b"=" + values[key] + b"\n"
        known += [0] * 5 + [1] * 5
    return text[:tokens + 1], known[:tokens + 1]


def plain_text(rng, tokens, source):
    at = rng.randrange(len(source) - tokens)
    return source[at:at + tokens + 1], [1] * (tokens + 1)


MAKE = {"text": plain_text, "copy": copy_text, "recall": recall_text}


def batch(rng, tokens, source, tasks):
    made = [MAKE[task](rng, tokens, source) for task in tasks]
    return (torch.tensor([list(text) for text, _ in made]),
            torch.tensor([known for _, known in made], dtype=torch.float32))


# ---- training ----


def losses(model, tokens):
    """Of each byte but the first."""
    logits = model(tokens[:, :-1]).logits
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none").view(len(tokens), -1)


def train(source, steps):
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # the same sums wherever it runs
    rng = random.Random(SEED)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, initializer_range=0.06, max_position_embeddings=2048,
        bos_token_id=None, eos_token_id=None, tie_word_embeddings=True))
    adam = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.01)
    last = int(steps * FALL)
    rate = torch.optim.lr_scheduler.LambdaLR(
        adam, lambda n: min((n + 1) / WARM, 1.0, max(steps - n, 0) / last))
    began = time.monotonic()
    for step in range(steps):
        rows, length = SHORT if step < steps - last else LONG
        tokens, known = batch(rng, length, source, [TASKS[i % 3] for i in range(rows)])
        each, known = losses(model, tokens), known[:, 1:]
        loss = (each * known).sum() / known.sum()
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        rate.step()
        if (step + 1) % 50 == 0:
            of = [(each[i::3] * known[i::3]).sum() / known[i::3].sum() for i in range(3)]
            print(f"step {step + 1} of {steps}, {time.monotonic() - began:.0f} s, loss of "
                  + ", ".join(f"{t} {x:.2f}" for t, x in zip(TASKS, torch.stack(of).tolist())),
                  flush=True)
    return model.eval()


# ---- what came of it ----


def shuffled(rng, tokens):
    """All bytes before the last ASKED in another order."""
    tokens = tokens.clone()
    for row in tokens:
        order = list(range(len(row) - ASKED))
        rng.shuffle(order)
        row[:len(order)] = row[order]
    return tokens


def measure(model, held, to):
    """The loss of the last bytes, by task and context; the texts are written to files."""
    report = {}
    for task in TASKS:
        rng = random.Random(f"{SEED} {task}")
        tokens, known = batch(rng, LONG[1], held, [task] * MEASURED)
        for i, row in enumerate(tokens[:8]):
            (to / f"{task}{i}.txt").write_bytes(bytes(row.tolist()))
        known = known[:, -ASKED:]
        with torch.no_grad():
            report[task] = {
                order: round(float((losses(model, t)[:, -ASKED:] * known).sum() / known.sum()), 4)
                for order, t in (("in_order", tokens), ("shuffled", shuffled(rng, tokens)))}
    return report


def channels(model, tokens):
    """Of each layer's K: the largest channel's root mean square by the median channel's."""
    with torch.no_grad():
        cache = model(tokens, use_cache=True).past_key_values
        sizes = [layer.keys.square().mean((0, 2)).sqrt().flatten() for layer in cache.layers]
    return [round(float(s.max() / s.median()), 1) for s in sizes]


def save_logits(model, tokens, to):
    """As test_worker_llama wants them: what transformers computes of a text."""
    with torch.no_grad():
        logits = model(tokens[None]).logits[0]
    save_file({"tokens": tokens.to(torch.int32), "logits": logits.contiguous()},
              to / "logits.safetensors")


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    to = pathlib.Path(sys.argv[1])
    to.mkdir(parents=True, exist_ok=True)
    source, held = texts()
    steps = int(sys.argv[2]) if len(sys.argv) == 3 else STEPS
    model = train(source, steps)
    model.save_pretrained(to, safe_serialization=True)
    (to / "generation_config.json").unlink(missing_ok=True)
    tokens, _ = batch(random.Random(SEED), LONG[1], held, ["text"] * MEASURED)
    report = {"parameters": model.num_parameters(), "steps": steps,
              "loss": measure(model, held, to),
              "k_largest_by_median_channel": channels(model, tokens)}
    (to / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report))
    save_logits(model, tokens[0], to)
    blind = [task for task in ("copy", "recall")
             if report["loss"][task]["shuffled"] < report["loss"][task]["in_order"] + MARGIN]
    if blind:
        sys.exit(f"byte_model.py: {' and '.join(blind)}: the loss is as good with the context shuffled")


if __name__ == "__main__":
    main()
