# SPDX-License-Identifier: Apache-2.0
"""python -m kvcache_client.check MODEL_OR_CONFIG: what of a model's KV can be reused, and how.

MODEL_OR_CONFIG is a config.json as models are published with, its directory, or the name of a
model in the local Hugging Face cache; nothing is downloaded. Prints the namespace that follows and
whether reuse is sound: that is so when KV of a token depends on the tokens up to it alone.

  attention   must be causal: an encoder's KV changes with the text behind it
  positions   must not be embedded anew as the text grows (dynamic NTK does that)
  layers      full attention is cut at any block; a sliding window too, by the blocks in its window;
              a recurrent or linear layer has a state, which is right only where a prefill stopped

With --weights (torch and transformers) the prefix's KV is computed with and without a suffix, and
compared. Exit status: 0 sound, 1 not, 2 not understood.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kvcache_client._config import (
    ROPE_TYPES,
    NotUnderstood,
    heads_of,
    layers_of,
    rope_types,
    scheme_of,
)
from kvcache_client._types import Group

_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "fp8": 1}
_REFUSED = "dynamic-ntk"  # a scheme that the daemon refuses
_BIDIRECTIONAL = ("bert", "roberta", "electra", "deberta", "distilbert", "albert", "modernbert")


@dataclass
class Report:
    """What follows from a configuration.

    Attributes:
        layers: how many layers keep what: "full", "sliding", "chunked", "state", "plain" (nothing).
        token_bytes: KV bytes of one token in one attention layer, all ranks together.
        groups: of the namespace; a state's bytes are the engine's affair and not in here.
        unsound: why reuse would be wrong; empty: it is sound.
    """

    model: str
    dtype: str
    layers: dict[str, int]
    kv_heads: int
    head_size: int
    token_bytes: int
    window: int
    position: str
    position_params: str
    attention: str
    groups: list[Group]
    unsound: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def find_config(name: str) -> Path:
    """config.json of a file, a directory, or a model in the local Hugging Face cache."""
    path = Path(name)
    if path.is_file():
        return path
    if (path / "config.json").is_file():
        return path / "config.json"
    home = os.environ.get("HF_HOME", str(Path.home() / ".cache/huggingface"))
    hub = Path(os.environ.get("HF_HUB_CACHE", str(Path(home) / "hub")))
    found = sorted(hub.glob(f"models--{name.replace('/', '--')}/snapshots/*/config.json"))
    if not found:
        raise NotUnderstood(
            f"{name}: neither a config.json, nor its directory, nor a model in {hub}"
        )
    return found[-1]


def _position(config: Mapping[str, Any], unsound: list[str], notes: list[str]) -> tuple[str, str]:
    """Position scheme by the daemon's name, and its parameters as text."""
    kind = str(config.get("model_type", ""))
    if config.get("alibi") or kind in ("bloom", "mpt"):
        return "alibi", ""
    if (
        kind in ("gpt2", "opt", "gpt_bigcode")
        or config.get("position_embedding_type") == "absolute"
    ):
        return "learned", ""
    if kind in ("t5", "mt5"):
        return "relative", ""
    if kind.startswith(("mamba", "rwkv", "falcon_mamba")) or kind in ("jamba", "nemotron_h"):
        return "none", ""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    params = {
        k: config[k] for k in ("rope_theta", "partial_rotary_factor") if config.get(k)
    } | dict(rope)
    text = json.dumps(params, sort_keys=True, separators=(",", ":"))
    if len(text) > 255:  # longrope's factors
        text = hashlib.sha256(text.encode()).hexdigest()
    types = rope_types(rope) or {"default"}
    wrong = [
        f"position scheme {one!r} is not known"
        if one not in ROPE_TYPES
        else f"position scheme {one!r} embeds old positions anew as the sequence grows (vLLM "
        "computes it once, and is sound)"
        for one in sorted(types)
        if one not in ROPE_TYPES or ROPE_TYPES[one].by_length == "scales"
    ]
    unsound += wrong
    if any(one in ROPE_TYPES and ROPE_TYPES[one].by_length == "chooses" for one in types):
        notes.append(
            "longrope has two sets of factors: sound in an engine that chooses one at start"
        )
    return _REFUSED if wrong else scheme_of(types), text


def check(
    config: Mapping[str, Any], *, dtype: str = "", block_tokens: int = 16, ranks: int = 1
) -> Report:
    """What follows from a configuration (the object of config.json).

    Args:
        dtype: of KV: float32, float16, bfloat16 or fp8; empty: the model's.
        block_tokens: tokens in a block.
        ranks: tensor-parallel ranks that share the KV heads.
    """
    text = {**config, **(config.get("text_config") or config.get("llm_config") or {})}
    unsound: list[str] = []
    notes: list[str] = []
    kind = str(text.get("model_type", config.get("model_type", "model")))
    towards_both = text.get("use_bidirectional_attention") not in (None, False, "vision")
    if text.get("is_encoder_decoder") or towards_both or any(b in kind for b in _BIDIRECTIONAL):
        unsound.append(
            f"{kind}: tokens attend to later ones, so a prefix's KV depends on its suffix"
        )
    kv_type = dtype or str(text.get("dtype") or text.get("torch_dtype") or "bfloat16")
    if kv_type not in _BYTES:
        raise NotUnderstood(f"dtype {kv_type!r}; known are {', '.join(_BYTES)}")
    counts, window = layers_of(text, kind)
    attends = any(counts.get(k) for k in ("full", "sliding", "chunked"))
    kv_heads, head = heads_of(text, kind) if attends else (0, 0)
    latent = int(text.get("kv_lora_rank") or 0)
    elements = latent + int(text.get("qk_rope_head_dim") or 0) if latent else 2 * kv_heads * head
    token_bytes = elements * _BYTES[kv_type]
    if not latent and kv_heads and kv_heads % ranks and ranks % kv_heads:
        raise NotUnderstood(f"{kv_heads} KV heads do not divide among {ranks} ranks")
    shards = 1 if latent or not attends else min(ranks, kv_heads)
    full = counts.get("full", 0) + counts.get("chunked", 0)
    sliding = counts.get("sliding", 0)
    layer_bytes = block_tokens * token_bytes // shards
    groups = []
    if full:
        groups.append(Group(block_tokens, layer_bytes * full, replicated=bool(latent)))
    if sliding:
        groups.append(
            Group(block_tokens, layer_bytes * sliding, "window", window, replicated=bool(latent))
        )
    if counts.get("state"):
        notes.append(f"{counts['state']} layers keep a state: a group of rule 'state' beside these")
    if counts.get("chunked"):
        notes.append("layers with chunked attention are taken as full: sound, and more than needed")
    if latent:
        notes.append("MLA: a latent for all heads, the same on every tensor-parallel rank")
    position, params = _position(text, unsound, notes)
    attention = "bidirectional" if any("later ones" in u for u in unsound) else "causal"
    return Report(
        kind,
        kv_type,
        counts,
        kv_heads,
        latent or head,
        token_bytes,
        window,
        position,
        params,
        attention,
        groups,
        unsound,
        notes,
    )


def compare_weights(directory: str, tokens: int = 64) -> float:
    """Largest change of a prefix's KV when a suffix follows, relative to its largest entry."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    vocabulary = model.config.get_text_config().vocab_size
    ids = torch.randint(0, vocabulary, (1, 2 * tokens), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        alone = model(ids[:, :tokens], use_cache=True).past_key_values
        whole = model(ids, use_cache=True).past_key_values
    worst = 0.0
    for a, b in zip(alone.layers, whole.layers, strict=True):
        for x, y in ((a.keys, b.keys), (a.values, b.values)):
            # Layers that slide have the end of the sequence only.
            if y.shape[-2] == 2 * tokens:
                difference = (x - y[..., :tokens, :]).abs().max() / x.abs().max()
                worst = max(worst, float(difference))
    return worst


def text_of(report: Report) -> str:
    """The report for people."""
    kept = ", ".join(f"{n} {kind}" for kind, n in report.layers.items())
    lines = [
        f"model      {report.model}: layers {kept}",
        f"heads      {report.kv_heads} of KV, {report.head_size} elements each",
        f"KV         {report.dtype}, {report.token_bytes} bytes a token and layer",
        f"position   {report.position} {report.position_params}".rstrip(),
        f"attention  {report.attention}",
    ]
    for i, g in enumerate(report.groups):
        window = f" of {g.window} tokens" if g.window else ""
        lines.append(
            f"group {i}    blocks of {g.block_tokens} tokens, {g.block_bytes} bytes a rank, rule "
            f"{g.rule}{window}"
        )
    lines += [f"note       {note}" for note in report.notes]
    lines += [f"UNSOUND    {why}" for why in report.unsound] or ["reuse      sound: exact prefixes"]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m kvcache_client.check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", metavar="MODEL_OR_CONFIG")
    parser.add_argument("--dtype", default="", help="of KV: float32, float16, bfloat16, fp8")
    parser.add_argument("--block-tokens", type=int, default=16)
    parser.add_argument("--ranks", type=int, default=1, help="tensor-parallel ranks")
    parser.add_argument(
        "--weights", action="store_true", help="compare KV with and without a suffix"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    given = parser.parse_args(arguments)
    try:
        path = find_config(given.model)
        config = json.loads(path.read_text())
        report = check(
            config, dtype=given.dtype, block_tokens=given.block_tokens, ranks=given.ranks
        )
        worst = compare_weights(str(path.parent)) if given.weights else None
        if worst is not None and worst > 1e-4:
            report.unsound.append("the prefix's KV depends on what follows: --weights shows it")
        if given.json:
            values = {"sound": not report.unsound, "weights_differ": worst, **asdict(report)}
            print(json.dumps(values))
        else:
            print(text_of(report))
            if worst is not None:
                print(f"weights    a suffix changes KV by {worst:.1e} of its largest entry")
    except (NotUnderstood, OSError, ValueError) as error:
        print(f"not understood: {error}", file=sys.stderr)
        return 2
    return 1 if report.unsound else 0


if __name__ == "__main__":
    sys.exit(main())
