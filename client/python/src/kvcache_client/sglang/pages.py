# SPDX-License-Identifier: Apache-2.0
"""What both adapters share: settings, namespace, keys, and calls that never raise into SGLang."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvcache_client import Error, Group, Hold, Namespace, Session, Status
from kvcache_client._options import MS_MAX, SOCKET_MAX, Kind, checked, integer, text

__all__ = ["Options", "Pages", "good", "keys_of", "logger"]

logger = logging.getLogger("kvcache_client.sglang")

_WINDOW = 1 << 30  # tokens: a window that covers any sequence
_GOOD = (int(Status.OK), int(Status.EXISTS))
# What SGLang itself has in the same dictionary.
_FOREIGN = {"backend_name", "module_path", "class_name", "interface_v1"}


@dataclass(frozen=True)
class Options:
    """The extra configuration.

    Attributes:
        socket: the daemon's attach socket; None: ``$KVCACHE_SOCKET``, else its usual place.
        staging_mb: room for pages on their way into the cache, MiB.
        timeout_ms: deadline of a call.
        position: the model's position scheme, as of a namespace.
        revision: of the model's weights; two that share a name must differ here.
        quant: of the KV.
    """

    socket: str | None = None
    staging_mb: int = 128
    timeout_ms: int = 1000
    position: str = "rope"
    revision: str = ""
    quant: str = ""

    @classmethod
    def of(cls, config: Mapping[str, Any] | None) -> Options:
        """From the dictionary that SGLang passes; an unknown name or a wrong type is an error."""
        own = {k: v for k, v in (config or {}).items() if k not in _FOREIGN}
        where = "the extra configuration"
        return cls(**checked(where, own, _OPTIONS, frozenset({"socket"})))


_OPTIONS: dict[str, Kind] = {
    "socket": text(1, SOCKET_MAX),
    "staging_mb": integer(1, 1 << 20),
    "timeout_ms": integer(1, MS_MAX),
    "position": text(1, 127),
    "revision": text(0, 127),
    "quant": text(0, 127),
}


def keys_of(hashes: Sequence[str]) -> bytes:
    """Keys of 32 bytes from SGLang's hashes: SHA-256, hexadecimal."""
    keys = b"".join(bytes.fromhex(h) for h in hashes)
    if len(keys) != 32 * len(hashes):
        raise ValueError("hashes of 64 hexadecimal digits were expected")
    return keys


def good(statuses: bytes) -> list[bool]:
    """Which blocks the daemon has now."""
    return [s in _GOOD for s in statuses]


class Pages:
    """A session and the namespace of one rank's pages.

    Args:
        model: the model's name, as SGLang has it.
        page_tokens, page_bytes: of a page of this rank, all layers.
        shape: (rank, ranks) that share every page; (0, 1) where all have the same bytes.
        layout, dtype: texts of the namespace.
        stage: what else tells pages apart, for instance the pipeline stage.
    """

    def __init__(
        self,
        options: Options,
        *,
        model: str,
        page_tokens: int,
        page_bytes: int,
        shape: tuple[int, int],
        layout: str,
        dtype: str,
        stage: str,
    ) -> None:
        self.page_tokens = page_tokens
        self.page_bytes = page_bytes
        self._was_up: bool | None = None
        rank, ranks = shape
        self.session = Session(
            socket=options.socket,
            name=f"sglang-{rank}",
            staging_bytes=max(options.staging_mb << 20, 2 * page_bytes),
            shard=rank,
            timeout_ms=options.timeout_ms,
        )
        self.ns: Namespace = self.session.namespace(
            model=model[-127:] or "model",
            revision=options.revision,
            dtype=dtype,
            quant=options.quant,
            layout=layout,
            position=options.position,
            extra=stage,
            shards=ranks,
            groups=[Group(page_tokens, page_bytes, "window", _WINDOW)],
        )
        self.watch()

    def watch(self) -> None:
        """Says in the log when the daemon goes and when it comes back."""
        up = self.session.up
        if up != self._was_up:
            if not up:
                logger.warning(
                    "kvcache-daemon is not there: nothing is loaded or stored until it is (%s)",
                    self.session.last_error or "no answer",
                )
            elif self._was_up is not None:
                logger.warning("kvcache-daemon is back")
            self._was_up = up

    def cached(self, hashes: Sequence[str]) -> int:
        """Leading pages that are cached; none without a daemon."""
        try:
            tokens = len(hashes) * self.page_tokens
            found = self.ns.lookup(keys_of(hashes), tokens, prefetch=True).tokens
        except Error as error:
            self.failed("lookup", error)
            return 0
        self.watch()
        return found // self.page_tokens

    def acquire(self, hashes: Sequence[str]) -> Hold:
        """Holds leading pages; the caller catches errors."""
        return self.ns.acquire(keys_of(hashes), len(hashes) * self.page_tokens)

    def failed(self, what: str, error: Error) -> None:
        """An error costs a hit, and never a request."""
        self.watch()
        logger.debug("%s: %s", what, error)

    def close(self) -> None:
        """Ends the session."""
        self.session.close()
