# SPDX-License-Identifier: Apache-2.0
"""A worker's side: copies between the engine's pages and the daemon's memory."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvcache_client import BadArgument, Down, Error, Stale, Status, Timeout
from kvcache_client._session import flags_of
from kvcache_client.vllm.device import Copies
from kvcache_client.vllm.link import ODD, Link, logger
from kvcache_client.vllm.messages import Report, StepOrders, Store, StoreOutcome
from kvcache_client.vllm.pages import Pages
from kvcache_client.vllm.stats import Stats

if TYPE_CHECKING:
    from kvcache_client import _kvc
    from kvcache_client.vllm.messages import Load
    from kvcache_client.vllm.options import Options
    from kvcache_client.vllm.plan import Plan

__all__ = ["Ring", "WorkerSide"]

_GOOD = {Status.OK, Status.EXISTS, Status.PENDING}
_IDLE_S = 0.002  # how long a step without work waits for a load: others that come wait as long
_PIECE_MAX = 1024  # blocks in one request: daemon and engine then work side by side


def _status_of(error: Exception) -> Status:
    """Of an order whose request failed as a whole: passing when the daemon could not be reached."""
    if isinstance(error, Timeout):
        return Status.TIMEOUT
    if isinstance(error, BadArgument) or not isinstance(error, Error):
        return Status.BAD_ARGUMENT
    known = Status.__members__.get(error.name)
    return Status.SHUTDOWN if isinstance(error, Down) or known is None else known


class Ring:
    """Room of the staging area, taken and given back in order of the requests.

    Attributes:
        size: bytes of the area.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._head = 0
        self._taken: deque[tuple[int, int]] = deque()

    def __bool__(self) -> bool:
        return bool(self._taken)

    def room(self) -> tuple[int, int]:
        """(offset, bytes) of the next free piece without a gap."""
        if not self._taken:
            self._head = 0
            return 0, self.size
        tail = self._taken[0][0]
        if self._head > tail:
            if self.size - self._head >= tail:
                return self._head, self.size - self._head
            return 0, tail
        return self._head, tail - self._head

    def take(self, offset: int, size: int) -> None:
        """Takes a part of what room() said."""
        self._taken.append((offset, size))
        self._head = offset + size

    def give_back(self) -> None:
        """The oldest part is free again."""
        self._taken.popleft()


@dataclass
class _Sent:
    """A request to store that is under way."""

    op: _kvc.Request
    job: int
    n: int
    last: bool


class WorkerSide:
    """Copies. No call of it raises; none waits longer than Options says."""

    def __init__(self, plan: Plan, options: Options, name: str, rank: int) -> None:
        self.plan = plan
        self.options = options
        self.rank = rank
        self.link = Link(
            plan, options, name, staging=options.staging, shard=rank, wait_ms=options.start_ms
        )
        self.stats = Stats()
        self.pages: Pages | None = None
        self._copies: Copies | None = None
        self._loads: Copies | None = None  # of the loader
        self._name = name
        self._loader: Link | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="kvcache-load")
        self._running: dict[str, Future[bool]] = {}
        self._idle = False
        self._loaded: set[str] = set()
        self._failed: set[str] = set()
        self._ring = Ring(0)
        self._epoch = 0
        self._sent: deque[_Sent] = deque()
        self._partial: dict[int, StoreOutcome] = {}
        self._report: dict[int, StoreOutcome] = {}

    def register(self, caches: dict[str, Any], blocks: int) -> None:
        """register_kv_caches: where the engine's pages are; again: these from now on.

        Nothing is copied to or from those before when this returns. What is on its way from them
        to the daemon lies in staging.
        """
        pages = Pages(self.plan, caches, blocks)
        wait(self._running.values())
        for before in (self._copies, self._loads):
            if before is not None:
                before.close()
        self._copies = self._loads = None
        self._copies = Copies(self.link.session, pages.device)
        self.pages = pages

    # ---- loads

    def load(self, orders: StepOrders) -> None:
        """start_load_kv: small loads now, large ones in a thread."""
        self._idle = orders.idle
        self.link.tend()
        if self._loader is not None and not self._running:  # else its thread has the session
            self._loader.tend()
        for load in orders.loads:
            try:
                self._load(load)
            except ODD as error:
                self.link.failed("load", error)
                self._done(load.request, False)

    def _load(self, load: Load) -> None:
        """One load: now, or in the thread."""
        if load.bytes <= self.options.inline_bytes:
            assert self._copies is not None
            self._done(load.request, self._load_one(self.link, self._copies, load))
        else:
            link, copies = self._beside()
            copies.behind()
            self._running[load.request] = self._pool.submit(self._load_one, link, copies, load)

    def _beside(self) -> tuple[Link, Copies]:
        """For loads in a thread: a session of its own, so that copies do not wait for stores."""
        assert self.pages is not None
        if self._loader is None:
            self._loader = Link(self.plan, self.options, f"{self._name}-load", shard=self.rank)
        if self._loads is None:
            self._loads = Copies(self._loader.session, self.pages.device, beside=True)
        return self._loader, self._loads

    def _load_one(self, link: Link, copies: Copies, load: Load) -> bool:
        """Copies the blocks of a ticket into their pages. False: they may hold anything."""
        began = time.perf_counter()
        assert self.pages is not None
        try:
            with link.redeem(load.ticket) as hold:
                held = list(hold.groups)
                wanted = [(f, len(p)) for f, p in zip(load.firsts, load.pages, strict=True)]
                if any(n and h != (f, n) for h, (f, n) in zip(held, wanted, strict=True)):
                    raise Stale(0, "STALE", f"the ticket has blocks {held}, and not {wanted}")
                copies.load(hold, self.pages.layout, load.pages)
        except ODD as error:
            link.failed("load", error)
            return False
        self.stats.load(load.bytes, time.perf_counter() - began)
        return True

    def _done(self, request: str, good: bool) -> None:
        self._loaded.add(request)
        if not good:
            self._failed.add(request)

    def loaded(self) -> tuple[set[str], set[str]]:
        """Requests whose loads have ended since the last call, and those of them that failed.

        vLLM steps as fast as it can while requests wait for loads: a step that computes nothing
        leaves its processor to the copy for a moment.
        """
        if self._idle and self._running and not self._loaded:
            wait(self._running.values(), _IDLE_S, FIRST_COMPLETED)
        for request in [r for r, f in self._running.items() if f.done()]:
            self._done(request, self._running.pop(request).result())
        loaded, self._loaded = self._loaded, set()
        failed, self._failed = self._failed, set()
        return loaded, failed

    # ---- stores

    def store(self, orders: StepOrders) -> None:
        """wait_for_save: copies the step's full blocks to staging, and begins to store them."""
        self._collect()
        if not orders.stores:
            return
        began = time.perf_counter()
        end = began + self.options.store_ms / 1000
        size = 0
        for order in orders.stores:
            size += self._store_one(order, end)
        self.stats.store(size, time.perf_counter() - began)
        self.link.watch()

    def _store_one(self, order: Store, end: float) -> int:
        """One order, in pieces as staging has room. Returns bytes."""
        group = self.plan.groups[order.group]
        step = (group.block_bytes + 63) // 64 * 64
        done, n = 0, len(order.pages)
        while done < n:
            room = self._room(step, end)
            if isinstance(room, Status):
                self._end(order.job, 0, n - done, room, last=True)
                break
            offset, fit = room
            piece = min(fit, n - done, _PIECE_MAX)
            offsets = [offset + i * step for i in range(piece)]
            if not self._send(order, done, piece, offsets):
                break
            self._ring.take(offset, piece * step)
            done += piece
        return done * group.block_bytes

    def _room(self, step: int, end: float) -> tuple[int, int] | Status:
        """(offset, blocks that fit) in staging, once there is room; else why there is none."""
        while True:
            if not self._staging():
                return Status.SHUTDOWN
            offset, size = self._ring.room()
            if size >= step:
                return offset, size // step
            if not self._ring:
                logger.error(
                    "a block of %d bytes does not fit in staging of %d: set staging in "
                    "kv_connector_extra_config",
                    step,
                    self._ring.size,
                )
                return Status.TOO_LARGE
            left = end - time.perf_counter()
            if left <= 0 or not self.link.wait(self._sent[0].op, left):
                return Status.BUSY
            self._collect()

    def _staging(self) -> bool:
        """Whether there is staging; after a reconnect it is another one, and empty."""
        view = self.link.session.staging
        if view is None:
            return False
        size, epoch = len(view), self.link.session.epoch
        view.release()
        if epoch != self._epoch:
            while self._sent:
                self._finish(self._sent.popleft())
            self._ring, self._epoch = Ring(size), epoch
        return True

    def _send(self, order: Store, done: int, piece: int, offsets: list[int]) -> bool:
        """Copies a piece to staging, and begins to store it."""
        group = self.plan.groups[order.group]
        keys = order.keys[done * 32 : (done + piece) * 32]
        parent = order.parent if done == 0 else order.keys[(done - 1) * 32 : done * 32]
        last = done + piece == len(order.pages)
        try:
            self.stage(order.group, order.pages[done : done + piece], offsets)
            op = self.link.ns._raw.store_begin(
                self._epoch,
                order.group,
                parent,
                keys,
                offsets,
                (order.first + done) * group.block_tokens,
                0,
                flags_of(decoded=order.decoded, durable=order.durable),
                None,
                order.retain,
                order.sub_tenant,
            )
        except ODD as error:
            self.link.failed("store", error)
            self._end(order.job, 0, len(order.pages) - done, _status_of(error), last=True)
            return False
        self._sent.append(_Sent(op, order.job, piece, last))
        return True

    def stage(self, group: int, pages: list[int], offsets: list[int]) -> None:
        """Copies blocks to staging, block i to offsets[i]; the GIL is released."""
        assert self.pages is not None
        assert self._copies is not None
        self._copies.stage(self.link.ns, self.pages.layout, group, pages, offsets)

    def _collect(self) -> None:
        """Takes in the outcomes that have come, in order."""
        if not self._sent:
            return
        self.link.session._raw.progress()
        while self._sent and self._sent[0].op.done():
            self._finish(self._sent.popleft())
            self._ring.give_back()

    def _finish(self, sent: _Sent) -> None:
        try:
            statuses = sent.op.finish()
            assert isinstance(statuses, bytes)
        except ODD as error:
            self.link.failed("store", error)
            self._end(sent.job, 0, sent.n, _status_of(error), last=sent.last)
            return
        bad = [i for i, s in enumerate(statuses) if s not in _GOOD]
        good = bad[0] if bad else sent.n
        status = Status(statuses[good]) if bad else Status.OK
        self._end(sent.job, good, sent.n - good, status, last=sent.last)

    def _end(self, job: int, good: int, bad: int, status: Status, *, last: bool) -> None:
        """A piece of an order has ended; after its last one the order is reported."""
        known = self._partial.setdefault(job, StoreOutcome(1, 0, Status.OK))
        if known.status == Status.OK:
            known.good += good
            known.status = status
        if last:
            self._report[job] = self._partial.pop(job)

    def report(self) -> Report | None:
        """build_connector_worker_meta: orders that have ended since the last call."""
        self._collect()
        if not self._report:
            return None
        done, self._report = self._report, {}
        return Report(done)

    def close(self) -> None:
        """The engine ends: what is under way is given a moment."""
        if self._sent:
            self.link.wait(self._sent[-1].op, 1.0)
            self._collect()
        self._pool.shutdown(wait=True)
        if self._loader is not None:
            self._loader.close()
        self.pages = None
        self.link.close()
