# SPDX-License-Identifier: Apache-2.0
"""The same calls in an event loop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from conftest import BLOCK_BYTES, BLOCK_TOKENS, DEVICE, DEVICES, Daemon, payload, wait_until
from device_rig import Paged

import kvcache_client as kv
from kvcache_client import aio

OK = int(kv.Status.OK)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def open_aio(daemon: Daemon, **more: Any) -> Coroutine[Any, Any, aio.Session]:
    return aio.Session.open(socket=daemon.socket, staging_bytes=1 << 20, must_connect=True, **more)


def open_ns(session: aio.Session, model: str) -> Coroutine[Any, Any, aio.Namespace]:
    groups = iter([kv.Group(BLOCK_TOKENS, BLOCK_BYTES)])
    return session.namespace(model=model, position="rope", groups=groups)


def test_store_then_read(daemon: Daemon) -> None:
    async def work() -> None:
        async with await open_aio(daemon) as session:
            assert session.up
            assert await session.ping() >= 0
            ns = await open_ns(session, "aio store")
            keys = ns.hash_chain(range(3 * BLOCK_TOKENS))
            blocks = [payload(i) for i in range(3)]
            assert list(await ns.store(0, None, keys, blocks)) == [OK] * 3
            assert (await ns.lookup(keys, 48)).tokens == 48
            with await ns.acquire(keys, 48) as hold:
                assert [bytes(hold.block(0, i)) for i in range(3)] == blocks
                with await ns.redeem(hold.ticket) as same:
                    assert bytes(same.block(0, 2)) == blocks[2]

    run(work())


def test_an_outcome_that_nobody_waits_for(daemon: Daemon) -> None:
    """Its caller found no memory for a future: others get theirs."""

    async def work() -> None:
        wrong: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _loop, context: wrong.append(context)
        )
        async with await open_aio(daemon) as session:
            session._raw.ping_begin()
            await asyncio.gather(*(session.ping() for _ in range(3)))
            await session.ping()
        assert not wrong

    run(work())


def test_many_in_flight(daemon: Daemon) -> None:
    """More stores than staging has room for, and lookups among them."""

    async def work() -> None:
        async with await open_aio(daemon) as session:
            ns = await open_ns(session, "aio many")

            async def one(i: int) -> None:
                keys = ns.hash_chain([i] * 16 * BLOCK_TOKENS)
                blocks = [payload(i + j) for j in range(16)]
                assert set(await ns.store(0, None, keys, blocks)) == {OK}
                with await ns.acquire(keys, 16 * BLOCK_TOKENS) as hold:
                    into = bytearray(16 * BLOCK_BYTES)
                    hold.read_into(0, into)
                    assert into == b"".join(blocks)

            await asyncio.gather(*(one(i) for i in range(100)))

    run(work())


@pytest.mark.parametrize("pages", [False, True])
@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize("size", ["1MiB", "64KiB"])
def test_a_store_that_another_connection_overtakes(
    own_daemon: Daemon, monkeypatch: pytest.MonkeyPatch, pages: bool, filled: bool, size: str
) -> None:
    """What it brought to staging is gone; that another task has asked for the new one is not its.

    filled: the connection ends behind the copy to staging, or before it. size: of the new staging.
    """
    own_daemon.start()
    held, go = asyncio.Event(), asyncio.Event()
    to_thread = asyncio.to_thread

    async def slow(function: Any, *arguments: Any) -> None:
        if not held.is_set():
            if filled:
                await to_thread(function, *arguments)
            held.set()
            await go.wait()
            if filled:
                return
        await to_thread(function, *arguments)

    async def work() -> None:
        async with await open_aio(own_daemon) as session:
            ns = await open_ns(session, "aio overtaken")
            keys = ns.hash_chain(range(2 * BLOCK_TOKENS))
            with monkeypatch.context() as patch:
                patch.setattr(asyncio, "to_thread", slow)
                if pages:
                    memory = memoryview(bytearray(payload(1) * 2)).cast("B", (2, BLOCK_BYTES))
                    layout = kv.PageLayout.of_tensors([[memory]])
                    call = ns.store_pages(layout, 0, None, keys, [0, 1])
                else:
                    call = ns.store(0, None, keys, [payload(1)] * 2)
                task = asyncio.create_task(call)
                await held.wait()
                own_daemon.kill()
                with pytest.raises(kv.Down):
                    await session.ping()
                await to_thread(own_daemon.start, f"staging.session_max={size}")
                await session.wait_up()
                assert session.epoch == 2
                others = ns.hash_chain([7] * BLOCK_TOKENS)
                assert list(await ns.store(0, None, others, [payload(2)])) == [OK]
                go.set()
                with pytest.raises(kv.Down, match="lost its daemon"):
                    await task
            assert (await ns.lookup(keys, 2 * BLOCK_TOKENS)).tokens == 0
            assert list(await ns.store(0, None, keys, [payload(1)] * 2)) == [OK] * 2
            with await ns.acquire(keys, 2 * BLOCK_TOKENS) as hold:
                assert bytes(hold.block(0, 1)) == payload(1)
            assert session._staging.is_empty

    run(work())


def test_room_in_less_staging_than_before() -> None:
    """Another connection may have less: what lies beyond its end is no room."""
    room = aio._Staging()
    assert room.take(64, 256) == 0
    assert room.take(64, 256) == 64
    room.give(0)
    assert room.take(64, 32) is None
    assert room.take(32, 32) == 0


@pytest.mark.parametrize("where", ["future", "table"])
def test_room_of_a_store_that_finds_no_memory(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Its part of staging is free again, so the next store finds room."""

    class Full(dict[Any, Any]):
        def __setitem__(self, key: object, value: object) -> None:
            raise MemoryError

    async def work() -> None:
        async with await open_aio(daemon) as session:
            ns = await open_ns(session, f"aio no memory {where}")
            n = (1 << 20) // BLOCK_BYTES  # all of staging
            keys = ns.hash_chain(range(n * BLOCK_TOKENS))
            blocks = [payload(i) for i in range(n)]
            with monkeypatch.context() as patch:
                if where == "future":
                    none = Mock(side_effect=MemoryError)
                    patch.setattr(session, "_loop", Mock(create_future=none))
                else:
                    patch.setattr(session, "_futures", Full())
                with pytest.raises(MemoryError):
                    await ns.store(0, None, keys, blocks)
            assert session._staging.is_empty
            assert set(await ns.store(0, None, keys, blocks)) <= {OK, int(kv.Status.EXISTS)}

    run(work())


def test_an_error_is_not_hidden_by_the_end(daemon: Daemon) -> None:
    """A session whose memory is in use is not closed; what the body raised comes out."""

    async def use(session: aio.Session, wrong: bool) -> None:
        async with session:
            if wrong:
                raise ZeroDivisionError

    async def work() -> None:
        session = await open_aio(daemon)
        view = session._raw.staging()
        assert view is not None
        with pytest.raises(ZeroDivisionError):
            await use(session, True)
        assert await session.ping() >= 0
        with pytest.raises(BufferError):
            await use(session, False)
        view.release()
        session.close()

    run(work())


class OnDevice:
    """A session, pages on the device, and a namespace of their blocks."""

    BLOCKS, SIZE = 4, Paged.LAYERS * 2 * Paged.PAGE
    OUT, INTO = (7, 2, 11, 0, 5, 9, 1, 3), (23, 14, 20, 8, 12, 22, 6, 15)

    @classmethod
    async def open(cls, daemon: Daemon, model: str) -> OnDevice:
        one = cls()
        one.session = await open_aio(daemon)
        wait_until(lambda: one.session._raw.stats().get("device0.up") == 1)
        one.device = one.session.device(DEVICE)
        one.paged = Paged(one.device)
        one.pool = one.device.pool(one.paged.layout, [one.paged.memory])
        groups = [kv.Group(BLOCK_TOKENS, cls.SIZE)]
        one.ns = await one.session.namespace(model=model, position="rope", groups=groups)
        one.tokens = cls.BLOCKS * BLOCK_TOKENS
        one.keys = one.ns.hash_chain(range(one.tokens))
        for i in range(cls.BLOCKS):
            one.paged.put(list(cls.OUT[2 * i : 2 * i + 2]), payload(i, cls.SIZE))
        return one

    session: aio.Session
    device: kv.Device
    paged: Paged
    pool: kv.Pool
    ns: aio.Namespace
    tokens: int
    keys: bytes

    def check(self, first: int = 0) -> None:
        for i in range(self.BLOCKS):
            wanted = payload(i, self.SIZE) if i >= first else b"\xee" * self.SIZE
            assert self.paged.get(list(self.INTO[2 * i : 2 * i + 2])) == wanted, i


@pytest.mark.parametrize("skipped", [0, 2])
def test_pages_of_a_pool(daemon: Daemon, skipped: int) -> None:
    async def work() -> None:
        one = await OnDevice.open(daemon, f"aio pool {skipped}")
        async with one.session:
            ns, pool, keys = one.ns, one.pool, one.keys
            assert await ns.get(pool, keys, one.tokens, [one.INTO]) == 0
            one.device.signal(0, 1)
            stored = await ns.store_pages(pool, 0, None, keys, one.OUT, after=(0, 1))
            assert list(stored) == [OK] * one.BLOCKS
            given = skipped * BLOCK_TOKENS
            gets = [
                ns.get(pool, keys, one.tokens, [one.INTO], from_tokens=given, ready=(1, 10))
                for _ in range(8)
            ]
            assert await asyncio.gather(*gets) == [one.tokens] * 8
            assert one.device.word(1) == 10 + Paged.LAYERS
            one.check(skipped)

    run(work())


def test_wrong_pools_are_named(daemon: Daemon) -> None:
    async def work() -> None:
        one = await OnDevice.open(daemon, "aio wrong pools")
        async with one.session:
            ns, pool, keys = one.ns, one.pool, one.keys
            with pytest.raises(ValueError, match="no words"):
                await ns.store_pages(pool.layout, 0, None, keys, one.OUT, after=(0, 1))
            for wrong, says in (([0], "1 page numbers"), ([99] * 8, "is 99")):
                with pytest.raises(ValueError, match=says):
                    await ns.get(pool, keys, one.tokens, [wrong])
                with pytest.raises(ValueError, match=says):
                    await ns.store_pages(pool, 0, None, keys, wrong)
            pool.close()
            with pytest.raises(ValueError, match="the pool is closed"):
                await ns.get(pool, keys, one.tokens, [one.INTO])
            with pytest.raises(ValueError, match="the pool is closed"):
                await ns.store_pages(pool, 0, None, keys, one.OUT)

    run(work())


def test_a_cancelled_load_ends_when_the_pages_are_free(daemon: Daemon) -> None:
    """Waits for a word that nobody writes: its pages are the daemon's till it has cancelled."""

    async def work() -> None:
        one = await OnDevice.open(daemon, "aio cancelled")
        async with one.session:
            ns, pool, keys = one.ns, one.pool, one.keys
            await ns.store_pages(pool, 0, None, keys, one.OUT)
            one.device.signal(2, 1)
            load = asyncio.create_task(ns.get(pool, keys, one.tokens, [one.INTO], after=(2, 2)))
            store = asyncio.create_task(
                ns.store_pages(pool, 0, None, bytes(32), one.OUT[:2], after=(2, 2))
            )
            await one.session.ping()
            for task in (load, store):
                assert not task.done()
                task.cancel()
            ended = await asyncio.gather(load, store, return_exceptions=True)
            assert [type(e) for e in ended] == [asyncio.CancelledError] * 2
            assert not one.session._futures
            one.device.signal(2, 2)
            await one.session.ping()
            one.check(one.BLOCKS)
            assert (await ns.lookup(bytes(32), BLOCK_TOKENS)).tokens == 0

    run(work())


def test_a_daemon_that_dies_has_no_pages(own_daemon: Daemon) -> None:
    own_daemon.start(*DEVICES)

    async def work() -> None:
        one = await OnDevice.open(own_daemon, "aio dies")
        async with one.session:
            ns, pool, keys = one.ns, one.pool, one.keys
            one.device.signal(0, 1)
            calls = [
                ns.get(pool, keys, one.tokens, [one.INTO], after=(0, 2)),
                ns.store_pages(pool, 0, None, keys, one.OUT, after=(0, 2)),
            ]
            tasks = [asyncio.create_task(c) for c in calls]
            await one.session.ping()
            own_daemon.kill()
            assert await tasks[0] == 0
            with pytest.raises(kv.Down):
                await tasks[1]

    run(work())


def test_pages(daemon: Daemon) -> None:
    async def work() -> None:
        async with await open_aio(daemon) as session:
            ns = await open_ns(session, "aio pages")
            pool, other = bytearray(payload(3, 8 * BLOCK_BYTES)), bytearray(8 * BLOCK_BYTES)
            layouts = [
                kv.PageLayout.of_tensors([[memoryview(m).cast("B", (8, BLOCK_BYTES))]])
                for m in (pool, other)
            ]
            keys = ns.hash_chain(range(2 * BLOCK_TOKENS))
            assert not any(await ns.store_pages(layouts[0], 0, None, keys, [6, 1]))
            with await ns.acquire(keys, 2 * BLOCK_TOKENS) as hold:
                hold.load_pages(layouts[1], [[0, 7]])
            assert other[:BLOCK_BYTES] == pool[6 * BLOCK_BYTES : 7 * BLOCK_BYTES]
            assert other[7 * BLOCK_BYTES :] == pool[BLOCK_BYTES : 2 * BLOCK_BYTES]
            with pytest.raises(ValueError, match="is 8"):
                await ns.store_pages(layouts[0], 0, None, keys, [0, 8])

    run(work())


def test_errors_come_to_whoever_waits(daemon: Daemon) -> None:
    async def work() -> None:
        async with await open_aio(daemon) as session:
            with pytest.raises(kv.Unsound):
                await session.namespace(
                    model="m", position="rope", attention="full", groups=[kv.Group(16, 64)]
                )
            ns = await open_ns(session, "aio errors")
            with pytest.raises(kv.Error, match="NO_LEASE"):
                await ns.redeem(b"\xff" * 16)
            with pytest.raises(ValueError, match="do not fit"):
                await ns.store(0, None, bytes(32 * 1000), [payload(0)] * 1000)
            with pytest.raises(ValueError, match="multiple of 32"):
                await ns.lookup(b"x", 16)
            with pytest.raises(kv.BadArgument, match="2 blocks for 1 keys"):
                await ns.store(0, None, bytes(32), [payload(0)] * 2)
            with pytest.raises(kv.BadArgument, match="block 0 has 5 bytes"):
                await ns.store(0, None, bytes(32), [b"short"])
            wide = kv.PageLayout([[kv.Region(4096, 8192, 8192)]], 1)
            with pytest.raises(kv.BadArgument, match="blocks of 8192 bytes in the page layout"):
                await ns.store_pages(wide, 0, None, bytes(32), [0])
            with pytest.raises(kv.BadArgument, match="group is -1"):
                await ns.store(-1, None, bytes(32), [payload(0)])
            with pytest.raises(kv.BadArgument, match="keys of 2 groups"):
                await ns.lookup([bytes(32)] * 2, 16)

    run(work())


def test_closing_cancels_what_waits(own_daemon: Daemon) -> None:
    own_daemon.start()

    async def work() -> None:
        session = await open_aio(own_daemon)
        assert own_daemon.process is not None
        own_daemon.process.send_signal(signal.SIGSTOP)
        task = asyncio.create_task(session.ping())
        cancelled = asyncio.create_task(session.ping())
        await asyncio.sleep(0.05)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        session.close()
        with pytest.raises(asyncio.CancelledError):
            await task
        own_daemon.process.send_signal(signal.SIGCONT)

    run(work())


def test_a_frozen_daemon_does_not_stop_the_loop(own_daemon: Daemon) -> None:
    own_daemon.start()

    async def work() -> None:
        async with await open_aio(own_daemon, timeout_ms=300) as session:
            assert own_daemon.process is not None
            own_daemon.process.send_signal(signal.SIGSTOP)
            task = asyncio.create_task(session.ping())
            ticks = 0
            while not task.done():
                await asyncio.sleep(0.005)
                ticks += 1
            assert isinstance(task.exception(), kv.Timeout)
            assert ticks > 3
            own_daemon.process.send_signal(signal.SIGCONT)

    run(work())


def test_a_daemon_that_comes_later(own_daemon: Daemon, tmp_path: Path) -> None:
    async def work() -> None:
        with pytest.raises(kv.Down):
            await open_aio(own_daemon, timeout_ms=200)
        session = await aio.Session.open(socket=own_daemon.socket, timeout_ms=100)
        assert not session.up
        await asyncio.to_thread(own_daemon.start)
        await session.wait_up()
        assert session.up
        assert await session.ping() >= 0
        own_daemon.kill()
        with pytest.raises(kv.Down):
            await session.ping()
        await asyncio.to_thread(own_daemon.start)
        await session.wait_up()
        assert session.epoch == 2
        session.close()

    run(work())
