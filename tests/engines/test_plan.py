# SPDX-License-Identifier: Apache-2.0
"""What is served, and what is refused by name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kvcache_client._options import size
from kvcache_client.vllm.cost import PrefillCost
from kvcache_client.vllm.options import Options, Wishes
from kvcache_client.vllm.pages import regions
from kvcache_client.vllm.plan import Refused, _check, _group, _position
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
)

HEADS: dict[str, Any] = {"num_kv_heads": 2, "head_size": 8, "dtype": torch.float32}


def group(spec: Any, **more: Any) -> Any:
    return _group(3, KVCacheGroupSpec(["a.0", "a.1"], spec, **more), 16, False)


def test_full_attention() -> None:
    made = group(FullAttentionSpec(block_size=16, **HEADS))
    assert made.page_bytes == (2 * 2 * 8 * 4 * 16,) * 2
    assert (made.group.rule, made.block_bytes) == ("full", 4096)


def test_window_is_one_less() -> None:
    """The next token sees the W - 1 before it."""
    made = group(SlidingWindowSpec(block_size=32, sliding_window=64, **HEADS))
    assert (made.group.rule, made.group.window, made.scale) == ("window", 63, 2)
    assert made.keys([bytes([i]) * 32 for i in range(8)], 1, 3) == bytes([3]) * 32 + bytes([5]) * 32


def test_padding_is_not_stored() -> None:
    made = group(FullAttentionSpec(block_size=16, page_size_padded=8192, **HEADS))
    assert made.block_bytes == 4096


def test_linear_attention() -> None:
    spec = MambaSpec(16, shapes=((4, 8), (2, 8)), dtypes=(torch.float32, torch.bfloat16),
                     page_size_padded=4096, mamba_cache_mode="align")  # fmt: skip
    made = group(spec)
    assert (made.group.rule, made.page_bytes) == ("state", (160, 160))


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (
            ChunkedLocalAttentionSpec(block_size=16, attention_chunk_size=64, **HEADS),
            "ChunkedLocal",
        ),
        (CrossAttentionSpec(block_size=16, **HEADS), "CrossAttention"),
        (EncoderOnlyAttentionSpec(block_size=16, **HEADS), "EncoderOnly"),
        (FullAttentionSpec(block_size=16, non_causal=True, **HEADS), "not causal"),
        (MambaSpec(16, shapes=((4,),), dtypes=(torch.float32,)), "--mamba-cache-mode align"),
    ],
)
def test_refused_by_name(spec: Any, why: str) -> None:
    with pytest.raises(Refused, match=why) as refused:
        group(spec)
    assert "group 3 (a.0 and 1 more layers)" in str(refused.value)


def config(**changes: Any) -> Any:
    made = SimpleNamespace(
        kv_transfer_config=SimpleNamespace(kv_load_failure_policy="recompute"),
        cache_config=SimpleNamespace(prefix_caching_hash_algo="sha256_cbor"),
        parallel_config=SimpleNamespace(decode_context_parallel_size=1),
        model_config=SimpleNamespace(is_diffusion=False),
    )
    for path, value in changes.items():
        where, name = path.split("__")
        setattr(getattr(made, where), name, value)
    return made


def test_settings_are_right() -> None:
    _check(config())


@pytest.mark.parametrize(
    ("path", "value", "fix"),
    [
        (
            "kv_transfer_config__kv_load_failure_policy",
            "fail",
            '"kv_load_failure_policy": "recompute"',
        ),
        (
            "cache_config__prefix_caching_hash_algo",
            "xxhash",
            "--prefix-caching-hash-algo sha256_cbor",
        ),
        ("parallel_config__decode_context_parallel_size", 2, "decode_context_parallel_size is 2"),
        ("model_config__is_diffusion", True, "diffusion"),
    ],
)
def test_settings_name_the_fix(path: str, value: Any, fix: str) -> None:
    with pytest.raises(Refused, match=fix):
        _check(config(**{path: value}))


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"rope_type": "default", "rope_theta": 1e4}, "rope"),
        ({"rope_type": "yarn", "factor": 4}, "yarn"),
        ({"rope_type": "default", "mrope_section": [1, 1]}, "mrope"),
        ({"rope_type": "dynamic", "factor": 2}, "rope"),
        ({"rope_type": "proportional"}, "rope"),
        (
            {
                "full_attention": {"rope_type": "linear"},
                "sliding_attention": {"rope_type": "default"},
            },
            "rope-linear",
        ),
    ],
)
def test_positions(parameters: dict[str, Any], name: str) -> None:
    text = SimpleNamespace(rope_parameters=parameters, model_type="x")
    made = SimpleNamespace(model_config=SimpleNamespace(hf_text_config=text, max_model_len=100))
    assert _position(made)[0] == name


def test_unknown_position_scheme() -> None:
    text = SimpleNamespace(rope_parameters={"rope_type": "spiral"}, model_type="x")
    with pytest.raises(Refused, match="spiral"):
        _position(SimpleNamespace(model_config=SimpleNamespace(hf_text_config=text)))


# ---- pages


def test_regions_of_dense_blocks() -> None:
    t = torch.zeros(6, 2, 4, 8)
    (only,) = regions(t, 6)
    assert (only.address, only.stride, only.bytes) == (t.data_ptr(), 256, 256)


def test_regions_of_kernel_blocks() -> None:
    """Two kernel blocks are one of the scheduler's."""
    (only,) = regions(torch.zeros(6, 2, 4, 8), 3)
    assert (only.stride, only.bytes) == (512, 512)


def test_regions_of_permuted_blocks() -> None:
    """Heads behind tokens in memory: the same bytes in one piece."""
    t = torch.zeros(6, 4, 2, 8).permute(0, 2, 1, 3)
    (only,) = regions(t, 6)
    assert only.bytes == 256


def test_regions_of_heads_outside() -> None:
    """Heads outermost: a block lies in as many places as there are heads."""
    t = torch.zeros(2, 6, 4, 8).permute(1, 0, 2, 3)
    first, second = regions(t, 6)
    assert (first.bytes, first.stride, second.address - first.address) == (128, 128, 6 * 128)


def test_regions_beside_other_layers() -> None:
    """Two layers share a block's memory."""
    both = torch.zeros(6, 2, 4, 8)
    (only,) = regions(both[:, 1], 6)
    assert (only.address, only.stride, only.bytes) == (both.data_ptr() + 128, 256, 128)


# ---- options and wishes


def test_options() -> None:
    made = Options.of({"socket": "/x", "staging": "64MiB", "load_ms": 7})
    assert (made.socket, made.staging, made.load_ms) == ("/x", 64 << 20, 7)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"stagin": 1}, "'stagin': known are .*staging"),
        ({"staging": "much"}, "staging is 'much': a size such as .* from 65536 to .* expected"),
        ({"staging": 0}, "staging is 0: .* from 65536"),
        ({"staging": "99999999999GiB"}, "staging is .* to 1099511627776 bytes"),
        ({"staging": "9" * 5000}, "staging is '9{79}...: a size"),
        ({"staging": 10**5000}, "staging is a number of thousands of digits: "),
        ({"staging": "\u0663MiB"}, "staging is '\u0663MiB'"),
        ({"staging": "64MiB\n"}, "staging is '64MiB.n'"),
        ({"staging": True}, "staging is True"),
        ({"inline_bytes": 2**80}, "inline_bytes is 1208925819614629174706176: .* from 0 to"),
        ({"inline_bytes": -1}, "inline_bytes is -1"),
        ({"load_ms": "7"}, "load_ms is '7': a whole number from 1 to 600000 was expected"),
        ({"load_ms": True}, "load_ms is True"),
        ({"load_ms": 0}, "load_ms is 0: .* from 1"),
        ({"timeout_ms": 0}, "timeout_ms is 0: .* from 1"),
        ({"timeout_ms": 2**40}, "timeout_ms is 1099511627776: .* to 600000"),
        ({"lookup_ms": 600_001}, "lookup_ms is 600001"),
        ({"start_ms": -1}, "start_ms is -1: .* from 0"),
        ({"store_ms": 1.5}, "store_ms is 1.5"),
        ({"socket": 7}, "socket is 7: a text of 1 to 107 bytes"),
        ({"socket": ""}, "socket is ''"),
        ({"socket": "x" * 108}, "socket is 'x{79}...: a text"),
        ({"name": "a\0"}, "name is 'a.x00': a text of 1 to 40 bytes of UTF-8, without NUL"),
        ({"name": "\ud800"}, "name is '.ud800'"),
        ({"name": "n" * 41}, "name is 'n{41}'"),
        ({"name": None}, "name is None"),
        ({"store_decoded": "true"}, "store_decoded is 'true': true or false was expected"),
        ({1: 2}, "has 1: known are"),
    ],
)
def test_wrong_options(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Options.of(given)


def test_sizes_have_units() -> None:
    given = (65536, "65536", "64KiB", "64 KiB", "1GB", "1TiB")
    bytes_of = size(64 << 10, 1 << 40).of
    assert [bytes_of(x) for x in given] == [65536, 65536, 65536, 65536, 10**9, None]


def test_limits_are_taken() -> None:
    made = Options.of({"staging": 1 << 40, "timeout_ms": 600_000, "name": "n" * 40, "socket": None})
    assert (made.staging, made.timeout_ms, len(made.name)) == (1 << 40, 600_000, 40)


def test_wishes() -> None:
    made, wrong = Wishes.of(
        {"kvcache": {"priority": 70, "hint": "soon", "colour": 1, "ttl_ms": -1}}
    )
    assert made.priority == 70
    assert made.hint is not None
    assert made.ttl_ms == 0
    assert len(wrong) == 2
    assert "'colour' is no wish" in wrong[0]
    assert "ttl_ms is -1" in wrong[1]


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ([1], "kv_transfer_params is [1]: a dictionary was expected"),
        (5, "kv_transfer_params is 5"),
        ({"kvcache": [1]}, "kv_transfer_params['kvcache'] is [1]"),
        ({"kvcache": {1: 2}}, "1 is no wish"),
        ({"kvcache": {"ttl_ms": 10**5000}}, "ttl_ms is a number of thousands of digits"),
        ({"kvcache": {"hint": "x" * 1000}}, f"hint is '{'x' * 79}...: one of"),
    ],
)
def test_wishes_that_are_none(params: Any, text: str) -> None:
    made, (wrong,) = Wishes.of(params)
    assert made == Wishes()
    assert wrong.startswith(text)


def test_no_wishes() -> None:
    for params in (None, {}, {"kvcache": None}, {"other": 1}):
        assert Wishes.of(params) == (Wishes(), [])


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "", "n" * 128, 5])
def test_a_name_that_the_daemon_refuses_is_no_wish(name: Any) -> None:
    made, wrong = Wishes.of({"kvcache": {"conversation": name, "document": name}})
    assert made.conversation is None
    assert made.document is None
    assert len(wrong) == 2


# ---- cost of prefill


def test_prefill_cost() -> None:
    """Short and first steps do not count, shorter ones count at once, changes are reported."""
    now = [0.0]
    cost = PrefillCost(lambda: now[0])

    def step(tokens: int, seconds: float) -> int | None:
        cost.begin(tokens)
        now[0] += seconds
        return cost.end()

    assert [step(1000, 9.0), step(1000, 9.0), step(10, 0.001)] == [None, None, None]
    assert step(1000, 0.01) == 10_000
    assert step(1000, 0.011) is None
    assert step(1000, 0.005) == 5_000
    cost.begin(1000)
    assert step(1000, 0.001) is None
