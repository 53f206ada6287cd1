# SPDX-License-Identifier: Apache-2.0
"""The same calls in an event loop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from conftest import BLOCK_BYTES, BLOCK_TOKENS, Daemon, payload

import kvcache_client as kv
from kvcache_client import aio

OK = int(kv.Status.OK)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def open_aio(daemon: Daemon, **more: Any) -> Coroutine[Any, Any, aio.Session]:
    return aio.Session.open(socket=daemon.socket, staging_bytes=1 << 20, must_connect=True, **more)


def open_ns(session: aio.Session, model: str) -> Coroutine[Any, Any, aio.Namespace]:
    groups = [kv.Group(BLOCK_TOKENS, BLOCK_BYTES)]
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
