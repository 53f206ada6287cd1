# SPDX-License-Identifier: Apache-2.0
"""What a configuration says about a model's KV: layers, bytes, positions, and if reuse is sound."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from kvcache_client._types import Group, Rule

__all__ = ["Facts", "Finding", "Layer", "facts_of", "layers_of", "weights_digest"]

Verdict = Literal["sound", "limited", "refused", "unknown"]

# Models whose positions are not in rope_parameters.
_POSITIONS = {
    "bloom": "alibi",
    "codegen": "rope",
    "gpt2": "learned",
    "gpt_bigcode": "learned",
    "gpt_neo": "learned",
    "gptj": "rope",
    "jamba": "none",
    "mpt": "alibi",
    "opt": "learned",
    "xglm": "sinusoidal",
}
_ROPES = {
    "default": "rope",
    "dynamic": "dynamic-ntk",
    "linear": "rope-linear",
    "llama3": "llama3",
    "longrope": "longrope",
    "proportional": "rope",
    "yarn": "yarn",
}
_PARAMS_MAX = 255  # bytes of position_params in a namespace


@dataclass(frozen=True)
class Finding:
    """One fact of the configuration, and what follows for reuse."""

    fact: str
    verdict: Verdict
    why: str


@dataclass(frozen=True)
class Layer:
    """The KV of one layer.

    Attributes:
        index: of the layer in the cache.
        rule: which blocks a hit needs.
        window: tokens before the next one that it sees; for the window rule only.
        keys, values: (heads, head size).
        element_bytes: of an entry.
    """

    index: int
    rule: Rule
    window: int
    keys: tuple[int, int]
    values: tuple[int, int]
    element_bytes: int

    @property
    def bytes_per_token(self) -> int:
        """Bytes of keys and values of one token."""
        entries = self.keys[0] * self.keys[1] + self.values[0] * self.values[1]
        return entries * self.element_bytes


@dataclass(frozen=True)
class Facts:
    """All that a namespace needs.

    Attributes:
        layers: empty: not known.
        position, position_params: scheme and parameters, as of a namespace.
        limit_tokens: sequences up to this length share prefixes; 0 = of any length.
        findings: facts, each with its verdict.
    """

    model: str
    layers: tuple[Layer, ...]
    position: str
    position_params: str
    limit_tokens: int
    dtype: str
    findings: tuple[Finding, ...] = field(default=())

    @property
    def refused(self) -> list[str]:
        """Why KV of this model is not reused; empty: it can be."""
        return [f"{f.fact}: {f.why}" for f in self.findings if f.verdict in ("refused", "unknown")]

    @property
    def bytes_per_token(self) -> int:
        """Of all layers."""
        return sum(layer.bytes_per_token for layer in self.layers)

    def layer_groups(self) -> list[list[Layer]]:
        """Layers that share a rule, in order of their first layer."""
        groups: dict[tuple[Rule, int], list[Layer]] = {}
        for layer in self.layers:
            groups.setdefault((layer.rule, layer.window), []).append(layer)
        return list(groups.values())

    def groups(self, block_tokens: int) -> list[Group]:
        """The groups of the namespace."""
        return [
            Group(
                block_tokens,
                block_tokens * sum(layer.bytes_per_token for layer in layers),
                layers[0].rule,
                layers[0].window,
            )
            for layers in self.layer_groups()
        ]


def facts_of(config: Any, layers: tuple[Layer, ...], dtype: str, model: str = "") -> Facts:
    """The facts of a configuration (``PreTrainedConfig``) whose layers are known."""
    text = config.get_text_config(decoder=True)
    findings = list(_attention(config, text))
    position, params, limit, more = _position(text)
    findings += more
    findings += _layer_findings(text, layers)
    name = model or getattr(config, "_name_or_path", "") or getattr(config, "model_type", "model")
    return Facts(name, layers, position, params, limit, dtype, tuple(findings))


def _attention(config: Any, text: Any) -> Iterator[Finding]:
    if getattr(config, "is_encoder_decoder", False):
        yield Finding(
            "is_encoder_decoder = true",
            "refused",
            "the encoder sees all tokens at once: a cached prefix is wrong for another text, and "
            "the decoder's KV depends on the whole of the encoder's input",
        )
        return
    bidirectional = getattr(text, "use_bidirectional_attention", None)
    if bidirectional and bidirectional != "vision":
        yield Finding(
            f"use_bidirectional_attention = {bidirectional}",
            "refused",
            "later tokens change the KV of earlier ones",
        )
        return
    masked = text.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if masked and not getattr(text, "is_decoder", False):
        yield Finding(
            f"model_type = {text.model_type}, is_decoder = false",
            "refused",
            "an encoder: later tokens change the KV of earlier ones",
        )
        return
    yield Finding(
        f"model_type = {text.model_type}",
        "sound",
        "causal attention: the KV of a token depends on the tokens up to it alone",
    )
    if config is not text:
        yield Finding(
            "a configuration of several modalities",
            "limited",
            "token ids do not say what an image or a sound is: give its hash as extra of the keys",
        )


def _position(text: Any) -> tuple[str, str, int, list[Finding]]:
    rope = getattr(text, "rope_parameters", None)
    if text.model_type == "falcon" and getattr(text, "alibi", False):
        rope = None
        scheme = "alibi"
    else:
        scheme = _POSITIONS.get(text.model_type, "")
    if not rope:
        if not scheme:
            why = "the position scheme is not known: give position="
            return "", "", 0, [Finding("no rope_parameters", "unknown", why)]
        finding = Finding(f"model_type = {text.model_type}", "sound", f"positions: {scheme}")
        return scheme, "", 0, [finding]
    kinds = list(rope.values()) if all(isinstance(v, Mapping) for v in rope.values()) else [rope]
    kinds = [k for k in kinds if k]
    found = [_rope(k) for k in kinds]
    findings = [f for _, _, f in found]
    limit = min((at for _, at, _ in found if at), default=0)
    schemes = [s for s, _, _ in found]
    first = next((s for s in schemes if s == "dynamic-ntk"), None)
    scheme = first or next((s for s in schemes if s != "rope"), "rope")
    return scheme, _params(rope), limit, findings


def _rope(parameters: Mapping[str, Any]) -> tuple[str, int, Finding]:
    """Scheme, limit in tokens, finding."""
    kind = str(parameters.get("rope_type", "default"))
    fact = f"rope_type = {kind}"
    scheme = _ROPES.get(kind, "")
    if not scheme:
        return "", 0, Finding(fact, "unknown", "no scheme that is known here")
    if scheme == "dynamic-ntk":
        why = "the rotation of all positions is scaled anew as the sequence grows"
        return scheme, 0, Finding(fact, "refused", why)
    if scheme == "longrope":
        limit = int(parameters.get("original_max_position_embeddings") or 0)
        why = (
            f"transformers takes other factors for all positions of a forward pass that goes "
            f"beyond {limit} tokens: only sequences up to there share their prefixes"
        )
        return scheme, limit, Finding(f"{fact}, original length {limit}", "limited", why)
    if "mrope_section" in parameters:
        scheme = "mrope"
    why = f"a key is rotated by its own position alone ({scheme})"
    return scheme, 0, Finding(fact, "sound", why)


def _params(rope: Mapping[str, Any]) -> str:
    text = json.dumps(rope, sort_keys=True, separators=(",", ":"), default=str)
    if len(text.encode()) <= _PARAMS_MAX:
        return text
    return "sha256:" + sha256(text.encode()).hexdigest()


def _layer_findings(text: Any, layers: tuple[Layer, ...]) -> Iterator[Finding]:
    types = list(getattr(text, "layer_types", None) or [])
    other = sorted({t for t in types if t not in _ATTENTION_TYPES})
    for kind in other:
        at = [i for i, t in enumerate(types) if t == kind]
        yield Finding(
            f"layer_types: {kind} in layers {_ranges(at)}",
            "refused",
            "such a layer keeps a state of the whole sequence, which is there only where a prefill "
            "stopped: it cannot be cut to a shorter prefix",
        )
    if other:
        return
    windows = sorted({layer.window for layer in layers if layer.rule == "window"})
    for window in windows:
        at = [layer.index for layer in layers if layer.window == window]
        yield Finding(
            f"a window of {window + 1} tokens in layers {_ranges(at)}",
            "sound",
            f"a hit needs the blocks of the last {window} tokens in these layers, and in the "
            "others all",
        )


_ATTENTION_TYPES = ("full_attention", "sliding_attention", "chunked_attention")


def _ranges(numbers: list[int]) -> str:
    parts: list[list[int]] = []
    for n in numbers:
        if parts and n == parts[-1][1] + 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in parts]
    return ", ".join(shown[:12]) + (", ..." if len(shown) > 12 else "")


def layers_of(model: Any) -> tuple[tuple[Layer, ...], str]:
    """Layers and the dtype of their KV, from a forward pass of one token.

    The model may be on the meta device: shapes are all that is read.

    Raises:
        ValueError: a layer keeps something else than keys and values.
    """
    text = model.config.get_text_config(decoder=True)
    cache = DynamicCache(config=text)
    ids = torch.zeros((1, 1), dtype=torch.long, device=model.device)
    with torch.no_grad():
        model.base_model(input_ids=ids, past_key_values=cache, use_cache=True)
    layers: list[Layer] = []
    dtypes = set()
    for index, one in enumerate(cache.layers):
        if type(one) not in (DynamicLayer, DynamicSlidingWindowLayer):
            raise ValueError(f"layer {index} is a {type(one).__name__}, and no attention layer")
        if one.keys is None or one.keys.numel() == 0:
            raise ValueError(f"layer {index} keeps no keys")
        is_window = isinstance(one, DynamicSlidingWindowLayer)
        _, heads, _, size = one.keys.shape
        _, v_heads, _, v_size = one.values.shape
        dtypes.add(one.keys.dtype)
        layers.append(
            Layer(
                index,
                "window" if is_window else "full",
                max(1, one.sliding_window - 1) if is_window else 0,
                (heads, size),
                (v_heads, v_size),
                one.keys.element_size(),
            )
        )
    if len(dtypes) != 1:
        raise ValueError(f"KV of one dtype was expected, and not {sorted(map(str, dtypes))}")
    return tuple(layers), str(dtypes.pop()).removeprefix("torch.")


def weights_digest(model: Any) -> str:
    """32 hexadecimal digits that differ when the weights do.

    Of every parameter its name, shape and up to 1,024 of its entries, evenly spaced, are read:
    another checkpoint, a fine-tuned or merged one differs; a single edited entry may not be seen.
    """
    digest = sha256()
    for name, parameter in sorted(model.named_parameters()):
        flat = parameter.detach().reshape(-1)
        some = flat[:: max(1, flat.numel() // 1024)][:1024].float().cpu().contiguous()
        digest.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}\n".encode())
        digest.update(some.numpy().tobytes())
    return digest.hexdigest()[:32]
