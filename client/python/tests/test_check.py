# SPDX-License-Identifier: Apache-2.0
"""What follows from configurations as models are published with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvcache_client import Group
from kvcache_client.check import NotUnderstood, check, compare_weights, find_config, main

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
        ({"rope_scaling": {"rope_type": "of tomorrow"}}, "not known"),
        ({"model_type": "bert"}, "suffix"),
        ({"is_encoder_decoder": True}, "suffix"),
        ({"use_bidirectional_attention": True}, "suffix"),
    ],
)
def test_what_is_unsound_is_named(change: dict[str, Any], says: str) -> None:
    (why,) = check({**LLAMA, **change}).unsound
    assert says in why


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"layer_types": ["full_attention"] * 31 + ["odd"]}, "odd"),
        ({"layer_types": ["full_attention"]}, "1 layers"),
        ({"layer_types": ["sliding_attention"] * 32}, "how far"),
        ({"torch_dtype": "int3"}, "int3"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"attn_layer_period": 8}, "hybrid"),
    ],
)
def test_what_is_not_understood_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(NotUnderstood, match=says):
        check({**LLAMA, **change})
    with pytest.raises(NotUnderstood, match="ranks"):
        check(LLAMA, ranks=3)


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
