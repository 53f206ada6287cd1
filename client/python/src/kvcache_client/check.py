# SPDX-License-Identifier: Apache-2.0
"""python -m kvcache_client.check MODEL_OR_CONFIG: what of a model's KV can be reused, and how.

MODEL_OR_CONFIG is a config.json as models are published with, its directory, or the name of a
model in the local Hugging Face cache; nothing is downloaded. Prints the namespace that follows and
whether reuse is sound: that is so when KV of a token depends on the tokens up to it alone.

  attention   must be causal: an encoder's KV changes with the text behind it
  positions   must not be embedded anew as the text grows (dynamic NTK does that)
  layers      full attention is cut at any block; a sliding window too, by the blocks in its window;
              a recurrent or linear layer has a state, which is right only where a prefill stopped

Only architectures that are known here are called sound. A model_type that is not known is refused
by its name, and so is a key that may change the answer or the size. Sizes are those of 'kvcachectl
size'.

With --weights (torch and transformers) the prefix's KV is computed with and without a suffix, and
compared.

Exit status:
  0  sound
  1  unsound: UNSOUND says why
  2  the command line is wrong, or the file cannot be read or is no object of JSON
  3  not understood: a key or an architecture is named, and what to do
  4  this program failed: please report it
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import sys
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from kvcache_client import _kvc
from kvcache_client._config import NotUnderstood
from kvcache_client._sound import soundness_of
from kvcache_client._types import Group, Rule

_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "fp8": 1}
# As others write them; the extension gives the short ones.
_SHORT = {"fp32": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16"}
_FILE_MAX = 16 << 20
_RANKS_MAX = 1024


class NoConfiguration(Exception):
    """What was named is no file that can be read, or no object of JSON."""


@dataclass
class Report:
    """What follows from a configuration.

    Attributes:
        layers: how many layers keep what: "full", "sliding", "state", "plain" (nothing), "shared"
            (they use KV of others). Empty: not read, for reuse is unsound anyway.
        kv_heads: None where layers differ, as for head_size and token_bytes.
        head_size: elements of a key; with MLA those of a latent.
        token_bytes: KV bytes of one token in one attention layer, all ranks together, with what is
            kept beside KV (keys of an indexer).
        window: the longest one.
        groups: of the namespace; a state's bytes are the engine's affair and not in here.
        unsound: why reuse would be wrong; empty: it is sound.
    """

    model: str
    dtype: str = ""
    layers: dict[str, int] = field(default_factory=dict)
    kv_heads: int | None = 0
    head_size: int | None = 0
    token_bytes: int | None = 0
    window: int = 0
    position: str = ""
    position_params: str = ""
    attention: str = "causal"
    groups: list[Group] = field(default_factory=list)
    unsound: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def find_config(name: str) -> Path:
    """config.json of a file, a directory, or a model in the local Hugging Face cache."""
    if not name:
        raise NoConfiguration(
            "the name is empty: a config.json, its directory, or the name of a model was expected"
        )
    path = Path(name)
    if path.is_file():
        return path
    if (path / "config.json").is_file():
        return path / "config.json"
    if path.is_dir():
        raise NoConfiguration(f"{name}: a directory without a config.json")
    if path.exists():
        raise NoConfiguration(f"{name}: neither a file nor a directory")
    home = os.environ.get("HF_HOME", os.path.expanduser("~/.cache/huggingface"))
    hub = Path(os.environ.get("HF_HUB_CACHE", str(Path(home) / "hub")))
    found = sorted((hub / f"models--{name.replace('/', '--')}").glob("snapshots/*/config.json"))
    if not found:
        raise NoConfiguration(
            f"{name}: neither a config.json, nor its directory, nor a model in {hub}"
        )
    return found[-1]


def _read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        text = file.read(_FILE_MAX + 1)
    if len(text) > _FILE_MAX:
        raise NoConfiguration(f"{path}: has more than {_FILE_MAX >> 20} MiB")
    return text


# ---- sizes


class _Layer(NamedTuple):
    kind: str
    window: int
    heads: int
    key: int
    value: int
    side: int


class _Model(NamedTuple):
    """What the extension reads of a configuration: see ext/model.c."""

    name: str
    layers: list[_Layer]
    latent: int
    rotary: int
    dtype: str
    stated: str

    def keepers(self) -> list[_Layer]:
        """Layers that keep KV."""
        return [layer for layer in self.layers if layer.kind in ("full", "sliding")]

    def token_bytes(self, layer: _Layer, element: int, ranks: int) -> int:
        """Of one token in this layer and one of so many ranks."""
        if self.latent:
            return (self.latent + self.rotary) * element + layer.side
        heads = max(layer.heads // ranks, 1)
        return heads * (layer.key + layer.value) * element + layer.side


def _read_model(text: bytes, name: str) -> tuple[_Model | None, str, str]:
    """The model; where the text model is in the file; why there is no model, or nothing."""
    try:
        kind, layers, latent, rotary, dtype, stated, inside = _kvc.model_read(text, name)
    except ValueError as error:
        code, why, inside = error.args
        if code == -errno.EBADMSG:
            raise NoConfiguration(why) from None
        return None, inside, why
    of_layers = [_Layer(*layer) for layer in layers]
    return _Model(kind, of_layers, latent, rotary, dtype, stated), inside, ""


def _dtype_of(model: _Model, asked: str) -> str:
    name = (asked or model.dtype).removeprefix("torch.")
    name = _SHORT.get(name, name)
    if not name and model.stated:
        raise NotUnderstood(
            f"{model.stated}: KV in a type that has no name here; choose one with --dtype: "
            f"{', '.join(_BYTES)}"
        )
    if name and name not in _BYTES:
        raise ValueError(f"--dtype {asked}: known are {', '.join(_BYTES)}")
    return name or "bfloat16"


def _check_ranks(model: _Model, ranks: int) -> None:
    for heads in {layer.heads for layer in model.keepers()} - {0}:
        if heads % ranks and ranks % heads:
            raise ValueError(f"--ranks {ranks}: {heads} KV heads do not divide among them")


def _groups_of(model: _Model, element: int, block_tokens: int, ranks: int) -> list[Group]:
    bytes_of: dict[tuple[str, int], int] = {}
    for layer in model.keepers():
        key = (layer.kind, layer.window)
        bytes_of[key] = bytes_of.get(key, 0) + model.token_bytes(layer, element, ranks)
    groups = []
    for (kind, window), of_token in sorted(bytes_of.items()):
        size = of_token * block_tokens
        if size > _kvc.BLOCK_BYTES_MAX:
            raise ValueError(
                f"--block-tokens {block_tokens}: a block of {size} bytes, and the daemon takes "
                f"{_kvc.BLOCK_BYTES_MAX} at most"
            )
        rule: Rule = "window" if kind == "sliding" else "full"
        groups.append(Group(block_tokens, size, rule, window, replicated=bool(model.latent)))
    return groups


def _one(values: set[int]) -> int | None:
    """The only one; 0: there is none, None: there are several."""
    return values.pop() if len(values) == 1 else None if values else 0


def _size_notes(model: _Model, counts: Mapping[str, int]) -> list[str]:
    notes = []
    if counts.get("state"):
        notes.append(f"{counts['state']} layers keep a state: a group of rule 'state' beside these")
    if counts.get("shared"):
        notes.append(f"{counts['shared']} layers use KV of others and keep none")
    if model.latent:
        notes.append("MLA: a latent for all heads, the same on every tensor-parallel rank")
    if any(layer.side for layer in model.layers):
        notes.append("an indexer keeps keys beside KV; they are counted in")
    return notes


def _levels_of(config: Mapping[str, Any], inside: str) -> list[Mapping[str, Any]]:
    """The object of the file, and those within it down to the text model's."""
    levels = [config]
    for name in filter(None, inside.split(".")):
        levels.append(levels[-1][name])
    return levels


def _parsed(text: bytes, name: str) -> Mapping[str, Any]:
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NoConfiguration(f"{name}: not JSON: {error}") from None
    if not isinstance(config, dict):
        raise NoConfiguration(f"{name}: an object was expected, as config.json of a model has it")
    return config


# ---- the report


def _report_of(model: _Model, dtype: str, block_tokens: int, ranks: int) -> Report:
    """Sizes alone."""
    kv_type = _dtype_of(model, dtype)
    _check_ranks(model, ranks)
    counts = dict(Counter(layer.kind for layer in model.layers))
    kept = model.keepers()
    return Report(
        model=model.name,
        dtype=kv_type,
        layers=counts,
        kv_heads=_one({layer.heads for layer in kept}),
        head_size=model.latent or _one({layer.key for layer in kept}),
        token_bytes=_one({model.token_bytes(layer, _BYTES[kv_type], 1) for layer in kept}),
        window=max((layer.window for layer in kept), default=0),
        groups=_groups_of(model, _BYTES[kv_type], block_tokens, ranks),
        notes=_size_notes(model, counts),
    )


def check_text(
    text: bytes,
    name: str,
    *,
    dtype: str = "",
    block_tokens: int = 16,
    ranks: int = 1,
    as_type: str = "",
) -> Report:
    """What follows from the text of a config.json; ``name`` is for messages. See :func:`check`."""
    if not 1 <= block_tokens <= _kvc.BLOCK_TOKENS_MAX:
        raise ValueError(
            f"--block-tokens {block_tokens}: from 1 to {_kvc.BLOCK_TOKENS_MAX} was expected"
        )
    if not 1 <= ranks <= _RANKS_MAX:
        raise ValueError(f"--ranks {ranks}: from 1 to {_RANKS_MAX} was expected")
    model, inside, why = _read_model(text, name)
    levels = _levels_of(_parsed(text, name), inside)
    found = soundness_of(levels, as_type.lower())
    if model is not None:
        report = _report_of(model, dtype, block_tokens, ranks)
    elif found.unsound:
        kind = str(levels[-1].get("model_type") or levels[0].get("model_type"))
        report = Report(model=kind, notes=[f"sizes are not read: {why}"])
    else:
        raise NotUnderstood(why)
    report.position, report.position_params = found.position, found.position_params
    report.attention = "causal" if found.causal else "bidirectional"
    report.unsound = found.unsound
    report.notes += found.notes
    return report


def check(
    config: Mapping[str, Any],
    *,
    dtype: str = "",
    block_tokens: int = 16,
    ranks: int = 1,
    as_type: str = "",
) -> Report:
    """What follows from a configuration (the object of config.json).

    Args:
        dtype: of KV: float32, float16, bfloat16 or fp8; empty: what the configuration says.
        block_tokens: tokens in a block.
        ranks: tensor-parallel ranks that share the KV heads.
        as_type: a model_type that the text model attends and embeds positions like.

    Raises:
        NotUnderstood: a key or an architecture that decides the answer is not known.
        NoConfiguration: it is no object of JSON.
        ValueError: another argument.
    """
    try:
        text = json.dumps(config).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise NoConfiguration(f"the configuration is not JSON: {error}") from None
    return check_text(
        text,
        "the configuration",
        dtype=dtype,
        block_tokens=block_tokens,
        ranks=ranks,
        as_type=as_type,
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
        if getattr(a, "keys", None) is None:
            continue  # a state
        for x, y in ((a.keys, b.keys), (a.values, b.values)):
            # Layers that slide have the end of the sequence only.
            if y.shape[-2] == 2 * tokens:
                difference = (x - y[..., :tokens, :]).abs().max() / x.abs().max()
                worst = max(worst, float(difference))
    return worst


def _or_differs(value: int | None) -> str:
    return "(layers differ)" if value is None else str(value)


def _heads_of(report: Report) -> str:
    if report.kv_heads == 0:
        return f"latents of {report.head_size} elements" if report.head_size else "none of KV"
    return f"{_or_differs(report.kv_heads)} of KV, {_or_differs(report.head_size)} elements each"


def text_of(report: Report) -> str:
    """The report for people."""
    lines = [f"model      {report.model}"]
    if report.layers:
        kept = ", ".join(f"{n} {kind}" for kind, n in report.layers.items())
        lines = [
            f"model      {report.model}: layers {kept}",
            f"heads      {_heads_of(report)}",
            f"KV         {report.dtype}, {_or_differs(report.token_bytes)} bytes a token and layer",
        ]
    if report.position:
        lines.append(f"position   {report.position} {report.position_params}".rstrip())
    lines.append(f"attention  {report.attention}")
    for i, g in enumerate(report.groups):
        window = f" of {g.window} tokens" if g.window else ""
        lines.append(
            f"group {i}    blocks of {g.block_tokens} tokens, {g.block_bytes} bytes a rank, rule "
            f"{g.rule}{window}"
        )
    lines += [f"note       {note}" for note in report.notes]
    lines += [f"UNSOUND    {why}" for why in report.unsound] or ["reuse      sound: exact prefixes"]
    return "\n".join(_one_line(line) for line in lines)


def _one_line(text: str) -> str:
    """Without what could steer a terminal: names come from files."""
    return "".join(c if c.isprintable() else "?" for c in text)


# ---- the command


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kvcache_client.check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", metavar="MODEL_OR_CONFIG")
    parser.add_argument(
        "--dtype", default="", help="of KV: float32, float16, bfloat16, fp8 (the file's)"
    )
    parser.add_argument(
        "--block-tokens",
        type=int,
        default=16,
        help=f"tokens in a block, up to {_kvc.BLOCK_TOKENS_MAX} (16)",
    )
    parser.add_argument("--ranks", type=int, default=1, help="tensor-parallel ranks (1)")
    parser.add_argument(
        "--as",
        dest="as_type",
        metavar="TYPE",
        default="",
        help="the text model attends and embeds positions like this model_type, say llama: for "
        "architectures that are not known",
    )
    parser.add_argument(
        "--weights", action="store_true", help="compare KV with and without a suffix"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    return parser


def _weights(directory: str) -> float:
    try:
        return compare_weights(directory)
    # Whatever torch, transformers or the model's own code raises.
    except Exception as error:
        raise NotUnderstood(f"--weights: {type(error).__name__}: {error}") from error


def _print(report: Report, worst: float | None, as_json: bool) -> None:
    if as_json:
        values = {"sound": not report.unsound, "weights_differ": worst, **asdict(report)}
        print(json.dumps(values))
        return
    print(text_of(report))
    if worst is not None:
        print(f"weights    a suffix changes KV by {worst:.1e} of its largest entry")


def _refuse(status: int, kind: str, error: Exception, as_json: bool) -> int:
    why = _one_line(" ".join(str(error).split()))
    if as_json:
        print(json.dumps({"sound": None, kind.replace(" ", "_"): why}))
    print(f"{kind}: {why}", file=sys.stderr)
    return status


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: its exit status."""
    given = _parser().parse_args(arguments)
    try:
        path = find_config(given.model)
        report = check_text(
            _read_file(path),
            os.fsencode(path).decode(errors="replace"),
            dtype=given.dtype,
            block_tokens=given.block_tokens,
            ranks=given.ranks,
            as_type=given.as_type,
        )
        worst = _weights(str(path.parent)) if given.weights else None
        if worst is not None and not worst <= 1e-4:
            report.unsound.append("the prefix's KV depends on what follows: --weights shows it")
        _print(report, worst, given.json)
    except NotUnderstood as error:
        return _refuse(3, "not understood", error, given.json)
    except (NoConfiguration, OSError, ValueError) as error:
        return _refuse(2, "wrong", error, given.json)
    return 1 if report.unsound else 0


def _run() -> int:
    """A traceback must not end with the status of another answer."""
    try:
        return main()
    except Exception:
        traceback.print_exc()
        return 4


if __name__ == "__main__":
    sys.exit(_run())
