# SPDX-License-Identifier: Apache-2.0
"""The connection to the daemon: calls that never raise into the engine, one log line a change."""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, Final

from vllm.logger import init_logger

from kvcache_client import Error, Hold, Session, Unsound

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcache_client import Namespace, _kvc
    from kvcache_client.vllm.options import Options
    from kvcache_client.vllm.plan import Plan

__all__ = ["ODD", "Link", "Seldom", "logger"]

logger = init_logger("vllm.kvcache_daemon")

# What one request's values may raise, here or in the daemon: it costs that request the daemon, and
# never the engine. UnicodeError is a ValueError.
ODD: Final = (Error, ValueError, TypeError, OverflowError)


class Seldom:
    """Warnings that a user can cause with each request: one in some seconds."""

    def __init__(self, seconds: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._next = float("-inf")
        self._left_out = 0

    def warning(self, what: str, *arguments: object) -> None:
        """Logs it, or counts it for the next one that is logged."""
        now = self._clock()
        if now < self._next:
            self._left_out += 1
            return
        if self._left_out:
            what += " (%d lines like it were left out before)"
            arguments += (self._left_out,)
        self._next, self._left_out = now + self._seconds, 0
        logger.warning(what, *arguments)


class Link:
    """A session and its namespace.

    Attributes:
        session: of the daemon; down as long as there is none.
        ns: the namespace, which opens itself when the daemon comes.
        refused: what the daemon said when it refused the namespace; nothing is asked any more.

    Args:
        wait_ms: how long the constructor waits for a daemon that is not there yet.
    """

    def __init__(
        self,
        plan: Plan,
        options: Options,
        name: str,
        *,
        staging: int = 0,
        shard: int = 0,
        wait_ms: int = 0,
    ) -> None:
        self.name = name
        self.refused: str | None = None
        self._plan = plan
        self._deadline_s = options.timeout_ms / 1000
        self._was_up: bool | None = None
        self._said: set[tuple[str, str]] = set()
        self._down_since = time.monotonic()
        self.session = Session(
            socket=options.socket,
            name=name[:63],
            staging_bytes=staging,
            shard=shard,
            timeout_ms=options.timeout_ms,
        )
        self.ns: Namespace = plan.open(self.session)
        self._until(lambda: self.session.up, wait_ms / 1000)
        self.watch()

    def tend(self) -> None:
        """In every step: the session hears of the daemon's end, and of the next one's start.

        One that nobody asks anything would else cost the first request that needs it its load.
        """
        self.session._raw.progress()
        self.watch()

    def watch(self) -> bool:
        """Whether the daemon is there; says so in the log when that has changed."""
        up = self.session.up
        if up != self._was_up:
            now = time.monotonic()
            if not up:
                why = self.session.last_error or "no answer"
                logger.warning(
                    "kvcache-daemon is not there for %s: all is computed until it is (%s)",
                    self.name,
                    why,
                )
                self._down_since = now
            elif self._was_up is None:
                logger.info("kvcache-daemon serves %s: namespace %d", self.name, self.ns.id)
            else:
                logger.warning(
                    "kvcache-daemon is back for %s after %.1f s", self.name, now - self._down_since
                )
            self._was_up = up
        return up

    def failed(self, what: str, error: Exception) -> None:
        """An error that is the namespace's ends all asking; any other is the moment's."""
        name = error.name if isinstance(error, Error) else type(error).__name__
        if isinstance(error, Unsound) or name in ("DENIED", "VERSION"):
            if self.refused is None:
                logger.error("kvcache-daemon refuses %s: %s", self.name, error)
            self.refused = str(error)
        elif self.watch() and (what, name) not in self._said:
            self._said.add((what, name))
            logger.warning("%s: %s: %s (said once)", self.name, what, error)

    def wait(self, request: _kvc.Request, seconds: float) -> bool:
        """Waits for a begun request to be done, at most so long. Returns whether it is."""
        return self._until(request.done, seconds)

    def _until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Waits while the session works, at most so long. Returns whether ``done()``."""
        raw = self.session._raw
        raw.progress()
        if done():
            return True
        poll = select.poll()
        poll.register(self.session.fileno(), select.POLLIN)
        end = time.monotonic() + seconds
        while not done():
            left = end - time.monotonic()
            if left <= 0:
                return False
            poll.poll(max(1, int(left * 1000)))
            raw.progress()
        return True

    def redeem(self, ticket: bytes) -> Hold:
        """The blocks of the scheduler's ticket. A daemon that has ended is a failure at once."""
        op = self.ns._raw.redeem_begin(ticket)
        if not self.wait(op, self._deadline_s):
            op.cancel()
        return Hold(op.finish())  # type: ignore[arg-type]

    def cost(self, ns_per_token: int) -> None:
        """Tells the daemon what computing a token costs here."""
        if not self.watch():
            return
        try:
            self.ns = self._plan.open(self.session, ns_per_token)
        except Error as error:
            self.failed("namespace", error)

    def close(self) -> None:
        """Ends the session."""
        try:
            self.session.close()
        except (BufferError, Error) as error:
            logger.debug("%s: close: %s", self.name, error)
