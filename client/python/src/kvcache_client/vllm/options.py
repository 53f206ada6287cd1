# SPDX-License-Identifier: Apache-2.0
"""Settings of the connector, and wishes of one request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from kvcache_client import Hint

__all__ = ["Options", "Wishes", "bytes_of", "is_name"]

_UNITS = {
    "": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
}


def bytes_of(value: object) -> int:
    """A size in bytes: a number, or a text such as ``"64MiB"`` or ``"1GB"``."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = re.fullmatch(r"(\d+)\s*([KMG]i?B)?", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is no size: 67108864 or '64MiB' were expected")
    return int(match[1]) * _UNITS[match[2] or ""]


@dataclass(frozen=True)
class Options:
    """``kv_connector_extra_config``.

    Attributes:
        socket: the daemon's attach socket; None: ``$KVCACHE_SOCKET``, else its usual place.
        name: of the engine, in the daemon's statistics; ranks are appended.
        staging: room of each rank for blocks on their way into the cache, bytes or ``"64MiB"``.
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
        known = {f.name: f for f in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in config.items():
            if name not in known:
                raise ValueError(
                    f"kv_connector_extra_config has {name!r}: known are {', '.join(sorted(known))}"
                )
            values[name] = _checked(name, value, known[name].default)
        return cls(**values)


def _checked(name: str, value: Any, default: Any) -> Any:
    if name in ("staging", "inline_bytes"):
        try:
            return bytes_of(value)
        except ValueError as error:
            raise ValueError(f"kv_connector_extra_config: {name}: {error}") from None
    wanted = str if default is None else type(default)
    is_int = isinstance(value, int) and not isinstance(value, bool)
    good = is_int and value >= 0 if wanted is int else isinstance(value, wanted)
    if not good and not (default is None and value is None):
        raise ValueError(
            f"kv_connector_extra_config: {name} is {value!r}: {wanted.__name__} was expected"
        )
    return value


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
    def of(cls, params: Mapping[str, Any] | None) -> tuple[Wishes, list[str]]:
        """The wishes, and what was wrong with those that were left out.

        A request is a user's: a wrong wish must not end the engine, so it is reported and ignored.
        """
        raw = (params or {}).get("kvcache")
        if raw is None:
            return cls(), []
        if not isinstance(raw, Mapping):
            return cls(), [f"kv_transfer_params['kvcache'] is {raw!r}: a dictionary was expected"]
        values: dict[str, Any] = {}
        wrong: list[str] = []
        for name, value in raw.items():
            check = _WISHES.get(name)
            if check is None:
                wrong.append(f"{name!r} is no wish: known are {', '.join(sorted(_WISHES))}")
                continue
            good, what = check
            made = good(value)
            if made is None:
                wrong.append(f"{name} is {value!r}: {what} was expected")
            else:
                values[name] = made
        return cls(**values), wrong


def _number(most: int) -> Any:
    def check(value: Any) -> int | None:
        good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most
        return value if good else None

    return check


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def is_name(value: str) -> bool:
    """Whether the daemon takes it as a name: 1 to 127 bytes of UTF-8 without NUL."""
    try:
        return 0 < len(value.encode()) < 128 and "\0" not in value
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON may hold
        return False


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and is_name(value) else None


def _hint(value: Any) -> Hint | None:
    return Hint.__members__.get(value.upper()) if isinstance(value, str) else None


_WISHES: dict[str, tuple[Any, str]] = {
    "priority": (_number(100), "0 to 100"),
    "ttl_ms": (_number(2**53), "a number of milliseconds"),
    "within_ms": (_number(2**31), "a number of milliseconds"),
    "durable": (_flag, "true or false"),
    "no_store": (_flag, "true or false"),
    "no_load": (_flag, "true or false"),
    "conversation": (_name, "a name of 1 to 127 bytes of UTF-8, without NUL"),
    "document": (_name, "a name of 1 to 127 bytes of UTF-8, without NUL"),
    "hint": (_hint, "one of 'ended', 'continue', 'soon', 'scan'"),
}
