# SPDX-License-Identifier: Apache-2.0
"""What follows from configurations as models are published with."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import daemon_program

from kvcache_client import Group
from kvcache_client._config import ROPE_TYPES, NotUnderstood, rope_types, scheme_of
from kvcache_client.check import (
    Report,
    check,
    compare_weights,
    find_config,
    main,
)

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "torch_dtype": "bfloat16",
    "rope_theta": 500000.0,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
}


def test_llama() -> None:
    report = check(LLAMA)
    assert report.token_bytes == 2 * 8 * 128 * 2
    assert report.groups == [Group(16, 16 * 4096 * 32)]
    assert (report.position, report.attention, report.unsound) == ("llama3", "causal", [])
    assert json.loads(report.position_params)["rope_theta"] == 500000.0
    assert check(LLAMA, ranks=4).groups == [Group(16, 16 * 4096 * 32 // 4)]
    assert check(LLAMA, ranks=16).groups == [Group(16, 16 * 4096 * 32 // 8)]
    assert check(LLAMA, dtype="fp8", block_tokens=64).groups == [Group(64, 64 * 2048 * 32)]


@pytest.mark.parametrize(
    "change",
    [
        {"rope_theta": float("nan")},
        {"rope_scaling": {"rope_type": "longrope", "long_factor": [1.0, float("inf")]}},
        {"rope_parameters": {"full": {"rope_type": "default", "rope_theta": float("-inf")}}},
    ],
)
def test_a_position_that_is_no_number_is_refused(change: dict[str, Any]) -> None:
    """Elsewhere files have Infinity: an upper limit of none, say."""
    assert check({**LLAMA, "time_step_limit": [0.0, float("inf")]}).unsound == []
    with pytest.raises(NotUnderstood, match="a finite number was expected, not NaN or Inf"):
        check({**LLAMA, **change})


def test_an_empty_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([""]) == 2
    assert "the name is empty" in capsys.readouterr().err


# Of files as they are published; also read by kvcachectl's tests.
CONFIGS = Path(__file__).parents[3] / "tests/unit/ctl/configs"


def published(name: str, **options: Any) -> Report:
    return check(json.loads((CONFIGS / f"{name}.json").read_text()), **options)


# name -> groups (rule, window, layers), bytes of a token and layer, position, layers with a state.
# Worked out by hand: 2 x heads x head size x 2 bytes; of MLA (latent + rotary key) x 2 bytes.
PUBLISHED: dict[str, tuple[list[tuple[str, int, int]], int, str, int]] = {
    "llama-3.1-8b": ([("full", 0, 32)], 2 * 8 * 128 * 2, "llama3", 0),
    "qwen3-8b": ([("full", 0, 36)], 2 * 8 * 128 * 2, "rope", 0),
    "mistral-7b": ([("window", 4096, 32)], 2 * 8 * 128 * 2, "rope", 0),
    "gemma-3-27b": (
        [("full", 0, 10), ("window", 1024, 52)],
        2 * 16 * 128 * 2,
        "rope-linear",
        0,
    ),
    "gpt-oss-20b": ([("full", 0, 12), ("window", 128, 12)], 2 * 8 * 64 * 2, "yarn", 0),
    "deepseek-v3": ([("full", 0, 61)], (512 + 64) * 2, "yarn", 0),
    "qwen3-next-80b": ([("full", 0, 12)], 2 * 2 * 256 * 2, "rope", 36),
    "mamba2-7b": ([], 0, "none", 64),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published(name: str) -> None:
    groups, token_bytes, position, states = PUBLISHED[name]
    report = published(name)
    assert [(g.rule, g.window, g.block_bytes) for g in report.groups] == [
        (rule, window, 16 * token_bytes * layers) for rule, window, layers in groups
    ]
    assert (report.token_bytes, report.position) == (token_bytes, position)
    assert report.layers.get("state", 0) == states
    assert (report.attention, report.unsound) == ("causal", [])
    assert any("keep a state" in note for note in report.notes) == bool(states)


def test_published_on_eight_ranks() -> None:
    """Latents are the same on all ranks; 2 heads of 8 ranks go to 4 ranks each."""
    assert published("deepseek-v3", ranks=8).groups == [Group(16, 16 * 1152 * 61, replicated=True)]
    assert published("qwen3-next-80b", ranks=8).groups == [Group(16, 16 * 2048 * 12 // 2)]
    assert published("mamba2-7b", ranks=8).groups == []


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda p: p.stem)
def test_kvcachectl_reads_the_same(path: Path) -> None:
    program = Path(daemon_program() or "").with_name("kvcachectl")
    if not program.exists():
        pytest.skip("no kvcachectl beside kvcache-daemon")
    command = [
        str(program),
        "size",
        "--config",
        str(path),
        "--context",
        "16",
        "--kv-type",
        "bf16",
        "--json",
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if path.stem == "mamba2-7b":
        assert "model_type: mamba2 keeps states" in ran.stderr  # nothing attends
        return
    assert ran.returncode == 0, ran.stderr
    size = json.loads(ran.stdout)
    model, report = size["model"], published(path.stem, dtype="bfloat16")
    kept = report.layers
    assert model["full_layers"] == kept.get("full", 0)
    assert model["sliding_layers"] == kept.get("sliding", 0)
    assert model["linear_layers"] == kept.get("state", 0)
    assert model["plain_layers"] == kept.get("plain", 0)
    assert model["window"] == report.window
    form = "MLA latents" if model["kv_lora_rank"] else "K+V"
    (token,) = [f["bytes_per_token"] for f in size["forms"] if f["form"] == form]
    assert token == sum(g.block_bytes for g in report.groups) // 16


def test_sliding_and_full_layers() -> None:
    types = (["sliding_attention"] * 5 + ["full_attention"]) * 2
    config = {
        "model_type": "gemma3",
        "text_config": {
            **LLAMA,
            "model_type": "gemma3_text",
            "num_hidden_layers": 12,
            "head_dim": 256,
            "layer_types": types,
            "sliding_window": 512,
            "rope_scaling": None,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8},
                "sliding_attention": {"rope_type": "default"},
            },
        },
    }
    report = check(config)
    assert [(g.rule, g.window, g.block_bytes) for g in report.groups] == [
        ("full", 0, 16 * 8192 * 2),
        ("window", 512, 16 * 8192 * 10),
    ]
    assert report.position == "rope-linear"
    assert not report.unsound


def test_latent_attention_is_replicated() -> None:
    report = check({**LLAMA, "kv_lora_rank": 512, "qk_rope_head_dim": 64}, ranks=8)
    assert report.token_bytes == 576 * 2
    assert report.groups == [Group(16, 16 * 576 * 2 * 32, replicated=True)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rope_scaling": {"type": "dynamic", "factor": 2}}, "anew"),
        ({"rope_scaling": {"type": "dynamic", "mrope_section": [1, 1]}}, "anew"),
        ({"model_type": "qwen", "rope_scaling": None, "use_dynamic_ntk": True}, "anew"),
        ({"is_causal": False}, "suffix"),
        ({"model_type": "mpt", "attn_config": {"prefix_lm": True}}, "suffix"),
        ({"model_type": "bert"}, "suffix"),
        ({"is_encoder_decoder": True}, "suffix"),
        ({"use_bidirectional_attention": True}, "suffix"),
    ],
)
def test_what_is_unsound_is_named(change: dict[str, Any], says: str) -> None:
    (why,) = check({**LLAMA, **change}).unsound
    assert says in why


@pytest.mark.parametrize(
    ("change", "layers"),
    [
        ({"attn_layer_period": 8, "attn_layer_offset": 4}, {"state": 28, "full": 4}),
        ({"attn_layer_period": 8}, {"state": 28, "full": 4}),
        ({"model_type": "gemma2", "sliding_window": 8}, {"sliding": 16, "full": 16}),
        ({"model_type": "bamba", "attn_layer_indices": [9, 18]}, {"state": 30, "full": 2}),
        ({"model_type": "plamo2", "mamba_step": 2}, {"state": 16, "full": 16}),
        ({"num_kv_shared_layers": 8}, {"full": 24, "shared": 8}),
        (
            {"use_sliding_window": True, "max_window_layers": 20, "sliding_window": 8},
            {"full": 20, "sliding": 12},
        ),
        ({"layer_types": ["mamba", "hybrid"] * 16}, {"state": 16, "full": 16}),
    ],
)
def test_families_that_say_it_in_their_own_way(
    change: dict[str, Any], layers: dict[str, int]
) -> None:
    assert check({**LLAMA, **change}).layers == layers


def test_long_parameters_stay_apart() -> None:
    rope = {"rope_type": "longrope", "long_factor": [1.0] * 100}
    other = {**rope, "long_factor": [1.0] * 99 + [2.0]}
    texts = {check({**LLAMA, "rope_scaling": r}).position_params for r in (rope, other)}
    assert len(texts) == 2
    assert all(len(t) <= 255 for t in texts)


def test_types_of_rope() -> None:
    assert rope_types(None) == rope_types({}) == set()
    assert rope_types({"rope_theta": 1e4}) == {"default"}
    assert rope_types({"type": "yarn"}) == {"yarn"}
    both = {"a": {"rope_type": "linear"}, "b": {"rope_type": "default"}, "rope_theta": 1e4}
    assert rope_types(both) == {"linear", "default"}
    assert scheme_of(rope_types(both)) == "rope-linear"
    assert scheme_of({"default", "proportional"}) == "rope"
    # What a transformers model does by length must not be offered, and what is fixed must be.
    for name, kind in ROPE_TYPES.items():
        report = check({**LLAMA, "rope_scaling": {"rope_type": name, "factor": 2}})
        assert bool(report.unsound) == (kind.by_length == "scales"), name
        assert report.position == ("dynamic-ntk" if report.unsound else kind.scheme)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"layer_types": ["full_attention"] * 31 + ["odd"]}, "odd"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": 5}, "layer_types"),
        ({"layer_types": ["sliding_attention"] * 32}, "sliding_window"),
        ({"layer_types": ["chunked_attention"] * 32}, "sliding_window"),
        ({"torch_dtype": "int3"}, "torch_dtype.*--dtype"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"odd_pattern": 8}, "odd_pattern"),
        ({"hybrid_odd": [1]}, "hybrid_odd"),
        ({"mamba_odd_step": 2}, "mamba_odd_step"),
        ({"linear_attn_config": {"x": 1}}, "linear_attn_config"),
        ({"attention_chunk_size": 8}, "attention_chunk_size"),
        ({"hybrid_layer_ids": [1, 1]}, "hybrid_layer_ids"),
        ({"hybrid_override_pattern": "M" * 31 + "x"}, "hybrid_override_pattern"),
        ({"attn_type_list": [1] * 31 + [2]}, "attn_type_list"),
        ({"num_key_value_heads": 5}, "num_key_value_heads"),
        ({"model_type": "qwen3_next"}, "layer_types"),
        ({"model_type": "gpt_oss", "sliding_window": 128}, "layer_types"),
        # what attends to what
        ({"model_type": "of tomorrow"}, "'of tomorrow'.*--as"),
        ({"model_type": None}, "model_type.*--as"),
        ({"model_type": 5}, "model_type"),
        ({"model_type": "bert", "is_decoder": True}, "is_decoder"),
        ({"architectures": ["LlamaBidirectionalForSequenceClassification"]}, "architectures"),
        ({"architectures": ["LlamaModel"]}, "LlamaModel.*--as"),
        ({"architectures": 5}, "architectures"),
        ({"is_causal": "yes"}, "is_causal"),
        ({"use_bidirectional_attention": "sometimes"}, "use_bidirectional_attention"),
        ({"non_causal_odd": 1}, "non_causal_odd"),
        ({"model_type": "mpt", "attn_config": {"attn_uses_sequence_id": True}}, "sequence_id"),
        # where a token is
        ({"rope_scaling": {"rope_type": "of tomorrow"}}, "of tomorrow"),
        ({"rope_scaling": {"rope_type": "of tomorrow", "mrope_section": [1]}}, "of tomorrow"),
        ({"rope_scaling": "linear"}, "rope_scaling"),
        ({"rope_scaling": [1]}, "rope_scaling"),
        ({"position_embedding_type": "of tomorrow"}, "position_embedding_type"),
        ({"position_embedding_type": 5}, "position_embedding_type"),
        ({"alibi": "yes"}, "alibi"),
        ({"rope_odd": 5}, "rope_odd"),
        ({"model_type": "baichuan", "hidden_size": 8192}, "baichuan"),
    ],
)
def test_what_is_not_understood_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(NotUnderstood, match=says):
        check({**LLAMA, **change})


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = tmp_path / "hub/models--org--name/snapshots/1"
    hub.mkdir(parents=True)
    (hub / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    assert find_config("org/name") == find_config(str(hub)) == hub / "config.json"
    assert main(["org/name"]) == 0
    said = capsys.readouterr().out
    assert "4096 bytes a token and layer" in said
    assert "sound: exact prefixes" in said
    (hub / "config.json").write_text(json.dumps({**LLAMA, "model_type": "bert"}))
    assert main([str(hub)]) == 1
    assert "UNSOUND" in capsys.readouterr().out
    assert main(["org/other"]) == 2
    assert "org/other" in capsys.readouterr().err


def test_weights_say_the_same(tmp_path: Path) -> None:
    transformers: Any = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=99,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    assert compare_weights(str(tmp_path)) < 1e-4
    assert main([str(tmp_path), "--weights"]) == 0


def test_weights_say_what_a_configuration_hides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The comparison is able to fail: rotations that are scaled beyond 64 tokens."""
    transformers: Any = pytest.importorskip("transformers")
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 8.0}
    config = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=99,
        max_position_embeddings=64,
        rope_parameters=rope,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    assert compare_weights(str(tmp_path)) > 1e-3
    assert main([str(tmp_path), "--weights", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert not said["sound"]
    assert said["weights_differ"] > 1e-3
    assert len(said["unsound"]) == 2
