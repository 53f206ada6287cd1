# SPDX-License-Identifier: Apache-2.0
"""What a model of transformers says about its KV: layers, bytes, positions, weights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from kvcache_client._config import NotUnderstood
from kvcache_client._sound import soundness_of
from kvcache_client._types import Group, Rule

__all__ = ["Facts", "Layer", "config_digest", "facts_of", "layers_of", "weights_digest"]

# Fields of a configuration that leave KV alone, or that the namespace holds elsewhere (dtype).
_NOT_OF_KV = frozenset(
    (
        "_name_or_path",
        "architectures",
        "bos_token_id",
        "dtype",
        "eos_token_id",
        "id2label",
        "label2id",
        "output_attentions",
        "output_hidden_states",
        "pad_token_id",
        "problem_type",
        "return_dict",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    )
)


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
        refused: why KV of this model is not reused; empty: it can be.
    """

    model: str
    layers: tuple[Layer, ...]
    position: str
    position_params: str
    limit_tokens: int
    dtype: str
    refused: tuple[str, ...] = ()

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
    name = model or getattr(config, "_name_or_path", "") or text.model_type
    limit = _limit(getattr(text, "rope_parameters", None) or {})
    around = [] if text is config else [config.to_dict()]
    try:
        found = soundness_of([*around, text.to_dict()])
    except NotUnderstood as error:
        why = f"{error} (the argument position says the scheme, and nothing is refused then)"
        return Facts(name, layers, "", "", limit, dtype, (why,))
    return Facts(
        name, layers, found.position, found.position_params, limit, dtype, tuple(found.unsound)
    )


def _limit(rope: Mapping[str, Any]) -> int:
    """Tokens up to which prefixes are shared; 0 = any length.

    transformers takes other longrope factors for all positions of a forward pass that goes beyond
    the original length: the same prefix has another KV there.
    """
    kinds = [rope, *(v for v in rope.values() if isinstance(v, Mapping))]
    limits = [
        int(k.get("original_max_position_embeddings") or 1)
        for k in kinds
        if k.get("rope_type") == "longrope"
    ]
    return min(limits, default=0)


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


def config_digest(config: Any) -> str:
    """16 hexadecimal digits of all fields that may change KV: an epsilon, an activation."""

    def cut(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {str(k): cut(v) for k, v in value.items() if k not in _NOT_OF_KV}

    text = json.dumps(cut(config.to_dict()), sort_keys=True, default=str)
    return sha256(text.encode()).hexdigest()[:16]


def weights_of(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and persistent buffers (where quantized layers keep their weights)."""
    yield from model.named_parameters()
    for prefix, module in model.named_modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                yield f"{prefix}.{name}", buffer


def weights_version(model: Any) -> int:
    """Another number after weights were replaced, or changed by an operation in place.

    PyTorch counts no operation on ``parameter.data``, and none on an inference tensor.
    """
    return hash(
        tuple(
            (one.data_ptr(), 0 if one.is_inference() else one._version)
            for _, one in weights_of(model)
        )
    )


def weights_digest(model: Any) -> str:
    """32 hexadecimal digits that differ when the weights do.

    Of every parameter and persistent buffer its name, shape and up to 1,024 of its entries, evenly
    spaced, are read: another checkpoint, a fine-tuned or merged one differs; a single edited entry
    may not be seen.
    """
    digest = sha256()
    for name, tensor in sorted(weights_of(model), key=lambda item: item[0]):
        flat = tensor.detach().reshape(-1)
        some = flat[:: max(1, flat.numel() // 1024)][:1024].float().cpu().contiguous()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(some.numpy().tobytes())
    return digest.hexdigest()[:32]
