# SPDX-License-Identifier: Apache-2.0
"""Values that go in and come out: groups, prefixes, statuses, names, pins."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kvcache_client import _kvc

__all__ = [
    "Group",
    "GroupPrefix",
    "Hint",
    "Miss",
    "NameInfo",
    "NameKind",
    "PinInfo",
    "Prefix",
    "Put",
    "PutGroup",
    "Retain",
    "Rule",
    "Status",
]

Rule = Literal["full", "window", "state"]

Key = bytes  # the name is taken where a field is called bytes

_RULES: dict[str, int] = {
    "full": _kvc.RULE_FULL,
    "window": _kvc.RULE_WINDOW,
    "state": _kvc.RULE_STATE,
}


@dataclass(frozen=True, slots=True)
class Group:
    """Layers of a model whose KV has blocks of one size and one rule for a hit.

    Attributes:
        block_tokens: tokens in a block.
        block_bytes: bytes of one shard (rank) of one block, all layers of the group together.
        rule: ``"full"``: a hit needs every block of the prefix. ``"window"``: those that hold one
            of the prefix's last ``window`` tokens. ``"state"``: the one at the prefix's end.
        window: tokens; for ``"window"`` only.
        replicated: all ranks have the same bytes, which are stored once.
    """

    block_tokens: int
    block_bytes: int
    rule: Rule = "full"
    window: int = 0
    replicated: bool = False

    def spec(self) -> tuple[int, int, int, int, bool]:
        """The group as the extension takes it."""
        if self.rule not in _RULES:
            raise ValueError(f"rule {self.rule!r}: one of {', '.join(_RULES)} was expected")
        return (
            self.block_tokens,
            self.block_bytes,
            _RULES[self.rule],
            self.window,
            self.replicated,
        )


class Status(enum.IntEnum):
    """What became of a block. A byte of what a store returns is one of these."""

    OK = 0
    BAD_MESSAGE = 1
    BAD_ARGUMENT = 2
    UNKNOWN_OP = 3
    VERSION = 4
    DENIED = 5
    NO_NAMESPACE = 6
    UNSOUND = 7
    TIMEOUT = 8
    CANCELLED = 9
    BUSY = 10
    FULL = 11
    NO_PARENT = 12
    GONE = 13
    NO_LEASE = 14
    TOO_LARGE = 15
    LIMIT = 16
    SHUTDOWN = 17
    TIER = 18
    INTERNAL = 19
    PENDING = 20
    EXISTS = 21
    QUOTA = 22
    PIN_LIMIT = 23
    NO_NAME = 24
    NO_STORE = 25
    NOT_WORTH = 26


class Miss(enum.IntEnum):
    """Why the cached prefix of a group ends where it ends."""

    NONE = 0
    NEVER = 1
    EVICTED = 2
    PENDING = 3
    CORRUPT = 4
    NOT_WORTH = 5
    NAMESPACE = 6
    DROPPED = 7
    OTHER_GROUP = 8
    NOT_LOADED = 9

    @property
    def text(self) -> str:
        """The reason for people."""
        return _kvc.miss_name(self)[1]


class NameKind(enum.IntEnum):
    """What a name stands for."""

    CONVERSATION = 1
    DOCUMENT = 2


class Hint(enum.IntEnum):
    """What will become of a sequence. It may be wrong: the daemon learns how far it is true."""

    ENDED = 1
    CONTINUE = 2
    SOON = 3
    SCAN = 4


class GroupPrefix(NamedTuple):
    """Cached blocks of one group.

    Attributes:
        blocks: leading blocks that are cached.
        reason: a :class:`Miss`: why no more.
        detail: of the reason; see ``PROTOCOL.md``.
    """

    blocks: int
    reason: int
    detail: int


class Prefix(NamedTuple):
    """The longest cached prefix.

    Attributes:
        tokens: that satisfy every group, and are worth loading.
        cached_tokens: the same, whether they are worth loading or not.
        load_us: of a lookup: microseconds, about, to load what is not in memory.
        groups: one of each group of the namespace.
    """

    tokens: int
    cached_tokens: int
    load_us: int
    groups: tuple[GroupPrefix, ...]

    @classmethod
    def of(cls, raw: tuple[int, int, int, tuple[tuple[int, int, int], ...]]) -> Prefix:
        """From what the extension gives."""
        return cls(raw[0], raw[1], raw[2], tuple(GroupPrefix(*g) for g in raw[3]))


class PutGroup(NamedTuple):
    """What became of one group's blocks.

    Attributes:
        stored: blocks that were stored now.
        there: blocks that were there already, or are being stored by another.
        left: all others.
        status: :class:`Status` of the first of those.
        statuses: one byte (:class:`Status`) for each key.
    """

    stored: int
    there: int
    left: int
    status: int
    statuses: bytes


class Put(NamedTuple):
    """What :meth:`Namespace.put` did.

    Attributes:
        tokens: up to here every group of rule ``"full"`` has its blocks.
        bytes: stored now, of this shard.
        groups: one for each group of the namespace.
    """

    tokens: int
    bytes: int
    groups: tuple[PutGroup, ...]


class Retain(NamedTuple):
    """A wish for blocks that hold a token of [first_token, end_token): how long they stay.

    Attributes:
        first_token: position in the sequence.
        end_token: position behind the last one; 0 = to its end, however long.
        priority: 0 (goes first) to 100 (goes last); blocks without a wish have 35.
        duration_ms: from the blocks' commit on; 0 = without end.
    """

    first_token: int
    end_token: int
    priority: int
    duration_ms: int = 0


@dataclass(frozen=True, slots=True)
class NameInfo:
    """A conversation or document. Times are milliseconds; bytes are payload.

    Attributes:
        tokens: that it stands for.
        tokens_cached: the prefix of them that is there now, in whatever tier.
        tip: key of group 0's last block.
    """

    kind: NameKind
    name: str
    principal: str
    tenant: str
    sub_tenant: str
    model: str
    ns: int
    tokens: int
    blocks: int
    tokens_cached: int
    bytes: int
    bytes_in_memory: int
    bytes_on_disk: int
    age_ms: int
    idle_ms: int
    ttl_ms: int
    priority: int
    pinned: bool
    has_tokens: bool
    tip: Key


@dataclass(frozen=True, slots=True)
class PinInfo:
    """A pin. left_ms 0: without end."""

    id: int
    bytes: int
    left_ms: int
    ns: int
    tokens: int
    principal: str
    tenant: str
    sub_tenant: str
    in_memory: bool
    tip: Key
