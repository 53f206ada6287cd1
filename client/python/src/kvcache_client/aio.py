# SPDX-License-Identifier: Apache-2.0
"""The same calls for asyncio: requests in flight, and one descriptor that the event loop watches.

    from kvcache_client import aio

    async with await aio.Session.open(staging_bytes=64 << 20) as session:
        ns = await session.namespace(model="m", position="rope", groups=[Group(16, block_bytes)])
        found = await asyncio.gather(*(ns.lookup(k, n) for k, n in prompts))

A session belongs to the loop in which it was opened. Up to 256 of its requests may be in flight at
the daemon, and 1,024 in all. A call that is cancelled is cancelled at the daemon too; one with
pages of a pool ends when the daemon touches them no more, 250 ms later at most.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from kvcache_client import _kvc
from kvcache_client._device import Device, Pool
from kvcache_client._errors import BadArgument, Down, Error
from kvcache_client._memory import PageLayout, as_bytes, as_numbers
from kvcache_client._session import Hold, flags_of, group_of, hash_chain, spec_of
from kvcache_client._types import Group, Prefix, Retain

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kvcache_client._memory import Memory, Numbers
    from kvcache_client._session import Keys

__all__ = ["Namespace", "Session"]

_Then = Callable[[], None]
_NOBODY = (None, None)  # waits for a request whose caller had no memory for a future
_DEADLINE_MS = 5000
_NO_MEMORY_S = 0.01
_ALIGN = 64


def _count(keys: Buffer) -> int:
    return memoryview(keys).nbytes // _kvc.KEY_BYTES


def _wrong(text: str) -> BadArgument:
    return BadArgument(-errno.EINVAL, "EINVAL", text)


async def _whole(work: Awaitable[Any], stop: _Then | None = None) -> Any:
    """Waits for the end, cancelled or not: what is borrowed meanwhile is the caller's after this.

    stop: when it is cancelled, asks the work to end soon.
    """
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
            if stop is not None:
                stop()
    if cancelled:
        task.exception()  # nobody else asks for it
        raise asyncio.CancelledError
    return task.result()


class _Staging:
    """Room of the staging area, shared out: first fit. Who finds none waits."""

    def __init__(self) -> None:
        self._taken: list[tuple[int, int]] = []  # (from, to), ascending
        self._waiting: list[asyncio.Future[None]] = []

    def take(self, size: int, total: int) -> int | None:
        """Offset of ``size`` bytes, or None."""
        at = 0
        for i, (begin, end) in enumerate([*self._taken, (total, total)]):
            if min(begin, total) - at >= size:
                self._taken.insert(i, (at, at + size))
                return at
            at = end
        return None

    def give(self, at: int) -> None:
        """The bytes that :meth:`take` gave."""
        self._taken = [t for t in self._taken if t[0] != at]
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    @property
    def is_empty(self) -> bool:
        """Whether all of it is free."""
        return not self._taken

    async def wait(self) -> None:
        """Until some of it is given back."""
        one: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(one)
        await one

    def close(self) -> None:
        """Nobody waits any more."""
        for one in self._waiting:
            one.cancel()


class Session:
    """A session in an event loop. :meth:`open` makes it."""

    def __init__(self, raw: _kvc.Session, loop: asyncio.AbstractEventLoop) -> None:
        """Takes over a session that was opened with no_wait."""
        self._raw = raw
        self._loop = loop
        self._futures: dict[_kvc.Request, tuple[asyncio.Future[Any], _Then | None]] = {}
        self._staging = _Staging()
        self._came_up: list[asyncio.Future[None]] = []
        self._retry: asyncio.TimerHandle | None = None
        self._fd = raw.fileno()
        loop.add_reader(self._fd, self._progress)

    @classmethod
    async def open(
        cls,
        *,
        socket: str | None = None,
        name: str | None = None,
        staging_bytes: int = 0,
        shard: int = 0,
        timeout_ms: int = 0,
        must_connect: bool = False,
    ) -> Self:
        """Opens a session and waits for the daemon, at most ``timeout_ms`` (0 = 5,000).

        Arguments are those of :class:`kvcache_client.Session`.

        Raises:
            Down: no daemon answers, with must_connect.
        """
        raw = _kvc.Session(socket, name, staging_bytes, shard, timeout_ms, False, True)
        session = cls(raw, asyncio.get_running_loop())
        try:
            async with asyncio.timeout((timeout_ms or _DEADLINE_MS) / 1000):
                await session.wait_up()
        except TimeoutError:
            if must_connect:
                text = session._raw.last_error()
                session.close()
                raise Down(-1101, "DOWN", text) from None
        except BaseException:
            session.close()
            raise
        return session

    async def wait_up(self) -> None:
        """Until the daemon is there."""
        self._progress()
        while not self._raw.up():
            one = self._loop.create_future()
            self._came_up.append(one)
            await one

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except BufferError:
            if error is None:
                raise

    def close(self) -> None:
        """Ends the session; calls in flight are cancelled. BufferError while views are in use."""
        self._loop.remove_reader(self._fd)
        try:
            self._raw.close()
        except BufferError:
            self._loop.add_reader(self._fd, self._progress)
            raise
        if self._retry is not None:
            self._retry.cancel()
        futures, self._futures = self._futures, {}
        for future, _ in futures.values():
            future.cancel()
        for one in self._came_up:
            one.cancel()
        self._staging.close()

    @property
    def up(self) -> bool:
        """Whether the daemon is there, as far as the session knows."""
        return self._raw.up()

    @property
    def epoch(self) -> int:
        """Grows by one at each connection; 0 = never connected."""
        return self._raw.epoch()

    def _progress(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        try:
            done = self._raw.progress()
        except MemoryError:  # nothing is lost: what is done is told later
            self._retry = self._loop.call_later(_NO_MEMORY_S, self._progress)
            return
        for request in done:
            future, then = self._futures.pop(request, _NOBODY)
            try:
                outcome = request.finish()
            except Exception as error:
                if future is not None and not future.done():
                    future.set_exception(error)
            else:
                if future is not None and not future.done():
                    future.set_result(outcome)
            if then is not None:
                then()
        waiting, self._came_up = self._came_up, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    def _begin(
        self, begin: Callable[..., _kvc.Request], *arguments: Any, then: _Then | None = None
    ) -> tuple[asyncio.Future[Any], _kvc.Request]:
        """Begins a request. Returns what will have its outcome, and the request.

        then: runs when the request is done, cancelled or not; here if nothing was begun.
        """
        try:
            future: asyncio.Future[Any] = self._loop.create_future()
            request = begin(*arguments)
            try:
                self._futures[request] = (future, then)
            except MemoryError:  # nobody would hear of it
                request.cancel()
                with suppress(Error):
                    request.finish()
                raise
        except BaseException:
            if then is not None:
                then()
            raise
        return future, request

    def _cancel(self, request: _kvc.Request) -> None:
        if request in self._futures:
            request.cancel()

    async def _outcome(
        self, begin: Callable[..., _kvc.Request], *arguments: Any, then: _Then | None = None
    ) -> Any:
        """What a request gives that is begun here; ``then`` as of :meth:`_begin`."""
        future, request = self._begin(begin, *arguments, then=then)
        try:
            return await future
        except asyncio.CancelledError:
            self._cancel(request)
            raise

    async def _borrowing(self, begin: Callable[..., _kvc.Request], *arguments: Any) -> Any:
        """The same of a request whose pages are the daemon's until it is done."""
        future, request = self._begin(begin, *arguments)
        return await _whole(future, lambda: self._cancel(request))

    async def ping(self) -> int:
        """One round trip. Returns the daemon's uptime in milliseconds."""
        return cast("int", await self._outcome(self._raw.ping_begin))

    def device(self, name: str) -> Device:
        """As :meth:`kvcache_client.Session.device`: its pools go into this session's calls.

        The device's own calls are those that wait: ``pool`` for the daemon, at the start of an
        engine, and ``wait`` on an emulated device. What :meth:`Namespace.get` has returned needs no
        wait.
        """
        return Device(self._raw.device(name))

    async def namespace(self, *, model: str, groups: Iterable[Group], **more: Any) -> Namespace:
        """As :meth:`kvcache_client.Session.namespace`, with its arguments."""
        groups = tuple(groups)
        spec = spec_of(model=model, groups=groups, **more)
        raw = cast("_kvc.Namespace", await self._outcome(self._raw.namespace_begin, *spec))
        return Namespace(self, raw, groups)


class Namespace:
    """A namespace of a session in an event loop."""

    def __init__(self, session: Session, raw: _kvc.Namespace, groups: tuple[Group, ...]) -> None:
        self._session = session
        self._raw = raw
        self.groups = groups

    @property
    def seed(self) -> bytes:
        """32 bytes: parent of every first block."""
        return self._raw.seed()

    def hash_chain(self, tokens: Numbers, group: int = 0, extra: Buffer = b"") -> bytes:
        """Keys of the blocks of a sequence from its first token: shape [n * 32] bytes."""
        return hash_chain(self.seed, tokens, group_of(self.groups, group).block_tokens, extra)

    async def lookup(
        self,
        keys: Keys,
        tokens: int,
        *,
        touch: bool = False,
        prefetch: bool = False,
        everything: bool = False,
        sub_tenant: str | None = None,
    ) -> Prefix:
        """As :meth:`kvcache_client.Namespace.lookup`."""
        flags = flags_of(touch=touch, prefetch=prefetch, everything=everything)
        begin = self._raw.lookup_begin
        return Prefix.of(await self._session._outcome(begin, keys, tokens, flags, sub_tenant))

    async def acquire(
        self,
        keys: Keys,
        tokens: int,
        *,
        from_tokens: int = 0,
        wait: bool = False,
        no_load: bool = False,
        read_only: bool = False,
        everything: bool = False,
        wait_tokens: int = 0,
        timeout_ms: int = 0,
        sub_tenant: str | None = None,
    ) -> Hold:
        """As :meth:`kvcache_client.Namespace.acquire`. Copying out of the hold does not wait."""
        flags = flags_of(wait=wait, no_load=no_load, read_only=read_only, everything=everything)
        rest = (flags, from_tokens, wait_tokens, timeout_ms, sub_tenant)
        return Hold(await self._session._outcome(self._raw.acquire_begin, keys, tokens, *rest))

    async def redeem(self, ticket: bytes) -> Hold:
        """As :meth:`kvcache_client.Namespace.redeem`."""
        return Hold(await self._session._outcome(self._raw.redeem_begin, ticket))

    async def get(
        self,
        pool: Pool,
        keys: Keys,
        tokens: int,
        pages: Sequence[Numbers],
        *,
        from_tokens: int = 0,
        wait: bool = False,
        no_load: bool = False,
        everything: bool = False,
        timeout_ms: int = 0,
        sub_tenant: str | None = None,
        after: tuple[int, int] | None = None,
        ready: tuple[int, int] | None = None,
    ) -> int:
        """As :meth:`kvcache_client.Namespace.get` of a pool (:meth:`Session.device`).

        The pages are the daemon's until this returns. Of pages in host memory: :meth:`acquire` and
        :meth:`Hold.load_pages`.
        """
        flags = flags_of(wait=wait, no_load=no_load, everything=everything)
        rest = (from_tokens, flags, timeout_ms, sub_tenant, after, ready)
        numbers = [as_numbers(p) for p in pages]
        begin = self._raw.get_begin
        return cast(
            "int", await self._session._borrowing(begin, pool.raw, keys, tokens, numbers, *rest)
        )

    async def store(
        self,
        group: int,
        parent: Buffer | None,
        keys: Buffer,
        blocks: Sequence[Memory],
        *,
        first_token: int = 0,
        last_tokens: int = 0,
        durable: bool = False,
        decoded: bool = False,
        admit: bool = False,
        tokens: Numbers | None = None,
        retain: Sequence[Retain] = (),
        sub_tenant: str | None = None,
    ) -> bytes:
        """As :meth:`kvcache_client.Namespace.store`, in one request.

        Waits for room in staging; the blocks must fit in it.
        """
        memory = [as_bytes(b) for b in blocks]
        wanted, n = group_of(self.groups, group).block_bytes, _count(keys)
        if len(memory) != n:
            raise _wrong(f"{len(memory)} blocks for {n} keys")
        for i, one in enumerate(memory):
            if len(one) != wanted:
                raise _wrong(f"block {i} has {len(one)} bytes: the group's blocks have {wanted}")

        def fill(epoch: int, offsets: list[int]) -> None:
            for one, at in zip(memory, offsets, strict=True):
                self._session._raw.staging_fill(epoch, at, one)

        flags = flags_of(durable=durable, decoded=decoded, admit=admit)
        rest = (first_token, last_tokens, flags, tokens, retain, sub_tenant)
        return await self._store(group, parent, keys, fill, rest)

    async def store_pages(
        self,
        layout: PageLayout | Pool,
        group: int,
        parent: Buffer | None,
        keys: Buffer,
        pages: Numbers,
        *,
        first_token: int = 0,
        last_tokens: int = 0,
        durable: bool = False,
        decoded: bool = False,
        admit: bool = False,
        tokens: Numbers | None = None,
        retain: Sequence[Retain] = (),
        sub_tenant: str | None = None,
        after: tuple[int, int] | None = None,
    ) -> bytes:
        """As :meth:`kvcache_client.Namespace.store_pages`, in one request.

        Pages of host memory are copied before the first wait for the daemon, in another thread.
        Those of a pool are the daemon's until this returns.
        """
        numbers = as_numbers(pages)
        if isinstance(layout, Pool):
            flags = flags_of(durable=durable, decoded=decoded, admit=admit)
            ids = None if tokens is None else as_numbers(tokens)
            of = (layout.raw, group, parent, keys, numbers, first_token, last_tokens, flags, ids)
            begin = self._raw.store_pages_begin
            made = await self._session._borrowing(begin, *of, retain, sub_tenant, after)
            return cast("bytes", made)
        if after is not None:
            raise ValueError("after is a pool's: pages in host memory have no words")
        wanted = group_of(self.groups, group).block_bytes
        if group < len(layout.groups) and layout.block_bytes(group) != wanted:
            raise _wrong(
                f"blocks of {layout.block_bytes(group)} bytes in the page layout: those of group "
                f"{group} have {wanted}"
            )

        def fill(_epoch: int, offsets: list[int]) -> None:
            self._raw.stage(layout.raw, group, numbers, offsets, None, 0)

        flags = flags_of(durable=durable, decoded=decoded, admit=admit)
        rest = (first_token, last_tokens, flags, tokens, retain, sub_tenant)
        return await self._store(group, parent, keys, fill, rest)

    async def _store(
        self,
        group: int,
        parent: Buffer | None,
        keys: Buffer,
        fill: Callable[[int, list[int]], None],
        rest: tuple[int, int, int, Numbers | None, Sequence[Retain], str | None],
    ) -> bytes:
        session = self._session
        block_bytes = group_of(self.groups, group).block_bytes
        step = (block_bytes + _ALIGN - 1) // _ALIGN * _ALIGN
        n = _count(keys)
        at, epoch = await self._room(n * step)
        give = partial(session._staging.give, at)
        try:
            offsets = [at + i * step for i in range(n)]
            # Another call may ask for staging of the next connection meanwhile, so this one says
            # which epoch's it has filled.
            await _whole(asyncio.to_thread(fill, epoch, offsets))
            first_token, last_tokens, flags, tokens, retain, sub = rest
            ids = None if tokens is None else as_numbers(tokens)
        except BaseException:
            give()
            raise
        of = (epoch, group, parent, keys, offsets, first_token, last_tokens, flags)
        more = (ids, retain, sub)
        return cast("bytes", await session._outcome(self._raw.store_begin, *of, *more, then=give))

    async def _room(self, size: int) -> tuple[int, int]:
        """An offset in staging with ``size`` bytes of room, and the epoch whose staging it is."""
        session = self._session
        while True:
            asked = session._raw.staging_ask()
            if asked is None:
                raise Down(-1101, "DOWN", "no daemon is there to store into")
            epoch, total = asked
            at = session._staging.take(size, total)
            if at is not None:
                return at, epoch
            if session._staging.is_empty:
                raise ValueError(f"{size} bytes of blocks do not fit in staging of {total} bytes")
            await session._staging.wait()
