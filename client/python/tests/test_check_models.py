# SPDX-License-Identifier: Apache-2.0
"""The verdict on published models, on what is no configuration, and on random ones."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvcache_client._config import NotUnderstood
from kvcache_client._models import CAUSAL, IMAGES_SEE_THEMSELVES, NOT_CAUSAL, WRAPPERS
from kvcache_client.check import check, main

UNIT = Path(__file__).parents[3] / "tests/unit/ctl"
SOUND, UNSOUND, WRONG, REFUSED = range(4)

# ---- published models

# The facts of their configurations, and apart from them what a token keeps: kvcachectl's too. What
# Python writes where JSON has no number is in it, so it is cut as text.
SHAPES = [
    json.loads(line.rstrip(",")) for line in (UNIT / "shapes.json").read_text().splitlines()[1:-1]
]
# model_type -> scheme, where it is not that of rotated keys
SCHEMES = {
    "kimi_linear": "none",
    "granitemoehybrid": "none",
    "jamba": "none",
    "nemotron_h": "none",
    "gpt2": "learned",
    "opt": "learned",
    "gpt_bigcode": "learned",
    "bloom": "alibi",
    "mpt": "alibi",
    "baichuan": "alibi",  # of 13B
}


def token_bytes(shape: dict[str, Any]) -> int:
    """Of all layers, worked out from what the table says apart from the configuration."""
    element = shape.get("element", 2)
    if "latent" in shape:
        layers, latent, rotary, index = shape["latent"]
        return int(layers * ((latent + rotary) * element + index))
    return sum(
        layers * heads * (key + value) * element for layers, heads, key, value, _ in shape["keeps"]
    )


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s["name"])
def test_decoders_are_sound_and_of_the_right_size(shape: dict[str, Any]) -> None:
    report = check(shape["config"])
    assert report.unsound == []
    assert report.position == SCHEMES.get(shape["config"]["model_type"], "rope")
    assert sum(group.block_bytes for group in report.groups) == 16 * token_bytes(shape)
    if "keeps" in shape:
        windows = {window for *_, window in shape["keeps"]}
        assert {group.window for group in report.groups} == windows


def test_there_are_enough_of_them() -> None:
    assert len(SHAPES) + len(NO_DECODERS) + len(NOT_KNOWN) >= 60 + 20


def facts(kind: str, **others: Any) -> dict[str, Any]:
    """Of a configuration that says nothing else."""
    small = {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12}
    return {"model_type": kind, **small, **others}


ENCODER, PAIR, DENOISES = "an encoder:", "an encoder and a decoder", "denoising"
NO_DECODERS: dict[str, tuple[dict[str, Any], str]] = {
    "bert-base-uncased": (facts("bert", position_embedding_type="absolute"), ENCODER),
    "roberta-large": (facts("roberta", is_decoder=False), ENCODER),
    "xlm-roberta-base": (facts("xlm-roberta"), ENCODER),
    "deberta-v3-base": (facts("deberta-v2"), ENCODER),
    "ModernBERT-base": (facts("modernbert"), ENCODER),
    "nomic-embed-text-v1": (facts("nomic_bert", rotary_emb_base=1000), ENCODER),
    "gte-multilingual-base": (facts("new"), ENCODER),
    "esm2_t33_650M": (facts("esm", position_embedding_type="rotary"), ENCODER),
    "EuroBERT-210m": (facts("eurobert", rope_theta=250000), ENCODER),
    "vit-base-patch16": (facts("vit"), ENCODER),
    "clip-vit-base": (facts("clip"), ENCODER),
    "siglip-base": (facts("siglip"), ENCODER),
    "wav2vec2-base": (facts("wav2vec2"), ENCODER),
    "t5-small": ({"model_type": "t5", "num_layers": 6, "d_model": 512, "num_heads": 8}, PAIR),
    "a flag alone": (facts("llama", is_encoder_decoder=True), "is_encoder_decoder"),
    "bart-large": (facts("bart"), PAIR),
    "whisper-large-v3": (facts("whisper"), PAIR),
    "mbart-large-50": (facts("mbart"), PAIR),
    "nllb-200": (facts("m2m_100"), PAIR),
    "pegasus-xsum": (facts("pegasus"), PAIR),
    "opus-mt": (facts("marian"), PAIR),
    "t5gemma-2b": (facts("t5gemma"), PAIR),
    "LLaDA-8B": (facts("llada", mask_token_id=126336), DENOISES),
    "Dream-7B": (facts("Dream", mask_token_id=151666), DENOISES),
    "xlnet-base": (facts("xlnet"), "another order"),
    "paligemma-3b": (
        {"model_type": "paligemma", "text_config": facts("gemma", num_key_value_heads=1)},
        "attend to each other",
    ),
    "gte-Qwen2-7B-instruct": (facts("qwen2", is_causal=False), "is_causal"),
    "embeddinggemma-300m": (
        facts("gemma3_text", use_bidirectional_attention=True, sliding_window=512),
        "use_bidirectional_attention",
    ),
    "Qwen-7B": (facts("qwen", use_dynamic_ntk=True), "anew"),
    "Llama with dynamic NTK": (facts("llama", rope_scaling={"type": "dynamic"}), "anew"),
}


@pytest.mark.parametrize("name", NO_DECODERS)
def test_what_is_not_causal_is_unsound(name: str) -> None:
    config, says = NO_DECODERS[name]
    report = check(config)
    (why,) = report.unsound
    assert says in why
    assert report.attention == ("causal" if says == "anew" else "bidirectional")


NOT_KNOWN: dict[str, tuple[dict[str, Any], str]] = {
    "Phi-3-small": (facts("phi3small"), "phi3small"),
    "RWKV-6": (facts("rwkv6"), "rwkv6"),
    "mllama": ({"model_type": "mllama", "text_config": facts("mllama_text_model")}, "mllama"),
    "gpt-neo": (facts("gpt_neo", attention_types=[[["global", "local"], 6]]), "attention_types"),
    "Qwen2.5-7B-1M": (
        facts("qwen2", dual_chunk_attention_config={"chunk_size": 262144}),
        "dual_chunk_attention_config",
    ),
    "a wrapper of tomorrow": (
        {"model_type": "tomorrow_vl", "text_config": facts("llama")},
        "tomorrow_vl",
    ),
    "NV-Embed": (facts("nvembed"), "nvembed"),
    "llm2vec": (facts("mistral", architectures=["MistralEncoderModel"]), "MistralEncoderModel"),
    "DeepSeek-V4": (facts("deepseek_v4", compress_ratios=[4, 128]), "deepseek_v4"),
}


@pytest.mark.parametrize("name", NOT_KNOWN)
def test_what_is_not_known_is_refused_by_its_name(name: str) -> None:
    config, says = NOT_KNOWN[name]
    with pytest.raises(NotUnderstood, match=says):
        check(config)


# The scheme that keys decide, of one architecture.
SAID_BY_KEYS: dict[str, tuple[dict[str, Any], str]] = {
    "Granite-4.0-H": (
        facts("granitemoehybrid", layer_types=["mamba", "attention"] * 6),
        "none",
    ),
    "Granite-4.0-H, as it says": (
        facts(
            "granitemoehybrid",
            layer_types=["mamba", "attention"] * 6,
            position_embedding_type="nope",
        ),
        "none",
    ),
    "Granite-4.0": (
        facts("granitemoehybrid", layer_types=["attention"] * 12, position_embedding_type="rope"),
        "rope",
    ),
    "Jais-13B": (facts("jais", position_embedding_type="alibi"), "alibi"),
    "Falcon-RW-1B": (facts("falcon", alibi=True), "alibi"),
    "Falcon-7B": (facts("falcon", alibi=False), "rope"),
    "Baichuan-7B": (facts("baichuan", hidden_size=4096, num_attention_heads=32), "rope"),
    "Baichuan-13B": (facts("baichuan", hidden_size=5120, num_attention_heads=40), "alibi"),
    "BioGPT": (facts("biogpt"), "learned"),
    "GPT": ({"model_type": "openai-gpt", "n_layer": 12, "n_embd": 768, "n_head": 12}, "learned"),
    "XGLM": (facts("xglm"), "sinusoidal"),
    "RWKV": (facts("rwkv"), "none"),
    "Qwen2-VL": (
        facts("qwen2_vl", rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]}),
        "mrope",
    ),
}


@pytest.mark.parametrize("name", SAID_BY_KEYS)
def test_positions_that_keys_decide(name: str) -> None:
    config, scheme = SAID_BY_KEYS[name]
    report = check(config)
    assert (report.position, report.unsound) == (scheme, [])


def test_the_tables_do_not_contradict_each_other() -> None:
    assert not set(CAUSAL) & set(NOT_CAUSAL)
    assert not (WRAPPERS | IMAGES_SEE_THEMSELVES) & set(NOT_CAUSAL)
    assert all(name == name.lower() for name in {*CAUSAL, *NOT_CAUSAL, *WRAPPERS})


def test_images_are_told() -> None:
    gemma = {"model_type": "gemma3", "text_config": facts("gemma3_text", sliding_window=512)}
    notes = " ".join(check(gemma).notes)
    assert "must not end inside one" in notes
    assert "come from what is in these" in notes
    assert "come from what is in these" in " ".join(check(SAID_BY_KEYS["Qwen2-VL"][0]).notes)


def test_an_architecture_that_is_like_another() -> None:
    config = facts("of tomorrow", architectures=["TomorrowModel"])
    assert check(config, as_type="llama").position == "rope"
    assert check(config, as_type="bloom").position == "alibi"
    with pytest.raises(NotUnderstood, match="not known either"):
        check(config, as_type="of tomorrow")
    assert check(facts("bert"), as_type="llama").unsound, "that it is not causal is known"


def test_an_indexer_is_counted() -> None:
    latents = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
    plain = check(facts("deepseek_v3", **latents))
    indexed = check(facts("deepseek_v32", **latents, index_head_dim=128))
    # One key in FP8 and a scale of 4 bytes.
    assert indexed.groups[0].block_bytes - plain.groups[0].block_bytes == 16 * 12 * (128 + 4)
    assert any("indexer" in note for note in indexed.notes)


@pytest.mark.parametrize("name", ["torch.bfloat16", "bfloat16", "auto", None])
def test_types_as_they_are_written(name: str | None) -> None:
    assert check(facts("llama", dtype=name)).dtype == "bfloat16"
    assert check(facts("llama", dtype="torch.float32")).dtype == "float32"
    assert check(facts("llama", dtype="int3"), dtype="torch.float16").dtype == "float16"


# ---- what is no configuration

ODD: dict[str, tuple[bytes, int, str]] = {
    "a list": (b"[1]", WRONG, "expected an object"),
    "null": (b"null", WRONG, "expected an object"),
    "a text": (b'"x"', WRONG, "expected an object"),
    "a number": (b"7", WRONG, "expected an object"),
    "nothing": (b"", WRONG, "not JSON"),
    "half of it": (b'{"model_type": "llama"', WRONG, "not JSON"),
    "twice": (b'{"model_type": "llama", "model_type": "bert"}', WRONG, "duplicate"),
    "a byte order mark": (b"\xef\xbb\xbf{}", WRONG, "byte order mark"),
    "gzip": (gzip.compress(b"{}"), WRONG, "gunzip"),
    "GGUF": (b"GGUF\x03\0\0\0", WRONG, "GGUF"),
    "bytes": (bytes(range(256)), WRONG, "not JSON"),
    "UTF-16": ("{}".encode("utf-16"), WRONG, "UTF-16"),
    "deep": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, WRONG, "not JSON"),
    "many digits": (b'{"num_hidden_layers": ' + b"9" * 5000 + b"}", WRONG, "not JSON"),
    "too much": (b" " * ((16 << 20) + 1), WRONG, "16 MiB"),
    "an empty object": (b"{}", REFUSED, "model_type"),
    "nested null": (b'{"model_type": "llava", "text_config": null}', REFUSED, "num_hidden_layers"),
    "a nested list": (b'{"model_type": "llava", "text_config": [1]}', REFUSED, "num_hidden_layers"),
    "lines in a name": (b'{"model_type": "a\\nb\\u001b[2J"}', REFUSED, "model_type"),
}
VALUES: dict[str, tuple[dict[str, Any], int, str]] = {
    "negative layers": ({"num_hidden_layers": -1}, REFUSED, "num_hidden_layers"),
    "no layers": ({"num_hidden_layers": 0}, REFUSED, "num_hidden_layers"),
    "too many layers": ({"num_hidden_layers": 10**15}, REFUSED, "num_hidden_layers"),
    "half a layer": ({"num_hidden_layers": 1.5}, REFUSED, "num_hidden_layers"),
    "no heads": ({"num_key_value_heads": 0}, REFUSED, "num_key_value_heads"),
    "types that are a number": ({"layer_types": 5}, REFUSED, "layer_types"),
    "types in lists": ({"layer_types": [["a"]] * 12}, REFUSED, "layer_types"),
    "no window": ({"sliding_window": 0}, REFUSED, "sliding_window"),
    "a window that is none": ({"sliding_window": -1}, SOUND, "sound"),
    "rotation as a text": ({"rope_scaling": "linear"}, REFUSED, "rope_scaling"),
    "a type of no name": ({"dtype": ["bfloat16"]}, REFUSED, "--dtype"),
}


def run(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    status = main([str(path), *options])
    said = capsys.readouterr()
    return status, said.out, said.err


@pytest.mark.parametrize("name", ODD)
def test_what_is_no_configuration_ends_in_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, wanted, says = ODD[name]
    path = tmp_path / "config.json"
    path.write_bytes(text)
    status, out, err = run(path, capsys)
    assert (status, out) == (wanted, "")
    assert says in err
    assert err.count("\n") == 1
    assert err[:-1].isprintable()


@pytest.mark.parametrize("name", VALUES)
def test_values_that_cannot_be(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, wanted, says = VALUES[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(facts("mistral") | change))
    status, out, err = run(path, capsys)
    assert status == wanted, err
    assert says in out + err
    assert status == SOUND or err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--block-tokens", "0"], "from 1 to 65536"),
        (["--block-tokens", "-3"], "from 1 to 65536"),
        (["--block-tokens", "100000"], "from 1 to 65536"),
        (["--ranks", "0"], "from 1 to 1024"),
        (["--ranks", "-2"], "from 1 to 1024"),
        (["--ranks", "5"], "12 KV heads do not divide"),
        (["--dtype", "int3"], "known are float32"),
        (["--block-tokens", "65536"], "the daemon takes"),
    ],
)
def test_options_that_cannot_be(
    options: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(facts("llama")))
    status, out, err = run(path, capsys, *options)
    assert (status, out) == (WRONG, "")
    assert says in err


def test_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "absent", capsys)[0] == WRONG
    status, _, err = run(tmp_path, capsys)
    assert status == WRONG
    assert "a directory without a config.json" in err
    os.mkfifo(tmp_path / "fifo")
    status, _, err = run(tmp_path / "fifo", capsys)
    assert status == WRONG
    assert "neither a file nor a directory" in err


def test_answers_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    for kind, wanted, sound in (("llama", SOUND, True), ("bert", UNSOUND, False)):
        path.write_text(json.dumps(facts(kind)))
        status, out, _ = run(path, capsys, "--json")
        assert (status, json.loads(out)["sound"]) == (wanted, sound)
    path.write_text(json.dumps(facts("of tomorrow")))
    status, out, _ = run(path, capsys, "--json")
    assert status == REFUSED
    assert json.loads(out)["sound"] is None
    assert "of tomorrow" in json.loads(out)["not_understood"]


def test_the_program_itself(tmp_path: Path) -> None:
    """Statuses of the process, and that --help has them."""
    module = [sys.executable, "-m", "kvcache_client.check"]
    for text, wanted in ((json.dumps(facts("bert")), UNSOUND), ("[1]", WRONG), ("{}", REFUSED)):
        (tmp_path / "config.json").write_text(text)
        ran = subprocess.run([*module, tmp_path], capture_output=True, text=True, check=False)
        assert ran.returncode == wanted, ran.stderr
        assert "Traceback" not in ran.stderr
    ran = subprocess.run([*module, "--help"], capture_output=True, text=True, check=True)
    for status in ("0  sound", "1  unsound", "2  the command line", "3  not understood", "4  this"):
        assert status in ran.stdout


# ---- random configurations

_KEYS = """
    model_type architectures num_hidden_layers hidden_size num_attention_heads head_dim
    num_key_value_heads layer_types sliding_window use_sliding_window max_window_layers
    kv_lora_rank qk_rope_head_dim index_head_dim rope_scaling rope_parameters alibi
    position_embedding_type is_causal is_decoder use_bidirectional_attention dtype
    quantization_config text_config attn_config linear_attn_config block_configs
    hybrid_override_pattern mamba_step attn_layer_period per_layer_config odd_causal
"""
KEYS = _KEYS.split()


def anything(chance: random.Random, depth: int = 3) -> Any:
    """A value of JSON."""
    simple = (
        None,
        True,
        False,
        0,
        -1,
        1,
        12,
        10**9,
        1 << 70,
        1.5,
        float("nan"),
        "",
        "rope",
        "full_attention",
        "\ud800",
        "x" * 300,
    )
    kind = chance.randrange(6 if depth else 4)
    if kind < 4:
        return chance.choice(simple)
    if kind == 4:
        return [anything(chance, depth - 1) for _ in range(chance.randrange(4))]
    return {
        chance.choice([*KEYS, "x"]): anything(chance, depth - 1) for _ in range(chance.randrange(4))
    }


def test_random_configurations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No traceback, a status of the list, one line where nothing is answered. The seed is fixed."""
    chance = random.Random(23)
    models = [*CAUSAL, *NOT_CAUSAL, *WRAPPERS, "of tomorrow"]
    path = tmp_path / "config.json"
    seen: dict[int, int] = {}
    for _ in range(1000):
        if chance.random() < 0.5:
            config = facts(chance.choice(models))
        else:
            config = dict(chance.choice(SHAPES)["config"])
        for _ in range(chance.randrange(4)):
            config[chance.choice(KEYS)] = anything(chance)
        if chance.random() < 0.2:
            config = {"model_type": chance.choice(models), "text_config": config}
        path.write_text(json.dumps(config))
        status, out, err = run(path, capsys)
        assert status in (SOUND, UNSOUND, WRONG, REFUSED), config
        answered = status in (SOUND, UNSOUND)
        assert bool(out) == answered, config
        assert err.count("\n") == (0 if answered else 1), config
        seen[status] = seen.get(status, 0) + 1
        if status == SOUND:
            inner = config.get("text_config")
            inner = inner if isinstance(inner, dict) else config
            assert inner.get("is_causal") is not False, config
    assert all(seen[status] > 50 for status in (SOUND, UNSOUND, REFUSED)), seen
