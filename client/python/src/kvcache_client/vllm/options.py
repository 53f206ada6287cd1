# SPDX-License-Identifier: Apache-2.0
"""Settings of the connector, and wishes of one request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvcache_client import Hint
from kvcache_client._options import (
    FLAG,
    MS_MAX,
    SOCKET_MAX,
    Kind,
    checked,
    integer,
    is_text,
    shown,
    size,
    text,
)

__all__ = ["Options", "Wishes", "is_name"]

# A session's name has 63 bytes: process, rank and purpose are appended.
_NAME_MAX = 40
# What the daemon takes as a name of a conversation, a document, a sub-tenant.
_DAEMON_NAME_MAX = 127


@dataclass(frozen=True)
class Options:
    """``kv_connector_extra_config``.

    Times are whole milliseconds up to 600,000; sizes have at most 1 TiB.

    Attributes:
        socket: the daemon's attach socket; None: ``$KVCACHE_SOCKET``, else its usual place.
        name: of the engine, in the daemon's statistics, at most 40 bytes; ranks are appended.
        staging: room of each rank for blocks on their way into the cache, bytes or ``"64MiB"``;
            64 KiB at least.
        start_ms: how long an engine's start waits for a daemon that is not there yet: its workers
            side by side, and then its scheduler. 0: not at all.
        timeout_ms: deadline of a call that is answered from memory.
        lookup_ms: how long the scheduler waits for an acquire before it goes on with others.
        load_ms: how long a request waits for blocks on disk; what has come by then is used.
        inline_bytes: loads up to this size are done in the engine's step.
        store_ms: how long a step may wait for room in staging; blocks without room stay unstored.
        store_decoded: whether blocks with decoded tokens are stored.
        salt_is_sub_tenant: the session is a gateway's, and ``cache_salt`` names the sub-tenant.
        report_prefill_cost: the daemon is told what prefill costs here, and then refuses hits that
            are slower to load than to compute.
    """

    socket: str | None = None
    name: str = "vllm"
    staging: int = 128 << 20
    start_ms: int = 2000
    timeout_ms: int = 500
    lookup_ms: int = 5
    load_ms: int = 1000
    inline_bytes: int = 64 << 20
    store_ms: int = 100
    store_decoded: bool = True
    salt_is_sub_tenant: bool = False
    report_prefill_cost: bool = True

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Options:
        """From the configuration's dictionary; an unknown name or a wrong type is an error."""
        return cls(**checked("kv_connector_extra_config", config, _OPTIONS, frozenset({"socket"})))


_OPTIONS: dict[str, Kind] = {
    "socket": text(1, SOCKET_MAX),
    "name": text(1, _NAME_MAX),
    "staging": size(64 << 10, 1 << 40),
    "start_ms": integer(0, MS_MAX),
    "timeout_ms": integer(1, MS_MAX),
    "lookup_ms": integer(0, MS_MAX),
    "load_ms": integer(1, MS_MAX),
    "inline_bytes": size(0, 1 << 40),
    "store_ms": integer(0, MS_MAX),
    "store_decoded": FLAG,
    "salt_is_sub_tenant": FLAG,
    "report_prefill_cost": FLAG,
}


@dataclass(frozen=True)
class Wishes:
    """``kv_transfer_params["kvcache"]`` of a request.

    Attributes:
        priority: of the blocks that it stores, 0 to 100 (35 is what blocks have without a wish).
        ttl_ms: how long the priority lasts; 0: without end.
        durable: what it stores is on stable storage before staging is free for others.
        no_store: nothing of it is stored.
        no_load: nothing is loaded for it.
        conversation: name that the sequence gets when the request ends.
        document: name that the prompt gets.
        hint: what will become of the sequence: ``"ended"``, ``"continue"``, ``"soon"``, ``"scan"``.
        within_ms: of the hint ``"soon"``.
    """

    priority: int | None = None
    ttl_ms: int = 0
    durable: bool = False
    no_store: bool = False
    no_load: bool = False
    conversation: str | None = None
    document: str | None = None
    hint: Hint | None = None
    within_ms: int = 0

    @classmethod
    def of(cls, params: object) -> tuple[Wishes, list[str]]:
        """The wishes, and what was wrong with those that were left out.

        A request is a user's: a wrong wish must not end the engine, so it is reported and ignored.
        """
        raw, where = params, "kv_transfer_params"
        if isinstance(raw, Mapping):
            raw, where = raw.get("kvcache"), "kv_transfer_params['kvcache']"
        if raw is None:
            return cls(), []
        if not isinstance(raw, Mapping):
            return cls(), [f"{where} is {shown(raw)}: a dictionary was expected"]
        values: dict[str, Any] = {}
        wrong: list[str] = []
        for name, value in raw.items():
            kind = _WISHES.get(name)
            made = kind.of(value) if kind else None
            if kind is None:
                wrong.append(f"{shown(name)} is no wish: known are {', '.join(sorted(_WISHES))}")
            elif made is None:
                wrong.append(f"{name} is {shown(value)}: {kind.what} was expected")
            else:
                values[name] = made
        return cls(**values), wrong


def is_name(value: str) -> bool:
    """Whether the daemon takes it as a name."""
    return is_text(value, 1, _DAEMON_NAME_MAX)


def _hint(value: Any) -> Hint | None:
    return Hint.__members__.get(value.upper()) if isinstance(value, str) else None


_WISHES: dict[str, Kind] = {
    "priority": integer(0, 100),
    "ttl_ms": integer(0, 2**53),
    "within_ms": integer(0, 2**31),
    "durable": FLAG,
    "no_store": FLAG,
    "no_load": FLAG,
    "conversation": text(1, _DAEMON_NAME_MAX),
    "document": text(1, _DAEMON_NAME_MAX),
    "hint": Kind(_hint, "one of 'ended', 'continue', 'soon', 'scan'"),
}
