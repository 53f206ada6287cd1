# SPDX-License-Identifier: Apache-2.0
"""What a config.json says about layers, heads and positions, by the names that families use.

``client/ctl/kv_config.c`` reads the same files for ``kvcachectl size``; a test compares the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import Any, NamedTuple

__all__ = [
    "ROPE_TYPES",
    "NotUnderstood",
    "RopeType",
    "first",
    "heads_of",
    "layers_of",
    "rope_types",
    "scheme_of",
]


class NotUnderstood(Exception):
    """The configuration has something that decides the result and is not known here."""


def first(config: Mapping[str, Any], names: Sequence[str], otherwise: Any = None) -> Any:
    """The first of several names that is there."""
    for name in names:
        if config.get(name) is not None:
            return config[name]
    if otherwise is None:
        raise NotUnderstood(f"none of {', '.join(names)} is in the configuration")
    return otherwise


# ---- layers

_TYPES = {
    "full_attention": "full",
    "attention": "full",
    "hybrid": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "state",
    "mamba": "state",
    "conv": "state",
    "recurrent": "state",
}
_LETTERS = {"*": "full", "M": "state", "-": "plain", "E": "plain"}
_PATTERN = {"L": "sliding", "G": "full"}
_BLOCKS = {"attention": "sliding", "recurrent": "state"}
# Which say which layers keep what, or share it. A file that has another one of them is refused.
_DECIDES = (
    "attn_type_list",
    "block_types",
    "linear_attn_config",
    "attention_types",
    "multi_query_group_num",
    "full_attn_idxs",
    "cla_share_factor",
    "attention_chunk_size",
    "attention_window_size",
    "attn_layer_list",
    "use_cla",
)


def _known(where: str, table: Mapping[Any, str], values: Sequence[Any]) -> list[str]:
    for value in values:
        if value not in table:
            known = ", ".join(map(str, table))
            raise NotUnderstood(f"{where} has {value!r}; known are {known}")
    return [table[value] for value in values]


def _every(total: int, period: int, rest: str) -> list[str]:
    """Every period-th layer is full."""
    return [rest if (i + 1) % period else "full" for i in range(total)]


def _numbered(total: int, full: Sequence[int], where: str) -> list[str]:
    """Layers of these numbers, from 0 or from 1, are full."""
    if len(set(full)) != len(full) or any(not 0 <= i <= total for i in full):
        raise NotUnderstood(f"{where} names a layer twice, or one that is none of {total}")
    return ["full"] * len(full) + ["state"] * (total - len(full))


def _explicit(config: Mapping[str, Any], total: int) -> list[str] | None:
    """Where the file has an entry for each layer."""
    linear = config.get("linear_attn_config") or {}
    if types := config.get("layer_types") or config.get("layers_block_type"):
        return _known("layer_types", _TYPES, types)
    if letters := config.get("hybrid_override_pattern"):
        return _known("hybrid_override_pattern", _LETTERS, letters)
    if flags := config.get("attn_type_list"):
        return _known("attn_type_list", {0: "state", 1: "full"}, flags)
    if ids := config.get("hybrid_layer_ids"):
        return _numbered(total, ids, "hybrid_layer_ids")
    if ids := linear.get("full_attn_layers"):
        return _numbered(total, ids, "linear_attn_config.full_attn_layers")
    if blocks := config.get("block_types"):
        return list(islice(cycle(_known("block_types", _BLOCKS, blocks)), total))
    return None


def _periodic(config: Mapping[str, Any], kind: str, total: int) -> tuple[list[str], str]:
    """Where a family has a rule; and the name of the field that says it."""
    pattern = "sliding_window_pattern"
    if config.get(pattern) is None:
        pattern = "_sliding_window_pattern"
    if kind.startswith("llama4") and config.get("attention_chunk_size"):
        if flags := config.get("no_rope_layers"):
            kinds = _known("no_rope_layers", {0: "full", 1: "chunked"}, flags)
            return kinds, "attention_chunk_size"
        interval = int(config.get("no_rope_layer_interval") or 4)
        return _every(total, interval, "chunked"), "attention_chunk_size"
    if period := config.get("attn_layer_period"):
        offset = int(config.get("attn_layer_offset", period - 1))
        return ["full" if i % period == offset else "state" for i in range(total)], ""
    if period := config.get("full_attention_interval"):
        return _every(total, int(period), "state"), ""
    if letters := config.get(pattern):
        if isinstance(letters, str):
            return list(islice(cycle(_known(pattern, _PATTERN, letters)), total)), pattern
        return _every(total, int(letters), "sliding"), pattern
    if kind in ("gemma3", "gemma3_text"):
        return _every(total, 6, "sliding"), ""
    if config.get("ssm_cfg") or kind.startswith(("mamba", "rwkv", "falcon_mamba")):
        return ["state"] * total, ""
    if not config.get("sliding_window") or not config.get("use_sliding_window", True):
        return ["full"] * total, ""
    if kind == "gemma2":
        return _every(total, 2, "sliding"), ""
    full = config.get("max_window_layers") if "use_sliding_window" in config else None
    whole = min(int(full or 0), total)
    return ["full"] * whole + ["sliding"] * (total - whole), ""


def layers_of(config: Mapping[str, Any], kind: str) -> tuple[dict[str, int], int]:
    """How many layers keep what, and the window in tokens.

    The kinds: "full", "sliding", "chunked", "state", and "plain" for layers that keep nothing.
    """
    total = int(first(config, ("num_hidden_layers", "n_layer", "num_layers", "n_layers")))
    kinds = _explicit(config, total)
    if kinds is None:
        kinds, used = _periodic(config, kind, total)
        for name, value in config.items():
            decides = name in _DECIDES or name.endswith("_pattern") or name.startswith("hybrid_")
            if decides and name != used and value not in (None, False):
                raise NotUnderstood(f"{name} says which layers keep what, and is not read here")
    if config.get("num_kv_shared_layers"):
        raise NotUnderstood("num_kv_shared_layers: layers that share KV are not read here")
    if len(kinds) != total:
        raise NotUnderstood(f"layer_types names {len(kinds)} layers, and there are {total}")
    counts = dict(Counter(kinds))
    window = 0
    if "sliding" in counts or "chunked" in counts:
        names = ("sliding_window", "attention_chunk_size", "attention_window_size")
        window = int(first(config, names, 0))
        if not window:
            raise NotUnderstood("layers slide, and sliding_window does not say how far")
    return counts, window


# ---- heads


def heads_of(config: Mapping[str, Any], kind: str) -> tuple[int, int]:
    """KV heads, and the elements of a head."""
    is_gemma3 = kind in ("gemma3", "gemma3_text")  # its files leave out what is usual
    heads = int(
        first(config, ("num_attention_heads", "n_head", "n_heads"), 8 if is_gemma3 else None)
    )
    hidden = int(first(config, ("hidden_size", "n_embd", "d_model")))
    names = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
    kv_heads = int(first(config, names, 4 if is_gemma3 else heads))
    if kind in ("falcon", "gpt_bigcode") and not config.get("new_decoder_architecture"):
        kv_heads = 1 if config.get("multi_query", True) else heads
    usual = 256 if kind.startswith("gemma") else hidden // heads
    size = int(first(config, ("head_dim", "attention_head_dim"), usual))
    if not config.get("kv_lora_rank") and (kv_heads > heads or heads % kv_heads):
        raise NotUnderstood(f"{kv_heads} KV heads do not divide the {heads} attention heads")
    return kv_heads, size


# ---- positions


class RopeType(NamedTuple):
    """A ``rope_type``.

    Attributes:
        scheme: the daemon's name.
        by_length: "" or what an engine may do by a sequence's length. "scales": transformers turns
            keys otherwise once a sequence is long; vLLM computes it once, for the model's length.
            "chooses": of two sets of factors.
    """

    scheme: str
    by_length: str = ""


ROPE_TYPES = {
    "default": RopeType("rope"),
    "proportional": RopeType("rope"),
    "mrope": RopeType("mrope"),
    "dynamic": RopeType("rope", "scales"),
    "linear": RopeType("rope-linear"),
    "yarn": RopeType("yarn"),
    "deepseek_yarn": RopeType("yarn"),
    "llama3": RopeType("llama3"),
    "longrope": RopeType("longrope", "chooses"),
    "su": RopeType("longrope", "chooses"),
}


def rope_types(parameters: object) -> set[str]:
    """The types that rope_parameters or rope_scaling names: one, or one for each type of layer."""
    if not isinstance(parameters, Mapping) or not parameters:
        return set()
    if "mrope_section" in parameters:
        return {"mrope"}
    named = parameters.get("rope_type") or parameters.get("type")
    nested = [v for v in parameters.values() if isinstance(v, Mapping)]
    if named is None and nested:
        return set[str]().union(*(rope_types(v) for v in nested))
    return {str(named or "default")}


def scheme_of(types: set[str]) -> str:
    """The daemon's name for layers of these types, all in :data:`ROPE_TYPES`."""
    schemes = {ROPE_TYPES[t].scheme for t in types}
    return min(schemes - {"rope"}, default="rope")
