# SPDX-License-Identifier: Apache-2.0
"""Conversations, documents, pins, hints, statistics."""

from __future__ import annotations

import pytest
from conftest import BLOCK_BYTES, BLOCK_TOKENS, payload

import kvcache_client as kv

N = 4
CONVERSATION, DOCUMENT = kv.NameKind.CONVERSATION, kv.NameKind.DOCUMENT


@pytest.fixture
def keys(ns: kv.Namespace) -> bytes:
    made = ns.hash_chain(range(N * BLOCK_TOKENS))
    assert not any(ns.store(0, None, made, [payload(i) for i in range(N)], admit=True))
    return made


def test_a_conversation_goes_on(session: kv.Session, ns: kv.Namespace, keys: bytes) -> None:
    half = N * BLOCK_TOKENS // 2
    assert session.name_get(CONVERSATION, "talk") is None
    assert ns.name_put(CONVERSATION, "talk", keys[: N // 2 * 32], half) == (
        half,
        N // 2 * BLOCK_BYTES,
    )
    assert session.name_put(ns, CONVERSATION, "talk", keys, 2 * half, priority=50, ttl_ms=60_000)
    info = session.name_get(CONVERSATION, "talk")
    assert info is not None
    assert (info.kind, info.name, info.tokens, info.tokens_cached) == (
        CONVERSATION,
        "talk",
        2 * half,
        2 * half,
    )
    assert (info.priority, info.ttl_ms, info.pinned) == (50, 60_000, False)
    assert info.tip == keys[-32:]
    assert info.ns == ns.id
    assert session.name_load(CONVERSATION, "talk", wait=True) == N * BLOCK_BYTES
    assert [i.name for i in session.name_list(CONVERSATION, prefix="ta")] == ["talk"]
    assert session.name_list(DOCUMENT, prefix="ta") == []
    session.name_forget(CONVERSATION, "talk", evict=True)
    assert session.name_get(CONVERSATION, "talk") is None
    assert ns.lookup(keys, 2 * half).tokens == 0
    with pytest.raises(kv.Error, match="NO_NAME"):
        session.name_forget(CONVERSATION, "talk")


def test_a_document_keeps_its_tokens(session: kv.Session, ns: kv.Namespace, keys: bytes) -> None:
    tokens = list(range(N * BLOCK_TOKENS))
    ns.name_put(DOCUMENT, "text", keys, len(tokens), pinned=True, durable=True, token_ids=tokens)
    info = session.name_get(DOCUMENT, "text")
    assert info is not None
    assert info.pinned
    assert info.has_tokens
    assert info.bytes_on_disk == N * BLOCK_BYTES
    assert list(session.name_tokens(DOCUMENT, "text")) == tokens
    with pytest.raises(kv.BadArgument, match="3 token ids"):
        ns.name_put(DOCUMENT, "text", keys, len(tokens), token_ids=[1, 2, 3])
    session.name_forget(DOCUMENT, "text")


def test_a_name_of_nothing_is_refused(ns: kv.Namespace) -> None:
    with pytest.raises(kv.Error, match="GONE"):
        ns.name_put(CONVERSATION, "empty", ns.hash_chain([9] * BLOCK_TOKENS), BLOCK_TOKENS)


def test_pins(session: kv.Session, ns: kv.Namespace, keys: bytes) -> None:
    pin = ns.pin(keys, N * BLOCK_TOKENS, in_memory=True, ttl_ms=60_000)
    (info,) = [p for p in session.pins() if p.id == pin]
    assert (info.tokens, info.bytes, info.in_memory) == (N * BLOCK_TOKENS, N * BLOCK_BYTES, True)
    assert 0 < info.left_ms <= 60_000
    session.unpin(pin)
    with pytest.raises(kv.Error, match="NO_NAME"):
        session.unpin(pin)


def test_hints_are_counted(session: kv.Session, ns: kv.Namespace, keys: bytes) -> None:
    for kind in kv.Hint:
        within = 1000 if kind is kv.Hint.SOON else 0
        ns.hint(keys, N * BLOCK_TOKENS, kind, within_ms=within)
    session.ping()
    with pytest.raises(kv.BadArgument):
        ns.hint(keys, N * BLOCK_TOKENS, 9)  # type: ignore[arg-type]


def test_statistics_and_counters(session: kv.Session, ns: kv.Namespace, keys: bytes) -> None:
    stats = session.stats("core.")
    assert len(stats) > 5
    assert all(name.startswith("core.") for name in stats)
    assert set(stats) < set(session.stats())
    assert session.counters() == {
        "lookups_down": 0,
        "stores_dropped_blocks": 0,
        "stores_dropped_bytes": 0,
        "reconnects": 0,
        "stale": 0,
    }
    assert session.last_error == ""
