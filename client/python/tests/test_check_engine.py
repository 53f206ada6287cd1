# SPDX-License-Identifier: Apache-2.0
"""The tables of architectures beside transformers: its lists, and its code with random weights."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from kvcache_client._config import NotUnderstood
from kvcache_client._models import CAUSAL, IMAGES_SEE_THEMSELVES, NOT_CAUSAL, WRAPPERS
from kvcache_client.check import check

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")
auto: Any = pytest.importorskip("transformers.models.auto.modeling_auto")


def default(kind: str) -> dict[str, Any]:
    config = transformers.CONFIG_MAPPING[kind]()
    values: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    return values


def defaults() -> dict[str, dict[str, Any]]:
    """model_type -> configuration, where it can be made without its parts and the network."""
    made = {}
    for kind in transformers.CONFIG_MAPPING:
        try:
            made[kind] = default(kind)
        except Exception:  # each library that is behind it has its own
            continue
    return made


def verdict(config: dict[str, Any]) -> str:
    try:
        return "unsound" if check(config).unsound else "sound"
    except NotUnderstood:
        return "refused"


def test_no_architecture_that_transformers_does_not_generate_with_is_sound() -> None:
    configs = defaults()
    assert len(configs) > 600
    verdicts = {kind: verdict(config) for kind, config in configs.items()}
    generates = {
        *auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        *auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
        *auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    }
    inside = {
        part["model_type"]
        for kind in generates & configs.keys()
        for part in configs[kind].values()
        if isinstance(part, dict) and "model_type" in part
    }
    sound = {kind for kind, said in verdicts.items() if said == "sound"}
    assert sound <= generates | inside, sound - generates - inside
    assert not sound & {*auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES}
    pairs = {kind for kind, config in configs.items() if config.get("is_encoder_decoder") is True}
    assert not sound & pairs
    assert all(verdicts[kind] == "unsound" for kind in NOT_CAUSAL if kind in verdicts)
    assert Counter(verdicts.values())["sound"] > 150, "most decoders are known"


# ---- measured

_FOUR = """
    attention_heads decoder_layers moe_num_experts n_head n_heads n_layer n_layers n_routed_experts
    num_attention_heads num_blocks num_experts num_hidden_layers num_layers num_local_experts
    index_n_heads linear_num_value_heads swa_num_attention_heads mamba_dt_rank
"""
_TWO = """
    linear_num_key_heads moe_k num_experts_per_tok num_key_value_heads swa_num_key_value_heads
    num_global_key_value_heads n_mamba_heads
"""
_WIDE = """
    attention_hidden_size d_model dff embedding_size ffn_dim ffn_hidden_size hidden_size
    index_topk intermediate_size lru_width n_embd word_embed_proj_dim
"""
_NARROW = """
    global_head_dim head_dim hidden_size_per_layer_input index_head_dim linear_key_head_dim
    linear_value_head_dim mamba_d_head mamba_d_state mamba_head_dim sliding_window ssm_state_size
    state_size swa_head_dim swa_v_head_dim v_head_dim
"""
_EIGHT = "mamba_n_heads mamba_num_heads num_heads qk_nope_head_dim qk_rope_head_dim rotary_dim"
_LATENT = "expert_ffn_hidden_size kv_lora_rank moe_intermediate_size q_lora_rank"
SMALL = {
    **{
        name: value
        for names, value in (
            (_FOUR, 4),
            (_TWO, 2),
            (_WIDE, 64),
            (_NARROW, 16),
            (_EIGHT, 8),
            (_LATENT, 32),
            ("shared_expert_intermediate_size", 32),
            ("mamba_d_ssm vocab_size vocab_size_per_layer_input", 128),
            ("max_position_embeddings n_positions", 512),
            ("first_k_dense_replace n_group n_shared_experts topk_group zero_expert_num", 1),
        )
        for name in names.split()
    },
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
# What some want else: of the second, MLA with a key for each head.
WISHES: tuple[dict[str, Any], ...] = (
    {},
    {"num_key_value_heads": 4, "head_dim": 8},
    {"head_dim": 16},
)
MIXED: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1, 3]},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "granitemoehybrid": {"layers_block_type": ["mamba", "attention"] * 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
}


def small(kind: str, wishes: dict[str, Any]) -> Any:
    """A configuration of four layers that has all the kinds of the architecture's own."""
    values = default(kind)
    made: dict[str, Any] = {
        name: size for name, size in SMALL.items() if isinstance(values.get(name), int)
    }
    for name, value in values.items():
        if isinstance(value, list) and len(value) == values.get("num_hidden_layers"):
            kinds = list(dict.fromkeys(map(str, value)))
            first = [value[[str(v) for v in value].index(one)] for one in kinds]
            made[name] = [first[i % len(first)] for i in range(4)]
    return transformers.CONFIG_MAPPING[kind](**made | wishes | MIXED.get(kind, {}))


def suffix_changes(kind: str, tokens: int = 24) -> float | None:
    """How much, of the largest, a prefix's outputs change by a suffix; None: it was not made."""
    for wishes in WISHES:
        torch.manual_seed(0)
        try:
            config = small(kind, wishes)
            model = transformers.AutoModelForCausalLM.from_config(
                config, attn_implementation="eager"
            )
            model = model.float().eval()
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    torch.nn.init.normal_(parameter, std=0.1)
            ids = torch.randint(4, 100, (1, 2 * tokens))
            with torch.no_grad():
                alone = model(ids[:, :tokens]).logits
                whole = model(ids).logits[:, :tokens]
        except (ValueError, TypeError, RuntimeError, AttributeError, KeyError, ImportError):
            continue
        return float((alone - whole).abs().max() / alone.abs().max())
    return None


def test_architectures_that_are_called_causal_are() -> None:
    """Every one of the table that transformers has code for, and that can be made this small."""
    kinds = sorted(
        {*CAUSAL} & {*auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES} - WRAPPERS - IMAGES_SEE_THEMSELVES
    )
    changes = {kind: suffix_changes(kind) for kind in kinds}
    measured = {kind: change for kind, change in changes.items() if change is not None}
    assert {kind: change for kind, change in measured.items() if not change < 1e-4} == {}
    assert len(measured) >= 100


@pytest.mark.parametrize("kind", ["bert", "xlnet", "electra"])
def test_the_measure_sees_what_is_not(kind: str) -> None:
    change = suffix_changes(kind)
    assert change is not None
    assert change > 1e-2
