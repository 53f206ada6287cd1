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


def generated(model: Any, ids: Any, count: int = 12, **more: Any) -> Any:
    return model.generate(ids, max_new_tokens=count, do_sample=False, **more)


def continued(ids: Any, keep: int, seed: int, count: int = 80) -> Any:
    """Another text that begins with the same tokens."""
    return torch.cat([ids[:, :keep], tokens(count, seed)], dim=1)


@pytest.mark.parametrize("keep", [50, -46])
def test_crop_into_what_was_not_loaded_is_refused(daemon: Daemon, keep: int) -> None:
    model, ids = tiny_gemma3(torch.float32), tokens(PREFIX, seed=200 + keep)
    with session_of(daemon) as session:
        stored(model, session, ids)
        cache = PrefixCache(model, session).load(ids)
        assert cache.loaded_tokens == 96
        with pytest.raises(RuntimeError, match="crop to 50 tokens"):
            cache.crop(keep)
        assert cache.get_seq_length() == 96
        computed = PrefixCache(model, session).load(tokens(PREFIX, seed=21))
        logits(model, tokens(PREFIX, seed=21), computed)
        computed.crop(keep if keep > 0 else -51)  # all of it is here
        assert computed.get_seq_length() == 50


def test_a_cropped_window_gives_right_tokens_and_is_stored(daemon: Daemon) -> None:
    model, ids = tiny_gemma3(torch.float32), tokens(PREFIX, seed=22)
    other = continued(ids, 90, seed=23)
    with session_of(daemon) as session:
        stored(model, session, ids)
        prefixes = PrefixCache(model, session)
        cache = prefixes.load(ids)
        cache.crop(-6)
        with torch.no_grad():
            expected = model(other).logits[:, 90:]
        assert torch.allclose(logits(model, other, cache), expected, atol=1e-5)
        assert cache.save(other) == 160
        again = prefixes.load(continued(other, 170, seed=24))
        assert again.loaded_tokens == 160
        assert torch.allclose(logits(model, other, again), expected[:, 70:], atol=1e-5)


def test_holes_are_not_stored(daemon: Daemon) -> None:
    model, ids = tiny_gemma3(torch.float32), tokens(PREFIX, seed=25)
    with session_of(daemon) as session:
        stored(model, session, ids)
        prefixes = PrefixCache(model, session)
        cache = prefixes.load(ids)
        assert cache._holes == [(64, 23)]
        cache._extra = b"elsewhere"  # where the daemon has nothing
        assert cache.save(ids) == 0
        assert prefixes.load(ids, extra=b"elsewhere").loaded_tokens == 0


def test_padding_is_refused(daemon: Daemon) -> None:
    model, text = tiny_llama(torch.float32, seed=30), tokens(64, seed=30)
    padded = torch.cat([torch.full((1, 16), 2), text], dim=1)
    mask = (torch.arange(80) >= 16).long()[None]
    with session_of(daemon) as session:
        prefixes = PrefixCache(model, session)
        with pytest.raises(ValueError, match="padding"):
            generated(model, padded, past_key_values=prefixes.load(padded), attention_mask=mask)
        with pytest.raises(ValueError, match="padding"):
            model.base_model(text, mask[:, :64], past_key_values=prefixes.load(padded))
        four = torch.zeros(1, 1, 80, 80)
        with pytest.raises(ValueError, match="attention_mask"):
            model(padded, attention_mask=four, past_key_values=prefixes.load(padded))
        assert prefixes.load(padded).loaded_tokens == 0
        stored(model, session, padded)
        hit = prefixes.load(padded)
        assert hit.loaded_tokens == 64
        with pytest.raises(ValueError, match="padding"):
            generated(model, padded, past_key_values=hit, attention_mask=mask)
        ones = torch.ones_like(mask)
        got = generated(model, padded, past_key_values=hit, attention_mask=ones)
        assert torch.equal(got, generated(model, padded, attention_mask=ones))


def test_other_positions_are_refused(daemon: Daemon) -> None:
    model, ids = tiny_llama(torch.float32, seed=31), tokens(PREFIX, seed=31)
    with session_of(daemon) as session:
        cache = PrefixCache(model, session).load(ids)
        with pytest.raises(ValueError, match="0 to 100 were expected"):
            model(ids, position_ids=torch.arange(5, 106)[None], past_key_values=cache)
        model(ids, position_ids=torch.arange(PREFIX)[None], past_key_values=cache)
        assert cache.save(ids) == 96


def test_a_loaded_prompt_is_not_computed_again(daemon: Daemon) -> None:
    """transformers does so: with its own filled DynamicCache the text that follows is wrong."""
    model, ids = tiny_llama(torch.float32, seed=46), tokens(40, seed=46).repeat(1, 3)
    with session_of(daemon) as session:
        stored(model, session, ids)
        cache = PrefixCache(model, session).load(ids)
        with pytest.raises(ValueError, match="behind the tokens of this"):
            generated(model, ids, past_key_values=cache, prompt_lookup_num_tokens=4)


@pytest.mark.parametrize("more", [{"rms_norm_eps": 0.5}, {"hidden_act": "relu"}])
def test_another_configuration_is_another_namespace(daemon: Daemon, more: Any) -> None:
    ids = tokens(PREFIX, seed=32)
    with session_of(daemon) as session:
        one = tiny_llama(torch.float32, seed=32)
        if PrefixCache(one, session).load(ids).loaded_tokens == 0:
            stored(one, session, ids)
        other = tiny_llama(torch.float32, seed=32, **more)
        assert PrefixCache(other, session).load(ids).loaded_tokens == 0
        same = tiny_llama(torch.float32, seed=32, use_cache=False, eos_token_id=3)
        assert PrefixCache(same, session).load(ids).loaded_tokens == 96


def test_weights_in_buffers_are_another_namespace(daemon: Daemon) -> None:
    ids, models = tokens(PREFIX, seed=33), []
    for factor in (1, 2):
        model = tiny_llama(torch.float32, seed=33)
        linear = model.model.layers[0].self_attn.k_proj  # a buffer, as quantizers make it
        weight = linear.weight.detach() * factor
        del linear.weight
        linear.register_buffer("weight", weight)
        models.append(model)
    with session_of(daemon) as session:
        stored(models[0], session, ids)
        assert PrefixCache(models[1], session).load(ids).loaded_tokens == 0


def test_changed_weights_are_refused(daemon: Daemon) -> None:
    model, ids = tiny_llama(torch.float32, seed=34), tokens(PREFIX, seed=34)
    with session_of(daemon) as session:
        stored(model, session, ids)
        prefixes = PrefixCache(model, session)
        cache = prefixes.load(ids)
        first = next(model.parameters())
        with torch.no_grad():
            first.copy_(first.clone())  # the same again
        assert prefixes.load(ids).loaded_tokens == 96
        with torch.no_grad():
            first.add_(0.05)
        with pytest.raises(ValueError, match="weights of the model have changed"):
            prefixes.load(ids)
        with pytest.raises(ValueError, match="weights of the model have changed"):
            cache.save(ids)
        assert PrefixCache(model, session).load(ids).loaded_tokens == 0


def test_what_follows_a_crop_is_not_stored_as_chunks(daemon: Daemon) -> None:
    model, ids = tiny_llama(torch.float32, seed=35), tokens(PREFIX, seed=35)
    other = continued(ids, 32, seed=36)
    with session_of(daemon) as session:
        prefixes = PrefixCache(model, session, chunk_tokens=16)
        cache = prefixes.prefill(ids)
        cache.crop(32)
        logits(model, other, cache)
        assert cache.save(other) == 32
        assert prefixes.load(other).loaded_tokens == 32


def test_only_what_was_computed_is_stored(daemon: Daemon) -> None:
    model, ids = tiny_llama(torch.float32, seed=37), tokens(PREFIX, seed=37)
    with session_of(daemon) as session:
        prefixes = PrefixCache(model, session)
        cache = prefixes.load(ids)
        generated(model, ids, past_key_values=cache)
        with pytest.raises(ValueError, match="token 0 is"):
            cache.save(tokens(PREFIX, seed=38))
        assert cache.save(ids) == 96
        beside = prefixes.load(tokens(PREFIX, seed=39))
        model.base_model.forward(tokens(PREFIX, seed=39), past_key_values=beside)
        with pytest.raises(ValueError, match="101 tokens, and 0 came"):
            beside.save(tokens(PREFIX, seed=39))
        embedded = prefixes.load(tokens(PREFIX, seed=40))
        embeddings = model.get_input_embeddings()(tokens(PREFIX, seed=40))
        model(inputs_embeds=embeddings, past_key_values=embedded)
        assert embedded.save(tokens(PREFIX, seed=40)) == 96
        cut = prefixes.load(tokens(PREFIX, seed=45))
        logits(model, tokens(PREFIX, seed=45), cut)
        cut.layers[1].crop(-3)  # as of a pass that ended half-way
        with pytest.raises(ValueError, match=r"3 layers of \[98, 101\] tokens"):
            cut.save(tokens(PREFIX, seed=45))


def test_a_cropped_hit_goes_on_and_is_stored(daemon: Daemon) -> None:
    model, ids = tiny_llama(torch.float32, seed=41), tokens(PREFIX, seed=41)
    other = continued(ids, 50, seed=42)
    with session_of(daemon) as session:
        stored(model, session, ids)
        prefixes = PrefixCache(model, session)
        cache = prefixes.load(ids)
        cache.crop(50)
        logits(model, other, cache)
        with pytest.raises(ValueError, match="token 50 is"):
            cache.save(ids)
        assert cache.save(other) == 128
        hit = generated(model, other, past_key_values=prefixes.load(other))
        assert torch.equal(hit, generated(model, other))


def test_an_empty_cache_is_saved_as_nothing(daemon: Daemon) -> None:
    model, ids = tiny_llama(torch.float32, seed=43), tokens(PREFIX, seed=43)
    with session_of(daemon) as session:
        prefixes = PrefixCache(model, session)
        assert prefixes.load(ids).save(ids) == 0
        one = prefixes.prefill(ids[:, :1])
        assert one.get_seq_length() == 0
        assert torch.equal(
            generated(model, ids[:, :1], past_key_values=one), generated(model, ids[:, :1])
        )
        cache = prefixes.load(ids)
        logits(model, ids, cache)
        cache.reset()
        assert cache.save(ids) == 0
        logits(model, ids, cache)
        assert cache.save(ids) == 96


@pytest.mark.parametrize("more", [{"num_beams": 3}, {"num_return_sequences": 3}])
def test_several_sequences_are_refused(daemon: Daemon, more: Any) -> None:
    model, ids = tiny_llama(torch.float32, seed=44), tokens(PREFIX, seed=44)
    with session_of(daemon) as session:
        prefixes = PrefixCache(model, session)
        cache = prefixes.load(ids)
        logits(model, ids, cache)
        cache.save(ids)
        cache = prefixes.load(ids)
        with pytest.raises(ValueError, match="3 sequences"):
            model.generate(ids, past_key_values=cache, max_new_tokens=3, do_sample=True, **more)


@pytest.mark.parametrize(
    "ids", ["abc", None, 5, [1.5] * 40, torch.zeros(1, 1, 40, dtype=torch.long), torch.tensor(5)]
)
def test_what_are_no_token_ids_is_named(daemon: Daemon, ids: Any) -> None:
    with session_of(daemon) as session:
        prefixes = PrefixCache(tiny_llama(torch.float32), session)
        with pytest.raises(TypeError, match="input_ids: token ids of shape"):
            prefixes.load(ids)


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
        with pytest.raises(ValueError, match="input_ids are empty"):
            prefixes.prefill([])
        with pytest.raises(ValueError, match="chunk_tokens is 0"):
            PrefixCache(model, session, chunk_tokens=0)
