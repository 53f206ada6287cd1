# SPDX-License-Identifier: Apache-2.0
"""transformers: what comes back from each tier gives the same logits, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Daemon

import kvcache_client as kv

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")

from kvcache_client.transformers import DaemonCache, PrefixCache  # noqa: E402

DTYPES = [torch.float32, torch.bfloat16]
PREFIX, SUFFIX = 101, 9


def tiny_llama(dtype: Any, seed: int = 0, **more: Any) -> Any:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        **more,
    )
    return transformers.LlamaForCausalLM(config).to(dtype).eval()


def tiny_gemma3(dtype: Any) -> Any:
    torch.manual_seed(1)
    config = transformers.Gemma3TextConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        sliding_window=24,
        layer_types=["sliding_attention"] * 3 + ["full_attention"],
    )
    return transformers.Gemma3ForCausalLM(config).to(dtype).eval()


def tokens(n: int, seed: int = 7) -> Any:
    return torch.randint(0, 256, (1, n), generator=torch.Generator().manual_seed(seed))


def logits(model: Any, ids: Any, cache: Any) -> Any:
    """Of the tokens that the cache does not have."""
    with torch.no_grad():
        return model(ids[:, cache.get_seq_length() :], past_key_values=cache).logits


def bits(tensor: Any) -> bytes:
    return bytes(tensor.contiguous().view(torch.uint8).numpy().tobytes())


def session_of(daemon: Daemon) -> kv.Session:
    return kv.Session(socket=daemon.socket, staging_bytes=4 << 20, must_connect=True)


def stored(model: Any, session: kv.Session, ids: Any, **options: Any) -> Any:
    """Computes the prefix and stores it; the logits of the suffix without the daemon."""
    cache = PrefixCache(model, session).load(ids)
    assert isinstance(cache, DaemonCache)
    assert cache.loaded_tokens == 0
    whole = ids.shape[1] - 1 - (ids.shape[1] - 1) % 16
    logits(model, ids[:, :whole], cache)
    assert cache.save(ids, **options) == whole
    return logits(model, ids, cache)


def check_loaded(model: Any, session: kv.Session, ids: Any, expected: Any) -> None:
    cache = PrefixCache(model, session).load(ids)
    assert cache.loaded_tokens == (ids.shape[1] - 1) // 16 * 16
    assert bits(logits(model, ids, cache)) == bits(expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", [tiny_llama, tiny_gemma3])
def test_host_memory(daemon: Daemon, make: Any, dtype: Any) -> None:
    model, ids = make(dtype), tokens(PREFIX + SUFFIX)
    with session_of(daemon) as session:
        expected = stored(model, session, ids)
        check_loaded(model, session, ids, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_storage_after_a_restart(own_daemon: Daemon, dtype: Any) -> None:
    model, ids = tiny_llama(dtype), tokens(PREFIX + SUFFIX)
    where = own_daemon.directory / "store"
    where.mkdir()
    nvme = (f"nvme.paths={where}", "nvme.limit=64MiB", "nvme.segment=1MiB")
    own_daemon.start(*nvme)
    with session_of(own_daemon) as session:
        expected = stored(model, session, ids, durable=True)
    own_daemon.kill()
    own_daemon.start(*nvme)
    with session_of(own_daemon) as session:
        before = session.stats("nvme.")
        check_loaded(model, session, ids, expected)
        assert before != session.stats("nvme.")


def test_a_damaged_block_changes_the_logits(daemon: Daemon) -> None:
    model, ids = tiny_llama(torch.float32, seed=3), tokens(PREFIX + SUFFIX)
    with session_of(daemon) as session:
        prefixes = PrefixCache(model, session)
        cache = prefixes.load(ids)
        logits(model, ids[:, :96], cache)
        cache.layers[1].keys[0, 0, 40, 3] += 1.0
        assert cache.save(ids) == 96
        again = prefixes.load(ids)
        assert again.loaded_tokens == 96
        clean = DaemonCache(prefixes, [], b"")
        logits(model, ids[:, :96], clean)
        assert bits(logits(model, ids, again)) != bits(logits(model, ids, clean))


def test_chunks_are_the_same_with_and_without_a_hit(daemon: Daemon) -> None:
    model = tiny_llama(torch.float32, seed=4)
    first, second = tokens(300), tokens(300)
    second[0, 200:] += 1
    second %= 256
    with session_of(daemon) as session:
        prefixes = PrefixCache(model, session, chunk_tokens=64)
        alone = prefixes.prefill(second, extra=b"elsewhere")
        assert alone.loaded_tokens == 0
        prefixes.prefill(first)
        hit = prefixes.prefill(second)
        assert hit.loaded_tokens == 192
        for a, b in zip(hit.layers, alone.layers, strict=True):
            assert bits(a.keys) == bits(b.keys)
            assert bits(a.values) == bits(b.values)
        assert bits(logits(model, second, hit)) == bits(logits(model, second, alone))


def test_decoded_tokens_are_not_stored_as_chunks(daemon: Daemon) -> None:
    model, ids = tiny_llama(torch.float32, seed=5), tokens(100)
    with session_of(daemon) as session:
        prefixes = PrefixCache(model, session, chunk_tokens=16)
        cache = prefixes.prefill(ids)
        output = model.generate(ids, past_key_values=cache, max_new_tokens=40, do_sample=False)
        assert cache.save(output) == 96


def test_generate_goes_on_from_a_hit(daemon: Daemon) -> None:
    model, ids = tiny_llama(torch.float32, seed=6), tokens(PREFIX)
    with session_of(daemon) as session:
        prefixes = PrefixCache(model, session)
        cache = prefixes.load(ids)
        output = model.generate(ids, past_key_values=cache, max_new_tokens=40, do_sample=False)
        assert cache.save(output, conversation="chat") == 128
        longer = torch.cat([output, tokens(20)], dim=1)
        again = prefixes.load(longer)
        assert again.loaded_tokens == 128
        hit = model.generate(longer, past_key_values=again, max_new_tokens=20, do_sample=False)
        plain = model.generate(longer, max_new_tokens=20, do_sample=False)
        assert torch.equal(hit, plain)
        info = session.name_get(kv.NameKind.CONVERSATION, "chat")
        assert info is not None
        assert info.tokens == 128


def test_other_weights_are_another_namespace(daemon: Daemon) -> None:
    ids = tokens(PREFIX)
    with session_of(daemon) as session:
        stored(tiny_llama(torch.float32, seed=8), session, ids)
        assert PrefixCache(tiny_llama(torch.float32, seed=9), session).load(ids).loaded_tokens == 0


def test_without_a_daemon_all_is_computed(tmp_path: Path) -> None:
    model, ids = tiny_llama(torch.float32), tokens(PREFIX)
    with kv.Session(socket=str(tmp_path / "none"), staging_bytes=1 << 20, no_wait=True) as session:
        cache = PrefixCache(model, session).load(ids)
        assert cache.loaded_tokens == 0
        output = model.generate(ids, past_key_values=cache, max_new_tokens=5, do_sample=False)
        assert torch.equal(output, model.generate(ids, max_new_tokens=5, do_sample=False))
        assert cache.save(output) == 0


def test_a_model_that_cannot_be_reused_is_refused(daemon: Daemon) -> None:
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    with session_of(daemon) as session, pytest.raises(ValueError, match="dynamic"):
        PrefixCache(tiny_llama(torch.float32, rope_parameters=rope), session)


def test_longrope_shares_up_to_its_original_length(daemon: Daemon) -> None:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "short_factor": [1.0] * 8,
        "long_factor": [4.0] * 8,
        "original_max_position_embeddings": 128,
    }
    model, ids = tiny_llama(torch.float32, rope_parameters=rope), tokens(PREFIX)
    with session_of(daemon) as session:
        stored(model, session, ids)
        prefixes = PrefixCache(model, session)
        assert prefixes.load(ids).loaded_tokens == 96
        longer = torch.cat([ids, tokens(60)], dim=1)
        cache = prefixes.load(longer)
        assert cache.loaded_tokens == 0
        logits(model, longer, cache)
        assert cache.save(longer) == 0


def test_misuse_is_named(daemon: Daemon) -> None:
    model, ids = tiny_llama(torch.float32), tokens(PREFIX, seed=11)
    with session_of(daemon) as session:
        prefixes = PrefixCache(model, session)
        with pytest.raises(ValueError, match="2 sequences"):
            prefixes.load(torch.cat([ids, ids]))
        stored(model, session, ids)
        cache = prefixes.load(ids)
        with pytest.raises(ValueError, match="do not begin with"):
            cache.save(tokens(PREFIX, seed=12))
