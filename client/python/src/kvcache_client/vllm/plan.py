# SPDX-License-Identifier: Apache-2.0
"""What follows from vLLM's configuration: groups, their blocks, and the namespace.

The scheduler and the workers derive it alike, each from its own copy of the configuration: both
must open the same namespace. What cannot be reused soundly is refused here, by name.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import vllm
from vllm.v1.core.kv_cache_utils import resolve_kv_cache_block_sizes, resolve_none_hash_seed
from vllm.v1.kv_cache_interface import (
    AttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    RSWASpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)

from kvcache_client import Group
from kvcache_client._config import ROPE_TYPES, rope_types, scheme_of

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec

    from kvcache_client import Namespace, Session

__all__ = ["GroupPlan", "Plan", "Refused", "adapter_files"]


class Refused(ValueError):
    """The engine's configuration cannot be served; the text says why, and what would be right."""


@dataclass(frozen=True)
class GroupPlan:
    """One KV cache group of vLLM.

    Attributes:
        layers: names, in the order of a block's bytes.
        block_tokens: tokens in a block of this group.
        page_bytes: bytes that each layer has of a block, padding left out.
        scale: vLLM's hashes in a block: the last one is the block's key.
        group: what the daemon is told.
    """

    layers: tuple[str, ...]
    block_tokens: int
    page_bytes: tuple[int, ...]
    scale: int
    group: Group

    @property
    def block_bytes(self) -> int:
        """Bytes of this rank's part of a block, all layers."""
        return self.group.block_bytes

    def keys(self, hashes: Sequence[bytes], first: int, end: int) -> bytes:
        """Keys of blocks first .. end - 1: shape [(end - first) * 32] bytes."""
        if self.scale == 1:
            return b"".join(hashes[first:end])
        return b"".join(hashes[self.scale * (i + 1) - 1] for i in range(first, end))


@dataclass(frozen=True)
class Plan:
    """Groups and namespace of an engine.

    Attributes:
        groups: one of each of vLLM's, in its order.
        align: a hit's tokens are a multiple of it: blocks of all groups end there.
        hash_tokens: tokens that each of vLLM's block hashes stands for.
        spec: arguments of :meth:`kvcache_client.Session.namespace`, without costs.
        ranks: workers that each hold a part of every block.
    """

    groups: tuple[GroupPlan, ...]
    align: int
    hash_tokens: int
    spec: dict[str, Any]
    ranks: int

    @classmethod
    def of(cls, config: VllmConfig, kv: KVCacheConfig) -> Plan:
        """From vLLM's configuration.

        Raises:
            Refused: reuse would be wrong, or the connector cannot do it.
        """
        _check(config)
        align, hash_tokens = resolve_kv_cache_block_sizes(kv, config)
        replicated = _replicated(config, kv)
        groups = tuple(
            _group(i, g, hash_tokens, replicated) for i, g in enumerate(kv.kv_cache_groups)
        )
        if not groups:
            raise Refused("the model has no KV cache: there is nothing to share")
        return cls(
            groups, align, hash_tokens, _spec(config, kv, groups), config.parallel_config.world_size
        )

    def open(self, session: Session, prefill_ns_per_token: int = 0) -> Namespace:
        """The namespace in a session; of a daemon that is not there too."""
        return session.namespace(
            groups=[g.group for g in self.groups],
            prefill_ns_per_token=prefill_ns_per_token,
            **self.spec,
        )

    def all_keys(self, hashes: Sequence[bytes], tokens: int) -> list[bytes]:
        """Keys of each group for a prefix of ``tokens`` tokens, a multiple of ``align``."""
        return [g.keys(hashes, 0, tokens // g.block_tokens) for g in self.groups]


# ---- what is refused


def _check(config: VllmConfig) -> None:
    transfer = config.kv_transfer_config
    if transfer.kv_load_failure_policy != "recompute":
        raise Refused(
            f"kv_load_failure_policy is {transfer.kv_load_failure_policy!r}: with it a request "
            "fails when the daemon ends while it loads. Set it in --kv-transfer-config: "
            '"kv_load_failure_policy": "recompute"'
        )
    algorithm = config.cache_config.prefix_caching_hash_algo
    if algorithm not in ("sha256", "sha256_cbor"):
        raise Refused(
            f"--prefix-caching-hash-algo is {algorithm}: its hashes collide, and differ from "
            "process to process. Set --prefix-caching-hash-algo sha256_cbor"
        )
    parallel = config.parallel_config
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        if getattr(parallel, name, 1) > 1:
            raise Refused(
                f"{name} is {getattr(parallel, name)}: a rank then holds a part of each block's "
                "tokens, and the connector stores whole blocks. Leave it at 1"
            )
    if config.model_config.is_diffusion:
        raise Refused("the model is a diffusion model: its tokens are not final when computed")


def _layer_specs(group: KVCacheGroupSpec) -> dict[str, KVCacheSpec]:
    spec = group.kv_cache_spec
    if isinstance(spec, UniformTypeKVCacheSpecs):
        return {name: spec.kv_cache_specs[name] for name in group.layer_names}
    return dict.fromkeys(group.layer_names, spec)


def _rule(where: str, spec: KVCacheSpec) -> tuple[str, int]:
    """The daemon's rule for a hit, and its window in tokens."""
    kind = type(spec).__name__
    if isinstance(spec, MambaSpec):
        if spec.mamba_cache_mode != "align":
            raise Refused(
                f"{where} keeps linear-attention states in mode {spec.mamba_cache_mode!r}: no "
                "state at a block's end is kept: there is nothing to reuse. Set --mamba-cache-mode "
                "align with --enable-prefix-caching"
            )
        if spec.num_speculative_blocks:
            raise Refused(f"{where} has linear-attention states beside speculative decoding")
        return "state", 0
    if isinstance(spec, RSWASpec):
        raise Refused(f"{where} ({kind}) drops blocks in the middle of a sequence")
    if isinstance(spec, AttentionSpec) and getattr(spec, "non_causal", False):
        raise Refused(f"{where} ({kind}) is not causal: KV of a prefix depends on what follows")
    if not spec.prefix_cacheable or spec.prefix_replay_tokens:
        raise Refused(
            f"{where} ({kind}) cannot be reused: vLLM itself rebuilds it for each request"
        )
    if isinstance(spec, SlidingWindowSpec):
        return "window", max(1, spec.sliding_window - 1 + spec.extra_retained_tokens)
    if isinstance(spec, FullAttentionSpec):
        return "full", 0
    raise Refused(
        f"{where} ({kind}) is neither full attention nor a sliding window nor linear attention"
    )


def _group(index: int, group: KVCacheGroupSpec, hash_tokens: int, replicated: bool) -> GroupPlan:
    specs = _layer_specs(group)
    where = f"KV cache group {index} ({next(iter(specs), '?')} and {len(specs) - 1} more layers)"
    if not group.enable_kv_transfer or group.host_resident:
        raise Refused(f"{where} is a replica on the accelerator, which vLLM does not let transfer")
    rules = {_rule(where, spec) for spec in specs.values()}
    if len(rules) != 1:
        raise Refused(f"{where} has layers with different rules: {sorted(rules)}")
    rule, window = rules.pop()
    block_tokens = group.kv_cache_spec.block_size
    if block_tokens % hash_tokens:
        raise Refused(
            f"{where} has blocks of {block_tokens} tokens, no multiple of the {hash_tokens} tokens "
            "that vLLM hashes together"
        )
    pages = tuple(_page_bytes(spec) for spec in specs.values())
    return GroupPlan(
        tuple(specs),
        block_tokens,
        pages,
        block_tokens // hash_tokens,
        Group(block_tokens, sum(pages), rule, window, replicated),  # type: ignore[arg-type]
    )


def _page_bytes(spec: KVCacheSpec) -> int:
    """Bytes that a layer has of a block, without padding between blocks."""
    if isinstance(spec, AttentionSpec):
        return int(spec.unpadded_page_size_bytes)
    assert isinstance(spec, MambaSpec)
    return int(spec.state_content_size_bytes)


def _replicated(config: VllmConfig, kv: KVCacheConfig) -> bool:
    """Whether all ranks hold the same bytes (MLA): blocks are then stored once."""
    parallel = config.parallel_config
    return bool(
        parallel.world_size > 1
        and parallel.pipeline_parallel_size == 1
        and kv.kv_tp_replicas >= parallel.tensor_parallel_size
    )


# ---- the namespace


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _text(value: str, limit: int = 127) -> str:
    """A text of the namespace: what is too long keeps its end, and a digest of the whole."""
    if len(value.encode()) <= limit:
        return value
    tail = value.encode()[-(limit - 40) :].decode(errors="ignore")
    return f"{hashlib.sha256(value.encode()).hexdigest()[:32]}:{tail}"


def _position(config: VllmConfig) -> tuple[str, str]:
    """The daemon's name of the position scheme, and its parameters."""
    hf = config.model_config.hf_text_config
    parameters = getattr(hf, "rope_parameters", None) or getattr(hf, "rope_scaling", None)
    types = rope_types(parameters)
    if not types and getattr(hf, "rope_theta", None) is not None:
        types = {"default"}
    unknown = types - set(ROPE_TYPES)
    if unknown:
        raise Refused(f"the model's rope_type {sorted(unknown)} is not known to be sound to reuse")
    facts: dict[str, object] = {"rope": parameters, "theta": getattr(hf, "rope_theta", None)}
    if any(ROPE_TYPES[t].by_length for t in types):
        facts["max_model_len"] = config.model_config.max_model_len
    if not types:
        position = getattr(hf, "position_embedding_type", None)
        alibi = bool(getattr(hf, "alibi", False)) or hf.model_type in ("bloom", "mpt")
        name = "alibi" if alibi else "learned" if position != "none" else "none"
    else:
        name = scheme_of(types)
    text = json.dumps(facts, sort_keys=True, default=str)
    return name, text if len(text) <= 255 else _digest(facts)


def _revision(config: VllmConfig) -> str:
    """What tells one set of weights from another that has the same name."""
    model = config.model_config
    if model.revision:
        return str(model.revision)
    commit = getattr(model.hf_config, "_commit_hash", None)
    if commit:
        return str(commit)
    return _files(Path(model.model), ".safetensors", ".bin", ".gguf", ".pt")


def _files(folder: Path, *suffixes: str) -> str:
    """Tells one set of files from another at the same place; empty when there is no folder."""
    if not folder.is_dir():
        return ""
    files = sorted(p for p in folder.iterdir() if p.suffix in suffixes)
    return "files:" + _digest([(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in files])


def adapter_files(path: str) -> bytes:
    """What keys of a LoRA adapter's blocks get beside vLLM's hash, which has its name and path.

    Raises:
        ValueError: the files cannot be looked at.
    """
    try:
        folder = Path(path).expanduser()
        return _files(folder, ".safetensors", ".bin", ".pt", ".json").encode()
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no such user
        raise ValueError(f"the adapter's files: {error}") from None


def _layout(config: VllmConfig) -> str:
    """The order of bytes in a block; with vLLM's version, for any release may change a kernel's."""
    parts = [f"vllm-{vllm.__version__}", str(config.device_config.device_type)]
    parts.append(config.cache_config.get_resolved_kv_cache_layout().name)
    if config.device_config.device_type == "cpu":
        # CPU kernels pack keys for the instructions that they use.
        parts.append("amx" if torch.cpu._is_amx_tile_supported() else "vec")
    backend = config.attention_config.backend
    parts.append(backend.name if backend is not None else "auto")
    return "/".join(parts)


def _spec(config: VllmConfig, kv: KVCacheConfig, groups: Sequence[GroupPlan]) -> dict[str, Any]:
    model, cache, parallel = config.model_config, config.cache_config, config.parallel_config
    from vllm.utils.hashing import get_hash_fn_by_name

    algorithm = cache.prefix_caching_hash_algo
    position, position_params = _position(config)
    extra = {
        "hash": algorithm,
        "seed": resolve_none_hash_seed(get_hash_fn_by_name(algorithm)),
        # Pickle's output may change with Python; CBOR's does not.
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}" if algorithm == "sha256" else "",
        "tp": parallel.tensor_parallel_size,
        "pp": parallel.pipeline_parallel_size,
        "config": json.loads(model.hf_config.to_json_string(use_diff=False)),
        "quantization": str(model.quantization),
        "pages": [g.page_bytes for g in groups],
        "state_dtypes": [cache.mamba_cache_dtype, cache.mamba_ssm_cache_dtype],
        "speculative": str(getattr(config.speculative_config, "model", None)),
    }
    return {
        "model": _text(str(model.model)),
        "revision": _text(_revision(config)),
        "dtype": str(model.dtype).removeprefix("torch."),
        "quant": _text(f"{model.quantization or ''}/{cache.cache_dtype}"),
        "layout": _text(_layout(config)),
        "position": position,
        "position_params": position_params,
        "attention": "causal",
        "extra": f"vllm {_digest(extra)}",
        "layers": sum(len(g.layers) for g in groups),
        "kv_heads": model.get_total_num_kv_heads(),
        "head_size": model.get_head_size(),
        "shards": parallel.world_size,
    }
