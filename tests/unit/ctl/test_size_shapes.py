#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`kvcachectl size` beside sizes that are worked out here, for the shapes of published models.

shapes.json has for each model the facts of its configuration, and apart from them what its layers
keep: [layers, KV heads, elements of a key, of a value, window], or for MLA
[layers, latent, rotary key, bytes of an index key].
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

CONTEXT = 10_000
BLOCK = 16
SHAPES = Path(__file__).with_name("shapes.json")


def tokens(window: int) -> int:
    """Tokens kept of a context, in whole blocks; 0: no window."""
    first = max(CONTEXT - window, 0) // BLOCK if window else 0
    return (-(-CONTEXT // BLOCK) - first) * BLOCK


def right(shape: dict, tp: int) -> tuple[int, int, int]:
    """Bytes of a token, of a context in all ranks, and of a context in one rank."""
    element = shape.get("element", 2)
    if "latent" in shape:
        layers, latent, rotary, index = shape["latent"]
        token = layers * ((latent + rotary) * element + index)
        return token, token * tokens(0) * tp, token * tokens(0)
    token = rank = 0
    for layers, heads, key, value, window in shape["keeps"]:
        token += layers * heads * (key + value) * element
        rank += layers * max(heads // tp, 1) * (key + value) * element * tokens(window)
    return token, rank * tp, rank


def splits(shape: dict, tp: int) -> bool:
    heads = [h for _, h, *_ in shape.get("keeps", [])]
    return all(h % tp == 0 or tp % h == 0 for h in heads)


def ask(program: str, path: Path, tp: int) -> subprocess.CompletedProcess:
    options = ["--config", path, "--context", CONTEXT, "--block-tokens", BLOCK, "--tp", tp]
    return subprocess.run(
        [program, "size", "--json", *map(str, options)],
        capture_output=True,
        text=True,
        check=False,
    )


def check(program: str, path: Path, shape: dict, tp: int) -> str:
    """What is wrong, or nothing."""
    ran = ask(program, path, tp)
    if not splits(shape, tp):
        told = ran.returncode == 2 and "--tp" in ran.stderr
        return "" if told else f"heads that cannot be split are not refused: {ran.stderr}"
    if ran.returncode != 0:
        return ran.stderr
    form = "MLA latents" if "latent" in shape else "K+V"
    (got,) = [f for f in json.loads(ran.stdout)["forms"] if f["form"] == form]
    have = (got["bytes_per_token"], got["context_bytes"], got.get("rank_context_bytes"))
    want = right(shape, tp)
    want = want if tp > 1 else (*want[:2], None)
    return "" if have == want else f"token, context and rank are {have}, and {want} would be right"


def main() -> int:
    program = sys.argv[1]
    # What Python writes where JSON has no number is in it, so it is cut as text.
    lines = [line.rstrip(",") for line in SHAPES.read_text().splitlines()[1:-1]]
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        for i, line in enumerate(lines):
            shape = json.loads(line)
            path.write_text(json.dumps(shape["config"]))
            for tp in (1, 8) if i % 10 == 0 else (1,):
                wrong = check(program, path, shape, tp)
                if wrong:
                    print(f"{shape['name']}, tp {tp}: {wrong}", file=sys.stderr)
                    bad += 1
    if len(lines) < 60:
        print(f"only {len(lines)} shapes", file=sys.stderr)
        bad += 1
    print(f"{len(lines)} shapes, {bad} wrong")
    return bad != 0


sys.exit(main())
