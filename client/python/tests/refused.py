# SPDX-License-Identifier: Apache-2.0
"""A process of test_refused.py's, with refuse.c before libc.

refused.py SOCKET SCENE: plays the scene again and again; the first time its first allocation is
refused, the second time the second one, and so on until the scene ends before that. Prints how many
were refused, and what the scene came to.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import importlib
import json
import os
import random
import sys
import time
from array import array
from collections import Counter
from collections.abc import Callable
from typing import Any

from conftest import DEVICE

import kvcache_client as kv
from kvcache_client import _kvc, aio

BLOCK, TOKENS, REPEATS = 4096, 16, 6
# Refusals of a scene: later ones are of further items of a list or dictionary.
MOST = 120
refuse = ctypes.CDLL(None)
refuse.refuse_count.restype = refuse.refuse_live.restype = ctypes.c_long
refuse.refuse_at.argtypes = [ctypes.c_long]
refuse.refuse_at.restype = None

Scene = Callable[[], object]


def opened(socket: str, model: str) -> tuple[kv.Session, kv.Namespace]:
    session = kv.Session(socket=socket, staging_bytes=1 << 20, must_connect=True)
    groups = [kv.Group(TOKENS, BLOCK), kv.Group(TOKENS, BLOCK, "window", 32)]
    return session, session.namespace(model=model, position="rope", groups=groups)


class Sequences:
    """A sequence in the daemon, and pages to put and load it."""

    def __init__(self, socket: str) -> None:
        self.socket = socket
        self.session, self.ns = opened(socket, "refused")
        self.ids = array("I", range(4 * TOKENS))
        self.keys = [self.ns.hash_chain(self.ids)] * 2
        self.memory = [bytearray(8 * BLOCK), bytearray(8 * BLOCK)]
        self.tensors = [[memoryview(m).cast("B", [8, BLOCK])] for m in self.memory]
        self.layout = kv.PageLayout.of_tensors(self.tensors)
        self.pages = [range(4), range(4)]
        self.blocks = [bytes([i]) * BLOCK for i in range(4)]
        self.ns.put(self.layout, self.keys, 64, self.pages)
        self.ns.name_put(kv.NameKind.DOCUMENT, "d", self.keys, 64, token_ids=self.ids)
        self.loop = asyncio.new_event_loop()

    def held(self) -> kv.Hold:
        hold = self.ns.acquire(self.keys, 64)
        assert hold.tokens == 64
        return hold

    # ---- scenes

    def look(self) -> None:
        assert self.ns.lookup(self.keys, 64).tokens == 64
        assert self.ns.seed
        assert self.ns.id
        assert kv.Miss.EVICTED.text

    def hash(self) -> None:
        assert self.ns.hash_chain(list(self.ids)) == self.keys[0]
        assert self.ns.hash_chain(self.ids) == self.keys[0]

    def namespace(self) -> None:
        groups = [kv.Group(TOKENS, BLOCK)]
        assert self.session.namespace(model="refused too", position="rope", groups=groups).id

    def hold(self) -> None:
        with self.held() as hold:
            assert bytes(hold.block(0, 1)) == bytes(self.blocks[0])
            assert hold.check()
            into = bytearray(4 * BLOCK)
            hold.read_into(0, into)
            hold.load_pages(self.layout, [None, range(6, 8)])
            with self.ns.redeem(hold.ticket) as other:
                assert other.groups == hold.groups

    def dlpack(self) -> None:
        with self.held() as hold:
            for version in (None, (1, 0)):
                view = hold.dlpack(0, 0)
                capsule = view.__dlpack__(max_version=version)
                assert _kvc.dlpack_info(capsule)[3] == (BLOCK,)
                del capsule, view

    def store(self) -> None:
        keys = self.keys[0]
        good = [int(kv.Status.EXISTS)] * 4
        assert list(self.ns.store(0, None, keys, self.blocks, retain=[kv.Retain(0, 9, 50)])) == good
        assert list(self.ns.store(0, None, keys, None, offsets=[0] * 4)) == good
        assert list(self.ns.store_pages(self.layout, 0, None, keys, range(4))) == good

    def put(self) -> None:
        assert self.ns.put(self.layout, self.keys, 64, self.pages, token_ids=self.ids).tokens == 64
        assert self.ns.get(self.layout, self.keys, 64, self.pages) == 64

    def device(self) -> None:
        """A pool's pages are as many as self.layout's."""
        with again(lambda: self.session.device(DEVICE)) as device:
            memory = [device.alloc(8 * BLOCK) for _ in range(2)]
            regions = [[kv.Region(m.address, BLOCK, BLOCK)] for m in memory]
            layout = kv.PageLayout(regions, 8)
            device.signal(0, 1)
            assert device.word(0) == 1
            with device.pool(layout, memory) as pool:
                assert self.ns.get(pool, self.keys, 64, self.pages) == 64
                assert self.ns.put(pool, self.keys, 64, self.pages).tokens == 64
                good = [int(kv.Status.EXISTS)] * 4
                assert list(self.ns.store_pages(pool, 0, None, self.keys[0], range(4))) == good
            assert again(self.session._raw.staging)
            self.ns.stage_pages(layout, 0, [0], [0], on=device)
            with self.ns.acquire(self.keys, 64, on=device) as hold:
                assert hold.device(0, 0)
                assert hold.dlpack(0, 0).__dlpack_device__() == (1, 0)
                hold.load_pages(layout, [None, range(6, 8)], on=device)

    def layouts(self) -> None:
        assert kv.PageLayout.of_tensors(self.tensors).block_bytes() == BLOCK

    def names(self) -> None:
        document = kv.NameKind.DOCUMENT
        assert self.ns.name_put(document, "e", self.keys, 64, token_ids=self.ids)[0] == 64
        found = self.session.name_get(document, "e")
        assert found is not None
        assert found.tokens == 64
        assert len(self.session.name_list(document)) >= 2
        assert self.session.name_load(document, "e", wait=True) > 0
        assert self.session.name_tokens(document, "e") == self.ids
        self.session.name_forget(document, "e")

    def pins(self) -> None:
        before = again(self.session.pins)
        pin = 0
        try:
            pin = self.ns.pin(self.keys, 64)
            assert pin in [p.id for p in self.session.pins()]
        finally:
            if pin:
                again(lambda: self.session.unpin(pin))
            assert again(self.session.pins) == before == []
        self.ns.hint(self.keys, 64, kv.Hint.SOON, within_ms=1)

    def models(self) -> None:
        text = b'{"model_type": "llama", "num_hidden_layers": 3, "hidden_size": 8, '
        model = _kvc.model_read(text + b'"num_attention_heads": 2}', "config")
        assert model[0] == "llama"
        assert len(model[1]) == 3
        why = ""
        try:
            _kvc.model_read(text + b'"odd_layers": 2}', "config")
        except ValueError as error:
            why = error.args[1]
        assert "odd_layers" in why

    def numbers(self) -> None:
        assert self.session.up
        assert self.session.epoch
        assert self.session.ping() >= 0
        assert self.session.counters()["reconnects"] >= 0
        assert self.session.stats()
        assert self.session.last_error is not None
        assert self.session.fileno() > 0
        staging = self.session.staging
        assert staging is not None
        staging.release()

    def errors(self) -> None:
        for wrong in (
            lambda: self.ns.acquire(b"short", 64),
            lambda: self.ns.lookup([self.keys[0]], 64),
            lambda: self.session.name_load(kv.NameKind.DOCUMENT, "nobody"),
            lambda: self.ns.redeem(b"x"),
        ):
            try:
                wrong()
            except MemoryError:
                raise
            except (ValueError, kv.Error):
                continue
            raise AssertionError("an error was expected")

    def halves(self) -> None:
        """Requests in two halves."""
        space = self.ns._raw
        asked = again(self.session._raw.staging_ask)
        assert asked is not None
        epoch, _ = asked
        self.session._raw.staging_fill(epoch, 0, bytes(BLOCK))
        self.play_halves(
            (self.session._raw.ping_begin, ()),
            (space.lookup_begin, (self.keys, 64, 0, None)),
            (space.acquire_begin, (self.keys, 64, 0, 0, 0, 0, None)),
            (space.store_begin, (epoch, 0, None, self.keys[0], [0] * 4, 0, 0, 0, None, (), None)),
        )

    def pool_halves(self) -> None:
        """The same with pages on a device."""
        space, pages = self.ns._raw, range(4)
        with again(lambda: self.session.device(DEVICE)) as device:
            memory = [device.alloc(8 * BLOCK) for _ in range(2)]
            layout = kv.PageLayout([[kv.Region(m.address, BLOCK, BLOCK)] for m in memory], 8)
            with device.pool(layout, memory) as pool:
                rest = (0, 0, 0, None, (), None, None)
                self.play_halves(
                    (
                        space.get_begin,
                        (pool.raw, self.keys, 64, self.pages, 0, 0, 0, None, None, None),
                    ),
                    (
                        space.store_pages_begin,
                        (pool.raw, 0, None, self.keys[0], pages, *rest),
                    ),
                )

    def play_halves(self, *args: tuple[Any, tuple[Any, ...]]) -> None:
        """By hand: each is told once, and finished, whatever is refused."""
        raw = self.session._raw
        begun: list[_kvc.Request] = []
        told: list[_kvc.Request] = []
        failed: list[MemoryError] = []
        end = time.monotonic() + 60  # for ever
        try:
            for begin, given in args:
                begun.append(begin(*given))
            while len(told) < len(begun) and time.monotonic() < end:
                told += raw.progress()
        finally:
            while len(told) < len(begun) and time.monotonic() < end:
                told += again(raw.progress)
            assert sorted(map(id, told)) == sorted(map(id, begun)), "each is told once"
            for one in begun:
                try:
                    one.finish()
                except MemoryError as error:
                    failed.append(error)
        if failed:
            raise failed[0]

    def wake(self) -> None:
        """An event loop: no outcome is lost."""

        async def all_of(session: aio.Session, ns: aio.Namespace) -> None:
            async with asyncio.timeout(60):
                await session.ping()
                await ns.lookup(self.keys, 64)
                with await ns.acquire(self.keys, 64) as hold:
                    assert hold.tokens == 64

        self.loop.run_until_complete(all_of(*self.waking))

    def sessions(self) -> None:
        with kv.Session(socket=self.socket, must_connect=True) as one:
            one.ping()

    def imports(self) -> None:
        """The extension once more: a module and types of its own."""
        del sys.modules["kvcache_client._kvc"]
        try:
            importlib.import_module("kvcache_client._kvc")
        finally:
            sys.modules["kvcache_client._kvc"] = _kvc

    waking: Any


def again(call: Callable[[], Any]) -> Any:
    """Once more, where what is refused is needed for cleaning up."""
    try:
        return call()
    except MemoryError:
        return call()


def leases(session: kv.Session) -> int:
    return sum(v for k, v in session.stats().items() if k.endswith("leases"))


def left(session: kv.Session, held: int) -> int:
    """Leases beyond those; another session's release may be on its way yet."""
    end = time.monotonic() + 60
    while (more := leases(session) - held) > 0 and time.monotonic() < end:
        time.sleep(0.01)
    return more


def play(scene: Scene, refused: int) -> tuple[str, bool]:
    """What came of it, and whether as many allocations were asked for."""
    outcome = "good"
    try:
        refuse.refuse_at(refused)
        scene()
    except MemoryError:
        outcome = "MemoryError"
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"
    reached = again(refuse.refuse_count) >= refused
    again(lambda: refuse.refuse_at(0))
    return outcome, reached


def leak(scene: Scene, refused: int) -> int:
    """Pieces of memory that each refusal at this place leaves behind.

    What Python keeps for later (free lists, caches) grows at first, and no more then.
    """
    least = 1 << 30
    for _ in range(REPEATS):
        gc.collect()
        before = refuse.refuse_live()
        play(scene, refused)
        gc.collect()
        least = min(least, int(refuse.refuse_live() - before))
        if least <= 0:
            return 0
    return least


def next_of(n: int) -> int:
    """KVC_FAULT_EVERY: after the first ten one of so many, others each time."""
    every = int(os.environ.get("KVC_FAULT_EVERY", "1"))
    return n + (1 if n < 10 else random.randint(1, 2 * every - 1))


def main(socket: str, name: str) -> dict[str, Any]:
    s = Sequences(socket)
    if name == "wake":

        async def opening() -> tuple[aio.Session, aio.Namespace]:
            session = await aio.Session.open(socket=socket, staging_bytes=1 << 20)
            groups = s.ns.groups
            ns = await session.namespace(model="refused", position="rope", groups=groups)
            return session, ns

        s.waking = s.loop.run_until_complete(opening())
        s.loop.set_exception_handler(lambda loop, context: None)
    scene: Scene = getattr(s, name)
    modules = refuse.refuse_begin()
    for _ in range(3):
        scene()
    spare = [MemoryError() for _ in range(20)]  # Python keeps 16 of them for later
    del spare
    gc.collect()
    gc.disable()
    outcomes: Counter[str] = Counter()
    n, tried, reached = 0, 0, True
    grew: list[tuple[int, int]] = []
    held = leases(s.session)
    while reached and n < MOST:
        n, tried = next_of(n), tried + 1
        before = refuse.refuse_live()
        outcome, reached = play(scene, n)
        outcomes[outcome] += 1
        if name == "imports":  # Python leaks itself where an import ends
            continue
        if refuse.refuse_live() > before and (pieces := leak(scene, n)) > 0:
            grew.append((n, pieces))
    scene()
    return {
        "modules": modules,
        "refused": tried - (not reached),
        "outcomes": dict(outcomes),
        "grew": grew,
        "leases": left(s.session, held),
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2])))  # noqa: T201
