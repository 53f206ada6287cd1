# SPDX-License-Identifier: Apache-2.0
"""The extension beside a client that was written from PROTOCOL.md alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import BLOCK_BYTES, BLOCK_TOKENS, Daemon, open_ns, payload

import kvcache_client as kv

pytest.importorskip("zmq")
pytest.importorskip("msgpack")
import protocol_client as pure

TOKENS = list(range(7, 7 + 3 * BLOCK_TOKENS + 5))
BLOCKS = [payload(i) for i in range(3)]
WHOLE = 3 * BLOCK_TOKENS


@pytest.fixture
def client(daemon: Daemon) -> Iterator[pure.Client]:
    one = pure.Client(daemon.socket, 1 << 20)
    yield one
    one.close()


def test_keys_are_the_same() -> None:
    seed = bytes(range(32))
    for extra in (b"", b"image"):
        assert pure.keys_of(seed, TOKENS, 16, extra) == kv.hash_chain(seed, TOKENS, 16, extra)


def test_stored_by_the_extension(client: pure.Client, session: kv.Session) -> None:
    ns = open_ns(session, "by the extension")
    keys = ns.hash_chain(TOKENS)[: 3 * 32]
    assert not any(ns.store(0, None, keys, BLOCKS))
    number, seed = client.ns_open("by the extension", BLOCK_TOKENS, BLOCK_BYTES)
    assert seed == ns.seed
    assert client.lookup(number, keys, WHOLE) == (WHOLE, [[3, 0, 0]])
    assert client.read(number, keys, WHOLE) == BLOCKS


def test_stored_by_the_protocol(client: pure.Client, session: kv.Session) -> None:
    number, seed = client.ns_open("by the protocol", BLOCK_TOKENS, BLOCK_BYTES)
    keys = pure.keys_of(seed, TOKENS[:WHOLE], BLOCK_TOKENS)
    assert client.lookup(number, keys, WHOLE) == (0, [[0, int(kv.Miss.NEVER), 0]])
    assert not any(client.store(number, keys, BLOCKS))
    ns = open_ns(session, "by the protocol")
    assert ns.hash_chain(TOKENS[:WHOLE]) == keys
    assert ns.lookup(keys, WHOLE).tokens == WHOLE
    with ns.acquire(keys, WHOLE) as hold:
        assert [bytes(hold.block(0, i)) for i in range(3)] == BLOCKS
        assert hold.check()
    assert list(ns.store(0, None, keys, BLOCKS)) == [int(kv.Status.EXISTS)] * 3


def test_namespaces_are_apart(client: pure.Client, session: kv.Session) -> None:
    ns = open_ns(session, "apart")
    keys = ns.hash_chain(TOKENS)[: 3 * 32]
    ns.store(0, None, keys, BLOCKS)
    number, _ = client.ns_open("apart", BLOCK_TOKENS, 2 * BLOCK_BYTES)
    hit, groups = client.lookup(number, keys, WHOLE)
    assert hit == 0
    assert groups[0][1] == int(kv.Miss.NAMESPACE)


def test_what_is_wrong_is_refused_by_name(client: pure.Client) -> None:
    with pytest.raises(pure.Refused, match="status 6"):
        client.lookup(99, bytes(32), 16)
    with pytest.raises(pure.Refused, match="status 3"):
        client.ask(120)
