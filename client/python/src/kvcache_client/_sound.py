# SPDX-License-Identifier: Apache-2.0
"""Whether KV of a prefix can be reused: what architecture and keys of a config.json decide.

Three answers: sound, unsound with the reason, and :class:`NotUnderstood`, which names what would
decide and is not known here.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvcache_client._config import ROPE_TYPES, NotUnderstood, rope_types, scheme_of
from kvcache_client._models import CAUSAL, IMAGES_SEE_THEMSELVES, NOT_CAUSAL, WRAPPERS

__all__ = ["Soundness", "soundness_of"]

_REFUSED = "dynamic-ntk"  # a scheme that the daemon refuses
_PARAMS_MAX = 255

# What code of which name makes: a next token.
_HEADS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "InternVLChatModel")
_HEADS_OF_OTHERS = ("Bidirectional", "Diffusion", "Masked", "Encoder", "BiModel")

# A key with one of these in its name may decide what attends to what, or where a token is.
_SUSPICIOUS = (
    "alibi",
    "bidirection",
    "causal",
    "denois",
    "diffusion",
    "mask",
    "nope",
    "ntk",
    "pos_emb",
    "position",
    "prefix",
    "rope",
    "rotary",
)
# In what is around a text model, which is mostly about images and sound.
_SUSPICIOUS_AROUND = ("bidirection", "causal", "denois", "diffusion", "prefix_lm")

# Read below.
_FLAGS = (
    "alibi",
    "is_causal",
    "is_decoder",
    "is_encoder_decoder",
    "learned_pos_emb",  # of MPT, which has ALiBi instead
    "position_embedding_type",
    "rope_parameters",
    "rope_scaling",
    "use_alibi",
    "use_bidirectional_attention",
    "use_dynamic_ntk",
    "use_mem_rope",
)
# How keys are rotated: parts of the parameters.
_ROTATION = (
    "compress_rope_theta",
    "global_partial_rotary_factor",
    "global_rope_theta",
    "layer_rope_theta",
    "local_rope_theta",
    "no_rope_layer_interval",
    "no_rope_layers",
    "partial_rotary_factor",
    "partial_rotary_factors",
    "rope_interleave",
    "rope_local_base_freq",
    "rope_pct",
    "rope_ratio",
    "rope_theta",
    "rotary_base",
    "rotary_dim",
    "rotary_emb_base",
    "rotary_pct",
    "swa_partial_rotary_factor",
    "swa_rope_theta",
)
# Known to leave both alone.
_HARMLESS = (
    "alibi_bias_max",
    "kv_cache_scheme",
    "mask_token_id",
    "max_position_embeddings",
    "mla_use_nope",
    "n_positions",
    "original_max_position_embeddings",
    "position_id_per_seconds",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "rope_is_neox_style",
    "rope_position_scale",
    "rotary_emb_fraction",
    "rotary_scaling_factor",
)
# position_embedding_type -> scheme; "rope": by the parameters of rotation.
_EMBEDDINGS = {
    "absolute": "learned",
    "alibi": "alibi",
    "learned": "learned",
    "none": "none",
    "nope": "none",
    "rope": "rope",
    "rotary": "rope",
}
_ANEW = "embeds old positions anew as the sequence grows (vLLM computes it once, and is sound)"


@dataclass
class Soundness:
    """What decides reuse.

    Attributes:
        position: scheme, by the daemon's name; empty: not known, for reuse is unsound anyway.
        position_params: its parameters, as text.
        causal: no token attends to a later one.
        unsound: why reuse would be wrong; empty: it is sound.
        notes: what a user has to see to.
    """

    position: str = ""
    position_params: str = ""
    causal: bool = True
    unsound: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def later(self, why: str) -> None:
        """Tokens attend to later ones."""
        self.causal = False
        self.unsound.append(f"{why}, so a prefix's KV depends on its suffix")


def _is_off(value: object) -> bool:
    return value is None or value is False or value in (0, "", [], {})


def _boolean(config: Mapping[str, Any], key: str) -> bool | None:
    value = config.get(key)
    if value is None or isinstance(value, bool):
        return value
    raise NotUnderstood(f"{key} is {value!r}: true or false was expected")


# ---- what attends to what


def _type_of(config: Mapping[str, Any]) -> str:
    kind = config.get("model_type")
    if kind is not None and not isinstance(kind, str):
        raise NotUnderstood(f"model_type is {kind!r}: a name was expected")
    return (kind or "").lower()


def _unknown(kind: str) -> NotUnderstood:
    return NotUnderstood(
        f"model_type {kind!r} is not among the {len(CAUSAL)} architectures that are known to be "
        "causal decoders here. If no token attends to a later one and positions are embedded once, "
        "say which of them it is like: --as llama (keys are rotated), --as gpt2 (learned), "
        "--as bloom (ALiBi), --as mamba (none)"
        if kind
        else "model_type: the configuration names no architecture; say which it is like: --as llama"
    )


def _judge_types(levels: Sequence[Mapping[str, Any]], as_type: str, found: Soundness) -> str:
    """The text model's type, in :data:`CAUSAL`; "": it is not causal."""
    kinds = [_type_of(level) for level in levels]
    for level, kind in zip(levels, kinds, strict=True):
        if kind in NOT_CAUSAL:
            if _boolean(level, "is_decoder"):
                raise NotUnderstood(f"is_decoder: {kind} as a decoder is not known here")
            found.later(f"{kind} is {NOT_CAUSAL[kind]}")
            return ""
    if as_type:
        if as_type not in CAUSAL:
            raise NotUnderstood(f"--as {as_type}: this one is not known either")
        return as_type
    named = [i for i, kind in enumerate(kinds) if kind]
    if not named:
        raise _unknown("")
    text = kinds[named[-1]]
    if text not in CAUSAL and (text in WRAPPERS or text in IMAGES_SEE_THEMSELVES):
        raise NotUnderstood(
            f"{text} has a text model, and text_config says neither num_hidden_layers nor a "
            "model_type; or say which it is like: --as llama"
        )
    if text not in CAUSAL:
        raise _unknown(text)
    around = kinds[: named[-1]]
    for kind in around:
        if kind and kind not in WRAPPERS and kind not in IMAGES_SEE_THEMSELVES:
            raise _unknown(kind)
    if any(kind in IMAGES_SEE_THEMSELVES for kind in kinds):
        found.notes.append(
            "tokens of an image attend to each other: a prefix must not end inside one"
        )
    if any(kind in WRAPPERS or kind in IMAGES_SEE_THEMSELVES for kind in kinds):
        found.notes.append(
            "keys of blocks with images or sound have to come from what is in these, not from "
            "tokens that stand for them alone"
        )
    return text


def _judge_architectures(config: Mapping[str, Any]) -> None:
    """The code's names: a decoder's type is also given to what was made of it afterwards."""
    names = config.get("architectures")
    if names is None:
        return
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise NotUnderstood(f"architectures is {names!r}: a list of names was expected")
    for name in names:
        if not name.endswith(_HEADS) or any(other in name for other in _HEADS_OF_OTHERS):
            raise NotUnderstood(
                f"architectures names {name!r}, which does not say that it is a causal decoder; "
                f"known are names that end in {', '.join(_HEADS[:3])}. If it attends as the "
                "model_type does, say so: --as MODEL_TYPE"
            )


def _judge_flags(config: Mapping[str, Any], found: Soundness) -> None:
    if _boolean(config, "is_causal") is False:
        found.later("is_causal is false: tokens attend to later ones")
    if _boolean(config, "is_encoder_decoder"):
        found.later("is_encoder_decoder: what the decoder keeps depends on the encoder's input")
    towards = config.get("use_bidirectional_attention")
    if towards == "vision":
        found.notes.append(
            "tokens of an image attend to each other: a prefix must not end inside one"
        )
    elif towards is True or towards == "all":
        found.later("use_bidirectional_attention: tokens attend to later ones")
    elif not _is_off(towards):
        raise NotUnderstood(
            f"use_bidirectional_attention is {towards!r}; known are true, false, 'all' and 'vision'"
        )
    attention = config.get("attn_config")
    if isinstance(attention, Mapping):
        if attention.get("prefix_lm"):
            found.later("attn_config.prefix_lm: the tokens of a prompt attend to later ones")
        if attention.get("attn_uses_sequence_id"):
            raise NotUnderstood(
                "attn_config.attn_uses_sequence_id: sequences that share a row are not known here"
            )


def _judge_rest(config: Mapping[str, Any], parts: Sequence[str]) -> None:
    """No key is left over that may decide."""
    known = {*_FLAGS, *_ROTATION, *_HARMLESS}
    for key, value in config.items():
        if key in known or _is_off(value) or not any(part in key for part in parts):
            continue
        raise NotUnderstood(
            f"{key} is {repr(value)[:60]}: it may decide what attends to what, or where a "
            "token is, and is not read here. If it does neither, take it out of a copy of the file"
        )


# ---- positions


def _rotation(config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """rope_parameters or rope_scaling, and which of them it is."""
    for name in ("rope_parameters", "rope_scaling"):
        rope = config.get(name)
        if _is_off(rope):
            continue
        if not isinstance(rope, Mapping):
            raise NotUnderstood(f"{name} is {rope!r}: an object was expected")
        return name, rope
    return "rope_scaling", {}


def _is_endless(value: object) -> bool:
    """Whether it is, or has in it, a number that is not finite."""
    if isinstance(value, Mapping):
        return any(_is_endless(v) for v in value.values())
    if isinstance(value, list | tuple):
        return any(_is_endless(v) for v in value)
    return isinstance(value, float) and not math.isfinite(value)


def _text_of(params: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(params, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError:  # Python reads NaN and Infinity, which are harmless elsewhere in a file
        endless = [k for k, v in params.items() if _is_endless(v)]
        raise NotUnderstood(
            f"{', '.join(endless)}: a finite number was expected, not NaN or Infinity"
        ) from None
    if len(text) > _PARAMS_MAX:  # longrope's factors
        return hashlib.sha256(text.encode()).hexdigest()
    return text


def _judge_rotation(config: Mapping[str, Any], found: Soundness) -> None:
    name, rope = _rotation(config)
    types = rope_types(rope) or {"default"}
    for one in sorted(types - ROPE_TYPES.keys()):
        raise NotUnderstood(
            f"{name}: position scheme {one!r} is not known; known are {', '.join(ROPE_TYPES)}"
        )
    found.position = scheme_of(types)
    found.position_params = _text_of(
        {key: config[key] for key in _ROTATION if not _is_off(config.get(key))} | dict(rope)
    )
    scaled = [
        f"position scheme {t!r}" for t in sorted(types) if ROPE_TYPES[t].by_length == "scales"
    ]
    if _boolean(config, "use_dynamic_ntk"):
        scaled.append("use_dynamic_ntk")
    if scaled:
        found.position = _REFUSED
        found.unsound += [f"{one} {_ANEW}" for one in scaled]
    if any(ROPE_TYPES[one].by_length == "chooses" for one in types):
        found.notes.append(
            "longrope has two sets of factors: sound in an engine that chooses one at start"
        )


def _scheme(config: Mapping[str, Any], kind: str) -> str:
    """The scheme; "rope": what the parameters of rotation say."""
    attention = config.get("attn_config")
    nested = attention if isinstance(attention, Mapping) else {}
    if kind == "mpt" and nested.get("alibi") is False:
        return "rope" if nested.get("rope") else "learned"
    if _boolean(config, "alibi") or _boolean(config, "use_alibi"):
        return "alibi"
    if kind == "baichuan":  # one type, two models: what tells them apart is their width
        widths = {4096: "rope", 5120: "alibi"}
        if config.get("hidden_size") not in widths:
            raise NotUnderstood(
                "baichuan: hidden_size is neither 4096 (keys are rotated) nor 5120 (ALiBi)"
            )
        return widths[config["hidden_size"]]
    if kind == "zamba2" and not _boolean(config, "use_mem_rope"):
        return "none"
    named = config.get("position_embedding_type")
    if named is None:
        return "none" if kind == "granitemoehybrid" else CAUSAL[kind]
    if not isinstance(named, str) or named not in _EMBEDDINGS:
        raise NotUnderstood(
            f"position_embedding_type is {named!r}; known are {', '.join(_EMBEDDINGS)}"
        )
    return _EMBEDDINGS[named]


def soundness_of(levels: Sequence[Mapping[str, Any]], as_type: str = "") -> Soundness:
    """What decides reuse, of a configuration.

    Args:
        levels: the object of config.json, and those within it down to the text model's.
        as_type: a model_type that the text model attends and embeds positions like.

    Raises:
        NotUnderstood: it depends on something that is not known here.
    """
    found = Soundness()
    text = levels[-1]
    kind = _judge_types(levels, as_type, found)
    for level in levels:
        _judge_flags(level, found)
    if found.unsound:
        return found
    if not as_type:
        for level in levels:
            _judge_architectures(level)
    for level in levels[:-1]:
        _judge_rest(level, _SUSPICIOUS_AROUND)
    _judge_rest(text, _SUSPICIOUS)
    found.position = _scheme(text, kind)
    if found.position == "rope":
        _judge_rotation(text, found)
    return found
